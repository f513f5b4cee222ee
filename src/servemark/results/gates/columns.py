"""Figures of many points that state the same addresses, as columns: a gate on figures alone is asked of all at once.

A gate that can be asked so has a second function beside its own (`Gate.columns`), which names one finding and the points
of which the gate would say exactly that. All other points are asked one by one, so what is said is the same.

What a gate reads beside figures is mostly the same for many points: those with one identity and one count of GPUs, a frame.
It is read once a frame (`Columns.framed`), and a gate that reads nothing else is asked once a frame (`Gate.framed`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from servemark.results.figures import Figures
from servemark.results.point import Point

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Column = NDArray[np.float64]
    Mask = NDArray[np.bool_]

FEWEST = 48
"""Fewer points of one shape are sooner asked one by one."""


class Columns:
    """`table[i, j]`: the value of points[i] at addresses[j]. All points have these addresses, in this order.
    `frames` holds one point of each frame, `frame_of[i]` the place of that of points[i]."""

    __slots__ = ("_places", "addresses", "frame_of", "frames", "points", "table")

    def __init__(self, addresses: tuple[str, ...], points: Sequence[Point], table: Column) -> None:
        self.addresses = addresses
        self.points = points
        self.table = table
        self._places = {address: place for place, address in enumerate(addresses)}
        self.frames: list[Point] = []
        self.frame_of: list[int] = []
        known: dict[tuple[int, int | None, int | None], int] = {}
        for point in points:
            key = (id(point.identity), point.gpus_deployed, point.gpus_stated)
            place = known.get(key)
            if place is None:
                place = known[key] = len(self.frames)
                self.frames.append(point)
            self.frame_of.append(place)

    def of(self, address: str) -> Column | None:
        """The values at one address; None where the points do not state it."""
        place = self._places.get(address)
        return None if place is None else self.table[:, place]

    def some(self, addresses: Sequence[str]) -> Column:
        """The columns of those of the addresses that the points state."""
        return self.table[:, [self._places[each] for each in addresses if each in self._places]]

    def framed(self, ask: Callable[[Point], float | None]) -> Column:
        """One value a point as a column, read once a frame; NaN for None."""
        import numpy as np  # noqa: PLC0415 - only where there are many points

        found = [ask(point) for point in self.frames]
        column = np.array([_NAN if each is None else each for each in found], dtype=np.float64)
        return column[self.frame_of]


_NAN = float("nan")


def columns_of(addresses: tuple[str, ...], points: Sequence[Point]) -> Columns | None:
    """The columns; None where a value is no float, of which arithmetic might say something else than of a column."""
    import numpy as np  # noqa: PLC0415 - as above

    values = list(chain.from_iterable(map(_numbers, points)))
    if set(map(type, values)) - {float}:
        return None
    return Columns(addresses, points, np.array(values).reshape(len(points), len(addresses)))


def _numbers(point: Point) -> Sequence[float]:
    found = point.figures
    if isinstance(found, Figures):
        return found.numbers
    return [figure.value for figure in found.values()]


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
