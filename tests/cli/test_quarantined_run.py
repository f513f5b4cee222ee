"""A quarantined run of one's own says so wherever its figures are read."""

from __future__ import annotations

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.analysis.report_data import build_report_data
from servemark.cli.main import run_cli
from servemark.cli.run_job import print_outcome, print_rows
from servemark.report.page import write_report
from servemark.results.row import ReplayFigures, WindowTokens
from servemark.results.serialize import encode_result, read_result
from servemark.runs.line import LineOutcome

MAKE = runpy.run_path(str(Path(__file__).parents[1] / "results" / "make_run.py"))
WORDS = {"en": ("quarantined", "steady window"), "zh": ("已隔离", "稳态窗")}


@pytest.fixture
def outcome(tmp_path: Path) -> LineOutcome:
    """A line of three runs; the steady window of the first is twice its window."""
    folders: list[Path] = MAKE["make_line"](tmp_path / "runs")
    row = read_result(folders[0])
    assert row.window_s is not None
    twice = 2 * row.window_s
    steady = WindowTokens(0.0, twice, twice, 1, 1)
    bad = replace(
        row, replayed=ReplayFigures("semantics", "closed", None, {}, 1, 1, None, steady, {}, None, ())
    )
    (folders[0] / "result.json").write_bytes(encode_result(bad))
    return LineOutcome(MAKE["LINE"], folders, folders, [read_result(each) for each in folders])


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_show_and_runs(
    outcome: LineOutcome, tmp_path: Path, capsys: pytest.CaptureFixture[str], lang: str
) -> None:
    """One point of three is marked; `runs --json` names the gate."""
    words = WORDS[lang]
    home = ["--home", str(tmp_path), "--lang", lang]
    assert run_cli(["show", outcome.folders[0].name, *home]) == 0
    out = capsys.readouterr().out
    assert "✗" in out and all(each in out for each in words)
    assert run_cli(["show", outcome.folders[1].name, *home]) == 0
    assert words[0] not in capsys.readouterr().out
    assert run_cli(["runs", *home]) == 0
    assert capsys.readouterr().out.count(words[0]) == 1
    assert run_cli(["runs", "--json", *home]) == 0
    said = [json.loads(line)["quarantined_by"] for line in capsys.readouterr().out.splitlines()]
    assert said == [["window_possible"], [], []]


def test_the_end_of_a_run(
    outcome: LineOutcome, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The closing view says it, and JSON on stdout is joined by a line on stderr."""
    monkeypatch.setenv("COLUMNS", "100")
    print_outcome(outcome, None)
    out = capsys.readouterr().out
    assert "✗ 1 " in out and "1 of 3 points are quarantined" in out
    print_rows(outcome)
    done = capsys.readouterr()
    assert len(done.out.splitlines()) == 3
    assert "1 of 3 points are quarantined" in done.err


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page(outcome: LineOutcome, tmp_path: Path, lang: str) -> None:
    """It is off every front of the page, and the page's head and its list of doubts say so."""
    data = build_report_data(outcome.folders, lang)
    name = data.points[0].run_id
    assert [point.quarantined for point in data.points] == [True, False, False]
    assert all(name in {each.id for each in axis.front.excluded} for axis in data.axes)
    assert not any(cell.best for cell in data.points[0].cells)
    assert data.problems[0].code == "gate.window_possible" and data.problems[0].next_step
    page = tmp_path / "page.html"
    write_report(data, page, lang)
    said = page.read_text(encoding="utf-8")
    assert all(each in said for each in WORDS[lang])
