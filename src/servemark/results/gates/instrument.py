"""Gates on the measurement itself: long enough, in a steady state, and not slowed by its own client."""

from __future__ import annotations

import math

from servemark.results.doubts import FEW_REQUESTS, LOOP_LAG_LIMIT_S
from servemark.results.gates.base import Context, Gate, GateFinding, Severity
from servemark.results.gates.read import passed, percent, plain, short, skips, usable
from servemark.results.point import Point

TURNS = 5.0
"""Mean latencies that fit into the run. With n turns of every lane, ramp and tail are about 1/n of it; the customary
ten requests a lane give ten."""
STEADY_SHARE = 0.5
"""Least share of the run that is steady; below it ramp and tail outweigh what is meant to be measured."""
GRAIN_S = 0.01
"""Times of unlike clocks and roundings may overlap by this much."""
WINDOW_SHARE = 0.01
"""Share of the run by which a steady window may exceed it: some clients mark it when a lane takes its session and the run
by requests, and a busy client is late at both ends. A wrong unit or another run's window is off by far more."""
LAG_ENDS = 2.0
"""A client is late at the begin and at the end: by its own longest delay at each."""

_LONG_SKIP = skips("short_run", "no_duration_or_latency")[0]
_LONG_OK = passed("short_run")


def short_run(point: Point, _context: Context) -> GateFinding:
    """The run lasts at least five mean E2ELs: otherwise most of it is ramp and tail."""
    duration, figure = point.duration_s, point.figures.get("e2el_s.mean")
    if duration is None or figure is None or not usable(duration) or not usable(figure.value):
        return _LONG_SKIP
    latency = figure.value
    turns = duration / latency
    if turns >= TURNS:
        return _LONG_OK
    values: dict[str, object] = {
        "duration_s": short(duration),
        "e2el_s": short(latency),
        "turns": short(turns),
        "limit": TURNS,
    }
    return GateFinding("short_run", Severity.WARNING, values)


_FEW_SKIP = skips("few_requests", "no_counts")[0]
_FEW_OK = passed("few_requests")


def few_requests(point: Point, _context: Context) -> GateFinding:
    """At least 20 successful requests: below that p95 and p99 are simply the slowest one (ceil(0.95 n) = n)."""
    ok = point.requests.ok
    if ok is None:
        return _FEW_SKIP
    if ok >= FEW_REQUESTS or ok <= 0:  # none at all is another gate's word
        return _FEW_OK
    return GateFinding("few_requests", Severity.WARNING, {"n": ok, "limit": FEW_REQUESTS})


_STEADY_SKIP = skips("steady_window", "no_steady_window")[0]
_STEADY_OK = passed("steady_window")


def steady_window(point: Point, _context: Context) -> GateFinding:
    """At least half of the run is steady (every lane busy)."""
    steady, duration = point.steady_s, point.duration_s
    if steady is None or duration is None or not usable(duration):
        return _STEADY_SKIP
    share = (steady[1] - steady[0]) / duration
    if not share < STEADY_SHARE:
        return _STEADY_OK
    values: dict[str, object] = {
        "steady_s": short(steady[1] - steady[0]),
        "duration_s": short(duration),
        "percent": percent(share),
        "limit_percent": percent(STEADY_SHARE),
    }
    return GateFinding("steady_window", Severity.WARNING, values)


_WINDOW_SKIP = skips("window_possible", "no_duration")[0]
_WINDOW_OK = passed("window_possible")


def window_possible(point: Point, _context: Context) -> GateFinding:
    """The duration is above zero, the steady window is no longer than it but for what the client itself was late, and no
    mean latency is longer than the run. Where the window begins is on the source's clock, so its length alone is judged."""
    duration, steady = point.duration_s, point.steady_s
    if duration is None:
        return _WINDOW_SKIP
    latency = point.value("e2el_s.mean")
    fits = 0 < duration < math.inf
    if steady is not None:
        fits = fits and 0 <= steady[1] - steady[0] <= duration + _late_s(point, duration)
    if latency is not None:
        fits = fits and latency <= duration + GRAIN_S
    if fits:
        return _WINDOW_OK
    values: dict[str, object] = {
        "duration_s": short(duration),
        "begin_s": "—" if steady is None else short(steady[0]),
        "end_s": "—" if steady is None else short(steady[1]),
        "e2el_s": "—" if latency is None else short(latency),
    }
    return GateFinding("window_possible", Severity.QUARANTINE, values)


def _late_s(point: Point, duration_s: float) -> float:
    """Seconds by which marks of lanes may lie outside the marks of their requests."""
    told = (plain(point.client.get(name)) for name in ("loop_lag_max_s", "loop_lag_p99_s"))
    lag_s = max((each for each in told if each is not None), default=0.0)
    return GRAIN_S + max(WINDOW_SHARE * duration_s, LAG_ENDS * lag_s)


_CLIENT_SKIP = skips("client_limited", "client_unknown")[0]
_CLIENT_OK = passed("client_limited")


def client_limited(point: Point, _context: Context) -> GateFinding:
    """The load generator was not the bottleneck: it says so itself, and its event loop was never late by more than the
    limit at p99. A late client adds its own delay to every latency."""
    limited, lag = point.client.get("limited"), plain(point.client.get("loop_lag_p99_s"))
    if not isinstance(limited, bool) and lag is None:
        return _CLIENT_SKIP
    if limited is not True and (lag is None or lag <= LOOP_LAG_LIMIT_S):
        return _CLIENT_OK
    values: dict[str, object] = {
        "lag_ms": "—" if lag is None else short(1e3 * lag),
        "limit_ms": short(1e3 * LOOP_LAG_LIMIT_S),
    }
    return GateFinding("client_limited", Severity.WARNING, values)


GATES = (
    Gate(
        "short_run",
        1,
        short_run,
        TURNS,
        "ramp and tail are about one latency of the run",
        idle=("duration", _LONG_SKIP),
    ),
    Gate(
        "few_requests",
        1,
        few_requests,
        float(FEW_REQUESTS),
        "nearest-rank p95 of fewer is the slowest one",
        idle=("requests", _FEW_SKIP),
    ),
    Gate(
        "steady_window",
        1,
        steady_window,
        STEADY_SHARE,
        "ramp and tail must not outweigh the rest",
        idle=("duration", _STEADY_SKIP),
    ),
    Gate(
        "window_possible",
        2,
        window_possible,
        WINDOW_SHARE,
        "a client's own delay at both ends of the run",
        idle=("duration", _WINDOW_SKIP),
    ),
    Gate(
        "client_limited",
        1,
        client_limited,
        LOOP_LAG_LIMIT_S,
        "the client's own limit when it measures",
        idle=("client", _CLIENT_SKIP),
    ),
)
"""The family in the order of its tables."""
