"""What a cache would do with a trace: hits by tier and over time, evictions, bytes moved, and how small it may be."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np

from servemark.predict.blocks import BlockMaker
from servemark.predict.cache_config import CacheConfig
from servemark.predict.cache_pool import as_ids, most_numbers
from servemark.predict.cache_stack import StackDistances, least_capacity
from servemark.predict.cache_tiers import CacheCounts, Deployment, pools_of, written_tokens
from servemark.predict.session_clock import Begun, Pacing, SessionClock
from servemark.traces.template import TemplateTokens
from servemark.traces.types import CacheBust, Workload

Tier = Literal["gpu", "dram", "store"]
OnProgress = Callable[[int, int, int], None]
"""Told now and then: sessions played in this run, sessions of a run, and which run it is, from 1."""
WINDOWS = 24
POINT = 0.01
"""A hit rate falls when it is this much below that of a tier without end."""


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of the trace's time; shares of the prompt tokens that began in it, None where none did."""

    start_s: float
    requests: int
    gpu: float | None
    dram: float | None
    store: float | None


@dataclass(frozen=True, slots=True)
class LeastSize:
    """The smallest size of one tier (of one worker; the store's as a whole) whose hit rate is at most `fall` below that
    of a tier without end. `tokens_of_all`: with which the rate no longer grows. `method`: "stack-distances" (one pass,
    nothing pinned) or "bisection" (whole runs, to 2 % of the size)."""

    tier: Tier
    tokens: int
    share: float
    share_unbounded: float
    fall: float
    method: str
    runs: int


@dataclass(frozen=True, slots=True)
class SizedShare:
    """The hit rate of a least-recently-used pool of `tokens` a worker."""

    tokens: int
    share: float


@dataclass(frozen=True, slots=True)
class CacheReport:
    """One simulation. Shares are of all prompt tokens, 0..1. `distinct_tokens`: what prompts hold in all, the working set
    of a cache that drops nothing. `least`: None where nobody asked, where it cannot be told in one pass, or where there is
    nothing to find."""

    counts: CacheCounts
    span_s: float
    waited_s: float
    waited_requests: int
    peak_held: dict[str, int]
    distinct_tokens: int
    windows: tuple[Window, ...]
    curve: tuple[SizedShare, ...]
    share_unbounded: float | None
    least: LeastSize | None

    def share(self, tokens: int) -> float:
        """A part of all prompt tokens."""
        return tokens / self.counts.prompt_tokens if self.counts.prompt_tokens else 0.0

    @property
    def hit_share(self) -> float:
        """All tiers together."""
        counts = self.counts
        return self.share(counts.gpu_tokens + counts.dram_tokens + counts.store_tokens)

    def to_json(self) -> dict[str, object]:
        """JSON-ready."""
        plain = asdict(self)
        plain["counts"] = self.counts.to_json()
        plain["hit_share"] = self.hit_share
        for tier in ("gpu", "dram", "store"):
            plain[f"{tier}_share"] = self.share(getattr(self.counts, f"{tier}_tokens"))
        return plain


@dataclass(frozen=True, slots=True)
class Source:
    """Where requests come from: a workload, what the engine's template adds, and the marker's scope."""

    workload: Workload
    template: TemplateTokens | None = None
    cache_bust: CacheBust = "none"


class _Samples:
    """Every request's moment and tokens, packed."""

    def __init__(self) -> None:
        self.at = array("d")
        self.tokens = [array("q") for _ in range(4)]

    def add(self, begun: Begun) -> None:
        self.at.append(begun.at_s)
        hit = begun.hit
        found = (begun.request.input_tokens, hit.gpu_tokens, hit.dram_tokens, hit.store_tokens)
        for column, value in zip(self.tokens, found, strict=True):
            column.append(value)

    def windows(self) -> tuple[Window, ...]:
        """Equal stretches from the first request to the last."""
        if not self.at:
            return ()
        at = np.frombuffer(self.at, np.float64)
        start, span = float(at.min()), float(at.max() - at.min())
        count = WINDOWS if span > 0 else 1
        width = span / count
        place = (
            np.minimum(((at - start) / width).astype(np.int64), count - 1)
            if span
            else np.zeros(len(at), np.int64)
        )
        sums = [np.bincount(place, np.frombuffer(c, np.int64), count) for c in self.tokens]
        requests = np.bincount(place, minlength=count)
        made = []
        for i in range(count):
            total = sums[0][i]
            shares = [float(s[i] / total) if total else None for s in sums[1:]]
            made.append(Window(start + i * width, int(requests[i]), shares[0], shares[1], shares[2]))
        return tuple(made)


def simulate(
    source: Source,
    config: CacheConfig,
    pacing: Pacing,
    *,
    find: Tier | None = None,
    fall: float = POINT,
    on_progress: OnProgress | None = None,
) -> CacheReport:
    """Play a workload against a cache. `find`: the tier whose least size is sought, with whole runs where one pass cannot
    tell. Raises ServemarkError (exit code 2) for a trace that cannot be simulated so.
    """
    most = most_numbers(pools_of(config))
    stacks = [StackDistances(most) for _ in range(config.workers)] if config.states is None else []
    tell = _Teller(on_progress, len(source.workload.sessions))
    report = _run(source, config, pacing, stacks, tell)
    one_pass = bool(stacks) and _only_gpu(config)
    if one_pass:
        size = config.block_tokens
        report = replace(report, curve=_curve(stacks, report, size))
        if find in {None, "gpu"} and report.share_unbounded:
            return replace(report, least=_from_stacks(stacks, report, size, fall))
    if find is None:
        return report
    return replace(report, least=_bisect(source, config, pacing, (find, fall), tell))


def _only_gpu(config: CacheConfig) -> bool:
    lower = config.dram_tokens != 0 or config.store_tokens != 0
    return config.policy in {"vllm", "sglang"} and config.gpu_tokens != 0 and not lower


class _Teller:
    """Says how far a simulation of one or more runs is."""

    def __init__(self, say: OnProgress | None, sessions: int) -> None:
        self._say = say
        self._sessions = sessions
        self._run = 0

    def begin(self) -> None:
        """Another run."""
        self._run += 1

    def at(self, sessions: int) -> None:
        """So many sessions of the run have been played."""
        if self._say is not None:
            self._say(sessions, self._sessions, self._run)


def _run(
    source: Source, config: CacheConfig, pacing: Pacing, stacks: list[StackDistances], tell: _Teller
) -> CacheReport:
    tell.begin()
    cache = Deployment(config)
    maker = BlockMaker(config.block_tokens, template=source.template, cache_bust=source.cache_bust)
    clock = SessionClock(source.workload, cache, maker, pacing)
    samples = _Samples()
    waited, waiting = 0.0, 0
    peak = {"gpu": 0, "dram": 0, "store": 0}
    for number, begun in enumerate(clock.play()):
        samples.add(begun)
        waited += begun.waited_s
        waiting += begun.waited_s > 0
        if number % 64 == 0:
            for tier, tokens in cache.held_tokens().items():
                peak[tier] = max(peak[tier], tokens)
            tell.at(clock.ended)
        if stacks:
            _use(stacks[begun.worker], begun)
    for tier, tokens in cache.held_tokens().items():
        peak[tier] = max(peak[tier], tokens)
    counts = cache.counts
    share = None
    if stacks and counts.prompt_tokens:
        share = sum(s.hits(None) for s in stacks) * config.block_tokens / counts.prompt_tokens
    return CacheReport(
        counts=counts, span_s=clock.end_s, waited_s=waited, waited_requests=waiting, peak_held=peak,
        distinct_tokens=maker.distinct_tokens, windows=samples.windows(), curve=(),
        share_unbounded=share, least=None,
    )  # fmt: skip


def _use(stack: StackDistances, begun: Begun) -> None:
    request = begun.request
    size = request.block_tokens
    full = request.input_tokens // size
    written = written_tokens(request) // size
    limit = max(0, request.input_tokens - 1) // size
    stack.use(as_ids(request.blocks)[:full], limit, written - full)


def _curve(stacks: list[StackDistances], report: CacheReport, size: int) -> tuple[SizedShare, ...]:
    """Sizes that double, up to the one that finds everything."""
    deepest = max((s.deepest for s in stacks), default=0)
    if not deepest:
        return ()
    sizes = sorted({deepest, *(2**i for i in range(deepest.bit_length()) if 2**i * 4096 > deepest)})
    return tuple(
        SizedShare(blocks * size, report.share(sum(s.hits(blocks) for s in stacks) * size))
        for blocks in sizes
    )


def _from_stacks(stacks: list[StackDistances], report: CacheReport, size: int, fall: float) -> LeastSize:
    most = sum(s.hits(None) for s in stacks)
    enough = max(0, most - math.floor(fall * report.counts.prompt_tokens / size))
    blocks = least_capacity(stacks, enough)
    found = sum(s.hits(blocks) for s in stacks)
    return LeastSize(
        "gpu",
        blocks * size,
        report.share(found * size),
        report.share(most * size),
        fall,
        "stack-distances",
        1,
    )


_FIELD: dict[Tier, str] = {"gpu": "gpu_tokens", "dram": "dram_tokens", "store": "store_tokens"}


def _bisect(
    source: Source, config: CacheConfig, pacing: Pacing, find: tuple[Tier, float], tell: _Teller
) -> LeastSize:
    """Whole runs at sizes between none and what a tier without end came to hold; to 2 % of the size."""
    tier, fall = find
    runs = 0

    def run(tokens: int | None) -> CacheReport:
        nonlocal runs
        runs += 1
        return _run(source, with_tier(config, tier, tokens), pacing, [], tell)

    most = run(None)
    best = most.hit_share
    workers = 1 if tier == "store" else config.workers
    high = -(-most.peak_held[tier] // workers) * (2 if tier == "store" else 1) + config.block_tokens
    found = _least(run, best - fall, high, config.block_tokens)
    return LeastSize(tier, found[0], found[1], best, fall, "bisection", runs)


def _least(run: Callable[[int], CacheReport], enough: float, high: int, size: int) -> tuple[int, float]:
    low, share = 0, run(high).hit_share
    while share < enough and high < 1 << 50:
        low, high = high, high * 2
        share = run(high).hit_share
    while high - low > max(size, high // 50):
        middle = (low + high) // 2 // size * size
        if middle in {low, high}:
            break
        got = run(middle).hit_share
        if got >= enough:
            high, share = middle, got
        else:
            low = middle
    return high, share


def with_tier(config: CacheConfig, tier: Tier, tokens: int | None) -> CacheConfig:
    """The same deployment with another size of one tier; None: without end."""
    return replace(config, **{_FIELD[tier]: tokens})  # type: ignore[arg-type]
