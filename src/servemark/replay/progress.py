"""Running numbers of a replay, for whoever draws them. They are for watching only: results come from the
records."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from servemark.metrics.percentiles import percentile
from servemark.metrics.request import tpot_s, ttft_s
from servemark.replay.record import RequestRecord

PROGRESS_INTERVAL_S: Final = 0.4
_RECENT: Final = 500


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """The state at one moment. `sent` includes requests in flight; `errors` are all ends but `ok` and
    `cancelled`. `planned` and `duration_s` are None where the replay has no such end.

    `ttft_*_s` and `itl_*_s` (gap per token, one value a reply) are over the last 500 good replies;
    `tokens_per_s` is the output tokens of ended requests over the whole time so far. All are None before
    there is anything to tell.
    """

    elapsed_s: float
    planned: int | None
    sent: int
    done: int
    errors: int
    in_flight: int
    live_sessions: int
    ttft_p50_s: float | None
    tokens_per_s: float | None
    ttft_p90_s: float | None = None
    itl_p50_s: float | None = None
    itl_p90_s: float | None = None
    duration_s: float | None = None
    warming: bool = False
    stopping: bool = False
    """Nothing more is sent; what is in flight is waited for."""

    @property
    def requests_per_s(self) -> float | None:
        """Requests that have ended, over the time so far; None before the first."""
        return self.done / self.elapsed_s if self.done and self.elapsed_s > 0 else None

    @property
    def eta_s(self) -> float | None:
        """Seconds that are left at the pace so far; None when nothing tells."""
        if self.duration_s is not None:
            return max(0.0, self.duration_s - self.elapsed_s)
        if not self.planned or not self.done:
            return None
        return max(0.0, self.elapsed_s * (self.planned - self.done) / self.done)


@dataclass(frozen=True, slots=True)
class ProgressPart:
    """What one client process has seen since it last told: counts so far, and the new values."""

    sent: int
    done: int
    errors: int
    tokens: int
    in_flight: int
    live_sessions: int
    ttfts: tuple[float, ...]
    itls: tuple[float, ...]
    warming: bool = False


class Progress:
    """Counts what a replay does."""

    def __init__(self, planned: int | None, duration_s: float | None = None) -> None:
        self.planned = planned
        self.duration_s = duration_s
        self.sent = 0
        self.live_sessions = 0
        self.warming = False
        self.done = 0
        self.errors = 0
        self.tokens = 0
        self._ttfts: deque[float] = deque(maxlen=_RECENT)
        self._itls: deque[float] = deque(maxlen=_RECENT)

    def add(self, record: RequestRecord) -> None:
        """Take in a request that has ended."""
        self.done += 1
        self.errors += record.outcome not in ("ok", "cancelled")
        self.tokens += record.output_tokens or 0
        if record.outcome != "ok":
            return
        ttft, itl = ttft_s(record), tpot_s(record)
        if ttft is not None:
            self._ttfts.append(ttft)
        if itl is not None:
            self._itls.append(itl)

    def extend(self, ttfts: tuple[float, ...], itls: tuple[float, ...]) -> None:
        """Values that another process has seen."""
        self._ttfts.extend(ttfts)
        self._itls.extend(itls)

    def snapshot(self, elapsed_s: float, in_flight: int) -> ProgressSnapshot:
        """The numbers now."""
        return ProgressSnapshot(
            elapsed_s=elapsed_s,
            planned=self.planned,
            sent=self.sent,
            done=self.done,
            errors=self.errors,
            in_flight=in_flight,
            live_sessions=self.live_sessions,
            ttft_p50_s=percentile(self._ttfts, 50) if self._ttfts else None,
            tokens_per_s=self.tokens / elapsed_s if self.tokens and elapsed_s > 0 else None,
            ttft_p90_s=percentile(self._ttfts, 90) if self._ttfts else None,
            itl_p50_s=percentile(self._itls, 50) if self._itls else None,
            itl_p90_s=percentile(self._itls, 90) if self._itls else None,
            duration_s=self.duration_s,
            warming=self.warming,
        )

    def part(self, in_flight: int) -> ProgressPart:
        """What another process needs to count this one in; the values are told once."""
        ttfts, itls = tuple(self._ttfts), tuple(self._itls)
        self._ttfts.clear()
        self._itls.clear()
        counts = (self.sent, self.done, self.errors, self.tokens, in_flight, self.live_sessions)
        return ProgressPart(*counts, ttfts, itls, self.warming)


class MergedProgress:
    """Counts of several processes as one: sums of counts, and percentiles over the values of all."""

    def __init__(self, planned: int | None, duration_s: float | None) -> None:
        self._all = Progress(planned, duration_s)
        self._parts: dict[int, ProgressPart] = {}

    def take(self, process: int, part: ProgressPart) -> None:
        """News from one process."""
        self._parts[process] = part
        self._all.extend(part.ttfts, part.itls)

    def snapshot(self, elapsed_s: float) -> ProgressSnapshot:
        """The numbers of all now."""
        parts = self._parts.values()
        whole = self._all
        whole.sent = sum(part.sent for part in parts)
        whole.done = sum(part.done for part in parts)
        whole.errors = sum(part.errors for part in parts)
        whole.tokens = sum(part.tokens for part in parts)
        whole.live_sessions = sum(part.live_sessions for part in parts)
        whole.warming = any(part.warming for part in parts)
        return whole.snapshot(elapsed_s, sum(part.in_flight for part in parts))
