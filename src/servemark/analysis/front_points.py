"""The points of a front before anybody has chosen its axes: each measurement once, what keeps it off every front, what it
may be compared with, its series. Another axis, target or language needs none of that again.

Figures are read column by column, and the columns of the last few addresses are kept with the points.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from servemark.analysis.axes import Reading
from servemark.analysis.comparable import Comparable, comparable, length_classes
from servemark.analysis.configurations import series_parts
from servemark.analysis.costs import cost_of, is_cost
from servemark.analysis.eligible import (
    EVAL,
    Doubt,
    LowEval,
    eligibility,
    low_evals,
    same_run_and_configuration,
    without_copies,
)
from servemark.analysis.measured import Measured
from servemark.analysis.rate_cards import RateCard
from servemark.metrics.address import Address
from servemark.metrics.registry import Kind

KEPT_COLUMNS = 12
"""Addresses whose columns are kept: two axes and three further columns, of two or three views."""


@dataclass(frozen=True, slots=True)
class Column:
    """One figure of every point, in the order of `FrontPoints.offered`. `values` are finite or None; `made_of` are the
    definition ids of what a value was made of, sorted; `absent` has the reading of each place without a value."""

    values: tuple[float | None, ...]
    made_of: tuple[tuple[str, ...], ...]
    absent: dict[int, Reading]

    def known(self, place: int) -> bool:
        """Whether there is a value, be it no number that can be drawn."""
        return self.values[place] is not None or self.absent[place].value is not None


@dataclass(frozen=True, slots=True)
class FrontPoints:
    """See the module; made by `front_points`. Lists have one entry for each point of `offered`."""

    given: tuple[Measured, ...]
    """As they were handed over, copies among them."""
    overlay: tuple[Measured, ...]
    offered: tuple[Measured, ...]
    copies: int
    """Points that stand for themselves no more, since another has the same measurement."""
    evals: tuple[Measured, ...]
    doubts: tuple[Doubt | None, ...]
    warnings: tuple[Doubt | None, ...]
    kinds: tuple[Comparable, ...]
    """Without definitions, which hang on the axes; one object for points of one kind."""
    parts: tuple[dict[str, str], ...]
    """`series_parts`; one object for points of one series."""
    low: tuple[LowEval, ...]
    _columns: dict[tuple[Address, str | None], Column] = field(default_factory=dict)

    def __len__(self) -> int:
        """Points that are held."""
        return len(self.offered) + len(self.evals)

    def beside(self, overlay: Sequence[Measured]) -> FrontPoints:
        """The same points with an overlay."""
        return front_points(self.given, self.evals, overlay)

    def column(self, address: Address, card: RateCard | None = None) -> Column:
        """A figure of all points; costs by the card."""
        key = (address, card.edition if card is not None and is_cost(address) else None)
        found = self._columns.get(key)
        if found is None:
            if len(self._columns) >= KEPT_COLUMNS:
                self._columns.clear()
            found = self._columns[key] = _column(self.offered, address, card)
        return found

    def speeds(self, address: Address, card: RateCard | None = None) -> list[float | None]:
        """A figure of the points that are no accuracy results."""
        values = self.column(address, card).values
        pairs = zip(self.offered, values, strict=True)
        return [value for point, value in pairs if point.identity.scenario.type != EVAL]


def front_points(
    points: Sequence[Measured], evals: Sequence[Measured] = (), overlay: Sequence[Measured] = ()
) -> FrontPoints:
    """Points made ready for any axes. `evals` are accuracy results of the same models, `overlay` points that are not
    official."""
    official = {point.ref: point for point in without_copies(points)}
    own = {p.ref: p for p in overlay if p.ref not in official}
    offered = (*official.values(), *own.values())
    doubts = eligibility(offered, evals)
    lengths = length_classes(offered)
    low = low_evals([*{p.ref: p for p in (*evals, *offered) if p.evals}.values()])
    warned: dict[Hashable, Doubt] = {}
    for each in low:
        warned.setdefault(same_run_and_configuration(each.point), each.doubt())
    series: dict[tuple[str, ...], dict[str, str]] = {}
    parts = [series_parts(point) for point in offered]
    kinds: dict[Comparable, Comparable] = {}
    alike = [comparable(point, (), lengths) for point in offered]
    return FrontPoints(
        tuple(points),
        tuple(overlay),
        offered,
        len({point.ref for point in points}) - len(official),
        tuple(evals),
        tuple(doubts[point.ref] for point in offered),
        tuple(warned.get(same_run_and_configuration(p)) if warned else None for p in offered),
        tuple(kinds.setdefault(each, each) for each in alike),
        tuple(series.setdefault(tuple(each.values()), each) for each in parts),
        tuple(low),
    )


def _column(points: Iterable[Measured], address: Address, card: RateCard | None) -> Column:
    """A figure that a point states is taken as it is, as `figures.read_figure` does; anything else is read there."""
    name, metric = str(address), address.metric
    cost = is_cost(address)
    plain = (
        not cost and metric.inverse_of is None and metric.kind is not Kind.TASK and name != "gpus_deployed"
    )
    values: list[float | None] = []
    made_of: list[tuple[str, ...]] = []
    absent: dict[int, Reading] = {}
    known: dict[tuple[str, ...], tuple[str, ...]] = {}
    for place, point in enumerate(points):
        value = point.figures.get(name) if plain else None
        if value is not None and math.isfinite(value):
            found: tuple[str, ...] = (point.definitions[name],) if name in point.definitions else ()
        else:
            reading: Reading = cost_of(point, card, address) if cost else point.reading(address)
            value = reading.value
            names = (each for each, _ in reading.made_of)
            found = tuple(sorted({point.definitions[each] for each in names if each in point.definitions}))
            if value is None or not math.isfinite(value):
                absent[place] = reading
        values.append(value if value is not None and math.isfinite(value) else None)
        made_of.append(known.setdefault(found, found))
    return Column(tuple(values), tuple(made_of), absent)
