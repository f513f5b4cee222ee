"""From request records to measured values: which requests count, and each metric's values of one request.

`results.build` summarises these values and `results.why` walks back from a summary to the very request, so
the two cannot disagree. Formulas themselves live in `metrics.request`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

from servemark.metrics import request as formulas
from servemark.replay.record import RequestRecord
from servemark.results.tally import to_microseconds

SINGLE: Mapping[str, Callable[[RequestRecord], float | None]] = {
    "ttft_s": formulas.ttft_s,
    "ttfo_s": formulas.ttfo_s,
    "tpot_s": formulas.tpot_s,
    "e2el_s": formulas.e2el_s,
    "e2el_per_token_s": formulas.e2el_per_token_s,
    "ttft_intended_s": formulas.ttft_intended_s,
    "e2el_intended_s": formulas.e2el_intended_s,
    "connect_s": attrgetter("connect_s"),
    "send_lateness_s": formulas.send_lateness_s,
    "input_tokens": attrgetter("input_tokens"),
    "output_tokens": attrgetter("output_tokens"),
}
"""Metric id -> the one value that an ok request contributes, in the metric's unit; None where it has none."""


def singles(record: RequestRecord) -> tuple[float | None, ...]:
    """The values of `SINGLE` in its order, by the same arithmetic in one go: a large file has a million of them. A test
    holds it to the formulas."""
    start, sent, chunks, tokens = record.start_s, record.intended_send_s, record.chunk_s, record.output_tokens
    ttft = ttfo = tpot = e2el = per_token = ttft_intended = e2el_intended = lateness = None
    if chunks:
        first, last = chunks[0], chunks[-1]
        if start is not None:
            ttft, e2el = first - start, last - start
            if tokens and e2el > 0:
                per_token = e2el / tokens
        if sent is not None:
            ttft_intended, e2el_intended = first - sent, last - sent
        if tokens is not None:
            rest = tokens - (record.chunk_tokens[0] if record.chunk_tokens else 1)
            span = last - first
            if rest > 0 and span > 0:
                tpot = span / rest
    if start is not None:
        if record.first_text_s is not None:
            ttfo = record.first_text_s - start
        if sent is not None:
            lateness = start - sent
    return (
        ttft, ttfo, tpot, e2el, per_token, ttft_intended, e2el_intended, record.connect_s, lateness,
        record.input_tokens, tokens,
    )  # fmt: skip


SEVERAL: Mapping[str, Callable[[RequestRecord], list[float]]] = {
    "itl_s": lambda r: formulas.itl_s(r) or [],
    "chunk_gap_s": lambda r: [to_microseconds(gap) for gap in formulas.chunk_gaps_s(r)],
}
"""Metric id -> the values that one ok request contributes where these are several."""


def _listed(metric: str) -> Callable[[RequestRecord], list[float]]:
    if metric in SEVERAL:
        return SEVERAL[metric]
    formula = SINGLE[metric]

    def values_of(record: RequestRecord) -> list[float]:
        value = formula(record)
        return [] if value is None else [float(value)]

    return values_of


VALUES: Mapping[str, Callable[[RequestRecord], list[float]]] = {
    metric: _listed(metric)
    for metric in (
        "ttft_s", "ttfo_s", "tpot_s", "itl_s", "chunk_gap_s", "e2el_s", "e2el_per_token_s", "ttft_intended_s",
        "e2el_intended_s", "connect_s", "send_lateness_s", "input_tokens", "output_tokens",
    )
}  # fmt: skip
"""Metric id -> the values that one ok request contributes, in the metric's unit; empty where it has none. In the
order in which the row shows them."""


def measured(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Requests of the measured window, whatever their outcome; warm-up and evals never enter."""
    return [record for record in records if record.phase == "measured"]


def only_ok(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Measured requests that ended as they should: the only ones whose latencies count."""
    return [record for record in records if record.phase == "measured" and record.outcome == "ok"]


def last_moment_s(record: RequestRecord) -> float | None:
    """When a request was last heard of: the later of its last content and its end; None if it never
    started."""
    latest = record.start_s
    if record.end_s is not None and (latest is None or record.end_s > latest):
        latest = record.end_s
    if record.chunk_s and (latest is None or record.chunk_s[-1] > latest):
        latest = record.chunk_s[-1]
    return latest


def stalls_of(record: RequestRecord) -> int:
    """Gaps of one reply longer than `metrics.request.stall_threshold_s`."""
    return stalls_in(formulas.chunk_gaps_s(record))


def stalls_in(gaps: Sequence[float]) -> int:
    """The stalls among the gaps of one reply."""
    if not gaps or max(gaps) <= formulas.LEAST_STALL_S:
        return 0
    threshold = formulas.stall_threshold_s(gaps)
    return sum(gap > threshold for gap in gaps)


def longest_stalls(ok: Iterable[RequestRecord]) -> list[tuple[RequestRecord, formulas.Stall]]:
    """All stalls of ok requests with the request that each is in, the longest first."""
    found = [(record, stall) for record in ok for stall in formulas.stalls(record)]
    return sorted(found, key=lambda each: (-each[1].gap_s, each[1].at_s))


WITH_FAILURES = ("ttft_s", "e2el_s", "ttft_intended_s", "e2el_intended_s")


def meets(record: RequestRecord, limits: Mapping[str, float]) -> bool:
    """Did this request end well and within every limit? A reply of one token has no TPOT, and meets any."""
    if record.outcome != "ok":
        return False
    for metric, limit in limits.items():
        value = SINGLE[metric](record) if metric in SINGLE else max(SEVERAL[metric](record), default=None)
        if (
            value is None
            and metric in ("tpot_s", "itl_s", "chunk_gap_s")
            and (record.output_tokens or 0) <= 1
        ):
            continue
        if value is None or value > limit:
            return False
    return True
