"""A replay that takes place in a model: session trees in lanes (or open arrivals), a prefix cache, and engines whose
steps take as long as they were fitted or assumed to. Event-driven, seeded, and without a clock.

The client's side obeys the rules of `replay/` turn by turn: think times from end to start, joins, idle caps, start points,
warm-up, passes with new markers, the end by time with its grace. The engines' side is approximated between events: see
`sim_engine`. Nothing is random but what the rules draw by their seed, so that equal arguments give equal runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from heapq import heappop
from typing import Final

from servemark.base.collector import uncollected
from servemark.base.errors import input_error
from servemark.predict.blocks import require_content
from servemark.predict.sim_clock import Clock, Waiting
from servemark.predict.sim_engine import DECODING, PREFILLED, Engines, SimRequest, WorkerCache
from servemark.predict.sim_prompts import Prompts
from servemark.predict.sim_result import SimulatedRun, Tally
from servemark.predict.sim_rules import Deployment, ReplayRules
from servemark.predict.sim_sessions import SessionPlan, SessionPlans, StreamPlan
from servemark.predict.sim_trees import LiveStream, LiveTree, Trees
from servemark.predict.types import PrefixCache, StepTimes
from servemark.replay.start_points import draw_start
from servemark.traces.rng import SplitMix
from servemark.traces.template import TemplateTokens
from servemark.traces.types import Workload

_INF: Final = math.inf
DEFAULT_BLOCK_TOKENS: Final = 64
MAX_AT_ONCE: Final = 100_000
"""Requests in one instant, and 64 a lane: more says that neither engine nor trace take any time."""
MAX_REQUESTS: Final = 10_000_000
"""Of one simulation: minutes of work; an engine that takes no time would send for ever within a duration."""


class _LaneStart(Waiting):
    """A lane that begins later than the first."""

    __slots__ = ("lane", "tree")

    def __init__(self, lane: int, tree: LiveTree | None) -> None:
        super().__init__()
        self.lane = lane
        self.tree = tree


class _WarmUp:
    """Requests of one token that are sent one after the other."""

    __slots__ = ("left",)

    def __init__(self, left: Iterator[SimRequest]) -> None:
        self.left = left


def simulate(
    workload: Workload,
    cache: PrefixCache | None,
    times: StepTimes,
    rules: ReplayRules,
    deployment: Deployment | None = None,
    *,
    block_tokens: int | None = None,
    template: TemplateTokens | None = None,
    keep_requests: bool = False,
) -> SimulatedRun:
    """Replay `workload` in a model.

    `cache` None: an unbounded cache, in which each request finds what the earlier turns of its own tree held (in the
    order of the trace; the prompts themselves are not looked at, so this is the fastest). Else prompts are given to it as
    blocks of `block_tokens` (None: the cache's own size). `template`: what the engine's chat template adds to prompts;
    None: nothing. `keep_requests` keeps every request with its name and times in the result.

    Raises ServemarkError for rules that cannot be, a workload without requests or with unknown lengths, a prompt larger
    than the KV pool, and times that are negative or no numbers.
    """
    if not len(workload.sessions):
        raise input_error("predict.replay.no_requests", name=workload.name)
    if cache is not None:
        require_content(workload)
    deployment = deployment or Deployment()
    size = block_tokens or (
        cache.config.block_tokens if isinstance(cache, WorkerCache) else DEFAULT_BLOCK_TOKENS
    )
    if rules.arrivals is not None:
        from servemark.predict.sim_open import simulate_open  # noqa: PLC0415 - brings the client along

        with uncollected():
            return simulate_open(
                workload, cache, times, rules, deployment, size, template, keep=keep_requests
            )
    with uncollected():
        return _ClosedLoop(
            workload, cache, times, rules, deployment, size, template, keep=keep_requests
        ).run()


class _ClosedLoop:
    """The state of one simulated closed loop."""

    def __init__(  # noqa: PLR0917 - as simulate
        self,
        workload: Workload,
        cache: PrefixCache | None,
        times: StepTimes,
        rules: ReplayRules,
        deployment: Deployment,
        block_tokens: int,
        template: TemplateTokens | None,
        *,
        keep: bool,
    ) -> None:
        self._rules = rules
        self._name = workload.name
        self._plans = SessionPlans(
            workload, rules.cache_bust, rules.think_scale, template, known=cache is None
        )
        self._prompts = None if cache is None else Prompts(block_tokens, rules.cache_bust, template)
        self._engines = Engines(deployment, times, cache)
        self._clock = Clock(rules.idle_caps)
        self._trees = Trees(self._clock, rules.client_s, self._send, self._drained)
        self._tally = Tally(deployment, keep=keep)
        self._lanes = rules.lanes(len(workload.sessions))
        self._live: dict[LiveTree, None] = {}
        self._taken = 0
        self._empty = 0
        self._sent = self._at_once = 0
        self._limit = min(MAX_REQUESTS, rules.max_requests or MAX_REQUESTS)
        self._moved_s = -1.0
        self._start_s = self._now_s = 0.0
        self._capped = self._clock.capped

    def run(self) -> SimulatedRun:
        """Warm up, let the lanes run to the end, and tell what came of it."""
        trees = self._first_trees()
        self._warm_up([tree for tree in trees if tree is not None])
        self._start_s = self._clock.idle_since_s = self._tally.start_s = self._now_s
        self._begin_lanes(trees)
        rules = self._rules
        end_s = _INF if rules.duration_s is None else self._start_s + rules.duration_s
        self._tally.end_s = end_s
        self._until(end_s)
        if rules.duration_s is not None:
            self._stop()
            self._until(_INF if rules.grace_s is None else end_s + rules.grace_s)
        for request in self._engines.cancel_all(self._now_s):
            self._tally.cut_off(request)
        for tree in self._live:
            self._tally.lane_live_s += self._now_s - tree.taken_s
        window = (self._start_s, end_s if rules.duration_s is not None else self._tally.last_s)
        passes = max(1, math.ceil(self._taken / len(self._plans)))
        return self._tally.result(window, self._engines, self._clock, sent=self._sent, passes=passes)

    # -- events

    def _until(self, end_s: float) -> None:  # noqa: PLR0912 - one loop, some hundred thousand times a second
        """Let everything happen that is due before `end_s`."""
        engines, clock = self._engines, self._clock
        ended, events, timers = engines.ended, engines.events, clock.timers
        alone, decoded, prefilled = engines.alone, engines.decoded, engines.prefilled
        send, has_ended, capped = self._send, self._ended, self._capped
        while True:
            event_s = alone.due_s
            kind = DECODING
            if events and events[0][0] <= event_s:
                event_s, _, kind, what = events[0]
            timer_s = timers[0][0] - clock.offset_s if timers else _INF
            if event_s <= timer_s:
                if event_s >= end_s:
                    break
                self._now_s = event_s
                if kind == PREFILLED:  # as Engines.handle
                    heappop(events)
                    prefilled(what, event_s)
                elif event_s == alone.due_s:
                    decoded(alone, event_s)
                else:
                    engines.handle(event_s)
                if ended:
                    for request in ended:
                        has_ended(request, event_s)
                    ended.clear()
            else:
                if timer_s >= end_s:
                    break
                key_s, _, timer = heappop(timers)
                if timer.key_s != key_s:  # it was moved since
                    continue
                timer.key_s = _INF
                if timer_s > self._now_s:  # noqa: PLR1730 - faster than a call
                    self._now_s = timer_s
                if isinstance(timer, LiveStream):
                    if capped:
                        timer.tree.waiting.pop(timer, None)
                    send(timer, self._now_s)
                elif isinstance(timer, _LaneStart):
                    self._lane(timer.lane, timer.tree)
        if end_s < _INF:
            self._now_s = max(self._now_s, end_s)

    def _send(self, stream: LiveStream, now_s: float) -> None:
        if self._sent >= self._limit or self._trees.over:
            self._send_no_more(stream, now_s)
            return
        self._sent += 1
        if now_s > self._moved_s:
            self._moved_s = now_s
            self._at_once = 0
        else:
            self._check_progress()
        tree, plan, number = stream.tree, stream.plan, stream.turn
        request = stream.request
        if request is None:
            request = stream.request = SimRequest(
                stream, tree.key, plan.name, number,
                plan.input_tokens[number], plan.output_tokens[number], plan.known_tokens[number], True,
            )  # fmt: skip
        else:  # a stream has one request in flight, and this is what of it changes
            request.number = number
            request.input_tokens = plan.input_tokens[number]
            request.output_tokens = plan.output_tokens[number]
            request.known_tokens = plan.known_tokens[number]
            request.first_s = _INF
            request.waited_s = 0.0
        if self._prompts is not None:
            self._prompt(request, tree.plan)
        tree.in_flight += 1
        clock = self._clock
        clock.in_flight += 1
        if clock.in_flight > self._tally.max_in_flight:  # noqa: PLR1730 - faster than a call
            self._tally.max_in_flight = clock.in_flight
        self._engines.submit(request, now_s)

    def _send_no_more(self, stream: LiveStream, now_s: float) -> None:
        """The run is over, or its last request has been sent."""
        if not self._trees.over:
            if self._rules.max_requests is None:
                passed_s = round(now_s - self._start_s, 3)
                raise input_error("predict.replay.too_many", limit=MAX_REQUESTS, at_s=passed_s)
            self._stop()
        self._trees.stop((stream,), now_s)

    def _prompt(self, request: SimRequest, plan: SessionPlan) -> None:
        if self._prompts is None:
            return
        load = partial(self._plans.session, plan)
        request.cache = self._prompts.of(plan.id, load, request.tree, request.stream, request.number)
        request.input_tokens = max(1, request.cache.input_tokens)

    def _check_progress(self) -> None:
        """Raises ServemarkError for a replay that would never end."""
        self._at_once += 1
        if self._rules.duration_s is not None and self._at_once > MAX_AT_ONCE + 64 * self._lanes:
            raise input_error("predict.replay.no_time_passes", requests=self._at_once)

    def _ended(self, request: SimRequest, now_s: float) -> None:
        stream = request.owner
        if not isinstance(stream, LiveStream):
            self._warm_next(stream)
            return
        self._tally.add(request)
        tree, clock = stream.tree, self._clock
        tree.in_flight -= 1
        clock.in_flight -= 1
        if not tree.in_flight:
            tree.idle_since_s = now_s
        if not clock.in_flight:
            clock.idle_since_s = now_s
        self._trees.replied(stream, now_s)
        if self._capped and not (tree.in_flight and clock.in_flight) and not self._trees.over:
            clock.judge(tree, now_s)

    def _stop(self) -> None:
        """Nothing more is sent; what is in flight goes on."""
        if self._trees.over:
            return
        waiting = self._clock.clear()
        self._trees.over = True
        self._trees.stop([w for w in waiting if isinstance(w, LiveStream)], self._now_s)

    # -- lanes

    def _begin_lanes(self, trees: Sequence[LiveTree | None]) -> None:
        offsets = [t.start.first_offset_s for t in trees if t is not None and t.start is not None]
        self._first_offset_s = min(offsets, default=0.0)
        step_s = self._rules.ramp_step_s(len(self._plans))
        for lane in range(self._lanes):
            start = _LaneStart(lane, trees[lane] if trees else None)
            self._clock.wait(start, self._start_s + lane * step_s, None)

    def _lane(self, lane: int, tree: LiveTree | None) -> None:
        """The lane takes a tree, its first one or the next."""
        now_s = self._now_s
        while not self._trees.over:
            if tree is None:
                tree = self._next_tree(lane)
            if tree is None:
                return
            if tree.plan.requests:
                self._empty = 0
                break
            self._empty += 1
            if self._empty > len(self._plans):
                raise input_error("predict.replay.no_requests", name=self._name)
            tree = None
        if tree is None or self._trees.over:
            return
        tree.taken_s = now_s
        self._live[tree] = None
        self._tally.live(+1, now_s)
        base_s = now_s
        if tree.start is not None:
            base_s = self._start_s + lane * self._rules.ramp_step_s(len(self._plans)) - self._first_offset_s
        self._trees.begin(tree, base_s, now_s)
        if self._capped and not self._trees.over:
            self._clock.judge(tree, now_s)

    def _drained(self, tree: LiveTree, now_s: float) -> None:
        del self._live[tree]
        tree.streams.clear()  # they hold each other
        self._tally.lane_live_s += now_s - tree.taken_s
        self._tally.live(-1, now_s)
        self._engines.forget(tree.key)
        if self._prompts is not None:
            self._prompts.forget(tree.plan.id, tree.key)
        if self._trees.over:
            return
        # Through a timer, so that a long row of trees that end at once does not call itself ever deeper.
        self._clock.wait(_LaneStart(tree.lane, None), now_s, None)

    def _next_tree(self, lane: int) -> LiveTree | None:
        count = len(self._plans)
        if self._taken >= count and not self._rules.repeats:
            return None
        pass_number, place = divmod(self._taken, count)
        self._taken += 1
        return LiveTree(self._plans.at(place), pass_number, lane)

    # -- before the window

    def _first_trees(self) -> list[LiveTree | None]:
        """With start points each lane's first tree is fixed beforehand."""
        share = self._rules.start_share
        if share is None:
            return []
        trees: list[LiveTree | None] = []
        for lane in range(self._lanes):
            tree = self._next_tree(lane)
            if tree is not None and tree.plan.requests:
                key = ["start", self._rules.start_seed, tree.plan.id, lane]
                tree.start = draw_start(self._plans.session(tree.plan), share, key)
            trees.append(tree)
        return trees

    def _warm_up(self, trees: Sequence[LiveTree]) -> None:
        """Each tree's live streams, one request each; then the pressure; all within the grace."""
        until_s = self._now_s + self._rules.warmup_grace_s
        stages = [[self._stream_warm_ups(tree) for tree in trees if tree.start is not None]]
        if self._rules.pressure_requests:
            stages.append([self._pressure(tree.lane) for tree in trees])
        for stage in stages:
            for jobs in stage:
                self._warm_next(_WarmUp(jobs))
            self._until_drained(until_s)

    def _until_drained(self, until_s: float) -> None:
        engines = self._engines
        while engines.in_flight:
            at_s = engines.next_s()
            if at_s > until_s:
                self._now_s = max(self._now_s, until_s)
                self._tally.warmup_cut_off += len(engines.cancel_all(self._now_s))
                return
            self._now_s = at_s
            engines.handle(at_s)
            ended = list(engines.ended)
            engines.ended.clear()
            for request in ended:
                self._ended(request, at_s)

    def _warm_next(self, job: object) -> None:
        if not isinstance(job, _WarmUp):
            return
        request = next(job.left, None)
        if request is not None:
            request.owner = job
            self._tally.warm_ups += 1
            self._engines.submit(request, self._now_s)

    def _stream_warm_ups(self, tree: LiveTree) -> Iterator[SimRequest]:
        start = tree.start
        for name, plan in tree.plan.streams.items():
            begun = None if start is None else start.streams.get(name)
            if begun is not None and begun.first_turn:
                yield self._one_token(tree.plan, plan, begun.first_turn - 1, tree.key, 0)

    def _pressure(self, lane: int) -> Iterator[SimRequest]:
        draw = SplitMix(["pressure", self._rules.start_seed, lane])
        for number in range(self._rules.pressure_requests):
            plan = self._plans.at(draw.integer(0, len(self._plans) - 1))
            main = plan.streams[""]
            if not main.think_s:
                continue
            turn = draw.integer(0, len(main.think_s) - 1)
            yield self._one_token(plan, main, turn, f"pressure {lane} {number}", 0)

    def _one_token(
        self, plan: SessionPlan, stream: StreamPlan, turn: int, tree: str, known: int
    ) -> SimRequest:
        request = SimRequest(None, tree, stream.name, turn, stream.input_tokens[turn], 1, known, False)
        if self._prompts is not None:
            self._prompt(request, plan)
            if tree.startswith("pressure "):
                self._prompts.forget(plan.id, tree)
        return request
