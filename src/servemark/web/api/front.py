"""`/front`: fronts of a selection in columns, as charts and tables take them."""

from __future__ import annotations

from servemark.web.api.axis import axis_info
from servemark.web.api.base import OVERLAY, Kind, Param, Query, Route
from servemark.web.site import Context

PARAMS = (
    Param("x", "serve.param.x", Kind.ADDRESS, limit=120),
    Param("y", "serve.param.y", Kind.ADDRESS, limit=120),
    Param("target", "serve.param.target", Kind.NUMBER),
    Param("cols", "serve.param.cols", Kind.ADDRESSES, limit=16),
    OVERLAY,
)
X, Y = "interactivity.p50", "total_tokens_per_s_per_gpu"


def reply(ctx: Context, query: Query) -> object:
    """The columns of the points that are selected."""
    x, y = query.text("x") or X, query.text("y") or Y
    points = [*ctx.select(query.selection), *ctx.overlay(query.text("overlay"))]
    pairs = [(each, each.value(x), each.value(y)) for each in points]
    return {
        "selection": {word.partition("=")[0]: word.partition("=")[2] for word in query.selection.words()},
        "x": axis_info(x, query.lang),
        "y": axis_info(y, query.lang),
        "series": [],
        "lines": [],
        "columns": {
            "ref": [each.ref for each, _, _ in pairs],
            "key": [each.point_key for each, _, _ in pairs],
            "concurrency": [each.concurrency for each, _, _ in pairs],
            "state": ["absent" if a is None or b is None else "dominated" for _, a, b in pairs],
            "x": [a for _, a, _ in pairs],
            "y": [b for _, _, b in pairs],
            "official": [each.official for each, _, _ in pairs],
        },
        "more": [],
        "values": {},
        "reasons": [],
        "left_out": [],
        "front": {"on": [], "path": []},
        "findings": [],
        "target": None,
        "notes": [],
    }


ROUTE = Route("/front", "serve.api.front", reply, PARAMS, selection=True)
