"""`/compare`: what really differs between two sides of the store, or between one and an overlay."""

from __future__ import annotations

from dataclasses import replace

from servemark.analysis.compare import CompareOptions, compare
from servemark.analysis.compare_sides import Side, fields_named, in_words, side_in_words
from servemark.analysis.measured import Measured
from servemark.analysis.selection import Selection, matches
from servemark.base.errors import input_error
from servemark.web.api.base import Kind, Param, Query, Route
from servemark.web.problems import Problem
from servemark.web.site import Context

MAX_POINTS = 5_000
"""On either side."""
MAX_LEFT = 200
"""Points without a partner that are told on either side."""
OVERLAY_SIDE = "overlay:"
PARAMS = (
    Param("a", "compare.api.side", required=True),
    Param("b", "compare.api.side", required=True),
    Param("by", "compare.api.by", pattern=r"[a-z,]{1,80}"),
    Param("metrics", "compare.api.metrics", Kind.ADDRESSES, limit=16),
    Param("x", "serve.param.x", Kind.ADDRESS, limit=120),
    Param("y", "serve.param.y", Kind.ADDRESS, limit=120),
    Param("min_effect", "compare.api.min_effect", Kind.NUMBER, minimum=0, maximum=1000),
)


def reply(ctx: Context, query: Query) -> object:
    """The comparison; further selection keys narrow both sides."""
    a, b = (_side(ctx, query, query.need(name)) for name in ("a", "b"))
    by = query.text("by")
    percent = query.number("min_effect")
    usual = CompareOptions()
    options = CompareOptions(
        query.addresses("metrics") or None,
        (by,) if by else fields_named(a, b),
        usual.min_effect if percent is None else percent / 100,
        query.text("x") or "",
        query.text("y") or "",
        a.label,
        b.label,
    )
    view = compare(a.points, b.points, options, ctx.noise().apart(a.points, b.points), query.lang)
    return replace(view, left_a=view.left_a[:MAX_LEFT], left_b=view.left_b[:MAX_LEFT])


def _side(ctx: Context, query: Query, words: str) -> Side:
    def select(chosen: Selection) -> list[Measured]:
        found = ctx.select(chosen)
        if len(found) > MAX_POINTS:
            raise Problem(400, "serve.many_points", points=len(found), limit=MAX_POINTS)
        return found

    if words.startswith(OVERLAY_SIDE):
        points = ctx.overlay(words.removeprefix(OVERLAY_SIDE))
        return Side(words, tuple(point for point in points if matches(point, query.selection)))
    if not in_words(words):
        raise input_error("compare.no_words", side=words[:80])
    return side_in_words(words, query.selection.words(), select)


ROUTE = Route("/compare", "compare.api", reply, PARAMS, selection=True)
