"""`/front`: fronts of a selection in columns, as charts and tables take them; `/front.csv` and `/front.json`: its rows, as
files."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from servemark.analysis.columnar import columnar, flat_rows
from servemark.analysis.front_csv import front_csv
from servemark.analysis.front_types import FrontOptions, FrontView
from servemark.analysis.front_view import front_view
from servemark.web.api.base import JSON, OVERLAY, Body, Kind, Param, Query, Route
from servemark.web.api.card import CARD, find_card
from servemark.web.site import Context

MAX_POINTS = 25_000
"""More than a chart can show; who asks for more is asked to choose."""
CSV = "text/csv; charset=utf-8"
PARAMS = (
    Param("x", "serve.param.x", Kind.ADDRESS, limit=120),
    Param("y", "serve.param.y", Kind.ADDRESS, limit=120),
    Param("target", "serve.param.target", Kind.NUMBER),
    Param("cols", "serve.param.cols", Kind.ADDRESSES, limit=16),
    CARD,
    OVERLAY,
)


def reply(ctx: Context, query: Query) -> object:
    """The columns of the points that are selected."""
    return columnar(view_of(ctx, query))


def view_of(ctx: Context, query: Query) -> FrontView:
    """What `analysis` says of the selection."""
    points = ctx.for_front(query.selection, MAX_POINTS)
    overlay = ctx.overlay(query.text("overlay"))
    if overlay:
        points = points.beside(overlay)
    columns = query.addresses("cols")
    options = FrontOptions(
        x=query.text("x") or "",
        y=query.text("y") or "",
        noise=ctx.noise(),
        target=query.number("target"),
        extra=columns or None,
        selection=query.selection,
        card=find_card(ctx, query.text("card")),
    )
    return front_view(points, options, query.lang)


def reply_csv(ctx: Context, query: Query) -> object:
    """One line a point; text that a spreadsheet would run as a formula begins with an apostrophe."""
    held = front_csv(view_of(ctx, query), "\r\n")
    return Body(held.encode("utf-8", "replace"), CSV, "servemark-front.csv")


def reply_rows(ctx: Context, query: Query) -> object:
    """One object a point, with full numbers."""
    return Body(msgspec.json.encode(flat_rows(view_of(ctx, query))), JSON, "servemark-front.json")


ROUTE = Route("/front", "serve.api.front", reply, PARAMS, selection=True)
CSV_ROUTE = replace(ROUTE, path="/front.csv", summary="serve.api.front_csv", reply=reply_csv, media=CSV)
ROWS_ROUTE = replace(
    ROUTE, path="/front.json", summary="serve.api.front_json", reply=reply_rows, list_body=True
)
