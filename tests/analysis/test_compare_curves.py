"""Curves over their common range: worked by hand."""

from __future__ import annotations

import math

import pytest
from tests.analysis.compare_points import point

from servemark.analysis.compare import CompareOptions, compare
from servemark.analysis.compare_curves import Axes, CurveTest, Kind, Knot, common_range, compare_curves
from servemark.analysis.noise import noise_model
from servemark.metrics.registry import Better

UP = Axes(Better.HIGHER, Better.HIGHER)


def knots(*places: tuple[float, float], sd: float = 0.0, line: str = "l") -> list[Knot]:
    return [Knot(f"{line}{x}", x, y, sd, sd, line) for x, y in places]


def judged(a: list[Knot], b: list[Knot], kind: Kind = "line", axes: Axes = UP) -> CurveTest:
    found = compare_curves(a, b, kind, axes, df=math.inf, min_effect=0.02)
    assert found is not None
    return found


def test_a_constant_ratio_over_the_common_range() -> None:
    """B is 1.1 A wherever both are: +10 % from 20 to 60, whatever lies beyond."""
    a = knots((10, 100), (20, 90), (60, 50))
    b = knots((20, 99), (60, 55), (80, 33), line="b")
    found = judged(a, b)
    assert (found.low, found.high) == (20, 60)
    assert found.test.effect == pytest.approx(math.log(1.1))
    assert [(each.low, each.high, each.winner) for each in found.sections] == [(20, 60, "b")]


def test_curves_that_cross() -> None:
    """100 -> 50 against 50 -> 100 cross in the middle, 15: A ahead before, B after, mean 0."""
    found = judged(knots((10, 100), (20, 50)), knots((10, 50), (20, 100), line="b"))
    assert found.test.effect == pytest.approx(0, abs=1e-9)
    winners = [
        (each.winner, round(each.low, 1), round(each.high, 1))
        for each in found.sections
        if each.winner != "neither"
    ]
    assert winners[0][:2] == ("a", 10)
    assert winners[-1][0] == "b" and winners[-1][2] == 20
    assert winners[0][2] == pytest.approx(15, abs=0.4)


def test_fronts_are_steps() -> None:
    """A reaches (20, 900) (40, 700); B (20, 900) (30, 800) (40, 770). At 20 both 900; to 30 A 700 and
    B 800; to 40 A 700 and B 770: the mean of ln(8/7) and ln(1.1), each over half."""
    a, b = knots((20, 900), (40, 700)), knots((20, 900), (30, 800), (40, 770), line="b")
    found = judged(a, b, "front")
    assert found.test.effect == pytest.approx((math.log(800 / 700) + math.log(1.1)) / 2)
    dominated = [*b, Knot("x", 25, 10, line="b")]
    assert judged(a, dominated, "front").test.effect == pytest.approx(found.test.effect)


def test_lower_is_better_along_x() -> None:
    """Latency against rate: within (2 s, 300) (4 s, 700) a target of 3 s is met by the first alone."""
    axes = Axes(Better.LOWER, Better.HIGHER)
    found = judged(knots((2, 300), (4, 700)), knots((2, 330), (4, 700), line="b"), "front", axes)
    assert found.test.effect == pytest.approx(math.log(1.1))


def test_no_common_range() -> None:
    assert common_range(knots((1, 1), (2, 1)), knots((3, 1), (4, 1)), "line", UP) is None
    assert common_range(knots((1, 1), (2, 1)), knots((2, 1), (3, 1)), "line", UP) is None


def test_noise_of_one_line_moves_it_as_a_whole() -> None:
    """Flat lines with 5 % noise in y: the mean of many points is as unsure as one, 0.05 √2 for two lines."""
    flat = [(float(x), 100.0) for x in range(10, 60, 2)]
    a = [Knot(f"a{x}", x, y, 0.0, 0.05, "a") for x, y in flat]
    b = [Knot(f"b{x}", x, y * 1.04, 0.0, 0.05, "b") for x, y in flat]
    found = judged(a, b)
    assert found.test.spread == pytest.approx(0.05 * math.sqrt(2), rel=0.2)  # of 100 draws
    assert [each.winner for each in found.sections] == ["neither"]


def test_a_comparison_draws_lines_and_fronts() -> None:
    """The same arm with a new image, 20 % better at every load, with another set of loads."""
    a = [point("a", 800 / c, interactivity=10.0 * c, concurrency=9 - c) for c in (1, 2, 3, 4)]
    b = [point("b", 960 / c, interactivity=10.0 * c, concurrency=19 - c, image="img:2") for c in (1, 2, 3, 4)]
    quiet = noise_model([])
    view = compare(a, b, CompareOptions(x="interactivity.p50"), noise=quiet)
    assert view.pairs == ()
    assert [curve.kind for curve in view.curves] == ["line", "front"]
    for curve in view.curves:
        assert curve.low == pytest.approx(10)
        assert curve.high == pytest.approx(40)
        assert curve.mean_percent == pytest.approx(20, abs=0.01)
        assert curve.verdict == "better"
    apart = compare(a, [point("b", 5, interactivity=500.0 + c, concurrency=c) for c in (1, 2)])
    assert {curve.verdict for curve in apart.curves} == {"absent"}
    assert "501" in (apart.curves[0].reason or "")
