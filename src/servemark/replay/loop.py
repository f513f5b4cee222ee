"""The closed loop: a fixed number of lanes, each holding one live session tree and taking the next when that
one has drained.

A turn is sent `think_s * think_scale` after the end of everything it waits for: the reply before it, and the
sub-agents that join there. That moment is its intended send. Sub-agents run beside their parent, so that more
requests than lanes may be in flight. What a turn sends does not depend on what the engine answered (unless
live replies are asked for), so a stream goes on after a failed turn. Every request that was begun ends in
exactly one record, handed to the sink the moment it ends.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from servemark.base.errors import input_error
from servemark.replay.client import Client
from servemark.replay.health import HealthWatch
from servemark.replay.outcome import LiveSample, LoopOutcome
from servemark.replay.playing import Barrier, Go, Ready, play, report
from servemark.replay.profiles import FailureGate, Replies, Validity
from servemark.replay.progress import Progress, ProgressSnapshot
from servemark.replay.prompts import SegmentText
from servemark.replay.record import Phase, RequestRecord
from servemark.replay.sending import Sender, SendRules
from servemark.replay.start_points import TreeStart, draw_start
from servemark.replay.stop import StopSignal
from servemark.replay.timeline import IdleCaps, Timeline
from servemark.replay.trees import Tree, TreeRunner
from servemark.replay.warm_up import WarmUp, WarmUpPlan
from servemark.traces.types import CacheBust, Session, Workload

__all__ = ["LoopOutcome", "LoopPlan", "ProgressSnapshot", "Shard", "StopSignal", "run_closed_loop"]

RAMP_S: Final = 1.0
RAMP_STEP_S: Final = 0.02
"""Lanes start at most 20 ms apart and all within a second, so that their first sends do not queue in the
client."""

LIVE_INTERVAL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Shard:
    """Which part of the lanes and sessions this process has: every `count`-th from `index` on."""

    index: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """What one closed loop replays. Raises ServemarkError (layer input) for what cannot be run.

    `marker_salt` names the point, so that two points never share a cache-bust marker. `seed` goes into each
    request for the engine's sampler. `ramp_s` is the time over which the lanes start; None chooses it by
    their number. With `duration_s` or `max_requests` sessions come again until that end, each pass with new
    markers; requests in flight at the end of the time are given `grace_s` (None: as long as they need).
    `start_share` is explained in start_points.
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
    stream: bool = True
    replies: Replies = "recorded"
    duration_s: float | None = None
    max_requests: int | None = None
    grace_s: float | None = None
    idle_caps: IdleCaps = field(default_factory=IdleCaps)
    start_share: tuple[float, float] | None = None
    start_seed: int = 42
    pressure_requests: int = 0
    warmup_grace_s: float = 1800.0
    validity: Validity = field(default_factory=Validity)
    shard: Shard = field(default_factory=Shard)

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise input_error("replay.bad_concurrency", value=self.concurrency)
        if not 0 <= self.think_scale < math.inf:
            raise input_error("replay.bad_think_scale", value=self.think_scale)
        if self.ramp_s is not None and not 0 <= self.ramp_s < math.inf:
            raise input_error("replay.bad_ramp", value=self.ramp_s)
        if self.duration_s is not None and not 0 < self.duration_s < math.inf:
            raise input_error("replay.bad_duration", value=self.duration_s)
        if self.max_requests is not None and self.max_requests < 1:
            raise input_error("replay.bad_requests", value=self.max_requests)
        if self.repeats and not len(self.workload.sessions):
            raise input_error("replay.no_sessions", name=self.workload.name)
        if isinstance(self.workload.sessions, tuple | list):  # others are checked by their reader
            for session in self.workload.sessions:
                check_think_times(session)

    @property
    def repeats(self) -> bool:
        """True when sessions come again until the end."""
        return self.duration_s is not None or self.max_requests is not None

    @property
    def my_sessions(self) -> int:
        """Sessions of this shard."""
        return len(range(self.shard.index, len(self.workload.sessions), self.shard.count))

    @property
    def lanes(self) -> int:
        """Lanes of this shard that can ever be live: no more than there are sessions, unless these repeat."""
        mine = len(range(self.shard.index, self.concurrency, self.shard.count))
        return mine if self.repeats and self.my_sessions else min(mine, self.my_sessions)

    @property
    def ramp_step_s(self) -> float:
        """Seconds between the starts of neighbouring lanes of all shards."""
        lanes = self.concurrency if self.repeats else min(self.concurrency, len(self.workload.sessions))
        if lanes < 2:
            return 0.0
        if self.ramp_s is not None:
            return self.ramp_s / (lanes - 1)
        return min(RAMP_STEP_S, RAMP_S / (lanes - 1))


def check_think_times(session: Session) -> None:
    """Raises ServemarkError for a time that cannot be waited for."""

    def check(stream: str, times: list[float]) -> None:
        for number, value in enumerate(times):
            if not 0 <= value < math.inf:
                name = f"{session.id}/{stream}" if stream else session.id
                raise input_error("replay.bad_think", session=name, turn=number, value=value)

    for stream, turns in session.streams():
        check(stream, [turn.think_s for turn in turns])
    for child in session.descendants():
        check(child.id, [child.delay_s])


async def run_closed_loop(  # noqa: PLR0917 - the last three are optional
    plan: LoopPlan,
    client: Client,
    text_maker: SegmentText,
    sink: Callable[[RequestRecord], None],
    stop: StopSignal,
    on_progress: Callable[[ProgressSnapshot], None] | None = None,
    barrier: Barrier | None = None,
    on_made: Callable[[ClosedLoop], None] | None = None,
) -> LoopOutcome:
    """Replay the plan's workload once against the client's target.

    `sink` is called synchronously as each request ends. When it raises (a full disk), nothing more is sent,
    requests in flight are cancelled and its error is raised again. The same holds for `text_maker` and
    `on_progress`, except that cancelled requests still reach the sink. Cancelling this coroutine is a stop
    `now`. Raises ServemarkError (layer replay) when a request of the warm-up fails.
    """
    return await play(
        lambda: ClosedLoop(plan, client, text_maker, sink, stop),
        plan.lanes, client, stop, on_progress, barrier, on_made,
    )  # fmt: skip


class ClosedLoop:
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
        self._client = client
        self._stop = stop
        self._over = False
        self._taken = 0
        self._skipped = 0
        self._lanes: list[asyncio.Task[None]] = []
        self._live_lanes = 0
        self._lane_live_s = 0.0
        self._started_s = self._ended_s = client.now_s()
        self._steady: list[float | None] = [None, None]
        self._live: list[LiveSample] = []
        self._live_interval_s = LIVE_INTERVAL_S
        self._cut_off: list[str] = []
        client.max_in_flight = client.in_flight
        self._watch = HealthWatch()
        self.timeline = Timeline(client.now_s, self._stopped, plan.idle_caps)
        self.progress = Progress(self._planned(), plan.duration_s)
        rules = SendRules(
            plan.cache_bust, plan.marker_salt, plan.temperature, plan.seed, plan.ignore_eos,
            plan.stream, plan.replies, plan.phase, plan.shard.index if plan.shard.count > 1 else None,
        )  # fmt: skip
        gate = FailureGate(plan.validity, plan.concurrency)
        self._sender = Sender(rules, client, text_maker, sink, stop, self.progress, gate)
        self._sender.begun, self._sender.ended = self.timeline.begin, self.timeline.end
        self._runner = TreeRunner(self._sender, self.timeline, self._stopped, self._claim, plan.think_scale)
        self._warm_up = WarmUp(
            WarmUpPlan(
                plan.workload, plan.lanes, plan.pressure_requests, plan.warmup_grace_s, plan.start_seed
            ),
            self._sender,
            stop,
        )

    async def run(
        self, on_progress: Callable[[ProgressSnapshot], None] | None, barrier: Barrier | None
    ) -> None:
        """Warm up, wait for the others, and let the lanes run to the end."""
        trees = self._first_trees()
        async with asyncio.TaskGroup() as background:
            helpers = [background.create_task(self._watch_live(), name="live")]
            if on_progress is not None:
                helpers.append(background.create_task(report(self._snapshot, on_progress), name="report"))
            try:
                await self._warmed(trees)
                go = await self._go(trees, barrier)
                self._started_s = self._ended_s = go.start_s
                helpers.append(background.create_task(self._watch.run(), name="health"))
                helpers.append(background.create_task(self._deadline(), name="deadline"))
                await self._run_lanes(trees, go)
            finally:
                for task in helpers:
                    task.cancel()
        if on_progress is not None:
            on_progress(self._snapshot())

    def on_stop(self) -> None:
        """The stop signal got stricter: wake the lanes that only wait, and on `now` cancel all of them."""
        self.timeline.wake_all()
        if self._stop.mode == "now":
            self._warm_up.cancel()
            for lane in self._lanes:
                lane.cancel()

    def outcome(self) -> LoopOutcome:
        """See LoopOutcome."""
        sent = self.progress.sent
        planned = sent if self.progress.planned is None else self.progress.planned
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
            steady_start_s=self._steady[0],
            steady_end_s=self._steady[1],
            timed=self._plan.duration_s is not None,
            passes=max(1, math.ceil(self._taken / max(1, self._plan.my_sessions))),
            shifts=tuple(self.timeline.shifts),
            live=tuple(self._live),
            live_interval_s=self._live_interval_s,
            cut_off=tuple(self._cut_off),
            warmup_cut_off=tuple(self._warm_up.cut_off),
        )

    # -- before the window

    def _planned(self) -> int | None:
        plan = self._plan
        if plan.duration_s is not None:
            return None
        if plan.max_requests is not None:
            return len(range(plan.shard.index, plan.max_requests, plan.shard.count))
        if plan.shard.count == 1:
            return plan.workload.requests
        return None

    def _first_trees(self) -> list[Tree | None]:
        """With start points each lane's first tree is fixed beforehand; else lanes take theirs as they start."""
        plan = self._plan
        if plan.start_share is None:
            return [None] * plan.lanes
        trees: list[Tree | None] = []
        for lane in range(plan.lanes):
            tree = self._next_tree(self._lane_number(lane))
            if tree is not None:
                tree.start = draw_start(
                    tree.session, plan.start_share, ["start", plan.start_seed, tree.session.id, tree.lane]
                )
                self._skipped += _skipped_turns(tree.session, tree.start)
            trees.append(tree)
        if self.progress.planned is not None and plan.max_requests is None:
            self.progress.planned -= self._skipped
        return trees

    async def _warmed(self, trees: list[Tree | None]) -> None:
        self.progress.warming = True
        await self._warm_up.run([tree for tree in trees if tree is not None])
        self.progress.warming = False

    async def _go(self, trees: list[Tree | None], barrier: Barrier | None) -> Go:
        offsets = [t.start.first_offset_s for t in trees if t is not None and t.start is not None]
        first_s = min(offsets, default=0.0)
        if barrier is not None:
            return await barrier(Ready(first_s))
        return Go(self._client.now_s(), first_s)

    # -- the window

    async def _run_lanes(self, trees: list[Tree | None], go: Go) -> None:
        self._client.max_in_flight = self._client.in_flight
        async with asyncio.TaskGroup() as lanes:
            self._lanes = [
                lanes.create_task(self._lane(number, tree, go)) for number, tree in enumerate(trees)
            ]
            if self._stop.mode == "now":
                self.on_stop()
        if self._plan.duration_s is not None and self._stop.mode is None:
            self._ended_s = self._started_s + self._plan.duration_s
        if self._steady[0] is not None and self._steady[1] is None:
            self._steady[1] = self._ended_s

    async def _lane(self, number: int, first: Tree | None, go: Go) -> None:
        lane = self._lane_number(number)
        start_s = go.start_s + lane * self._plan.ramp_step_s
        await self.timeline.until(start_s)
        while not self._stopped():
            tree, first = first or self._next_tree(lane), None
            if tree is None:
                break
            taken_s = self._client.now_s()
            self._note_live(+1, taken_s)
            base_s = taken_s if tree.start is None else start_s - go.first_offset_s
            try:
                await self._runner.run(tree, base_s)
            finally:
                left_s = self._client.now_s()
                self._lane_live_s += left_s - taken_s
                self._ended_s = max(self._ended_s, left_s)
                self._note_live(-1, left_s)
                self.timeline.forget(tree.key)
        if self._steady[1] is None and self._steady[0] is not None:
            self._steady[1] = self._client.now_s()

    def _note_live(self, change: int, at_s: float) -> None:
        self._live_lanes += change
        self.progress.live_sessions = self._live_lanes
        if self._steady[0] is None and self._live_lanes == self._plan.lanes:
            self._steady[0] = at_s

    def _lane_number(self, number: int) -> int:
        return self._plan.shard.index + number * self._plan.shard.count

    def _next_tree(self, lane: int) -> Tree | None:
        """The next session of this shard; None when there are no more."""
        mine = self._plan.my_sessions
        if self._taken >= mine and not (self._plan.repeats and mine):
            return None
        pass_number, place = divmod(self._taken, mine)
        session = self._plan.workload.sessions[self._plan.shard.index + place * self._plan.shard.count]
        self._taken += 1
        return Tree(session, pass_number, lane)

    def _claim(self) -> bool:
        """May one more measured request be sent? False at the end of a fixed count."""
        limit = self.progress.planned if self._plan.max_requests is not None else None
        if limit is None or self.progress.sent < limit:
            return True
        self._end()
        return False

    def _stopped(self) -> bool:
        return self._over or self._stop.mode is not None

    def _end(self) -> None:
        """Nothing more is sent; what is in flight goes on."""
        self._over = True
        self.timeline.wake_all()

    async def _deadline(self) -> None:
        plan = self._plan
        if plan.duration_s is None:
            return
        await asyncio.sleep(max(0.0, self._started_s + plan.duration_s - self._client.now_s()))
        if self._steady[0] is not None and self._steady[1] is None:
            self._steady[1] = self._started_s + plan.duration_s
        self._end()
        if plan.grace_s is None:
            return
        await asyncio.sleep(plan.grace_s)
        self._cut_off = sorted(self._sender.open)
        for lane in self._lanes:
            lane.cancel()

    # -- watching

    async def _watch_live(self) -> None:
        """Samples of live trees; their distance doubles when there are many, so that memory is bounded."""
        while True:
            await asyncio.sleep(self._live_interval_s)
            if self.progress.warming or not self._lanes:
                continue
            self._live.append(LiveSample(self._client.now_s(), self._live_lanes, self._client.in_flight))
            if len(self._live) >= 4096:
                del self._live[::2]
                self._live_interval_s *= 2

    def _snapshot(self) -> ProgressSnapshot:
        elapsed_s = max(0.0, self._client.now_s() - self._started_s)
        return self.progress.snapshot(elapsed_s, self._client.in_flight)


def _skipped_turns(session: Session, start: TreeStart) -> int:
    """Turns of the tree before its t*."""
    skipped = 0
    for name, turns in session.streams():
        if name in start.over:
            skipped += len(turns)
        elif name in start.streams:
            skipped += start.streams[name].first_turn
    return skipped
