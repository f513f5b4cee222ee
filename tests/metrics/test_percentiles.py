"""The percentile rule and its summary. Expected values are worked out by hand from the definition."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemark.metrics.percentiles import Distribution, percentile, rank

NUMBERS = st.lists(st.floats(min_value=0, max_value=1e6), min_size=1, max_size=200)


@pytest.mark.parametrize(
    ("n", "q", "expected"),
    [
        (1, 50, 0),
        (1, 99, 0),
        (2, 50, 0),
        (3, 50, 1),
        (10, 90, 8),
        (10, 95, 9),
        (19, 95, 18),
        (20, 95, 18),
        (100, 7, 6),
    ],
)
def test_rank_by_hand(n: int, q: float, expected: int) -> None:
    """ceil(q n / 100) - 1: of 20 values the 95th percentile is the 19th, of 19 it is the largest."""
    assert rank(n, q) == expected


@given(values=NUMBERS, q=st.sampled_from((50, 75, 90, 95, 99)))
def test_q_percent_are_at_most_the_percentile(values: list[float], q: int) -> None:
    """The definition itself: at least q % lie at or below it, and no smaller observed value has that
    property."""
    found = percentile(values, q)
    assert found in values
    assert 100 * sum(v <= found for v in values) >= q * len(values) - 1e-6
    smaller = [v for v in values if v < found]
    if smaller:
        assert 100 * sum(v <= max(smaller) for v in values) < q * len(values)


def test_nothing_gives_nothing() -> None:
    """No values: absent, not zero; and a rank that is not defined is a bug of the caller."""
    assert percentile([], 50) is None
    assert Distribution.of([]) is None
    with pytest.raises(ValueError, match="not defined"):
        rank(0, 50)
    with pytest.raises(ValueError, match="not defined"):
        rank(5, 0)


def test_summary_against_the_standard_library() -> None:
    """Mean and sample deviation of 1..9 as `statistics` gives them; one value has no deviation."""
    values = [float(v) for v in (5, 3, 1, 9, 7, 2, 8, 4, 6)]
    found = Distribution.of(values)
    assert found is not None
    assert (found.n, found.min, found.p50, found.p90, found.max) == (9, 1.0, 5.0, 9.0, 9.0)
    assert math.isclose(found.mean, statistics.mean(values))
    assert found.std is not None
    assert math.isclose(found.std, statistics.stdev(values))
    alone = Distribution.of([2.5])
    assert alone is not None
    assert alone.std is None
    assert alone.p99 == 2.5
