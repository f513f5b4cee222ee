"""The closed loop: a fixed number of lanes, each holding one live session and taking the next when it has
drained.

A turn is sent `think_s * think_scale` after the end of the reply before it; that moment is its intended
send. What a turn sends does not depend on what the engine answered, so a session goes on after a failed
turn. Every planned request ends in exactly one record, handed to the sink the moment it ends, or is counted
in `LoopOutcome.not_sent`.
"""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from servemark.base.errors import input_error
from servemark.replay.client import Client
from servemark.replay.health import HealthWatch, LoopHealth
from servemark.replay.progress import PROGRESS_INTERVAL_S, Progress, ProgressSnapshot
from servemark.replay.prompts import SegmentText, SessionPrompts
from servemark.replay.record import Phase, RequestRecord
from servemark.replay.stop import StopMode, StopSignal
from servemark.replay.target import ChatRequest
from servemark.traces.types import CacheBust, Session, Turn, Workload

__all__ = ["LoopOutcome", "LoopPlan", "ProgressSnapshot", "StopSignal", "run_closed_loop"]

RAMP_S: Final = 1.0
RAMP_STEP_S: Final = 0.02
"""Lanes start at most 20 ms apart and all within a second, so that their first sends do not queue in the
client."""

_LONGEST_SLEEP_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """What one closed loop replays. Raises ServemarkError (layer input) for what cannot be run.

    `marker_salt` names the point, so that two points never share a cache-bust marker. `seed` goes into each
    request for the engine's sampler. `ramp_s` is the time over which the lanes start; None chooses it by
    their number.
    """

    workload: Workload
    concurrency: int
    cache_bust: CacheBust
    marker_salt: str
    temperature: float = 0.0
    seed: int | None = None
    ignore_eos: bool = True
    think_scale: float = 1.0
    phase: Phase = "measured"
    ramp_s: float | None = None

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise input_error("replay.bad_concurrency", value=self.concurrency)
        if not 0 <= self.think_scale < math.inf:
            raise input_error("replay.bad_think_scale", value=self.think_scale)
        if self.ramp_s is not None and not 0 <= self.ramp_s < math.inf:
            raise input_error("replay.bad_ramp", value=self.ramp_s)
        for session in self.workload.sessions:
            for number, turn in enumerate(session.turns):
                if not 0 <= turn.think_s < math.inf:
                    raise input_error("replay.bad_think", session=session.id, turn=number, value=turn.think_s)

    @property
    def lanes(self) -> int:
        """Lanes that can ever be live: no more than there are sessions."""
        return min(self.concurrency, len(self.workload.sessions))

    @property
    def ramp_step_s(self) -> float:
        """Seconds between the starts of neighbouring lanes."""
        if self.lanes < 2:
            return 0.0
        if self.ramp_s is not None:
            return self.ramp_s / (self.lanes - 1)
        return min(RAMP_STEP_S, RAMP_S / (self.lanes - 1))


@dataclass(frozen=True, slots=True)
class LoopOutcome:
    """What a closed loop did. `planned == sent + not_sent`; `sent` counts the records handed to the sink.

    The window lasts from the start of the first lane to the moment when the last one let go of its session,
    just after its last reply, in seconds since the client's zero. `lane_live_s` is the time that lanes held
    a session, summed over lanes. `stop_mode` is None when the workload was replayed to its end.
    """

    planned: int
    sent: int
    not_sent: int
    concurrency: int
    window_start_s: float
    window_end_s: float
    lane_live_s: float
    max_in_flight: int
    health: LoopHealth
    stop_mode: StopMode | None
    stop_reason: str | None

    @property
    def window_s(self) -> float:
        """Length of the window."""
        return self.window_end_s - self.window_start_s

    @property
    def achieved_concurrency(self) -> float | None:
        """Sessions live on average over the window; None for a window without length."""
        return self.lane_live_s / self.window_s if self.window_s > 0 else None


async def run_closed_loop(  # noqa: PLR0917 - the sixth is optional
    plan: LoopPlan,
    client: Client,
    text_maker: SegmentText,
    sink: Callable[[RequestRecord], None],
    stop: StopSignal,
    on_progress: Callable[[ProgressSnapshot], None] | None = None,
) -> LoopOutcome:
    """Replay the plan's workload once against the client's target.

    `sink` is called synchronously as each request ends. When it raises (a full disk), nothing more is sent,
    requests in flight are cancelled and its error is raised again. The same holds for `text_maker` and
    `on_progress`, except that cancelled requests still reach the sink. Cancelling this coroutine is a stop
    `now`.

    While it runs, objects that existed before are hidden from Python's cycle collector: walking a large
    workload would stop the clock for everyone in flight.
    """
    await client.warm(plan.lanes)
    replay = _ClosedLoop(plan, client, text_maker, sink, stop)
    gc.freeze()
    try:
        with stop.watched(replay.on_stop):
            await replay.run(on_progress)
    except BaseExceptionGroup as group:
        raise _first(group) from None
    finally:
        gc.unfreeze()
    return replay.outcome()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _ClosedLoop:
    """The state that lanes share. Everything happens in one event loop, so nothing is locked."""

    def __init__(
        self,
        plan: LoopPlan,
        client: Client,
        text_maker: SegmentText,
        sink: Callable[[RequestRecord], None],
        stop: StopSignal,
    ) -> None:
        self._plan = plan
        # Unique in the logs of a server that serves several points and phases, and short enough for a header.
        self._id_prefix = f"{plan.phase[0]}{sha256(plan.marker_salt.encode()).hexdigest()[:8]}"
        self._client = client
        self._text_maker = text_maker
        self._sink = sink
        self._sink_broken = False
        self._stop = stop
        self._sessions: Iterator[Session] = iter(plan.workload.sessions)
        self._lanes: list[asyncio.Task[None]] = []
        self._pauses: set[asyncio.Future[None]] = set()
        self._lane_live_s = 0.0
        self._started_s = self._ended_s = client.now_s()
        client.max_in_flight = client.in_flight
        self._watch = HealthWatch()
        self._progress = Progress(plan.workload.requests)

    async def run(self, on_progress: Callable[[ProgressSnapshot], None] | None) -> None:
        """Run all lanes to their end; raises an exception group when one of them fails."""
        async with asyncio.TaskGroup() as helpers:
            background = [helpers.create_task(self._watch.run())]
            if on_progress is not None:
                background.append(helpers.create_task(self._report(on_progress)))
            async with asyncio.TaskGroup() as lanes:
                self._lanes = [lanes.create_task(self._lane(n)) for n in range(self._plan.lanes)]
                if self._stop.mode == "now":
                    self.on_stop()
            for task in background:
                task.cancel()
        if on_progress is not None:
            on_progress(self._snapshot())

    def on_stop(self) -> None:
        """The stop signal got stricter: wake the lanes that only wait, and on `now` cancel all of them."""
        for pause in self._pauses:
            if not pause.done():
                pause.set_result(None)
        if self._stop.mode == "now":
            for lane in self._lanes:
                lane.cancel()

    def outcome(self) -> LoopOutcome:
        """See LoopOutcome."""
        planned, sent = self._progress.planned, self._progress.sent
        return LoopOutcome(
            planned=planned,
            sent=sent,
            not_sent=planned - sent,
            concurrency=self._plan.concurrency,
            window_start_s=self._started_s,
            window_end_s=self._ended_s,
            lane_live_s=self._lane_live_s,
            max_in_flight=self._client.max_in_flight,
            health=self._watch.result(),
            stop_mode=self._stop.mode,
            stop_reason=self._stop.reason,
        )

    async def _lane(self, number: int) -> None:
        await self._pause_until(self._started_s + number * self._plan.ramp_step_s)
        while self._stop.mode is None:
            session = next(self._sessions, None)
            if session is None:
                return
            taken_s = self._client.now_s()
            self._progress.live_sessions += 1
            try:
                await self._replay_session(number, session, taken_s)
            finally:
                self._progress.live_sessions -= 1
                left_s = self._client.now_s()
                self._lane_live_s += left_s - taken_s
                self._ended_s = max(self._ended_s, left_s)

    async def _replay_session(self, lane: int, session: Session, taken_s: float) -> None:
        plan = self._plan
        prompts = SessionPrompts(session, self._text_maker, plan.cache_bust, plan.marker_salt)
        due_s = taken_s
        for number, turn in enumerate(session.turns):
            if number:
                due_s += turn.think_s * plan.think_scale
            messages = prompts.encode(number)
            await self._pause_until(due_s)
            if self._stop.mode is not None:
                return
            request = self._request(lane, session, number, turn, messages)
            request.intended_send_s = due_s
            record = await self._send(request)
            due_s = self._client.now_s() if record.end_s is None else record.end_s

    def _request(self, lane: int, session: Session, number: int, turn: Turn, messages: bytes) -> ChatRequest:
        plan = self._plan
        return ChatRequest(
            id=f"{self._id_prefix}-{number}-{session.id}",
            session=session.id,
            turn=number,
            phase=plan.phase,
            messages=messages,
            max_tokens=turn.output_tokens,
            temperature=plan.temperature,
            ignore_eos=plan.ignore_eos,
            expected_input_tokens=turn.input_tokens,
            lane=lane,
            extra={} if plan.seed is None else {"seed": plan.seed},
        )

    async def _send(self, request: ChatRequest) -> RequestRecord:
        record = request.new_record()
        self._progress.sent += 1
        try:
            await self._client.send(request, record)
        finally:
            self._keep(record)
        return record

    def _keep(self, record: RequestRecord) -> None:
        """Hand the record to the sink; after the sink has failed once there is nowhere to put records."""
        self._progress.add(record)
        if self._sink_broken:
            return
        try:
            self._sink(record)
        except BaseException:  # whatever the sink raised is raised again when the lanes have ended
            self._sink_broken = True
            raise

    async def _pause_until(self, due_s: float) -> None:
        """Until the moment has come, never earlier, or until a stop is asked for."""
        loop = asyncio.get_running_loop()
        while self._stop.mode is None:
            left_s = due_s - self._client.now_s()
            if left_s <= 0:
                return
            pause: asyncio.Future[None] = loop.create_future()
            # The loop's timers have a grain of 1 ms: asking for less would wake early and spin.
            sleep_s = min(math.ceil(left_s * 1000) / 1000, _LONGEST_SLEEP_S)
            timer = loop.call_later(sleep_s, _wake, pause)
            self._pauses.add(pause)
            try:
                await pause
            finally:
                timer.cancel()
                self._pauses.discard(pause)

    async def _report(self, on_progress: Callable[[ProgressSnapshot], None]) -> None:
        while True:
            on_progress(self._snapshot())
            await asyncio.sleep(PROGRESS_INTERVAL_S)

    def _snapshot(self) -> ProgressSnapshot:
        return self._progress.snapshot(self._client.now_s() - self._started_s, self._client.in_flight)


def _wake(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)
