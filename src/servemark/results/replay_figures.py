"""What a replay tells beside its records, for the row: windows, failures in the tail, objective, validity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from servemark.replay.arrivals import Arrivals
from servemark.replay.outcome import LoopOutcome
from servemark.replay.profiles import SEMANTICS_ID, Validity, breaches
from servemark.results.row import ArrivalLaw, ReplayFigures, Warned, WindowTokens
from servemark.results.summary import Questions, Summary

DIGITS = 6


def questions_of(outcome: LoopOutcome, limits: Mapping[str, float] | None = None) -> Questions:
    """What the records of a replay are asked: the windows in which tokens count, and the objective."""
    windows = [window for window in (_timed(outcome), _steady(outcome)) if window is not None]
    return Questions(tuple(dict.fromkeys(windows)), dict(limits or {}))


def _timed(outcome: LoopOutcome) -> tuple[float, float] | None:
    """The window of a replay that ends by time."""
    start_s, end_s = round(outcome.window_start_s, DIGITS), round(outcome.window_end_s, DIGITS)
    return (start_s, end_s) if outcome.timed and end_s > start_s else None


def _steady(outcome: LoopOutcome) -> tuple[float, float] | None:
    if outcome.steady_start_s is None or outcome.steady_end_s is None:
        return None
    first, last = round(outcome.steady_start_s, DIGITS), round(outcome.steady_end_s, DIGITS)
    return (first, last) if last > first else None


def _steady_tokens(outcome: LoopOutcome, seen: Summary) -> WindowTokens | None:
    """What came in the steady window, cut to the row's window: that one begins and ends with the requests themselves,
    while a lane takes its session before its first request leaves and lets go after the last reply, later the more this
    client lags. No token lies in what is cut off: every content event lies between the first start and the last moment.
    """
    asked = _steady(outcome)
    if asked is None:
        return None
    first_s, last_s = _timed(outcome) or (seen.first_start_s, seen.last_moment_s)
    if first_s is None or last_s is None:
        return None
    start_s, end_s = max(asked[0], first_s), min(asked[1], last_s)
    if end_s <= start_s:
        return None
    return replace(seen.tokens_inside(*asked), start_s=start_s, end_s=end_s, window_s=end_s - start_s)


def replay_figures(
    outcome: LoopOutcome,
    seen: Summary,
    *,
    arrivals: Arrivals | None = None,
    profile: str | None = None,
    options: Mapping[str, object] | None = None,
    validity: Validity | None = None,
) -> ReplayFigures:
    """`seen` by `questions_of` the same outcome, over records of all phases as read back from requests.jsonl.

    Without `arrivals` the loop was closed.
    """
    timed = _timed(outcome)
    duration_s = outcome.window_s if outcome.timed else None
    broken = breaches(validity, seen.validity, duration_s) if validity is not None else ()
    return ReplayFigures(
        semantics=SEMANTICS_ID,
        mode="closed" if arrivals is None else "open",
        profile=profile,
        options=dict(options or {}),
        max_in_flight=outcome.max_in_flight,
        passes=outcome.passes,
        window=None if timed is None else seen.tokens_inside(*timed),
        steady=_steady_tokens(outcome, seen),
        with_failures=seen.with_failures(),
        slo=seen.slo(),
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
