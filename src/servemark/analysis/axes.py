"""Axes of a front: which metrics can be one, what a reader must know of them, and which two to begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from servemark.analysis.costs import cost_of, is_cost
from servemark.analysis.labels import label
from servemark.analysis.measured import Measured
from servemark.analysis.rate_cards import RateCard
from servemark.base.errors import input_error
from servemark.base.messages import text
from servemark.metrics.address import Address, all_addresses, parse
from servemark.metrics.figures import figure_value
from servemark.metrics.registry import Better

X_FIRST = ("interactivity.p50", "interactivity.p90", "e2el_s.p50", "ttft_s.p50", "e2el_s.mean")
"""The axis of the user's side, the first that the data can fill."""
Y_FIRST = (
    "total_tokens_per_s_per_gpu",
    "output_tokens_per_s_per_gpu",
    "total_tokens_per_s",
    "output_tokens_per_s",
    "requests_per_s",
)
"""The axis of the operator's side."""
ENOUGH = 0.5
"""Share of points that must have a figure for it to be an axis unasked."""


class Reading(Protocol):
    """A figure of a point, or why there is none: `figures.FigureReading`, `costs.CostReading`."""

    @property
    def value(self) -> float | None:
        """In the metric's unit."""
        ...

    @property
    def made_of(self) -> tuple[tuple[str, float], ...]:
        """(address or name, value) of what it was made of."""
        ...

    def why(self, lang: str | None = None) -> str | None:
        """Why it is absent."""
        ...


Reader = Callable[[Measured, Address], Reading]


@dataclass(frozen=True, slots=True)
class AxisInfo:
    """A metric in words. `better` is `higher`, `lower` or `neither`; values are in `unit`, as stored."""

    address: str
    label: str
    unit: str
    better: str
    definition: str
    formula: str


def reader(card: RateCard | None = None) -> Reader:
    """How figures are read: from the point, and costs by the card; without one they are absent with that reason."""

    def read(point: Measured, address: Address) -> Reading:
        return cost_of(point, card, address) if is_cost(address) else point.reading(address)

    return read


def axis_info(address: Address, lang: str | None = None) -> AxisInfo:
    """What a reader must know of an address."""
    metric = address.metric
    return AxisInfo(
        str(address),
        label(address, lang),
        address.unit,
        str(metric.better),
        text(metric.definition_key, lang),
        text(metric.formula_key, lang),
    )


def axis(words: str) -> Address:
    """The address that may be an axis. Raises ServemarkError (exit code 2) for an unknown one, and for one of which
    neither way is better: such an axis has no front."""
    found = parse(words)
    if found.metric.better is Better.NEITHER or found.statistic in {"n", "std"}:
        raise input_error("front.no_direction", metric=str(found))
    return found


def varies(values: Iterable[float | None]) -> bool:
    """Whether a choice can be made by these values: at least two differ."""
    return len({value for value in values if value is not None}) > 1


def default_axes(points: Sequence[Measured], read: Reader | None = None) -> tuple[Address, Address]:
    """The two axes to begin with: the first of each list that at least half of the points have and in which they
    differ; else the first that any point has; else the first of the list."""
    chosen = read or reader()
    return first_axes(lambda address: [chosen(point, address).value for point in points])


def first_axes(column: Callable[[Address], Sequence[float | None]]) -> tuple[Address, Address]:
    """The same by the columns of figures, one value a point."""
    return _first(X_FIRST, column), _first(Y_FIRST, column)


def _first(names: Sequence[str], column: Callable[[Address], Sequence[float | None]]) -> Address:
    some: Address | None = None
    for name in names:
        address = parse(name)
        values = column(address)
        found = [value for value in values if value is not None]
        if found and len(found) >= ENOUGH * len(values) and (varies(found) or len(values) == 1):
            return address
        if found and some is None:
            some = address
    return some or parse(names[0])


def available(shapes: Iterable[Iterable[str]], *, costs: bool = False) -> list[Address]:
    """Every address with a better way that points with these stated figures have, in the registry's order; costs only
    where a rate card is at hand, since no point states them."""
    figures = [dict.fromkeys(names, 1.0) for names in shapes]
    found = []
    for name in all_addresses():
        address = parse(name)
        if address.metric.better is Better.NEITHER or address.statistic in {"n", "std"}:
            continue
        if is_cost(address):
            if costs and figures:
                found.append(address)
        elif any(figure_value(each, address, 1) is not None for each in figures):
            found.append(address)
    return found
