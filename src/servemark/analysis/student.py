"""Student's t distribution, for intervals from few repeats.

Its tail is a regularised incomplete beta function: P(|T| > t) = I_x(df/2, 1/2) with x = df / (df + t²), evaluated by the
continued fraction of Abramowitz and Stegun 26.5.8 with Lentz's method; quantiles by bisection of that tail.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

NORMAL_FROM = 1e6
"""Degrees of freedom from which t and the normal distribution agree to all digits that are used."""
_STEPS = 300
_TINY = 1e-300
_CLOSE = 1e-14


def t_tail(t: float, df: float) -> float:
    """Two-sided p-value: the chance that |T| exceeds |t| with `df` > 0 degrees of freedom (infinite: the normal)."""
    if df >= NORMAL_FROM:
        return math.erfc(abs(t) / math.sqrt(2))
    return _incomplete_beta(df / (df + t * t), df / 2, 0.5)


@lru_cache(maxsize=4096)
def t_quantile(alpha: float, df: float) -> float:
    """The t that |T| exceeds with chance `alpha` (0 < alpha < 1): 2.228 for 0.05 and 10 degrees of freedom."""
    if df >= NORMAL_FROM:
        return NormalDist().inv_cdf(1 - alpha / 2)
    low, high = 0.0, 1.0
    while t_tail(high, df) > alpha and high < 1e12:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, df) > alpha else (low, middle)
        if high - low <= _CLOSE * high:
            break
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b) for 0 <= x <= 1."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges quickly on the other side
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < _CLOSE:
            break
    return value


def _away(value: float) -> float:
    """Keep a denominator off zero."""
    return value if abs(value) > _TINY else _TINY
