"""The accuracy of one task over all points of a line, which put the same items to the same model.

Equal id and version of a task mean equal items, so a line's points are repeats of those items and no further items: the
standard error is that of the items alone, however many points asked them. With the verdict of every item at hand, the
mean of an item's verdicts is one draw (clusters of one item; W. G. Cochran, Sampling Techniques, 1977, ch. 9); with counts
alone it is that of one point, which is what it comes to when every point judges each item alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import NormalDist, fmean, pstdev

from servemark.analysis.load import Load
from servemark.evals.against import mcnemar_p
from servemark.evals.runner import TaskOutcome
from servemark.metrics.accuracy import EvalScore, wilson_interval

SIGNIFICANCE = 0.05
"""Family-wise error of "the accuracy differs", shared by all pairs of points (Bonferroni)."""
POWER_Z = 0.8416
"""Normal quantile of 80 % power, for the smallest difference that could have been seen."""

ItemVerdicts = Mapping[str, bool]
"""Whether each item of a task was judged correct, by the item's name."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two shares of correct answers: |z| of the pooled two-proportion test and its two-sided p-value."""

    z: float
    p_value: float


def two_proportions(correct_a: int, n_a: int, correct_b: int, n_b: int) -> Comparison | None:
    """Pooled z test of equal shares; None when it says nothing (no items, or all right or all wrong at both).

    z = (pa - pb) / sqrt(p (1 - p) (1/na + 1/nb)) with p the share of both together; p-value = erfc(|z| / sqrt
    2). The points answer the same items, which makes this test err towards "no difference".
    """
    if n_a <= 0 or n_b <= 0:
        return None
    pooled = (correct_a + correct_b) / (n_a + n_b)
    spread = pooled * (1 - pooled) * (1 / n_a + 1 / n_b)
    if spread <= 0:
        return None
    z = abs(correct_a / n_a - correct_b / n_b) / math.sqrt(spread)
    return Comparison(z, math.erfc(z / math.sqrt(2)))


def detectable_difference(differing: float, n: int, tests: int = 1) -> float:
    """The difference between two shares of n items each that would show in 80 % of cases at 5 % over `tests` tests
    (Bonferroni). `differing` is the variance of one item's difference: 2 p (1 - p) for two samples near p, and for paired
    items the share of items that only one of the two has right."""
    if n <= 0:
        return 1.0
    alpha_z = NormalDist().inv_cdf(1 - SIGNIFICANCE / (2 * max(1, tests)))
    return min(1.0, (alpha_z + POWER_Z) * math.sqrt(differing / n))


@dataclass(frozen=True, slots=True)
class PointScore:
    """The score at one point, with the verdict of every item; None where they are not all at hand."""

    load: Load
    score: EvalScore
    items: ItemVerdicts | None = None


def items_of(score: EvalScore, outcomes: Iterable[TaskOutcome]) -> ItemVerdicts | None:
    """The verdicts that a score was counted from; None unless every one of its items has one."""
    key = (score.task, score.version, score.concurrency)
    for each in outcomes:
        if (each.score.task, each.score.version, each.score.concurrency) != key:
            continue
        found = {sample.item: sample.correct for sample in each.samples}
        if len(found) == len(each.samples) == score.n and sum(found.values()) == score.correct:
            return found
    return None


@dataclass(frozen=True, slots=True)
class Difference:
    """The p-value of two points' scores, not corrected, and the variance of one item's difference (see
    `detectable_difference`) over `n` items."""

    p_value: float
    differing: float
    n: int
    a: PointScore
    b: PointScore


@dataclass(frozen=True)
class LineAccuracy:
    """One task at all points of a line that scored it (at least one)."""

    points: Sequence[PointScore]

    @cached_property
    def _means(self) -> list[float] | None:
        """The mean verdict of each item; None where a point's verdicts are not at hand."""
        found: dict[str, list[bool]] = {}
        for point in self.points:
            if point.items is None:
                return None
            for item, correct in point.items.items():
                found.setdefault(item, []).append(correct)
        return [fmean(each) for each in found.values()]

    @property
    def n(self) -> int:
        """Distinct items: never their sum over points."""
        return max(point.score.n for point in self.points) if self._means is None else len(self._means)

    @property
    def share(self) -> float:
        """Correct answers among all that were asked for, 0..1; every item counts alike where items are known."""
        if self._means is not None:
            return fmean(self._means)
        return sum(p.score.correct for p in self.points) / sum(p.score.n for p in self.points)

    @property
    def stderr(self) -> float:
        """Standard error of the share: standard deviation of the items' means / sqrt(items), or sqrt(p (1 - p) / items)
        from counts. Where that is 0, as with all items right, half of Wilson's interval at one standard error: a share
        of few items is never known exactly."""
        share, n = self.share, self.n
        spread = math.sqrt(share * (1 - share)) if self._means is None else pstdev(self._means)
        if spread > 0:
            return spread / math.sqrt(n)
        low, high = wilson_interval(min(n, round(share * n)), n, 1.0)
        return (high - low) / 2

    def differences(self) -> list[Difference]:
        """Every pair of points: paired by item (McNemar, exact) where both have the same items, else two proportions."""
        return [_difference(a, b, self.share) for a, b in combinations(self.points, 2)]


def _difference(a: PointScore, b: PointScore, share: float) -> Difference:
    if a.items is not None and b.items is not None and a.items.keys() == b.items.keys():
        only_a = sum(correct and not b.items[item] for item, correct in a.items.items())
        only_b = sum(correct and not a.items[item] for item, correct in b.items.items())
        n = len(a.items)
        # one item is added to those that differ, as Agresti and Min do: none seen does not mean that none can differ
        return Difference(mcnemar_p(only_a, only_b), (only_a + only_b + 1) / (n + 2), n, a, b)
    found = two_proportions(a.score.correct, a.score.n, b.score.correct, b.score.n)
    p_value = 1.0 if found is None else found.p_value
    return Difference(p_value, 2 * share * (1 - share), min(a.score.n, b.score.n), a, b)
