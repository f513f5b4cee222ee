"""The open loop: requests leave at their intended times, whatever the server does with those before them.

It never waits for a reply, so that a server that falls behind meets the full load (no coordinated omission);
a send that is late keeps its intended time, and latencies are known from both. Only a cap on the requests in
flight, where one is asked for, may hold a request back; how many it held is told in the outcome.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from servemark.base.errors import input_error
from servemark.replay.arrivals import Arrivals
from servemark.replay.client import Client
from servemark.replay.health import HealthWatch
from servemark.replay.loop import LIVE_INTERVAL_S, Shard
from servemark.replay.outcome import LiveSample, LoopOutcome
from servemark.replay.playing import Barrier, Ready, play, report
from servemark.replay.profiles import FailureGate, Validity
from servemark.replay.progress import Progress, ProgressSnapshot
from servemark.replay.prompts import SegmentText
from servemark.replay.record import Phase, RequestRecord
from servemark.replay.sending import Live, Sender, SendRules
from servemark.replay.stop import StopSignal
from servemark.replay.target import ChatRequest
from servemark.replay.timeline import Timeline
from servemark.traces.types import CacheBust, Session, SubAgent, Turn, Workload

WARM_CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class OpenPlan:
    """What one open loop sends. Raises ServemarkError (layer input) for what cannot be run.

    Requests go out in the order of their recorded times where the workload has them, else session by session.
    With `duration_s` or `max_requests` the workload comes again until that end (by recorded times it does
    not), each pass with new markers. Requests in flight at the end are given `grace_s` (None: as long as they
    need).
    """

    workload: Workload
    arrivals: Arrivals
    cache_bust: CacheBust
    marker_salt: str
    temperature: float = 0.0
    seed: int | None = None
    ignore_eos: bool = True
    stream: bool = True
    phase: Phase = "measured"
    duration_s: float | None = None
    max_requests: int | None = None
    grace_s: float | None = None
    max_in_flight: int | None = None
    validity: Validity = field(default_factory=Validity)
    shard: Shard = field(default_factory=Shard)

    def __post_init__(self) -> None:
        if self.duration_s is not None and not 0 < self.duration_s < math.inf:
            raise input_error("replay.bad_duration", value=self.duration_s)
        for count in (self.max_requests, self.max_in_flight):
            if count is not None and count < 1:
                raise input_error("replay.bad_requests", value=count)
        if not len(self.workload.sessions):
            raise input_error("replay.no_sessions", name=self.workload.name)
        if self.arrivals.kind == "ramp" and self.duration_s is None:
            raise input_error("replay.open_endless")

    @property
    def planned(self) -> int | None:
        """Requests of all shards; None where time alone says."""
        if self.duration_s is not None:
            return None
        if self.max_requests is None:
            return self.workload.requests
        by_times = self.arrivals.kind == "trace"
        return min(self.max_requests, self.workload.requests) if by_times else self.max_requests


@dataclass(frozen=True, slots=True)
class _Place:
    """One turn of a workload."""

    pass_number: int
    session: Session
    agent: SubAgent | None
    parent: str | None
    number: int
    turn: Turn


def _turns_of(session: Session, pass_number: int) -> Iterator[_Place]:
    for number, turn in enumerate(session.turns):
        yield _Place(pass_number, session, None, None, number, turn)

    def children(agents: tuple[SubAgent, ...], parent: str | None) -> Iterator[_Place]:
        for agent in agents:
            for number, turn in enumerate(agent.turns):
                yield _Place(pass_number, session, agent, parent, number, turn)
            yield from children(agent.children, agent.id)

    yield from children(session.children, None)


def in_order(plan: OpenPlan) -> Iterator[tuple[float, _Place]]:
    """(intended send in seconds from the start, turn) of every request of all shards, in order."""
    if plan.arrivals.kind == "trace":
        yield from _by_recorded_times(plan.workload, plan.arrivals.speed)
        return
    repeats = plan.duration_s is not None or plan.max_requests is not None

    def endless() -> Iterator[_Place]:
        pass_number = 0
        while True:
            for session in plan.workload.sessions:
                yield from _turns_of(session, pass_number)
            pass_number += 1
            if not repeats:
                return

    yield from zip(plan.arrivals.times(plan.duration_s), endless(), strict=False)


def _by_recorded_times(workload: Workload, speed: float) -> Iterator[tuple[float, _Place]]:
    """Raises ServemarkError where a request has no recorded time. Places are found again when they are due, so
    that no prompt of a long trace is held."""
    times: list[tuple[float, int, int]] = []
    for index, session in enumerate(workload.sessions):
        for place_number, place in enumerate(_turns_of(session, 0)):
            at_s = place.turn.at_s if place.turn.at_s is not None else 0.0 if place.number == 0 else None
            if at_s is None or session.start_s is None:
                raise input_error("replay.no_times", name=workload.name)
            times.append((session.start_s + at_s, index, place_number))
    times.sort()
    first_s = times[0][0] if times else 0.0
    for at_s, index, place_number in times:
        place = next(islice(_turns_of(workload.sessions[index], 0), place_number, None))
        yield (at_s - first_s) / speed, place


async def run_open_loop(  # noqa: PLR0917 - the last two are optional
    plan: OpenPlan,
    client: Client,
    text_maker: SegmentText,
    sink: Callable[[RequestRecord], None],
    stop: StopSignal,
    on_progress: Callable[[ProgressSnapshot], None] | None = None,
    barrier: Barrier | None = None,
    on_made: Callable[[OpenLoop], None] | None = None,
) -> LoopOutcome:
    """Send the plan's requests at their times. `sink`, `stop` and errors as in `run_closed_loop`."""
    return await play(
        lambda: OpenLoop(plan, client, text_maker, sink, stop),
        min(WARM_CONNECTIONS, plan.max_in_flight or WARM_CONNECTIONS),
        client, stop, on_progress, barrier, on_made,
    )  # fmt: skip


class OpenLoop:
    """One dispatcher, and a task a request."""

    def __init__(
        self,
        plan: OpenPlan,
        client: Client,
        text_maker: SegmentText,
        sink: Callable[[RequestRecord], None],
        stop: StopSignal,
    ) -> None:
        self._plan = plan
        self._client = client
        self._stop = stop
        self._flights: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._dispatcher: asyncio.Task[None] | None = None
        self._landed = asyncio.Event()
        self._held = 0
        self._pass = 0
        self._cut_off: list[str] = []
        self._live: list[LiveSample] = []
        self._started_s = self._ended_s = self._last_sent_s = client.now_s()
        self._watch = HealthWatch()
        self.timeline = Timeline(client.now_s, self._stopped)
        planned = plan.planned if plan.shard.count == 1 else None
        self.progress = Progress(planned, plan.duration_s)
        rules = SendRules(
            plan.cache_bust, plan.marker_salt, plan.temperature, plan.seed, plan.ignore_eos, plan.stream,
            "recorded", plan.phase, plan.shard.index if plan.shard.count > 1 else None,
        )  # fmt: skip
        gate = FailureGate(plan.validity, 1)
        self._sender = Sender(rules, client, text_maker, sink, stop, self.progress, gate)
        client.max_in_flight = client.in_flight

    async def run(
        self, on_progress: Callable[[ProgressSnapshot], None] | None, barrier: Barrier | None
    ) -> None:
        """Dispatch to the end, then wait for what is in flight as long as the grace allows."""
        async with asyncio.TaskGroup() as background:
            helpers = [background.create_task(self._watch.run()), background.create_task(self._watch_live())]
            if on_progress is not None:
                helpers.append(background.create_task(report(self._snapshot, on_progress)))
            try:
                if barrier is not None:
                    self._started_s = (await barrier(Ready(0.0))).start_s
                else:
                    self._started_s = self._client.now_s()
                self._ended_s = self._last_sent_s = self._started_s
                self._dispatcher = background.create_task(self._dispatch())
                await asyncio.wait([self._dispatcher])
                await self._drain()
            finally:
                for task in [*helpers, *self._flights, *([self._dispatcher] if self._dispatcher else [])]:
                    task.cancel()
                await asyncio.gather(*self._flights, return_exceptions=True)
        if self._failure is not None:
            raise self._failure
        if on_progress is not None:
            on_progress(self._snapshot())

    def on_stop(self) -> None:
        """The stop signal got stricter."""
        self.timeline.wake_all()
        self._landed.set()
        if self._stop.mode == "now":
            for flight in self._flights:
                flight.cancel()

    def outcome(self) -> LoopOutcome:
        """See LoopOutcome. Concurrency is what was in flight at most: an open loop asks for none."""
        sent = self.progress.sent
        planned = sent if self.progress.planned is None else max(sent, self.progress.planned)
        timed = self._plan.duration_s is not None and self._stop.mode is None
        ended_s = self._started_s + (self._plan.duration_s or 0.0) if timed else self._ended_s
        return LoopOutcome(
            planned=planned,
            sent=sent,
            not_sent=planned - sent,
            concurrency=max(1, self._client.max_in_flight),
            window_start_s=self._started_s,
            window_end_s=ended_s,
            lane_live_s=0.0,
            max_in_flight=self._client.max_in_flight,
            health=self._watch.result(),
            stop_mode=self._stop.mode,
            stop_reason=self._stop.reason,
            steady_start_s=self._started_s,
            steady_end_s=min(self._last_sent_s, ended_s),
            timed=self._plan.duration_s is not None,
            passes=self._pass + 1,
            live=tuple(self._live),
            live_interval_s=LIVE_INTERVAL_S,
            cut_off=tuple(self._cut_off),
            held_by_cap=self._held,
        )

    async def _dispatch(self) -> None:
        plan, shard = self._plan, self._plan.shard
        limit = plan.max_requests if plan.max_requests is not None else math.inf
        lives: dict[tuple[str, int, str | None], Live] = {}
        for number, (at_s, place) in enumerate(in_order(plan)):
            if number >= limit or (plan.duration_s is not None and at_s >= plan.duration_s):
                return
            if number % shard.count != shard.index:
                continue
            self._pass = max(self._pass, place.pass_number)
            request = self._request(place, lives)
            due_s = self._started_s + at_s
            await self.timeline.until(due_s)
            if plan.max_in_flight is not None and not await self._room(plan.max_in_flight):
                return
            if self._stopped():
                return
            request.intended_send_s = due_s
            self._last_sent_s = self._client.now_s()
            flight = asyncio.create_task(self._fly(request))
            self._flights.add(flight)
            flight.add_done_callback(self._flown)

    def _request(self, place: _Place, lives: dict[tuple[str, int, str | None], Live]) -> ChatRequest:
        agent_id = None if place.agent is None else place.agent.id
        key = (place.session.id, place.pass_number, agent_id)
        live = lives.get(key)
        if live is None:
            if len(lives) >= 64:  # encoded messages are kept for the streams that are being sent only
                del lives[next(iter(lives))]
            live = self._sender.live(place.session, place.pass_number, place.agent, place.parent)
            lives[key] = live
        messages = live.prompts.encode(place.number)
        return self._sender.request(live, place.number, place.turn, messages, None)

    async def _room(self, cap: int) -> bool:
        """Wait until fewer than `cap` requests are in flight; False when a stop came first."""
        if len(self._flights) >= cap:
            self._held += 1
        while len(self._flights) >= cap and not self._stopped():
            self._landed.clear()
            await self._landed.wait()
        return not self._stopped()

    async def _fly(self, request: ChatRequest) -> None:
        await self._sender.send(request)

    def _flown(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        self._landed.set()
        self._ended_s = max(self._ended_s, self._client.now_s())
        if not flight.cancelled() and (error := flight.exception()) is not None and self._failure is None:
            self._failure = error
            self._stop.request("now", "sink")
            if self._dispatcher is not None:
                self._dispatcher.cancel()

    async def _drain(self) -> None:
        """The grace counts from the end of the duration, or from the last send."""
        plan = self._plan
        if not self._flights:
            return
        left_s: float | None = None
        if plan.grace_s is not None and self._stop.mode is None:
            end_s = self._started_s + plan.duration_s if plan.duration_s is not None else self._last_sent_s
            left_s = max(0.0, end_s + plan.grace_s - self._client.now_s())
        _, late = await asyncio.wait(set(self._flights), timeout=left_s)
        if late:
            self._cut_off = sorted(self._sender.open)
            for flight in late:
                flight.cancel()
            await asyncio.wait(late)

    def _stopped(self) -> bool:
        return self._stop.mode is not None

    async def _watch_live(self) -> None:
        while True:
            await asyncio.sleep(LIVE_INTERVAL_S)
            if len(self._live) < 4096:
                self._live.append(LiveSample(self._client.now_s(), 0, self._client.in_flight))

    def _snapshot(self) -> ProgressSnapshot:
        elapsed_s = max(0.0, self._client.now_s() - self._started_s)
        return self.progress.snapshot(elapsed_s, self._client.in_flight)
