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
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from servemark.predict.kriging import Ground, Kriging, Part, Sites
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
MOST_BENDS = 500
"""Of the newest curves: the fit's time grows with the cube."""
_STEP = 0.01
_SAME_LOAD = 1.05
_QUEUES = 0.8

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
    Part("deployment_shape", 0.1),
)
"""Standard deviations of k. Coordinate: ln C. Stated beforehand, from how far curves of one kind differ; not fitted."""


@dataclass(frozen=True, slots=True)
class Knot:
    """A curve at one concurrency: the median (in ratio) of its repeats. `spread` is greatest over least of them.
    `decoding` is the share of a request's time after its first token: C times it are decoding, the others wait or are in
    prefill."""

    concurrency: float
    value: float
    points: tuple[FitPoint, ...] = ()
    spread: float = 1.0
    decoding: float = 1.0


def knots_of(points: Sequence[FitPoint], quantity: Quantity) -> list[Knot]:
    """The knots of one curve, by concurrency."""
    by_load: dict[int, list[FitPoint]] = {}
    for point in points:
        if quantity in point.values:
            by_load.setdefault(point.concurrency, []).append(point)
    found = []
    for load, some in sorted(by_load.items()):
        values = [point.values[quantity] for point in some]
        middle = math.exp(statistics.median(map(math.log, values)))
        decoding = statistics.median(map(decoding_share, some))
        found.append(Knot(load, middle, tuple(some), max(values) / min(values), decoding))
    return found


def decoding_share(point: FitPoint) -> float:
    """Share of a request's time after its first token, from its medians; 1 where no TTFT is stated."""
    decode_s = point.values["tpot"] * point.osl
    return decode_s / (decode_s + point.values.get("ttft", 0.0))


def position(low: float, at: float, high: float, bend: float) -> float:
    """t of the module's form, 0 at `low` and 1 at `high`."""
    return float((at**bend - low**bend) / (high**bend - low**bend))


def knee(low: Knot, high: Knot, quantity: Quantity) -> Knot:
    """Where the curve to `high` is as full as it gets: so many streams as decode there, with the share that `low` has.

    Beyond, further requests queue for their first token: TPOT stays, and the time of a request grows as C at constant
    throughput (Little's law). Without a queue at `high` this is `high` itself."""
    share = min(high.decoding / low.decoding, 1.0)
    value = high.value if quantity == "tpot" else high.value * share
    return Knot(high.concurrency * share, value)


def bend_through(low: Knot, middle: Knot, high: Knot) -> float | None:
    """The k with which a curve passes all three knots; None where none between the bounds does."""
    if high.value < low.value * LEAST_RISE or not low.concurrency < middle.concurrency < high.concurrency:
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


def slope(low: Knot, at: float, high: Knot, bend: float, quantity: Quantity) -> float:
    """d ln(y) / d k at a concurrency between two knots: how much an error of k matters there."""
    up, down = (between(low, at, high, bend + step, quantity) for step in (_STEP, -_STEP))
    return abs(math.log(up / down)) / (2 * _STEP)


def between(low: Knot, at: float, high: Knot, bend: float, quantity: Quantity) -> float:
    """The form of the module up to the knee and a queue beyond it; where the curve falls, straight in logarithms, since no
    bend was learnt from such curves. A queue that is there at `low` already makes it a straight line."""
    top = knee(low, high, quantity)
    if top.concurrency <= low.concurrency * _SAME_LOAD:
        return low.value + position(low.concurrency, at, high.concurrency, 1.0) * (high.value - low.value)
    if at >= top.concurrency:
        return high.value if quantity == "tpot" else high.value * at / high.concurrency
    if top.value < low.value:
        share = math.log(at / low.concurrency) / math.log(top.concurrency / low.concurrency)
        return float(low.value ** (1 - share) * top.value**share)
    return low.value + position(low.concurrency, at, top.concurrency, bend) * (top.value - low.value)


def beyond(low: Knot, high: Knot, at: float, bend: float, quantity: Quantity) -> float:
    """The form above the two highest knots: on along the bend, or the queue that is there at `high` already."""
    top = knee(low, high, quantity)
    if top.concurrency < high.concurrency * _QUEUES:
        return high.value if quantity == "tpot" else high.value * at / high.concurrency
    rise = max(high.value - low.value, 0.0)
    return low.value + position(low.concurrency, at, high.concurrency, bend) * rise


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

    @property
    def deployment_shape(self) -> str:
        """What is left out together when the triple is held out."""
        return f"{self.facts.key}/{self.shape}"


def triples_of(points: Sequence[FitPoint], quantity: Quantity) -> list[Triple]:
    """All threes of knots of one curve that tell a bend."""
    found = []
    for low, middle, high in combinations(knots_of(points, quantity), 3):
        bend = bend_through(low, middle, knee(low, high, quantity))
        if bend is None or not LEAST_BEND / 2 < bend < MOST_BEND + 0.5:
            continue
        noise = KNOT_NOISE / max(slope(low, middle.concurrency, high, bend, quantity), 1e-3)
        if noise < MOST_NOISE:
            facts, shape = points[0].facts, shape_of(points[0].isl, points[0].osl)
            found.append(Triple(facts, shape, low, middle, high, bend, noise))
    return found


def shape_of(isl: int, osl: int) -> str:
    """Lengths as one name."""
    return f"{isl}/{osl}"


class BendModel:
    """Bends of one quantity over all curves that tell one."""

    def __init__(
        self,
        curves: Sequence[Sequence[FitPoint]],
        quantity: Quantity,
        known: Sequence[float] | None = None,
    ) -> None:
        """`curves` newest first; `known` is the noise after doubt of an earlier fit to the same curves."""
        self.quantity = quantity
        self.triples: list[Triple] = []
        for curve in curves:
            self.triples += triples_of(curve, quantity)
            if len(self.triples) > MOST_BENDS:
                break
        del self.triples[MOST_BENDS:]
        some = self.triples
        sites = bend_sites([(t.facts, t.shape, float(t.middle.concurrency)) for t in some])
        bends = np.asarray([t.bend for t in some])
        noise = np.asarray([t.noise for t in some])
        believed = np.asarray(known) if known is not None and len(known) == len(some) else None
        self._blocks: dict[str, list[int]] = {}
        for place, triple in enumerate(some):
            self._blocks.setdefault(triple.deployment_shape, []).append(place)
        self.kriging = Kriging(PARTS, Ground(PARTS, sites), bends, noise, USUAL_BEND, believed)

    def guess(
        self, facts: ConfigFacts, shape: str, at: float, left_out: str | None = None
    ) -> tuple[float, float]:
        """(bend, its standard deviation) for a configuration and shape around a concurrency; as if the point with the ref
        `left_out` had never been measured."""
        without = [] if left_out is None else self._touched(f"{facts.key}/{shape}", left_out)
        return self._guess(facts, shape, at, without)

    def guess_without(self, facts: ConfigFacts, shape: str, at: float) -> tuple[float, float]:
        """As `guess`, with all curves of the same deployment and shape left out."""
        return self._guess(facts, shape, at, self._blocks.get(f"{facts.key}/{shape}", []))

    def _guess(
        self, facts: ConfigFacts, shape: str, at: float, without: Sequence[int]
    ) -> tuple[float, float]:
        sites = bend_sites([(facts, shape, at)])
        bends, spread = self.kriging.guess(sites, np.asarray(without, dtype=np.intp))
        return float(np.clip(bends[0], LEAST_BEND, MOST_BEND)), float(spread[0])

    def _touched(self, block: str, ref: str) -> list[int]:
        """Triples of a deployment and shape that a point stands in."""
        some = [(place, self.triples[place]) for place in self._blocks.get(block, [])]
        return [
            place
            for place, triple in some
            if any(
                point.ref == ref for knot in (triple.low, triple.middle, triple.high) for point in knot.points
            )
        ]


def bend_sites(asked: Sequence[tuple[ConfigFacts, str, float]]) -> Sites:
    """Where bends lie: configurations and shapes around concurrencies."""
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
