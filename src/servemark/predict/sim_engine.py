"""The simulated engines: queues, continuous batching, prefill and decode workers.

Nothing is stepped token by token. Between two events (a prompt begins or ends, a reply ends) the streams that decode on
a worker all gain tokens at one rate, tokens_per_step / step_s(streams, mean context, prompt tokens in the step), and the
worker has one counter of tokens gained, so that a reply's end is a fixed value of that counter. What this approximates:

- The mean context of an interval is that in its middle, if it lasts until the next reply's end; an event before that
  begins a new interval. Replies have fractions of tokens in between.
- A request begins at once when there is room, not at the next step's border: up to one step too early.
- A prompt's time is what `prefill_s` says as it begins; streams that join or leave meanwhile do not change it. While it
  is computed, each step carries min(chunk, tokens of all prompts being computed) tokens of it.
- A running request holds its whole prompt and reply in the KV pool from its beginning, prefixes that it shares with
  others counted again; so nobody is preempted. Where the pool or the running requests are full, requests wait in order.
- Prefill workers keep a prompt until it has gone to a decode worker, which takes it as soon as it has room; the first
  token is seen one step after its KV has come. A decode worker is sent the whole prompt.
"""

from __future__ import annotations

import math
from collections import deque
from heapq import heappop, heappush
from typing import Final

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.predict.sim_rules import Deployment
from servemark.predict.types import CacheHit, CacheRequest, PrefixCache, StepTimes
from servemark.traces.rng import SplitMix

_INF: Final = math.inf
_PREFILLED: Final = 0
_DECODING: Final = 1
_ARRIVED: Final = 2
_EPSILON: Final = 1e-6
"""Tokens: rounding of a worker's counter, which counts up to some 1e9."""
NO_HIT: Final = CacheHit(0)


class SimRequest:
    """One simulated request; times are seconds, None until they come. `known_tokens` is what an unbounded cache has of
    its prompt, used when no cache is simulated. `owner` is told of its end."""

    __slots__ = (
        "admitted_s", "cache", "end_s", "first_s", "gain", "hit", "input_tokens", "known_tokens", "measured", "number",
        "output_tokens", "owner", "prefilled_on", "ready_s", "start_s", "stream", "tree", "waited_s", "worker",
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
        self.hit: CacheHit = NO_HIT
        self.start_s = 0.0
        self.admitted_s = self.first_s = self.end_s = _INF
        self.ready_s = self.waited_s = self.gain = 0.0
        self.worker: Worker | None = None
        self.prefilled_on: Worker | None = None


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
        self.contexts = 0.0
        self.gained = self.gained_at_s = self.rate = 0.0
        self.due_s = self.pushed_s = _INF
        self.kv_used = 0
        limit = deployment.decode_kv_tokens or deployment.kv_tokens if self.decode_only else deployment.kv_tokens
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
    happen and appends the requests that ended to `ended`.
    """

    def __init__(self, deployment: Deployment, times: StepTimes, cache: PrefixCache | None) -> None:
        self._deployment = deployment
        self._prefill_s = times.prefill_s
        self._step_s = times.step_s
        self._accepted = times.tokens_per_step()
        if not 1 <= self._accepted < _INF:
            raise bad_time("tokens_per_step", self._accepted)
        self._cache = cache
        split = deployment.decode_workers > 0
        self._split = split
        role = "prefill" if split else "both"
        self.fronts = [Worker(role, deployment) for _ in range(deployment.workers)]
        self.decoders = [Worker("decode", deployment) for _ in range(deployment.decode_workers)]
        self._homes: dict[str, Worker] = {}
        self._turn = 0
        self._draw = SplitMix(["routing", deployment.seed])
        self._heap: list[tuple[float, int, int, SimRequest | Worker]] = []
        self._order = 0
        self._on: dict[SimRequest, None] = {}
        self.ended: list[SimRequest] = []

    @property
    def in_flight(self) -> int:
        """Requests that wait or run anywhere."""
        return len(self._on)

    def next_s(self) -> float:
        """Time of the next event."""
        return self._heap[0][0] if self._heap else _INF

    def submit(self, request: SimRequest, now_s: float) -> None:
        """A request has come. Raises ServemarkError for one that no pool can ever hold."""
        request.start_s = request.ready_s = now_s
        worker = self._front(request)
        need = request.input_tokens + (0 if self._split else request.output_tokens)
        last = self.decoders[0] if self._split else worker
        whole = request.input_tokens + request.output_tokens
        if need > worker.kv_tokens or whole > last.kv_tokens:
            pool = worker.kv_tokens if need > worker.kv_tokens else last.kv_tokens
            raise input_error(
                "predict.replay.pool_too_small", session=request.tree, stream=request.stream or "-",
                turn=request.number, tokens=whole, pool=int(pool),
            )  # fmt: skip
        request.worker = worker
        self._on[request] = None
        worker.queue.append(request)
        if self._admit(worker, now_s) and worker.ends:
            self._replan(worker, now_s)

    def handle(self, now_s: float) -> None:
        """The next event, which is due at `now_s`."""
        _, order, kind, what = heappop(self._heap)
        if isinstance(what, Worker):
            if order == what.pushed:  # else another event has taken its place
                self._decoded(what, now_s)
        elif kind == _PREFILLED:
            self._prefilled(what, now_s)
        else:
            self._arrived(what, now_s)

    def cancel_all(self, now_s: float) -> list[SimRequest]:
        """Give up everything; what was in flight, in the order of its start."""
        lost = list(self._on)
        for worker in (*self.fronts, *self.decoders):
            _settle(worker, now_s)
            for _, _, request in worker.ends:
                request.output_tokens = 1 + max(0, int(worker.gained - request.gain))
        for request in lost:
            request.end_s = now_s
            if self._cache is not None and request.cache is not None and request.admitted_s < _INF:
                self._cache.end(request.cache, now_s)
        self._on.clear()
        self._heap.clear()
        for worker in (*self.fronts, *self.decoders):
            if worker.live:
                worker.busy_s += now_s - worker.busy_since_s
            worker.queue.clear()
            worker.ends.clear()
            worker.live = worker.prefills = worker.prefilling = worker.kv_used = 0
            worker.contexts = worker.rate = 0.0
            worker.due_s = worker.pushed_s = _INF
        return lost

    # -- routing

    def _front(self, request: SimRequest) -> Worker:
        workers = self.fronts
        if len(workers) == 1:
            return workers[0]
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

    # -- prompts

    def _admit(self, worker: Worker, now_s: float) -> bool:
        """Begin what there is room for; True when a prompt began here, which changes the streams' rate."""
        queue = worker.queue
        begun = False
        while queue and worker.live < worker.max_running and worker.prefills < worker.prefills_at_once:
            request = queue[0]
            need = request.input_tokens + (0 if self._split and not worker.decode_only else request.output_tokens)
            if worker.kv_used + need > worker.kv_tokens:
                break
            queue.popleft()
            request.waited_s += now_s - request.ready_s
            if not worker.live:
                worker.busy_since_s = now_s
            worker.live += 1
            worker.kv_used += need
            worker.peak_running = max(worker.peak_running, worker.live)
            worker.peak_kv = max(worker.peak_kv, worker.kv_used)
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
        took_s = self._prefill_s(new, known, len(worker.ends))
        if not 0 <= took_s < _INF:
            raise bad_time("prefill_s", took_s)
        worker.prefills += 1
        worker.prefilling += new
        worker.prefilled += new
        self._push(now_s + loaded_s + took_s, _PREFILLED, request)

    def _prefilled(self, request: SimRequest, now_s: float) -> None:
        worker = request.worker
        if worker is None:
            return
        worker.prefills -= 1
        worker.prefilling -= request.input_tokens - request.known_tokens
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
            self._join(worker, request, request.output_tokens - 1, now_s)
        self._admit(worker, now_s)
        self._replan(worker, now_s)

    # -- from prefill to decode

    def _fetch(self, request: SimRequest, now_s: float) -> None:
        """The decode worker has room: the prompt's KV goes over its prefill worker's link."""
        rules, source = self._deployment, request.prefilled_on
        if source is None:
            return
        begin_s = max(now_s, source.link_free_s)
        sent = rules.kv_bytes_fixed + rules.kv_bytes_per_token * request.input_tokens
        took_s = sent / rules.transfer_bytes_per_s if rules.transfer_bytes_per_s else 0.0
        source.link_free_s = begin_s + took_s
        request.waited_s += begin_s - now_s
        self._push(begin_s + took_s + rules.transfer_s, _ARRIVED, request)

    def _arrived(self, request: SimRequest, now_s: float) -> None:
        worker, source = request.worker, request.prefilled_on
        if worker is None or source is None:
            return
        self._leave(source, request.input_tokens, now_s)
        self._admit(source, now_s)
        self._join(worker, request, request.output_tokens, now_s)
        self._replan(worker, now_s)
        request.first_s = now_s + (self._accepted / worker.rate if 0 < worker.rate < _INF else 0.0)

    # -- replies

    def _join(self, worker: Worker, request: SimRequest, tokens: int, now_s: float) -> None:
        _settle(worker, now_s)
        self._order += 1
        request.gain = worker.gained
        heappush(worker.ends, (worker.gained + tokens, self._order, request))
        worker.contexts += request.input_tokens - worker.gained

    def _decoded(self, worker: Worker, now_s: float) -> None:
        worker.pushed_s = _INF
        if worker.due_s > now_s:  # what was due has moved on since
            self._push_worker(worker)
            return
        _settle(worker, now_s)
        ends = worker.ends
        if ends and worker.gained < ends[0][0]:
            worker.gained = ends[0][0]
        while ends and (ends[0][0] <= worker.gained + _EPSILON or worker.rate == _INF):
            at, _, request = heappop(ends)
            worker.gained = max(worker.gained, at)
            worker.contexts -= request.input_tokens - request.gain
            self._end(worker, request, now_s)
        if not ends:
            worker.contexts = worker.gained = 0.0
        self._admit(worker, now_s)
        self._replan(worker, now_s)

    def _end(self, worker: Worker, request: SimRequest, now_s: float) -> None:
        request.end_s = now_s
        request.first_s = min(request.first_s, now_s)
        worker.served += 1
        worker.decoded += request.output_tokens
        self._leave(worker, request.input_tokens + request.output_tokens, now_s)
        del self._on[request]
        if self._cache is not None and request.cache is not None:
            self._cache.end(request.cache, now_s)
        self.ended.append(request)

    @staticmethod
    def _leave(worker: Worker, tokens: int, now_s: float) -> None:
        worker.live -= 1
        worker.kv_used -= tokens
        if not worker.live:
            worker.busy_s += now_s - worker.busy_since_s

    def _replan(self, worker: Worker, now_s: float) -> None:
        """The streams' rate from now on, and when the next reply ends at it."""
        ends = worker.ends
        if not ends:
            worker.due_s = _INF
            worker.rate = 0.0
            return
        _settle(worker, now_s)
        count = len(ends)
        left = ends[0][0] - worker.gained
        context = worker.contexts / count + worker.gained + 0.5 * left
        step_s = self._step_s(count, context, min(worker.prefilling, worker.chunk))
        if not 0 <= step_s < _INF:
            raise bad_time("step_s", step_s)
        if step_s > 0:
            worker.rate = self._accepted / step_s
            worker.due_s = now_s + max(0.0, left) / worker.rate
        else:
            worker.rate = _INF
            worker.due_s = now_s
        if worker.due_s < worker.pushed_s:
            self._push_worker(worker)

    def _push_worker(self, worker: Worker) -> None:
        if worker.due_s < _INF:
            worker.pushed_s = worker.due_s
            self._push(worker.due_s, _DECODING, worker)
            worker.pushed = self._order

    def _push(self, at_s: float, kind: int, what: SimRequest | Worker) -> None:
        self._order += 1
        heappush(self._heap, (at_s, self._order, kind, what))


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
