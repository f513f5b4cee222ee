"""Raw records and what surrounded them -> one result row. Pure: reads no file, asks no clock."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from servemark.evals.acceptance import SpecCounters, acceptance, spec_counters
from servemark.launch.engines.protocol import EngineCounters
from servemark.metrics.accuracy import EvalScore
from servemark.metrics.request import DEFINITIONS_ID
from servemark.replay.record import RECORD_SCHEMA
from servemark.results.doubts import Facts, counters_went_back, cpu_share, doubts, is_client_limited
from servemark.results.row import (
    ROW_SCHEMA,
    CacheFigures,
    ClientHealth,
    ReplayFigures,
    ResultRow,
    RunStatus,
    SpeculationFigures,
)
from servemark.results.summary import Summary


@dataclass(frozen=True, slots=True)
class LoopFigures:
    """The client watching itself over the measured window. CPU is user + system seconds of the client
    process."""

    cpu_s: float
    chunks: int
    loop_lag_p50_s: float | None = None
    loop_lag_p99_s: float | None = None
    clock_jump_s: float | None = None
    """Largest step of the wall clock against the monotonic one; None when it stayed within its tolerance."""
    loop_lag_max_s: float | None = None
    cpu_share_max: float | None = None
    lag_p99_worst_s: float | None = None
    """Of the process with the largest; None where there is one process."""
    kernel_drops: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class RowInputs:
    """Everything a row is made from.

    `seen` is the summary of all records of the point, warm-up and evals included, best as read back from
    requests.jsonl: it keeps times to the microsecond, and a row made from it can be made again to the last
    digit.
    """

    run_id: str
    line_id: str
    point_id: str
    series_id: str
    suite: str
    arm: str
    concurrency: int | None
    started_utc: str
    finished_utc: str
    identity: Mapping[str, object]
    declared: Mapping[str, object]
    observed: Mapping[str, object]
    workload: Mapping[str, object]
    cache_state: Mapping[str, object]
    gpus_deployed: int | None
    planned_requests: int
    """Requests of the measured window, written down before the run."""
    seen: Summary
    loop: LoopFigures
    counters_before: EngineCounters | None = None
    """Read just before and just after the measured window: evals must not lie between them."""
    counters_after: EngineCounters | None = None
    engine_restarts: int = 0
    theoretical: float | None = None
    theoretical_blocks: float | None = None
    evals: Sequence[EvalScore] = ()
    expected_evals: Sequence[str] = ()
    other_runs: Sequence[str] = ()
    """Ids of other runs that were active on this host at any moment of this one."""
    phases_s: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    versions: Mapping[str, object] = field(default_factory=dict)
    status: RunStatus = "complete"
    asked_model: str | None = None
    """The model name that requests carried."""
    differing_workers: Sequence[Mapping[str, str]] = ()
    """Facts of workers that are not what was declared: worker, fact, declared, observed."""
    replayed: ReplayFigures | None = None


def engine_cache_share(before: EngineCounters | None, after: EngineCounters | None) -> float | None:
    """Cached / all prompt tokens between two readings of the engine's counters; None where it cannot be
    known."""
    if before is None or after is None or counters_went_back(before, after):
        return None
    readings = (
        before.prompt_tokens,
        after.prompt_tokens,
        before.cached_prompt_tokens,
        after.cached_prompt_tokens,
    )
    known = [reading for reading in readings if reading is not None and math.isfinite(reading)]
    if len(known) < len(readings):
        return None
    prompt0, prompt1, cached0, cached1 = known
    return (cached1 - cached0) / (prompt1 - prompt0) if prompt1 > prompt0 else None


def _a_share(value: float | None) -> float | None:
    """A share, or None for what cannot be one: the server counts something else, which is said as a doubt."""
    return value if value is not None and 0 <= value <= 1 else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _observed(inputs: RowInputs) -> dict[str, object]:
    """What was observed, with the counter readings that the engine's cache share is made from."""
    observed = dict(inputs.observed)
    readings = {"before": inputs.counters_before, "after": inputs.counters_after}
    kept = {
        when: {
            "prompt_tokens": _finite(counters.prompt_tokens),
            "cached_prompt_tokens": _finite(counters.cached_prompt_tokens),
            "generated_tokens": _finite(counters.generated_tokens),
            **_spec_reading(spec_counters(counters.raw)),
        }
        for when, counters in readings.items()
        if counters is not None
    }
    if kept:
        observed["engine_counters"] = kept
    return observed


def _spec_reading(counters: SpecCounters) -> dict[str, object]:
    """The speculation counters of one reading; nothing from an engine that has none."""
    found: dict[str, object] = {}
    for name, value in (
        ("spec_steps", counters.steps),
        ("spec_drafted", counters.drafted),
        ("spec_accepted", counters.accepted),
    ):
        if value is not None and math.isfinite(value):
            found[name] = value
    if counters.per_position and all(map(math.isfinite, counters.per_position)):
        found["spec_accepted_per_position"] = list(counters.per_position)
    return found


def is_speculation_asked(declared: Mapping[str, object]) -> bool:
    """True when master or recipe ask for speculative decoding."""
    return declared.get("spec_decoding") not in (None, "", "none") or bool(declared.get("speculation"))


def speculation_figures(
    before: EngineCounters | None, after: EngineCounters | None, *, asked: bool
) -> SpeculationFigures | None:
    """What speculation did between two readings. None where nobody asked for it and nothing was drafted."""
    if before is None or after is None:
        return SpeculationFigures(None, None, None, missing="no_counters") if asked else None
    found = acceptance(spec_counters(before.raw), spec_counters(after.raw))
    if not asked and not found.drafted and found.gauge_length is None:
        return None
    figures = [found.steps, found.drafted, found.accepted, found.gauge_length, *found.per_position]
    if not all(value is None or math.isfinite(value) for value in figures):
        return SpeculationFigures(None, None, None, missing="no_counters")
    return SpeculationFigures(
        found.steps, found.drafted, found.accepted, found.per_position, found.gauge_length, found.missing
    )


def _facts(inputs: RowInputs) -> Facts:
    """The figures of the measured window."""
    seen = inputs.seen
    timed = None if inputs.replayed is None else inputs.replayed.window
    window = seen.window_s() if timed is None else timed.window_s
    mean_sessions, peak = seen.live_sessions()
    loop = inputs.loop
    usage_share = seen.usage_cache_share()
    engine_share = engine_cache_share(inputs.counters_before, inputs.counters_after)
    worst_lag = loop.loop_lag_p99_s if loop.lag_p99_worst_s is None else loop.lag_p99_worst_s
    several = inputs.replayed is not None and len(inputs.replayed.processes) > 1
    share = loop.cpu_share_max if several else cpu_share(loop.cpu_s, window)
    limited = is_client_limited(worst_lag, share)
    return Facts(
        concurrency=inputs.concurrency,
        counts=seen.counts(inputs.planned_requests),
        window_s=window,
        seen=seen,
        distributions=seen.distributions(),
        achieved_concurrency=mean_sessions,
        peak_sessions=peak,
        cache=CacheFigures(
            theoretical=inputs.theoretical,
            theoretical_blocks=inputs.theoretical_blocks,
            usage=_a_share(usage_share),
            engine=_a_share(engine_share),
        ),
        client=ClientHealth(
            loop.loop_lag_p50_s,
            loop.loop_lag_p99_s,
            loop.cpu_s,
            loop.chunks,
            limited,
            loop.loop_lag_max_s,
            loop.cpu_share_max,
            None if loop.kernel_drops is None else dict(loop.kernel_drops),
        ),
        replayed=inputs.replayed,
        asked_model=inputs.asked_model,
        differing_workers=tuple(inputs.differing_workers),
        evals=tuple(inputs.evals),
        expected_evals=tuple(inputs.expected_evals),
        other_runs=tuple(inputs.other_runs),
        clock_jump_s=loop.clock_jump_s,
        engine_restarts=inputs.engine_restarts,
        counters_before=inputs.counters_before,
        counters_after=inputs.counters_after,
        raw_usage_share=usage_share,
        raw_engine_share=engine_share,
        speculation_asked=is_speculation_asked(inputs.declared),
        speculation=speculation_figures(
            inputs.counters_before, inputs.counters_after, asked=is_speculation_asked(inputs.declared)
        ),
    )


def build_row(inputs: RowInputs) -> ResultRow:
    """Summarise one run. Latencies come from ok requests only, counts from all, sums are None when any part
    is.

    Raises nothing: what is missing is absent in the row and, where it casts doubt, a warning.
    """
    facts = _facts(inputs)
    return ResultRow(
        run_id=inputs.run_id,
        line_id=inputs.line_id,
        point_id=inputs.point_id,
        series_id=inputs.series_id,
        suite=inputs.suite,
        arm=inputs.arm,
        concurrency=inputs.concurrency,
        status=inputs.status,
        started_utc=inputs.started_utc,
        finished_utc=inputs.finished_utc,
        identity=dict(inputs.identity),
        declared=dict(inputs.declared),
        observed=_observed(inputs),
        workload=dict(inputs.workload),
        cache_state=dict(inputs.cache_state),
        gpus_deployed=inputs.gpus_deployed,
        counts=facts.counts,
        window_s=facts.window_s,
        tokens=inputs.seen.row_tokens(None if inputs.replayed is None else inputs.replayed.window),
        distributions=facts.distributions,
        stalls=inputs.seen.stalls,
        achieved_concurrency=facts.achieved_concurrency,
        cache=facts.cache,
        evals=tuple(facts.evals),
        client=facts.client,
        warnings=doubts(facts),
        phases_s=dict(inputs.phases_s),
        files={name: dict(entry) for name, entry in inputs.files.items()},
        versions={
            **inputs.versions,
            "semantics": DEFINITIONS_ID,
            "row_schema": ROW_SCHEMA,
            "record_schema": RECORD_SCHEMA,
        },
        replayed=inputs.replayed,
        speculation=facts.speculation,
    )
