"""`/metrics`: every figure that may be an axis or a column."""

from __future__ import annotations

from servemark.analysis.axes import axis_info
from servemark.metrics.address import all_addresses, parse
from servemark.web.api.base import Query, Route
from servemark.web.depends import Depends
from servemark.web.site import Context


def reply(ctx: Context, query: Query) -> object:
    """Label, unit, direction, definition and formula of each address."""
    del ctx
    return {"metrics": [axis_info(parse(address), query.lang) for address in all_addresses()]}


ROUTE = Route("/metrics", "serve.api.metrics", reply, depends=Depends.PROGRAM)
