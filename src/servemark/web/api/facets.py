"""`/facets`: what there is to choose from."""

from __future__ import annotations

from servemark.analysis.facets import columnar_facets, facets
from servemark.web.api.base import Query, Route
from servemark.web.api.card import find_card
from servemark.web.site import Context


def reply(ctx: Context, query: Query) -> object:
    """Counts of the newest complete runs, filters' values, axes, and where to begin."""
    costs = find_card(ctx, None) is not None
    found = facets(ctx.store, query.lang, chosen=query.selection, costs=costs)
    return columnar_facets(found)


ROUTE = Route("/facets", "serve.api.facets", reply, selection=True)
