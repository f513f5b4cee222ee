"""The prompts of a simulated replay as blocks for a simulated cache, made turn by turn as they are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from servemark.base.errors import input_error
from servemark.predict.blocks import BlockMaker
from servemark.predict.types import CacheRequest
from servemark.traces.template import TemplateTokens
from servemark.traces.types import CacheBust, Session


class Prompts:
    """Streams of trees that are live. A tree's prompts are let go of with it."""

    def __init__(self, block_tokens: int, scope: CacheBust, template: TemplateTokens | None) -> None:
        self._maker = BlockMaker(block_tokens, template=template, cache_bust=scope)
        self._trees: dict[str, dict[str, Iterator[CacheRequest]]] = {}
        self._last: dict[str, dict[str, CacheRequest]] = {}
        self._users: dict[str, int] = {}

    def of(
        self, session: str, load: Callable[[], Session], tree: str, stream: str, number: int
    ) -> CacheRequest:
        """The prompt of one turn of a tree that plays the session of this id, which is loaded with the tree's first;
        turns of a stream are asked for in order, the last one again if need be."""
        streams = self._trees.get(tree)
        if streams is None:
            streams = self._trees[tree] = self._maker.streams(load(), tree)
            self._last[tree] = {}
            self._users[session] = self._users.get(session, 0) + 1
        held = self._last[tree]
        request = held.get(stream)
        while request is None or request.number < number:
            request = next(streams[stream], None)
            if request is None:
                raise input_error("predict.replay.no_requests", name=session)
        held[stream] = request
        return request

    def forget(self, session: str, tree: str) -> None:
        """The tree has drained. What its session shares with nobody goes when no other tree plays it."""
        if self._trees.pop(tree, None) is None:
            return
        del self._last[tree]
        left = self._users[session] - 1
        if left:
            self._users[session] = left
        else:
            del self._users[session]
            self._maker.forget(Session(session, ()))
