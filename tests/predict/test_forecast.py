"""Forecasts: what the model is given, durations, hours, acceptance lengths, residuals kept beside the store, what-ifs."""

from __future__ import annotations

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.analysis.measured import of_point
from servemark.base.errors import ServemarkError
from servemark.base.home import Home
from servemark.catalog.selector import parse_selector
from servemark.catalog.suite import load_suite
from servemark.predict.acceptance import acceptance_of
from servemark.predict.agentic import TimesAtHits, parse_changes, times_at_hits
from servemark.predict.arm import forecast_arm, forecaster_of
from servemark.predict.assumed_times import AssumedTimes
from servemark.predict.fit_points import fit_points, lengths_of, told
from servemark.predict.score_pool import SCHEMA, ScorePool, pool_path, read_pool
from servemark.predict.speed import MODEL_VERSION
from servemark.predict.speed_types import TPOT
from servemark.predict.types import Predicted
from servemark.results.point import Figure, Point, Scenario
from servemark.runs.request import suite_workload
from servemark.runs.scenario import planned_scenario

HERE = Path(__file__).parent
MADE = runpy.run_path(str(HERE / "made_home.py"))
SOUND = runpy.run_path(str(HERE.parent / "results" / "sound_point.py"))


def agentic(given: float, made: float, dataset: str = "d") -> Point:
    """A point of a data set without fixed lengths, on no GPU, with these mean lengths."""
    point: Point = SOUND["with_identity"](
        SOUND["sound"](), scenario=Scenario("agentic-coding", dataset=dataset)
    )
    figures = {name: one for name, one in point.figures.items() if not name.endswith("_per_gpu")}
    figures |= {
        "input_tokens.mean": Figure(given, "m", "a"),
        "output_tokens.mean": Figure(made, "m", "b"),
        "total_tokens_per_s": Figure(50.0, "m", "c"),
    }
    return replace(point, figures=figures, gpus_deployed=0)


def test_a_data_set_has_the_lengths_that_it_measured() -> None:
    """Means of 100, 110 and 400 input tokens: the median 110, the same for all its points, so that they make one curve."""
    points = [
        of_point(agentic(given, 20.0), f"a:{n}", "valid") for n, given in enumerate((100.0, 110.0, 400.0))
    ]
    fitted = fit_points(points)
    assert {(p.identity.scenario.isl, p.identity.scenario.osl) for p in fitted} == {(110, 20)}
    assert {p.gpus_deployed for p in fitted} == {1}
    assert fitted[0].value("total_tokens_per_s_per_gpu") == 50.0
    assert (
        lengths_of(Scenario("agentic-coding", dataset="other"), {("agentic-coding", "d"): (110, 20)}) is None
    )
    assert lengths_of(Scenario("fixed-seq-len", 8, 9), {}) == (8, 9)


def test_without_gpus_throughput_is_the_whole_deployments() -> None:
    """The address says what the figure is of."""
    one = Predicted("total_tokens_per_s_per_gpu", "interpolated", 5.0, 4.0, 6.0, 0.9, 9)
    assert told({one.metric: one}, 0)["total_tokens_per_s"].metric == "total_tokens_per_s"
    assert told({one.metric: one}, 8) == {one.metric: one}


def test_a_fixed_length_point_takes_its_rounds(tmp_path: Path) -> None:
    """Twelve E2ELs at a measured load: 12 x (0.05 + 1024 x 10.4 ms) = 128.4 s at 4."""
    home, suite = MADE["made_home"](tmp_path / "home"), MADE["made_suite"](tmp_path / "suite")
    made = forecast_arm(parse_selector(f"{suite}:good"), Home(home), (4,), scenario_of=planned_scenario)
    found = made.topologies[0].forecasts[0].duration()
    assert found is not None and found.predicted
    assert found.value == pytest.approx(12 * (0.05 + 1024 * 0.0104), rel=0.01)
    assert found.low <= found.value <= found.high


def test_residuals_are_kept_and_damage_is_no_fault(tmp_path: Path) -> None:
    """Made on the first question, read on the second, made again where the file is no such thing; stale by a tenth."""
    home, suite = Home(MADE["made_home"](tmp_path / "home")), MADE["made_suite"](tmp_path / "suite")
    path = pool_path(home)

    def ask() -> object:
        made = forecast_arm(parse_selector(f"{suite}:good"), home, (32,), scenario_of=planned_scenario)
        return made.topologies[0].forecasts[0].predictions

    first = ask()
    pool = read_pool(path)
    assert pool is not None and pool.points == 20
    assert (home.root / "calibrations" / f"{pool.fit}.json").is_file()
    assert ask() == first
    for damage in (b"", b"{", b"[]", b'{"schema": 1, "model": 1, "points": "x", "scores": 5}', b"\xff"):
        path.write_bytes(damage)
        assert read_pool(path) is None
        assert ask() == first
        assert read_pool(path) is not None
    assert ScorePool(100, {}).fresh(110) and not ScorePool(100, {}).fresh(111)


@pytest.mark.parametrize(
    "damage",
    [
        {"points": -1},
        {"points": 10**400},
        {"points": 1.5},
        {"groups": "ab"},
        {"groups": ["a", "a"]},
        {"groups": ["a", None]},
        {"scores": {"tpot/one_anchor": [[0.1, 1.0, -1]]}},
        {"scores": {"tpot/one_anchor": [[0.1, 1.0, 2]]}},
        {"scores": {"tpot/one_anchor": [[0.1, 1.0, True]]}},
        {"scores": {"tpot/one_anchor": [[0.1, 1.0, 10**30]]}},
    ],
)
def test_a_pool_whose_groups_or_counts_are_none_is_damaged(tmp_path: Path, damage: dict[str, object]) -> None:
    """The sound one is read; place -1 would be the last group's, and no count of points can be compared with 10**400."""
    sound: dict[str, object] = {
        "schema": SCHEMA, "model": MODEL_VERSION, "points": 2, "fit": "", "groups": ["a", "b"],
        "scores": {"tpot/one_anchor": [[0.1, 1.0, 0], [0.2, 1.0, 1]]},
    }  # fmt: skip
    path = tmp_path / "pool.json"
    path.write_text(json.dumps(sound))
    pool = read_pool(path)
    assert pool is not None and [each.group for each in pool.scores["tpot", "one_anchor"]] == ["a", "b"]
    path.write_text(json.dumps({**sound, **damage}))
    assert read_pool(path) is None


def test_residuals_that_nobody_made_yet_are_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run does not wait for those of a large store (here: of more than 3 points) and says so, instead of that there are
    too few, which is the reason once they are made of the four points that this store has."""
    home = Home(MADE["FILL"](tmp_path / "home", [MADE["point"](8, load) for load in MADE["MEASURED"]][:4]))
    suite = MADE["made_suite"](tmp_path / "suite")
    monkeypatch.setattr("servemark.predict.forecast.QUICK", 3)
    whole = forecast_arm(parse_selector(f"{suite}:good"), home, (32,), scenario_of=planned_scenario)
    planned = whole.topologies[0].forecasts[0].planned
    found = {}
    for made in (True, False):
        if not made:
            pool_path(home).unlink()
        forecaster, _ = forecaster_of(home, (planned.identity.model,), wait=False)
        predictions = forecaster.forecast(planned).predictions
        assert predictions is not None
        found[made] = predictions.figures[TPOT]
    assert (found[True].reason, found[True].low) == ("predict.fit.few_residuals", None)
    assert (found[False].reason, found[False].low) == ("predict.use.unmade_residuals", None)


def test_residuals_of_random_weights_are_kept_apart(tmp_path: Path) -> None:
    """A store of both: real figures and intervals are those of a store of real points alone, in a file of their own."""
    real = [MADE["point"](gpus, load) for gpus in MADE["LAWS"] for load in MADE["MEASURED"]]
    slow = [MADE["point"](16, load) for load in MADE["MEASURED"]]
    dummy = [
        replace(p, identity=replace(p.identity, extra={**p.identity.extra, "weights": "dummy"})) for p in slow
    ]
    suite = MADE["made_suite"](tmp_path / "suite")
    found = {}
    for name, some in (("real", real), ("both", [*real, *dummy])):
        home = Home(MADE["FILL"](tmp_path / name, some))
        made = forecast_arm(parse_selector(f"{suite}:good"), home, (32,), scenario_of=planned_scenario)
        (forecast,) = made.topologies[0].forecasts
        assert forecast.predictions is not None
        found[name] = forecast.predictions.figures
        assert made.forecaster.apart(forecast.planned) == len(some) - 20
        assert read_pool(pool_path(home)) is not None
        assert (read_pool(pool_path(home, "dummy")) is not None) == (name == "both")
    assert found["both"] == found["real"]


def test_damaged_numbers_are_left_out(tmp_path: Path) -> None:
    """Unknown classes; with infinite residuals or spreads of 0 the whole file is none, since what is left out would make
    intervals narrower."""
    home, suite = Home(MADE["made_home"](tmp_path / "home")), MADE["made_suite"](tmp_path / "suite")
    forecast_arm(parse_selector(f"{suite}:good"), home, (32,), scenario_of=planned_scenario)
    body = json.loads(pool_path(home).read_text(encoding="utf-8"))
    body["groups"] = ["one"]
    body["scores"] = {"tpot/interpolated": [[0.1, 1.0, 0]], "x/y": [[1, 1, 0]]}
    pool_path(home).write_text(json.dumps(body), encoding="utf-8")
    pool = read_pool(pool_path(home))
    assert pool is not None
    assert pool.scores == {("tpot", "interpolated"): ((0.1, 1.0, "one"),)}
    for bad in ([1e999, 1.0, 0], [0.1, 0.0, 0], [0.1, 1e999, 0], [60.0, 1.0, 0], [0.1, 1.0, 1], [0.1, 1.0]):
        body["scores"] = {"tpot/interpolated": [[0.1, 1.0, 0], bad]}
        pool_path(home).write_text(json.dumps(body), encoding="utf-8")
        assert read_pool(pool_path(home)) is None


def test_golden_and_real_stand_side_by_side() -> None:
    """The shipped K3 arm: golden 3.36 of its own sampling first, 3.22 of the greedy curve, 3.36 forced (the suite's own
    files), 1.16 to 2.01 expected (published)."""
    suite = load_suite("kimi-k3-b300")
    arm = next(iter(suite.arms.values()))
    entry = arm.entries[0]
    view = acceptance_of(arm, entry, suite.recipe(entry).deployment, suite.golden([]), ())
    assert view is not None
    assert [(one.length, one.own) for one in view.golden] == [(3.36, True), (3.22, False)]
    assert view.forced == pytest.approx(3.36)
    assert view.expected == (1.16, 2.01)
    quick = load_suite("quickstart")
    arm = quick.arm("quickstart")
    assert acceptance_of(arm, arm.entries[0], suite.recipe(arm.entries[0]).deployment, (), ()) is None


@pytest.mark.parametrize(
    "word",
    [
        "",
        "segment",
        "segment=",
        "segment=-1GiB",
        "segment=5 apples",
        "gpu-tokens=x",
        "workers=0",
        "workers=-1",
        "colour=red",
        "gpu-tokens=99999999999999",
    ],
)
def test_what_cannot_be_changed_is_refused(word: str) -> None:
    with pytest.raises(ServemarkError) as caught:
        parse_changes([word])
    assert (caught.value.exit_code, caught.value.key) == (2, "predict.use.bad_change")


def test_a_computed_token_costs_what_the_hits_left(tmp_path: Path) -> None:
    """1 ms a prompt token was fitted while 75 % were cached: a computed token took 4 ms. Without known hits nobody knows."""
    times = TimesAtHits(AssumedTimes(prefill_s_per_token=0.001), 0.75)
    assert times.prefill_s(100, 300, 0) == pytest.approx(0.4)
    assert times_at_hits(AssumedTimes(), []) == "predict.use.sim.no_hits"
    assert times_at_hits("why", []) == "why"


def test_the_shipped_arm_is_simulated(tmp_path: Path) -> None:
    """quickstart at 2 with 4 slots of 4096 tokens: each session keeps its prefix, so hits are the workload's own; with two
    workers and sessions that stay, the same. Nothing was measured, so speed is assumed."""
    made = forecast_arm(
        parse_selector("quickstart"),
        Home(tmp_path / "none"),
        (2,),
        scenario_of=planned_scenario,
        workload_of=suite_workload,
        what_if=("workers=2",),
    )
    (one,) = made.topologies[0].simulated
    assert not one.fitted
    assert one.run.hits.share == pytest.approx(
        0.721, abs=0.01
    )  # the server's own counter said 72.0 to 72.1 %
    assert one.changed is not None
    with pytest.raises(ServemarkError):
        parse_changes(["workers=2"] * 9)
    refused = forecast_arm(
        parse_selector("quickstart"),
        Home(tmp_path / "none"),
        (2,),
        scenario_of=planned_scenario,
        workload_of=suite_workload,
        what_if=("segment=64GiB",),
    )
    assert refused.topologies[0].not_simulated is not None
    assert refused.topologies[0].not_simulated.key == "predict.use.no_segment"
