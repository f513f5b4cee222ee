"""`/points/{ref}` and what lies behind it: why a figure is what it is, requests, samples of accuracy tasks, logs.

A client names a point and, for a log, one of the names that were listed for it; no path is made of what it says.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from servemark.analysis.bench_records import bench_request_view
from servemark.analysis.point_view import point_view
from servemark.analysis.point_why import figure_why, find_stored
from servemark.analysis.request_view import log_view, request_view, samples_view
from servemark.analysis.run_place import run_folder_of
from servemark.base.errors import ServemarkError
from servemark.store.imports import find_source
from servemark.web.api.base import REF, Body, Kind, Param, Query, Route
from servemark.web.depends import Depends
from servemark.web.problems import Problem
from servemark.web.site import Context

TEXT = "text/plain; charset=utf-8"
_LIMIT = Param("limit", "serve.param.samples", Kind.INTEGER, minimum=1, maximum=200)
_LOG = Param("name", "serve.param.log", required=True, limit=200)
_FIGURE = Param(
    "address", "serve.param.figure", required=True, pattern=r"[A-Za-z0-9_.:+\-]{1,120}", limit=120
)
"""Any figure that a point may carry; also those of other tools, which are no axes."""
SAMPLES = 40
T = TypeVar("T")


def _known(read: Callable[[], T]) -> T:
    """What `read` gives; a point that is not there is 404 and no fault of the query."""
    try:
        return read()
    except ServemarkError as error:
        if error.key == "analysis.point.unknown":
            raise Problem(404, error.key, point=str(error.values.get("point", ""))) from error
        raise


def point(ctx: Context, query: Query) -> object:
    """Everything about one point."""
    return _known(lambda: point_view(ctx.store, ctx.raw, query.need("ref"), query.lang, runs=ctx.home.runs))


def why(ctx: Context, query: Query) -> object:
    """Where one figure of it comes from."""
    name, address = query.need("ref"), query.need("address")
    return _known(lambda: figure_why(ctx.store, ctx.raw, name, address, lang=query.lang, runs=ctx.home.runs))


def requests(ctx: Context, query: Query) -> object:
    """Its raw records as histograms and lanes, with what engine and GPUs did meanwhile; or what another client listed."""
    one = _known(lambda: find_stored(ctx.store, query.need("ref")))
    source = find_source(ctx.store, one.file)
    listed = None if source is None else bench_request_view(ctx.raw, source, one, query.lang)
    return listed if listed is not None else request_view(_folder(ctx, query), query.lang)


def samples(ctx: Context, query: Query) -> object:
    """Its accuracy tasks with samples."""
    return samples_view(_folder(ctx, query), query.lang, query.integer("limit", SAMPLES))


def log(ctx: Context, query: Query) -> object:
    """The end of one of its run's logs."""
    return log_view(_folder(ctx, query), query.need("name"), query.lang)


def log_text(ctx: Context, query: Query) -> object:
    """The same as plain text."""
    found = log_view(_folder(ctx, query), query.need("name"), query.lang)
    return Body(f"{found.text}".encode("utf-8", "replace"), TEXT, "log.txt")


def _folder(ctx: Context, query: Query) -> Path:
    one = _known(lambda: find_stored(ctx.store, query.need("ref")))
    source = find_source(ctx.store, one.file)
    found = None if source is None else run_folder_of(source, one, ctx.home.runs)
    if found is None:
        raise Problem(404, "serve.no_records")
    return found


_PATH = (REF,)
ROUTES = (
    Route("/points/{ref}", "serve.api.point", point, path_params=_PATH),
    Route("/points/{ref}/why/{address}", "serve.api.why", why, path_params=(REF, _FIGURE)),
    Route("/points/{ref}/requests", "serve.api.requests", requests, path_params=_PATH),
    Route("/points/{ref}/samples", "serve.api.samples", samples, (_LIMIT,), _PATH),
    Route("/points/{ref}/logs", "serve.api.log", log, (_LOG,), _PATH, depends=Depends.NOTHING),
    Route(
        "/points/{ref}/logs.txt",
        "serve.api.log_text",
        log_text,
        (_LOG,),
        _PATH,
        depends=Depends.NOTHING,
        media=TEXT,
    ),
)
