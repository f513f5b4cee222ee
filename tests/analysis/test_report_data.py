"""The plain value that reports draw, from real run folders: whole, failed, missing, damaged, hostile."""

from __future__ import annotations

import hashlib
import json
import runpy
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from servemark.analysis.panels import mixed
from servemark.analysis.report_data import build_report_data
from servemark.analysis.report_types import ReportData
from servemark.base.messages import LANGUAGES, catalogue
from servemark.evals.io import read_evals, write_evals
from servemark.evals.runner import TaskOutcome
from servemark.evals.samples import SampleRecord, write_samples
from servemark.evals.statistics import score_of, statistics_of
from servemark.metrics.derive import value_of
from servemark.results.serialize import SHA_KEY, row_sha256, row_to_json

MADE = runpy.run_path(str(Path(__file__).parents[1] / "results" / "make_run.py"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One line of three runs, never changed."""
    made: list[Path] = MADE["make_line"](tmp_path_factory.mktemp("report"))
    return made


@pytest.fixture(scope="module")
def data(folders: list[Path]) -> ReportData:
    """Its report data in English."""
    return build_report_data(folders, "en")


def test_points_and_cells_are_the_rows_own(data: ReportData) -> None:
    """Each cell is what `metrics.derive` makes of its row; each column has a meaning; units are one a
    metric."""
    assert [point.concurrency for point in data.points] == [1, 2, 4]
    for point in data.points:
        plain = row_to_json(point.row)
        assert [cell.address for cell in point.cells] == [column.address for column in data.columns]
        for cell in point.cells:
            assert cell.value == value_of(plain, cell.address)
            assert (cell.value is None) == (cell.absent_because is not None)
    units: dict[str, set[str]] = {}
    for column in data.columns:
        assert column.definition
        assert column.formula
        units.setdefault(column.address.partition(".")[0], set()).add(column.unit)
    assert all(len(each) == 1 for each in units.values())
    assert "eval_score.word-sort" in [column.address for column in data.columns]


def test_best_marks_follow_the_direction(data: ReportData) -> None:
    """Highest throughput at 4, lowest TTFT at 1; a column of equal values has no best."""
    by = {column.address: [p.cells[i].best for p in data.points] for i, column in enumerate(data.columns)}
    assert by["output_tokens_per_s"] == [False, False, True]
    assert by["ttft_s.p90"] == [True, False, False]
    assert by["interactivity.p50"] == [True, False, False]


def test_axes_fronts_and_paths(data: ReportData) -> None:
    """Default first; every point is somewhere on each of the three; the path runs through the front."""
    assert data.axes[0].id == "interactivity.p50/output_tokens_per_s"
    assert [axis.x for axis in data.axes] == ["interactivity.p50", "ttft_s.p90", "e2el_s.p50"]
    runs = {point.run_id for point in data.points}
    for axis in data.axes:
        parts = (*axis.front.on, *axis.front.dominated, *axis.front.excluded)
        assert {candidate.id for candidate in parts} == runs
        assert {(c.x, c.y) for c in axis.front.on} <= set(axis.path)


def test_panels_of_a_point(data: ReportData) -> None:
    """Histograms count every value, bars every request, samples show right and wrong, shares stand side by
    side."""
    point = data.points[2]
    by_metric = {each.metric: each for each in point.histograms}
    assert set(by_metric) == {"ttft_s", "tpot_s", "e2el_s", "chunk_gap_s"}
    assert by_metric["ttft_s"].n == point.row.counts.ok == 58
    assert sum(len(lane) for lane in point.timeline.lanes) == 60
    assert len(point.timeline.lanes) == 4
    assert point.cache.entries[0].id == "cache_hit_theoretical"
    assert point.cache.agrees is True
    (panel,) = point.evals
    assert len(panel.samples) == 12
    assert {sample.correct for sample in panel.samples} == {True, False}
    assert panel.samples_total == 100
    facts = {row.field: row for row in point.provenance}
    assert facts["engine"].agree is True
    assert facts["engine_version"].agree is False
    assert facts["host.cores"].declared is None
    assert "engine_counters" not in {field.partition(".")[0] for field in facts}
    assert [phase.id for phase in point.phases] == ["launch", "ready", "warmup", "replay", "evals", "collect"]


def test_failed_requests_lead_to_their_lines(data: ReportData, folders: list[Path]) -> None:
    """The error and the time-out of the third point, each with its line in requests.jsonl."""
    point = data.points[2]
    assert point.failed_total == 2
    lines = (folders[2] / "requests.jsonl").read_text().splitlines()
    for failed in point.failed:
        record = json.loads(lines[failed.line - 1])
        assert (record["id"], record["outcome"]) == (failed.request, failed.outcome)
    assert {failed.outcome for failed in point.failed} == {"error", "timeout"}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_text_is_in_the_language(folders: list[Path], lang: str) -> None:
    """No key or placeholder shows through, and Chinese prose is Chinese."""
    found = build_report_data(folders, lang)
    said = [*found.findings, *(p.text for p in found.problems), *(p.title for p in found.problems)]
    said += [p.next_step for p in found.problems if p.next_step]
    said += [column.definition for column in found.definitions] + [p.cache.verdict for p in found.points]
    said += [p.cache.state for p in found.points] + [phase.label for p in found.points for phase in p.phases]
    for sentence in said:
        assert sentence
        assert "{" not in sentence
        assert not sentence.startswith(("analysis.", "warning.", "metrics."))
        if lang == "zh":
            assert any("\u4e00" <= character <= "\u9fff" for character in sentence), sentence


def test_equal_problems_are_told_once(data: ReportData) -> None:
    """Three points with an incomplete accuracy task are one group of three; gravest first; nothing is
    lost."""
    groups = {group.code: group for group in data.problem_groups}
    assert len(groups["eval_incomplete"].problems) == 3
    assert sum(len(group.problems) for group in data.problem_groups) == len(data.problems)
    order = ["error", "warning", "note"]
    levels = [order.index(problem.level) for problem in data.problems]
    assert levels == sorted(levels)


def test_a_failed_and_a_missing_run_are_problems(tmp_path: Path) -> None:
    """One point whole, one failed in the engine, the third never begun: both are named, the whole one is
    shown."""
    whole, failed = MADE["make_point"](tmp_path, 1), MADE["make_failed"](tmp_path, 2)
    found = build_report_data([whole, failed], "en")
    assert [point.concurrency for point in found.points] == [1]
    codes = {problem.code: problem for problem in found.problems if problem.level == "error"}
    assert codes["results.missing_file"].concurrency == 2
    assert "engine" in codes["results.missing_file"].title
    assert "engine.log" in codes["results.missing_file"].text
    assert codes["analysis.problem.missing_point"].concurrency == 4
    assert "2, 4" in found.findings[-1]


def test_one_run_of_a_line_does_not_miss_the_others(folders: list[Path]) -> None:
    """The siblings lie beside it: whoever asks for one point is not told that the rest is missing."""
    found = build_report_data(folders[1:2], "en")
    assert not [problem for problem in found.problems if problem.level == "error"]
    assert len(found.points) == 1


def test_a_killed_run_is_told_from_a_finished_one(tmp_path: Path) -> None:
    """A manifest and half the records, neither result nor reason."""
    killed = MADE["make_failed"](tmp_path, 2)
    (killed / "failure.json").unlink()
    found = build_report_data([killed], "en")
    assert found.points == ()
    assert found.header.arm == "smollm2-cpu"
    assert "analysis.problem.no_result" in {problem.code for problem in found.problems}
    assert found.axes == ()


def empty(run: Path) -> None:
    """Remove every file of a run folder."""
    for each in run.iterdir():
        each.unlink()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "result cut": lambda run: (run / "result.json").write_bytes((run / "result.json").read_bytes()[:100]),
    "records changed": lambda run: (run / "requests.jsonl").write_text("{}\n"),
    "records gone": lambda run: (run / "requests.jsonl").unlink(),
    "evals changed": lambda run: (run / "evals.json").write_text("[]"),
    "manifest cut": lambda run: (run / "manifest.json").write_text("{"),
    "manifest a list": lambda run: (run / "manifest.json").write_text("[1]"),
    "failure deep": lambda run: (run / "failure.json").write_text("[" * 100_000),
    "folder empty": empty,
    "folder gone": shutil.rmtree,
}


@pytest.mark.parametrize("damage", DAMAGE, ids=list(DAMAGE))
@pytest.mark.parametrize("lang", LANGUAGES)
def test_damage_becomes_a_problem(tmp_path: Path, damage: str, lang: str) -> None:
    """The other run is shown whole, the damaged one is named with a next step; nothing is raised."""
    whole, hurt = MADE["make_point"](tmp_path, 1), MADE["make_point"](tmp_path, 2)
    DAMAGE[damage](hurt)
    found = build_report_data([whole, hurt], lang)
    assert 1 in [point.concurrency for point in found.points]
    named = [p for p in found.problems if p.run_id == hurt.name and p.level == "error"]
    assert named
    assert all(problem.next_step for problem in named)


def forge(run: Path, change: Any) -> None:  # noqa: ANN401 - a function over JSON
    """Change a row and sign it again."""
    plain = json.loads((run / "result.json").read_text())
    change(plain)
    plain[SHA_KEY] = row_sha256(plain)
    (run / "result.json").write_text(json.dumps(plain))


def test_hostile_values_pass_through_as_values(tmp_path: Path) -> None:
    """Braces, markup, unknown codes, values that fit no template: kept as text, nothing is interpreted or
    raised."""
    run = MADE["make_point"](tmp_path, 1)
    warnings = [
        {"code": "{0.__class__}", "values": {"a": "<script>"}},
        {"code": "few_requests", "values": {"n": {"x": "{y}"}}},
        {"code": "client_limited", "values": {}},
    ]

    def change(plain: dict[str, Any]) -> None:
        plain["warnings"] = warnings
        plain["arm"] = "<b>{arm}</b>"
        plain["declared"] = {"engine": {"a": ["{", None]}, "deep": {"er": "\u202e"}}
        plain["cache_state"] = {"kind": ["odd"]}
        plain["phases_s"] = {"{x}": 1.0}
        plain["evals"] = []

    forge(run, change)
    for lang in LANGUAGES:
        found = build_report_data([run], lang)
        assert "<b>{arm}</b>" in found.header.title
        assert [problem.code for problem in found.points[0].warnings] == [each["code"] for each in warnings]
        assert "<script>" in found.points[0].warnings[0].text
    failed = MADE["make_failed"](tmp_path, 2)
    for failure in ({"key": 3, "values": 4}, {"key": "results.changed", "values": {"x": 1}}, {}):
        (failed / "failure.json").write_text(json.dumps(failure))
        assert build_report_data([failed], "zh").problems


def test_samples_are_mixed_and_in_order() -> None:
    """Ten right and two wrong, limit six: both wrong ones, four right ones, in the task's order."""
    bare = SampleRecord("", "k", "p", "e", None, None, True, "ok", None, None, None, None, None, None)
    samples = [replace(bare, item=str(i), correct=i not in (3, 8)) for i in range(12)]
    found = mixed(samples, 6)
    assert [int(sample.item) for sample in found] == sorted(int(sample.item) for sample in found)
    assert [sample.item for sample in found if not sample.correct] == ["3", "8"]
    assert len(found) == 6
    assert mixed(samples, 0) == []
    assert len(mixed(samples, 100)) == 12
    assert len(mixed([s for s in samples if s.correct], 6)) == 6


def test_the_catalogue_has_no_left_over_text() -> None:
    """Every text of this room is named in its code, by its key or by the part that is put together."""
    source = "".join(
        path.read_text(encoding="utf-8")
        for path in (Path(__file__).parents[2] / "src/servemark/analysis").glob("*.py")
    )
    made_up = ("analysis.phase.", "analysis.statistic.", "analysis.cache.state.", "analysis.cache.apart_")
    for key in catalogue("en", "analysis"):
        stem = key.removesuffix(".title").removesuffix(".next")
        assert stem in source or key.startswith(made_up), key


@pytest.mark.parametrize(("lang", "said"), [("en", "no item was answered"), ("zh", "没有一题得到回答")])
def test_nothing_answered_is_no_score(tmp_path: Path, lang: str, said: str) -> None:
    """Panel and cell say the reason instead of 0 %."""
    folder: Path = MADE["make_point"](tmp_path, 2)
    samples = tuple(
        replace(sample, reply=None, extracted=None, correct=False, outcome="error")
        for sample in read_evals(folder / "evals.json")[0].samples
    )
    found = statistics_of(len(samples), samples)
    score = score_of("word-sort", "1", found, 1.0, None)
    write_samples(folder / "samples.jsonl", samples)
    write_evals(folder / "evals.json", [TaskOutcome(score, found, samples, (), "complete")])
    plain = json.loads((folder / "result.json").read_text())
    plain["evals"] = [asdict(score)]
    for name in ("evals.json", "samples.jsonl"):
        data = (folder / name).read_bytes()
        plain["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    plain[SHA_KEY] = row_sha256(plain)
    (folder / "result.json").write_text(json.dumps(plain))
    (point,) = build_report_data([folder], lang).points
    (panel,) = point.evals
    assert panel.absent_because == said
    assert said in panel.text
    assert "%" not in panel.text
    (cell,) = (each for each in point.cells if each.address.startswith("eval_score"))
    assert cell.value is None
    assert cell.absent_because == said
