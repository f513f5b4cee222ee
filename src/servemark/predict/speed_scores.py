"""How far off the speed model is on points that it is not shown, by class: what its intervals rest on.

Held out together is whatever would give the answer away: for an interpolated figure the bends of every curve of the same
deployment and shape; beyond the measured concurrencies everything at or above the held-out one; for another build that
build's curve; for another shape all of that shape, or all but its lowest load; for one anchor all points of the
deployment but one (other loads at its lengths are scored apart); for none all of the deployment, or all of its hardware
and engine.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from servemark.predict.speed_bend import BendModel, Knot, between, beyond, knots_of, shape_of, slope
from servemark.predict.speed_level import LevelModel, place_of
from servemark.predict.speed_points import FitPoint, Quantity
from servemark.predict.speed_types import ConfigFacts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Whole = NDArray[np.intp]

ScoreClass = Literal[
    "interpolated",
    "extrapolated_concurrency",
    "other_build",
    "other_shape",
    "other_shape_anchored",
    "one_anchor",
    "one_anchor_load",
    "none_deployment",
    "none_hardware",
]
SCORE_CLASSES: tuple[ScoreClass, ...] = get_args(ScoreClass)
WHOLE_DEPLOYMENTS: frozenset[ScoreClass] = frozenset(
    {"one_anchor", "one_anchor_load", "none_deployment", "none_hardware"}
)
"""Classes asked about deployments of which (nearly) nothing is known: what stands for a new one is another deployment, not
another point. In the other classes the asked deployment has residuals of its own."""
FLOOR = 0.01
"""Relative spread that is left where the bend does not matter."""


class Held(NamedTuple):
    """How far off one held-out figure was: ln(measured / predicted), the spread that the model had stated, and the
    deployment (of `none_hardware`: hardware and engine) whose figures are off together."""

    off: float
    spread: float
    group: str


def spread_between(reach: float, bend_spread: float) -> float:
    """Relative spread of an interpolated figure: `reach` is d ln y / d k."""
    return math.hypot(FLOOR, reach * bend_spread)


def interpolated(
    curves: Sequence[Sequence[FitPoint]], quantity: Quantity, bends: BendModel | None
) -> list[Held]:
    """Of middles between neighbouring knots; without bends on a straight line in logarithms, spread 1."""
    held = []
    for curve in curves:
        facts, shape = curve[0].facts, shape_of(curve[0].isl, curve[0].osl)
        knots = knots_of(curve, quantity)
        for low, middle, high in zip(knots, knots[1:], knots[2:], strict=False):
            at = middle.concurrency
            if bends is None:
                value, spread = straight(low, high, at), 1.0
            else:
                bend, doubt = bends.guess_without(facts, shape, at)
                value = between(low, at, high, bend, quantity)
                spread = spread_between(slope(low, at, high, bend, quantity), doubt)
            held.append(Held(math.log(middle.value / value), spread, facts.key))
    return held


def other_build(
    curves: Sequence[Sequence[FitPoint]], quantity: Quantity, bends: BendModel | None
) -> list[Held]:
    """Of one build's knots from the curve of the build before it; spread 1."""
    builds: dict[tuple[str, str], list[Sequence[FitPoint]]] = defaultdict(list)
    for curve in curves:
        builds[curve[0].facts.key, shape_of(curve[0].isl, curve[0].osl)].append(curve)
    held = []
    for (key, shape), some in builds.items():
        for newer, older in pairwise(some):
            knots = knots_of(older, quantity)
            for knot in knots_of(newer, quantity):
                below = [each for each in knots if each.concurrency <= knot.concurrency]
                above = [each for each in knots if each.concurrency >= knot.concurrency]
                if below and above:
                    value = held_by(
                        below[-1], above[0], knot.concurrency, quantity, bends, newer[0].facts, shape
                    )
                    held.append(Held(math.log(knot.value / value), 1.0, key))
    return held


def held_by(  # noqa: PLR0917
    low: Knot,
    high: Knot,
    at: float,
    quantity: Quantity,
    bends: BendModel | None,
    facts: ConfigFacts,
    shape: str,
    left_out: str | None = None,
) -> float:
    """The value of a curve between two knots, or at one. `left_out` as in `BendModel.guess`."""
    if low.concurrency == high.concurrency:
        return low.value
    if bends is None:
        return straight(low, high, at)
    return between(low, at, high, bends.guess(facts, shape, at, left_out)[0], quantity)


def straight(low: Knot, high: Knot, at: float) -> float:
    """Straight in ln C and ln y."""
    share = math.log(at / low.concurrency) / math.log(high.concurrency / low.concurrency)
    return float(math.exp((1 - share) * math.log(low.value) + share * math.log(high.value)))


def extrapolated(
    curves: Sequence[Sequence[FitPoint]], quantity: Quantity, bends: BendModel | None, level: LevelModel
) -> list[Held]:
    """Of the highest load of every curve of three or more."""
    places: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for place, point in enumerate(level.points):
        places[point.facts.key, point.isl, point.osl].append(place)
    held = []
    for curve in curves:
        knots = knots_of(curve, quantity)
        if len(knots) < 3:
            continue
        top, point = knots[-1], knots[-1].points[0]
        alike = places[point.facts.key, point.isl, point.osl]
        block = [place for place in alike if level.points[place].concurrency >= top.concurrency]
        value, _ = level.guess(place_of(point), np.asarray(block, dtype=np.intp))
        if bends is not None:
            shape = shape_of(point.isl, point.osl)
            bend, _ = bends.guess_without(point.facts, shape, middle_load(knots[-2], top.concurrency))
            value = both(value, beyond(knots[-3], knots[-2], top.concurrency, bend, quantity))
        spread = spread_beyond(knots[-2], top.concurrency)
        held.append(Held(math.log(top.value / value), spread, point.facts.key))
    return held


def both(level: float, curve: float) -> float:
    """Two guesses of unlike faults (the level falls back to what is usual, the curve magnifies its knots' noise): their
    geometric mean."""
    return math.sqrt(level * curve)


def middle_load(edge: Knot, at: float) -> float:
    """Where the bend beyond a curve's edge is asked for."""
    return math.sqrt(edge.concurrency * at)


def spread_beyond(edge: Knot, at: float) -> float:
    """How far, in ln of concurrency, a load lies beyond a curve's edge: errors grow with it."""
    return max(abs(math.log(at / edge.concurrency)), math.log(1.5))


def level_residuals(model: LevelModel, name: ScoreClass) -> list[Held]:
    """Of a class that rests on the level model alone."""
    points = model.points
    groups = [point.facts.key for point in points]
    if name == "other_shape":
        blocks = _shapes(points)
    elif name == "other_shape_anchored":
        blocks = _anchored_shapes(points)
    elif name in ("one_anchor", "one_anchor_load"):
        blocks = _anchors(points, along=name == "one_anchor_load")
    elif name == "none_deployment":
        blocks = _groups(groups)
    else:
        groups = [f"{p.facts.hardware}/{p.facts.engine}" for p in points]
        blocks = _groups(groups)
    return _left_out(model, blocks, groups)


def _left_out(model: LevelModel, blocks: Iterator[tuple[Whole, Whole]], groups: Sequence[str]) -> list[Held]:
    """Residuals of `scored` places within blocks that are held out as a whole."""
    held = []
    for block, scored in blocks:
        residuals, spreads = model.kriging.left_out(block)
        wanted = np.isin(block, scored)
        some = zip(residuals[wanted], spreads[wanted], block[wanted], strict=True)
        held += [Held(float(off), float(spread), groups[place]) for off, spread, place in some]
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


def _shapes(points: Sequence[FitPoint]) -> Iterator[tuple[Whole, Whole]]:
    """All of one shape, where the deployment has two or more points of others."""
    for places in _by_deployment(points).values():
        for shape in sorted({_shape(points[place]) for place in places}):
            some = [place for place in places if _shape(points[place]) == shape]
            if len(places) - len(some) >= 2:
                block = np.asarray(some, dtype=np.intp)
                yield block, block


def _anchored_shapes(points: Sequence[FitPoint]) -> Iterator[tuple[Whole, Whole]]:
    """All of one shape but its lowest load, where the deployment has points of others."""
    for places in _by_deployment(points).values():
        for shape in sorted({_shape(points[place]) for place in places}):
            some = [place for place in places if _shape(points[place]) == shape]
            lowest = min(points[place].concurrency for place in some)
            rest = [place for place in some if points[place].concurrency > lowest]
            if rest and len(some) < len(places):
                block = np.asarray(rest, dtype=np.intp)
                yield block, block


def _anchors(points: Sequence[FitPoint], *, along: bool) -> Iterator[tuple[Whole, Whole]]:
    """All but one of a deployment; which one is left is drawn from its key, so that a fit repeats. Scored are points at the
    anchor's lengths and another load (`along`), or all the others: a level carries from one length to the next better than
    from one load to the next."""
    for key, places in _by_deployment(points).items():
        if len(places) < 2:
            continue
        anchor = places[zlib.crc32(key.encode()) % len(places)]
        block = [place for place in places if place != anchor]
        scored = [place for place in block if is_along(points[anchor], points[place]) == along]
        if scored:
            yield np.asarray(block, dtype=np.intp), np.asarray(scored, dtype=np.intp)


def is_along(anchor: FitPoint, other: FitPoint) -> bool:
    """Whether only the load differs from the anchor's, of lengths and load."""
    return _shape(anchor) == _shape(other) and anchor.concurrency != other.concurrency
