"""From request records to measured values: which requests count, and each metric's values of one request.

`results.build` summarises these values and `results.why` walks back from a summary to the very request, so
the two cannot disagree. Formulas themselves live in `metrics.request`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from servemark.metrics import request as formulas
from servemark.metrics.percentiles import PERCENTILES, Distribution, rank
from servemark.replay.record import RequestRecord
from servemark.results.row import Slo, WindowTokens


def _one(value: float | None) -> list[float]:
    return [] if value is None else [float(value)]


VALUES: Mapping[str, Callable[[RequestRecord], list[float]]] = {
    "ttft_s": lambda r: _one(formulas.ttft_s(r)),
    "ttfo_s": lambda r: _one(formulas.ttfo_s(r)),
    "tpot_s": lambda r: _one(formulas.tpot_s(r)),
    "itl_s": lambda r: formulas.itl_s(r) or [],
    "chunk_gap_s": formulas.chunk_gaps_s,
    "e2el_s": lambda r: _one(formulas.e2el_s(r)),
    "e2el_per_token_s": lambda r: _one(formulas.e2el_per_token_s(r)),
    "ttft_intended_s": lambda r: _one(formulas.ttft_intended_s(r)),
    "e2el_intended_s": lambda r: _one(formulas.e2el_intended_s(r)),
    "connect_s": lambda r: _one(r.connect_s),
    "send_lateness_s": lambda r: _one(formulas.send_lateness_s(r)),
    "input_tokens": lambda r: _one(r.input_tokens),
    "output_tokens": lambda r: _one(r.output_tokens),
}
"""Metric id -> the values that one ok request contributes, in the metric's unit; empty where it has none."""


def measured(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Requests of the measured window, whatever their outcome; warm-up and evals never enter."""
    return [record for record in records if record.phase == "measured"]


def only_ok(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Measured requests that ended as they should: the only ones whose latencies count."""
    return [record for record in records if record.phase == "measured" and record.outcome == "ok"]


def distributions(ok: Sequence[RequestRecord]) -> dict[str, Distribution]:
    """Summaries over ok requests; a metric without values is missing, never zero."""
    found: dict[str, Distribution] = {}
    for metric, values_of in VALUES.items():
        summary = Distribution.of([value for record in ok for value in values_of(record)])
        if summary is not None:
            found[metric] = summary
    return found


def last_moment_s(record: RequestRecord) -> float | None:
    """When a request was last heard of: the later of its last content and its end; None if it never
    started."""
    moments = [record.chunk_s[-1]] if record.chunk_s else []
    moments += [moment for moment in (record.end_s, record.start_s) if moment is not None]
    return max(moments) if moments else None


def window_edges(records: Sequence[RequestRecord]) -> tuple[RequestRecord, RequestRecord] | None:
    """(request that starts the measured window, request that ends it); None when no request ever started."""
    started = [record for record in records if record.start_s is not None]
    if not started:
        return None
    first = min(started, key=lambda r: r.start_s or 0.0)
    last = max(started, key=lambda r: last_moment_s(r) or 0.0)
    return first, last


def window_s(records: Sequence[RequestRecord]) -> float | None:
    """Last content or end - first start of measured requests, in seconds; None when that is not above
    zero."""
    edges = window_edges(records)
    if edges is None:
        return None
    start, end = edges[0].start_s, last_moment_s(edges[1])
    return end - start if start is not None and end is not None and end > start else None


def live_sessions(records: Sequence[RequestRecord]) -> tuple[float | None, int]:
    """(time-weighted mean, peak) of sessions alive over the window.

    A session lives from the first start to the last moment of its measured requests: thinking counts as
    alive.
    """
    spans: dict[str, tuple[float, float]] = {}
    for record in records:
        end = last_moment_s(record)
        if record.start_s is None or end is None:
            continue
        before = spans.get(record.session, (record.start_s, end))
        spans[record.session] = (min(before[0], record.start_s), max(before[1], end))
    window = window_s(records)
    # Ends sort before starts at the same moment: a lane that hands over at once holds one session, not two.
    steps = sorted(
        [(start, 1) for start, _ in spans.values()] + [(end, -1) for _, end in spans.values()],
        key=lambda step: (step[0], step[1]),
    )
    alive = peak = 0
    for _, change in steps:
        alive += change
        peak = max(peak, alive)
    if window is None:
        return None, peak
    return sum(end - start for start, end in spans.values()) / window, peak


def stalls_of(record: RequestRecord) -> int:
    """Gaps of one reply longer than `metrics.request.stall_threshold_s`."""
    return len(formulas.stalls(record))


def longest_stalls(ok: Iterable[RequestRecord]) -> list[tuple[RequestRecord, formulas.Stall]]:
    """All stalls of ok requests with the request that each is in, the longest first."""
    found = [(record, stall) for record in ok for stall in formulas.stalls(record)]
    return sorted(found, key=lambda each: (-each[1].gap_s, each[1].at_s))


def token_sum(ok: Sequence[RequestRecord], field: str) -> int | None:
    """Sum of one token count over ok requests; None when there are none or any of them lacks it."""
    counts: list[int | None] = [getattr(record, field) for record in ok]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def usage_cache_share(ok: Sequence[RequestRecord]) -> float | None:
    """Sum of cached tokens / sum of prompt tokens as the server's usage states them; None where one is
    unknown."""
    cached, prompt = token_sum(ok, "cached_tokens"), token_sum(ok, "input_tokens")
    return cached / prompt if cached is not None and prompt else None


def tokens_inside(records: Sequence[RequestRecord], start_s: float, end_s: float) -> WindowTokens:
    """Tokens received within a window, whatever became of their requests.

    Output tokens: by content event where the server counts them by event, else spread evenly over the reply's
    events; a reply that was cut off before its usage came counts one token an event. Input tokens: those of
    prompts whose first content came inside, since a prompt is worked off by then; for a reply cut off before
    its usage came they are the workload's own count.
    """
    output = 0.0
    inputs: list[int | None] = []
    for record in records:
        inside = [start_s <= at <= end_s for at in record.chunk_s]
        if not any(inside):
            continue
        if record.chunk_tokens is not None:
            output += sum(n for n, counts in zip(record.chunk_tokens, inside, strict=True) if counts)
        elif record.output_tokens is not None and record.outcome == "ok":
            output += record.output_tokens * sum(inside) / len(inside)
        else:
            output += sum(inside)
        if inside[0]:
            known = record.input_tokens
            inputs.append(record.expected_input_tokens if known is None else known)
    some = [tokens for tokens in inputs if tokens is not None]
    whole = sum(some) if len(some) == len(inputs) else None
    return WindowTokens(start_s, end_s, end_s - start_s, whole, round(output))


WITH_FAILURES = ("ttft_s", "e2el_s", "ttft_intended_s", "e2el_intended_s")


def with_failures(records: Sequence[RequestRecord]) -> dict[str, dict[str, float | None]]:
    """Percentiles of latencies in which each failed request (error, timeout, incomplete) counts as infinite:
    otherwise the worst replies would leave the tail by failing. None stands for infinite. Requests that this
    client cut off count neither way."""
    failed = sum(r.outcome in ("error", "timeout", "incomplete") for r in records)
    ok = only_ok(records)
    found: dict[str, dict[str, float | None]] = {}
    for metric in WITH_FAILURES:
        values = sorted(value for record in ok for value in VALUES[metric](record))
        n = len(values) + failed
        if not n:
            continue
        places = {f"p{q}": rank(n, q) for q in PERCENTILES}
        found[metric] = {
            name: values[place] if place < len(values) else None for name, place in places.items()
        } | {"n": n}
    return found


def meets(record: RequestRecord, limits: Mapping[str, float]) -> bool:
    """Did this request end well and within every limit? A reply of one token has no TPOT, and meets any."""
    if record.outcome != "ok":
        return False
    for metric, limit in limits.items():
        values = VALUES[metric](record)
        if not values and metric in ("tpot_s", "itl_s", "chunk_gap_s") and (record.output_tokens or 0) <= 1:
            continue
        if not values or max(values) > limit:
            return False
    return True


def slo_of(records: Sequence[RequestRecord], limits: Mapping[str, float]) -> Slo:
    """How many measured requests met the limits, of all that were not cut off by this client."""
    ended = [record for record in records if record.outcome != "cancelled"]
    return Slo(dict(limits), sum(meets(record, limits) for record in ended), len(ended))


def row_tokens(ok: Sequence[RequestRecord], window: WindowTokens | None) -> dict[str, int | None]:
    """The row's token sums: over ok requests, or of what was received inside a window that ends by time."""
    sums = {name: token_sum(ok, f"{name}_tokens") for name in ("input", "output", "cached")}
    if window is not None:
        sums |= {"input": window.input_tokens, "output": window.output_tokens}
    return sums
