"""`/facets`: what there is to choose from."""

from __future__ import annotations

from servemark.analysis.facets import columnar_facets, facets
from servemark.web.api.base import Param, Query, Route
from servemark.web.site import Context

PARAMS = (Param("model", "serve.param.model"), Param("scenario", "serve.param.scenario"))


def reply(ctx: Context, query: Query) -> object:
    """Counts of the newest complete runs, filters' values, axes, and where to begin."""
    found = facets(ctx.store, query.lang, model=query.text("model"), scenario=query.text("scenario"))
    return columnar_facets(found)


ROUTE = Route("/facets", "serve.api.facets", reply, PARAMS)
