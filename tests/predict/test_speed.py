"""The speed model on made deployments whose speed is known: classes, intervals, what cannot be said, and its file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.analysis.measured import Measured, of_point
from servemark.base.errors import ServemarkError
from servemark.base.messages import text
from servemark.predict.calibration import read_calibration, write_calibration
from servemark.predict.fit import PhysicalFit
from servemark.predict.speed import MODEL_VERSION, SpeedModel
from servemark.predict.speed_bend import Knot, bend_through, between, knee
from servemark.predict.speed_points import choose
from servemark.predict.speed_types import METRICS, OUTPUT_PER_GPU, TOTAL_PER_GPU, TPOT, TTFT, facts_of_point
from servemark.predict.speed_why import why
from servemark.results.point import (
    Execution,
    Figure,
    Point,
    PointIdentity,
    Precision,
    RoleTopology,
    Scenario,
)

LOADS = (1, 4, 16, 64, 256)


def true_tpot(config: int, load: int, isl: int, osl: int) -> float:
    """A straight physical form; deployments differ in scale."""
    return (1 + config / 10) * (0.008 + load * (1e-4 + 5e-9 * (isl + osl / 2) + 2e-7 * isl / osl))


def made(  # noqa: PLR0917
    config: int, load: int, isl: int = 1024, osl: int = 1024, run: str = "r1", tpot: float | None = None
) -> Measured:
    """A point of deployment `config` (its tensor parallelism tells it apart) whose figures agree with each other."""
    step = true_tpot(config, load, isl, osl) if tpot is None else tpot
    ttft = 0.05 + 1e-5 * isl
    e2el = ttft + step * osl
    values = {
        "tpot_s.p50": step,
        "ttft_s.p50": ttft,
        "e2el_s.p50": e2el,
        "total_tokens_per_s_per_gpu": load * (isl + osl) / e2el / 8,
        "output_tokens_per_s_per_gpu": load * osl / e2el / 8,
    }
    figures = {name: Figure(value, "made", name) for name, value in values.items()}
    identity = PointIdentity(
        "deepseek-r1",
        f"gpu{config % 3}",
        "engine",
        Scenario("fixed-seq-len", isl, osl),
        load,
        image="image:1",
        precision=Precision("fp8", "fp8"),
        topology=(RoleTopology("aggregated", 1, 8, tp=8, ep=config + 1),),
    )
    point = Point(identity, Execution(run, 1, "2026-01-01"), figures, "made", 1, gpus_deployed=8)
    return of_point(point, f"f:{config}:{load}:{isl}:{osl}:{run}:{step}", "valid", official=True)


def many(skip: Sequence[tuple[int, int]] = ()) -> list[Measured]:
    """Twelve deployments at five loads and two lengths, without the (deployment, load) in `skip`."""
    return [
        made(config, load, isl)
        for config in range(12)
        for load in LOADS
        for isl in (1024, 8192)
        if (config, load) not in skip
    ]


def test_between_two_loads_the_figure_is_near_and_within() -> None:
    """The form is a straight line in the load, so the bend that others teach is nearly 1."""
    model = SpeedModel.fit(many(skip=[(5, 16)]))
    facts = facts_of_point(made(5, 16))
    found = model.predict(facts, 16, 1024, 1024)
    truth = made(5, 16)
    assert found.klass == "interpolated"
    assert not found.measured
    assert set(found.figures) == set(METRICS)
    for metric in METRICS:
        figure, measured = found[metric], truth.value(metric)
        assert figure.value == pytest.approx(measured, rel=0.03), metric
        assert (
            figure.low is not None and measured is not None and figure.low < measured < (figure.high or 0)
        ), metric
        assert figure.residuals >= 9
        assert figure.reason is None


def test_classes_by_distance() -> None:
    """Beyond the loads; at other lengths; with one point; with none."""
    points = [p for p in many() if "ep=7" not in str(p.identity) and "ep=8" not in str(p.identity)]
    points += [made(6, 16), *(made(7, load, 1024) for load in (4, 64))]
    model = SpeedModel.fit(points)
    asked = {
        "extrapolated_concurrency": (facts_of_point(made(1, 16)), 512, 1024),
        "other_shape": (facts_of_point(made(7, 16)), 16, 8192),
        "one_anchor": (facts_of_point(made(6, 16)), 64, 1024),
        "none": (facts_of_point(made(20, 16)), 16, 1024),
    }
    for klass, (facts, load, isl) in asked.items():
        found = model.predict(facts, load, isl, 1024)
        assert found.klass == klass
        if klass != "none":
            assert found[TPOT].value == pytest.approx(
                true_tpot(int(facts.topology[-1]) - 1, load, isl, 1024), rel=0.3
            )


def test_another_load_than_the_anchors_is_judged_by_such() -> None:
    """Of twelve whole deployments with all but one of their ten points held out, the four at other loads of the anchor's
    lengths stand for a question along the load (48), the five at the other length for all others (60)."""
    model = SpeedModel.fit([*many(), made(12, 16)])
    facts = facts_of_point(made(12, 16))
    found = {
        (load, isl): model.predict(facts, load, isl, 1024)[TPOT].residuals
        for load in (16, 64)
        for isl in (1024, 8192)
    }
    assert found == {(64, 1024): 48, (16, 1024): 60, (64, 8192): 60, (16, 8192): 60}


def test_class_none_has_a_band_and_a_rank_and_no_figure() -> None:
    """No value under any metric; the order is by what hardware and engine say."""
    model = SpeedModel.fit(many())
    unknown = [facts_of_point(made(20 + each, 16)) for each in range(3)]
    found = model.predict(unknown[0], 16, 1024, 1024)
    assert all(figure.value is None for figure in found.figures.values())
    assert found[TPOT].low is not None
    assert found[TPOT].reason == "predict.fit.none"
    ranked = model.rank(unknown, 16, 1024, 1024)
    assert [each.place for each in ranked] == [1, 2, 3]
    assert {each.of for each in ranked} == {3}


def test_an_unknown_model_has_not_even_a_band() -> None:
    """Nothing of it was measured anywhere."""
    facts = replace(facts_of_point(made(1, 16)), model="nobody-knows")
    found = SpeedModel.fit(many()).predict(facts, 16, 1024, 1024)
    for figure in found.figures.values():
        assert (figure.value, figure.low, figure.high) == (None, None, None)
        assert figure.reason == "predict.fit.unknown_model"
        assert text(figure.reason, "zh") != text(figure.reason, "en")


def test_an_empty_store_says_so() -> None:
    """No point, no figure, no traceback."""
    model = SpeedModel.fit([])
    found = model.predict(facts_of_point(made(1, 16)), 16, 1024, 1024)
    assert {figure.reason for figure in found.figures.values()} == {"predict.fit.no_points"}
    assert model.step_times(facts_of_point(made(1, 16))) == "predict.fit.unknown_model"


def test_one_point_alone_has_no_interval() -> None:
    """A figure at its own load, and words that nothing could be held out."""
    found = SpeedModel.fit([made(1, 16)]).predict(facts_of_point(made(1, 16)), 16, 1024, 1024)
    assert found.klass == "one_anchor"
    assert found[TPOT].value == pytest.approx(true_tpot(1, 16, 1024, 1024), rel=0.02)
    assert (found[TPOT].low, found[TPOT].reason) == (None, "predict.fit.few_residuals")


def test_zero_latencies_quarantined_points_and_open_loops_are_left_out_by_reason() -> None:
    """0 is the mark of a client that got no tokens, not a fast server."""
    quarantined = replace(made(2, 4), verdict="quarantined", ref="q")
    open_loop = replace(made(2, 16), identity=replace(made(2, 16).identity, concurrency=None), ref="o")
    chosen = choose([made(1, 4), made(1, 16, tpot=0.0), quarantined, open_loop])
    assert [point.concurrency for point in chosen.points] == [4]
    assert chosen.left_out["predict.fit.left.zero"] == 1
    assert chosen.left_out["predict.fit.left.open_loop"] == 1
    assert sum(chosen.left_out.values()) == 3


def test_contradictory_repeats_are_named() -> None:
    """Two measurements of one build at one load that differ by a factor of 3."""
    twice = made(5, 16, run="r2", tpot=3 * true_tpot(5, 16, 1024, 1024))
    found = SpeedModel.fit([*many(), twice]).predict(facts_of_point(made(5, 16)), 16, 1024, 1024)
    keys = {key for key, _ in found.notes}
    assert "predict.fit.note.contradiction" in keys
    assert found.measured


def test_one_poisoned_row_moves_no_other_deployment() -> None:
    """42 times too slow, and still within gates: the others' figures stay within 3 %."""
    clean = SpeedModel.fit(many(skip=[(5, 16), (3, 64)]))
    poisoned = SpeedModel.fit(
        [*many(skip=[(5, 16), (3, 64)]), made(3, 64, tpot=42 * true_tpot(3, 64, 1024, 1024))]
    )
    facts = facts_of_point(made(5, 16))
    before, after = (model.predict(facts, 16, 1024, 1024)[TPOT].value for model in (clean, poisoned))
    assert before and after == pytest.approx(before, rel=0.03)


def test_throughput_needs_gpus() -> None:
    """Latencies are said all the same."""
    points = [replace(point, gpus_deployed=None) for point in many()]
    facts = replace(facts_of_point(points[0]), gpus=None)
    found = SpeedModel.fit(points).predict(facts, 8, 1024, 1024)
    assert found[TPOT].value is not None
    assert {found[metric].reason for metric in (TOTAL_PER_GPU, OUTPUT_PER_GPU)} == {"predict.fit.no_gpus"}


@pytest.mark.parametrize("load", [(0, 1, 1), (-3, 1, 1), (1, 0, 1), (1, 1, 10**12)])
def test_loads_that_cannot_be(load: tuple[int, int, int]) -> None:
    """Bad use, with the name of the number."""
    with pytest.raises(ServemarkError) as caught:
        SpeedModel.fit([made(1, 4)]).predict(facts_of_point(made(1, 4)), *load)
    assert caught.value.exit_code == 2


def test_throughput_is_the_closed_loop() -> None:
    """C * (ISL + OSL) / (time * GPUs): 16 requests of 2,048 tokens in flight, 8 GPUs, at a load that was measured."""
    found = SpeedModel.fit(many()).predict(facts_of_point(made(5, 16)), 16, 1024, 1024)
    time_s = 0.05 + 1024e-5 + 1024 * true_tpot(5, 16, 1024, 1024)
    assert found[TOTAL_PER_GPU].value == pytest.approx(16 * 2048 / time_s / 8, rel=1e-6)
    assert found[OUTPUT_PER_GPU].value == pytest.approx(16 * 1024 / time_s / 8, rel=1e-6)


def test_bend_of_three_knots() -> None:
    """4, 16, 64 on a straight line have k = 1; on a square root k = 0.5."""
    straight = [Knot(c, 10.0 + c) for c in (4, 16, 64)]
    root = [Knot(c, 10.0 + math.sqrt(c)) for c in (4, 16, 64)]
    assert bend_through(*straight) == pytest.approx(1.0, abs=1e-6)
    assert bend_through(*root) == pytest.approx(0.5, abs=1e-6)
    assert between(straight[0], 16, straight[2], 1.0, "tpot") == pytest.approx(26.0)


def test_a_queue_begins_at_the_knee() -> None:
    """At 64 a quarter of a request's time is decoding: 16 streams decode, so from 16 on TPOT stays and time grows as C."""
    low, high = Knot(4, 0.01), Knot(64, 0.04, decoding=0.25)
    assert knee(low, high, "tpot").concurrency == 16
    assert between(low, 32, high, 1.0, "tpot") == 0.04
    assert between(low, 32, high, 1.0, "service") == pytest.approx(0.02)
    assert between(low, 10, high, 1.0, "tpot") == pytest.approx(0.025)


def test_step_times_are_those_of_the_form() -> None:
    """Ten points of one deployment give its steps back to 5 %."""
    fit = SpeedModel.fit(many()).step_times(facts_of_point(made(3, 4)), 1024, 1024)
    assert isinstance(fit, PhysicalFit)
    assert fit.points == 10
    assert fit.step_s(16, 1536.0, 16.0) == pytest.approx(true_tpot(3, 16, 1024, 1024), rel=0.05)
    assert fit.prefill_s(8192, 0, 4) == pytest.approx(0.05 + 0.08192, rel=0.2)


def test_why_names_points_and_what_leaving_them_out_changes() -> None:
    """All knots of the curve, then others; an outer knot that holds the figure has an influence."""
    model = SpeedModel.fit(many(skip=[(5, 16)]))
    working = why(model, facts_of_point(made(5, 16)), 16, 1024, 1024, metric=TPOT)
    own = [point for point in working.used if point.role == "curve"]
    assert sorted(point.concurrency for point in own) == [1, 4, 64, 256]
    assert any(point.influence for point in own)
    assert any(point.role == "like" for point in working.used)
    assert working.coefficients["k"] == pytest.approx(1.0, abs=0.2)


def test_a_calibration_gives_the_same_figures_again(tmp_path: Path) -> None:
    """Written, read and asked: equal to 1e-6; the same points give the same name."""
    model = SpeedModel.fit(many(skip=[(5, 16)]))
    path = write_calibration(model, tmp_path)
    again = read_calibration(path)
    asked = [
        (facts_of_point(made(5, 16)), 16, 1024),
        (facts_of_point(made(5, 16)), 1024, 1024),
        (facts_of_point(made(30, 16)), 16, 1024),
    ]
    for facts, load, isl in asked:
        one, other = (each.predict(facts, load, isl, 1024) for each in (model, again))
        for metric in (TPOT, TTFT, TOTAL_PER_GPU):
            for name in ("value", "low", "high"):
                was, now = getattr(one[metric], name), getattr(other[metric], name)
                assert was == now if was is None else now == pytest.approx(was, rel=1e-6)
    assert write_calibration(SpeedModel.fit(many(skip=[(5, 16)])), tmp_path) == path
    held = json.loads(path.read_text("utf-8"))["body"]["levels"]["tpot"]
    assert len(held["points"]) == len(held["residuals"]) == len(held["influence"])


def test_a_damaged_calibration_is_written_again(tmp_path: Path) -> None:
    """Cut short, a pipe in its place, then gone: what is named is whole, or an error; a pipe is never waited for."""
    model = SpeedModel.fit([made(1, load) for load in LOADS])
    path = write_calibration(model, tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    assert write_calibration(model, tmp_path).read_bytes() == whole
    path.unlink()
    os.mkfifo(path)
    for touch in (lambda: write_calibration(model, tmp_path), lambda: read_calibration(path)):
        with pytest.raises(ServemarkError):
            touch()


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda text: text.replace('"run":"made/r1"', '"run":"made/r9"', 1), "changed"),
        (lambda text: text.replace(f'"model_version":{MODEL_VERSION}', '"model_version":99'), "version"),
        (lambda text: text[: len(text) // 2], "unreadable"),
        (lambda _: "[]", "unreadable"),
        (lambda _: '{"hash": "x", "body": {"schema": 1}}', "unreadable"),
    ],
)
def test_a_changed_calibration_is_refused(tmp_path: Path, change: object, key: str) -> None:
    """Its figures would be others."""
    path = write_calibration(SpeedModel.fit([made(1, load) for load in LOADS]), tmp_path)
    assert callable(change)
    path.write_text(change(path.read_text("utf-8")), "utf-8")
    with pytest.raises(ServemarkError) as caught:
        read_calibration(path)
    assert caught.value.key == f"predict.fit.calibration.{key}"
