"""Running numbers of a replay, for whoever draws them. They are for watching only: results come from the
records."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from servemark.metrics.percentiles import percentile
from servemark.metrics.request import ttft_s
from servemark.replay.record import RequestRecord

PROGRESS_INTERVAL_S: Final = 0.4
_RECENT: Final = 500


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """The state at one moment. `sent` includes requests in flight; `errors` are all ends but `ok` and
    `cancelled`.

    `ttft_p50_s` is over the last 500 good replies; `tokens_per_s` is the output tokens of ended requests
    over the whole time so far. Both are None before there is anything to tell.
    """

    elapsed_s: float
    planned: int
    sent: int
    done: int
    errors: int
    in_flight: int
    live_sessions: int
    ttft_p50_s: float | None
    tokens_per_s: float | None


class Progress:
    """Counts what a loop does."""

    def __init__(self, planned: int) -> None:
        self.planned = planned
        self.sent = 0
        self.live_sessions = 0
        self._done = 0
        self._errors = 0
        self._tokens = 0
        self._ttfts: deque[float] = deque(maxlen=_RECENT)

    def add(self, record: RequestRecord) -> None:
        """Take in a request that has ended."""
        self._done += 1
        self._errors += record.outcome not in ("ok", "cancelled")
        self._tokens += record.output_tokens or 0
        ttft = ttft_s(record)
        if ttft is not None and record.outcome == "ok":
            self._ttfts.append(ttft)

    def snapshot(self, elapsed_s: float, in_flight: int) -> ProgressSnapshot:
        """The numbers now."""
        return ProgressSnapshot(
            elapsed_s=elapsed_s,
            planned=self.planned,
            sent=self.sent,
            done=self._done,
            errors=self._errors,
            in_flight=in_flight,
            live_sessions=self.live_sessions,
            ttft_p50_s=percentile(self._ttfts, 50) if self._ttfts else None,
            tokens_per_s=self._tokens / elapsed_s if self._tokens and elapsed_s > 0 else None,
        )
