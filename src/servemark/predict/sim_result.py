"""What a simulated replay gives: the project's own figures over simulated requests, and where their time went."""

from __future__ import annotations

import math
from array import array
from dataclasses import asdict, dataclass, field
from typing import Final

from servemark.metrics.address import Address
from servemark.metrics.figures import figure_value
from servemark.metrics.percentiles import PERCENTILES, Distribution
from servemark.predict.sim_clock import Clock
from servemark.predict.sim_engine import NO_HIT, Engines, SimRequest, Worker
from servemark.predict.sim_rules import Deployment
from servemark.predict.types import CacheHit

MAX_BINS: Final = 120
"""Parts of time in which hits are told; their length doubles when there are more."""


@dataclass(frozen=True, slots=True)
class HitShares:
    """Prompt tokens of measured requests, and those that each tier had; shares are 0..1, None without tokens."""

    input_tokens: int = 0
    gpu_tokens: int = 0
    dram_tokens: int = 0
    store_tokens: int = 0

    @property
    def share(self) -> float | None:
        """Tokens of all tiers / prompt tokens."""
        held = self.gpu_tokens + self.dram_tokens + self.store_tokens
        return held / self.input_tokens if self.input_tokens else None


@dataclass(frozen=True, slots=True)
class HitsAt:
    """Hits of the requests that began between `start_s`, in seconds from the window's start, and the next one's."""

    start_s: float
    hits: HitShares


@dataclass(frozen=True, slots=True)
class WorkerUse:
    """What one worker did, warm-up included. `busy_s`: time with a request running, also one that only holds its KV."""

    role: str
    requests: int
    busy_s: float
    prefill_tokens: int
    output_tokens: int
    peak_running: int
    peak_kv_tokens: int


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """One measured request, times in seconds of the simulation. `waited_s`: in queues, before its prompt, and on
    prefill and decode workers between the two. `cached_tokens` of its prompt were not computed."""

    session: str
    stream: str
    turn: int
    start_s: float
    first_s: float
    end_s: float
    waited_s: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """One simulated replay. Times are seconds; `ttft_s`, `tpot_s` and `e2el_s` are distributions over the `ok` requests,
    by the project's definitions; None where there is no value.

    `start_s` and `window_s` are the measured window, `output_tokens` and `input_tokens` what came within it. `wait_share`:
    time in queues / end-to-end time, summed over requests; `first_wait_share`: the same of the time to first token.
    `lane_live_s`: time that lanes held a tree. `idle_cut_s`: what the idle caps took away in `idle_moves` moves.
    `requests`: only where they were asked to be kept.
    """

    sent: int
    ok: int
    cut_off: int
    warm_ups: int
    warmup_cut_off: int
    passes: int
    start_s: float
    window_s: float
    gpus: int | None
    input_tokens: int
    output_tokens: int
    ttft_s: Distribution | None
    tpot_s: Distribution | None
    e2el_s: Distribution | None
    hits: HitShares
    hits_over_time: tuple[HitsAt, ...]
    wait_share: float | None
    first_wait_share: float | None
    max_live_trees: int
    max_in_flight: int
    lane_live_s: float
    idle_moves: int
    idle_cut_s: float
    workers: tuple[WorkerUse, ...]
    requests: tuple[SimulatedRequest, ...] = field(default=(), repr=False)

    def figures(self) -> dict[str, float]:
        """Figures by the addresses of `metrics`, as a published row would state them; absent ones are missing."""
        found: dict[str, float] = {"requests_total": float(self.ok)}
        if self.window_s > 0:
            found |= {
                "window_s": self.window_s,
                "input_tokens_total": float(self.input_tokens),
                "output_tokens_total": float(self.output_tokens),
                "total_tokens_total": float(self.input_tokens + self.output_tokens),
            }
        for name, values in (("ttft_s", self.ttft_s), ("tpot_s", self.tpot_s), ("e2el_s", self.e2el_s)):
            if values is not None:
                found |= {f"{name}.p{q}": getattr(values, f"p{q}") for q in PERCENTILES}
                found[f"{name}.mean"] = values.mean
        return found

    def value(self, address: Address | str) -> float | None:
        """A figure by its address, e.g. `interactivity.p50` or `output_tokens_per_s_per_gpu`; None when absent. Raises
        ServemarkError for text that is no address."""
        return figure_value(self.figures(), address, self.gpus)

    def to_json(self) -> dict[str, object]:
        """JSON-ready, without the requests."""
        plain = asdict(self)
        del plain["requests"]
        return plain


class Tally:
    """Takes in requests as they end. `end_s` is the end of a window that ends by time, infinite for one that does not."""

    def __init__(self, deployment: Deployment, end_s: float = math.inf, *, keep: bool = False) -> None:
        self._gpus = deployment.gpus
        self.end_s = end_s
        self._kept: list[SimulatedRequest] | None = [] if keep else None
        self._ttft, self._tpot, self._e2el = array("d"), array("d"), array("d")
        self._waited = 0.0
        self._inside = 0.0
        self._inside_input = 0
        self._bins: list[list[int]] = []
        self._bin_s = 1.0
        self._bin: list[int] = []
        self._bin_from_s = self._bin_to_s = -1.0
        self.start_s = 0.0
        self.cut = self.warm_ups = self.warmup_cut_off = 0
        self._live = self.max_live = self.max_in_flight = 0
        self.lane_live_s = 0.0
        self.last_s = 0.0

    def live(self, change: int, now_s: float) -> None:
        """A lane has taken a tree or let go of one."""
        self._live += change
        self.max_live = max(self.max_live, self._live)
        self.last_s = max(self.last_s, now_s)

    def add(self, request: SimRequest) -> None:
        """A measured request has ended."""
        start_s, first_s, end_s = request.start_s, request.first_s, request.end_s
        output = request.output_tokens
        self._ttft.append(first_s - start_s)
        self._e2el.append(end_s - start_s)
        if output > 1 and end_s > first_s:
            self._tpot.append((end_s - first_s) / (output - 1))
        if request.waited_s:
            self._waited += request.waited_s
        if end_s > self.last_s:  # noqa: PLR1730 - faster than a call
            self.last_s = end_s
        if end_s > self.end_s:
            self._partly(request)
        else:
            self._inside += output
            self._inside_input += request.input_tokens
        at_s = request.admitted_s - self.start_s
        here = self._bin if self._bin_from_s <= at_s < self._bin_to_s else self._find_bin(at_s)
        here[0] += request.input_tokens
        if request.hit is NO_HIT:
            here[1] += request.known_tokens
        else:
            self._hits(here, request.hit, request.known_tokens)
        if self._kept is not None:
            self._kept.append(
                SimulatedRequest(
                    request.tree, request.stream, request.number, start_s, first_s, end_s, request.waited_s,
                    request.input_tokens, output, request.known_tokens,
                )
            )  # fmt: skip

    def cut_off(self, request: SimRequest) -> None:
        """A measured request was given up; what it got within the window counts."""
        if request.measured:
            self.cut += 1
            self._partly(request)

    def _partly(self, request: SimRequest) -> None:
        """Tokens come evenly between the first and the last, as in `results.summary.Inside`."""
        first_s, end_s = request.first_s, request.end_s
        if first_s > self.end_s:
            return
        self._inside_input += request.input_tokens
        part = (self.end_s - first_s) / (end_s - first_s) if end_s > first_s else 1.0
        self._inside += 1 + (request.output_tokens - 1) * min(1.0, part)

    @staticmethod
    def _hits(here: list[int], hit: CacheHit, known: int) -> None:
        dram, store = min(hit.dram_tokens, known), min(hit.store_tokens, known)
        here[1] += max(0, known - dram - store)
        here[2] += dram
        here[3] += store

    def _find_bin(self, at_s: float) -> list[int]:
        place = int(at_s / self._bin_s)
        if place >= MAX_BINS:
            place = self._widen(place)
        bins = self._bins
        while len(bins) <= place:
            bins.append([0, 0, 0, 0])
        self._bin_from_s, self._bin_to_s = place * self._bin_s, (place + 1) * self._bin_s
        self._bin = bins[place]
        return self._bin

    def _widen(self, place: int) -> int:
        while place >= MAX_BINS:
            before, self._bins = self._bins, []
            for first in range(0, len(before), 2):
                pair = before[first : first + 2]
                self._bins.append([sum(each) for each in zip(*pair, strict=True)])
            self._bin_s *= 2
            place //= 2
        return place

    def result(
        self, window: tuple[float, float], engines: Engines, clock: Clock | None, sent: int, passes: int
    ) -> SimulatedRun:
        """All of it."""
        over_time = tuple(HitsAt(i * self._bin_s, HitShares(*each)) for i, each in enumerate(self._bins))
        total = [sum(each) for each in zip(*self._bins, strict=True)] if self._bins else [0, 0, 0, 0]
        whole_s = math.fsum(self._e2el)
        first_s = math.fsum(self._ttft)
        return SimulatedRun(
            sent=sent,
            ok=len(self._e2el),
            cut_off=self.cut,
            warm_ups=self.warm_ups,
            warmup_cut_off=self.warmup_cut_off,
            passes=passes,
            start_s=window[0],
            window_s=max(0.0, window[1] - window[0]),
            gpus=self._gpus,
            input_tokens=self._inside_input,
            output_tokens=round(self._inside),
            ttft_s=Distribution.of(self._ttft),
            tpot_s=Distribution.of(self._tpot),
            e2el_s=Distribution.of(self._e2el),
            hits=HitShares(*total),
            hits_over_time=over_time,
            wait_share=self._waited / whole_s if whole_s > 0 else None,
            first_wait_share=self._waited / first_s if first_s > 0 else None,
            max_live_trees=self.max_live,
            max_in_flight=self.max_in_flight,
            lane_live_s=self.lane_live_s,
            idle_moves=clock.moves if clock is not None else 0,
            idle_cut_s=clock.moved_s if clock is not None else 0.0,
            workers=tuple(_use(worker) for worker in (*engines.fronts, *engines.decoders)),
            requests=tuple(self._kept or ()),
        )


def _use(worker: Worker) -> WorkerUse:
    return WorkerUse(
        worker.role,
        worker.served,
        worker.busy_s,
        worker.prefilled,
        worker.decoded,
        worker.peak_running,
        worker.peak_kv,
    )
