"""Which measured points speak for a configuration at given lengths, and how far a question lies from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from servemark.predict.speed_bend import Knot, knots_of
from servemark.predict.speed_points import CONTRADICTION, FitPoint, Quantity
from servemark.predict.speed_types import ConfigFacts
from servemark.predict.types import PredictionClass

DISBELIEVED = 0.05
"""Share of its weight from which a knot that contradicts all that is alike is set aside, if others are left."""
QUEUE_GROWTH = 2.0
"""Growth of TTFT between neighbouring loads from which the figure between them is doubtful. Chosen: the loads of a curve
often lie a factor of 4 apart, over which prefill alone lengthens TTFT by less."""
Notes = tuple[tuple[str, Mapping[str, object]], ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """`curve` are the points of the chosen build at the asked lengths, empty where there are none; `own` all points of the
    deployment. `build` names where a level is looked up; `exact` is False where the asked build has no points of its own and
    the curve is another's."""

    klass: PredictionClass
    curve: tuple[FitPoint, ...]
    own: tuple[FitPoint, ...]
    build: str
    exact: bool
    notes: Notes


def standing(own: Sequence[FitPoint], config: ConfigFacts, concurrency: int, isl: int, osl: int) -> Standing:
    """`own` are the deployment's points, the newest first. Of several builds the asked one speaks; otherwise the newest
    whose curve holds the load between two knots, else the newest with two knots, else the newest."""
    meant, notes = _meant(own, config)
    curves: dict[str, list[FitPoint]] = {}
    for point in meant:
        if (point.isl, point.osl) == (isl, osl):
            curves.setdefault(point.curve, []).append(point)
    build = config.build or (f"run:{config.run}" if config.run else "")
    chosen = _curve(list(curves.values()), concurrency)
    klass = _klass(own, chosen, concurrency)
    if not build and meant:
        build = _build(chosen[0] if chosen else meant[0])
    return Standing(klass, tuple(chosen), tuple(own), build, not notes, notes)


def _meant(own: Sequence[FitPoint], config: ConfigFacts) -> tuple[Sequence[FitPoint], Notes]:
    """Points of the asked run or build; where it has none all of them, and a note that says so."""
    if config.run is not None:
        some = [point for point in own if point.run == config.run]
    elif config.build is not None:
        some = [point for point in own if point.facts.build == config.build]
    else:
        return own, ()
    if some or not own:
        return some, ()
    return own, (("predict.fit.note.other_build", {"run": own[0].run, "at": own[0].at_utc[:10]}),)


def _build(point: FitPoint) -> str:
    return point.facts.build or f"run:{point.run}"


def _curve(curves: Sequence[Sequence[FitPoint]], concurrency: int) -> Sequence[FitPoint]:
    best: Sequence[FitPoint] = ()
    rank = -1
    for curve in curves:
        loads = {point.concurrency for point in curve}
        inside = min(loads) <= concurrency <= max(loads)
        worth = 2 if inside and len(loads) > 1 else 1 if len(loads) > 1 else 0
        if worth > rank:
            best, rank = curve, worth
    return best


def _klass(own: Sequence[FitPoint], curve: Sequence[FitPoint], concurrency: int) -> PredictionClass:
    if not own:
        return "none"
    loads = {point.concurrency for point in curve}
    if len(loads) > 1:
        inside = min(loads) <= concurrency <= max(loads)
        return "interpolated" if inside else "extrapolated_concurrency"
    distinct = {(point.concurrency, point.isl, point.osl) for point in own}
    if len(distinct) == 1 or curve:
        return "one_anchor" if len(distinct) == 1 or not _elsewhere(own, curve) else "other_shape"
    return "other_shape"


def _elsewhere(own: Sequence[FitPoint], curve: Sequence[FitPoint]) -> bool:
    shape = curve[0].isl, curve[0].osl
    return any((point.isl, point.osl) != shape for point in own)


def believed_knots(
    curve: Sequence[FitPoint], quantity: Quantity, belief: Mapping[str, float]
) -> tuple[list[Knot], Notes]:
    """The knots that may hold a curve, and what is to be said of the others. `belief` by ref, 1 where nothing is known."""
    knots = knots_of(curve, quantity)
    good = [k for k in knots if max(belief.get(p.ref, 1.0) for p in k.points) >= DISBELIEVED]
    kept = good if len(good) > 1 else knots
    notes: list[tuple[str, Mapping[str, object]]] = [
        ("predict.fit.note.outlier", {"concurrency": knot.concurrency, "ref": knot.points[0].ref})
        for knot in knots
        if knot not in kept
    ]
    for knot in kept:
        if knot.spread > CONTRADICTION:
            said = {
                "concurrency": knot.concurrency,
                "points": len(knot.points),
                "factor": round(knot.spread, 2),
            }
            notes.append(("predict.fit.note.contradiction", said))
    return kept, tuple(notes)


def queue_note(low: Knot, high: Knot, quantity: Quantity) -> Notes:
    """What is doubtful between two knots of TTFT that lie `QUEUE_GROWTH` apart: a queue begins somewhere between them, and
    no learnt bend says where. Nothing for other quantities."""
    if quantity != "ttft" or high.value < QUEUE_GROWTH * low.value:
        return ()
    said = {
        "factor": round(high.value / low.value, 1),
        "low": round(low.concurrency),
        "high": round(high.concurrency),
        "low_ms": round(low.value * 1000),
        "high_ms": round(high.value * 1000),
    }
    return (("predict.fit.note.queue", said),)
