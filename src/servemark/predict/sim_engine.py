"""The simulated engines: queues, continuous batching, prefill and decode workers.

Nothing is stepped token by token. Between two events (a prompt begins or ends, a reply ends) the streams that decode on
a worker all gain tokens at one rate, tokens_per_step / step_s(streams, mean context, prompt tokens in the step), and the
worker has one counter of tokens gained, so that a reply's end is a fixed value of that counter. What this approximates:

- The mean context of an interval is that in its middle, if it lasts until the next reply's end; an event before that
  begins a new interval. Replies have fractions of tokens in between.
- A request begins at once when there is room, not at the next step's border: up to one step too early.
- A prompt's time is what `prefill_s` says as it begins; streams that join or leave meanwhile do not change it. Its tokens
  come evenly over that time, at most `chunk_tokens` of all prompts in one step: however long a prompt takes (a measured
  time to first token holds waits in which nothing is computed), its tokens are paid for once.
- A cache that knows its workers (`WorkerCache`) says which of them a request goes to, and whether there is room for it
  in its pool, whose shared prefixes it counts once; `kv_tokens` is then the decode workers' alone.
- A running request holds its whole prompt and reply in the KV pool from its beginning, prefixes that it shares with
  others counted again; so nobody is preempted. Where the pool or the running requests are full, requests wait in order.
- Prefill workers, whose cache is the one that is simulated, keep a prompt until it has gone to a decode worker, which takes
  it as soon as it has room; the first token is seen one step after its KV has come. The whole prompt is sent.
"""

from __future__ import annotations

import math
from collections import deque
from heapq import heappop, heappush
from typing import Any, Final, Protocol, runtime_checkable

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.predict.sim_rules import Deployment
from servemark.predict.types import CacheHit, CacheRequest, PrefixCache, StepTimes
from servemark.traces.rng import SplitMix

_INF: Final = math.inf
PREFILLED: Final = 0
DECODING: Final = 1
_ARRIVED: Final = 2
"""Kinds of events: a prompt has been computed, a reply on a worker may have ended, a prompt's KV has come."""
_EPSILON: Final = 1e-6
"""Tokens: rounding of a worker's counter, which counts up to some 1e9."""
NO_HIT: Final = CacheHit(0)


class CacheSizes(Protocol):
    """What is asked of a cache's configuration."""

    @property
    def workers(self) -> int:
        """Workers with a pool each."""
        ...

    @property
    def block_tokens(self) -> int:
        """Tokens of a block."""
        ...


@runtime_checkable
class WorkerCache(Protocol):
    """A cache that routes by itself and knows what fits beside what runs; see `cache_tiers.Deployment`."""

    @property
    def config(self) -> CacheSizes:
        """Its sizes."""
        ...

    def worker_of(self, request: CacheRequest) -> int:
        """The worker that a request goes to."""
        ...

    def room(self, request: CacheRequest) -> bool:
        """Whether it could begin now."""
        ...

    def forget(self, tree: str) -> None:
        """The tree has ended."""
        ...


class SimRequest:
    """One simulated request; times are seconds, None until they come. `known_tokens` is what an unbounded cache has of
    its prompt, used when no cache is simulated. `owner` is told of its end."""

    __slots__ = (
        "admitted_s", "cache", "end_s", "first_s", "gain", "hit", "input_tokens", "known_tokens", "measured", "number",
        "output_tokens", "owner", "prefill_rate", "prefilled_on", "ready_s", "start_s", "stream", "tree", "waited_s",
        "worker",
    )  # fmt: skip

    def __init__(  # noqa: PLR0917 - made hundred thousands of times a second
        self,
        owner: object,
        tree: str,
        stream: str,
        number: int,
        input_tokens: int,
        output_tokens: int,
        known_tokens: int,
        measured: bool,
    ) -> None:
        self.owner = owner
        self.tree = tree
        self.stream = stream
        self.number = number
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.known_tokens = known_tokens
        self.measured = measured
        self.cache: CacheRequest | None = None
        self.hit = NO_HIT
        self.first_s = _INF
        self.waited_s = 0.0
        self.admitted_s: float
        self.end_s: float
        self.gain: float
        self.prefill_rate: float
        self.ready_s: float
        self.start_s: float
        self.worker: Worker
        self.prefilled_on: Worker


class Worker:
    """One engine. `gained` counts the tokens that a stream which decodes all the time would have got by `gained_at_s`."""

    __slots__ = (
        "busy_s",
        "busy_since_s",
        "chunk",
        "contexts",
        "decode_only",
        "decoded",
        "due_s",
        "ends",
        "gained",
        "gained_at_s",
        "kv_tokens",
        "kv_used",
        "link_free_s",
        "live",
        "max_running",
        "peak_kv",
        "peak_running",
        "prefill_rate",
        "prefilled",
        "prefilling",
        "prefills",
        "prefills_at_once",
        "pushed",
        "pushed_s",
        "queue",
        "rate",
        "role",
        "served",
    )  # fmt: skip

    def __init__(self, role: str, deployment: Deployment) -> None:
        self.role = role
        self.decode_only = role == "decode"
        self.queue: deque[SimRequest] = deque()
        self.ends: list[tuple[float, int, SimRequest]] = []
        self.live = self.prefills = self.prefilling = self.pushed = 0
        self.contexts = self.prefill_rate = 0.0
        self.gained = self.gained_at_s = self.rate = 0.0
        self.due_s = self.pushed_s = _INF
        self.kv_used = 0
        limit = (
            deployment.decode_kv_tokens or deployment.kv_tokens if self.decode_only else deployment.kv_tokens
        )
        self.kv_tokens = _INF if limit is None else limit
        self.max_running = deployment.max_running
        self.prefills_at_once = deployment.prefills_at_once or _INF
        self.chunk = deployment.chunk_tokens
        self.link_free_s = 0.0
        self.busy_s = self.busy_since_s = 0.0
        self.served = self.prefilled = self.decoded = self.peak_running = self.peak_kv = 0

    @property
    def load(self) -> int:
        """Requests that wait or run here."""
        return len(self.queue) + self.live


class Engines:
    """All workers of a deployment. `next_s` is the time of the next event, infinite when nothing runs; `handle` makes it
    happen and appends the requests that ended to `ended`. Everything here happens some hundred thousand times a second.

    The next reply's end of an only worker is its `due_s`, found at `alone`; those of several are in `events` like all
    else that will happen, and a stale one is put back when its time has come.
    """

    def __init__(self, deployment: Deployment, times: StepTimes, cache: PrefixCache | None) -> None:
        self._deployment = deployment
        self._prefill_s = times.prefill_s
        self._step_s = times.step_s
        self._accepted = times.tokens_per_step()
        if not 1 <= self._accepted < _INF:
            raise bad_time("tokens_per_step", self._accepted)
        self._cache = cache
        routed = cache if isinstance(cache, WorkerCache) else None
        self._room = routed.room if routed is not None else None
        self._cache_forget = routed.forget if routed is not None else None
        self._worker_of = routed.worker_of if routed is not None and routed.config.workers > 1 else None
        if self._worker_of is not None and routed is not None and routed.config.workers != deployment.workers:
            raise input_error(
                "predict.replay.other_workers", cache=routed.config.workers, workers=deployment.workers
            )
        split = deployment.decode_workers > 0
        self._split = split
        self._times_of_all = split and deployment.prefills_at_once is None
        role = "prefill" if split else "both"
        self.fronts = [Worker(role, deployment) for _ in range(deployment.workers)]
        self.decoders = [Worker("decode", deployment) for _ in range(deployment.decode_workers)]
        if self._room is not None:  # the cache knows what shares blocks with what runs
            for worker in self.fronts:
                worker.kv_tokens = _INF
        self._prompt_pool = min(worker.kv_tokens for worker in self.fronts)
        self._pool = min(worker.kv_tokens for worker in self.decoders or self.fronts)
        self._only = self.fronts[0] if len(self.fronts) == 1 else None
        self._simple = self._room is None and not split
        self.alone = self._only if self._only is not None and not split else Worker("none", deployment)
        self.alone.pushed_s = -_INF  # whatever is due there is never pushed
        self._homes: dict[str, Worker] = {}
        self._turn = 0
        self._draw = SplitMix(["routing", deployment.seed])
        self.events: list[tuple[float, int, int, Any]] = []
        self._order = 0
        self._on: dict[SimRequest, None] = {}
        self.ended: list[SimRequest] = []

    @property
    def in_flight(self) -> int:
        """Requests that wait or run anywhere."""
        return len(self._on)

    def next_s(self) -> float:
        """Time of the next event."""
        due_s = self.alone.due_s
        return min(due_s, self.events[0][0]) if self.events else due_s

    def submit(self, request: SimRequest, now_s: float) -> None:
        """A request has come. Raises ServemarkError for one that no pool can ever hold."""
        request.start_s = request.ready_s = now_s
        worker = self._only or self._front(request)
        whole = request.input_tokens + request.output_tokens
        if whole > self._pool or request.input_tokens > self._prompt_pool:
            raise _too_small(request, int(min(self._pool, self._prompt_pool)))
        request.worker = worker
        self._on[request] = None
        if (
            worker.queue
            or worker.live >= worker.max_running
            or worker.prefills >= worker.prefills_at_once
            or not self._simple
            or worker.kv_used + whole > worker.kv_tokens
        ):
            worker.queue.append(request)
            begun = self._admit(worker, now_s)
        else:  # as _admit does for a queue of one
            begun = True
            if not worker.live:
                worker.busy_since_s = now_s
            worker.live += 1
            worker.kv_used += whole
            if worker.live > worker.peak_running:  # noqa: PLR1730
                worker.peak_running = worker.live
            if worker.kv_used > worker.peak_kv:  # noqa: PLR1730
                worker.peak_kv = worker.kv_used
            self._begin(worker, request, now_s)
        if begun and worker.ends:
            self._replan(worker, now_s)

    def handle(self, now_s: float) -> None:
        """The next event, which is due at `now_s`."""
        if not self.events or self.alone.due_s < self.events[0][0]:
            self.decoded(self.alone, now_s)
            return
        _, order, kind, what = heappop(self.events)
        if kind == DECODING:
            if order == what.pushed:  # else another event has taken its place
                self.pushed_due(what, now_s)
        elif kind == PREFILLED:
            self.prefilled(what, now_s)
        else:
            self.arrived(what, now_s)

    def cancel_all(self, now_s: float) -> list[SimRequest]:
        """Give up everything; what was in flight, in the order of its start."""
        lost = list(self._on)
        begun = set(lost).difference(*(worker.queue for worker in self.fronts))
        for worker in (*self.fronts, *self.decoders):
            _settle(worker, now_s)
            for _, _, request in worker.ends:
                request.output_tokens = 1 + max(0, int(worker.gained - request.gain))
        for request in lost:
            request.end_s = now_s
            if self._cache is not None and request.cache is not None and request in begun:
                self._cache.end(request.cache, now_s)
        self._on.clear()
        self.events.clear()
        for worker in (*self.fronts, *self.decoders):
            if worker.live:
                worker.busy_s += now_s - worker.busy_since_s
            worker.queue.clear()
            worker.ends.clear()
            worker.live = worker.prefills = worker.prefilling = worker.kv_used = 0
            worker.contexts = worker.rate = worker.prefill_rate = 0.0
            worker.due_s = _INF
            if worker is not self.alone:
                worker.pushed_s = _INF
        return lost

    # -- routing

    def _front(self, request: SimRequest) -> Worker:
        workers = self.fronts
        if self._worker_of is not None and request.cache is not None:
            return workers[self._worker_of(request.cache)]
        routing = self._deployment.routing
        if routing == "round_robin":
            self._turn += 1
            return workers[(self._turn - 1) % len(workers)]
        if routing == "random":
            return self._draw.choice(workers)
        if routing == "least_loaded":
            return min(workers, key=_load)
        home = self._homes.get(request.tree)
        if home is None:
            home = self._homes[request.tree] = min(workers, key=_load)
        return home

    def forget(self, tree: str) -> None:
        """The tree has drained: nobody comes back to its worker."""
        self._homes.pop(tree, None)
        if self._cache_forget is not None:
            self._cache_forget(tree)

    # -- prompts

    def _admit(self, worker: Worker, now_s: float) -> bool:
        """Begin what there is room for; True when a prompt began here, which changes the streams' rate."""
        queue = worker.queue
        begun = False
        while queue and worker.live < worker.max_running and worker.prefills < worker.prefills_at_once:
            request = queue[0]
            need = request.input_tokens + (
                0 if self._split and not worker.decode_only else request.output_tokens
            )
            if worker.kv_used + need > worker.kv_tokens:
                break
            if (
                not worker.decode_only
                and request.cache is not None
                and self._room
                and not self._room(request.cache)
            ):
                if not worker.live:
                    raise _too_small(request, None)
                break
            queue.popleft()
            request.waited_s += now_s - request.ready_s
            if not worker.live:
                worker.busy_since_s = now_s
            worker.live += 1
            worker.kv_used += need
            if worker.live > worker.peak_running:  # noqa: PLR1730 - a call to max takes three times as long
                worker.peak_running = worker.live
            if worker.kv_used > worker.peak_kv:  # noqa: PLR1730
                worker.peak_kv = worker.kv_used
            if worker.decode_only:
                self._fetch(request, now_s)
            else:
                begun = True
                self._begin(worker, request, now_s)
        return begun

    def _begin(self, worker: Worker, request: SimRequest, now_s: float) -> None:
        request.admitted_s = now_s
        loaded_s = 0.0
        if self._cache is not None and request.cache is not None:
            hit = request.hit = self._cache.begin(request.cache, now_s)
            known = hit.cached_tokens
            if hit.bytes_loaded and self._deployment.load_bytes_per_s:
                loaded_s = hit.bytes_loaded / self._deployment.load_bytes_per_s
        else:
            known = request.known_tokens
        if known >= request.input_tokens:  # the last token's answer is always computed
            known = request.input_tokens - 1
        request.known_tokens = known
        new = request.input_tokens - known
        took_s = self._prefill_s(new, known, self._beside() if self._times_of_all else len(worker.ends))
        if not 0 <= took_s < _INF:
            raise bad_time("prefill_s", took_s)
        worker.prefills += 1
        worker.prefilling += new
        rate = request.prefill_rate = new / took_s if took_s > 1e-9 else 0.0
        worker.prefill_rate += rate
        worker.prefilled += new
        self._order += 1
        heappush(self.events, (now_s + loaded_s + took_s, self._order, PREFILLED, request))

    def prefilled(self, request: SimRequest, now_s: float) -> None:
        """A prompt has been computed: its reply goes on here, or on a decode worker."""
        worker = request.worker
        worker.prefills -= 1
        worker.prefilling -= request.input_tokens - request.known_tokens
        worker.prefill_rate = worker.prefill_rate - request.prefill_rate if worker.prefills else 0.0
        if self._split:
            request.prefilled_on = worker
            request.ready_s = now_s
            decoder = min(self.decoders, key=_load) if len(self.decoders) > 1 else self.decoders[0]
            request.worker = decoder
            decoder.queue.append(request)
            self._admit(decoder, now_s)
            self._admit(worker, now_s)
            return
        request.first_s = now_s
        if request.output_tokens <= 1:
            self._end(worker, request, now_s)
        else:
            rate = worker.rate
            if 0 < rate < _INF:  # as _settle
                worker.gained += rate * (now_s - worker.gained_at_s)
            gained = request.gain = worker.gained
            worker.gained_at_s = now_s
            self._order += 1
            heappush(worker.ends, (gained + request.output_tokens - 1, self._order, request))
            worker.contexts += request.input_tokens - gained
        if worker.queue:
            self._admit(worker, now_s)
        self._replan(worker, now_s)

    # -- from prefill to decode

    def _fetch(self, request: SimRequest, now_s: float) -> None:
        """The decode worker has room: the prompt's KV goes over its prefill worker's link."""
        rules, source = self._deployment, request.prefilled_on
        begin_s = max(now_s, source.link_free_s)
        sent = rules.kv_bytes_fixed + rules.kv_bytes_per_token * request.input_tokens
        took_s = sent / rules.transfer_bytes_per_s if rules.transfer_bytes_per_s else 0.0
        source.link_free_s = begin_s + took_s
        request.waited_s += begin_s - now_s
        self._order += 1
        heappush(self.events, (begin_s + took_s + rules.transfer_s, self._order, _ARRIVED, request))

    def arrived(self, request: SimRequest, now_s: float) -> None:
        """A prompt's KV has come to its decode worker."""
        worker, source = request.worker, request.prefilled_on
        source.live -= 1
        source.kv_used -= request.input_tokens
        if not source.live:
            source.busy_s += now_s - source.busy_since_s
        if (
            self._cache is not None and request.cache is not None
        ):  # the prefill worker has no more to do with it
            self._cache.end(request.cache, now_s)
            request.cache = None
        self._admit(source, now_s)
        _settle(worker, now_s)
        gained = request.gain = worker.gained
        self._order += 1
        heappush(worker.ends, (gained + request.output_tokens, self._order, request))
        worker.contexts += request.input_tokens - gained
        self._replan(worker, now_s)
        request.first_s = now_s + (self._accepted / worker.rate if 0 < worker.rate < _INF else 0.0)

    # -- replies

    def pushed_due(self, worker: Worker, now_s: float) -> None:
        """Replies on one of several workers were due now, as it was when that was pushed."""
        worker.pushed_s = _INF
        if worker.due_s <= now_s:
            self.decoded(worker, now_s)
        elif worker.due_s < _INF:
            worker.pushed_s = worker.due_s
            self._order += 1
            worker.pushed = self._order
            heappush(self.events, (worker.due_s, self._order, DECODING, worker))

    def decoded(self, worker: Worker, now_s: float) -> None:
        """The replies that are due on this worker end."""
        ends = worker.ends
        if ends:  # the first one is due now
            gained = worker.gained = ends[0][0]
            instant = worker.rate == _INF
            while ends and (ends[0][0] <= gained + _EPSILON or instant):
                at, _, request = heappop(ends)
                if instant:
                    gained = worker.gained = at
                worker.contexts -= request.input_tokens - request.gain
                self._end(worker, request, now_s)
        worker.gained_at_s = now_s
        if not ends:
            worker.contexts = worker.gained = 0.0
        if worker.queue:
            self._admit(worker, now_s)
        self._replan(worker, now_s)

    def _end(self, worker: Worker, request: SimRequest, now_s: float) -> None:
        request.end_s = now_s
        if request.first_s > now_s:  # noqa: PLR1730
            request.first_s = now_s
        worker.served += 1
        worker.decoded += request.output_tokens
        worker.live -= 1
        worker.kv_used -= request.input_tokens + request.output_tokens
        if not worker.live:
            worker.busy_s += now_s - worker.busy_since_s
        del self._on[request]
        if self._cache is not None and request.cache is not None:
            self._cache.end(request.cache, now_s)
        self.ended.append(request)

    def _replan(self, worker: Worker, now_s: float) -> None:
        """The streams' rate from now on, and when the next reply ends at it."""
        ends = worker.ends
        if not ends:
            worker.due_s = _INF
            worker.rate = 0.0
            return
        gained = worker.gained
        rate = worker.rate
        if 0 < rate < _INF:
            gained = worker.gained = gained + rate * (now_s - worker.gained_at_s)
        worker.gained_at_s = now_s
        count = len(ends)
        left = ends[0][0] - gained
        prompts = worker.prefilling
        context = worker.contexts / count + gained + 0.5 * left
        if prompts:
            most = prompts if prompts < worker.chunk else worker.chunk
            step_s = self._step_s(count, context, most)
            if worker.prefill_rate * step_s < most:  # fewer come while a step lasts: see _carrying
                step_s = _carrying(self._step_s(count, context, 0), step_s, worker.prefill_rate, most)
        else:
            step_s = self._step_s(count, context, 0)
        if 0 < step_s < _INF:
            worker.rate = self._accepted / step_s
            due_s = now_s + left * step_s / self._accepted if left > 0 else now_s
        elif step_s != 0:
            raise bad_time("step_s", step_s)
        else:
            worker.rate = _INF
            due_s = now_s
        worker.due_s = due_s
        if due_s < worker.pushed_s:
            worker.pushed_s = due_s
            self._order += 1
            worker.pushed = self._order
            heappush(self.events, (due_s, self._order, DECODING, worker))

    def _beside(self) -> int:
        """Streams that decode for one prefill worker, on average: those that times fitted to the whole deployment speak
        of."""
        return round(sum(len(worker.ends) for worker in self.decoders) / len(self.fronts))


def _carrying(empty_s: float, full_s: float, rate: float, most: int) -> float:
    """Seconds of a step that carries the prompt tokens that come while it lasts, fewer than `most`. A step's time is
    taken as linear in them: s = s0 + x * (s1 - s0) / most with x = rate * s."""
    return empty_s / (1 - rate * (full_s - empty_s) / most)


def _too_small(request: SimRequest, pool: int | None) -> ServemarkError:
    return input_error(
        "predict.replay.pool_too_small", session=request.tree, stream=request.stream or "-", turn=request.number,
        tokens=request.input_tokens + request.output_tokens, pool="-" if pool is None else pool,
    )  # fmt: skip


def _load(worker: Worker) -> int:
    return len(worker.queue) + worker.live


def _settle(worker: Worker, now_s: float) -> None:
    """Bring the counter up to now."""
    if 0 < worker.rate < _INF and worker.ends:
        worker.gained += worker.rate * (now_s - worker.gained_at_s)
    worker.gained_at_s = now_s


def bad_time(name: str, value: float) -> ServemarkError:
    """A model of the speed gave a time that no engine can take."""
    return ServemarkError("predict.replay.bad_time", Layer.RESULTS, name=name, value=value)
