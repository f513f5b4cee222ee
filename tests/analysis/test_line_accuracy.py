"""Points of one line answer the same items: their standard error is that of the items, by hand."""

from __future__ import annotations

import math

import pytest

from servemark.analysis.line_accuracy import LineAccuracy, PointScore
from servemark.analysis.load import Load
from servemark.metrics.accuracy import EvalScore


def point(concurrency: int, correct: int, n: int, items: dict[str, bool] | None = None) -> PointScore:
    """A score of `n` items at one concurrency."""
    return PointScore(
        Load(concurrency), EvalScore("t", "1", n, n, correct, correct / n, 0.0, 0, 0, 1.0), items
    )


def test_counts_of_three_points_are_no_further_items() -> None:
    """74 of 102 three times: sqrt(0.7255 x 0.2745 / 102) = 4.419 points, not 2.551 of 306 items."""
    line = LineAccuracy([point(c, 74, 102) for c in (1, 2, 4)])
    assert line.n == 102
    assert line.stderr == pytest.approx(0.04419, abs=1e-5)


def test_an_item_is_one_draw() -> None:
    """Items' means 1, 1, 0.5, 0 over two points: mean 0.625, variance (2 x 0.375^2 + 0.125^2 + 0.625^2) / 4 = 0.171875,
    error sqrt(0.171875 / 4) = 0.20729."""
    first = {"a": True, "b": True, "c": True, "d": False}
    line = LineAccuracy([point(1, 3, 4, first), point(2, 2, 4, {**first, "c": False})])
    assert (line.n, line.share) == (4, 0.625)
    assert line.stderr == pytest.approx(0.20729, abs=1e-5)


def test_points_that_agree_on_every_item_have_the_error_of_one() -> None:
    """The binomial error of one point, with items as from counts."""
    items = {str(n): n < 3 for n in range(4)}
    with_items = LineAccuracy([point(c, 3, 4, items) for c in (1, 2, 4)])
    counted = LineAccuracy([point(c, 3, 4) for c in (1, 2, 4)])
    assert with_items.stderr == counted.stderr == pytest.approx(math.sqrt(0.75 * 0.25 / 4))


def test_all_right_is_not_known_exactly() -> None:
    """Wilson at one standard error, 9 of 9: 0.9 to 1, half of it 0.05."""
    assert LineAccuracy([point(1, 9, 9)]).stderr == pytest.approx(0.05)


def test_a_pair_is_tested_by_its_items() -> None:
    """Ten items that only the first has right: 2 / 2^10, where two proportions of 30 and 20 of 100 tell nothing."""
    first = {str(n): n < 30 for n in range(100)}
    second = {str(n): n < 20 for n in range(100)}
    (paired,) = LineAccuracy([point(1, 30, 100, first), point(2, 20, 100, second)]).differences()
    assert paired.p_value == pytest.approx(2 / 1024)
    assert paired.differing == pytest.approx(11 / 102)
    (counted,) = LineAccuracy([point(1, 30, 100), point(2, 20, 100)]).differences()
    assert counted.p_value > 0.05
