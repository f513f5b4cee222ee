"""Plays session trees against a cache without waiting: who sends when, given how long a request takes.

A turn is sent `think_s` after the turn before it and every sub-agent that joins there have ended; a sub-agent starts
`delay_s` after its parent's turn. Sessions arrive at their recorded times, or N lanes play one after another. How long a
request takes is assumed, not simulated: so much for each token that must be computed, so much for each token of the reply.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from servemark.base.errors import input_error
from servemark.predict.blocks import BlockMaker, require_content
from servemark.predict.cache_tiers import Deployment
from servemark.predict.types import CacheHit, CacheRequest
from servemark.traces.types import Session, SubAgent, Turn, Workload


@dataclass(frozen=True, slots=True)
class Pacing:
    """`lanes` None: sessions arrive when the trace says; else so many are played at a time. A request takes
    `prefill_s` for each token that was not cached and `decode_s` for each token of its reply."""

    lanes: int | None = None
    prefill_s: float = 1 / 20_000
    decode_s: float = 0.02


@dataclass(frozen=True, slots=True)
class Begun:
    """A request as it began: when, on which worker, and what was cached."""

    request: CacheRequest
    hit: CacheHit
    worker: int
    at_s: float
    waited_s: float


@dataclass(slots=True, eq=False)
class _Tree:
    session: Session
    requests: dict[str, Iterator[CacheRequest]]
    lane: int
    open: int = 0


@dataclass(slots=True, eq=False)
class _Stream:
    tree: _Tree
    name: str
    turns: Sequence[Turn]
    children: Sequence[SubAgent]
    parent: _Stream | None = None
    joins: int | None = None
    next: int = 0
    ready_s: float = 0.0
    waiting: bool = False
    pending: dict[int, int] = field(default_factory=dict)
    gating: int = 0
    over: bool = False


@dataclass(frozen=True, slots=True)
class _Done:
    """A running request."""

    worker: int
    stream: _Stream
    request: CacheRequest


class SessionClock:
    """One pass over a workload. Iterate `play()`: each request as it begins. Nothing depends on the wall clock."""

    def __init__(self, workload: Workload, cache: Deployment, maker: BlockMaker, pacing: Pacing) -> None:
        require_content(workload)
        self._workload = workload
        self._cache = cache
        self._maker = maker
        self._pacing = pacing
        self._events: list[tuple[float, int, int | _Stream | _Done]] = []
        self._count = 0
        self._queues: dict[int, deque[tuple[float, _Stream, CacheRequest]]] = {}
        self._running: dict[int, int] = {}
        self._begun: deque[Begun] = deque()
        self._next_session = 0
        self.ended = 0
        """Sessions that have been played to their end."""
        self.end_s = 0.0

    def play(self) -> Iterator[Begun]:
        """Requests in the order in which they begin. Raises ServemarkError (exit code 2) for a trace without arrival
        times that is to be played at them, and for sessions that cannot be read."""
        self._first_sessions()
        while self._events:
            now, _, what = heapq.heappop(self._events)
            self.end_s = max(self.end_s, now)
            if isinstance(what, int):
                self._open(what, -1, now)
            elif isinstance(what, _Stream):
                self._send(what, now)
            elif isinstance(what, _Done):
                self._end(what, now)
            yield from self._begun
            self._begun.clear()

    def _at(self, time_s: float, what: int | _Stream | _Done) -> None:
        """A session by its place arrives, a stream sends, or a request has ended."""
        self._count += 1
        heapq.heappush(self._events, (time_s, self._count, what))

    def _first_sessions(self) -> None:
        sessions = self._workload.sessions
        if self._pacing.lanes is not None:
            self._next_session = min(self._pacing.lanes, len(sessions))
            for index in range(self._next_session):
                self._open(index, index, 0.0)
            return
        for index, session in enumerate(sessions):
            if session.start_s is None:
                raise input_error("predict.cache.no_times", trace=self._workload.name)
            self._at(session.start_s, index)

    def _open(self, index: int, lane: int, now: float) -> None:
        session = self._workload.sessions[index]
        tree = _Tree(session, self._maker.streams(session), lane)
        self._start(_Stream(tree, "", session.turns, session.children), now)

    def _start(self, stream: _Stream, due_s: float) -> None:
        stream.tree.open += 1
        stream.ready_s = due_s
        self._start_children(stream, -1, due_s)
        self._go_on(stream, due_s)

    def _start_children(self, stream: _Stream, after: int, at_s: float) -> None:
        for child in stream.children:
            if child.after_turn == after:
                made = _Stream(stream.tree, child.id, child.turns, child.children, stream, child.joins_turn)
                if child.joins_turn is not None:  # one that never starts is waited for by nobody
                    stream.gating += 1
                    stream.pending[child.joins_turn] = stream.pending.get(child.joins_turn, 0) + 1
                self._start(made, at_s + child.delay_s)

    def _go_on(self, stream: _Stream, now: float) -> None:
        """Send the next turn when it is due, or wait for a sub-agent, or end the stream."""
        if stream.next >= len(stream.turns):
            stream.over = True
            self._maybe_done(stream, now)
            return
        if stream.pending.get(stream.next, 0) > 0:
            stream.waiting = True
            return
        think = stream.turns[stream.next].think_s if stream.next else 0.0
        self._at(stream.ready_s + think, stream)

    def _maybe_done(self, stream: _Stream, now: float) -> None:
        """A stream has ended when its turns and the sub-agents that gate it have."""
        if not stream.over or stream.gating:
            return
        stream.over = False
        tree, parent = stream.tree, stream.parent
        tree.open -= 1
        if parent is not None and stream.joins is not None:
            parent.gating -= 1
            parent.pending[stream.joins] -= 1
            if parent.waiting and not parent.pending.get(parent.next, 0):
                parent.waiting = False
                parent.ready_s = max(parent.ready_s, now)
                self._go_on(parent, now)
            self._maybe_done(parent, now)
        if tree.open == 0:
            self._closed(tree, now)

    def _closed(self, tree: _Tree, now: float) -> None:
        self.ended += 1
        self._maker.forget(tree.session)
        self._cache.forget(tree.session.id)
        if tree.lane >= 0 and self._next_session < len(self._workload.sessions):
            self._next_session += 1
            self._open(self._next_session - 1, tree.lane, now)

    def _send(self, stream: _Stream, now: float) -> None:
        request = next(stream.tree.requests[stream.name])
        worker = self._cache.worker_of(request)
        queue = self._queues.setdefault(worker, deque())
        queue.append((now, stream, request))
        self._serve(worker, now)

    def _serve(self, worker: int, now: float) -> None:
        """Begin what waits for this worker, in order, as long as there is room; alone, anything begins."""
        queue = self._queues[worker]
        while queue:
            sent_s, stream, request = queue[0]
            if self._running.get(worker, 0) and not self._cache.room(request):
                return
            queue.popleft()
            self._running[worker] = self._running.get(worker, 0) + 1
            hit = self._cache.begin(request, now)
            self._begun.append(Begun(request, hit, worker, now, now - sent_s))
            new = request.input_tokens - hit.cached_tokens
            takes = new * self._pacing.prefill_s + (request.output_tokens or 0) * self._pacing.decode_s
            self._at(now + takes, _Done(worker, stream, request))

    def _end(self, done: _Done, now: float) -> None:
        worker, stream = done.worker, done.stream
        self._cache.end(done.request, now)
        self._running[worker] -= 1
        number = stream.next
        stream.next += 1
        stream.ready_s = now
        self._start_children(stream, number, now)
        self._go_on(stream, now)
        self._serve(worker, now)
