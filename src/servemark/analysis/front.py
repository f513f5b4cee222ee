"""The front of measured points, for two metrics of which each knows which way is better.

A point is dominated when another is at least as good in both and better in one. Equal points dominate neither
each other nor themselves, so ties stand on the front together. Dominated points stay listed.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from dataclasses import dataclass

from servemark.metrics.address import Address
from servemark.metrics.derive import Row, field_value, read
from servemark.metrics.registry import Better

ERROR_RATE_LIMIT = 0.10
"""Above this share of failed requests a point is not eligible: its latencies are those of the survivors."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One measured point offered to a front. `reason` is the message key why it is not eligible, `values`
    what the message names; x and y are in the units of their metrics."""

    id: str
    x: float | None
    y: float | None
    reason: str | None = None
    values: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Front:
    """`on` is ordered along x (ascending), `dominated` and `excluded` as offered; each offered point is in
    exactly one of the three."""

    x_better: Better
    y_better: Better
    on: tuple[Candidate, ...]
    dominated: tuple[Candidate, ...]
    excluded: tuple[Candidate, ...]


def _sign(better: Better) -> float:
    """Factor that turns "better" into "higher". A metric without a better way has no front."""
    if better is Better.NEITHER:
        raise ValueError("a front needs metrics of which one way is better")
    return 1.0 if better is Better.HIGHER else -1.0


def front(candidates: Iterable[Candidate], x_better: Better, y_better: Better) -> Front:
    """Sort the offered points into front, dominated and not eligible. Order of the offer does not matter.

    O(n log n). Raises ValueError for a metric of which neither way is better.
    """
    x_sign, y_sign = _sign(x_better), _sign(y_better)
    offered = list(candidates)
    plotted = [c for c in offered if _plotted(c)]
    eligible = [(x_sign * c.x, y_sign * c.y, c) for c in plotted if c.x is not None and c.y is not None]
    # Best x first; a point is dominated by any that is strictly better in x and as good in y, or equal in x
    # and better in y: both are seen by keeping the best y of the points already passed.
    eligible.sort(key=lambda each: (-each[0], -each[1]))
    on_ids: set[int] = set()
    best_y = float("-inf")
    best_at_x: tuple[float, float] | None = None
    for x, y, candidate in eligible:
        if y > best_y:
            best_y, best_at_x = y, (x, y)
            on_ids.add(id(candidate))
        elif (x, y) == best_at_x:
            on_ids.add(id(candidate))
    on = sorted((c for c in plotted if id(c) in on_ids), key=lambda c: (c.x, y_sign * (c.y or 0.0), c.id))
    return Front(
        x_better,
        y_better,
        tuple(on),
        tuple(c for c in plotted if id(c) not in on_ids),
        tuple(c for c in offered if not _plotted(c)) if len(plotted) < len(offered) else (),
    )


def _plotted(candidate: Candidate) -> bool:
    return candidate.reason is None and candidate.x is not None and candidate.y is not None


def best_at_least(result: Front, target: float) -> Candidate | None:
    """The best measured point that reaches `target` in x: a real configuration, not an estimate. None: not
    reached.

    Along a front y gets worse as x gets better, so it is the reaching point that is nearest to the target.
    """
    xs = [c.x for c in result.on if c.x is not None]
    if result.x_better is Better.HIGHER:
        place = bisect.bisect_left(xs, target)
        return result.on[place] if place < len(xs) else None
    place = bisect.bisect_right(xs, target)
    return result.on[place - 1] if place else None


def candidate_of(row: Row, x: Address, y: Address) -> Candidate:
    """A row offered to the front of two addresses, with the first reason that keeps it off, if any."""
    name = str(row.get("run_id", ""))
    reads = (read(row, x), read(row, y))
    values = (reads[0].value, reads[1].value)
    if row.get("status") != "complete":
        return Candidate(name, *values, "analysis.excluded.partial")
    rate = read(row, "error_rate").value
    if rate is None:
        return Candidate(name, *values, "analysis.excluded.no_request")
    if rate > ERROR_RATE_LIMIT:
        bad = int(field_value(row, "counts.ok") or 0)
        said = (("percent", round(100 * rate, 1)), ("limit", round(100 * ERROR_RATE_LIMIT)), ("ok", bad))
        return Candidate(name, *values, "analysis.excluded.errors", said)
    for reading in reads:
        if reading.value is None:
            lacking = (("metric", str(reading.address)), ("why", reading.reason))
            return Candidate(name, *values, "analysis.excluded.absent", lacking)
    return Candidate(name, *values)
