"""Is a difference real: tests of one figure of a pair, corrected for how many were made, with a smallest difference
that matters.

A latency or a rate is compared as a ratio: d = mean ln B - mean ln A, se² = s_A²/n_A + s_B²/n_B with the noise of each side
(`noise`), Student's t with the degrees of freedom of that noise (Welch and Satterthwaite's where the two sides rest on
different repeats). Shares (accuracy, failed requests) are compared as two proportions: a pooled z test, and the interval
of Agresti and Caffo (2000), which stays honest at 0 and 1. The tests of single pairs share one Holm correction (1979), the
means over pairs another; where there are both, each may spend half of the 5 %.

better or worse: the corrected p-value is at most 0.05 and the difference at least the smallest that matters.
same: the 95 % interval lies within it. Otherwise nobody can tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import Literal

from servemark.analysis.compare_types import EffectUnit, Verdict
from servemark.analysis.line_accuracy import two_proportions
from servemark.analysis.noise import Noise
from servemark.analysis.student import t_quantile, t_tail

ALPHA = 0.05
"""Chance that anything at all is called better or worse where nothing differs."""
MIN_EFFECT = 0.02
"""Relative difference of a latency or rate below which nobody acts."""
MIN_POINTS = 0.01
"""Difference of an accuracy or of a share of failed requests below which nobody acts."""
_CAP = 50.0
"""Logarithms beyond which an interval is cut: e^50."""


@dataclass(frozen=True, slots=True)
class Test:
    """One comparison before any correction. `effect`, `low`, `high` are a difference of logarithms (`ratio`) or of shares
    (`share`), B - A, with the 95 % interval; `spread` times a quantile is what the effect is held against. `identical`:
    both sides hold the same measurements."""

    kind: Literal["ratio", "share"]
    a: float
    b: float
    n_a: int
    n_b: int
    effect: float
    low: float
    high: float
    p: float
    spread: float
    df: float
    min_effect: float
    identical: bool = False
    noises: tuple[Noise, ...] = ()


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a test means among all others. `threshold` in the effect's own terms: the larger of noise at the corrected level
    and the smallest difference that matters."""

    verdict: Verdict
    p_adjusted: float
    threshold: float


def ratio_test(
    a: Sequence[float], b: Sequence[float], noises: tuple[Noise, Noise], min_effect: float
) -> Test:
    """Two sets of positive values of one figure, with the noise of one measurement on each side."""
    mean_a, mean_b = fmean(map(math.log, a)), fmean(map(math.log, b))
    parts = (noises[0].rel_sd ** 2 / len(a), noises[1].rel_sd ** 2 / len(b))
    spread, effect = math.sqrt(sum(parts)), mean_b - mean_a
    df = noises[0].df if noises[0] == noises[1] else _satterthwaite(parts, (noises[0].df, noises[1].df))
    p = t_tail(effect / spread, df)
    half = min(_CAP, t_quantile(ALPHA, df) * spread)
    return Test(
        "ratio",
        math.exp(mean_a),
        math.exp(mean_b),
        len(a),
        len(b),
        effect,
        effect - half,
        effect + half,
        p,
        spread,
        df,
        math.log1p(min_effect),
        noises=tuple(dict.fromkeys(noises)),
    )


def share_test(a: float, n_a: int, b: float, n_b: int, min_points: float = MIN_POINTS) -> Test:
    """Two shares 0..1 of n_a and n_b items (both > 0)."""
    found = two_proportions(round(a * n_a), n_a, round(b * n_b), n_b)
    p = 1.0 if found is None else found.p_value
    pooled = (a * n_a + b * n_b) / (n_a + n_b)
    spread = math.sqrt(max(0.0, pooled * (1 - pooled)) * (1 / n_a + 1 / n_b))
    near = [((share * n + 1) / (n + 2), n + 2) for share, n in ((a, n_a), (b, n_b))]
    half = t_quantile(ALPHA, math.inf) * math.sqrt(sum(share * (1 - share) / n for share, n in near))
    middle = near[1][0] - near[0][0]
    low, high = max(-1.0, min(middle - half, b - a)), min(1.0, max(middle + half, b - a))
    return Test("share", a, b, n_a, n_b, b - a, low, high, p, spread, math.inf, min_points)


def mean_test(tests: Sequence[Test], blocks: Sequence[object]) -> Test:
    """The mean of several ratio tests of one figure (at least one). Tests of one block share what was different about their
    runs, so their errors are added and not averaged; blocks are independent. Degrees of freedom are the fewest of any."""
    effect = fmean(test.effect for test in tests)
    shared: dict[object, float] = {}
    for test, block in zip(tests, blocks, strict=True):
        shared[block] = shared.get(block, 0.0) + test.spread
    spread = math.sqrt(math.fsum(each**2 for each in shared.values())) / len(tests)
    df = min(test.df for test in tests)
    half = min(_CAP, t_quantile(ALPHA, df) * spread)
    p = t_tail(effect / spread, df) if spread > 0 else 1.0
    return Test(
        "ratio", math.exp(fmean(math.log(test.a) for test in tests)), math.exp(fmean(math.log(test.b) for test in tests)),
        len(tests), len(tests), effect, effect - half, effect + half, p, spread, df, tests[0].min_effect,
        identical=all(test.identical for test in tests),
    )  # fmt: skip


def same_test(test: Test) -> Test:
    """The test of two sides that hold the same measurements: no difference, and no doubt of it."""
    return Test(
        test.kind, test.a, test.b, test.n_a, test.n_b, 0.0, 0.0, 0.0, 1.0, 0.0, math.inf, test.min_effect,
        identical=True, noises=test.noises,
    )  # fmt: skip


def judge(tests: Sequence[Test], better: Sequence[float], alpha: float = ALPHA) -> list[Ruling]:
    """A ruling of each test among all. `better`: 1 where higher is better, -1 where lower is. `alpha` is the part of ALPHA
    that this family of tests may spend; corrected p-values are scaled so that they are held against ALPHA all the same.
    Tests of one measurement with itself take no part in the correction."""
    real = [place for place, test in enumerate(tests) if not test.identical]
    corrected = dict(zip(real, holm([tests[place].p for place in real], alpha), strict=True))
    found = []
    for place, (test, sign) in enumerate(zip(tests, better, strict=True)):
        raw, level = corrected.get(place, (1.0, alpha))
        adjusted = min(1.0, raw * ALPHA / alpha)
        noise = _quantile(level, test.df) * test.spread
        threshold = max(noise, test.min_effect)
        verdict: Verdict
        if test.identical:
            verdict = "same"
        elif adjusted <= ALPHA and abs(test.effect) >= test.min_effect:
            verdict = "better" if test.effect * sign > 0 else "worse"
        elif -test.min_effect <= test.low and test.high <= test.min_effect:
            verdict = "same"
        else:
            verdict = "cannot_tell"
        found.append(Ruling(verdict, adjusted, threshold))
    return found


def holm(p_values: Sequence[float], alpha: float = ALPHA) -> list[tuple[float, float]]:
    """(adjusted p-value, level that it was held against) of each, in the order given. The smallest of m is held against
    alpha/m, the next against alpha/(m-1), and so on until one fails; all further ones share that one's level."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    found: list[tuple[float, float]] = [(1.0, alpha)] * len(p_values)
    highest, level, failed = 0.0, alpha, False
    for rank, place in enumerate(order):
        left = len(order) - rank
        if not failed:
            level = alpha / left
        highest = max(highest, min(1.0, left * p_values[place]))
        failed = failed or highest > alpha
        found[place] = (highest, level)
    return found


def percent(test: Test, value: float) -> float:
    """A difference of logarithms as per cent of A, a difference of shares as percentage points."""
    return 100 * (math.expm1(min(value, _CAP)) if test.kind == "ratio" else value)


def effect_unit(test: Test) -> EffectUnit:
    """Of `percent`."""
    return "%" if test.kind == "ratio" else "pp"


def _quantile(level: float, df: float) -> float:
    return NormalDist().inv_cdf(1 - level / 2) if math.isinf(df) else t_quantile(level, df)


def _satterthwaite(parts: tuple[float, float], dfs: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of two independent variances."""
    below = sum(part**2 / df for part, df in zip(parts, dfs, strict=True) if part and not math.isinf(df))
    return sum(parts) ** 2 / below if below else math.inf
