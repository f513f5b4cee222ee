"""Figures of many points that state the same addresses, as columns: a gate on figures alone is asked of all at once.

A gate that can be asked so has a second function beside its own (`Gate.columns`), which names one finding and the points
of which the gate would say exactly that. All other points are asked one by one, so what is said is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from servemark.results.point import Point

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Column = NDArray[np.float64]
    Mask = NDArray[np.bool_]

FEWEST = 48
"""Fewer points of one shape are sooner asked one by one."""


class Columns:
    """`table[i, j]`: the value of points[i] at addresses[j]. All points have these addresses, in this order."""

    __slots__ = ("_places", "addresses", "points", "table")

    def __init__(self, addresses: tuple[str, ...], points: Sequence[Point], table: Column) -> None:
        self.addresses = addresses
        self.points = points
        self.table = table
        self._places = {address: place for place, address in enumerate(addresses)}

    def of(self, address: str) -> Column | None:
        """The values at one address; None where the points do not state it."""
        place = self._places.get(address)
        return None if place is None else self.table[:, place]

    def some(self, addresses: Sequence[str]) -> Column:
        """The columns of those of the addresses that the points state."""
        return self.table[:, [self._places[each] for each in addresses if each in self._places]]

    def filled(self, values: Sequence[float]) -> Column:
        """One value a point as a column."""
        import numpy as np  # noqa: PLC0415 - only where there are many points

        return np.array(values, dtype=np.float64)


def columns_of(addresses: tuple[str, ...], points: Sequence[Point]) -> Columns | None:
    """The columns; None where a value is no float, of which arithmetic might say something else than of a column."""
    import numpy as np  # noqa: PLC0415 - as above

    values = [figure.value for point in points for figure in point.figures.values()]
    if set(map(type, values)) - {float}:
        return None
    return Columns(addresses, points, np.array(values).reshape(len(points), len(addresses)))


def within(column: Column, least: float, most: float) -> Mask:
    """least <= value <= most; False for NaN."""
    return (column >= least) & (column <= most)


def every(masks: Mask) -> Mask:
    """Of each point, whether its whole row is true."""
    import numpy as np  # noqa: PLC0415 - as above

    found: Mask = np.logical_and.reduce(masks, axis=1)
    return found


def usable_column(column: Column) -> Mask:
    """As `read.usable`."""
    return (column > 0) & (column < float("inf"))
