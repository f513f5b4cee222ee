"""The closed set of doubts about a measurement. Each function looks at one row in the making and returns at
most one `Warned`; its code names the message `warning.<code>`, which says what was seen, the likely cause,
what to try.

Thresholds stand here as named constants, so that a message and its test quote the same number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from servemark.launch.engines.protocol import EngineCounters
from servemark.metrics.accuracy import EvalScore
from servemark.metrics.percentiles import Distribution
from servemark.replay.profiles import GONE_AFTER_S
from servemark.replay.sending import SERVER_GONE, TOO_MANY_FAILED
from servemark.results.row import (
    CacheFigures,
    ClientHealth,
    Counts,
    ReplayFigures,
    SpeculationFigures,
    Warned,
)
from servemark.results.summary import ISL_TOLERANCE, Summary

LOOP_LAG_LIMIT_S = 0.005
PAUSE_LIMIT_S = 1.0
"""A loop this late was not busy but stopped; one such gap among thousands of samples is in no p99."""
CPU_SHARE_LIMIT = 0.9
SHORTEST_SHARE_S = 0.5
FEW_REQUESTS = 20
"""Below this many requests nearest-rank p95 (and so p99) is simply the slowest request: ceil(0.95 n) = n."""
CACHE_TOLERANCE = 0.03
CONCURRENCY_SHARE = 0.8
MAX_DIFFERENCES = 6
DISPATCH_LIMIT_S = 0.005
"""Sends of an open loop later than this at p99 are said."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a doubt may look at; times in seconds."""

    concurrency: int | None
    counts: Counts
    window_s: float | None
    seen: Summary
    distributions: dict[str, Distribution]
    achieved_concurrency: float | None
    peak_sessions: int
    cache: CacheFigures
    client: ClientHealth
    evals: Sequence[EvalScore]
    expected_evals: Sequence[str]
    other_runs: Sequence[str]
    clock_jump_s: float | None
    engine_restarts: int
    counters_before: EngineCounters | None
    counters_after: EngineCounters | None
    raw_usage_share: float | None
    """The cache shares before they are checked to be shares at all."""
    raw_engine_share: float | None
    replayed: ReplayFigures | None = None
    asked_model: str | None = None
    differing_workers: Sequence[Mapping[str, str]] = ()
    """worker, fact, declared, observed."""
    speculation_asked: bool = False
    speculation: SpeculationFigures | None = None


def _percent(share: float) -> float:
    return round(100 * share, 1)


def cpu_share(cpu_s: float, window_s: float | None) -> float | None:
    """Share of one core that the client used over the window; None for one too short to tell: what a process does when
    it begins and ends is not in proportion to it."""
    return cpu_s / window_s if window_s and window_s >= SHORTEST_SHARE_S else None


def is_client_limited(lag_p99_s: float | None, share: float | None) -> bool:
    """True when the client's own loop was late or its core nearly full, so that it may have slowed the
    numbers."""
    return (lag_p99_s or 0.0) > LOOP_LAG_LIMIT_S or (share or 0.0) > CPU_SHARE_LIMIT


def client_limited(facts: Facts) -> Warned | None:
    """The client was busy enough to have slowed what it measured."""
    if not facts.client.limited:
        return None
    processes = facts.replayed.processes if facts.replayed is not None else ()
    lags = [p["lag_p99_s"] for p in processes if isinstance(p.get("lag_p99_s"), float)]
    lag = max((float(str(each)) for each in lags), default=facts.client.loop_lag_p99_s)
    share = (
        cpu_share(facts.client.cpu_s, facts.window_s) if len(processes) < 2 else facts.client.cpu_share_max
    )
    return Warned(
        "client_limited",
        {
            "lag_ms": "—" if lag is None else round(1e3 * lag, 2),
            "cpu_percent": "—" if share is None else _percent(share),
            "lag_limit_ms": round(1e3 * LOOP_LAG_LIMIT_S, 1),
            "cpu_limit_percent": _percent(CPU_SHARE_LIMIT),
        },
    )


def client_paused(facts: Facts) -> Warned | None:
    """The client stood still for a while: what arrived meanwhile got its time only afterwards."""
    pause_s = facts.client.loop_lag_max_s
    if pause_s is None or pause_s <= PAUSE_LIMIT_S:
        return None
    return Warned("client_paused", {"pause_s": round(pause_s, 3), "limit_s": PAUSE_LIMIT_S})


def few_requests(facts: Facts) -> Warned | None:
    """Too few requests for the tail to be anything but the slowest one."""
    n = facts.counts.ok
    return Warned("few_requests", {"n": n, "limit": FEW_REQUESTS}) if n < FEW_REQUESTS else None


def failed_requests(facts: Facts) -> Warned | None:
    """Requests that ended badly: they are in the counts and in no latency."""
    counts = facts.counts
    bad = counts.error + counts.timeout + counts.incomplete + counts.cancelled
    if not bad:
        return None
    return Warned(
        "failed_requests",
        {
            "bad": bad,
            "total": bad + counts.ok,
            "error": counts.error,
            "timeout": counts.timeout,
            "incomplete": counts.incomplete,
            "cancelled": counts.cancelled,
        },
    )


def osl_mismatch(facts: Facts) -> Warned | None:
    """Replies whose length is not the asked one: their work is not the workload's."""
    osl = facts.seen.osl
    if osl.worst is None:
        return None
    _, asked, got, request = osl.worst
    return Warned(
        "osl_mismatch", {"off": osl.off, "n": osl.n, "asked": asked, "got": got, "request": request}
    )


def isl_mismatch(facts: Facts) -> Warned | None:
    """Prompts that the server counts differently from what the workload says, beyond the template's own
    tokens."""
    isl = facts.seen.isl
    if isl.worst is None:
        return None
    _, expected, got, request = isl.worst
    return Warned(
        "isl_mismatch",
        {
            "off": isl.off,
            "n": isl.n,
            "expected": expected,
            "got": got,
            "request": request,
            "tolerance_percent": _percent(ISL_TOLERANCE),
        },
    )


def first_chunk_assumed(facts: Facts) -> Warned | None:
    """Requests whose first content event is taken for one token, because the server did not say."""
    found = facts.seen.first_chunks
    return Warned("first_chunk_assumed", {"assumed": found.assumed, "n": found.n}) if found.assumed else None


def tokens_unknown(facts: Facts) -> Warned | None:
    """Ok requests without a token count: sums, and the rates made from them, are absent."""
    lacking = facts.seen.tokens_lacking
    return Warned("tokens_unknown", {"lacking": lacking, "n": facts.seen.ok}) if lacking else None


def tokens_from_chunks(facts: Facts) -> Warned | None:
    """Output tokens counted as content events, since the server sent no usage."""
    counted = facts.seen.tokens_from_chunks
    return Warned("tokens_from_chunks", {"counted": counted, "n": facts.seen.ok}) if counted else None


def clock_jumped(facts: Facts) -> Warned | None:
    """The wall clock moved against the monotonic one during the run; durations are not touched by it."""
    if facts.clock_jump_s is None:
        return None
    return Warned("clock_jumped", {"jump_s": round(facts.clock_jump_s, 3)})


def host_shared(facts: Facts) -> Warned | None:
    """Another run was active on this host."""
    if not facts.other_runs:
        return None
    return Warned("host_shared", {"runs": ", ".join(facts.other_runs), "n": len(facts.other_runs)})


def cache_counter_disagrees(facts: Facts) -> Warned | None:
    """Two sources state the prefix-cache share more than three points apart."""
    cache = facts.cache
    theory = ("cache_hit_theoretical", cache.theoretical)
    usage = ("cache_hit_usage", cache.usage)
    engine = ("cache_hit_engine", cache.engine)
    pairs = [(usage, engine), (theory, usage)] if cache.usage is not None else [(theory, engine)]
    for (one, first), (other, second) in pairs:
        if first is not None and second is not None and abs(first - second) > CACHE_TOLERANCE:
            return Warned(
                "cache_counter_disagrees",
                {
                    "one": one,
                    "one_percent": _percent(first),
                    "other": other,
                    "other_percent": _percent(second),
                    "tolerance_points": _percent(CACHE_TOLERANCE),
                },
            )
    return None


def cache_counter_impossible(facts: Facts) -> Warned | None:
    """A server that states more cached than prompt tokens, or fewer than none."""
    for source, share in (
        ("cache_hit_usage", facts.raw_usage_share),
        ("cache_hit_engine", facts.raw_engine_share),
    ):
        if share is not None and not 0 <= share <= 1:
            return Warned("cache_counter_impossible", {"source": source, "percent": _percent(share)})
    return None


def speculation_idle(facts: Facts) -> Warned | None:
    """Speculation was asked for and no token was drafted: the deployment measured is one without it."""
    seen = facts.speculation
    if not facts.speculation_asked or seen is None or seen.missing != "nothing_drafted":
        return None
    return Warned("speculation_idle", {"steps": f"{seen.steps or 0:.0f}"})


def nothing_accepted(facts: Facts) -> Warned | None:
    """Tokens were drafted and none was accepted: drafts cost time and give nothing."""
    seen = facts.speculation
    if seen is None or not seen.drafted or seen.accepted:
        return None
    return Warned("nothing_accepted", {"drafted": f"{seen.drafted:.0f}"})


def eval_incomplete(facts: Facts) -> Warned | None:
    """An expected accuracy task is missing, ran fewer items than planned, or left items unanswered."""
    scored = {score.task: score for score in facts.evals}
    missing = [task for task in facts.expected_evals if task not in scored]
    short = [s for s in facts.evals if s.n < s.expected_n or s.unanswered or not s.answered]
    if not missing and not short:
        return None
    answered = sum(s.n - s.unanswered for s in facts.evals)
    expected = sum(s.expected_n for s in facts.evals)
    tasks = ", ".join(missing + [s.task for s in short])
    return Warned("eval_incomplete", {"tasks": tasks, "answered": answered, "expected": expected})


def other_model(facts: Facts) -> Warned | None:
    """Replies that name another model than the one that was asked for: a router or a wrong port answered."""
    if facts.asked_model is None:
        return None
    other = Counter({name: n for name, n in facts.seen.models.items() if name != facts.asked_model})
    name = next((name for name, _ in other.most_common(2) if name is not None), None)
    if name is None:
        return None
    return Warned("other_model", {"asked": facts.asked_model, "got": name, "n": other.total()})


def worker_differs(facts: Facts) -> Warned | None:
    """Workers that say of themselves something else than the recipe declares."""
    if not facts.differing_workers:
        return None
    said = [
        f"{one['worker']} {one['fact']}: {one['observed']} ({one['declared']})"
        for one in facts.differing_workers
    ]
    more = f", +{len(said) - MAX_DIFFERENCES}" if len(said) > MAX_DIFFERENCES else ""
    return Warned("worker_differs", {"n": len(said), "facts": ", ".join(said[:MAX_DIFFERENCES]) + more})


def stalls_seen(facts: Facts) -> Warned | None:
    """Gaps inside replies far above the reply's own median."""
    if not facts.seen.stalls:
        return None
    gaps = facts.distributions.get("chunk_gap_s")
    return Warned("stalls_seen", {"n": facts.seen.stalls, "longest_s": round(gaps.max, 3) if gaps else "—"})


def concurrency_not_reached(facts: Facts) -> Warned | None:
    """The asked number of live sessions was never or hardly there."""
    mean = facts.achieved_concurrency
    if facts.concurrency is None:
        return None  # an open loop asks for none
    if mean is None or (
        facts.peak_sessions >= facts.concurrency and mean >= CONCURRENCY_SHARE * facts.concurrency
    ):
        return None
    return Warned(
        "concurrency_not_reached",
        {"mean": round(mean, 2), "peak": facts.peak_sessions, "asked": facts.concurrency},
    )


def counters_went_back(before: EngineCounters | None, after: EngineCounters | None) -> bool:
    """True when a monotonic counter of the engine is lower after the window than before it."""
    if before is None or after is None:
        return False
    pairs = (
        (before.prompt_tokens, after.prompt_tokens),
        (before.cached_prompt_tokens, after.cached_prompt_tokens),
        (before.generated_tokens, after.generated_tokens),
    )
    return any(one is not None and two is not None and two < one for one, two in pairs)


def engine_restarted(facts: Facts) -> Warned | None:
    """The engine began again inside the measured window: its cache and counters are not one story."""
    if not facts.engine_restarts and not counters_went_back(facts.counters_before, facts.counters_after):
        return None
    return Warned("engine_restarted", {"times": facts.engine_restarts or 1})


def replay_invalid(facts: Facts) -> Warned | None:
    """The run broke a rule of the profile that it was asked to follow."""
    if facts.replayed is None or not facts.replayed.invalid:
        return None
    rules = ", ".join(each.code for each in facts.replayed.invalid)
    return Warned("replay_invalid", {"profile": facts.replayed.profile or "—", "rules": rules})


def server_gone(facts: Facts) -> Warned | None:
    """Nobody took connections any more, so the replay ended itself."""
    if facts.replayed is None or facts.replayed.stopped != SERVER_GONE:
        return None
    return Warned("server_gone", {"seconds": GONE_AFTER_S})


def too_many_failed(facts: Facts) -> Warned | None:
    """The replay ended itself because more requests failed than its profile allows."""
    if facts.replayed is None or facts.replayed.stopped != TOO_MANY_FAILED:
        return None
    counts = facts.counts
    return Warned("too_many_failed", {"failed": counts.error + counts.timeout + counts.incomplete})


def process_lost(facts: Facts) -> Warned | None:
    """A client process ended without a word: its lanes fell silent in the middle."""
    if facts.replayed is None:
        return None
    lost = [str(p.get("process")) for p in facts.replayed.processes if p.get("lost")]
    if not lost:
        return None
    return Warned("process_lost", {"lost": ", ".join(lost), "n": len(facts.replayed.processes)})


def kernel_dropped(facts: Facts) -> Warned | None:
    """The kernel dropped received bytes for want of buffer space: they came again later, as if the server had
    been slow."""
    drops = {name: n for name, n in (facts.client.kernel_drops or {}).items() if n > 0}
    if not drops:
        return None
    return Warned("kernel_dropped", {"counters": ", ".join(f"{k}={n}" for k, n in sorted(drops.items()))})


def dispatch_late(facts: Facts) -> Warned | None:
    """An open loop that could not send on time did not put the asked load on the server."""
    lateness = facts.distributions.get("send_lateness_s")
    if facts.replayed is None or facts.replayed.mode != "open" or lateness is None:
        return None
    if lateness.p99 <= DISPATCH_LIMIT_S:
        return None
    limit_ms = round(1e3 * DISPATCH_LIMIT_S, 1)
    return Warned("dispatch_late", {"lag_ms": round(1e3 * lateness.p99, 2), "limit_ms": limit_ms})


def held_by_cap(facts: Facts) -> Warned | None:
    """The cap on requests in flight held requests back: the loop was not open then."""
    if facts.replayed is None or not facts.replayed.held_by_cap:
        return None
    return Warned("held_by_cap", {"held": facts.replayed.held_by_cap, "n": facts.seen.measured})


def cut_off(facts: Facts) -> Warned | None:
    """Requests that were given up at the end of a grace."""
    if facts.replayed is None or not (facts.replayed.cut_off or facts.replayed.warmup_cut_off):
        return None
    return Warned("cut_off", {"n": len(facts.replayed.cut_off), "warmup": len(facts.replayed.warmup_cut_off)})


DOUBTS: tuple[Callable[[Facts], Warned | None], ...] = (
    engine_restarted,
    other_model,
    worker_differs,
    speculation_idle,
    replay_invalid,
    server_gone,
    too_many_failed,
    process_lost,
    client_paused,
    client_limited,
    kernel_dropped,
    dispatch_late,
    held_by_cap,
    cut_off,
    failed_requests,
    few_requests,
    concurrency_not_reached,
    osl_mismatch,
    isl_mismatch,
    tokens_unknown,
    tokens_from_chunks,
    first_chunk_assumed,
    cache_counter_impossible,
    cache_counter_disagrees,
    nothing_accepted,
    eval_incomplete,
    stalls_seen,
    clock_jumped,
    host_shared,
)
"""Every doubt, the gravest first; a function's name is its warning's code."""


def doubts(facts: Facts) -> tuple[Warned, ...]:
    """All doubts that the facts raise, in the fixed order of `DOUBTS`."""
    return tuple(found for doubt in DOUBTS if (found := doubt(facts)) is not None)
