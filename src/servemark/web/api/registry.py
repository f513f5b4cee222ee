"""Every endpoint, one line a module."""

from __future__ import annotations

from servemark.web.api import (
    compare,
    costs,
    facets,
    front,
    history,
    messages,
    metrics,
    openapi,
    overview,
    points,
    reliability,
    suites,
    sweeps,
)
from servemark.web.api.base import Route

_DESCRIBED: tuple[Route, ...] = (
    overview.ROUTE,
    facets.ROUTE,
    front.ROUTE,
    front.CSV_ROUTE,
    front.ROWS_ROUTE,
    compare.ROUTE,
    *points.ROUTES,
    *costs.ROUTES,
    history.ROUTE,
    reliability.ROUTE,
    *sweeps.ROUTES,
    *suites.ROUTES,
    messages.ROUTE,
    metrics.ROUTE,
)
ROUTES: tuple[Route, ...] = (*_DESCRIBED, openapi.route_over(_DESCRIBED))
