"""`/messages`: the page's own words in a language."""

from __future__ import annotations

from servemark.base.messages import catalogue
from servemark.web.api.base import Query, Route
from servemark.web.depends import Depends
from servemark.web.site import Context


def reply(ctx: Context, query: Query) -> object:
    """All messages of the page; English ones where the language lacks them."""
    del ctx
    return {"lang": query.lang, "messages": {**catalogue("en", "web"), **catalogue(query.lang, "web")}}


ROUTE = Route("/messages", "serve.api.messages", reply, depends=Depends.PROGRAM)
