"""The prompts of a simulated replay as blocks for a simulated cache, made turn by turn as they are sent."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from servemark.base.errors import input_error
from servemark.predict.blocks import BlockMaker
from servemark.predict.cache_chains import SessionBlocks
from servemark.predict.types import CacheRequest
from servemark.traces.template import TemplateTokens
from servemark.traces.types import CacheBust, Session

HELD_TURNS: Final = 200_000
"""Turns of sessions whose blocks are kept ready, some 300 bytes each; others are worked out again when they come."""


class Prompts:
    """Streams of trees that are live. A tree's prompts are let go of with it."""

    def __init__(self, block_tokens: int, scope: CacheBust, template: TemplateTokens | None) -> None:
        self._maker = BlockMaker(block_tokens, template=template, cache_bust=scope)
        self._plans: OrderedDict[str, SessionBlocks] = OrderedDict()
        self._held_turns = 0
        self._planned: dict[str, tuple[SessionBlocks, tuple[int, int]]] = {}
        self._trees: dict[str, dict[str, Iterator[CacheRequest]]] = {}
        self._last: dict[str, dict[str, CacheRequest]] = {}
        self._users: dict[str, int] = {}

    def of(
        self, session: str, load: Callable[[], Session], tree: str, stream: str, number: int
    ) -> CacheRequest:
        """The prompt of one turn of a tree that plays the session of this id, which is loaded with the tree's first;
        turns of a stream are asked for in order, the last one again if need be."""
        planned = self._planned.get(tree)
        if planned is None and tree not in self._trees:
            planned = self._begin(session, load, tree)
        if planned is not None:
            return planned[0].request(tree, stream, number, planned[1])
        held = self._last[tree]
        request = held.get(stream)
        while request is None or request.number < number:
            request = next(self._trees[tree][stream], None)
            if request is None:
                raise input_error("predict.replay.no_requests", name=session)
        held[stream] = request
        return request

    def _begin(
        self, session: str, load: Callable[[], Session], tree: str
    ) -> tuple[SessionBlocks, tuple[int, int]] | None:
        """A tree's first prompt: from the session's plan, or from its streams (None)."""
        self._users[session] = self._users.get(session, 0) + 1
        plan = self._plans.get(session)
        if plan is None:
            loaded = load()
            plan = self._maker.plan(loaded)
            if plan is None:
                self._trees[tree] = self._maker.streams(loaded, tree)
                self._last[tree] = {}
                return None
            self._plans[session] = plan
            self._held_turns += plan.turns + 8
            while self._held_turns > HELD_TURNS and len(self._plans) > 1:
                self._held_turns -= self._plans.popitem(last=False)[1].turns + 8
        else:
            self._plans.move_to_end(session)
        found = self._planned[tree] = plan, self._maker.base(plan, session, tree)
        return found

    def forget(self, session: str, tree: str) -> None:
        """The tree has drained. What its session shares with nobody goes when no other tree plays it."""
        if self._planned.pop(tree, None) is None:
            if self._trees.pop(tree, None) is None:
                return
            del self._last[tree]
        left = self._users[session] - 1
        if left:
            self._users[session] = left
        else:
            del self._users[session]
            self._maker.forget(Session(session, ()))
