"""One pass over request records -> everything that a row says of them; no record is kept.

Kept are one number a request and metric (8 bytes), one count a distinct gap (`gap_tally`), and one span a session.
Two summaries of consecutive parts of a file merge to the very summary of the whole.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from servemark.metrics.percentiles import PERCENTILES, Distribution, rank
from servemark.metrics.request import first_chunk_tokens
from servemark.replay.profiles import ValidityCounts
from servemark.replay.record import RequestRecord
from servemark.results import measures
from servemark.results.gap_tally import GapTally
from servemark.results.row import Counts, Slo, WindowTokens
from servemark.results.tally import Tally

ISL_TOLERANCE = 0.02
TEMPLATE_TOKENS = 64
TEMPLATE_TOKENS_PER_TURN = 16
"""What a chat template may add to the prompt: a fixed part, and two messages' markers for each turn."""
MAX_OTHER_MODELS = 1000
"""Names of other models that are told apart; a server can make up a new one for each reply."""


@dataclass(frozen=True, slots=True)
class Questions:
    """What must be asked before records are read. `windows`: (start, end) in seconds, of which the tokens received
    inside are counted. `limits`: service-level objective, metric id -> limit."""

    windows: tuple[tuple[float, float], ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class TokenSum:
    """Sum of a token count over requests, and how many of them lack it."""

    total: int = 0
    known: int = 0
    lacking: int = 0

    def add(self, count: int | None) -> None:
        """One more request."""
        if count is None:
            self.lacking += 1
        else:
            self.known += 1
            self.total += count

    def merge(self, other: TokenSum) -> None:
        """Add another sum."""
        self.total += other.total
        self.known += other.known
        self.lacking += other.lacking

    @property
    def whole(self) -> int | None:
        """The sum; None when there are no requests or any of them lacks the count."""
        return self.total if self.known and not self.lacking else None


@dataclass(slots=True)
class Inside:
    """Tokens received within a window, whatever became of their requests.

    Output tokens: by content event where the server counts them by event, else spread evenly over the reply's
    events; a reply that was cut off before its usage came counts one token an event. Input tokens: those of
    prompts whose first content came inside, since a prompt is worked off by then; for a reply cut off before
    its usage came they are the workload's own count.
    """

    start_s: float
    end_s: float
    output: int = 0
    shares: array[float] = field(default_factory=lambda: array("d"))
    """Parts of a reply's tokens, added up exactly at the end: the sum must not depend on the order."""
    inputs: TokenSum = field(default_factory=TokenSum)

    def add(self, record: RequestRecord) -> None:
        """One more measured request."""
        times = record.chunk_s
        first, end = bisect_left(times, self.start_s), bisect_right(times, self.end_s)
        seen = end - first
        if seen < 1:
            return
        if record.chunk_tokens is not None:
            self.output += sum(record.chunk_tokens[first:end])
        elif record.output_tokens is None or record.outcome != "ok":
            self.output += seen
        elif seen == len(times):
            self.output += record.output_tokens
        else:
            self.shares.append(record.output_tokens * seen / len(times))
        if first == 0:
            known = record.input_tokens
            self.inputs.add(record.expected_input_tokens if known is None else known)

    def merge(self, other: Inside) -> None:
        """Add what another part saw in the same window."""
        self.output += other.output
        self.shares.extend(other.shares)
        self.inputs.merge(other.inputs)

    def tokens(self) -> WindowTokens:
        """The figures for the row."""
        whole = None if self.inputs.lacking else self.inputs.total
        output = round(self.output + math.fsum(self.shares))
        return WindowTokens(self.start_s, self.end_s, self.end_s - self.start_s, whole, output)


@dataclass(slots=True)
class Mismatch:
    """Requests of which a length is not the expected one: `off` of `n`, and the one farthest off (the first of
    equals): by how much, what was expected, what came, its id."""

    n: int = 0
    off: int = 0
    worst: tuple[float, int, int, str] | None = None

    def add(self, by: float, expected: int, got: int, name: str, *, off: bool) -> None:
        """One more request where both lengths are known."""
        self.n += 1
        self.off += off
        if off and (self.worst is None or by > self.worst[0]):
            self.worst = (by, expected, got, name)

    def merge(self, other: Mismatch) -> None:
        """Add those of a later part."""
        self.n += other.n
        self.off += other.off
        if other.worst is not None and (self.worst is None or other.worst[0] > self.worst[0]):
            self.worst = other.worst


@dataclass(slots=True)
class FirstChunks:
    """Ok replies of several content events and a known length, and those whose first event is only assumed to
    hold one token. Where there are as many events as tokens (one less for the end-of-text token, which shows no
    content) that is proven: every event holds at least one token."""

    n: int = 0
    assumed: int = 0

    def add(self, record: RequestRecord) -> None:
        """One more ok request."""
        if len(record.chunk_s) > 1 and record.output_tokens is not None:
            self.n += 1
            self.assumed += first_chunk_tokens(record)[1] and record.output_tokens - len(record.chunk_s) > 1


class Summary:
    """What one pass has seen. Figures of `ok` requests are those of the measured window that ended well."""

    def __init__(self, questions: Questions) -> None:
        self.questions = questions
        self.records = 0
        """Of all phases."""
        self.last_bad: tuple[str, str | None, str | None] | None = None
        """Outcome, error kind and detail of the last record, of any phase, that did not end well."""
        self.outcomes: Counter[str] = Counter()
        self.chunks = 0
        """Content events of measured requests."""
        self.values = {metric: array("d") for metric in measures.SINGLE}
        self.itl, self.gaps = Tally(), GapTally()
        self.first_start_s: float | None = None
        self.last_moment_s: float | None = None
        self.spans: dict[str, tuple[float, float]] = {}
        self.sums = {name: TokenSum() for name in ("input_tokens", "output_tokens", "cached_tokens")}
        self.inside = [Inside(*window) for window in questions.windows]
        self.good = 0
        self.validity = ValidityCounts()
        self.osl, self.isl, self.first_chunks = Mismatch(), Mismatch(), FirstChunks()
        self.tokens_lacking = self.tokens_from_chunks = 0
        self.models: Counter[str | None] = Counter()
        """Models that ok replies name; None: further ones than `MAX_OTHER_MODELS`."""

    @property
    def stalls(self) -> int:
        """Gaps of ok replies that are stalls (`metrics.request.stalls`)."""
        return self.gaps.stalls

    @property
    def measured(self) -> int:
        """Measured requests, whatever their outcome."""
        return self.outcomes.total()

    @property
    def ok(self) -> int:
        """Measured requests that ended well."""
        return self.outcomes["ok"]

    def add(self, record: RequestRecord) -> None:
        """Take in the next record."""
        self.records += 1
        if record.outcome != "ok":
            self.last_bad = (record.outcome, record.error_kind, record.error_detail)
        if record.phase != "measured":
            return
        self.outcomes[record.outcome] += 1
        self.chunks += len(record.chunk_s)
        self.validity.add(record)
        self._add_span(record)
        for window in self.inside:
            window.add(record)
        if self.questions.limits:
            self.good += measures.meets(record, self.questions.limits)
        if record.outcome == "ok":
            self._add_ok(record)

    def _add_span(self, record: RequestRecord) -> None:
        start, end = record.start_s, measures.last_moment_s(record)
        if start is None or end is None:
            return
        if self.first_start_s is None or start < self.first_start_s:
            self.first_start_s = start
        if self.last_moment_s is None or end > self.last_moment_s:
            self.last_moment_s = end
        before = self.spans.get(record.session)
        if before is not None:
            first, last = before
            start, end = first if first < start else start, last if last > end else end
        self.spans[record.session] = (start, end)

    def _add_ok(self, record: RequestRecord) -> None:
        for value, values in zip(measures.singles(record), self.values.values(), strict=True):
            if value is not None:
                values.append(value)
        self.gaps.add(record.chunk_s)
        if record.chunk_tokens is not None:
            self.itl.add(measures.VALUES["itl_s"](record))
        sums, prompt, reply = self.sums, record.input_tokens, record.output_tokens
        sums["input_tokens"].add(prompt)
        sums["output_tokens"].add(reply)
        sums["cached_tokens"].add(record.cached_tokens)
        self.tokens_lacking += prompt is None or reply is None
        self.tokens_from_chunks += record.tokens_origin == "chunks"
        self._add_lengths(record)
        model = record.served_model
        if model is not None:
            self.models[model if model in self.models or len(self.models) < MAX_OTHER_MODELS else None] += 1

    def _add_lengths(self, record: RequestRecord) -> None:
        self.first_chunks.add(record)
        asked, got = record.requested_output_tokens, record.output_tokens
        if asked is not None and got is not None:
            self.osl.add(abs(asked - got), asked, got, record.id, off=asked != got)
        expected, prompt = record.expected_input_tokens, record.input_tokens
        if expected and prompt is not None:
            over = prompt - expected
            allowance = TEMPLATE_TOKENS + TEMPLATE_TOKENS_PER_TURN * record.turn
            excess = abs(max(0, over - allowance) if over > 0 else over) / expected
            self.isl.add(excess, expected, prompt, record.id, off=excess > ISL_TOLERANCE)

    def settle(self) -> None:
        """Put values in order, which a process does for its own part: two ordered parts are soon one."""
        self.values = {metric: array("d", sorted(values)) for metric, values in self.values.items()}
        self.itl.settle()
        self.gaps.settle()

    def merge(self, later: Summary) -> None:
        """Take in the summary, by the same questions, of the records that follow."""
        self.records += later.records
        self.last_bad = later.last_bad or self.last_bad
        self.outcomes.update(later.outcomes)
        self.chunks += later.chunks
        for metric, values in later.values.items():
            self.values[metric].extend(values)
        self.itl.merge(later.itl)
        self.gaps.merge(later.gaps)
        starts = [at for at in (self.first_start_s, later.first_start_s) if at is not None]
        ends = [at for at in (self.last_moment_s, later.last_moment_s) if at is not None]
        self.first_start_s, self.last_moment_s = min(starts, default=None), max(ends, default=None)
        for session, (start, end) in later.spans.items():
            before = self.spans.get(session, (start, end))
            self.spans[session] = (min(before[0], start), max(before[1], end))
        for name, total in later.sums.items():
            self.sums[name].merge(total)
        for mine, theirs in zip(self.inside, later.inside, strict=True):
            mine.merge(theirs)
        self.good += later.good
        self.validity.merge(later.validity)
        self.osl.merge(later.osl)
        self.isl.merge(later.isl)
        self.first_chunks.n += later.first_chunks.n
        self.first_chunks.assumed += later.first_chunks.assumed
        self.tokens_lacking += later.tokens_lacking
        self.tokens_from_chunks += later.tokens_from_chunks
        self.models.update(later.models)

    def counts(self, planned: int) -> Counts:
        """Measured requests by outcome."""
        by = self.outcomes
        return Counts(planned, by["ok"], by["error"], by["timeout"], by["incomplete"], by["cancelled"])

    def distributions(self) -> dict[str, Distribution]:
        """Summaries over ok requests; a metric without values is missing, never zero."""
        found: dict[str, Distribution] = {}
        for metric in measures.VALUES:
            tally = self._tally(metric)
            made = Distribution.of(self.values[metric]) if tally is None else tally.distribution()
            if made is not None:
                found[metric] = made
        return found

    def _tally(self, metric: str) -> Tally | GapTally | None:
        """What counts a metric of which a request has several values."""
        return self.itl if metric == "itl_s" else self.gaps if metric == "chunk_gap_s" else None

    def count(self, metric: str) -> int:
        """How many values a metric has."""
        tally = self._tally(metric)
        return len(self.values[metric]) if tally is None else sum(tally.ascending()[1])

    def at(self, metric: str, place: int) -> tuple[float, int]:
        """(the value at a place, from 0, of a metric's values in ascending order; how many equal ones stand before
        it there)."""
        tally = self._tally(metric)
        if tally is None:
            ordered = sorted(self.values[metric])
            return ordered[place], place - bisect_left(ordered, ordered[place])
        values, counts = tally.ascending()
        upto = list(accumulate(counts))
        here = bisect_right(upto, place)
        return values[here], place - (upto[here] - counts[here])

    def window_s(self) -> float | None:
        """Last content or end - first start of measured requests, in seconds; None when that is not above
        zero."""
        start, end = self.first_start_s, self.last_moment_s
        return end - start if start is not None and end is not None and end > start else None

    def live_sessions(self) -> tuple[float | None, int]:
        """(time-weighted mean, peak) of sessions alive over the window.

        A session lives from the first start to the last moment of its measured requests: thinking counts as
        alive.
        """
        # Ends sort before starts at the same moment: a lane that hands over at once holds one session, not two.
        steps = [(start, 1) for start, _ in self.spans.values()]
        steps += [(end, -1) for _, end in self.spans.values()]
        steps.sort()
        alive = peak = 0
        for _, change in steps:
            alive += change
            peak = max(peak, alive)
        window = self.window_s()
        if window is None:
            return None, peak
        return math.fsum(end - start for start, end in self.spans.values()) / window, peak

    def usage_cache_share(self) -> float | None:
        """Sum of cached tokens / sum of prompt tokens as the server's usage states them; None where one is
        unknown."""
        cached, prompt = self.sums["cached_tokens"].whole, self.sums["input_tokens"].whole
        return cached / prompt if cached is not None and prompt else None

    def tokens_inside(self, start_s: float, end_s: float) -> WindowTokens:
        """Tokens received within one of the windows that were asked for."""
        return self.inside[self.questions.windows.index((start_s, end_s))].tokens()

    def with_failures(self) -> dict[str, dict[str, float | None]]:
        """Percentiles of latencies in which each failed request (error, timeout, incomplete) counts as infinite:
        otherwise the worst replies would leave the tail by failing. None stands for infinite. Requests that this
        client cut off count neither way."""
        failed = sum(self.outcomes[name] for name in ("error", "timeout", "incomplete"))
        found: dict[str, dict[str, float | None]] = {}
        for metric in measures.WITH_FAILURES:
            values = sorted(self.values[metric])
            n = len(values) + failed
            if not n:
                continue
            places = {f"p{q}": rank(n, q) for q in PERCENTILES}
            found[metric] = {
                name: values[place] if place < len(values) else None for name, place in places.items()
            } | {"n": n}
        return found

    def slo(self) -> Slo | None:
        """How many measured requests met the limits, of all that were not cut off by this client; None where no
        limits were asked for."""
        if not self.questions.limits:
            return None
        return Slo(dict(self.questions.limits), self.good, self.measured - self.outcomes["cancelled"])

    def row_tokens(self, window: WindowTokens | None) -> dict[str, int | None]:
        """The row's token sums: over ok requests, or of what was received inside a window that ends by time."""
        sums = {name: self.sums[f"{name}_tokens"].whole for name in ("input", "output", "cached")}
        if window is not None:
            sums |= {"input": window.input_tokens, "output": window.output_tokens}
        return sums


def summarise(records: Iterable[RequestRecord], questions: Questions | None = None) -> Summary:
    """The summary of records, each looked at once and let go."""
    summary = Summary(questions or Questions())
    add = summary.add
    for record in records:
        add(record)
    summary.settle()
    return summary
