"""Our own rows as points, from run folders that the project's own code made."""

from __future__ import annotations

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servemark.base.errors import ServemarkError
from servemark.results.importers import base, inferencex, own
from servemark.results.importers.base import surest
from servemark.results.importers.registry import MODULES, importer_of, importers
from servemark.results.importers.registry_tools import TOOLS
from servemark.results.point import Point, point_json
from servemark.results.row import ReplayFigures, SpeculationFigures, WindowTokens
from servemark.results.serialize import read_result

HELP = runpy.run_path(str(Path(__file__).with_name("make_given.py")))
MADE = runpy.run_path(str(Path(__file__).parents[1] / "make_run.py"))
of_file, of_bytes = HELP["of_file"], HELP["of_bytes"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three run folders of one line: concurrency 1, 2, 4."""
    made: list[Path] = MADE["make_line"](tmp_path_factory.mktemp("runs"))
    return made


def point_in(folder: Path) -> Point:
    """The point of a run folder."""
    (found,) = own.read(of_file(folder / "result.json"))
    assert found.status == "mapped" and found.point is not None
    return found.point


def test_figures_are_those_of_the_row(folders: list[Path]) -> None:
    """Stored ones as they stand, rates with their formula; interactivity is left to be derived."""
    point = point_in(folders[2])
    row: dict[str, Any] = json.loads((folders[2] / "result.json").read_bytes())
    assert point.value("ttft_s.p90") == row["distributions"]["ttft_s"]["p90"]
    assert point.figures["ttft_s.p90"].at == "/distributions/ttft_s/p90"
    rate = point.figures["output_tokens_per_s"]
    assert rate.value == pytest.approx(row["tokens"]["output"] / row["window_s"])
    assert rate.how is not None and rate.how.startswith(f"{row['tokens']['output']} ÷ ")
    assert not any("interactivity" in address for address in point.figures)
    assert "total_tokens_per_s_per_gpu" not in point.figures  # no GPU: nothing to divide by
    assert point.value("eval_score.word-sort") == row["evals"][0]["score"] == point.evals[0].score


def test_the_rest_of_a_row_is_there_too(folders: list[Path]) -> None:
    """Counts, provenance, expectations of the manifest, and doubts as notes. c4 has one error and one timeout."""
    point = point_in(folders[2])
    assert (point.requests.planned, point.requests.ok, point.requests.error) == (60, 58, 2)
    assert "1 timeouts are counted as errors" in point.notes and "warning.stalls_seen" in point.notes
    assert point.expected["requests"] == 60
    assert point.identity.engine_version == "b6101" and point.declared["engine_version"] == "b6100"
    assert point.client["limited"] is False
    assert json.loads(point_json(point))["schema"] == 1


def test_points_of_a_line_join(folders: list[Path]) -> None:
    """One configuration in one run: one line key, three point keys."""
    found = [point_in(folder) for folder in folders]
    assert len({point.line_key for point in found}) == 1
    assert len({point.identity.point_key for point in found}) == 3
    assert [point.identity.concurrency for point in found] == [1, 2, 4]


def test_an_open_loop_has_arrivals_and_no_concurrency(folders: list[Path]) -> None:
    """Its steady window is kept; the same load twice is the same point whichever address the server had."""
    row = read_result(folders[0], verify_files=False)
    replayed = ReplayFigures(
        "servemark-replay-1", "open", None, {"arrivals": "poisson:4"}, 9, 1, None,
        WindowTokens(2.0, 12.0, 10.0, 100, 10), {}, None, (),
    )  # fmt: skip
    identity: dict[str, object] = {
        "kind": "replay",
        "model": "dsr1",
        "scenario": {"dataset": "x", "concurrency": 3},
    }
    one = own.point_of(replace(row, replayed=replayed, identity=identity | {"urls": ["http://a"]}))
    two = own.point_of(replace(row, replayed=replayed, identity=identity | {"urls": ["http://b"]}))
    assert (one.identity.concurrency, one.identity.scenario.arrivals) == (None, "poisson:4")
    assert (one.steady_s, one.identity.model) == ((2.0, 12.0), "deepseek-r1")
    assert one.identity.point_key == two.identity.point_key
    assert one.identity.scenario.rules == "servemark-replay-1"


def test_a_changed_row_is_refused(folders: list[Path]) -> None:
    """Its own hash tells; so do other damages."""
    data = (folders[0] / "result.json").read_bytes()
    changed = data.replace(b'"concurrency":1,', b'"concurrency":2,', 1)
    assert changed != data
    for bad, key in (
        (changed, "changed"),
        (data[:-40], "not_json"),
        (b"{}", "no_hash"),
        (b"", "import_empty"),
    ):
        with pytest.raises(ServemarkError) as caught:
            list(own.read(of_bytes(bad)))
        assert caught.value.key == f"results.{key}"


def test_a_manifest_that_cannot_be_read_costs_only_what_it_says(folders: list[Path]) -> None:
    """The row stands for itself."""
    given = of_file(folders[0] / "result.json")
    beside = {"manifest.json": of_bytes(b"{not json", "manifest.json")}
    (found,) = own.read(replace(given, siblings=beside))
    assert found.point is not None and found.point.expected == {}


def test_each_file_has_one_importer(folders: list[Path]) -> None:
    """Ids are unique and nothing ties."""
    ours = of_file(folders[0] / "result.json")
    assert next(one.id for _, one in surest(importers(), ours)) == "servemark"
    assert inferencex.detect(ours) == 0
    assert len({one.id for one in importers()}) == len(importers()) == len(MODULES) + len(TOOLS)
    assert importer_of("inferencex") is inferencex.IMPORTER and importer_of("nobody") is None


def test_every_hint_that_an_importer_reads_may_be_given() -> None:
    """`--set` refuses what is not listed: a hint that an importer asks for and that is not there could never come."""
    pattern = re.compile(r"""(?:hints?(?:\.get)?[(\[]|hint_number\(hints, )"([a-z_]+)\"""")
    files = Path(base.__file__).parent.glob("*.py")
    read = {name for path in files for name in pattern.findall(path.read_text(encoding="utf-8"))}
    assert {"hardware", "gpus", "run"} <= read <= set(base.HINTS)


def test_evals_pass_by_the_threshold_that_was_declared(folders: list[Path]) -> None:
    """The score of the made run lies between 0.1 and 1: passed by the one limit, failed by the other, None without."""
    row = read_result(folders[2] / "result.json")
    score = row.evals[0]
    for limit, passed in ((0.1, True), (1.0, False), ("high", None), (True, None)):
        declared = {**row.declared, "eval_thresholds": {score.task: limit}}
        assert own.point_of(replace(row, declared=declared)).evals[0].passed is passed
    assert own.point_of(row).evals[0].passed is None


def test_speculation_is_told_with_its_acceptance(folders: list[Path]) -> None:
    """What the recipe asks for, whether it is forced, and the length of the window: 1 + 30 / 20."""
    row = read_result(folders[2] / "result.json")
    said = {"method": "draft-simple", "draft_tokens": 3, "acceptance": "forced"}
    seen = SpeculationFigures(20.0, 60.0, 30.0)
    declared = {**row.declared, "speculation": said, "acceptance_length": 2.5}
    point = own.point_of(replace(row, declared=declared, speculation=seen))
    assert point.identity.speculation is not None
    assert (point.identity.speculation.draft_tokens, point.identity.speculation.acceptance) == (3, "forced")
    assert point.observed["acceptance_length"] == point.value("acceptance_length") == 2.5
    assert point.observed["eval_acceptance"] == "forced"
