"""`/history`: series through time, where they changed, and what changed with them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from servemark.analysis.history import history_of
from servemark.base.errors import ServemarkError
from servemark.catalog.changelog import ChangelogEntry
from servemark.catalog.suite import read_suite
from servemark.web.api.base import Kind, Param, Query, Route
from servemark.web.api.card import CARD, find_card
from servemark.web.depends import Depends
from servemark.web.site import Context

SHOWN = 40
MOST = 200
PARAMS = (
    Param("metric", "serve.param.metric", Kind.ADDRESS, limit=120),
    Param("series", "serve.param.series", pattern=r"[0-9a-f]{4,64}", limit=64),
    Param("limit", "serve.param.series_limit", Kind.INTEGER, minimum=1, maximum=MOST),
    CARD,
)


def reply(ctx: Context, query: Query) -> object:
    """Every run counts, whether the newest of its line or not. Without a model and a scenario those with the most points
    are taken, without a metric the usual one that they have."""
    if query.text("series"):
        ctx.check_size(query.selection)
    return history_of(
        ctx.store,
        query.selection,
        query.text("metric") or "",
        series=query.text("series"),
        changelog=changelog_of(ctx.site.suite, ctx.site.suite_version()) if ctx.site.suite else (),
        card=find_card(ctx, query.text("card")),
        limit=query.integer("limit", SHOWN),
        lang=query.lang,
    )


@lru_cache(maxsize=4)
def changelog_of(root: Path, version: str) -> tuple[ChangelogEntry, ...]:
    """The entries of the suite that is served, read once a `version` of it; none where it cannot be read."""
    del version
    try:
        return read_suite(root)[0].changelog([])
    except ServemarkError:
        return ()


ROUTE = Route("/history", "serve.api.history", reply, PARAMS, selection=True, depends=Depends.STORE_AND_SUITE)
