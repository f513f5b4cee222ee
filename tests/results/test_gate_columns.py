"""Gates asked of many points at once say of each what they say of it alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemark.results.gates import registry
from servemark.results.gates.base import Severity
from servemark.results.gates.registry import GATES, contexts, judge, judge_all
from servemark.results.point import (
    Execution,
    Figure,
    Point,
    PointIdentity,
    RoleTopology,
    Scenario,
    Speculation,
)

ADDRESSES = (
    "ttft_s.mean", "ttft_s.p50", "ttft_s.p99", "tpot_s.mean", "tpot_s.p50", "itl_s.mean", "itl_s.p50", "e2el_s.mean",
    "e2el_s.p50", "e2el_s.p99", "output_tokens.mean", "input_tokens.mean", "total_tokens_per_s_per_gpu",
    "input_tokens_per_s_per_gpu", "output_tokens_per_s_per_gpu", "cache_hit_engine", "gpu_power_w.mean",
    "send_lateness_s.p50", "total_tokens_per_s", "requests_in_flight.mean", "achieved_concurrency",
    "input_tokens_per_s_per_prefill_gpu", "output_tokens_per_s_per_decode_gpu",
)  # fmt: skip
TOPOLOGIES = (
    (RoleTopology("aggregated", 1, 8, tp=8),),
    (RoleTopology("aggregated", None, None, tp=4, ep=2),),
    (RoleTopology("prefill", 1, 4, tp=4), RoleTopology("decode", 2, 4, tp=2, ep=2)),
    (RoleTopology("prefill", 2, None, tp=4, ep=8), RoleTopology("decode", 1, 8, tp=8)),
    (RoleTopology("prefill"), RoleTopology("decode")),
    (),
)
SPECULATIONS = (None, Speculation("mtp", 3, "golden"), Speculation("mtp", 3))
COUNTS = (None, 0, 4, 8, 12, -2, 10**400)
SCENARIOS = (
    Scenario("fixed-seq-len", 1024, 1024, 0.8),
    Scenario("fixed-seq-len", 1, 1),
    Scenario("random", 100, 10**400),  # no float holds it: columns cannot, and the gate is skipped
    Scenario("agentic-coding", dataset="d"),
)
values = st.one_of(
    st.floats(1e-3, 20),
    st.floats(),
    st.sampled_from([0.0, -0.0, 0.01, 0.0101, 0.0125, 10.0, 10.01, 1e-4, 1e6, 604_800.0, 1.0]),
    st.sampled_from([1, 0, 10**400]),
)


@st.composite
def lists(draw: st.DrawFn) -> list[Point]:
    """Points of two shapes, some of them near the limits of a gate and some with values that are none."""
    shapes = [draw(st.lists(st.sampled_from(ADDRESSES), unique=True)) for _ in range(2)]
    scenarios = draw(st.sampled_from([SCENARIOS[:1], SCENARIOS[:2], SCENARIOS]))
    points = []
    for number in range(draw(st.integers(1, 12))):
        figures = {
            address: Figure(draw(values), "made", address) for address in draw(st.sampled_from(shapes))
        }
        scenario = draw(st.sampled_from(scenarios))
        topology, loads = draw(st.sampled_from(TOPOLOGIES)), (8, 8, 8, None, 10**400)
        identity = PointIdentity(
            "m", "g", "e", scenario, draw(st.sampled_from(loads)), topology=topology,
            speculation=draw(st.sampled_from(SPECULATIONS)),
        )  # fmt: skip
        gpus, stated = draw(st.sampled_from(COUNTS)), draw(st.sampled_from(COUNTS))
        point = Point(
            identity, Execution(str(number)), figures, "made", 1, gpus_deployed=gpus, gpus_stated=stated
        )
        points += [point] * draw(st.integers(1, 2))
    return points


@settings(deadline=None)  # the array library is loaded within
@given(lists())
def test_together_is_one_by_one(points: list[Point]) -> None:
    """Findings and verdicts, against the gates asked of each point by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "FEWEST", 1)
        together = judge_all(points)
    assert together == [
        judge(point, context) for point, context in zip(points, contexts(points), strict=True)
    ]


@settings(deadline=None)  # the array library is loaded within
@given(lists())
def test_how_figures_are_listed_is_nothing(points: list[Point]) -> None:
    """A point that comes back from the store lists its figures by name, and must be judged as when it was imported."""
    others = [replace(point, figures=dict(sorted(point.figures.items()))) for point in points]
    for point, other in zip(points, others, strict=True):
        assert judge(point) == judge(other)


def test_every_gate_in_columns_can_object() -> None:
    """A row of each fault among a hundred sound ones: the sound ones pass, and that gate names the one alone."""
    sound = {
        "ttft_s.mean": 0.1, "ttft_s.p50": 0.1, "ttft_s.p99": 0.2, "tpot_s.mean": 0.01, "tpot_s.p50": 0.01, "itl_s.p50": 0.01,
        "e2el_s.mean": 10.33, "e2el_s.p50": 10.3, "input_tokens_per_s_per_gpu": 50.0, "output_tokens_per_s_per_gpu": 50.0,
        "total_tokens_per_s_per_gpu": 100.0,
    }  # fmt: skip
    # Little's law: 1 lane x (1024 + 1024 tokens) / 10.33 s = 198 tokens/s, on 2 GPUs 99 each
    faults: dict[str, dict[str, float]] = {
        "finite": {"ttft_s.p99": float("inf")},
        "possible": {"tpot_s.p50": 1e-5},
        "zero_latency": {"ttft_s.p50": 0.0},
        "percentiles": {"ttft_s.p99": 0.09},
        "ttft_e2el": {"ttft_s.p50": 10.4, "ttft_s.p99": 11.0},
        "latency_sum": {"e2el_s.mean": 5.0},
        "itl_tpot": {"itl_s.p50": 0.03},
        "one_denominator": {"output_tokens_per_s_per_gpu": 60.0},
        "closed_loop": {"total_tokens_per_s_per_gpu": 300.0, "output_tokens_per_s_per_gpu": 250.0},
    }
    identity = PointIdentity("m", "g", "e", SCENARIOS[1], 1)
    identity = replace(identity, scenario=Scenario("fixed-seq-len", 1024, 1024, 1.0))
    wrong = dict(enumerate(faults.items(), 40))
    points = [
        Point(
            identity,
            Execution(str(number)),
            {
                name: Figure(value, "made", name)
                for name, value in (sound | wrong.get(number, ("", {}))[1]).items()
            },
            "made",
            1,
            gpus_deployed=2,
        )
        for number in range(100)
    ]
    assert faults.keys() | {"no_latency", "split", "split_unknown"} == {
        gate.id for gate in GATES if gate.columns
    }
    judged = judge_all(points)
    for number, (findings, _) in enumerate(judged):
        said = {each.gate for each in findings if each.severity in (Severity.WARNING, Severity.QUARANTINE)}
        said -= {"duplicate"} if number not in wrong else set()
        assert said >= {wrong[number][0]} if number in wrong else not said, (number, said)
