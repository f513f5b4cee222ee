"""Counts of distinct values: the exact distribution of many values in little memory."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import merge

from servemark.metrics.percentiles import Distribution

MAX_DISTINCT = 300_000
"""Values counted in a dictionary, about 130 bytes each; beyond so many they go to sorted runs of 16 bytes each."""

SHIFT = 2.0**20
"""Added to a number below 2^20 it leaves steps of 2^-32, far below a microsecond and far above the noise."""
_TOGETHER = 4096
"""Values that are counted together: the dictionary stays near, and the call costs little."""


def to_microseconds(seconds: float) -> float:
    """A difference of two raw times as the whole microseconds that it is."""
    return round(seconds + SHIFT - SHIFT, 6)


class Tally:
    """How often each value was seen. The values themselves are kept, not classes of them: a percentile is one
    that was measured."""

    __slots__ = ("_counts", "_runs", "_waiting")

    def __init__(self) -> None:
        self._counts: Counter[float] = Counter()
        self._runs: list[tuple[array[float], array[int]]] = []
        self._waiting: list[float] = []

    def add(self, values: Iterable[float]) -> None:
        """Take in values."""
        self._waiting += values
        if len(self._waiting) >= _TOGETHER:
            self._count()

    def _count(self) -> None:
        some, self._waiting = self._waiting, []
        self._counts.update(some)
        if len(self._counts) > MAX_DISTINCT:
            self._runs.append(self._run())

    def settle(self) -> None:
        """Count what waits to be counted, so that the rest need not be done where there is less time."""
        if self._waiting:
            self._count()

    def merge(self, other: Tally) -> None:
        """Take in what another has counted."""
        self.settle()
        other.settle()
        if other._runs:
            self._runs += [*other._runs, other._run()]
        else:
            self._counts.update(other._counts)
            if len(self._counts) > MAX_DISTINCT:
                self._runs.append(self._run())

    def ascending(self) -> tuple[array[float], array[int]]:
        """(distinct values in ascending order, how often each was seen)."""
        self.settle()
        if self._counts or not self._runs:
            self._runs.append(self._run())
        if len(self._runs) > 1:
            self._runs = [merged_runs(self._runs)]
        return self._runs[0]

    def distribution(self) -> Distribution | None:
        """The summary; None for no values."""
        return Distribution.of_counted(*self.ascending())

    def _run(self) -> tuple[array[float], array[int]]:
        counts = self._counts
        self._counts = Counter()
        values = array("d", sorted(counts))
        return values, array("Q", map(counts.__getitem__, values))


def merged_runs(runs: list[tuple[array[float], array[int]]]) -> tuple[array[float], array[int]]:
    """Several runs, each of distinct ascending values and their counts, as one."""
    values, counts = array("d"), array("Q")
    for value, count in merge(*(_pairs(*run) for run in runs)):
        if values and values[-1] == value:
            counts[-1] += count
        else:
            values.append(value)
            counts.append(count)
    return values, counts


def _pairs(values: array[float], counts: array[int]) -> Iterator[tuple[float, int]]:
    return zip(values, counts, strict=True)
