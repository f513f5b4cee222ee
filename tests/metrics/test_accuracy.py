"""Standard error and Wilson's interval against published tables."""

from __future__ import annotations

import pytest

from servemark.metrics.accuracy import EvalScore, binomial_stderr, wilson_interval


@pytest.mark.parametrize(
    ("correct", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 1 - 0.1170, 1.0),  # 0 of 29 is 0..0.1170 in the same table by symmetry
    ],
)
def test_wilson_interval(correct: int, n: int, low: float, high: float) -> None:
    """R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3; the last by z²/(n + z²) = 3.8415/32.8415."""
    assert wilson_interval(correct, n) == pytest.approx((low, high), abs=6e-5)


def test_stderr_and_bad_counts() -> None:
    """sqrt(0.3 * 0.7 / 100) = 0.0458258."""
    assert binomial_stderr(30, 100) == pytest.approx(0.0458258, abs=1e-7)
    for correct, n in ((0, 0), (3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="no share"):
            wilson_interval(correct, n)
    nothing = EvalScore("t", "1", 0, 0, 0, 0.0, 0.0, 0, 0, 0.0)
    assert nothing.interval == (0.0, 1.0)
