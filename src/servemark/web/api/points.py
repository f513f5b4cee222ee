"""`/points/{ref}`: one point, where its figures come from, its requests, accuracy samples and logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from servemark.analysis.point_types import FigureWhy, PointView
from servemark.analysis.point_view import point_view
from servemark.analysis.point_why import figure_why, find_stored
from servemark.analysis.request_types import LogView, RequestView, SamplesView
from servemark.analysis.request_view import log_view, request_view, samples_view
from servemark.analysis.run_place import run_folder_of
from servemark.base.errors import ServemarkError
from servemark.store.imports import find_source
from servemark.web.api.base import REF, Param, Query, Route
from servemark.web.problems import Problem
from servemark.web.site import Context

FIGURE = Param("address", "serve.param.figure", required=True, pattern=r"[A-Za-z0-9_.:+\-]{1,120}", limit=120)
"""Any figure that a point may carry; also those of other tools, which are no axes."""
LOG = Param("name", "serve.param.log", required=True, pattern=r"logs/[A-Za-z0-9_./\-]{1,180}", limit=200)
_UNKNOWN = "analysis.point.unknown"
T = TypeVar("T")


def _known(read: Callable[[], T]) -> T:
    """What `read` gives; a point that is not there is 404 and no fault of the query."""
    try:
        return read()
    except ServemarkError as error:
        if error.key == _UNKNOWN:
            raise Problem(404, error.key, **error.values) from error
        raise


def _folder(ctx: Context, query: Query) -> Path:
    """The run folder of a point of ours; Problem 404 where its raw records are not here."""
    one = _known(lambda: find_stored(ctx.store, query.need("ref")))
    source = find_source(ctx.store, one.file)
    folder = run_folder_of(source, one, ctx.home.runs) if source is not None else None
    if folder is None:
        raise Problem(404, "analysis.requests.no_folder")
    return folder


def point(ctx: Context, query: Query) -> PointView:
    """Everything about one point."""
    return _known(
        lambda: point_view(ctx.store, ctx.raw, query.need("ref"), query.lang, runs=ctx.home.runs)
    )


def why(ctx: Context, query: Query) -> FigureWhy:
    """Where one figure comes from."""
    name, address = query.need("ref"), query.need("address")
    return _known(
        lambda: figure_why(ctx.store, ctx.raw, name, address, lang=query.lang, runs=ctx.home.runs)
    )


def requests(ctx: Context, query: Query) -> RequestView:
    """What the raw records show."""
    return request_view(_folder(ctx, query), query.lang)


def samples(ctx: Context, query: Query) -> SamplesView:
    """Accuracy samples."""
    return samples_view(_folder(ctx, query), query.lang)


def log(ctx: Context, query: Query) -> LogView:
    """The end of one log."""
    return log_view(_folder(ctx, query), query.need("name"), query.lang)


POINT = Route("/points/{ref}", "serve.api.point", point, path_params=(REF,), body=PointView)
WHY = Route(
    "/points/{ref}/why/{address}", "serve.api.why", why, path_params=(REF, FIGURE), body=FigureWhy
)
REQUESTS = Route(
    "/points/{ref}/requests", "serve.api.requests", requests, path_params=(REF,), body=RequestView
)
SAMPLES = Route("/points/{ref}/samples", "serve.api.samples", samples, path_params=(REF,), body=SamplesView)
LOGS = Route("/points/{ref}/logs", "serve.api.logs", log, (LOG,), path_params=(REF,), body=LogView)
ROUTES = (POINT, WHY, REQUESTS, SAMPLES, LOGS)
