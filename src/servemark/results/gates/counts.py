"""Gates on requests, points and attempts: do they add up, did enough succeed, is everything there, which one counts."""

from __future__ import annotations

from servemark.results.gates.base import Context, Gate, GateFinding, Severity
from servemark.results.gates.read import passed, percent, skips
from servemark.results.point import Point

ERROR_WARNING = 0.01
"""Above it failures outnumber the requests beyond p99, so the tail is no longer the tail of all requests."""
ERROR_QUARANTINE = 0.05
"""Above it the same is true of p95."""
UNFINISHED_WARNING = 0.10
TELLING = 5
"""Fewer equal figures prove nothing: the score of an eval, a share of so many items, is often the same twice."""
MAX_LISTED = 12
"""A longer list helps nobody; how many there are is always said."""

_PARTIAL_OK = passed("partial")


def partial(point: Point, _context: Context) -> GateFinding:
    """The execution ran to its end. A run that ended early is kept and shown, never on a front."""
    if point.status == "complete":
        return _PARTIAL_OK
    counted = {"ok": _said(point.requests.ok), "planned": _said(point.requests.planned)}
    return GateFinding("partial", Severity.QUARANTINE, dict(counted))


def _said(count: int | None) -> object:
    return "—" if count is None else count


def _numbers(point: Point) -> dict[str, object]:
    requests = point.requests
    return {
        "planned": _said(requests.planned),
        "ok": _said(requests.ok),
        "error": _said(requests.error),
        "incomplete": _said(requests.incomplete),
        "cancelled": _said(requests.cancelled),
    }


_COUNTS_SKIP = skips("counts", "no_counts")[0]
_COUNTS_OK = passed("counts")


def counts(point: Point, _context: Context) -> GateFinding:
    """No count is below zero, and outcomes together are not more than was planned."""
    requests = point.requests
    known = [
        each
        for each in (requests.ok, requests.error, requests.incomplete, requests.cancelled)
        if each is not None
    ]
    planned = requests.planned
    if not known or (planned is None and min(known) >= 0):
        return _COUNTS_SKIP if not known else _COUNTS_OK
    if min(known) >= 0 and (planned is None or 0 <= planned >= sum(known)):
        return _COUNTS_OK
    return GateFinding("counts", Severity.QUARANTINE, {**_numbers(point), "sum": sum(known)})


_LOST_SKIP = skips("unaccounted", "no_planned_count")[0]
_LOST_OK = passed("unaccounted")


def unaccounted(point: Point, _context: Context) -> GateFinding:
    """Every planned request ended in some way: ok + error + incomplete + cancelled = planned, where at least ok and
    error are counted. What vanished without an outcome is in no figure, and is more often slow than fast."""
    requests = point.requests
    if requests.planned is None or requests.ok is None or requests.error is None:
        return _LOST_SKIP
    ended = requests.ok + requests.error + (requests.incomplete or 0) + (requests.cancelled or 0)
    missing = requests.planned - ended
    if missing <= 0:
        return _LOST_OK
    return GateFinding("unaccounted", Severity.WARNING, {**_numbers(point), "missing": missing})


_ERROR_SKIP = skips("error_rate", "no_counts")[0]
_ERROR_OK = passed("error_rate")


def error_rate(point: Point, _context: Context) -> GateFinding:
    """Failed requests / ended requests. Failures are in no latency, so many of them make the rest look better."""
    ok, error = point.requests.ok, point.requests.error
    if ok is None or error is None or ok + error <= 0 or error < 0:
        return _ERROR_SKIP
    share = error / (ok + error)
    if share <= ERROR_WARNING:
        return _ERROR_OK
    values: dict[str, object] = {
        "error": error,
        "total": ok + error,
        "percent": percent(share),
        "warning_percent": percent(ERROR_WARNING),
        "limit_percent": percent(ERROR_QUARANTINE),
    }
    severity = Severity.QUARANTINE if share > ERROR_QUARANTINE else Severity.WARNING
    return GateFinding("error_rate", severity, values)


_NONE_SKIP = skips("none_succeeded", "no_counts")[0]
_NONE_OK = passed("none_succeeded")


def none_succeeded(point: Point, _context: Context) -> GateFinding:
    """At least one request succeeded. Figures of a row without one are of nothing, and it replaces no good row."""
    if point.requests.ok is None:
        return _NONE_SKIP
    if point.requests.ok > 0:
        return _NONE_OK
    return GateFinding("none_succeeded", Severity.QUARANTINE, _numbers(point))


_UNFINISHED_SKIP = skips("unfinished", "no_counts")[0]
_UNFINISHED_OK = passed("unfinished")


def unfinished(point: Point, _context: Context) -> GateFinding:
    """Requests cut off or cancelled / all requests. Their tokens and times are left out by most tools, and long
    requests are cut off first, so throughput and latency both look unlike the workload."""
    requests = point.requests
    if requests.ok is None or (requests.incomplete is None and requests.cancelled is None):
        return _UNFINISHED_SKIP
    cut = (requests.incomplete or 0) + (requests.cancelled or 0)
    total = requests.ok + (requests.error or 0) + cut
    if cut < 0 or total <= 0 or cut / total <= UNFINISHED_WARNING:
        return _UNFINISHED_OK
    values: dict[str, object] = {
        "cut": cut,
        "total": total,
        "percent": percent(cut / total),
        "limit_percent": percent(UNFINISHED_WARNING),
    }
    return GateFinding("unfinished", Severity.WARNING, values)


def is_whole(point: Point) -> bool:
    """True for an execution that may stand for its point: complete, and not without a single success."""
    return point.status == "complete" and point.requests.ok != 0


_CONCURRENCY_SKIP = skips("concurrencies", "nothing_expected")[0]
_CONCURRENCY_OK = passed("concurrencies")


def concurrencies(point: Point, context: Context) -> GateFinding:
    """Every concurrency that was written down before the run has a complete point in the line. A line that stops early
    hides where the deployment broke."""
    expected = point.expected.get("concurrencies")
    if not isinstance(expected, list | tuple):
        return _CONCURRENCY_SKIP
    wanted = {each for each in expected if isinstance(each, int) and not isinstance(each, bool)}
    present = context.concurrencies
    if present is None:
        line = [*context.line, point]
        present = frozenset(
            each.identity.concurrency
            for each in line
            if each.identity.concurrency is not None and is_whole(each)
        )
    missing = sorted(wanted - present)
    if not missing:
        return _CONCURRENCY_OK if wanted else _CONCURRENCY_SKIP
    listed = ", ".join(map(str, missing[:MAX_LISTED])) + (" …" if len(missing) > MAX_LISTED else "")
    values: dict[str, object] = {"missing": listed, "n": len(missing), "expected": len(wanted)}
    return GateFinding("concurrencies", Severity.WARNING, values)


def when(point: Point) -> tuple[int, str, str]:
    """Order of attempts: the retry count, then the end, then the begin (ISO 8601 sorts as text)."""
    execution = point.execution
    return execution.attempt, execution.finished_utc or "", execution.started_utc or ""


_SUPERSEDED_SKIP = skips("superseded", "one_attempt")[0]
_SUPERSEDED_OK = passed("superseded")


def superseded(point: Point, context: Context) -> GateFinding:
    """No later complete attempt of the same point in the same run. The later one counts, whichever is faster; both are
    kept. An attempt that did not complete, or without a success, replaces nothing."""
    if all(each is point for each in context.attempts):
        return _SUPERSEDED_SKIP
    mine, run = when(point), point.execution.run
    later = max(
        (when(each) for each in context.attempts if each.execution.run == run and is_whole(each)),
        default=mine,
    )
    if later <= mine:
        return _SUPERSEDED_OK
    values: dict[str, object] = {"attempt": mine[0], "later": later[0], "finished": later[1] or "—"}
    return GateFinding("superseded", Severity.QUARANTINE, values)


_DUPLICATE_SKIP = skips("duplicate", "one_attempt")[0]
_DUPLICATE_OK = passed("duplicate")


def duplicate(point: Point, context: Context) -> GateFinding:
    """No other point has the same configuration, load and figures to the last digit. Two measurements never agree that
    far: one row was read twice, and it must not count as a repeat."""
    others = [each for each in context.attempts if each is not point]
    if not others:
        return _DUPLICATE_SKIP
    if len(point.figures) < TELLING:
        return _DUPLICATE_OK
    mine = figure_values(point)
    twins = [each for each in others if figure_values(each) == mine]
    if not twins:
        return _DUPLICATE_OK
    runs = sorted({each.execution.run for each in twins})
    return GateFinding("duplicate", Severity.WARNING, {"run": runs[0], "attempt": twins[0].execution.attempt})


def figure_values(point: Point) -> frozenset[tuple[str, float]]:
    """Addresses and values of a point: equal only for rows that are the same row."""
    return frozenset((address, figure.value) for address, figure in point.figures.items())


GATES = (
    Gate(
        "partial",
        1,
        partial,
        None,
        "a result is complete or it is not a result",
        idle=("early", _PARTIAL_OK),
    ),
    Gate(
        "none_succeeded",
        1,
        none_succeeded,
        None,
        "a result is complete or it is not a result",
        idle=("requests", _NONE_SKIP),
    ),
    Gate("counts", 1, counts, 0.0, "all are counts", idle=("requests", _COUNTS_SKIP)),
    Gate("unaccounted", 1, unaccounted, 0.0, "all are counts", idle=("requests", _LOST_SKIP)),
    Gate(
        "error_rate",
        1,
        error_rate,
        ERROR_QUARANTINE,
        "the share of requests beyond p95; a warning from p99",
        idle=("requests", _ERROR_SKIP),
    ),
    Gate(
        "unfinished",
        1,
        unfinished,
        UNFINISHED_WARNING,
        "the tolerance of the closed loop",
        idle=("requests", _UNFINISHED_SKIP),
    ),
    Gate(
        "concurrencies", 1, concurrencies, 0.0, "the run's own manifest", idle=("expected", _CONCURRENCY_SKIP)
    ),
    Gate(
        "superseded",
        1,
        superseded,
        None,
        "the later complete attempt counts",
        idle=("attempts", _SUPERSEDED_SKIP),
    ),
    Gate(
        "duplicate",
        1,
        duplicate,
        0.0,
        "measured times have ten digits and more",
        idle=("attempts", _DUPLICATE_SKIP),
    ),
)
"""The family in the order of its tables."""
