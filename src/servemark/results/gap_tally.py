"""Gaps between content events of many replies, counted by the microsecond, and the stalls among them.

Raw times are kept to the microsecond, so ten million gaps have some ten thousand distinct values once the noise of binary
subtraction is taken off. They are counted in columns, many replies at once: one at a time costs ten times as much.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from servemark.metrics.percentiles import Distribution
from servemark.metrics.request import LEAST_STALL_S
from servemark.results.measures import stalls_in
from servemark.results.tally import SHIFT, Tally, merged_runs, to_microseconds

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TOGETHER = 1 << 14
"""Events that are worked off together: their columns stay in the processor's cache."""
COLUMN_US = 1 << 20
"""Gaps below it, in microseconds, are counted in a column, 8 MiB at most; the few longer ones one by one. Below it the
product of a shifted gap and 10^6 is exact, so rounding it is `to_microseconds`, ties included."""


class GapTally:
    """How often each gap was seen, in whole microseconds, and how many of them were stalls."""

    __slots__ = ("_column", "_ends", "_longer", "_stalls", "_times")

    def __init__(self) -> None:
        self._times: list[float] = []
        self._ends: list[int] = []
        self._column: NDArray[np.int64] | None = None
        self._longer = Tally()
        self._stalls = 0

    def add(self, times: Sequence[float]) -> None:
        """Take in one reply: the arrivals of its content events, ascending, in seconds."""
        if len(times) > 1:
            self._times += times
            self._ends.append(len(self._times))
            if len(self._times) >= TOGETHER:
                self._count()

    @property
    def stalls(self) -> int:
        """Gaps longer than their reply's `metrics.request.stall_threshold_s`."""
        self.settle()
        return self._stalls

    def _count(self) -> None:
        import numpy as np  # noqa: PLC0415 - only where there are replies to summarise

        gaps = np.diff(np.array(self._times))
        ends = np.array(self._ends)
        self._times, self._ends = [], []
        gaps[ends[:-1] - 1] = 0.0  # from one reply to the next: counted as 0 and taken off again
        long = np.flatnonzero(gaps > LEAST_STALL_S)
        for reply in sorted(set(np.searchsorted(ends, long, "right").tolist())):
            begin = int(ends[reply - 1]) if reply else 0
            self._stalls += stalls_in(gaps[begin : int(ends[reply]) - 1].tolist())
        shifted = gaps + SHIFT
        shifted -= SHIFT
        shifted *= 1e6
        whole = np.rint(shifted, out=shifted).astype(np.int64)
        if whole.min() < 0 or whole.max() >= COLUMN_US:
            inside = (whole >= 0) & (whole < COLUMN_US)
            self._longer.add(map(to_microseconds, gaps[~inside].tolist()))
            whole = whole[inside]
        column = np.bincount(whole, minlength=1)
        column[0] -= len(ends) - 1
        self._add_column(column)

    def _add_column(self, column: NDArray[np.int64]) -> None:
        mine = self._column
        if mine is None or len(mine) < len(column):
            mine, column = column, mine if mine is not None else column[:0]
        mine[: len(column)] += column
        self._column = mine

    def settle(self) -> None:
        """Count what waits to be counted, so that the rest need not be done where there is less time."""
        if self._times:
            self._count()
        self._longer.settle()

    def merge(self, other: GapTally) -> None:
        """Take in what another has counted."""
        self.settle()
        other.settle()
        self._stalls += other._stalls
        if other._column is not None:
            self._add_column(other._column.copy())
        self._longer.merge(other._longer)

    def ascending(self) -> tuple[array[float], array[int]]:
        """(distinct gaps in seconds in ascending order, how often each was seen)."""
        import numpy as np  # noqa: PLC0415 - as above

        self.settle()
        values, counts = array("d"), array("Q")
        if self._column is not None:
            seen = np.flatnonzero(self._column)
            values.frombytes((seen / 1e6).tobytes())
            counts.frombytes(self._column[seen].astype(np.uint64).tobytes())
        longer = self._longer.ascending()
        return merged_runs([(values, counts), longer]) if longer[0] else (values, counts)

    def distribution(self) -> Distribution | None:
        """The summary; None for no gaps."""
        return Distribution.of_counted(*self.ascending())
