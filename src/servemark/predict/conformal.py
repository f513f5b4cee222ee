"""Split-conformal intervals: how far off held-out figures of a class were says how far off the next one may be.

A score is |ln(measured / predicted)| over the spread that the model stated beforehand. With n scores of held-out figures and
a new one exchangeable with them, the interval out to the ceil((n + 1) * level)-th smallest score holds it with at least
`level` (Lei and others 2018, "Distribution-free predictive inference for regression", theorem 2.2). No shape of the errors
is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST_JUDGED = 30
"""With fewer held-out figures a coverage says nothing."""


def conformal_quantile(scores: Sequence[float], level: float) -> float | None:
    """The ceil((n + 1) * level)-th smallest of n scores; None where n is too small for that level to exist."""
    rank = math.ceil((len(scores) + 1) * level - 1e-9)
    return sorted(scores)[rank - 1] if 0 < rank <= len(scores) else None


@dataclass(frozen=True, slots=True)
class Interval:
    """Bounds of a positive figure, and how many held-out figures they rest on."""

    low: float
    high: float
    residuals: int


def interval(value: float, spread: float, scores: Sequence[float], level: float) -> Interval | None:
    """The interval of a figure around `value`, its bounds equally far in ratio; None with too few scores."""
    reach = conformal_quantile(scores, level)
    if reach is None:
        return None
    factor = math.exp(min(reach * spread, 50.0))
    return Interval(value / factor, value * factor, len(scores))


def binomial_band(level: float, count: int, confidence: float = 0.95) -> tuple[float, float] | None:
    """Least and greatest share of `count` intervals that hold if each does with probability `level`: the central
    `confidence` of the binomial distribution, summed exactly. None below `FEWEST_JUDGED`."""
    if count < FEWEST_JUDGED:
        return None
    tail = (1.0 - confidence) / 2.0
    log_level, log_miss = math.log(level), math.log1p(-level)
    total = 0.0
    low = high = None
    for hits in range(count + 1):
        ways = math.lgamma(count + 1) - math.lgamma(hits + 1) - math.lgamma(count - hits + 1)
        total += math.exp(ways + hits * log_level + (count - hits) * log_miss)
        if low is None and total > tail:
            low = hits
        if high is None and total >= 1.0 - tail:
            high = hits
    return (low or 0) / count, (count if high is None else high) / count
