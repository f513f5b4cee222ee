"""The working of one predicted figure: its points with their influence, and its coefficients.

Influence is what the figure changes by, relative to itself, when a point is left out. For an own curve's knots the figure is
made again without them. For kriged parts it follows from the inverse that is there: leaving point i out puts its left-out
guess in its place, so the guess changes by -weight_i * residual_i.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from servemark.predict.fit import TPOT_TERMS, TTFT_TERMS, PhysicalFit
from servemark.predict.kriging import Kriging, Sites
from servemark.predict.speed import SpeedModel, place_asked, question
from servemark.predict.speed_bend import bend_sites, knots_of, shape_of, slope
from servemark.predict.speed_level import sites_of
from servemark.predict.speed_points import FitPoint, Quantity
from servemark.predict.speed_types import (
    E2EL,
    INTERACTIVITY,
    OUTPUT_PER_GPU,
    TOTAL_PER_GPU,
    TPOT,
    TTFT,
    ConfigFacts,
    UsedPoint,
    Why,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from servemark.predict.speed import Question
    from servemark.predict.speed_curve import Standing

    Floats = NDArray[np.float64]

QUANTITY_OF: dict[str, Quantity] = {
    TPOT: "tpot",
    INTERACTIVITY: "tpot",
    TTFT: "ttft",
    E2EL: "e2el",
    TOTAL_PER_GPU: "service",
    OUTPUT_PER_GPU: "service",
}
MOST_SHOWN = 20
"""The most influential points of other configurations; all of the own curve are shown."""


def why(
    model: SpeedModel, config: ConfigFacts, concurrency: int, isl: int, osl: int, *, metric: str = TPOT
) -> Why:
    """The working of `SpeedModel.predict(...)[metric]`. Raises KeyError for a metric that it does not make."""
    quantity = QUANTITY_OF[metric]
    asked = question(config, concurrency, isl, osl)
    stands = model.standing(asked)
    made = model.estimate(quantity, asked, stands)
    used: list[UsedPoint] = []
    if not isinstance(made, str):
        used += _own(model, quantity, asked, stands, made.value)
        shown = {point.ref for point in used}
        if stands.klass == "interpolated" and quantity != "ttft":
            used += _bends(model, quantity, asked, stands, shown)
        if stands.klass != "interpolated":
            used += _levels(model, quantity, asked, stands, shown)
    return Why(metric, stands.klass, tuple(used), _coefficients(model, quantity, asked), dict(model.left_out))


def _own(
    model: SpeedModel, quantity: Quantity, asked: Question, stands: Standing, value: float
) -> list[UsedPoint]:
    """Points of the chosen curve, each left out in turn: its knots hold the figure, the others lend it their bend."""
    found = []
    for point in stands.curve:
        if quantity not in point.values:
            continue
        rest = model.standing_without(asked, point.ref)
        again = model.estimate(quantity, asked, rest, point.ref) if rest.klass == "interpolated" else None
        change = None if again is None or isinstance(again, str) else again.value / value - 1.0
        found.append(_used(point, quantity, "curve", None, change))
    return found


def _bends(
    model: SpeedModel, quantity: Quantity, asked: Question, stands: Standing, shown: set[str]
) -> list[UsedPoint]:
    """Middles of triples that lend their bend."""
    knots = knots_of(stands.curve, quantity)
    below = [knot for knot in knots if knot.concurrency < asked.concurrency]
    above = [knot for knot in knots if knot.concurrency > asked.concurrency]
    if not below or not above:
        return []
    bends = model.bend(quantity)
    shape = shape_of(asked.isl, asked.osl)
    bend, _ = bends.guess(asked.config, shape, asked.concurrency)
    reach = slope(below[-1], asked.concurrency, above[0], bend, quantity)
    sites = bend_sites([(asked.config, shape, float(asked.concurrency))])
    lent = [triple.middle.points[0] for triple in bends.triples]
    return _kriged(bends.kriging, sites, lent, quantity, reach, shown)


def _levels(
    model: SpeedModel, quantity: Quantity, asked: Question, stands: Standing, shown: set[str]
) -> list[UsedPoint]:
    level = model.level(quantity)
    if level is None:
        return []
    sites = sites_of([place_asked(asked, stands)])
    return _kriged(level.kriging, sites, level.points, quantity, 1.0, shown)


def _kriged(  # noqa: PLR0917
    kriging: Kriging, sites: Sites, points: list[FitPoint], quantity: Quantity, reach: float, shown: set[str]
) -> list[UsedPoint]:
    residuals = kriging.residuals()
    changes: Floats = np.expm1(-kriging.shares(sites) * residuals * reach)
    order = np.argsort(-np.abs(changes), kind="stable")
    found = []
    for place in map(int, order):
        point = points[place]
        if point.ref not in shown:
            shown.add(point.ref)
            found.append(_used(point, quantity, "like", float(residuals[place]), float(changes[place])))
        if len(found) == MOST_SHOWN:
            break
    return found


def _used(
    point: FitPoint, quantity: Quantity, role: str, residual: float | None, influence: float | None
) -> UsedPoint:
    value = point.values[quantity]
    return UsedPoint(
        point.ref,
        point.run,
        point.at_utc,
        point.concurrency,
        point.isl,
        point.osl,
        value,
        residual,
        influence,
        role,
    )


def _coefficients(model: SpeedModel, quantity: Quantity, asked: Question) -> dict[str, float]:
    """The physical form of the configuration itself where it has points (for orientation), and the bend."""
    found: dict[str, float] = {}
    fitted = model.step_times(asked.config, asked.isl, asked.osl)
    if isinstance(fitted, PhysicalFit):
        found |= dict(zip(TPOT_TERMS, fitted.tpot, strict=True))
        found |= dict(zip(TTFT_TERMS, fitted.ttft, strict=True)) if fitted.ttft else {}
    if quantity != "ttft":
        shape = shape_of(asked.isl, asked.osl)
        found["k"] = model.bend(quantity).guess(asked.config, shape, asked.concurrency)[0]
    return found
