"""An arm's engines and rules in a simulated replay, and step times on their way from measured points to a simulation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servemark.analysis.measured import Measured, of_point
from servemark.catalog.suite import load_suite
from servemark.predict.agentic import (
    TimesAtHits,
    deployment_times,
    least_segment,
    parse_changes,
    store_is_unused,
)
from servemark.predict.arm_engines import EngineLimits, engine_limits, engines_of
from servemark.predict.assumed_times import AssumedTimes
from servemark.predict.cache import build
from servemark.predict.cache_config import CacheConfig
from servemark.predict.cache_sizes import SizedCache
from servemark.predict.cache_tiers import CacheCounts
from servemark.predict.closed_loop import simulate
from servemark.predict.fit_points import fit_points
from servemark.predict.replay_sensitivity import HITS, sensitivity
from servemark.predict.sim_result import SimulatedRun
from servemark.predict.sim_rules import Deployment, ReplayRules, rules_of
from servemark.predict.speed import SpeedModel
from servemark.predict.speed_physical import decoding_batch
from servemark.predict.speed_points import FitPoint
from servemark.predict.speed_types import ConfigFacts
from servemark.replay.loop import LoopPlan
from servemark.replay.profiles import RUN_PROFILE, find_profile
from servemark.results.point import Execution, Figure, Point, PointIdentity, Precision, RoleTopology, Scenario
from servemark.traces.random_lengths import parse_spec, random_workload
from servemark.traces.types import Message, Segment, Session, Turn, Workload

FACTS = ConfigFacts("m", "h", "vllm", "fp8", None, "tp1", 1, False)
SIZED = SizedCache(
    CacheConfig(block_tokens=16, gpu_tokens=100_000, store_tokens=1000, workers=4, token_bytes=10.0),
    "prefill", 4, 5000, 2, (), 2, 50_000,
)  # fmt: skip


def session(name: str, at_s: float, prompt: int, reply: int) -> Session:
    """One request, `at_s` after the lane began."""
    first = Turn((Message("user", (Segment(f"{name}0", 1),)),), 1)
    then = Turn((Message("user", (Segment(name, prompt),)),), reply, at_s)
    return Session(name, (first, then))


def test_prompt_tokens_are_paid_once_however_long_their_wait() -> None:
    """A stream makes 100 tokens in steps of 0.1 s. Beside it a prompt of 100 tokens at 10 ms each waits 5 s for its first
    token: 20 tokens/s, steps of 0.1 / (1 - 20 * 0.01) = 0.125 s, so 1 s later in all, as 100 * 10 ms say; not 1 s for each
    of the 50 steps."""

    class Waiting(AssumedTimes):
        __slots__ = ()

        def prefill_s(self, new_tokens: int, cached_tokens: int, decoding: int) -> float:
            return 5.0 if new_tokens == 100 else 0.0

    times = Waiting(overhead_s=0.1, prefill_s_per_token=0.01)
    alone = Workload("w", "w", (session("a", 0.0, 10, 101),))
    both = Workload("w", "w", (*alone.sessions, session("b", 1.0, 100, 1)))
    rules = ReplayRules(2, ramp_s=0.0, cache_bust="none")
    ends = []
    for workload in (alone, both):
        run = simulate(workload, None, times, rules, Deployment(prefills_at_once=None), keep_requests=True)
        (end,) = (r.end_s for r in run.requests if r.session == "a" and r.turn == 1)
        ends.append(end)
    assert ends[0] == pytest.approx(10.0)
    assert ends[1] - ends[0] == pytest.approx(1.0)


def test_streams_beside_a_stream_by_littles_law() -> None:
    """5 sessions, each decoding for 20 of the 40 ms that the loop gives a token: itself and half of four others."""
    point = FitPoint("p", FACTS, "r", "", 5, 100, 10, {"tpot": 0.02, "service": 0.04, "ttft": 0.1}, 1)
    assert decoding_batch(point) == pytest.approx(3.0)
    assert decoding_batch(replace(point, concurrency=1)) == 1.0
    without = replace(point, values={"tpot": 0.02, "ttft": 0.2})  # 20 of 20 + 200 / 10 ms
    assert decoding_batch(without) == pytest.approx(3.0)
    assert decoding_batch(replace(point, means={"tpot": 0.03})) == pytest.approx(4.0)


def measured(load: int, run: SimulatedRun, isl: int, osl: int) -> Measured:
    """What a store would have of a run."""
    identity = PointIdentity(
        model="m", hardware="h", engine="vllm", scenario=Scenario("agentic-coding", dataset="d"), concurrency=load,
        image="i", precision=Precision("fp8", "fp8"), topology=(RoleTopology("aggregated", 1, 1, tp=1),),
    )  # fmt: skip
    addresses = ("tpot_s.p50", "tpot_s.mean", "ttft_s.p50", "ttft_s.mean", "e2el_s.p50")
    figures = {each: run.value(each) or 0.0 for each in addresses}
    figures |= {
        "output_tokens_per_s_per_gpu": run.value("output_tokens_per_s") or 0.0,
        "total_tokens_per_s_per_gpu": run.value("total_tokens_per_s") or 0.0,
        "input_tokens.mean": float(isl),
        "output_tokens.mean": float(osl),
        "cache_hit_usage": 0.0,
    }
    stated = {name: Figure(value, "made", name) for name, value in figures.items()}
    point = Point(identity, Execution("r", 1, "2026-01-01T00:00:00Z"), stated, "s", 1, gpus_deployed=1)
    return of_point(point, f"p:{load}", "valid")


@pytest.mark.parametrize("prefill_s", [1e-5, 2e-4])
def test_what_was_measured_is_simulated_again(prefill_s: float) -> None:
    """An engine whose prompts wait for each other is measured at 1, 4 and 12; a simulation with the step times fitted to
    that gives its throughput and its mean times back, at 2 and 8 too: no wait is counted twice."""
    truth = AssumedTimes(overhead_s=0.02, stream_s=0.002, prompt_s=0.005, prefill_s_per_token=prefill_s)
    workload = random_workload(parse_spec("random:isl=256,osl=32,requests=240,seed=3"))
    real = {
        load: simulate(workload, None, truth, ReplayRules(load), Deployment(chunk_tokens=512))
        for load in (1, 2, 4, 8, 12)
    }
    points = [measured(load, real[load], 256, 32) for load in (1, 4, 12)]
    model = SpeedModel.fit(fit_points(points))
    engines = Deployment(chunk_tokens=512, prefills_at_once=None)
    times = deployment_times(model.step_times(model.points[0].facts), points, engines)
    assert isinstance(times, TimesAtHits)
    for load, run in real.items():
        again = simulate(workload, None, times, ReplayRules(load), engines)
        for figure in ("output_tokens_per_s", "tpot_s.mean", "e2el_s.mean"):
            assert again.value(figure) == pytest.approx(run.value(figure), rel=0.08), (load, figure)


def test_one_worker_has_its_share_of_a_fits_streams() -> None:
    """A fit says 1 ms a stream of the whole deployment: 3 streams on each of 4 workers are 12."""
    points = [measured(1, simulate(WORKLOAD, None, AssumedTimes(overhead_s=0.1), ReplayRules(1)), 8, 4)]
    times = deployment_times(AssumedTimes(stream_s=0.001, beside_s=0.001), points, Deployment(workers=4))
    assert not isinstance(times, str)
    assert times.step_s(3, 0.0, 0) == pytest.approx(0.012)
    assert times.prefill_s(1, 0, 3) == pytest.approx(0.013)  # and the request itself


WORKLOAD = Workload("w", "w", tuple(session(f"s{n}", 0.1, 64, 4) for n in range(8)))


def test_engines_are_as_many_as_the_cache_has_pools() -> None:
    """Four data-parallel pools and a change to two of them, each with as many engines; GPUs of two are not known."""
    for workers in (4, 2):
        config = replace(SIZED.config, workers=workers)
        engines = engines_of(SIZED, config, EngineLimits(7, 512), 8, fitted=False)
        assert (engines.workers, engines.decode_workers, engines.decode_kv_tokens) == (workers, 2, 50_000)
        assert (engines.max_running, engines.chunk_tokens, engines.prefills_at_once) == (7, 512, 1)
        assert engines.gpus == (8 if workers == 4 else None)
        run = simulate(WORKLOAD, build(config), AssumedTimes(overhead_s=0.01), ReplayRules(4), engines)
        assert run.ok == 16
    assert engines_of(SIZED, SIZED.config, EngineLimits(), 8, fitted=True).prefills_at_once is None


def test_a_recipe_says_what_its_engine_runs_at_once() -> None:
    """quickstart's llama.cpp has four slots."""
    suite = load_suite("quickstart")
    arm = suite.arm("quickstart")
    limits = engine_limits(suite.deployment(arm, arm.entries[0]))
    assert (limits.max_running, limits.slots) == (4, 4)


def test_runs_own_rules_are_those_of_its_profile() -> None:
    """What `run` leaves to the loop's defaults is what its profile says."""
    plan = LoopPlan(WORKLOAD, 3, "session", "x")
    rules = rules_of(find_profile(RUN_PROFILE), 3)
    for name in (
        "duration_s",
        "max_requests",
        "idle_caps",
        "start_share",
        "pressure_requests",
        "think_scale",
        "ramp_s",
    ):
        assert getattr(plan, name) == getattr(rules, name), name


def test_what_decides_is_told_by_the_arms_own_figures() -> None:
    """Sessions of one request and a pool for all of them: no rule and no engine moves the hits."""
    made = sensitivity(
        WORKLOAD, lambda: build(CacheConfig(block_tokens=16)), AssumedTimes(overhead_s=0.01), ReplayRules(2),
        Deployment(), metric=HITS,
    )  # fmt: skip
    assert made.dominates in {"nothing", None}
    few = sensitivity(
        WORKLOAD, lambda: None, AssumedTimes(overhead_s=0.01), rules_of(find_profile("agentx"), 2), Deployment(),
        metric="output_tokens_per_s",
    )  # fmt: skip
    assert few.said in {
        "predict.replay.dominates_rules",
        "predict.replay.dominates_engine",
        "predict.replay.dominates_neither",
    }


def test_the_least_segment_is_found() -> None:
    """Hits fall below 60 % under 3,200 bytes: found to 1/64 of 5,000. A store in which nothing was found needs none."""
    found = least_segment(
        SIZED, 5000, 0.6, lambda of: 0.6 if (of.store_tokens or 0) >= 3200 * 2 / 10 else 0.5
    )
    assert found is not None
    assert 3200 <= found <= 3200 + 5000 / 64 + 10
    assert least_segment(SIZED, 5000, 0.7, lambda of: 0.6) is None
    assert store_is_unused(SIZED.config, CacheCounts(gpu_tokens=5))
    assert not store_is_unused(SIZED.config, CacheCounts(store_tokens=1))
    assert not store_is_unused(replace(SIZED.config, store_tokens=0), CacheCounts())
    assert parse_changes(["segment=least"])[0].text == "segment=least"
