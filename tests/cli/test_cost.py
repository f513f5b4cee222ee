"""`servemark cost` over a real store: table, CSV, JSON, cards, and what goes wrong."""

from __future__ import annotations

import csv
import io
import json
import runpy
from pathlib import Path

import pytest

from servemark.cli.main import run_cli

ROWS = runpy.run_path(str(Path(__file__).parents[1] / "store" / "rows_importer.py"))
CARD = """\
schema: 1
name: ours
date: 2026-11-01
currency: USD
note: "[red]not markup[/red] \\e[31m"
gpus:
  b200: {usd-per-gpu-hour: 3.6, price-source: contract, kw-per-gpu: 1.5, power-scope: facility, power-source: meter}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A home with one line of three points (20 -> 900, 40 -> 700, 80 -> 300) and a card."""
    monkeypatch.setattr("servemark.results.importers.registry.importers", lambda: (ROWS["reading"](1),))
    monkeypatch.setattr("servemark.results.gates.registry.judge_all", ROWS["judge"])
    where = tmp_path / "home"
    monkeypatch.setenv("SERVEMARK_HOME", str(where))
    monkeypatch.setenv("COLUMNS", "80")
    rows = b""
    for speed, rate, load in ((20, 900.0, 64), (40, 700.0, 16), (80, 300.0, 4)):
        figures = {"tpot_s.p50": 1 / speed, "total_tokens_per_s_per_gpu": rate}
        rows += ROWS["line"](load, "r1", **figures)
    (tmp_path / "rows.jsonl").write_bytes(rows)
    assert run_cli(["import", str(tmp_path / "rows.jsonl")]) == 0
    (where / "rates").mkdir()
    (where / "rates" / "ours.yaml").write_text(CARD, encoding="utf-8")
    capsys.readouterr()
    return where


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr)."""
    code = run_cli(["cost", *argv])
    found = capsys.readouterr()
    return code, found.out, found.err


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_table_fits_80_columns_and_names_card_and_date(
    home: Path, capsys: pytest.CaptureFixture[str], lang: str
) -> None:
    code, out, _ = told(capsys, "--target", "60", "--formulas", "--lang", lang)
    assert code == 0
    assert "ours@2026-11-01" in out
    assert "3.33" in out, "3.6 / (300 x 3600 / 1e6)"
    assert "2.00" in out, "3.6 / (500 x 3600 / 1e6)"
    assert "3.6 ÷ (500 " in out.replace("\n    ", " ")
    assert max(map(len, out.splitlines())) <= 80


def test_csv_and_json_name_card_date_and_points(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys, "--target", "60", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert code == 0
    assert [row["kind"] for row in rows] == ["measured", "estimate"]
    assert {(row["card"], row["card_date"]) for row in rows} == {("ours", "2026-11-01")}
    assert [float(row["usd_per_million_total_tokens"]) for row in rows] == pytest.approx([3.6 / 1.08, 2.0])
    assert all(row["refs"] for row in rows)
    assert rows[0]["usd_per_million_output_tokens"] == ""
    body = json.loads(told(capsys, "--target", "60", "--json")[1])
    assert body["card"]["edition"] == "ours@2026-11-01"
    assert body["rows"][0]["measured"]["costs"][0]["value"] == pytest.approx(3.6 / 1.08)


def test_cards_are_listed_with_sources_and_nothing_steers_the_terminal(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "rates" / "bad.yaml").write_text("schema: 1\nname: bad\n", encoding="utf-8")
    code, out, err = told(capsys, "--cards")
    assert code == 0
    assert "contract" in out
    assert "[red]not markup[/red]" in out
    assert "\x1b" not in out
    assert "example-coreweave-on-demand" in out
    assert "bad.yaml" in err
    listed = json.loads(told(capsys, "--cards", "--json")[1])
    assert [card["origin"] for card in listed["cards"]] == ["user", "shipped", "shipped"]
    assert len(listed["faults"]) == 1


def test_a_file_or_a_name_overrides(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(CARD.replace("3.6", "7.2").replace("ours", "theirs"), encoding="utf-8")
    assert "6.67" in told(capsys, "--target", "60", "--card", str(other))[1]
    code, out, _ = told(capsys, "--target", "60", "--card", "example-hyperstack-on-demand")
    assert code == 0
    assert "example-hyperstack-on-demand@2026-08-26" in out
    assert "5.56" in out, "6.00 / 1.08; no power in it, so no joules"


@pytest.mark.parametrize(
    "argv",
    [
        ["--card", "nothing"],
        ["--card", "./none.yaml"],
        ["--x", "window_s"],
        ["--x", "nonsense"],
        ["--target", "nan"],
        ["--target", "0"],
        ["colour=red"],
    ],
)
def test_bad_use_is_exit_code_2(home: Path, capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    code, out, err = told(capsys, *argv)
    assert code == 2
    assert not out
    assert "Traceback" not in err


def test_nothing_selected_is_no_error(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys, "model=unheard-of", "--target", "60", "--lang", "en")
    assert code == 0
    assert "nothing was measured" in out
