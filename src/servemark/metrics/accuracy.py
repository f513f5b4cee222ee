"""The score of one accuracy task and its statistics: what evals make, results keep and analysis compares."""

from __future__ import annotations

import math
from dataclasses import dataclass

Z95 = 1.959963984540054
"""The 97.5 % point of the standard normal distribution: two-sided 95 %."""


def binomial_stderr(correct: int, n: int) -> float:
    """Standard error of a share, sqrt(p (1 - p) / n). Zero when all or none are correct, which is why the interval
    of `wilson_interval` is shown beside it. Raises ValueError for n < 1 or a count outside 0..n."""
    _check(correct, n)
    share = correct / n
    return math.sqrt(share * (1 - share) / n)


def wilson_interval(correct: int, n: int, z: float = Z95) -> tuple[float, float]:
    """(low, high) of the share, both in 0..1: Wilson's score interval (E. B. Wilson, JASA 22, 1927, p. 209), 95 % by
    default. Unlike p ± z·stderr it stays inside 0..1 and has a width where all or none are correct. Raises
    ValueError for n < 1 or a count outside 0..n."""
    _check(correct, n)
    share, squared = correct / n, z * z
    middle = (share + squared / (2 * n)) / (1 + squared / n)
    half = z / (1 + squared / n) * math.sqrt(share * (1 - share) / n + squared / (4 * n * n))
    low = 0.0 if correct == 0 else max(0.0, middle - half)
    high = 1.0 if correct == n else min(1.0, middle + half)
    return low, high


def _check(correct: int, n: int) -> None:
    if n < 1 or not 0 <= correct <= n:
        raise ValueError(f"{correct} of {n} is no share")


@dataclass(frozen=True, slots=True)
class EvalScore:
    """One accuracy task at this point. `score` is the share of `n` items judged correct; `stderr` its
    standard error sqrt(p(1-p)/n); items that got no answer count as wrong and are also counted in
    `unanswered`. `duration_s` is in seconds. `concurrency`: requests in flight while it was asked; None in rows that
    do not say."""

    task: str
    version: str
    n: int
    expected_n: int
    correct: int
    score: float
    stderr: float
    unanswered: int
    truncated: int
    duration_s: float
    refused: int = 0
    concurrency: int | None = None

    @property
    def answered(self) -> bool:
        """False when no item got an answer: `score` then counts failures and is no accuracy."""
        return self.unanswered < self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the score; (0, 1), which says nothing, without items."""
        return wilson_interval(self.correct, self.n) if self.n >= 1 else (0.0, 1.0)
