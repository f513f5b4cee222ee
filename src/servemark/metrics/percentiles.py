"""The one percentile rule, and the summary of a distribution made with it.

Rule: the q-th percentile is the smallest observed value v such that at least q % of the values are <= v
(nearest rank; Hyndman & Fan 1996, definition 1). Every percentile is therefore a value that was really
measured and can be traced to the request it came from, and "q % of requests are at least this good" is
literally true. Interpolating rules can name values that nobody saw.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat

PERCENTILES = (50, 75, 90, 95, 99)


def rank(n: int, q: float) -> int:
    """Zero-based index, in ascending order, of the q-th percentile (0 < q <= 100) of n values; n >= 1."""
    if n < 1 or not 0 < q <= 100:
        raise ValueError(f"rank of percentile {q} of {n} values is not defined")
    # 1e-9 keeps q * n / 100 from being pushed over an integer by binary rounding (0.07 * 100 = 7.000…01).
    return max(0, math.ceil(q * n / 100 - 1e-9) - 1)


def percentile(values: Sequence[float], q: float) -> float | None:
    """The q-th percentile of unsorted values; None when there are none."""
    if not values:
        return None
    return sorted(values)[rank(len(values), q)]


def _sum_of_counted(values: Sequence[float], counts: Sequence[int]) -> float:
    """values[i] * counts[i] summed and rounded once. A product of 53 and 26 bits does not fit a float, so each value
    is split into two of at most 26 bits (Veltkamp 1968), whose products are exact."""
    if values and (max(counts) >= 2**26 or max(map(abs, values)) > 1e290):
        return math.fsum(chain.from_iterable(map(repeat, values, counts)))
    parts: list[float] = []
    for value, count in zip(values, counts, strict=True):
        wide = value * 134217729.0  # 2^27 + 1
        high = wide - (wide - value)
        parts += (high * count, (value - high) * count)
    return math.fsum(parts)


@dataclass(frozen=True, slots=True)
class Distribution:
    """Summary of n >= 1 measured values, all in the unit of their metric. `std` is the sample's (n - 1)."""

    n: int
    mean: float
    std: float | None
    min: float
    max: float
    p50: float
    p75: float
    p90: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Distribution | None:
        """Summarise; None for no values, since absent is absent and never 0."""
        if not values:
            return None
        ordered = sorted(values)
        n = len(ordered)
        mean = math.fsum(ordered) / n
        std = math.sqrt(math.fsum((v - mean) ** 2 for v in ordered) / (n - 1)) if n > 1 else None
        at = {q: ordered[rank(n, q)] for q in PERCENTILES}
        return cls(n, mean, std, ordered[0], ordered[-1], at[50], at[75], at[90], at[95], at[99])

    @classmethod
    def of_counted(cls, values: Sequence[float], counts: Sequence[int]) -> Distribution | None:
        """Summarise values[i] taken counts[i] >= 1 times, distinct and ascending. Equal to the last digit to
        `of` over the same values written out: both sums are correctly rounded, so their order is nothing."""
        if not values:
            return None
        upto = array("Q", accumulate(counts))
        n = upto[-1]
        mean = _sum_of_counted(values, counts) / n
        spread = _sum_of_counted([(v - mean) ** 2 for v in values], counts)
        std = math.sqrt(spread / (n - 1)) if n > 1 else None
        at = {q: values[bisect_right(upto, rank(n, q))] for q in PERCENTILES}
        return cls(n, mean, std, values[0], values[-1], at[50], at[75], at[90], at[95], at[99])
