"""Two curves over the range of x that both cover: how far apart on the average, and who is ahead where.

A line is straight between neighbouring measured points of its own and ends with them; a front is its staircase. The mean is
that of ln(y_B / y_A) over x. Its noise comes from redrawing every point's x and y, each with its own relative spread, and
reading the curves again. All points of one line move together, since what was different about a run is different for all of
it (cautious: independent errors would average out); x and y move independently (cautious where both rise together). The
draws hang on the line alone, so that a curve against itself differs by nothing and B against A mirrors A against B.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import fmean
from typing import Literal

from servemark.analysis.compare_judge import ALPHA, Test
from servemark.analysis.compare_types import Section
from servemark.analysis.front import Candidate, front
from servemark.analysis.staircase import Vertex, staircase
from servemark.analysis.student import t_quantile, t_tail
from servemark.metrics.registry import Better

Kind = Literal["line", "front"]
CELLS = 32
"""Parts of the common range in which curves are read, at least."""
DRAWS = 100
MAX_KNOTS = 5_000


@dataclass(frozen=True, slots=True)
class Knot:
    """One measured point of a curve: its place, the relative standard deviations of both figures, and the line that it
    belongs to."""

    ref: str
    x: float
    y: float
    sd_x: float = 0.0
    sd_y: float = 0.0
    line: str = ""


@dataclass(frozen=True, slots=True)
class Axes:
    """Which way is better along each axis."""

    x: Better
    y: Better


@dataclass(frozen=True, slots=True)
class CurveTest:
    """The common range, the test of the mean, and its sections by who is ahead."""

    low: float
    high: float
    test: Test
    sections: tuple[Section, ...]


def path_of(knots: Sequence[Knot], kind: Kind, axes: Axes) -> tuple[Vertex, ...]:
    """The vertices that draw a curve, x ascending."""
    if kind == "line":
        return tuple((each.x, each.y) for each in _merged(knots))
    on = front((Candidate(each.ref, each.x, each.y) for each in knots), axes.x, axes.y)
    return staircase(on)


def common_range(a: Sequence[Knot], b: Sequence[Knot], kind: Kind, axes: Axes) -> tuple[float, float] | None:
    """The x that both curves cover; None where they meet in one place at most."""
    paths = [path_of(side, kind, axes) for side in (a, b)]
    if not all(paths):
        return None
    low, high = max(path[0][0] for path in paths), min(path[-1][0] for path in paths)
    return (low, high) if high > low else None


def compare_curves(
    a: Sequence[Knot], b: Sequence[Knot], kind: Kind, axes: Axes, *, df: float, min_effect: float
) -> CurveTest | None:
    """Both curves over their common range; None without one. `df`: the degrees of freedom of the noise."""
    shared = common_range(a, b, kind, axes)
    if shared is None:
        return None
    a, b = a[:MAX_KNOTS], b[:MAX_KNOTS]
    cells = _cells(a, b, kind, axes, shared)
    middles = [(left + right) / 2 for left, right in cells]
    widths = [right - left for left, right in cells]
    identical = {each.ref for each in a} == {each.ref for each in b}
    if identical:
        return _no_difference(shared, len(a), min_effect)
    apart = _apart(a, b, kind, axes, middles)
    drawn = [_apart(one, other, kind, axes, middles) for one, other in zip(_draws(a), _draws(b), strict=True)]
    mean = _mean(apart, widths)
    spread = _sd([_mean(each, widths) for each in drawn])
    quantile = t_quantile(ALPHA, df)
    p = t_tail(mean / spread, df) if spread > 0 else 1.0 if mean == 0 else 0.0
    test = Test(
        "ratio", 1.0, math.exp(mean), len(a), len(b), mean, mean - quantile * spread, mean + quantile * spread,
        p, spread, df, math.log1p(min_effect),
    )  # fmt: skip
    limits = [max(quantile * _sd([each[i] for each in drawn]), test.min_effect) for i in range(len(middles))]
    sign = 1.0 if axes.y is Better.HIGHER else -1.0
    return CurveTest(*shared, test, _sections(cells, apart, limits, sign))


def _no_difference(shared: tuple[float, float], points: int, min_effect: float) -> CurveTest:
    """A curve against itself."""
    test = Test(
        "ratio", 1.0, 1.0, points, points, 0.0, 0.0, 0.0, 1.0, 0.0, math.inf, math.log1p(min_effect), identical=True
    )  # fmt: skip
    return CurveTest(*shared, test, (Section(*shared, "neither", 0.0),))


def _sections(
    cells: Sequence[tuple[float, float]], apart: Sequence[float], limits: Sequence[float], sign: float
) -> tuple[Section, ...]:
    """Neighbouring cells with one winner, joined."""
    named: list[Literal["a", "b", "neither"]] = [
        "neither" if abs(value) <= limit else "b" if value * sign > 0 else "a"
        for value, limit in zip(apart, limits, strict=True)
    ]
    found = []
    for winner, some in groupby(range(len(cells)), key=lambda place: named[place]):
        places = list(some)
        widths = [cells[i][1] - cells[i][0] for i in places]
        mean = _mean([apart[i] for i in places], widths)
        found.append(Section(cells[places[0]][0], cells[places[-1]][1], winner, 100 * math.expm1(mean)))
    return tuple(found)


def _cells(
    a: Sequence[Knot], b: Sequence[Knot], kind: Kind, axes: Axes, shared: tuple[float, float]
) -> list[tuple[float, float]]:
    """The common range cut at every knot and crossing, and further to at least CELLS parts."""
    low, high = shared
    cuts = {low, high} | {each.x for each in (*a, *b) if low < each.x < high}
    if kind == "line":
        read_a, read_b = _reader(a, kind, axes), _reader(b, kind, axes)
        for left, right in pairwise(sorted(cuts)):
            gap, next_gap = read_b(left) - read_a(left), read_b(right) - read_a(right)
            if gap * next_gap < 0:
                cuts.add(left + (right - left) * gap / (gap - next_gap))
    cells = []
    for left, right in pairwise(sorted(cuts)):
        parts = max(1, math.ceil(CELLS * (right - left) / (high - low)))
        edges = [left + (right - left) * i / parts for i in range(parts)] + [right]
        cells += [(one, other) for one, other in pairwise(edges) if other > one]
    return cells


def _apart(
    a: Sequence[Knot], b: Sequence[Knot], kind: Kind, axes: Axes, places: Sequence[float]
) -> list[float]:
    """ln(y_B / y_A) at each x."""
    read_a, read_b = _reader(a, kind, axes), _reader(b, kind, axes)
    return [math.log(read_b(x) / read_a(x)) for x in places]


def _reader(knots: Sequence[Knot], kind: Kind, axes: Axes) -> Callable[[float], float]:
    """y at an x; beyond its ends (which only redrawn curves are asked for) the value of the end."""
    if kind == "line":
        path = path_of(knots, kind, axes)
    else:
        on = front((Candidate(each.ref, each.x, each.y) for each in knots), axes.x, axes.y).on
        path = tuple((each.x, each.y) for each in on if each.x is not None and each.y is not None)
    xs = [x for x, _ in path]

    def line(x: float) -> float:
        place = bisect.bisect_left(xs, x)
        if place == 0 or place == len(xs):
            return path[min(place, len(xs) - 1)][1]
        (x0, y0), (x1, y1) = path[place - 1], path[place]
        return y0 + (y1 - y0) * (x - x0) / (x1 - x0)

    def reaching(x: float) -> float:  # the nearest point that is at least as good in x
        place = bisect.bisect_left(xs, x) if axes.x is Better.HIGHER else bisect.bisect_right(xs, x) - 1
        return path[min(max(place, 0), len(xs) - 1)][1]

    return line if kind == "line" else reaching


def _merged(knots: Sequence[Knot]) -> list[Knot]:
    """Knots by x; those at one x become one, with the mean of y."""
    ordered = sorted(knots, key=lambda each: (each.x, each.ref))
    found = []
    for _, some in groupby(ordered, key=lambda each: each.x):
        alike = list(some)
        first = alike[0]
        found.append(Knot(first.ref, first.x, fmean(each.y for each in alike), first.sd_x, first.sd_y))
    return found


def _draws(knots: Sequence[Knot]) -> list[list[Knot]]:
    """DRAWS times the curve with every line moved."""
    moves: dict[str, list[tuple[float, float]]] = {}
    for each in knots:
        if each.line not in moves:
            dice = random.Random(each.line)  # noqa: S311 - the same draws each time, no secret
            moves[each.line] = [(dice.gauss(0, 1), dice.gauss(0, 1)) for _ in range(DRAWS)]
    found = []
    for draw in range(DRAWS):
        row = []
        for each in knots:
            dx, dy = moves[each.line][draw]
            row.append(Knot(each.ref, each.x * math.exp(each.sd_x * dx), each.y * math.exp(each.sd_y * dy)))
        found.append(row)
    return found


def _mean(values: Sequence[float], widths: Sequence[float]) -> float:
    return math.fsum(value * width for value, width in zip(values, widths, strict=True)) / math.fsum(widths)


def _sd(values: Sequence[float]) -> float:
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
