"""Live session trees of a simulated replay: which turn is due when, as `replay.trees` decides it, without waiting.

A turn is due its think time after the end of everything that it waits for: the reply before it, and the sub-agents that
join there. Sub-agents run beside their parent; a tree has ended when all its streams have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from servemark.predict.sim_clock import Clock, IdleTree, Waiting
from servemark.predict.sim_engine import SimRequest
from servemark.predict.sim_sessions import SessionPlan, StreamPlan
from servemark.replay.start_points import StreamStart, TreeStart

_AT_ONCE: Final = StreamStart(0, 0.0)


class LiveTree(IdleTree):
    """A session in a lane. `streams` are those that have been started, by name; `live` counts those that have not
    ended."""

    __slots__ = ("key", "lane", "live", "plan", "start", "streams", "taken_s")

    def __init__(self, plan: SessionPlan, pass_number: int, lane: int) -> None:
        super().__init__()
        self.plan = plan
        self.key = plan.id if pass_number == 0 else f"{plan.id}#{pass_number + 1}"
        self.lane = lane
        self.start: TreeStart | None = None
        self.streams: dict[str, LiveStream] = {}
        self.live = 0
        self.taken_s = 0.0


class LiveStream(Waiting):
    """One stream that sends. `waits` counts sub-agents that it waits for; `waiter` is the stream that waits for this.
    `request`: its own, one after the other."""

    __slots__ = (
        "base_s",
        "done",
        "finished",
        "first_turn",
        "offset_s",
        "plan",
        "request",
        "tree",
        "turn",
        "waiter",
        "waits",
    )

    def __init__(self, tree: LiveTree, plan: StreamPlan, base_s: float, start: StreamStart) -> None:
        super().__init__()
        self.tree = tree
        self.plan = plan
        self.turn = self.first_turn = start.first_turn
        self.base_s = base_s
        self.offset_s = start.offset_s
        self.request: SimRequest | None = None
        self.waits = 0
        self.waiter: LiveStream | None = None
        self.finished = False
        self.done = False


class Trees:
    """Moves streams on; `client_s` passes before each send. `send` is called with a stream whose turn is due now,
    `drained` with a tree that has ended."""

    def __init__(
        self,
        clock: Clock,
        client_s: float,
        send: Callable[[LiveStream, float], None],
        drained: Callable[[LiveTree, float], None],
    ) -> None:
        self._clock = clock
        self._send = send
        self._drained = drained
        self._client_s = client_s
        self.over = False

    def begin(self, tree: LiveTree, base_s: float, now_s: float) -> None:
        """A lane has taken the tree. `base_s` is the moment of its first send, or of its t*."""
        plan = tree.plan.streams[""]
        tree.live += 1  # the tree's own, until all that begins at once has begun
        start = tree.start
        if start is not None:
            self._resume(tree, plan.children, base_s, now_s)
        if start is None or "" not in start.over:
            self._spawn(
                tree, plan, base_s, _AT_ONCE if start is None else start.streams.get("", _AT_ONCE), now_s
            )
        self._let_go(tree, now_s)

    def _resume(self, tree: LiveTree, children: Sequence[StreamPlan], base_s: float, now_s: float) -> None:
        """Start the sub-agents that t* found live or due; the others are left to their parents."""
        start = tree.start
        if start is None:
            return
        for child in children:
            if child.name in tree.streams:
                continue
            found = start.streams.get(child.name)
            if found is not None:
                self._spawn(tree, child, base_s, found, now_s)
            elif child.name in start.over:
                self._resume(tree, child.children, base_s, now_s)

    def _spawn(
        self, tree: LiveTree, plan: StreamPlan, base_s: float, start: StreamStart, now_s: float
    ) -> None:
        if plan.name in tree.streams:
            return
        stream = tree.streams[plan.name] = LiveStream(tree, plan, base_s, start)
        tree.live += 1
        if plan.name and start.first_turn:
            self._resume(tree, plan.children, base_s, now_s)
        if start.first_turn == 0 and plan.starts:
            self._start_children(stream, -1, base_s + start.offset_s, now_s)
        self._next(stream, now_s)

    def _start_children(self, stream: LiveStream, after: int, at_s: float, now_s: float) -> None:
        started = stream.plan.starts.get(after)
        if started is None:
            return
        tree = stream.tree
        over = tree.start.over if tree.start is not None else ()
        for child in started:
            if child.name not in over:
                self._spawn(tree, child, at_s, StreamStart(0, child.delay_s), now_s)

    def replied(self, stream: LiveStream, now_s: float) -> None:
        """The reply to the stream's turn has ended."""
        number = stream.turn
        stream.turn = number + 1
        plan = stream.plan
        if plan.starts:
            self._start_children(stream, number, now_s, now_s)
        if plan.gates or self.over or number + 1 >= len(plan.think_s):
            self._next(stream, now_s)
            return
        due_s = now_s + plan.think_s[number + 1] + self._client_s  # as _due, for the most common case
        if due_s <= now_s:
            self._send(stream, now_s)
        else:
            self._clock.wait(stream, due_s, stream.tree)

    def _next(self, stream: LiveStream, now_s: float) -> None:
        plan = stream.plan
        number = stream.turn
        if self.over or number >= len(plan.think_s):
            self._finish(stream, now_s)
            return
        gating = plan.gates.get(number) if plan.gates else None
        if gating is None:
            self._due(stream, None, now_s)
            return
        started = [live for child in gating if (live := stream.tree.streams.get(child.name)) is not None]
        if self._wait_for(stream, started):
            return
        self._due(stream, now_s if started else None, now_s)

    @staticmethod
    def _wait_for(stream: LiveStream, others: Sequence[LiveStream]) -> bool:
        waits = 0
        for other in others:
            if not other.done:
                other.waiter = stream
                waits += 1
        stream.waits = waits
        return waits > 0

    def _due(self, stream: LiveStream, joined_s: float | None, now_s: float) -> None:
        number = stream.turn
        think_s = stream.plan.think_s[number]
        if number == stream.first_turn:
            due_s = stream.base_s + stream.offset_s
            if joined_s is not None and joined_s + think_s > due_s:
                due_s = joined_s + think_s
        else:
            due_s = now_s + think_s
        due_s += self._client_s
        if due_s <= now_s:
            self._send(stream, now_s)
        else:
            self._clock.wait(stream, due_s, stream.tree)

    def _finish(self, stream: LiveStream, now_s: float) -> None:
        """The stream sends no more. A sub-agent has ended when those of its own that gate it have."""
        stream.finished = True
        if stream.plan.name:
            tree = stream.tree
            gating = [
                live
                for c in stream.plan.children
                if c.joined and (live := tree.streams.get(c.name)) is not None
            ]
            if gating and self._wait_for(stream, gating):
                return
        self._end(stream, now_s)

    def _end(self, stream: LiveStream, now_s: float) -> None:
        stream.done = True
        waiter = stream.waiter
        if waiter is not None:
            waiter.waits -= 1
            if not waiter.waits:
                if waiter.finished:
                    self._end(waiter, now_s)
                elif self.over:
                    self._finish(waiter, now_s)
                else:
                    self._due(waiter, now_s, now_s)
        self._let_go(stream.tree, now_s)

    def _let_go(self, tree: LiveTree, now_s: float) -> None:
        tree.live -= 1
        if not tree.live:
            self._drained(tree, now_s)

    def stop(self, waiting: Sequence[LiveStream], now_s: float) -> None:
        """Nothing more is sent: streams that only wait end now."""
        self.over = True
        for stream in waiting:
            self._finish(stream, now_s)
