"""`/sweeps`: what sweeps of this home are doing. Ask again every few seconds: an answer that has not changed costs a 304."""

from __future__ import annotations

from servemark.store.sweep_rows import SweepRow
from servemark.store.sweeps import SweepStore
from servemark.web.api.base import Param, Query, Route
from servemark.web.depends import Depends
from servemark.web.problems import Problem
from servemark.web.site import Context

_PRIVATE = ("folder", "holder")
"""Of this machine."""
_LONG = ("points", "attempts")
MAX_SWEEPS = 100
ID = Param("id", "serve.param.sweep", required=True, pattern=r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}", limit=120)


def reply(ctx: Context, query: Query) -> object:
    """Every sweep with its counts, the newest first."""
    del query
    store = SweepStore.read(ctx.home.sweeps)
    if store is None:
        return {"sweeps": []}
    with store:
        some = store.sweeps()[-MAX_SWEEPS:]
        found = [_status(ctx, one, store) for one in reversed(some)]
    return {"sweeps": [_without(each, (*_PRIVATE, *_LONG)) for each in found]}


def reply_one(ctx: Context, query: Query) -> object:
    """One sweep with its points and attempts."""
    store = SweepStore.read(ctx.home.sweeps)
    if store is not None:
        with store:
            one = store.sweep(query.need("id"))
            if one is not None:
                return _without(_status(ctx, one, store), _PRIVATE)
    raise Problem(404, "serve.no_sweep", name=query.need("id"))


def _status(ctx: Context, one: SweepRow, store: SweepStore) -> dict[str, object]:
    from servemark.runs.sweep_status import read_status, status_json  # noqa: PLC0415 - brings all that runs sweeps

    return status_json(read_status(ctx.home, one, store), ctx.home)


def _without(body: dict[str, object], names: tuple[str, ...]) -> dict[str, object]:
    return {name: each for name, each in body.items() if name not in names}


ROUTES = (
    Route("/sweeps", "serve.api.sweeps", reply, depends=Depends.SWEEPS),
    Route("/sweeps/{id}", "serve.api.sweep", reply_one, path_params=(ID,), depends=Depends.SWEEPS),
)
