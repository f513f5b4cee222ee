"""Planned points beside measured ones: what level they match at, and what is said of the difference."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.analysis.measured import Measured, of_point
from servemark.catalog.suite import load_suite
from servemark.plan.strict import Wishes, plan_suite
from servemark.predict.matching import Match, compare, known_configurations, matches
from servemark.predict.planned import planned_of_row
from servemark.results.importers.own import point_of
from servemark.results.point import Offload, PointIdentity, Precision, RoleTopology, Scenario, Speculation
from servemark.results.serialize import read_result
from servemark.runs.scenario import planned_scenario

SOUND = runpy.run_path(str(Path(__file__).parents[1] / "results" / "sound_point.py"))
MAKE_RUN = runpy.run_path(str(Path(__file__).parents[1] / "results" / "make_run.py"))
TOPOLOGY = (RoleTopology("aggregated", 1, 8, tp=8, ep=1, dp_attention=False),)
PLANNED = PointIdentity(
    model="deepseek-ai/DeepSeek-R1-0528",
    hardware="b200",
    engine="sglang",
    scenario=Scenario("fixed-seq-len", 1024, 1024),
    concurrency=64,
    image="lmsysorg/sglang:v0.5.6",
    precision=Precision("nvfp4", "fp4"),
    topology=TOPOLOGY,
)


def measured(**changes: object) -> Measured:
    """A measurement of the same, with fields of its identity replaced."""
    identity = replace(PLANNED, **{"model": "deepseek-r1", "concurrency": 16, **changes})  # type: ignore[arg-type]
    return of_point(SOUND["sound"](identity=identity), "ab:0", "valid")


def level(**changes: object) -> tuple[str, list[str], list[str]]:
    """(level, parts that differ, parts that one side does not state)."""
    one = measured(**changes)
    found = compare(PLANNED, one.identity, one.config_key, [one])
    return found.level, [each.part for each in found.differs], [each.part for each in found.unstated]


def test_concurrency_and_spelling_of_the_model_are_no_difference() -> None:
    """The repository's name and the plain one are one model; the load is what a line varies."""
    assert level() == ("exact", [], [])
    assert [m.level for m in matches(PLANNED, known_configurations([measured()]))] == ["exact"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"image": "lmsysorg/sglang:v0.5.7"}, ("version", ["image"], [])),
        ({"image": None}, ("version", [], ["image"])),
        ({"recipe_fingerprint": "ab"}, ("version", [], ["recipe"])),
        ({"scenario": Scenario("fixed-seq-len", 8192, 1024)}, ("shape", ["isl"], [])),
        ({"scenario": Scenario("unknown")}, ("shape", [], ["scenario", "isl", "osl"])),
        ({"hardware": "h200"}, ("kin", ["hardware"], [])),
        ({"precision": Precision("fp8", "fp8")}, ("kin", ["precision"], [])),
        ({"topology": ()}, ("kin", [], ["roles", "tp:aggregated"])),
        ({"router": "dynamo"}, ("version", [], ["router"])),
        ({"speculation": Speculation("mtp")}, ("kin", ["speculation"], [])),
        ({"offload": Offload("dram")}, ("kin", ["offload"], [])),
        ({"extra": {"mean_input_tokens": 4096}}, ("shape", [], ["mean_input_tokens"])),
        ({"extra": {"odd": "x"}}, ("kin", [], ["odd"])),
    ],
)
def test_levels(changes: dict[str, object], expected: tuple[str, list[str], list[str]]) -> None:
    """Each single difference by itself."""
    found = level(**changes)
    assert (found[0], sorted(found[1]), sorted(found[2])) == (
        expected[0],
        sorted(expected[1]),
        sorted(expected[2]),
    )


def test_sizes_that_one_side_leaves_out() -> None:
    """EP 1 unsaid is no difference, EP 8 unsaid is one: a source that is silent is not taken for equal."""
    silent = (replace(TOPOLOGY[0], ep=None, dp_attention=None),)
    assert level(topology=silent)[0] == "exact"
    wide = replace(PLANNED, topology=(replace(TOPOLOGY[0], ep=8),))
    one = measured(topology=silent)
    found = compare(wide, one.identity, one.config_key, [one])
    assert (found.level, [each.part for each in found.unstated]) == ("kin", ["ep:aggregated"])


def test_nearest_first_and_another_model_never() -> None:
    """Exact, then version, then shape, then kin; another model is not even kin. Of another kind (hardware) only the
    nearest, and only where nothing of its own kind was measured."""
    points = [
        measured(hardware="h200"),
        measured(scenario=Scenario("fixed-seq-len", 8192, 1024)),
        measured(image="other"),
        measured(),
        measured(model="kimi-k3"),
        measured(scenario=Scenario("eval", dataset="gsm8k")),
    ]
    found: list[Match] = matches(PLANNED, known_configurations(points))
    assert [each.level for each in found] == ["exact", "version", "shape"]
    others = [measured(hardware="h200", engine="vllm"), measured(hardware="h200")]
    (kin,) = matches(PLANNED, known_configurations(others))
    assert (kin.level, [each.part for each in kin.differs]) == ("kin", ["hardware"])


def test_a_planned_point_has_the_identity_of_its_result(tmp_path: Path) -> None:
    """The shipped arm as planned, beside a row that carries what a run of it writes: exact, nothing unsaid."""
    suite = load_suite("quickstart")
    made = plan_suite(
        suite, Wishes(scenario_of=lambda entry, deployment: planned_scenario(suite, entry, deployment))
    )
    planned = [planned_of_row(row) for row in made.rows]
    assert sorted(each.concurrency for each in planned) == [1, 2, 4]
    canonical = made.rows[0].identity.canonical
    scenario = canonical["scenario"]
    assert isinstance(scenario, dict)
    row = read_result(MAKE_RUN["make_point"](tmp_path, 1) / "result.json", verify_files=False)
    engine = {**row.observed["engine"], "engine": "llamacpp-embedded", "version": "2026.10"}  # type: ignore[dict-item]
    ran = replace(
        row,
        identity=canonical,
        observed={**row.observed, "engine": engine},
        workload={**row.workload, "id": scenario["dataset"]},
    )
    measured_point = of_point(point_of(ran), "ab:0", "valid")
    found = compare(planned[0].identity, measured_point.identity, "k", [measured_point])
    assert (found.level, found.differs, found.unstated) == ("exact", (), ())
