"""How a curve bends between two measured concurrencies, learnt from curves of like deployments.

Between knots (C1, y1) and (C2, y2) of one curve a latency is

    y(C) = y1 + t * (y2 - y1),   t = (C^k - C1^k) / (C2^k - C1^k)

k = 1 is the straight line of the physical form once a batch reads every expert anyway (TPOT = a + b*B); below 1 the
curve flattens, as it does while experts are still being reached (1 - (1 - e)^B), and above 1 prefill or queueing grows
with the batch. Two knots cannot tell k. Every curve with three or more knots does, and k is alike for like hardware,
engine and shape: it is kriged over them. A curve's own knots count most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from servemark.predict.kriging import Kriging, Part, Sites
from servemark.predict.speed_points import FitPoint, Quantity
from servemark.predict.speed_types import ConfigFacts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

USUAL_BEND = 0.85
"""Between 0.6 (experts being reached) and 1 (all read): what is assumed where no curve tells."""
LEAST_BEND, MOST_BEND = 0.1, 2.5
KNOT_NOISE = 0.015
"""Relative: what repeats of a load within days differ by, with room for what the form cannot follow."""
LEAST_RISE = 1.1
"""A curve that rises by less between two knots does not tell how it bends."""
MOST_NOISE = 0.6
"""Standard deviation of k from which a triple of knots says nothing."""
MOST_BENDS = 900
"""Of the newest curves: the fit's time grows with the cube."""
_STEP = 0.01

PARTS = (
    Part("", 0.3, 0.15, (1.0,)),
    Part("model", 0.1),
    Part("shape", 0.15),
    Part("hardware", 0.1),
    Part("engine", 0.05),
    Part("hardware_engine", 0.12),
    Part("speculation", 0.15),
    Part("engine_precision", 0.05),
    Part("disaggregated", 0.2),
    Part("hardware_engine_shape", 0.1),
    Part("deployment", 0.1),
    Part("deployment_shape", 0.06),
)
"""Standard deviations of k. Coordinate: ln C. Stated beforehand, from how far curves of one kind differ; not fitted."""


@dataclass(frozen=True, slots=True)
class Knot:
    """A curve at one concurrency: the median (in ratio) of its repeats. `spread` is greatest over least of them."""

    concurrency: int
    value: float
    points: tuple[FitPoint, ...]
    spread: float


def knots_of(points: Sequence[FitPoint], quantity: Quantity) -> list[Knot]:
    """The knots of one curve, by concurrency."""
    by_load: dict[int, list[FitPoint]] = {}
    for point in points:
        if quantity in point.values:
            by_load.setdefault(point.concurrency, []).append(point)
    found = []
    for load, some in sorted(by_load.items()):
        values = [point.values[quantity] for point in some]
        middle = math.exp(float(np.median(np.log(values))))
        found.append(Knot(load, middle, tuple(some), max(values) / min(values)))
    return found


def position(low: float, at: float, high: float, bend: float) -> float:
    """t of the module's form, 0 at `low` and 1 at `high`."""
    return float((at**bend - low**bend) / (high**bend - low**bend))


def bend_through(low: Knot, middle: Knot, high: Knot) -> float | None:
    """The k with which a curve passes all three knots; None where none between the bounds does."""
    if high.value < low.value * LEAST_RISE:
        return None
    wanted = (middle.value - low.value) / (high.value - low.value)
    loads = low.concurrency, middle.concurrency, high.concurrency
    least, most = LEAST_BEND / 2, MOST_BEND + 0.5
    if not position(*loads, most) < wanted < position(*loads, least):
        return None
    for _ in range(40):
        half = (least + most) / 2
        least, most = (half, most) if position(*loads, half) > wanted else (least, half)
    return least


def slope(low: Knot, at: float, high: Knot, bend: float) -> float:
    """d ln(y) / d k at a concurrency between two knots: how much an error of k matters there."""
    loads = low.concurrency, at, high.concurrency
    change = (position(*loads, bend + _STEP) - position(*loads, bend - _STEP)) / (2 * _STEP)
    value = between(low, at, high, bend)
    return abs(change * (high.value - low.value) / value)


def between(low: Knot, at: float, high: Knot, bend: float) -> float:
    """The form of the module; where the curve falls, straight in logarithms, since no bend was learnt from such curves."""
    if high.value < low.value:
        share = math.log(at / low.concurrency) / math.log(high.concurrency / low.concurrency)
        return float(low.value ** (1 - share) * high.value**share)
    return low.value + position(low.concurrency, at, high.concurrency, bend) * (high.value - low.value)


@dataclass(frozen=True, slots=True)
class Triple:
    """Three knots of one curve and the bend through them. `noise` is its standard deviation from the knots' own noise."""

    facts: ConfigFacts
    shape: str
    low: Knot
    middle: Knot
    high: Knot
    bend: float
    noise: float
    neighbours: bool = True
    """Whether no other knot lies between them."""

    @property
    def deployment_shape(self) -> str:
        """What is left out together when the triple is held out."""
        return f"{self.facts.key}/{self.shape}"


def triples_of(points: Sequence[FitPoint], quantity: Quantity) -> list[Triple]:
    """All threes of knots of one curve that tell a bend."""
    found = []
    knots = knots_of(points, quantity)
    place = {knot.concurrency: number for number, knot in enumerate(knots)}
    for low, middle, high in combinations(knots, 3):
        bend = bend_through(low, middle, high)
        if bend is None or not LEAST_BEND / 2 < bend < MOST_BEND + 0.5:
            continue
        noise = KNOT_NOISE / max(slope(low, middle.concurrency, high, bend), 1e-3)
        if noise < MOST_NOISE:
            facts, shape = points[0].facts, shape_of(points[0].isl, points[0].osl)
            side = place[high.concurrency] - place[low.concurrency] == 2
            found.append(Triple(facts, shape, low, middle, high, bend, noise, side))
    return found


def shape_of(isl: int, osl: int) -> str:
    """Lengths as one name."""
    return f"{isl}/{osl}"


class BendModel:
    """Bends of one quantity over all curves that tell one."""

    def __init__(self, curves: Sequence[Sequence[FitPoint]], quantity: Quantity) -> None:
        """`curves` newest first."""
        self.quantity = quantity
        self.triples: list[Triple] = []
        for curve in curves:
            self.triples += triples_of(curve, quantity)
            if len(self.triples) > MOST_BENDS:
                break
        del self.triples[MOST_BENDS:]
        some = self.triples
        sites = _sites([(t.facts, t.shape, float(t.middle.concurrency)) for t in some])
        bends = np.asarray([t.bend for t in some])
        noise = np.asarray([t.noise for t in some])
        self.kriging = Kriging(PARTS, sites, bends, noise, USUAL_BEND)

    def guess(self, facts: ConfigFacts, shape: str, at: float) -> tuple[float, float]:
        """(bend, its standard deviation) for a configuration and shape around a concurrency."""
        bends, spread = self.kriging.guess(_sites([(facts, shape, at)]))
        return float(np.clip(bends[0], LEAST_BEND, MOST_BEND)), float(spread[0])

    def held_out(self) -> list[tuple[Triple, float, float]]:
        """(triple, bend, standard deviation) with all triples of the same deployment and shape left out."""
        blocks: dict[str, list[int]] = {}
        for place, triple in enumerate(self.triples):
            blocks.setdefault(triple.deployment_shape, []).append(place)
        found = []
        for places in blocks.values():
            block = np.asarray(places, dtype=np.intp)
            residuals, spreads = self.kriging.left_out(block)
            for place, residual, spread in zip(places, residuals, spreads, strict=True):
                triple = self.triples[place]
                bend = float(np.clip(triple.bend - residual, LEAST_BEND, MOST_BEND))
                found.append((triple, bend, float(spread)))
        return found


def _sites(asked: Sequence[tuple[ConfigFacts, str, float]]) -> Sites:
    names: dict[str, list[str]] = {part.group: [] for part in PARTS if part.group}
    for facts, shape, _ in asked:
        for name, member in {**groups_of(facts), **shape_groups(facts, shape)}.items():
            if name in names:
                names[name].append(member)
    return Sites(np.log(np.asarray([[at] for *_, at in asked]).reshape(-1, 1)), names)


def groups_of(facts: ConfigFacts) -> dict[str, str]:
    """What a configuration is a member of, by group."""
    kind = f"{facts.hardware}/{facts.engine}"
    return {
        "model": facts.model,
        "hardware": facts.hardware,
        "engine": facts.engine,
        "hardware_engine": kind,
        "speculation": facts.speculation or "",
        "engine_precision": f"{facts.engine}/{facts.precision}",
        "disaggregated": str(facts.disaggregated),
        "family": f"{facts.model}/{kind}/{facts.precision}/{facts.speculation}/{facts.disaggregated}",
        "deployment": facts.key,
    }


def shape_groups(facts: ConfigFacts, shape: str) -> dict[str, str]:
    """What it is a member of at one shape."""
    return {
        "shape": shape,
        "hardware_engine_shape": f"{facts.hardware}/{facts.engine}/{shape}",
        "deployment_shape": f"{facts.key}/{shape}",
    }
