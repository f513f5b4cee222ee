"""From a few timed sizes to a larger one: a rate, how much it varied, and how far that can be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228}
"""Student's t, 97.5 % quantile by degrees of freedom (any table of it)."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds for one run of `bytes`, with the interval in which one such run falls in 95 % of cases.

    It knows only the memory that was probed: a NUMA node that fills up on the way is slower than it says.
    """

    bytes: int
    seconds: float
    low_s: float
    high_s: float
    times_larger: float
    """How many times larger than the largest size that was measured."""


def estimate(runs: Sequence[tuple[int, float]], target: int) -> Estimate | None:
    """Time proportional to size: mean and 95 % prediction interval of log(seconds per byte) over the runs.

    exp(mean ± t(0.975, n-1) · s · sqrt(1 + 1/n)); None for fewer than two runs or times that are not above 0.
    """
    if len(runs) < 2 or any(length <= 0 or taken <= 0 for length, taken in runs):
        return None
    logs = [math.log(taken / length) for length, taken in runs]
    n = len(logs)
    mean = math.fsum(logs) / n
    spread = math.sqrt(math.fsum((one - mean) ** 2 for one in logs) / (n - 1))
    half = T_975.get(n - 1, 2.2) * spread * math.sqrt(1 + 1 / n)
    largest = max(length for length, _ in runs)
    return Estimate(
        target,
        target * math.exp(mean),
        target * math.exp(mean - half),
        target * math.exp(mean + half),
        target / largest,
    )


def held_out(runs: Sequence[tuple[int, float]]) -> float | None:
    """How far the largest size is from what the smaller ones predict: predicted / measured - 1, mean of its runs."""
    largest = max((length for length, _ in runs), default=0)
    known = [run for run in runs if run[0] < largest]
    tested = [taken for length, taken in runs if length == largest]
    predicted = estimate(known, largest)
    if predicted is None or not tested:
        return None
    return predicted.seconds / (math.fsum(tested) / len(tested)) - 1
