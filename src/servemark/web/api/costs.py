"""`/costs`: what each series costs at a target, by a rate card; `/cards`: the cards at hand with their sources."""

from __future__ import annotations

from dataclasses import replace

from servemark.analysis.cost_view import X_DEFAULT, cards_view, cost_view
from servemark.analysis.front_query import beginning
from servemark.analysis.rate_cards import shelf
from servemark.web.api.base import Kind, Param, Query, Route
from servemark.web.api.card import CARD, find_card
from servemark.web.api.front import MAX_POINTS
from servemark.web.site import Context

PARAMS = (
    CARD,
    Param("target", "serve.param.target", Kind.NUMBER),
    Param("x", "serve.param.x", Kind.ADDRESS, limit=120),
)


def reply(ctx: Context, query: Query) -> object:
    """Series by cost. Without a model and a scenario those with the most points are taken."""
    chosen = beginning(ctx.store, query.selection)
    points = ctx.for_front(chosen, MAX_POINTS)
    card = find_card(ctx, query.text("card"))
    x = query.text("x") or X_DEFAULT
    return cost_view(points, card, query.number("target"), x=x, lang=query.lang)


def reply_cards(ctx: Context, query: Query) -> object:
    """Cards and what is wrong with files that hold none. No answer names a folder of this machine."""
    found = cards_view(shelf(ctx.home.root), query.lang)
    root = str(ctx.home.root)
    return replace(found, faults=tuple(fault.replace(root, "HOME") for fault in found.faults))


ROUTES = (
    Route("/costs", "serve.api.costs", reply, PARAMS, selection=True),
    Route("/cards", "serve.api.cards", reply_cards),
)
