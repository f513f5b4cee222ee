"""Figures that share their shape are, to everybody who reads them, the dict of figures that they stand for."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.results.figures import Figure, Figures, FigureShape, with_more
from servemark.results.gates.registry import contexts, judge, judge_all
from servemark.results.importers.inferencex_map import map_row
from servemark.results.point import Point, point_json

SHAPE = FigureShape([("ttft_s.p50", "d", "/a"), ("e2el_s.p50", "d", "/b")])
PLAIN = {"ttft_s.p50": Figure(0.1, "d", "/a"), "e2el_s.p50": Figure(2.0, "d", "/b")}
PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "data" / "results" / "published-2026-06"


def test_as_a_dict() -> None:
    """Equality both ways, order, look-ups, what is absent, copies; against the dict itself."""
    figures = Figures(SHAPE, (0.1, 2.0))
    assert figures == PLAIN
    assert PLAIN == figures  # noqa: SIM300 - the other way
    assert figures != {**PLAIN, "ttft_s.p50": Figure(0.2, "d", "/a")}
    assert list(figures.items()) == list(PLAIN.items())
    assert figures.keys() & {"e2el_s.p50", "x"} == {"e2el_s.p50"}
    assert "x" not in figures
    assert (figures.get("x"), figures.get("x", 3), len(figures)) == (None, 3, 2)
    with pytest.raises(KeyError):
        figures["x"]
    assert {**figures} == PLAIN == pickle.loads(pickle.dumps(figures)) == copy.deepcopy(figures)  # noqa: S301 - ours
    assert repr(figures) == repr(PLAIN)


def test_with_more() -> None:
    """What is added stands after them, with what was done to it; one of an address that is there takes its place."""
    more = {"x": Figure(4.0, "e", "/c", 8.0, "/ 2"), "y": Figure(1.0, "e", "/d")}
    figures = with_more(Figures(SHAPE, (0.1, 2.0)), more)
    assert isinstance(figures, Figures)
    assert list(figures.items()) == list({**PLAIN, **more}.items())
    assert dict(with_more(figures, {"z": Figure(2.0, "e", "/e")}))["x"] == more["x"]
    other = {"ttft_s.p50": Figure(9.0, "d", "/z")}
    assert dict(with_more(Figures(SHAPE, (0.1, 2.0)), other)) == {**PLAIN, **other}
    assert with_more(PLAIN, more) == {**PLAIN, **more}
    again = with_more(Figures(SHAPE, (0.3, 3.0)), more)
    assert isinstance(again, Figures)
    assert again.shape is figures.shape


def _published(name: str) -> list[Point]:
    if not PUBLISHED.is_dir():
        pytest.skip("no published rows here")
    rows = json.loads((PUBLISHED / name).read_bytes())
    return [found for row in rows if isinstance(found := map_row(row, {}, name), Point)]


@pytest.mark.corpus
def test_published_rows_are_read_alike() -> None:
    """Points with shared shapes and the same points with dicts: JSON, and every finding of every gate."""
    points = _published("benchmarks-history.json")[:600]
    assert sum(isinstance(point.figures, Figures) for point in points) > 500
    plain = [replace(point, figures=dict(point.figures)) for point in points]
    assert list(map(point_json, points)) == list(map(point_json, plain))
    assert judge_all(points) == judge_all(plain)


@pytest.mark.corpus
def test_changed_rows_together_and_alone() -> None:
    """Each figure of published rows moved across the limits of the gates: asked in columns, every gate says of each row
    what it says of it alone."""
    factors = (
        0.0,
        0.6,
        0.9,
        0.949,
        0.951,
        0.99,
        0.999,
        1.0011,
        1.011,
        1.049,
        1.051,
        1.1,
        1.26,
        1.51,
        2.0,
        3.1,
        1e4,
    )
    points = []
    for number, point in enumerate(_published("benchmarks-history.json")[::2]):
        found = point.figures
        if not isinstance(found, Figures):
            continue
        place, factor = number % len(found), factors[number % len(factors)]
        numbers = (*found.numbers[:place], found.numbers[place] * factor, *found.numbers[place + 1 :])
        figures = Figures(found.shape, numbers, found.stated, found.hows)
        points.append(replace(point, figures=figures))
    assert len(points) > 500
    alone = [judge(point, context) for point, context in zip(points, contexts(points), strict=True)]
    assert judge_all(points) == alone
