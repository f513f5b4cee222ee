"""Every endpoint, one line a module."""

from __future__ import annotations

from servemark.web.api import facets, front, messages, metrics, openapi
from servemark.web.api.base import Route

_DESCRIBED: tuple[Route, ...] = (
    facets.ROUTE,
    front.ROUTE,
    front.CSV_ROUTE,
    front.ROWS_ROUTE,
    messages.ROUTE,
    metrics.ROUTE,
)
ROUTES: tuple[Route, ...] = (*_DESCRIBED, openapi.route_over(_DESCRIBED))
