"""Which planned points need not be run, because their intervals say that they cannot reach the front.

Pure: predictions and measured points in, a verdict with its reason for every point out. A point is let go when even the
better end of its interval, in both metrics at once, is beaten by what another point reaches for sure: a measured point, or
the worse end of the interval of a planned point that will run. Points of unlike `scope` are on unlike fronts.

It errs on the side of running: the lowest and the highest concurrency of a line always run, so do points whose class is not
among those that may be let go, points of which nothing can be said, and a seeded share of those that would be let go, so
that the record shows when the predictions were wrong.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from servemark.metrics.registry import Better
from servemark.plan.rows import Reason, reason
from servemark.predict.types import Predicted, PredictionClass

SHARE = 0.10
"""Of the points that would be let go, so many are run anyway; at least one."""
SEED = 42
SURE: frozenset[PredictionClass] = frozenset({"interpolated", "extrapolated_concurrency", "other_shape"})
"""Classes whose intervals may let a point go unless somebody states others."""


@dataclass(frozen=True, slots=True)
class Axes:
    """The two metrics of the front, by address, and which way is better."""

    x: str
    y: str
    x_better: Better
    y_better: Better


@dataclass(frozen=True, slots=True)
class PlannedSpot:
    """A planned point with its predictions of both metrics; None where there is none."""

    id: str
    name: str
    line: str
    scope: str
    concurrency: int
    x: Predicted | None
    y: Predicted | None
    held: Reason | None = None
    """Why it runs whatever its intervals say."""


@dataclass(frozen=True, slots=True)
class MeasuredSpot:
    """A measured point, as a front would take it."""

    name: str
    scope: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class PruneRules:
    """`classes` may be let go; `share` (0..1) of what would be let go runs anyway, chosen by `seed`."""

    classes: frozenset[PredictionClass] = SURE
    share: float = SHARE
    seed: int = SEED


@dataclass(frozen=True, slots=True)
class PruneVerdict:
    """Whether a point runs, and why."""

    id: str
    runs: bool
    why: Reason


@dataclass(frozen=True, slots=True)
class _Corner:
    """What a point reaches at best or for sure, higher being better in both."""

    id: str | None
    """None: measured."""
    name: str
    x: float
    y: float


def prune(
    planned: Sequence[PlannedSpot],
    measured: Iterable[MeasuredSpot],
    axes: Axes,
    rules: PruneRules | None = None,
) -> tuple[PruneVerdict, ...]:
    """A verdict for every planned point, in their order."""
    chosen = rules or PruneRules()
    signs = _sign(axes.x_better), _sign(axes.y_better)
    bars = _bars(planned, measured, axes, signs, chosen)
    extremes = _extremes(planned)
    verdicts: dict[str, PruneVerdict] = {}
    beaten: dict[str, _Corner] = {}
    for spot in planned:
        kept = _kept_because(spot, extremes, chosen)
        best = None if kept is not None else _corner(spot, axes, signs, best=True)
        if best is None:
            verdicts[spot.id] = PruneVerdict(spot.id, True, kept or reason("plan.prune.open"))
            continue
        by = _beater(best, bars.get(spot.scope, []))
        if by is None:
            verdicts[spot.id] = PruneVerdict(spot.id, True, reason("plan.prune.may_reach"))
        else:
            beaten[spot.id] = by
    anyway = _anyway(sorted(beaten), chosen)
    for spot in planned:
        if spot.id in beaten:
            verdicts[spot.id] = _verdict(spot, beaten[spot.id], axes, spot.id in anyway, chosen)
    return tuple(verdicts[spot.id] for spot in planned)


def _sign(better: Better) -> float:
    """Factor that turns "better" into "higher". Raises ValueError for a metric without a better way."""
    if better is Better.NEITHER:
        raise ValueError("a front needs metrics of which one way is better")
    return 1.0 if better is Better.HIGHER else -1.0


def _extremes(planned: Sequence[PlannedSpot]) -> frozenset[str]:
    """Ids of the lowest and the highest concurrency of every line."""
    lines: dict[str, list[PlannedSpot]] = {}
    for spot in planned:
        lines.setdefault(spot.line, []).append(spot)
    found: set[str] = set()
    for line in lines.values():
        loads = [spot.concurrency for spot in line]
        found |= {spot.id for spot in line if spot.concurrency in (min(loads), max(loads))}
    return frozenset(found)


def _kept_because(spot: PlannedSpot, extremes: frozenset[str], rules: PruneRules) -> Reason | None:
    """Why a point runs whatever its interval says; None when its interval decides."""
    if spot.id in extremes:
        return reason("plan.prune.extreme")
    if spot.held is not None:
        return spot.held
    if spot.x is None or spot.y is None:
        return reason("plan.prune.open")
    for each in (spot.x, spot.y):
        if each.klass not in rules.classes:
            return reason(f"plan.prune.class.{each.klass}")
    return None


def _corner(spot: PlannedSpot, axes: Axes, signs: tuple[float, float], *, best: bool) -> _Corner | None:
    """The better or the worse end of both intervals; None without an interval."""
    ends = []
    for predicted, sign in ((spot.x, signs[0]), (spot.y, signs[1])):
        if predicted is None or predicted.low is None or predicted.high is None:
            return None
        some = (sign * predicted.low, sign * predicted.high)
        if not all(map(math.isfinite, some)):
            return None
        ends.append(max(some) if best else min(some))
    return _Corner(spot.id, spot.name, ends[0], ends[1])


def _bars(
    planned: Sequence[PlannedSpot],
    measured: Iterable[MeasuredSpot],
    axes: Axes,
    signs: tuple[float, float],
    rules: PruneRules,
) -> dict[str, list[_Corner]]:
    """By scope, what is reached for sure: measured points first, then planned ones of a class that counts."""
    found: dict[str, list[_Corner]] = {}
    for one in measured:
        if math.isfinite(one.x) and math.isfinite(one.y):
            found.setdefault(one.scope, []).append(
                _Corner(None, one.name, signs[0] * one.x, signs[1] * one.y)
            )
    for spot in planned:
        sure = spot.held is None and all(
            each is not None and each.klass in rules.classes for each in (spot.x, spot.y)
        )
        worst = _corner(spot, axes, signs, best=False) if sure else None
        if worst is not None:
            found.setdefault(spot.scope, []).append(worst)
    return found


def _beater(best: _Corner, bars: Sequence[_Corner]) -> _Corner | None:
    """What beats even the better end: at least as good in both and better in one. A measured one is named rather than a
    planned one; of planned ones the best, which is not let go itself (what beats it would beat this point too)."""
    found = [
        bar
        for bar in bars
        if bar.id != best.id and bar.x >= best.x and bar.y >= best.y and (bar.x > best.x or bar.y > best.y)
    ]
    if not found:
        return None
    return max(found, key=lambda bar: (bar.id is None, _nearness(bar, best)))


def _nearness(bar: _Corner, best: _Corner) -> tuple[float, float]:
    return bar.y - best.y, bar.x - best.x


def _anyway(ids: Sequence[str], rules: PruneRules) -> frozenset[str]:
    """The share that runs although it would be let go: the lowest hashes of seed and id, rounded up."""
    if not ids or rules.share <= 0:
        return frozenset()
    count = min(len(ids), math.ceil(rules.share * len(ids) - 1e-9))
    hashed = sorted(ids, key=lambda each: hashlib.sha256(f"{rules.seed}/{each}".encode()).digest())
    return frozenset(hashed[:count])


def _verdict(spot: PlannedSpot, by: _Corner, axes: Axes, anyway: bool, rules: PruneRules) -> PruneVerdict:
    x, y = spot.x, spot.y
    assert x is not None and y is not None  # noqa: S101 - a point without intervals is not beaten
    values: dict[str, object] = {
        "x": axes.x,
        "y": axes.y,
        "x_best": _end(x, axes.x_better),
        "y_best": _end(y, axes.y_better),
        "x_bar": abs(by.x),
        "y_bar": abs(by.y),
        "by": by.name,
        "klass": x.klass,
        "level": min(x.level, y.level),
    }
    if anyway:
        return PruneVerdict(
            spot.id, True, reason("plan.prune.anyway", share=rules.share, seed=rules.seed, **values)
        )
    which = "measured" if by.id is None else "planned"
    return PruneVerdict(spot.id, False, reason(f"plan.prune.{which}", **values))


def _end(predicted: Predicted, better: Better) -> float | None:
    return predicted.high if better is Better.HIGHER else predicted.low


def runs_by_id(verdicts: Iterable[PruneVerdict]) -> Mapping[str, PruneVerdict]:
    """Verdicts by the point's id."""
    return {verdict.id: verdict for verdict in verdicts}
