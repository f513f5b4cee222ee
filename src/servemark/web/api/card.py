"""The rate card that a query means."""

from __future__ import annotations

from servemark.analysis.rate_cards import DEFAULT_CARD, RateCard
from servemark.web.api.base import Param
from servemark.web.problems import Problem
from servemark.web.site import Context

CARD = Param(
    "card", "serve.param.card", pattern=r"[a-z0-9][a-z0-9._-]{0,63}(@[0-9]{4}-[0-9]{2}-[0-9]{2})?", limit=80
)


def find_card(ctx: Context, wanted: str | None) -> RateCard | None:
    """A card at hand by its name or edition; without a wish the user's newest, else the shipped one. Never a path: what a
    client says names no file. Raises Problem 404."""
    known = ctx.site.cards().cards
    if wanted is None:
        own = [card for card in known if card.origin == "user"]
        if own:
            return max(own, key=lambda card: (card.date, card.name))
        return next((card for card in known if card.name == DEFAULT_CARD), None)
    for card in known:
        if wanted in {card.name, card.edition}:
            return card
    raise Problem(404, "serve.no_card", name=wanted, cards=", ".join(card.edition for card in known))
