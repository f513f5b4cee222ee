"""Fronts and staircases: properties that hold for any points, and cases done by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemark.analysis.front import Candidate, Front, best_at_least, candidate_of, front
from servemark.analysis.staircase import staircase
from servemark.base.messages import LANGUAGES, text
from servemark.metrics.address import parse
from servemark.metrics.registry import Better

WAYS = (Better.HIGHER, Better.LOWER)
# A coarse grid makes ties in one or both coordinates common.
PLACES = st.integers(0, 6).map(float) | st.floats(-1e9, 1e9, allow_nan=False)
OFFERS = st.lists(st.tuples(PLACES | st.none(), PLACES | st.none(), st.booleans()), max_size=40)
DIRECTIONS = st.tuples(st.sampled_from(WAYS), st.sampled_from(WAYS))


def offered(points: list[tuple[float | None, float | None, bool]]) -> list[Candidate]:
    """Candidates with names, some of them not eligible."""
    return [
        Candidate(f"p{i}", x, y, "analysis.excluded.partial" if bad else None)
        for i, (x, y, bad) in enumerate(points)
    ]


def dominates(a: Candidate, b: Candidate, ways: tuple[Better, Better]) -> bool:
    """The definition, written down a second time and without sorting: as good in both, better in one."""
    assert a.x is not None
    assert a.y is not None
    assert b.x is not None
    assert b.y is not None
    pairs = [
        (p, q) if way is Better.HIGHER else (-p, -q)
        for p, q, way in ((a.x, b.x, ways[0]), (a.y, b.y, ways[1]))
    ]
    return all(p >= q for p, q in pairs) and any(p > q for p, q in pairs)


@given(points=OFFERS, ways=DIRECTIONS)
def test_front_is_exactly_the_points_that_nothing_dominates(
    points: list[tuple[float | None, float | None, bool]], ways: tuple[Better, Better]
) -> None:
    """Against the definition, point by point; every offered point is in exactly one of the three lists."""
    candidates = offered(points)
    result = front(candidates, *ways)
    valid = [c for c in candidates if c.reason is None and c.x is not None and c.y is not None]
    expected = {c.id for c in valid if not any(dominates(other, c, ways) for other in valid)}
    assert {c.id for c in result.on} == expected
    names = [c.id for c in (*result.on, *result.dominated, *result.excluded)]
    assert sorted(names) == sorted(c.id for c in candidates)
    for c in result.dominated:
        assert any(dominates(other, c, ways) for other in result.on)


@given(points=OFFERS, ways=DIRECTIONS, data=st.data())
def test_front_does_not_depend_on_order_and_is_idempotent(
    points: list[tuple[float | None, float | None, bool]], ways: tuple[Better, Better], data: st.DataObject
) -> None:
    """Any permutation gives the same front; the front of a front is itself."""
    candidates = offered(points)
    result = front(candidates, *ways)
    assert front(data.draw(st.permutations(candidates)), *ways).on == result.on
    again = front(result.on, *ways)
    assert again.on == result.on
    assert again.dominated == ()


@given(points=OFFERS, ways=DIRECTIONS)
def test_along_a_front_better_x_costs_y(
    points: list[tuple[float | None, float | None, bool]], ways: tuple[Better, Better]
) -> None:
    """x ascends, and between points of different x the y moves the way that the trade-off says."""
    on = front(offered(points), *ways).on
    for a, b in itertools.pairwise(on):
        assert a.x is not None
        assert b.x is not None
        assert a.x <= b.x
        if a.x == b.x:
            assert a.y == b.y
        else:
            assert not dominates(a, b, ways)
            assert not dominates(b, a, ways)


@given(points=OFFERS, ways=DIRECTIONS, target=PLACES)
def test_staircase_is_the_edge_of_what_was_reached(
    points: list[tuple[float | None, float | None, bool]], ways: tuple[Better, Better], target: float
) -> None:
    """At any x between its ends, the staircase lies at the y of the best measured point that reaches that
    x."""
    result = front(offered(points), *ways)
    path = staircase(result)
    for (x0, y0), (x1, y1) in itertools.pairwise(path):
        assert x0 == x1 or y0 == y1
        assert x0 <= x1
    best = best_at_least(result, target)
    reaching = [
        c
        for c in result.on
        if c.x is not None and (c.x >= target if ways[0] is Better.HIGHER else c.x <= target)
    ]
    if best is None:
        assert not reaching
        return
    values = [c.y for c in reaching if c.y is not None]
    assert best.y == (max(values) if ways[1] is Better.HIGHER else min(values))
    for (x0, y0), (x1, y1) in itertools.pairwise(path):
        if x0 < target < x1:
            assert y0 == y1 == best.y


def xy(*points: tuple[float, float]) -> list[Candidate]:
    """Eligible candidates named by place."""
    return [Candidate(str(i), x, y) for i, (x, y) in enumerate(points)]


def test_by_hand() -> None:
    """Points (20,900) (40,700) (80,300) and a dominated (30,600): at 60 the measured floor is 300."""
    result = front(xy((20, 900), (40, 700), (80, 300), (30, 600)), Better.HIGHER, Better.HIGHER)
    assert [(c.x, c.y) for c in result.on] == [(20, 900), (40, 700), (80, 300)]
    assert [(c.x, c.y) for c in result.dominated] == [(30, 600)]
    floor = best_at_least(result, 60)
    assert floor is not None
    assert floor.y == 300
    assert best_at_least(result, 81) is None
    assert staircase(result) == ((20, 900), (20, 700), (40, 700), (40, 300), (80, 300))
    wide = staircase(result, ((0, 0), (100, 1000)))
    assert wide[0] == (0, 900)
    assert wide[-1] == (80, 0)


def test_lower_x_is_better_by_hand() -> None:
    """Latency against throughput: to the right of a point its throughput stays attainable."""
    result = front(xy((1, 100), (2, 300), (4, 500), (3, 200)), Better.LOWER, Better.HIGHER)
    assert staircase(result) == ((1, 100), (2, 100), (2, 300), (4, 300), (4, 500))
    reached = [best_at_least(result, target) for target in (0.9, 1, 2, 3.9, 4, 99)]
    assert [c.y if c else None for c in reached] == [None, 100, 300, 300, 500, 500]
    wide = staircase(result, ((0, 0), (10, 1000)))
    assert wide[0] == (1, 0)
    assert wide[-1] == (10, 500)


def test_ties_stand_together() -> None:
    """Equal in both: both on the front, one vertex. Equal in one: the better other one wins."""
    result = front(xy((1, 5), (1, 5), (1, 4), (0.5, 5)), Better.HIGHER, Better.HIGHER)
    assert [c.id for c in result.on] == ["0", "1"]
    assert len(result.dominated) == 2
    assert staircase(result) == ((1, 5),)


def test_nothing_and_no_direction() -> None:
    """No points: no front, no path. A metric without a better way cannot have one."""
    empty = front([], Better.HIGHER, Better.LOWER)
    assert empty == Front(Better.HIGHER, Better.LOWER, (), (), ())
    assert staircase(empty) == ()
    assert best_at_least(empty, 1) is None
    with pytest.raises(ValueError, match="better"):
        front([], Better.NEITHER, Better.HIGHER)


ROW = {
    "run_id": "r",
    "status": "complete",
    "window_s": 10.0,
    "tokens": {"input": 10, "output": 1000},
    "counts": {"ok": 9, "error": 1, "timeout": 0, "incomplete": 0, "cancelled": 0},
    "distributions": {"tpot_s": {"p50": 0.02}},
}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),  # exactly 10 % failed: still eligible
        ({"status": "partial"}, "analysis.excluded.partial"),
        ({"counts": {**ROW["counts"], "timeout": 1}}, "analysis.excluded.errors"),  # type: ignore[dict-item]
        (
            {"counts": {"ok": 0, "error": 0, "timeout": 0, "incomplete": 0, "cancelled": 0}},
            "analysis.excluded.no_request",
        ),
        ({"distributions": {}}, "analysis.excluded.absent"),
        ({"tokens": {"output": None}}, "analysis.excluded.absent"),
        ({"window_s": None}, "analysis.excluded.absent"),
    ],
)
def test_a_row_that_may_not_stand_on_a_front_says_why(changed: dict[str, object], reason: str | None) -> None:
    """Missing is a reason, not a zero; so are an early end and too many failures."""
    found = candidate_of({**ROW, **changed}, parse("interactivity.p50"), parse("output_tokens_per_s"))
    assert found.reason == reason
    if reason is None:
        assert (found.x, found.y) == (50.0, 100.0)
        return
    for lang in LANGUAGES:
        values = dict(found.values)
        assert "{" not in text(reason, lang, **values)
    result = front([found, replace(found, id="ok", x=1.0, y=1.0, reason=None)], Better.HIGHER, Better.HIGHER)
    assert [c.id for c in result.on] == ["ok"]
    assert [c.id for c in result.excluded] == ["r"]
