"""Every endpoint, one line a module."""

from __future__ import annotations

from servemark.web.api import facets, front, messages, metrics, openapi, points
from servemark.web.api.base import Route

_DESCRIBED: tuple[Route, ...] = (
    facets.ROUTE,
    front.ROUTE,
    messages.ROUTE,
    metrics.ROUTE,
    *points.ROUTES,
)
ROUTES: tuple[Route, ...] = (*_DESCRIBED, openapi.route_over(_DESCRIBED))
