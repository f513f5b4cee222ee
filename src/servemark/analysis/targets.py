"""What a front gives at a target: the best measured point that reaches it, and an estimate where one line allows one.

No deployment has the value of a curve between two others, so a read is never taken off a drawn line: the headline is a
real configuration, an estimate lies between two neighbours of one line and names both, and outside there is none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from servemark.metrics.registry import Better

WIDEST = 2.0
"""Neighbours whose x are further apart than this factor say too little of what lies between: along a line throughput falls
steeply and then slowly, and a straight line over a wide gap lies far above it."""

State = Literal["reached", "not_reached", "nothing"]


@dataclass(frozen=True, slots=True)
class Placed:
    """A measured point offered to a target read. `index` is its row; `line` and `order` (its place along the line's
    loads) tell its neighbours. Not eligible points are offered too: two points are no neighbours across one."""

    index: int
    x: float | None
    y: float | None
    line: int
    order: int
    eligible: bool = True


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value between two neighbours of one line: linear in x, `low` and `high` are their rows by x."""

    y: float
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class TargetRead:
    """`floor` is the row of the best measured point at or beyond the target (its x and y beside it). `not_reached`: no
    point reaches it, and `nearest` is the row that comes nearest. `below_measured`: every measured point is beyond the
    target, so what a slower deployment would give was not measured. `nothing`: no point at all."""

    state: State
    target: float
    floor: int | None = None
    x: float | None = None
    y: float | None = None
    estimate: Estimate | None = None
    nearest: int | None = None
    below_measured: bool = False


def target_read(points: Sequence[Placed], x_better: Better, y_better: Better, target: float) -> TargetRead:
    """The read at `target` in x. Ties go to the point that is nearer to the target, then to the earlier row. An estimate
    that is no better than what was measured is none.

    By hand: (20, 900), (40, 700), (80, 300) of one line, both higher better, at 60: floor 300, estimate 500.
    """
    x_sign = 1.0 if x_better is Better.HIGHER else -1.0
    y_sign = 1.0 if y_better is Better.HIGHER else -1.0
    known = [(p, p.x, p.y) for p in points if p.eligible and p.x is not None and p.y is not None]
    if not known:
        return TargetRead("nothing", target)
    reaching = [each for each in known if x_sign * each[1] >= x_sign * target]
    if not reaching:
        near, _, _ = max(known, key=lambda each: (x_sign * each[1], y_sign * each[2], -each[0].index))
        return TargetRead("not_reached", target, nearest=near.index)
    best, x, y = max(reaching, key=lambda each: (y_sign * each[2], -abs(each[1] - target), -each[0].index))
    estimate = _best_estimate(points, target, y_sign)
    if estimate is not None and y_sign * estimate.y <= y_sign * y:
        estimate = None
    return TargetRead(
        "reached", target, best.index, x, y, estimate, None, len(reaching) == len(known) and x != target
    )


def _best_estimate(points: Sequence[Placed], target: float, y_sign: float) -> Estimate | None:
    """The best of all lines' estimates."""
    lines: dict[int, list[Placed]] = defaultdict(list)
    for point in points:
        lines[point.line].append(point)
    found = [
        estimate
        for some in lines.values()
        for one, other in pairwise(sorted(some, key=lambda p: p.order))
        if (estimate := between(one, other, target)) is not None
    ]
    return max(found, key=lambda each: (y_sign * each.y, -each.low, -each.high), default=None)


def between(one: Placed, other: Placed, target: float) -> Estimate | None:
    """Linear in x between two neighbours; None where the target is not strictly between them, where they
    are further apart than `WIDEST`, or where one may not count."""
    if not (one.eligible and other.eligible):
        return None
    if one.x is None or one.y is None or other.x is None or other.y is None:
        return None
    if one.x > other.x:
        one, other = other, one
    assert one.x is not None and one.y is not None  # noqa: S101 - asked above
    assert other.x is not None and other.y is not None  # noqa: S101
    if not one.x < target < other.x or not other.x <= WIDEST * one.x:
        return None
    share = (target - one.x) / (other.x - one.x)
    return Estimate(one.y + share * (other.y - one.y), one.index, other.index)
