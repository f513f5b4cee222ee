"""Figures that need a rate card, for axes and columns."""

from __future__ import annotations

from servemark.analysis.axes import Reader, stated
from servemark.analysis.costs import cost_of, is_cost
from servemark.analysis.measured import Measured
from servemark.analysis.rate_cards import DEFAULT_CARD, RateCard, shelf
from servemark.metrics.address import Address
from servemark.metrics.figures import FigureReading
from servemark.web.api.base import Param
from servemark.web.problems import Problem
from servemark.web.site import Context

CARD = Param(
    "card", "serve.param.card", pattern=r"[a-z0-9][a-z0-9._-]{0,63}(@[0-9]{4}-[0-9]{2}-[0-9]{2})?", limit=80
)
_WITHOUT_VALUES = {
    "analysis.cost.absent.no_card": "analysis.cost.absent.no_card",
    "analysis.cost.absent.no_gpu": "serve.cost.no_price",
    "analysis.cost.absent.no_price": "serve.cost.no_price",
    "analysis.cost.absent.no_power": "serve.cost.no_power",
}


def find_card(ctx: Context, wanted: str | None) -> RateCard | None:
    """A card at hand by its name or edition; without a wish the user's newest, else the shipped one. Never a path: what a
    client says names no file. Raises Problem 404."""
    known = shelf(ctx.home.root).cards
    if wanted is None:
        own = [card for card in known if card.origin == "user"]
        if own:
            return max(own, key=lambda card: (card.date, card.name))
        return next((card for card in known if card.name == DEFAULT_CARD), None)
    for card in known:
        if wanted in {card.name, card.edition}:
            return card
    raise Problem(404, "serve.no_card", name=wanted, cards=", ".join(card.edition for card in known))


def reader_of(card: RateCard | None) -> Reader:
    """Costs by the card, all else as the point has it."""

    def read(point: Measured, address: Address) -> FigureReading:
        if not is_cost(address):
            return stated(point, address)
        found = cost_of(point, card, address)
        reason = None if found.reason is None else _WITHOUT_VALUES.get(found.reason, "serve.cost.no_figure")
        return FigureReading(address, found.value, reason, found.made_of, found.formula)

    return read
