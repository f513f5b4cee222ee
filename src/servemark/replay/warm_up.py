"""Before the window: the caches are brought to the state that they would have in the middle of the trace.

For each stream that its tree's start point finds live, the last request before that point is sent with
max_tokens=1. Then each lane sends requests of other sessions, so that the cache is under pressure as it would
be in service: each a whole recorded prompt with a marker of its own, drawn by the seed, also for one token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass

from servemark.base.errors import Layer, ServemarkError
from servemark.replay.record import RequestRecord
from servemark.replay.sending import Live, Sender
from servemark.replay.stop import StopSignal
from servemark.replay.trees import Tree
from servemark.traces.rng import SplitMix
from servemark.traces.types import Session, SubAgent, Workload


@dataclass(frozen=True, slots=True)
class WarmUpPlan:
    """`pressure_requests` a lane; all of it within `grace_s` seconds, what is left then is cut off."""

    workload: Workload
    lanes: int
    pressure_requests: int
    grace_s: float
    seed: int


class WarmUp:
    """One per replay and process."""

    def __init__(self, plan: WarmUpPlan, sender: Sender, stop: StopSignal) -> None:
        self._plan = plan
        self._sender = sender
        self._stop = stop
        self._tasks: set[asyncio.Task[None]] = set()
        self.cut_off: list[str] = []

    def cancel(self) -> None:
        """Give up what is in flight."""
        for task in self._tasks:
            task.cancel()

    async def run(self, trees: list[Tree]) -> None:
        """Streams first, then the pressure. Raises ServemarkError (layer replay) for a request that failed."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._plan.grace_s
        stages = [self._streams(tree) for tree in trees if tree.start is not None]
        if stages:
            await self._all(stages, until)
        if trees and self._plan.pressure_requests and self._stop.mode is None:
            await self._all([self._pressure(tree.lane) for tree in trees], until)

    async def _all(self, jobs: list[Coroutine[None, None, None]], until: float) -> None:
        self._tasks = {asyncio.ensure_future(job) for job in jobs}
        failed: BaseException | None = None
        try:
            left_s = max(0.0, until - asyncio.get_running_loop().time())
            done, late = await asyncio.wait(self._tasks, timeout=left_s, return_when=asyncio.FIRST_EXCEPTION)
            failed = next((t.exception() for t in done if not t.cancelled() and t.exception()), None)
            if late and failed is None:
                self.cut_off += sorted(self._sender.open)
        finally:
            self.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._tasks = set()
        if failed is not None:
            raise failed

    async def _streams(self, tree: Tree) -> None:
        """The last request before t* of each live stream of one tree, one after another."""
        start = tree.start
        if start is None:
            return
        agents: list[tuple[SubAgent | None, str | None]] = [(None, None), *_with_parents(tree.session)]
        for agent, parent in agents:
            name = "" if agent is None else agent.id
            begun = start.streams.get(name)
            if begun is None or begun.first_turn == 0:
                continue
            if self._stop.mode is not None:
                return
            live = self._sender.live(tree.session, tree.pass_number, agent, parent)
            await self._send(live, begun.first_turn - 1, tree.lane)

    async def _pressure(self, lane: int) -> None:
        sessions = self._plan.workload.sessions
        draw = SplitMix(["pressure", self._plan.seed, lane])
        for number in range(self._plan.pressure_requests):
            if self._stop.mode is not None:
                return
            session = sessions[draw.integer(0, len(sessions) - 1)]
            if not len(session.turns):
                continue
            salt = f"{self._sender.rules.marker_salt}\0pressure {lane} {number}"
            live = self._sender.live(session, 0, salt=salt)
            turn = draw.integer(0, len(session.turns) - 1)
            await self._send(live, turn, lane, f"p{lane}.{number}-")

    async def _send(self, live: Live, number: int, lane: int, prefix: str = "") -> None:
        turns = live.session.turns if live.agent is None else live.agent.turns
        messages = live.prompts.encode(number)
        request = self._sender.request(
            live, number, turns[number], messages, lane, phase="warmup", max_tokens=1
        )
        request.id = prefix + request.id
        _raise_if_failed(await self._sender.send(request))


def _with_parents(session: Session) -> list[tuple[SubAgent | None, str | None]]:
    found: list[tuple[SubAgent | None, str | None]] = []

    def walk(children: tuple[SubAgent, ...], parent: str | None) -> None:
        for child in children:
            found.append((child, parent))
            walk(child.children, child.id)

    walk(session.children, None)
    return found


def _raise_if_failed(record: RequestRecord) -> None:
    if record.outcome in ("ok", "cancelled"):
        return
    raise ServemarkError(
        "replay.warmup_failed",
        Layer.REPLAY,
        request=record.id,
        outcome=record.outcome,
        kind=record.error_kind or "-",
        detail=(record.error_detail or "-")[:200],
    )
