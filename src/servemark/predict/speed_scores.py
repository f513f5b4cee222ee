"""How far off the speed model is on points that it is not shown, by class: what its intervals rest on.

Held out together is whatever would give the answer away: for an interpolated figure the bends of every curve of the same
deployment and shape; beyond the measured concurrencies everything at or above the held-out one; for another shape all of
that shape; for one anchor all points of the deployment but one; for none all of the deployment, or all of its hardware
and engine.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from servemark.predict.speed_bend import BendModel, between, knots_of, slope
from servemark.predict.speed_level import LevelModel
from servemark.predict.speed_points import FitPoint, Quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Whole = NDArray[np.intp]

ScoreClass = Literal[
    "interpolated",
    "extrapolated_concurrency",
    "other_shape",
    "one_anchor",
    "none_deployment",
    "none_hardware",
]
FLOOR = 0.01
"""Relative spread that is left where the bend does not matter."""
Held = tuple[float, float]
"""(ln(measured / predicted), stated spread)."""


def spread_between(reach: float, bend_spread: float) -> float:
    """Relative spread of an interpolated figure: `reach` is d ln y / d k."""
    return math.hypot(FLOOR, reach * bend_spread)


def interpolated(bends: BendModel) -> list[Held]:
    """Of middles between neighbouring knots."""
    held = []
    for triple, bend, spread in bends.held_out():
        if not triple.neighbours:
            continue
        at = triple.middle.concurrency
        value = between(triple.low, at, triple.high, bend)
        reach = slope(triple.low, at, triple.high, bend)
        held.append((math.log(triple.middle.value / value), spread_between(reach, spread)))
    return held


def interpolated_straight(curves: Sequence[Sequence[FitPoint]], quantity: Quantity) -> list[Held]:
    """Of middles between neighbouring knots on a straight line in logarithms; spread 1."""
    held = []
    for curve in curves:
        knots = knots_of(curve, quantity)
        for low, middle, high in zip(knots, knots[1:], knots[2:], strict=False):
            value = straight(low.concurrency, low.value, high.concurrency, high.value, middle.concurrency)
            held.append((math.log(middle.value / value), 1.0))
    return held


def straight(c1: float, y1: float, c2: float, y2: float, at: float) -> float:
    """Straight in ln C and ln y."""
    share = math.log(at / c1) / math.log(c2 / c1)
    return float(math.exp((1 - share) * math.log(y1) + share * math.log(y2)))


def levels(model: LevelModel) -> dict[ScoreClass, list[Held]]:
    """Of all classes that rest on the level model."""
    blocks: dict[ScoreClass, Iterator[tuple[Whole, Whole]]] = {
        "extrapolated_concurrency": _tops(model.points),
        "other_shape": _shapes(model.points),
        "one_anchor": _anchors(model.points),
        "none_deployment": _groups([p.facts.key for p in model.points]),
        "none_hardware": _groups([f"{p.facts.hardware}/{p.facts.engine}" for p in model.points]),
    }
    return {name: _left_out(model, some) for name, some in blocks.items()}


def _left_out(model: LevelModel, blocks: Iterator[tuple[Whole, Whole]]) -> list[Held]:
    """Residuals of `scored` places within blocks that are held out as a whole."""
    held = []
    for block, scored in blocks:
        residuals, spreads = model.kriging.left_out(block)
        wanted = np.isin(block, scored)
        held += [(float(r), float(s)) for r, s in zip(residuals[wanted], spreads[wanted], strict=True)]
    return held


def _groups(names: Sequence[str]) -> Iterator[tuple[Whole, Whole]]:
    places: dict[str, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        places[name].append(place)
    if len(places) < 2:
        return
    for some in places.values():
        block = np.asarray(some, dtype=np.intp)
        yield block, block


def _by_deployment(points: Sequence[FitPoint]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for place, point in enumerate(points):
        found[point.facts.key].append(place)
    return found


def _shape(point: FitPoint) -> tuple[int, int]:
    return point.isl, point.osl


def _tops(points: Sequence[FitPoint]) -> Iterator[tuple[Whole, Whole]]:
    """The highest one and the two highest loads of each curve, as far as two others are left."""
    curves: dict[str, list[int]] = defaultdict(list)
    shapes: dict[tuple[str, tuple[int, int]], list[int]] = defaultdict(list)
    for place, point in enumerate(points):
        curves[point.curve].append(place)
        shapes[point.facts.key, _shape(point)].append(place)
    for some in curves.values():
        loads = sorted({points[place].concurrency for place in some})
        first = points[some[0]]
        for cut in loads[max(2, len(loads) - 2) :]:
            alike = shapes[first.facts.key, _shape(first)]
            block = [place for place in alike if points[place].concurrency >= cut]
            scored = [place for place in some if points[place].concurrency >= cut]
            yield np.asarray(block, dtype=np.intp), np.asarray(scored, dtype=np.intp)


def _shapes(points: Sequence[FitPoint]) -> Iterator[tuple[Whole, Whole]]:
    """All of one shape, where the deployment has two or more points of others."""
    for places in _by_deployment(points).values():
        for shape in sorted({_shape(points[place]) for place in places}):
            some = [place for place in places if _shape(points[place]) == shape]
            if len(places) - len(some) >= 2:
                block = np.asarray(some, dtype=np.intp)
                yield block, block


def _anchors(points: Sequence[FitPoint]) -> Iterator[tuple[Whole, Whole]]:
    """All but one of a deployment; which one is left is drawn from its key, so that a fit repeats."""
    for key, places in _by_deployment(points).items():
        if len(places) < 2:
            continue
        anchor = places[zlib.crc32(key.encode()) % len(places)]
        block = np.asarray([place for place in places if place != anchor], dtype=np.intp)
        yield block, block
