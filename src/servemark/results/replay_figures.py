"""What a replay tells beside its records, for the row: windows, failures in the tail, objective, validity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from servemark.replay.arrivals import Arrivals
from servemark.replay.outcome import LoopOutcome
from servemark.replay.profiles import SEMANTICS_ID, Validity, breaches
from servemark.replay.record import RequestRecord
from servemark.results import measures
from servemark.results.row import ArrivalLaw, ReplayFigures, Warned

DIGITS = 6


def replay_figures(
    outcome: LoopOutcome,
    records: Sequence[RequestRecord],
    *,
    arrivals: Arrivals | None = None,
    profile: str | None = None,
    options: Mapping[str, object] | None = None,
    limits: Mapping[str, float] | None = None,
    validity: Validity | None = None,
) -> ReplayFigures:
    """`records` as read back from requests.jsonl, of all phases; `limits` is the service-level objective;
    without `arrivals` the loop was closed."""
    measured = measures.measured(records)
    start_s, end_s = round(outcome.window_start_s, DIGITS), round(outcome.window_end_s, DIGITS)
    window = measures.tokens_inside(measured, start_s, end_s) if outcome.timed and end_s > start_s else None
    steady = None
    if outcome.steady_start_s is not None and outcome.steady_end_s is not None:
        first, last = round(outcome.steady_start_s, DIGITS), round(outcome.steady_end_s, DIGITS)
        steady = measures.tokens_inside(measured, first, last) if last > first else None
    duration_s = outcome.window_s if outcome.timed else None
    broken = breaches(validity, measured, duration_s) if validity is not None else ()
    return ReplayFigures(
        semantics=SEMANTICS_ID,
        mode="closed" if arrivals is None else "open",
        profile=profile,
        options=dict(options or {}),
        max_in_flight=outcome.max_in_flight,
        passes=outcome.passes,
        window=window,
        steady=steady,
        with_failures=measures.with_failures(measured),
        slo=measures.slo_of(measured, limits) if limits else None,
        invalid=tuple(Warned(b.rule, {"value": b.value, "limit": b.limit}) for b in broken),
        live=tuple((round(s.at_s, 3), s.trees, s.in_flight) for s in outcome.live),
        shifts=tuple(asdict(shift) for shift in outcome.shifts),
        cut_off=tuple(outcome.cut_off),
        warmup_cut_off=tuple(outcome.warmup_cut_off),
        held_by_cap=outcome.held_by_cap,
        processes=tuple(asdict(process) for process in outcome.processes),
        stopped=outcome.stop_reason if outcome.stop_mode is not None else None,
        arrivals=None if arrivals is None else arrival_law(arrivals),
    )


def arrival_law(arrivals: Arrivals) -> ArrivalLaw:
    """The law as the row keeps it."""
    by_times = arrivals.kind == "trace"
    return ArrivalLaw(
        law=str(arrivals),
        kind=arrivals.kind,
        rate_per_s=None if by_times else arrivals.rate,
        end_rate_per_s=arrivals.end_rate if arrivals.kind == "ramp" else None,
        speed=arrivals.speed if by_times else None,
        seed=arrivals.seed,
    )
