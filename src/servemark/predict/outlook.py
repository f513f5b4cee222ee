"""What a plan may expect: hours and dollars where they can be said, and the front that its points are predicted to make.

Hours are GPU-hours: GPUs of the deployment x (start + replay). A start is assumed, as `plan` does; a replay is stated by the
suite, predicted, or assumed, and the three are counted apart. Dollars are GPU-hours x a rate card's price of an hour.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from servemark.analysis.comparable import MODEL_WEIGHTS, stated_weights
from servemark.analysis.front import Candidate, front
from servemark.analysis.measured import Measured
from servemark.analysis.rate_cards import RateCard
from servemark.analysis.workload_names import named, workload_names
from servemark.metrics.address import parse
from servemark.metrics.registry import Better
from servemark.plan.rows import reason
from servemark.plan.summary import AGENTIC_HOURS, FIXED_HOURS, START_HOURS
from servemark.predict.forecast import Forecast
from servemark.predict.matching import model_name, parts
from servemark.predict.pruning import Axes, MeasuredSpot, PlannedSpot
from servemark.predict.types import CLASSES, Predicted, PredictionClass
from servemark.results.point import PointIdentity

SPEED = "interactivity.p50"
THROUGHPUT = ("output_tokens_per_s_per_gpu", "total_tokens_per_s_per_gpu", "output_tokens_per_s")
"""The front's throughput: the first that the predictions have."""


@dataclass(frozen=True, slots=True)
class HoursSum:
    """GPU-hours of points whose replay is stated, predicted (with the sum of the interval's ends: an outer bound), or only
    assumed; `dollars` None without a price for all of them."""

    points: int
    stated_points: int
    predicted_points: int
    value: float
    low: float
    high: float
    dollars: tuple[float, float, float] | None
    card: str | None
    unpriced: tuple[str, ...]
    """GPU types that the card does not price."""


@dataclass(frozen=True, slots=True)
class ExpectedFront:
    """Points that are on the front by their predicted values, of one scope, by falling throughput."""

    scope: str
    x: str
    y: str
    points: tuple[tuple[str, float, float, PredictionClass], ...]
    """(selector, x, y, the weaker of both classes)."""
    without: int
    """Points of the scope of which no value can be said."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """All of it, and how many points are of which class (`cannot`: nothing can be said)."""

    classes: Mapping[str, int]
    hours: HoursSum
    fronts: tuple[ExpectedFront, ...]


def axes_of(forecasts: Sequence[Forecast]) -> Axes:
    """Interactivity against the first throughput that any forecast has a figure of."""
    for address in THROUGHPUT:
        if any((found := each.figure(address)) is not None and _said(found) for each in forecasts):
            return Axes(SPEED, address, Better.HIGHER, Better.HIGHER)
    return Axes(SPEED, THROUGHPUT[0], Better.HIGHER, Better.HIGHER)


def _said(figure: Predicted) -> bool:
    return figure.value is not None or figure.low is not None


def scope_of(identity: PointIdentity) -> str:
    """Points that share a front: one model, one work, one kind of deployment, as the pages draw it; weights are named
    where they are not the model's own. Its words hold the whole hash of a workload (`workload_names.named`)."""
    scenario = identity.scenario
    work = (
        f"{scenario.isl}/{scenario.osl}" if scenario.isl is not None else (scenario.dataset or scenario.type)
    )
    kind = [
        identity.hardware,
        identity.engine,
        identity.precision.family or identity.precision.reported or "?",
        identity.speculation.method if identity.speculation is not None else "",
        "disaggregated" if identity.disaggregated else "",
        f"weights {weights}" if (weights := stated_weights(identity)) != MODEL_WEIGHTS else "",
    ]
    return " · ".join([identity.model, work, *filter(None, kind)])


def planned_spots(forecasts: Sequence[Forecast], axes: Axes) -> list[PlannedSpot]:
    """Forecasts as pruning takes them."""
    return [
        PlannedSpot(
            id=each.planned.point_id,
            name=each.planned.selector,
            line=each.planned.line,
            scope=scope_of(each.planned.identity),
            concurrency=each.planned.concurrency,
            x=each.figure(axes.x),
            y=each.figure(axes.y),
            held=reason("plan.prune.version") if each.other_version else None,
        )
        for each in forecasts
    ]


def measured_spots(
    forecasts: Sequence[Forecast], points: Sequence[Measured], axes: Axes
) -> list[MeasuredSpot]:
    """Measured points on the fronts of these forecasts: same model under any name, same work, same kind."""
    scopes: dict[tuple[str, ...], str] = {}
    for each in forecasts:
        scopes.setdefault(_kind(each.planned.identity), scope_of(each.planned.identity))
    x, y = parse(axes.x), parse(axes.y)
    found = []
    for point in points:
        scope = scopes.get(_kind(point.identity))
        if scope is not None and (one := point.value(x)) is not None and (two := point.value(y)) is not None:
            found.append(MeasuredSpot(point.point_key, scope, one, two))
    return found


def _kind(identity: PointIdentity) -> tuple[str, ...]:
    """What must be equal for two points to share a front; a part that is not stated equals nothing stated."""
    said = parts(identity)
    names = ("hardware", "engine", "precision", "speculation", "scenario", "isl", "osl", "dataset")
    whose = (model_name(identity.model), stated_weights(identity), str(identity.disaggregated))
    return (*whose, *(said.get(name, "?") for name in names))


def outlook(forecasts: Sequence[Forecast], card: RateCard | None = None) -> Outlook:
    """What these planned points may expect."""
    classes = Counter(
        "cannot" if each.predictions is None or not each.predictions.figures else each.predictions.klass
        for each in forecasts
    )
    return Outlook(dict(classes), hours_of(forecasts, card), expected_fronts(forecasts))


def hours_of(forecasts: Sequence[Forecast], card: RateCard | None) -> HoursSum:
    """GPU-hours and dollars of these points, each with a start of its own."""
    value = low = high = 0.0
    stated = predicted = 0
    money = [0.0, 0.0, 0.0]
    unpriced: dict[str, None] = {}
    for each in forecasts:
        found = each.duration()
        agentic = each.planned.identity.scenario.type == "agentic-coding"
        assumed = AGENTIC_HOURS if agentic else FIXED_HOURS
        hours = (
            (assumed,) * 3 if found is None else tuple(s / 3600 for s in (found.value, found.low, found.high))
        )
        stated += found is not None and not found.predicted
        predicted += found is not None and found.predicted
        sums = [each.planned.gpus * (START_HOURS + one) for one in hours]
        value, low, high = value + sums[0], low + sums[1], high + sums[2]
        rate = None if card is None else card.rate(each.planned.identity.hardware)
        if rate is None or rate.usd_per_gpu_hour is None:
            unpriced[each.planned.identity.hardware] = None
        else:
            money = [
                total + rate.usd_per_gpu_hour.value * one for total, one in zip(money, sums, strict=True)
            ]
    priced = card is not None and not unpriced and bool(forecasts)
    return HoursSum(
        len(forecasts),
        stated,
        predicted,
        value,
        low,
        high,
        (money[0], money[1], money[2]) if priced else None,
        card.edition if card is not None else None,
        tuple(unpriced) if card is not None else (),
    )


def expected_fronts(forecasts: Sequence[Forecast]) -> tuple[ExpectedFront, ...]:
    """The front of every scope by predicted values; a point without a value (class none) is on none and is counted."""
    axes = axes_of(forecasts)
    scopes: dict[str, list[Forecast]] = defaultdict(list)
    for each in forecasts:
        scopes[scope_of(each.planned.identity)].append(each)
    found = []
    names = workload_names(each.planned.identity for each in forecasts)
    for scope, some in scopes.items():
        offered, classes = [], {}
        for each in some:
            x, y = each.figure(axes.x), each.figure(axes.y)
            if x is not None and y is not None and x.value is not None and y.value is not None:
                offered.append(Candidate(each.planned.selector, x.value, y.value))
                classes[each.planned.selector] = max(x.klass, y.klass, key=CLASSES.index)
        on = front(offered, axes.x_better, axes.y_better).on
        points = tuple((one.id, one.x or 0.0, one.y or 0.0, classes[one.id]) for one in on)
        found.append(ExpectedFront(named(scope, names), axes.x, axes.y, points, len(some) - len(offered)))
    return tuple(found)
