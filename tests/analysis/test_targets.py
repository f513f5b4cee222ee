"""Target reads: measured floors, estimates within one line, and nothing outside; by hand and for any points."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.analysis.made_points import measured

from servemark.analysis.front_targets import amid
from servemark.analysis.front_types import FrontOptions
from servemark.analysis.front_view import front_view
from servemark.analysis.targets import Estimate, Placed, TargetRead, target_read
from servemark.metrics.registry import Better

UP, DOWN = Better.HIGHER, Better.LOWER


def line(*places: tuple[float, float], number: int = 0, first: int = 0) -> list[Placed]:
    """Points of one line, by load."""
    return [Placed(first + i, x, y, number, i) for i, (x, y) in enumerate(places)]


def test_floor_and_estimate_by_hand() -> None:
    """The line (20, 900), (40, 700), (80, 300) at 60: 300 was measured; half way from 700 to 300 is 500."""
    found = target_read(line((20, 900), (40, 700), (80, 300)), UP, UP, 60)
    assert (found.state, found.floor, found.y) == ("reached", 2, 300)
    assert found.estimate == Estimate(500, 1, 2)


def test_no_estimate_between_two_lines() -> None:
    """The same points, but (80, 300) is another deployment: nobody has what lies between."""
    found = target_read([*line((20, 900), (40, 700)), *line((80, 300), number=1, first=2)], UP, UP, 60)
    assert (found.floor, found.y, found.estimate) == (2, 300, None)


def test_no_estimate_across_a_point_that_does_not_count() -> None:
    """Of three loads the middle one failed its gate: its two sides are no neighbours."""
    some = line((20, 900), (50, 600), (80, 300))
    some[1] = Placed(1, 50, 600, 0, 1, eligible=False)
    assert target_read(some, UP, UP, 60).estimate is None
    assert target_read(some, UP, UP, 60).y == 300


def test_outside_is_said() -> None:
    """Beyond the fastest: not reached, and the nearest is named. Before the slowest: reached, but slower ones were not
    measured. At the very point: its own value, no estimate."""
    some = line((20, 900), (40, 700), (80, 300))
    assert target_read(some, UP, UP, 81) == TargetRead("not_reached", 81, nearest=2)
    below = target_read(some, UP, UP, 10)
    assert (below.floor, below.below_measured, below.estimate) == (0, True, None)
    exact = target_read(some, UP, UP, 40)
    assert (exact.floor, exact.x, exact.y, exact.estimate, exact.below_measured) == (1, 40, 700, None, False)
    assert target_read([], UP, UP, 1).state == "nothing"


def test_latency_turns_the_target_around() -> None:
    """x a latency: at most 3 s, throughput 50 was measured at 2 s; linear to (4 s, 80) gives 65 at 3 s."""
    found = target_read(line((2, 50), (4, 80)), DOWN, UP, 3)
    assert (found.floor, found.y, found.estimate) == (0, 50, Estimate(65, 0, 1))
    assert target_read(line((2, 50), (4, 80)), DOWN, UP, 1) == TargetRead("not_reached", 1, nearest=0)


def test_cost_at_a_speed_is_the_lowest() -> None:
    """y a cost: at 30 or faster the cheaper of 2.0 and 5.0."""
    some = [*line((31, 5.0)), *line((60, 2.0), number=1, first=1)]
    assert target_read(some, UP, DOWN, 30).y == 2.0


NUMBERS = st.floats(0.1, 1000) | st.integers(1, 9).map(float)
POINTS = st.lists(
    st.tuples(NUMBERS | st.none(), NUMBERS | st.none(), st.integers(0, 3), st.booleans()), max_size=25
)
WAYS = st.sampled_from([UP, DOWN])


@given(POINTS, WAYS, WAYS, NUMBERS, st.randoms(use_true_random=False))
def test_for_any_points(
    some: list[tuple[float | None, float | None, int, bool]],
    xs: Better,
    ys: Better,
    target: float,
    rng: object,
) -> None:
    """The floor reaches the target, nothing that reaches it is better, and the order of the points is nothing; an
    estimate lies between the values of its two ends, which belong to one line and enclose the target."""
    points = [Placed(i, x, y, group, i, ok) for i, (x, y, group, ok) in enumerate(some)]
    found = target_read(points, xs, ys, target)
    shuffled = list(points)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert target_read(shuffled, xs, ys, target) == found
    usable = [p for p in points if p.eligible and p.x is not None and p.y is not None]
    reach = [p for p in usable if (p.x >= target if xs is UP else p.x <= target)]  # type: ignore[operator]
    if reach:
        best = max(p.y for p in reach) if ys is UP else min(p.y for p in reach)  # type: ignore[type-var]
        assert found.y == best
        assert points[found.floor or 0] in reach
    else:
        assert found.floor is None and found.estimate is None
        assert found.state == ("not_reached" if usable else "nothing")
    if found.estimate is not None:
        low, high = points[found.estimate.low], points[found.estimate.high]
        assert low.line == high.line and low.eligible and high.eligible
        assert low.x < target < high.x  # type: ignore[operator]
        values = sorted([low.y or 0, high.y or 0])
        assert values[0] - 1e-6 <= found.estimate.y <= values[1] + 1e-6


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([20, 80], 40),
        ([13, 216], 50),
        ([118.34, 118.34], 118.34),
        ([], None),
        ([0.9, 1.1], 1),
        ([0, 10], 5),
        ([11.2, 11.4], 11.3),
    ],
)
def test_a_round_value_amid(values: list[float], expected: float | None) -> None:
    """sqrt(20 x 80) = 40; sqrt(13 x 216) = 53 -> 50; a single value is itself; never outside."""
    assert amid(values) == expected


def test_a_target_that_nobody_chose_has_no_spurious_digits() -> None:
    """Where nothing round lies amid a narrow front 48.7 as in every table; a chosen one as it was asked for."""
    x, y = "interactivity.p50", "total_tokens_per_s_per_gpu"
    points = [
        measured({"tpot_s.p50": 1 / speed, y: rate}, ref=str(speed))
        for speed, rate in ((48.661631, 10.0), (48.661632, 9.0))
    ]
    unasked = front_view(points, FrontOptions(x=x, y=y), "en").target
    assert unasked is not None and "At 48.7\u202ftok/s/user or better" in unasked.text
    asked = front_view(points, FrontOptions(x=x, y=y, target=48.6616), "en").target
    assert asked is not None and "At 48.6616\u202ftok/s/user or better" in asked.text
