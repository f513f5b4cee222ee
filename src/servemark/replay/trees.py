"""One live session tree: its main stream, and the sub-agents that it starts, joins or leaves to themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from servemark.replay.profiles import is_gone
from servemark.replay.record import RequestRecord
from servemark.replay.sending import Live, Sender
from servemark.replay.start_points import StreamStart, TreeStart
from servemark.replay.timeline import Timeline
from servemark.traces.types import Session, SubAgent, Turn

GONE_PAUSE_S: Final = 0.1


@dataclass(slots=True, eq=False)
class Tree:
    """A session in a lane. `start` None: from its beginning. `tasks` are its sub-agents by id, each done when
    the sub-agent and the children that gate it have ended."""

    session: Session
    pass_number: int
    lane: int
    start: TreeStart | None = None
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    group: asyncio.TaskGroup | None = None

    @property
    def key(self) -> str:
        """Its name in records; see `sending.Live.key`."""
        return self.session.id if self.pass_number == 0 else f"{self.session.id}#{self.pass_number + 1}"


class TreeRunner:
    """Sends trees to their ends. `claim` is asked before each request; `stopped` ends every stream at its
    next send."""

    def __init__(
        self,
        sender: Sender,
        timeline: Timeline,
        stopped: Callable[[], bool],
        claim: Callable[[], bool],
        think_scale: float,
    ) -> None:
        self._sender = sender
        self._timeline = timeline
        self._stopped = stopped
        self._claim = claim
        self._scale = think_scale

    async def run(self, tree: Tree, base_s: float) -> None:
        """Until every stream of the tree has ended. `base_s` is the moment of the tree's first send, or of
        its t* where it has a start point."""
        if not tree.session.children:
            await self._main(tree, base_s)
            return
        async with asyncio.TaskGroup() as group:
            tree.group = group
            await self._main(tree, base_s)

    async def _main(self, tree: Tree, base_s: float) -> None:
        session = tree.session
        if tree.start is not None:
            self._resume(tree, session.children, None, base_s)
            if "" in tree.start.over:
                return
        start = StreamStart(0, 0.0) if tree.start is None else tree.start.streams.get("", StreamStart(0, 0.0))
        await self._stream(tree, None, None, session.turns, session.children, start, base_s)

    def _resume(self, tree: Tree, children: Sequence[SubAgent], parent: str | None, base_s: float) -> None:
        """Start the sub-agents that t* found live or due; the others are left to their parents."""
        if tree.start is None:
            return
        for child in children:
            if child.id in tree.tasks:
                continue
            if child.id in tree.start.streams:
                self._spawn(tree, child, parent, base_s, tree.start.streams[child.id])
            elif child.id in tree.start.over:
                self._resume(tree, child.children, child.id, base_s)

    def _spawn(
        self, tree: Tree, child: SubAgent, parent: str | None, base_s: float, start: StreamStart
    ) -> None:
        if tree.group is None or child.id in tree.tasks:
            return
        tree.tasks[child.id] = tree.group.create_task(self._agent(tree, child, parent, base_s, start))

    async def _agent(
        self, tree: Tree, child: SubAgent, parent: str | None, base_s: float, start: StreamStart
    ) -> None:
        if start.first_turn:
            self._resume(tree, child.children, child.id, base_s)
        await self._stream(tree, child, parent, child.turns, child.children, start, base_s)
        await self._wait_for(tree, [c for c in child.children if c.joins_turn is not None])

    async def _stream(  # noqa: PLR0917 - a stream and where it begins
        self,
        tree: Tree,
        agent: SubAgent | None,
        parent: str | None,
        turns: Sequence[Turn],
        children: Sequence[SubAgent],
        start: StreamStart,
        base_s: float,
    ) -> None:
        live = self._sender.live(tree.session, tree.pass_number, agent, parent)
        name = None if agent is None else agent.id
        ended_s = base_s
        if start.first_turn == 0:
            self._start_children(tree, children, name, -1, base_s + start.offset_s)
        for number in range(start.first_turn, len(turns)):
            turn = turns[number]
            joined_s = await self._join(tree, children, number)
            think_s = turn.think_s * self._scale
            if number == start.first_turn:
                due_s = base_s + start.offset_s
                if joined_s is not None:
                    due_s = max(due_s, joined_s + think_s)
            else:
                due_s = max(ended_s, joined_s or 0.0) + think_s
            record = await self._turn(tree, live, number, turn, due_s)
            if record is None:
                return
            ended_s = self._sender.client.now_s() if record.end_s is None else record.end_s
            self._start_children(tree, children, name, number, ended_s)

    async def _turn(
        self, tree: Tree, live: Live, number: int, turn: Turn, due_s: float
    ) -> RequestRecord | None:
        """None when the replay is at its end."""
        messages = live.prompts.encode(number, live.replies)
        due_s = await self._timeline.until(due_s, tree.key)
        if self._stopped() or not self._claim():
            return None
        request = self._sender.request(live, number, turn, messages, tree.lane)
        request.intended_send_s = due_s
        record = await self._sender.send(request)
        self._sender.note_reply(live, number, turn, record)
        if is_gone(record):  # else a dead server would be asked thousands of times a second
            await self._timeline.until(self._sender.client.now_s() + GONE_PAUSE_S, tree.key)
        return record

    def _start_children(
        self, tree: Tree, children: Sequence[SubAgent], parent: str | None, after: int, at_s: float
    ) -> None:
        over = tree.start.over if tree.start is not None else ()
        for child in children:
            if child.after_turn == after and child.id not in over:
                delay_s = child.delay_s * self._scale
                self._spawn(tree, child, parent, at_s, StreamStart(0, delay_s))

    async def _join(self, tree: Tree, children: Sequence[SubAgent], number: int) -> float | None:
        """Wait for the sub-agents that this turn waits for; the moment when the last of them had ended, None
        when it waits for none."""
        gating = [child for child in children if child.joins_turn == number]
        if not any(child.id in tree.tasks for child in gating):
            return None
        await self._wait_for(tree, gating)
        return self._sender.client.now_s()

    @staticmethod
    async def _wait_for(tree: Tree, children: Sequence[SubAgent]) -> None:
        tasks = [tree.tasks[child.id] for child in children if child.id in tree.tasks]
        if tasks:
            await asyncio.wait(tasks)
