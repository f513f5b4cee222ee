"""Split-conformal intervals: how far off held-out figures of a class were says how far off the next one may be.

A score is |ln(measured / predicted)| over the spread that the model stated beforehand. With n scores of held-out figures and
a new one exchangeable with them, the interval out to the ceil((n + 1) * level)-th smallest score holds it with at least
`level` (Lei and others 2018, "Distribution-free predictive inference for regression", theorem 2.2). No shape of the errors
is assumed.

Figures of one deployment are off together, so a hundred of them tell less than one figure each of a hundred deployments. How
alike they are is measured (`likeness`); n above is then the number of scores over their design effect (Kish 1965, "Survey
Sampling", section 8.2).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from statistics import NormalDist

FEWEST_JUDGED = 30
"""With fewer held-out figures a coverage says nothing."""


def conformal_quantile(
    scores: Sequence[float], level: float, groups: Sequence[str] | None = None
) -> float | None:
    """The ceil((n + 1) * level)-th smallest of n scores; with `groups` (each score's, same order) the rank that as many
    scores ask for as they are worth standing alone. None where that is more than there are."""
    if not scores:
        return None
    count = len(scores)
    worth = count if groups is None else count / design_effect(scores, groups)
    rank = math.ceil(count * level * (1.0 + 1.0 / worth) - 1e-9)
    return sorted(scores)[rank - 1] if rank <= count else None


def design_effect(scores: Sequence[float], groups: Sequence[str]) -> float:
    """How many scores tell as much as one that stands alone: 1 + (size - 1) * `likeness`, with the size of the group that
    a score is in on average."""
    size = math.fsum(each * each for each in Counter(groups).values()) / len(groups)
    return 1.0 + (size - 1.0) * likeness(scores, groups)


def likeness(scores: Sequence[float], groups: Sequence[str]) -> float:
    """How alike scores of one group are, 0 (no more than any two) to 1 (equal): the intraclass correlation of their normal
    ranks by a one-way analysis of variance (Donner 1986, "A review of inference procedures for the intraclass correlation
    coefficient"). Where nothing tells: 1 with all scores of one group, which then are worth one, and 0 with a group for
    each."""
    n, sizes = len(scores), Counter(groups)
    if len(sizes) < 2 or len(sizes) == n:
        return float(len(sizes) < n)
    values = normal_ranks(scores)
    mean, sums = math.fsum(values) / n, dict.fromkeys(sizes, 0.0)
    for value, group in zip(values, groups, strict=True):
        sums[group] += value - mean
    between = math.fsum(total * total / sizes[group] for group, total in sums.items())
    within = max(0.0, math.fsum((value - mean) ** 2 for value in values) - between)
    size = (n - math.fsum(each * each for each in sizes.values()) / n) / (len(sizes) - 1)
    mean_between, mean_within = between / (len(sizes) - 1), within / (n - len(sizes))
    whole = mean_between + (size - 1.0) * mean_within
    return min(1.0, max(0.0, (mean_between - mean_within) / whole)) if whole > 0 else 0.0


def normal_ranks(scores: Sequence[float]) -> list[float]:
    """What the standard normal distribution has at each score's rank, (rank + 1/2) / n; equal scores share their mean
    rank."""
    found, normal, rank = [0.0] * len(scores), NormalDist(), 0
    order = sorted(range(len(scores)), key=scores.__getitem__)
    for _, some in groupby(order, key=scores.__getitem__):
        alike = list(some)
        value = normal.inv_cdf((rank + len(alike) / 2) / len(scores))
        for place in alike:
            found[place] = value
        rank += len(alike)
    return found


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
