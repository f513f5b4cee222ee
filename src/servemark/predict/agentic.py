"""An agentic arm simulated: its own workload in a closed loop over the cache that its recipe makes, and the same with
something changed (`segment=64GiB`). It is replayed by the rules that `run` replays it by, or by those of a named profile.

Cache sizes are those of `servemark fit`. Step times are the arm's own fit where it was measured; where it was not they are
assumed, which is said, and then only what hangs on sizes and on the workload is told: hits by tier, never a throughput.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from servemark.analysis.measured import Measured
from servemark.base.errors import input_error
from servemark.catalog.byte_sizes import binary_size
from servemark.predict.arm_engines import EngineLimits, engines_of
from servemark.predict.assumed_times import fixed_times
from servemark.predict.cache import build
from servemark.predict.cache_config import CacheConfig
from servemark.predict.cache_sizes import SizedCache, sized_cache
from servemark.predict.cache_tiers import CacheCounts
from servemark.predict.closed_loop import simulate
from servemark.predict.planned import PlannedPoint
from servemark.predict.replay_sensitivity import HITS, Sensitivity, sensitivity
from servemark.predict.sim_result import SimulatedRun
from servemark.predict.sim_rules import Deployment, ReplayRules, rules_of
from servemark.predict.simulate import POINT
from servemark.predict.types import StepTimes
from servemark.replay.profiles import RUN_PROFILE, Profile
from servemark.traces.types import CacheBust, Workload

ASSUMED_TTFT_S, ASSUMED_TOKEN_S = 1.0, 0.02
"""Of an engine that nobody has measured: they set how requests overlap, and no figure of speed is told then."""
MAX_CHANGES = 8
MAX_WORKERS = 4096
"""As `trace simulate` takes them: each holds a pool of its own."""
LEAST_SEGMENT = "segment=least"
"""Asks for the smallest segment below which hits fall; changes nothing."""
JUDGED_REQUESTS = 1000
"""Requests of a replay that is simulated again under each changed rule."""
SEGMENT_STEP = 1 / 64
"""Of the planned segment: how closely the smallest one is sought."""
SENSITIVE_METRIC = "output_tokens_per_s"


@dataclass(frozen=True, slots=True)
class Change:
    """`key=value` as it was asked."""

    key: str
    text: str
    apply: Callable[[SizedCache], CacheConfig]


@dataclass(frozen=True, slots=True)
class JudgedRules:
    """`found` over the first `sessions` of `of_sessions`."""

    found: Sensitivity
    sessions: int
    of_sessions: int


@dataclass(frozen=True, slots=True)
class AgenticRun:
    """One simulated concurrency. `fitted`: step times are the arm's own; else they are assumed and `reason` (a message key)
    says why. `changed` is the same with the changes; None where none was asked for. `profile` names the rules of the
    replay. `store_unused`: a smaller shared store, or none, loses no hits. `least_segment`: bytes
    below which the hit rate falls by a point (0: never); None where nobody asked. `judged`: what decides, rules or
    engine; None where nobody asked."""

    concurrency: int
    sized: SizedCache
    fitted: bool
    reason: str | None
    run: SimulatedRun
    changes: tuple[str, ...]
    changed: SimulatedRun | None
    profile: str = RUN_PROFILE
    store_unused: bool = False
    least_segment: int | None = None
    judged: JudgedRules | None = None


def parse_changes(words: Sequence[str]) -> tuple[Change, ...]:
    """`segment=64GiB` (each rank's part of the shared store; `segment=least` asks for the smallest that will do),
    `gpu-tokens=N` and `dram-tokens=N` (of one worker), `workers=N`. Raises ServemarkError (exit 2) for anything else."""
    if len(words) > MAX_CHANGES:
        raise input_error("predict.use.many_changes", count=len(words), limit=MAX_CHANGES)
    return tuple(_change(word) for word in words)


def _change(word: str) -> Change:
    key, equals, value = word.partition("=")
    if word == LEAST_SEGMENT:
        return Change(key, word, lambda sized: _with_segment(sized, sized.segment_bytes or 0))
    if key == "segment":
        size = binary_size(value)
        if equals and size is not None and size >= 0:
            return Change(key, word, lambda sized: _with_segment(sized, size))
    apply = _COUNTS.get(key)
    if apply is not None and value.isascii() and value.isdigit() and len(value) < 13:
        count = int(value)
        if key != "workers" or 1 <= count <= MAX_WORKERS:
            return Change(key, word, lambda sized: apply(sized.config, count))
    raise input_error("predict.use.bad_change", word=word[:60], known=", ".join(("segment", *_COUNTS)))


_COUNTS: Mapping[str, Callable[[CacheConfig, int], CacheConfig]] = {
    "gpu-tokens": lambda config, count: _with_pool(config, count),  # noqa: PLW0108 - defined below
    "dram-tokens": lambda config, count: replace(config, dram_tokens=count),
    "workers": lambda config, count: replace(config, workers=count),
}


def _with_pool(config: CacheConfig, tokens: int) -> CacheConfig:
    """A GPU pool of this size, where the cache's rules have one."""
    if config.policy == "llamacpp" and not config.unified:
        raise input_error("predict.use.no_pool")
    return replace(config, gpu_tokens=tokens)


def _with_segment(sized: SizedCache, size: int) -> CacheConfig:
    """The store with every rank's part of this size."""
    if sized.segment_bytes is None or not sized.config.token_bytes:
        raise input_error("predict.use.no_segment", role=sized.role)
    return replace(sized.config, store_tokens=int(size * sized.store_ranks / sized.config.token_bytes))


@dataclass(frozen=True, slots=True)
class TimesAtHits:
    """Step times that were fitted to whole prompts while a cache held `hit_share` (0..1) of their tokens: what was computed
    was the rest, so each computed token took 1 / (1 - hit_share) of the fitted time. A fit knows the streams of the whole
    deployment; one of its `workers`, or of those that decode, has its share of them."""

    of: StepTimes
    hit_share: float
    workers: int = 1
    decoders: int = 1

    def prefill_s(self, new_tokens: int, cached_tokens: int, decoding: int) -> float:
        """See StepTimes. A fit counts the request itself among the streams."""
        streams = decoding * self.workers + 1
        return self.of.prefill_s(round(new_tokens / (1 - self.hit_share)), 0, streams)

    def step_s(self, decoding: int, context_tokens: float, prefill_tokens: float) -> float:
        """See StepTimes."""
        prompt = prefill_tokens * self.decoders / (1 - self.hit_share)
        return self.of.step_s(decoding * self.decoders, context_tokens, prompt)

    def tokens_per_step(self) -> float:
        """See StepTimes."""
        return self.of.tokens_per_step()


def deployment_times(
    times: StepTimes | str, points: Sequence[Measured], engines: Deployment
) -> StepTimes | str:
    """Fitted times of an arm for one of its workers; as `times_at_hits`."""
    found = times_at_hits(times, points)
    if not isinstance(found, TimesAtHits):
        return found
    return replace(found, workers=engines.workers, decoders=engines.decode_workers or engines.workers)


def times_at_hits(times: StepTimes | str, points: Sequence[Measured]) -> StepTimes | str:
    """Fitted times of an arm whose points were measured with these cache hits; the message key of a reason where nobody
    says how much was cached, since then nobody knows what a computed token costs."""
    if isinstance(times, str):
        return times
    shares = [
        share
        for point in points
        if (share := point.value("cache_hit_engine") or point.value("cache_hit_usage")) is not None
    ]
    if not shares:
        return "predict.use.sim.no_hits"
    return TimesAtHits(times, min(0.99, max(0.0, statistics.median(shares))))


@dataclass(frozen=True, slots=True)
class ArmReplay:
    """What an arm's runs replay, by which rules, and on what. `cache_bust` is the recipe's; a profile that is not `run`'s
    own has its own."""

    target: str
    workload: Workload
    profile: Profile
    cache_bust: CacheBust
    limits: EngineLimits

    def rules(self, planned: PlannedPoint) -> ReplayRules:
        """Of one point; the time that the suite states for it counts."""
        rules = rules_of(self.profile, planned.concurrency)
        if self.profile.name != RUN_PROFILE:
            return rules
        return replace(
            rules, cache_bust=self.cache_bust, duration_s=planned.stated_duration_s or rules.duration_s
        )


def simulate_arm(
    replay: ArmReplay,
    planned: PlannedPoint,
    times: StepTimes | str,
    points: Sequence[Measured] = (),
    changes: Sequence[Change] = (),
    *,
    judge_rules: bool = False,
) -> AgenticRun:
    """Simulate one point of an arm. `times` is the fitted step times, or the message key of why there are none; `points`
    are those that they were fitted to. `judge_rules`: also find what replay rules change beside what the engine changes.

    Raises ServemarkError (exit 2) where the cache's sizes cannot be worked out, or a change does not apply.
    """
    sized = _with_slots(sized_cache(replay.target), replay.limits.slots)
    config = sized.config
    find_segment = any(change.text == LEAST_SEGMENT for change in changes)
    if find_segment and sized.segment_bytes is None:
        raise input_error("predict.use.no_segment", role=sized.role)
    changes = [change for change in changes if change.text != LEAST_SEGMENT]
    for change in changes:
        config = change.apply(replace(sized, config=config))
    rules = replay.rules(planned)

    def engines(of: CacheConfig) -> tuple[StepTimes | str, Deployment]:
        at_hits = times_at_hits(times, points)
        there = engines_of(sized, of, replay.limits, planned.gpus, fitted=not isinstance(at_hits, str))
        return deployment_times(times, points, there), there

    def run(of: CacheConfig) -> tuple[SimulatedRun, CacheCounts]:
        speed, there = engines(of)
        cache = build(of)
        found = simulate(replay.workload, cache, _assumed(speed), rules, there)
        return found, cache.counts

    planned_run, counts = run(sized.config)
    unused = store_is_unused(sized.config, counts)
    changed = None
    if changes:
        changed = planned_run if unused and _smaller_store(config, sized.config) else run(config)[0]
    least = None
    if find_segment and sized.segment_bytes is not None and planned_run.hits.share is not None:
        enough = planned_run.hits.share - POINT
        least = (
            0
            if unused
            else least_segment(sized, sized.segment_bytes, enough, lambda of: run(of)[0].hits.share)
        )
    speed, there = engines(sized.config)
    return AgenticRun(
        planned.concurrency,
        sized,
        not isinstance(speed, str),
        speed if isinstance(speed, str) else None,
        planned_run,
        tuple(change.text for change in changes),
        changed,
        replay.profile.name,
        unused and sized.segment_bytes is not None,
        least,
        _judged(replay.workload, sized.config, speed, rules, there) if judge_rules else None,
    )


def store_is_unused(config: CacheConfig, counts: CacheCounts) -> bool:
    """Whether nothing was ever found in the shared store: then a smaller one, or none, loses no hits, and leaves the
    workers' pools as they are."""
    return config.store_tokens != 0 and not counts.store_tokens


def least_segment(
    sized: SizedCache, most: int, enough: float, share_at: Callable[[CacheConfig], float | None]
) -> int | None:
    """Bytes of the smallest segment whose share of hits is at least `enough`, between none and `most` bytes, to
    `SEGMENT_STEP` of `most`; None where not even `most` has it. Hits are taken to grow with the segment."""
    low, high = 0, most
    if (share_at(_with_segment(sized, high)) or 0.0) < enough:
        return None
    while high - low > most * SEGMENT_STEP:
        middle = (low + high) // 2
        if (share_at(_with_segment(sized, middle)) or 0.0) >= enough:
            high = middle
        else:
            low = middle
    return high


def _smaller_store(config: CacheConfig, planned: CacheConfig) -> bool:
    """Whether nothing but the store differs, and it is no larger."""
    have, had = config.store_tokens, planned.store_tokens
    return config == replace(planned, store_tokens=have) and (
        had is None or (have is not None and have <= had)
    )


def _assumed(speed: StepTimes | str) -> StepTimes:
    return fixed_times(ASSUMED_TTFT_S, ASSUMED_TOKEN_S) if isinstance(speed, str) else speed


def _judged(
    workload: Workload, config: CacheConfig, speed: StepTimes | str, rules: ReplayRules, engines: Deployment
) -> JudgedRules:
    """What decides: over the first sessions, so that it costs about as much as the replay itself. Where no speed is told,
    hits are looked at."""
    lanes = rules.concurrency or 1
    sessions, requests = 0, 0
    for session in workload.sessions:
        if requests >= JUDGED_REQUESTS and sessions >= 2 * lanes:
            break
        sessions += 1
        requests += sum(len(turns) for _, turns in session.streams())
    some = replace(workload, sessions=workload.sessions[:sessions])
    found = sensitivity(
        some,
        lambda: build(config),
        _assumed(speed),
        rules,
        engines,
        metric=HITS if isinstance(speed, str) else SENSITIVE_METRIC,
    )
    return JudgedRules(found, sessions, len(workload.sessions))


def _with_slots(sized: SizedCache, slots: int | None) -> SizedCache:
    if slots is None or sized.config.policy != "llamacpp":
        return sized
    return replace(sized, config=replace(sized.config, slots=slots))
