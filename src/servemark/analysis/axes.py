"""Axes of a front: which metrics can be one, what a reader must know of them, and which two to begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from servemark.analysis.labels import label
from servemark.analysis.measured import Measured
from servemark.base.errors import input_error
from servemark.base.messages import text
from servemark.metrics.address import Address, all_addresses, parse
from servemark.metrics.figures import FigureReading, figure_value
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

Reader = Callable[[Measured, Address], FigureReading]
"""How a point's figure is read; figures that need more than the point (a rate card) come through another reader."""


@dataclass(frozen=True, slots=True)
class AxisInfo:
    """A metric in words. `better` is `higher`, `lower` or `neither`; values are in `unit`, as stored."""

    address: str
    label: str
    unit: str
    better: str
    definition: str
    formula: str


def stated(point: Measured, address: Address) -> FigureReading:
    """The reader of what a point itself states."""
    return point.reading(address)


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


def default_axes(points: Sequence[Measured], read: Reader = stated) -> tuple[Address, Address]:
    """The two axes to begin with: the first of each list that at least half of the points have and in which they
    differ; else the first that any point has; else the first of the list."""
    return _first(X_FIRST, points, read), _first(Y_FIRST, points, read)


def _first(names: Sequence[str], points: Sequence[Measured], read: Reader) -> Address:
    some: Address | None = None
    for name in names:
        address = parse(name)
        found = [value for p in points if (value := read(p, address).value) is not None]
        if found and len(found) >= ENOUGH * len(points) and (varies(found) or len(points) == 1):
            return address
        if found and some is None:
            some = address
    return some or parse(names[0])


def available(shapes: Iterable[Iterable[str]]) -> list[Address]:
    """Every address with a better way that points with these stated figures have, in the registry's order."""
    figures = [dict.fromkeys(names, 1.0) for names in shapes]
    found = []
    for name in all_addresses():
        address = parse(name)
        if address.metric.better is Better.NEITHER or address.statistic in {"n", "std"}:
            continue
        if any(figure_value(each, address, 1) is not None for each in figures):
            found.append(address)
    return found
