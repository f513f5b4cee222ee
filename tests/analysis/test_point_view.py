"""One point with all that is known of it: figures, provenance, its line, history and files, and where figures come from."""

from __future__ import annotations

import io
import json
import runpy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from servemark.analysis.point_types import PointView
from servemark.analysis.point_view import point_view, web_link
from servemark.analysis.point_why import figure_why
from servemark.analysis.run_place import folder_files, run_folder_of
from servemark.base.errors import ServemarkError
from servemark.base.home import Home
from servemark.results.gates.registry import gates_version, judge_all
from servemark.results.importers.base import Given, Importer
from servemark.results.importers.registry import importers
from servemark.results.point import Eval, Execution, Figure, Mapped, Point, PointIdentity, Scenario
from servemark.store.database import Store
from servemark.store.found_files import Found, find
from servemark.store.imports import find_source
from servemark.store.intake import Intake, take_in
from servemark.store.points import find_points
from servemark.store.raw_files import RawFiles

TESTS = Path(__file__).parents[1]
RUNS = runpy.run_path(str(TESTS / "results" / "make_run.py"))
SITE = runpy.run_path(str(TESTS / "web" / "made_site.py"))
EVIL = "<img src=x onerror=alert(1)>\u202e\x1b[31m"
IDENTITY = PointIdentity("m", "b200", "sglang", Scenario("fixed-seq-len", 1024, 1024), 8)
POINT = Point(
    IDENTITY,
    Execution("r1", 1, "2026-05-01"),
    {"tpot_s.p50": Figure(0.02, "rows/1", "/a"), "gpu_power_w.mean": Figure(700.0, "rows/1", "/w")},
    "rows",
    1,
)


def keep(home: Home, *points: Point) -> None:
    """Store points as an importer of another tool would give them."""

    def read(_: Given) -> Iterator[Mapped]:
        for number, point in enumerate(points):
            yield Mapped(number, "mapped", point)

    importer = Importer("rows", 1, "rows", lambda _: 1.0, read)
    intake = Intake(RawFiles(home.raw), (importer,), judge_all, gates_version())
    with Store.open(home.store) as store:
        assert take_in(store, intake, Found("points.json", 2, lambda: io.BytesIO(b"{}"))).whole


def keep_run(home: Home, folder: Path) -> str:
    """Import a run folder; the point's ref."""
    intake = Intake(RawFiles(home.raw), importers(), judge_all, gates_version())
    with Store.open(home.store) as store:
        for found in find(str(folder / "result.json"), home.raw, io.BytesIO()):
            assert isinstance(found, Found)
            report = take_in(store, intake, found)
            assert report.whole, report
            return f"{report.sha256[:16]}:0"
    raise AssertionError(folder)


def view(home: Home, name: str, lang: str = "en", **options: Any) -> PointView:  # noqa: ANN401 - passed on
    """The point's view."""
    with Store.open(home.store, read_only=True) as store:
        return point_view(store, RawFiles(home.raw), name, lang, runs=home.runs, **options)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Five loads of one configuration as published rows: TPOT is (10 + load) ms."""
    home = tmp_path_factory.mktemp("published") / "home"
    SITE["fill"](home, SITE["rows"]())
    return Home(home)


def refs(home: Home) -> dict[int | None, str]:
    """Ref by load."""
    with Store.open(home.store, read_only=True) as store:
        return {each.concurrency: f"{each.file[:16]}:{each.ordinal}" for each in find_points(store, "")}


def test_figures_are_grouped_with_what_was_made_of_them(published: Home) -> None:
    """Load 10 + 8 = 18 ms a token: 1 / 0.018 = 55.6 tok/s/user, made here and not stated."""
    shown = view(published, refs(published)[8])
    groups = {group.id: {metric.id: metric for metric in group.metrics} for group in shown.groups}
    speed = groups["throughput"]["interactivity"].figures[0]
    assert (speed.address, speed.text, speed.stated) == ("interactivity.p50", "55.6\u202ftok/s/user", False)
    assert (
        groups["latency"]["tpot_s"].figures[0].stated
        and "inferencex" in groups["latency"]["tpot_s"].defined_by[0]
    )
    assert [fact.id for fact in shown.headline][1] == "interactivity.p50"
    assert shown.verdict == "valid" and not shown.gates and len(shown.passed) > 5


def test_the_line_and_the_history_are_its_own(published: Home) -> None:
    """Five loads on the line, itself marked; one run alone in the history."""
    shown = view(published, refs(published)[16])
    assert [row.here for row in shown.siblings.rows] == [False, False, True, False, False]
    assert len(shown.history.rows) == 1 and shown.history.rows[0].here
    assert shown.front == {"model": "deepseek-r1", "scenario": "fixed-seq-len:1024/1024", "precision": "fp8"}


def test_every_text_is_in_the_language_and_the_view_is_plain(published: Home) -> None:
    english, chinese = (view(published, refs(published)[4], lang) for lang in ("en", "zh"))
    assert english.verdict_text == "Valid" and chinese.verdict_text == "有效"
    assert [fact.id for fact in english.facts] == [fact.id for fact in chinese.facts]
    assert all(a.label != b.label for a, b in zip(english.groups, chinese.groups, strict=True))
    plain = json.dumps(msgspec.to_builtins(chinese), ensure_ascii=False)
    assert "analysis." not in plain and "metrics." not in plain


def test_a_name_is_a_ref_a_key_or_nothing(published: Home) -> None:
    ref = refs(published)[4]
    key = view(published, ref).point_key
    assert view(published, key).ref == ref
    for name, said in (("abcdef:9", "analysis.point.unknown"), ("", "analysis.point.many")):
        with pytest.raises(ServemarkError) as caught:
            view(published, name)
        assert caught.value.key == said


def test_declared_and_observed_side_by_side(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    told = replace(
        POINT, declared={"engine_version": "0.5.1", "image": "a"}, observed={"engine_version": "0.5.2"}
    )
    keep(home, told)
    shown = view(home, refs(home)[8])
    rows = {row.field: row.agree for row in shown.provenance}
    assert rows == {"engine_version": False, "image": None} and shown.differing == 1
    assert "1" in shown.provenance_text


def test_other_runs_say_what_changed_and_evals_of_the_run_stand_with_it(tmp_path: Path) -> None:
    """A later run with another image is another point of the same series; the run's eval point has the score."""
    home = Home(tmp_path / "home")
    later = replace(
        POINT,
        identity=replace(IDENTITY, image="new"),
        execution=Execution("r2", 1, "2026-05-09"),
        figures={"tpot_s.p50": Figure(0.01, "rows/1", "/b")},
    )
    scored = replace(
        POINT,
        identity=replace(IDENTITY, scenario=Scenario("eval", dataset="gsm8k"), concurrency=None),
        figures={},
        evals=(Eval("gsm8k", 0.95, "strict", 0.005, 1319),),
    )
    keep(home, POINT, later, scored)
    with Store.open(home.store, read_only=True) as store:
        ref = next(
            f"{p.file[:16]}:{p.ordinal}" for p in find_points(store, "") if p.run == "r1" and p.concurrency
        )
    shown = view(home, ref)
    assert [(row.run, row.here, row.note) for row in shown.history.rows] == [
        ("r2", False, "differs in image"),
        ("r1", True, ""),
    ]
    assert [(each.task, each.text, each.ref is not None) for each in shown.evals] == [
        ("gsm8k", "95.0\u202f% ± 0.500 (1319 items)", True)
    ]


def test_hostile_names_are_text_on_one_line(tmp_path: Path) -> None:
    """Control characters and marks of direction are written out; no address but http is a link."""
    home = Home(tmp_path / "home")
    keep(
        home,
        replace(
            POINT,
            identity=replace(IDENTITY, model=EVIL, image=EVIL),
            execution=Execution(EVIL, 1, "2026-05-01", url="javascript:alert(1)"),
            declared={EVIL: EVIL},
            figures={f"{EVIL}.p50": Figure(1.0, EVIL, EVIL)},
            notes=(EVIL,),
        ),
    )
    shown = view(home, refs(home)[8])
    words = json.dumps(msgspec.to_builtins(replace(shown, front={}, provenance=())), ensure_ascii=False)
    assert "\u202e" not in words and "\\u001b" not in words and "<img src=x" in words
    assert shown.url is None
    assert web_link("https://example.org/") and web_link("data:text/html,x") is None


def test_where_a_figure_comes_from(published: Home) -> None:
    """The latency's place, its number, the file's hash checked now; a figure that nobody states says why."""
    ref = refs(published)[8]
    with Store.open(published.store, read_only=True) as store:
        raw = RawFiles(published.raw)
        made = figure_why(store, raw, ref, "interactivity.p50", lang="en")
        absent = figure_why(store, raw, ref, "cache_hit_usage", lang="en")
        unknown = figure_why(store, raw, ref, "no_such_figure", lang="en")
    assert made.parts[0].address == "tpot_s.p50" and made.parts[0].at == "/metrics/median_tpot"
    assert made.substituted == "1 ÷ 0.018" and made.raw_state == "ok" and len(made.sha256) == 64
    assert absent.value is None and absent.absent_because and unknown.absent_because


def test_a_run_of_ours_leads_back_to_the_line_of_its_records(tmp_path: Path) -> None:
    folder = RUNS["make_line"](tmp_path)[1]
    home = Home(tmp_path / "home")
    ref = keep_run(home, folder)
    shown = view(home, ref)
    assert shown.has_requests and any(each.name == "requests.jsonl" for each in shown.files)
    with Store.open(home.store, read_only=True) as store:
        why = figure_why(store, RawFiles(home.raw), ref, "ttft_s.p90", lang="en", runs=home.runs)
    assert why.evidence[0].place.startswith("requests.jsonl:") and "the same" in why.check


def test_no_name_in_a_store_leads_to_files_of_another_result(tmp_path: Path) -> None:
    """The folder counts only while its result is the very file that was imported."""
    folder = RUNS["make_line"](tmp_path)[0]
    home = Home(tmp_path / "home")
    ref = keep_run(home, folder)
    with Store.open(home.store, read_only=True) as store:
        one = find_points(store, ref)[0]
        source = find_source(store, one.file)
    assert source is not None and run_folder_of(source, one) == folder
    for name in ("/etc/result.json", "../../result.json", str(folder / "requests.jsonl"), "result.json"):
        assert run_folder_of(replace(source, name=name), one, home.runs) is None
    (folder / "result.json").write_text("{}")
    assert run_folder_of(source, one) is None and not view(home, ref).has_requests
    (folder / "link").symlink_to("/etc/passwd")
    assert "link" not in dict(folder_files(folder))
