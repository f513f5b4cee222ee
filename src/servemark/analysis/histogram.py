"""Histograms with a bin width that the data choose (Freedman and Diaconis 1981: 2 x IQR / cube root of n)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from servemark.metrics.percentiles import percentile

MIN_BINS = 5
MAX_BINS = 40
FENCE = 8.0
"""Values further above the third quartile than this many IQRs are outliers; 1.5 is usual for a box plot, but
a histogram should show a tail as long as it can."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of one metric's values. `edges` has one more entry than `counts`; bin i holds edges[i] <= v <
    edges[i + 1], the last one its upper edge too. Outliers that would squeeze all others into a few bins are
    in no bin but counted in `above`, with the largest value in `max`: say so beside the drawing. In a
    logarithmic histogram edges grow by a constant factor and `at_or_below_zero` values, which have no
    logarithm, are in no bin. n = sum(counts) + above + at_or_below_zero. All in the metric's stored unit.
    """

    metric: str
    unit: str
    log: bool
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    n: int
    above: int
    at_or_below_zero: int
    max: float
    p50: float | None
    p90: float | None
    p99: float | None


def bin_count(values: Sequence[float]) -> int:
    """Number of equal bins over the values' range, between MIN_BINS and MAX_BINS; 1 when all values are
    equal.

    Where half of the values coincide (IQR of 0) Sturges' rule, log2(n) + 1, is used instead.
    """
    low, high = min(values), max(values)
    if high <= low:
        return 1
    n = len(values)
    iqr = (percentile(values, 75) or 0.0) - (percentile(values, 25) or 0.0)
    width = 2 * iqr / n ** (1 / 3)
    wished = (high - low) / width if width > 0 else math.log2(n) + 1
    return max(MIN_BINS, min(MAX_BINS, math.ceil(min(wished, MAX_BINS))))


def _inside(values: Sequence[float]) -> Sequence[float]:
    """The values up to the upper fence Q3 + FENCE x IQR; all of them where the IQR is 0."""
    q3 = percentile(values, 75) or 0.0
    iqr = q3 - (percentile(values, 25) or 0.0)
    return [value for value in values if value <= q3 + FENCE * iqr] if iqr > 0 else values


def histogram(metric: str, unit: str, values: Sequence[float], *, log: bool = False) -> Histogram | None:
    """The histogram of all values; None when there are none. `log` bins their logarithms."""
    if not values:
        return None
    counted = [value for value in values if value > 0] if log else list(values)
    if log and not counted:
        return histogram(metric, unit, values)
    all_places = [math.log10(value) for value in counted] if log else counted
    places = _inside(all_places)
    low, high = min(places), max(places)
    bins = bin_count(places)
    step = (high - low) / bins
    counts = [0] * bins
    for place in places:
        index = int((place - low) / step) if step > 0 else 0
        counts[min(index, bins - 1)] += 1
    raw = [low + step * i for i in range(bins)] + [high]
    return Histogram(
        metric=metric,
        unit=unit,
        log=log,
        edges=tuple(10**edge for edge in raw) if log else tuple(raw),
        counts=tuple(counts),
        n=len(values),
        above=len(all_places) - len(places),
        at_or_below_zero=len(values) - len(counted),
        max=max(values),
        p50=percentile(values, 50),
        p90=percentile(values, 90),
        p99=percentile(values, 99),
    )
