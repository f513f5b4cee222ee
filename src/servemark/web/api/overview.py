"""`/overview`: what there is, what came last, and what is wrong with it."""

from __future__ import annotations

from servemark.analysis.overview_view import overview_view
from servemark.web.api.base import Query, Route
from servemark.web.site import Context


def reply(ctx: Context, query: Query) -> object:
    """Where to look, newest runs, gates with how many points they doubt, rows without a point by reason, low accuracy."""
    return overview_view(ctx.store, query.lang)


ROUTE = Route("/overview", "serve.api.overview", reply)
