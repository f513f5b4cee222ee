"""Each gate on made rows, on both sides of its tolerance. Expected words are worked out by hand from SOUND."""

from __future__ import annotations

import json
import math
import string
from dataclasses import replace
from pathlib import Path

import pytest
from tests.results.sound_point import SOUND, figures, said, sound, split_point, with_figures, with_identity

from servemark.base.messages import LANGUAGES, catalogue
from servemark.results.gates.base import Context, Severity, Verdict
from servemark.results.gates.registry import GATES, GATES_BY_ID, gates_version, judge
from servemark.results.gates.topology import Split, recover_split
from servemark.results.gates.words import next_step, sentence, title, why
from servemark.results.point import (
    Eval,
    Execution,
    Memory,
    Point,
    Requests,
    RoleTopology,
    Scenario,
    Speculation,
)

TWO_LOADS: dict[str, object] = {
    "evals": [{"task": "gsm8k", "n": 1319, "concurrency": each} for each in (1, 4)]
}
OK, WARNING, QUARANTINE, SKIPPED = Severity.OK, Severity.WARNING, Severity.QUARANTINE, Severity.SKIPPED
GB = 10**9


def role(**changes: object) -> Point:
    """The sound point with another aggregated role."""
    return with_identity(sound(), topology=(RoleTopology("aggregated", **changes),))  # type: ignore[arg-type]


def total(value: float) -> Point:
    """The sound point with another total per GPU: 256 is what the loop gives."""
    return with_figures(sound(), total_tokens_per_s_per_gpu=value)


def spec(acceptance: str | None, drafts: int | None = 4, **changes: object) -> Point:
    """The sound point with speculative decoding."""
    return with_identity(sound(**changes), speculation=Speculation("mtp", drafts, acceptance))


def one_eval(passed: bool | None = True, task: str = "gsm8k", n: int = 1319) -> Eval:
    """One accuracy result."""
    return Eval(task, 0.95, "exact_match", 0.006, n, passed)


def requests(*counts: int | None) -> Point:
    """planned, ok, error, incomplete, cancelled."""
    return sound(requests=Requests(*counts))


def memory(**changes: object) -> Point:
    """Host memory figures."""
    return sound(memory=Memory(**changes))  # type: ignore[arg-type]


UNTIMED = figures({"total_tokens_per_s_per_gpu": 256.0})
TRACE = Scenario("agentic-coding", dataset="d")
BY_SIZES = (RoleTopology("prefill", 1, tp=1, ep=8), RoleTopology("decode", 3, tp=8))
ROLES = (RoleTopology("prefill", 1, 4), RoleTopology("decode", 1, 4))


def wide(gpus: int, tp: int, ep: int) -> tuple[RoleTopology, ...]:
    """Four prefill GPUs, and one decode worker of the sizes."""
    return RoleTopology("prefill", 1, 4, tp=4, ep=1), RoleTopology("decode", 1, gpus, tp=tp, ep=ep)


CASES: list[tuple[str, Point, Severity]] = [
    ("finite", sound(), OK),
    ("finite", sound(figures={}), SKIPPED),
    ("finite", with_figures(sound(), ttft_s__p50=math.nan), QUARANTINE),
    ("finite", with_figures(sound(), ttft_s__p50=math.inf), QUARANTINE),
    ("finite", with_figures(sound(), ttft_s__p50=-1e-9), QUARANTINE),
    ("finite", with_figures(sound(), send_lateness_s__p50=-0.001), OK),
    ("possible", sound(), OK),
    ("possible", with_figures(sound(), tpot_s__p50=1e-4), OK),
    ("possible", with_figures(sound(), tpot_s__p50=0.99e-4), QUARANTINE),
    ("possible", with_figures(sound(), e2el_s__p90=10_500_000.0), QUARANTINE),  # ms for s
    ("possible", with_figures(sound(), cache_hit_usage=96.8), QUARANTINE),  # percent for a share
    ("possible", total(1e6), OK),
    ("possible", total(1.01e6), QUARANTINE),
    ("zero_latency", sound(), OK),
    ("zero_latency", with_figures(sound(), tpot_s__p90=0.0), QUARANTINE),
    ("zero_latency", total(0.0), QUARANTINE),
    (
        "zero_latency",
        with_figures(sound(), tpot_s__std=0.0, tpot_s__p90=None),
        OK,
    ),  # no spread; absent is absent
    ("no_latency", sound(), OK),
    ("no_latency", sound(figures=figures({"eval_score": 0.95})), SKIPPED),
    ("no_latency", sound(figures=figures({"total_tokens_per_s": 5.0})), WARNING),
    ("closed_loop", sound(), OK),
    ("closed_loop", total(256 / 1.09), OK),
    ("closed_loop", total(256 / 1.11), WARNING),
    ("closed_loop", total(256 * 1.11), WARNING),
    ("closed_loop", total(256 / 1.51), QUARANTINE),
    ("closed_loop", total(256 * 1.51), QUARANTINE),
    ("closed_loop", with_figures(total(256 / 1.4), e2el_s__mean=None), OK),  # by the median only
    ("closed_loop", with_figures(total(256 / 1.6), e2el_s__mean=None), WARNING),
    ("closed_loop", with_figures(total(256 / 3.1), e2el_s__mean=None), QUARANTINE),
    ("closed_loop", with_figures(sound(), total_tokens_per_s=2048.0), OK),
    (
        "closed_loop",
        with_figures(sound(), total_tokens_per_s=256.0),
        QUARANTINE,
    ),  # a per-GPU figure as the whole
    ("closed_loop", with_identity(sound(), scenario=Scenario("fixed-seq-len", 1024, 1024)), OK),
    ("closed_loop", with_identity(total(0.9 * 256), scenario=Scenario("fixed-seq-len", 1024, 1024)), OK),
    ("closed_loop", with_identity(total(0.9 * 256), scenario=Scenario("fixed-seq-len", 1024, 1024, 0.8)), OK),
    (
        "closed_loop",
        with_identity(total(0.8 * 256), scenario=Scenario("fixed-seq-len", 1024, 1024, 0.8)),
        WARNING,
    ),
    ("closed_loop", with_identity(sound(), scenario=TRACE), SKIPPED),
    (
        "closed_loop",
        with_identity(sound(), scenario=Scenario("random", 1024, 1024, arrivals="poisson:4")),
        SKIPPED,
    ),
    ("closed_loop", with_identity(sound(), concurrency=None), SKIPPED),
    ("closed_loop", with_figures(with_identity(total(128.0), concurrency=20), achieved_concurrency=5.0), OK),
    ("closed_loop", with_identity(sound(gpus_deployed=None), topology=()), SKIPPED),
    ("one_denominator", sound(), OK),
    ("one_denominator", total(256 * 1.009), OK),
    ("one_denominator", total(256 * 1.012), QUARANTINE),
    ("one_denominator", with_figures(sound(), input_tokens_per_s_per_gpu=None), SKIPPED),
    ("totals_rates", sound(), SKIPPED),
    ("totals_rates", with_figures(sound(), requests_per_s=0.96), OK),  # x 105 s = 100.8 of 100
    ("totals_rates", with_figures(sound(), requests_per_s=1.01), WARNING),  # 106.05
    (
        "totals_rates",
        with_figures(sound(), output_tokens_per_s=1000.0, output_tokens_total=50_000.0),
        WARNING,
    ),
    ("gpu_count", sound(), OK),
    ("gpu_count", role(tp=8, ep=8), OK),
    ("gpu_count", replace(role(tp=8, ep=8), gpus_stated=64), WARNING),  # the loop says 8
    (
        "gpu_count",
        with_figures(replace(role(tp=8, ep=8), gpus_stated=64), e2el_s__mean=80.0),
        QUARANTINE,
    ),  # 64
    ("gpu_count", replace(role(tp=8, ep=8), gpus_stated=64, figures=UNTIMED), QUARANTINE),
    ("gpu_count", replace(role(tp=8), gpus_deployed=4, figures=UNTIMED), QUARANTINE),
    ("gpu_count", replace(role(tp=4, dp=2), gpus_deployed=8, figures=UNTIMED), OK),
    ("gpu_count", replace(role(tp=8, pp=2), gpus_deployed=16, figures=UNTIMED), OK),
    (
        "gpu_count",
        replace(role(tp=8), gpus_deployed=16, figures={}),
        WARNING,
    ),  # two workers that nobody names
    ("gpu_count", replace(role(workers=1, tp=8), gpus_deployed=16, figures=UNTIMED), QUARANTINE),
    ("gpu_count", replace(role(tp=8), gpus_deployed=12, figures=UNTIMED), QUARANTINE),
    (
        "gpu_count",
        replace(role(tp=1, ep=8), gpus_deployed=8, figures=UNTIMED),
        OK,
    ),  # eight data-parallel ranks
    (
        "gpu_count",
        replace(role(tp=1, ep=8), gpus_deployed=64, figures={}),
        WARNING,
    ),  # eight such workers, perhaps
    (
        "gpu_count",
        replace(role(tp=8, ep=8), gpus_stated=64, figures={}),
        WARNING,
    ),  # an eval: no figure rests on it
    ("gpu_count", role(), SKIPPED),
    ("role_gpus", sound(), SKIPPED),
    ("role_gpus", with_identity(sound(), topology=wide(8, 8, 8)), OK),
    ("role_gpus", with_identity(sound(), topology=wide(64, 8, 8)), WARNING),
    ("role_gpus", with_identity(sound(), topology=wide(8, 1, 8)), OK),
    ("role_gpus", with_identity(sound(), topology=ROLES), SKIPPED),
    (
        "role_gpus",
        with_identity(split_point(4, 64, 1700.0, 6.25, 105.88), topology=wide(64, 8, 8)),
        OK,
    ),  # 7200 / 68
    ("gpu_count", replace(role(tp=8), gpus_stated=0, figures=UNTIMED), SKIPPED),
    ("gpu_count", with_identity(sound(), topology=ROLES), SKIPPED),
    ("gpu_telemetry", sound(), SKIPPED),
    ("gpu_telemetry", sound(gpus_telemetry=8), OK),
    ("gpu_telemetry", sound(gpus_telemetry=4), QUARANTINE),
    ("gpu_telemetry", sound(gpus_telemetry=16), WARNING),
    ("split", sound(), SKIPPED),
    ("split", split_point(4, 4, 100.0, 20.0, 60.0), OK),  # 400 + 80 = 60 x 8
    ("split", split_point(4, 4, 100.0, 20.0, 60.5), OK),
    ("split", split_point(8, 8, 100.0, 20.0, 40.0), WARNING),  # 1/4 of 8: 2 and 6
    ("split", with_identity(sound(), topology=ROLES), SKIPPED),
    (
        "split",
        with_identity(split_point(1, 1, 100.0, 20.0, 40.0), topology=BY_SIZES),
        OK,
    ),  # 800 + 480 = 40 x 32
    ("split_unknown", split_point(4, 4, 100.0, 20.0, 60.0), OK),
    ("split_unknown", split_point(8, 8, 100.0, 20.0, 40.0), OK),
    ("split_unknown", split_point(7, 7, 100.0, 20.0, 41.7), QUARANTINE),  # 1.9 of 7: no whole number
    ("split_unknown", split_point(7, 7, 100.0, 20.0, 200.0), QUARANTINE),  # more than either role gives
    ("split_unknown", split_point(7, 7, 50.0, 50.0, 60.0), QUARANTINE),  # equal rates tell nothing
    ("percentiles", sound(), OK),
    ("percentiles", with_figures(sound(), e2el_s__p90=9.995), OK),  # rounding: 0.05 % below p50
    ("percentiles", with_figures(sound(), e2el_s__p90=9.98), QUARANTINE),
    ("percentiles", sound(figures=figures({"e2el_s.p50": 10.0, "e2el_s.p99.9": 9.0})), QUARANTINE),
    ("percentiles", sound(figures=figures({"interactivity.p50": 50.0, "interactivity.p90": 40.0})), OK),
    (
        "percentiles",
        sound(figures=figures({"interactivity.p50": 40.0, "interactivity.p90": 50.0})),
        QUARANTINE,
    ),
    ("percentiles", sound(figures=figures({"e2el_s.p50": 10.0})), SKIPPED),
    ("rate_direction", sound(), SKIPPED),
    ("rate_direction", sound(observed={"stated_interactivity": {"median": 105.0, "p90": 101.0}}), OK),
    ("rate_direction", sound(observed={"stated_interactivity": {"p50": 105.0, "p90": 121.3}}), WARNING),
    ("rate_direction", sound(observed={"stated_interactivity": {"p90": 101.0}}), OK),  # 1 / 0.0099 = 101.01
    ("rate_direction", sound(observed={"stated_interactivity": {"p90": 121.3}}), WARNING),
    (
        "rate_direction",
        sound(observed={"stated_interactivity": {"p9x": 1, "p90": "fast", "": None}}),
        SKIPPED,
    ),
    ("ttft_e2el", sound(), OK),
    ("ttft_e2el", with_figures(sound(), ttft_s__p90=10.5), OK),
    ("ttft_e2el", with_figures(sound(), ttft_s__p90=10.52), QUARANTINE),
    ("ttft_e2el", sound(figures={}), SKIPPED),
    ("latency_sum", sound(), OK),
    ("latency_sum", with_figures(sound(), ttft_s__mean=0.74), OK),  # 10.49 of 10
    ("latency_sum", with_figures(sound(), ttft_s__mean=0.76), WARNING),
    ("latency_sum", with_figures(sound(), ttft_s__mean=2.80), QUARANTINE),  # 12.55
    ("latency_sum", with_figures(sound(), output_tokens__mean=513.0), QUARANTINE),  # 0.25 + 4.88
    ("latency_sum", with_identity(sound(), scenario=TRACE), SKIPPED),
    ("latency_sum", with_figures(sound(), tpot_s__mean=None), SKIPPED),
    ("itl_tpot", sound(), OK),
    ("itl_tpot", with_figures(sound(), itl_s__p50=1.24 * SOUND["tpot_s.p50"]), OK),
    ("itl_tpot", with_figures(sound(), itl_s__p50=1.26 * SOUND["tpot_s.p50"]), WARNING),
    ("itl_tpot", with_figures(sound(), itl_s__p50=None), SKIPPED),
    ("partial", sound(), OK),
    ("partial", sound(status="partial"), QUARANTINE),
    ("none_succeeded", sound(), OK),
    ("none_succeeded", requests(10, 0, 10), QUARANTINE),
    ("none_succeeded", requests(), SKIPPED),
    ("counts", requests(100, 90, 5, 3, 2), OK),
    ("counts", requests(100, 90, 5, 3, 3), QUARANTINE),
    ("counts", requests(None, 90, -1), QUARANTINE),
    ("counts", requests(None, 90), OK),
    ("counts", requests(100), SKIPPED),
    ("unaccounted", requests(100, 90, 10), OK),
    ("unaccounted", requests(100, 90, 9), WARNING),
    ("unaccounted", requests(100, 90), SKIPPED),
    ("error_rate", requests(100, 99, 1), OK),
    ("error_rate", requests(100, 98, 2), WARNING),
    ("error_rate", requests(100, 95, 5), WARNING),
    ("error_rate", requests(100, 94, 6), QUARANTINE),
    ("error_rate", requests(0, 0, 0), SKIPPED),
    ("unfinished", requests(100, 90, 0, 10), OK),
    ("unfinished", requests(100, 89, 0, 11), WARNING),
    ("unfinished", requests(100, 100), SKIPPED),
    ("concurrencies", sound(), SKIPPED),
    ("concurrencies", sound(expected={"concurrencies": [10]}), OK),
    ("concurrencies", sound(expected={"concurrencies": [10, 20]}), WARNING),
    ("concurrencies", sound(expected={"concurrencies": "10"}), SKIPPED),
    ("superseded", sound(), SKIPPED),
    ("duplicate", sound(), SKIPPED),
    ("short_run", sound(), OK),
    ("short_run", sound(duration_s=50.0), OK),
    ("short_run", sound(duration_s=49.9), WARNING),
    ("short_run", sound(duration_s=None), SKIPPED),
    ("few_requests", requests(20, 20), OK),
    ("few_requests", requests(19, 19), WARNING),
    ("few_requests", requests(), SKIPPED),
    ("steady_window", sound(), SKIPPED),
    ("steady_window", sound(steady_s=(10.0, 62.5)), OK),  # 52.5 of 105
    ("steady_window", sound(steady_s=(10.0, 62.4)), WARNING),
    ("window_possible", sound(), OK),
    ("window_possible", sound(duration_s=0.0), QUARANTINE),
    ("window_possible", sound(duration_s=math.nan), QUARANTINE),
    ("window_possible", sound(duration_s=9.0), QUARANTINE),  # shorter than the mean request
    (
        "window_possible",
        sound(steady_s=(20.0, 125.005)),
        OK,
    ),  # as long as the run; where it begins is not judged,
    ("window_possible", sound(steady_s=(20.0, 126.05)), OK),  # 1 % of 105 s over: a client that was late
    ("window_possible", sound(steady_s=(20.0, 126.07)), QUARANTINE),
    (
        "window_possible",
        sound(steady_s=(20.0, 126.95), client={"limited": True, "loop_lag_max_s": 1.0}),
        OK,
    ),  # late by at most 1 s at each end, and says so
    (
        "window_possible",
        sound(steady_s=(20.0, 127.05), client={"limited": True, "loop_lag_max_s": 1.0}),
        QUARANTINE,
    ),
    ("window_possible", sound(steady_s=(50.0, 20.0)), QUARANTINE),
    ("window_possible", sound(duration_s=None), SKIPPED),
    ("client_limited", sound(), SKIPPED),
    ("client_limited", sound(client={"limited": False, "loop_lag_p99_s": 0.005}), OK),
    ("client_limited", sound(client={"limited": True}), WARNING),
    ("client_limited", sound(client={"loop_lag_p99_s": 0.0051}), WARNING),
    ("client_limited", sound(client={"limited": "no"}), SKIPPED),
    ("dram_scope", sound(), SKIPPED),
    (
        "dram_scope",
        memory(allocated_bytes=1632 * GB, configured_bytes=2249 * GB),
        OK,
    ),  # 1.38: budget and allocation
    ("dram_scope", memory(allocated_bytes=204 * GB, reported_bytes=1632 * GB), WARNING),  # 8 ranks
    ("dram_scope", memory(allocated_bytes=160 * GB, reported_bytes=1374 * GB), WARNING),  # 8 ranks x GiB/GB
    ("dram_scope", memory(allocated_bytes=1520 * GB, reported_bytes=1520 * 2**30), WARNING),  # GiB read as GB
    ("dram_scope", memory(allocated_bytes=100 * GB, reported_bytes=101 * GB), OK),
    ("dram_reported", memory(reported_bytes=100 * GB), SKIPPED),
    ("dram_reported", memory(allocated_bytes=100 * GB, reported_bytes=101 * GB), OK),
    ("dram_reported", memory(allocated_bytes=100 * GB, reported_bytes=103 * GB), WARNING),
    ("dram_reported", memory(configured_bytes=200 * GB, reported_bytes=100 * GB), OK),
    ("dram_reported", memory(configured_bytes=100 * GB, reported_bytes=103 * GB), WARNING),
    ("dram_capacity", memory(allocated_bytes=100 * GB), SKIPPED),
    ("dram_capacity", memory(allocated_bytes=100 * GB, capacity_bytes=100 * GB), OK),
    ("dram_capacity", memory(allocated_bytes=100 * GB + 1, capacity_bytes=100 * GB), QUARANTINE),
    ("identity_version", sound(), SKIPPED),
    (
        "identity_version",
        with_identity(sound(observed={"engine_version": "v0.11.2+cu13"}), engine_version="0.11.2"),
        OK,
    ),
    (
        "identity_version",
        with_identity(sound(observed={"engine": {"version": "0.11.3"}}), engine_version="0.11.2"),
        QUARANTINE,
    ),
    (
        "identity_version",
        with_identity(sound(observed={"image_digest": {"w0": "sha256:abc1234"}}), image="i:1@sha256:abc1234"),
        OK,
    ),
    (
        "identity_version",
        with_identity(sound(observed={"image_digest": {"w0": "sha256:abd1234"}}), image="i:1@sha256:abc1234"),
        QUARANTINE,
    ),
    ("version", sound(declared={"router": {"version": "1.2"}}, observed={"router": {"version": "v1.2"}}), OK),
    (
        "version",
        sound(declared={"router": {"version": "1.2"}}, observed={"router": {"version": "1.3"}}),
        WARNING,
    ),
    (
        "version",
        sound(declared={"router_version": "1.2"}, observed={"router_version": ["1.2", "1.3"]}),
        WARNING,
    ),
    (
        "version",
        sound(declared={"rev": "6008c17"}, observed={"rev": "6008c17aaaa"}),
        OK,
    ),  # a commit cut short
    ("version", sound(declared={"router_version": "1.2"}, observed={"gpu": "x"}), SKIPPED),
    ("mixed_workers", sound(observed={"workers": {"a": {"version": "1"}, "b": {"version": "1"}}}), OK),
    ("mixed_workers", sound(observed={"workers": [{"version": "1"}, {"version": "2"}]}), WARNING),
    ("mixed_workers", sound(observed={"workers": 2}), SKIPPED),
    ("eval_failed", sound(), SKIPPED),
    ("eval_failed", sound(evals=(one_eval(),)), OK),
    ("eval_failed", sound(evals=(one_eval(None),)), SKIPPED),
    ("eval_failed", sound(evals=(one_eval(), one_eval(False, "mmlu"))), QUARANTINE),
    ("eval_missing", sound(), SKIPPED),
    ("eval_missing", sound(expected={"evals": ["gsm8k"]}, evals=(one_eval(),)), OK),
    ("eval_missing", sound(expected={"evals": ["gsm8k", "mmlu"]}, evals=(one_eval(),)), QUARANTINE),
    ("eval_missing", sound(expected={"evals": [{"task": "gsm8k", "n": 1319}]}, evals=(one_eval(),)), OK),
    ("eval_missing", sound(expected={"evals": [{"task": "gsm8k", "n": 1319}]}), QUARANTINE),
    ("eval_missing", sound(expected={"evals": [7, {"n": 3}]}), SKIPPED),
    (
        "eval_missing",  # one concurrency of two ran
        sound(expected=TWO_LOADS, evals=(replace(one_eval(), concurrency=1),)),
        QUARANTINE,
    ),
    (
        "eval_missing",
        sound(
            expected=TWO_LOADS, evals=(replace(one_eval(), concurrency=1), replace(one_eval(), concurrency=4))
        ),
        OK,
    ),
    ("eval_missing", sound(expected={"evals": {"gsm8k": 1319}}, evals=(one_eval(),)), OK),
    ("eval_missing", sound(expected={"evals": {"gsm8k": 1319}}, evals=(one_eval(n=1318),)), QUARANTINE),
    ("eval_missing", sound(expected={"evals": []}), SKIPPED),
    ("eval_synthetic", sound(), SKIPPED),
    ("eval_synthetic", spec("real", evals=(one_eval(),)), SKIPPED),
    ("eval_synthetic", spec("golden", evals=(one_eval(),)), WARNING),
    ("eval_synthetic", spec("golden", evals=(one_eval(),), observed={"eval_acceptance": "real"}), OK),
    (
        "eval_synthetic",
        spec("golden", evals=(one_eval(),), observed={"eval_acceptance": "Synthetic"}),
        QUARANTINE,
    ),
    ("forced_acceptance", sound(), SKIPPED),
    ("forced_acceptance", spec("real"), OK),
    ("forced_acceptance", spec("golden"), WARNING),
    ("acceptance_length", sound(), SKIPPED),
    ("acceptance_length", spec("golden", declared={"acceptance_length": 3.36}), OK),
    (
        "acceptance_length",
        spec("golden", declared={"acceptance_length": 5.02}),
        OK,
    ),  # at most 4 + 1, two decimals
    ("acceptance_length", spec("golden", declared={"acceptance_length": 5.04}), QUARANTINE),
    ("acceptance_length", spec("golden", declared={"acceptance_length": 0.9}), QUARANTINE),
    (
        "acceptance_length",
        spec("golden", declared={"acceptance_length": 3.36}, observed={"acceptance_length": 3.38}),
        OK,
    ),
    (
        "acceptance_length",
        spec("golden", declared={"acceptance_length": 3.36}, observed={"acceptance_length": 3.22}),
        WARNING,
    ),
    (
        "acceptance_length",
        spec("real", declared={"acceptance_length": 3.36}, observed={"acceptance_length": 1.4}),
        OK,
    ),
    ("power_coverage", sound(), SKIPPED),
    (
        "power_coverage",
        sound(observed={"power": {"first_s": -1.0, "last_s": 106.0, "longest_gap_s": 1.0}}),
        OK,
    ),
    ("power_coverage", sound(observed={"power": {"first_s": 1.0, "last_s": 104.0}}), OK),  # 2.0 of 2.1 s
    ("power_coverage", sound(observed={"power": {"first_s": 1.0, "last_s": 103.8}}), WARNING),  # 2.2
    ("power_coverage", sound(observed={"power": {"first_s": 0.0, "longest_gap_s": 5.3}}), WARNING),  # 5.25
    ("power_coverage", sound(observed={"power": {"first_s": 0.0, "devices": 7}}), WARNING),
    ("energy", sound(), SKIPPED),
    ("energy", with_figures(sound(), gpu_power_w__mean=512.0, joules_per_total_token=2.0), OK),
    ("energy", with_figures(sound(), gpu_power_w__mean=512.0, joules_per_total_token=2.12), WARNING),
    ("energy", with_figures(sound(), gpu_power_w__mean=512.0, gpus_energy_j=512.0 * 8 * 105), OK),
    (
        "energy",
        with_figures(sound(), gpu_power_w__mean=512.0, gpus_energy_j=512.0 * 105),
        WARNING,
    ),  # of one GPU
]


@pytest.mark.parametrize(
    ("gate", "point", "expected"),
    CASES,
    ids=[f"{n}-{gate}-{how.value}" for n, (gate, _, how) in enumerate(CASES)],
)
def test_both_sides(gate: str, point: Point, expected: Severity) -> None:
    """The severity worked out by hand; the words exist and hold their numbers in both languages."""
    finding = said(gate, point)
    assert finding.gate == gate
    assert finding.severity is expected, finding
    for lang in LANGUAGES:
        assert sentence(finding, lang)
        if expected in (WARNING, QUARANTINE):
            assert next_step(finding, lang)
            assert "{" not in sentence(finding, lang)
    json.dumps(finding.values, allow_nan=False)


def test_every_gate_is_tried_on_each_side() -> None:
    """No gate without a passing, a failing and a skipped case; three need other points around and stand below."""
    tried: dict[str, set[Severity]] = {}
    for gate, _, how in CASES:
        tried.setdefault(gate, set()).add(how)
    assert set(tried) == set(GATES_BY_ID)
    for gate, severities in tried.items():
        if gate not in ("superseded", "duplicate"):
            assert OK in severities, gate
            assert severities & {WARNING, QUARANTINE}, gate


def test_the_sound_point_is_valid() -> None:
    """Nothing to object, and the order is that of GATES."""
    findings, verdict = judge(sound())
    assert verdict is Verdict.VALID
    assert [finding.gate for finding in findings] == [gate.id for gate in GATES]
    assert not [finding for finding in findings if finding.severity not in (OK, SKIPPED)]


def test_the_worst_finding_decides() -> None:
    """A warning, and a warning beside a quarantine."""
    assert judge(requests(19, 19, 0))[1] is Verdict.WARNINGS
    assert judge(replace(requests(19, 19, 0), status="partial"))[1] is Verdict.QUARANTINED


def test_the_loop_says_its_numbers() -> None:
    """2048 / 8 = 256 against the stated 64: 4 times."""
    values = said("closed_loop", total(64.0)).values
    assert (values["stated"], values["implied"], values["ratio"], values["gpus"]) == (64.0, 256.0, 4.0, 8)


def test_recovered_split() -> None:
    """100 P + 20 D = 40 (P + D): P : D = 1 : 3. Both roles claim 8, so 8 it is: 2 and 6; with rates over 16 GPUs the
    loop decides for 4 and 12."""
    point = split_point(8, 8, 100.0, 20.0, 40.0)
    assert recover_split(point) == Split(2, 6)
    # 10 lanes x 2048 tokens / 32 s = 640 tok/s = 40 x 16.
    assert recover_split(with_figures(point, e2el_s__mean=32.0)) == Split(4, 12)
    assert recover_split(with_figures(point, e2el_s__mean=64.0)) == Split(2, 6)


def test_a_later_complete_attempt_counts() -> None:
    """Later wins though slower; a partial or wholly failed one replaces nothing; another run is no attempt."""
    first = sound()
    later = total(250.0)
    later = replace(later, execution=Execution("r1", 2))
    around = Context(attempts=(first, later))
    assert said("superseded", first, around).severity is QUARANTINE
    assert said("superseded", later, around).severity is OK
    for none in (
        replace(later, status="partial"),
        replace(later, requests=Requests(10, 0, 10)),
        replace(later, execution=Execution("r2", 2)),
    ):
        assert said("superseded", first, Context(attempts=(first, none))).severity is OK


def test_equal_figures_are_one_row() -> None:
    """Byte-identical rows under two names; a last digit of difference makes two measurements."""
    one, copy = sound(), replace(sound(), execution=Execution("r2"))
    assert said("duplicate", one, Context(attempts=(one, copy))).severity is WARNING
    scores = [replace(each, figures=figures({"eval_score": 0.95})) for each in (one, copy)]
    assert said("duplicate", scores[0], Context(attempts=tuple(scores))).severity is OK
    other = with_figures(copy, ttft_s__p50=0.2 + 1e-12)
    assert said("duplicate", one, Context(attempts=(one, other))).severity is OK


def test_evals_and_concurrencies_of_the_line() -> None:
    """What another point of the line has counts; the eval of a later attempt replaces an earlier failure."""
    asked = sound(expected={"concurrencies": [10, 20], "evals": ["gsm8k"]})
    other = with_identity(sound(evals=(one_eval(False),)), concurrency=20)
    line = Context(line=(asked, other))
    assert said("concurrencies", asked, line).severity is OK
    assert said("eval_missing", asked, line).severity is OK
    assert said("eval_failed", asked, line).severity is QUARANTINE
    again = replace(other, execution=Execution("r1", 2), evals=(one_eval(),))
    assert said("eval_failed", asked, Context(line=(asked, other, again))).severity is OK
    stopped = replace(other, status="partial")
    assert said("concurrencies", asked, Context(line=(asked, stopped))).severity is WARNING


def test_words_of_every_gate_and_skip() -> None:
    """Title and why of each gate in both languages; no text in the catalogue that no gate uses."""
    for lang in LANGUAGES:
        known = catalogue(lang, "gate")
        for gate in GATES:
            assert title(gate.id, lang) and why(gate.id, lang)
            assert gate.source
            assert gate.judge.__doc__
            assert not [
                name for _, name, _, _ in string.Formatter().parse(known[f"gate.{gate.id}.why"]) if name
            ]
        ids = {key.split(".")[1] for key in known} - {"ok", "skipped"}
        assert ids == set(GATES_BY_ID)


def test_the_version_names_every_gate() -> None:
    """A new or changed gate changes it, so that kept verdicts can be told from current ones."""
    assert gates_version().split(",")[0] == "finite:1"
    assert len(gates_version().split(",")) == len(GATES)


def test_a_number_that_no_float_holds_is_skipped() -> None:
    """10^400 lanes: the gates that compute with it are skipped, the others speak, nothing raises."""
    findings, _ = judge(with_identity(sound(), concurrency=10**400))
    loop = next(finding for finding in findings if finding.gate == "closed_loop")
    assert loop.severity is SKIPPED
    assert all(sentence(finding, "en") for finding in findings)


@pytest.mark.parametrize("page", ["gates.md", "zh/gates.md"])
def test_the_page_lists_every_gate(page: str) -> None:
    """Id, title, why and tolerance of each gate, as the catalogue has them, in order and nothing else."""
    lang = "zh" if page.startswith("zh") else "en"
    lines = (Path(__file__).resolve().parents[2] / "docs" / page).read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| `")][: len(GATES)]
    colon = "\uff1a" if lang == "zh" else ": "
    for gate, row in zip(GATES, rows, strict=True):
        tolerance = "—" if gate.tolerance is None else f"{gate.tolerance:g}"
        start = f"| `{gate.id}` | {title(gate.id, lang)}{colon}{why(gate.id, lang)} | {tolerance} | "
        assert row.startswith(start), gate.id
        assert lang == "zh" or row == f"{start}{gate.source} |"
