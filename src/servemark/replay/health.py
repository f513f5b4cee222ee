"""The instrument watches itself: how late its event loop runs, and how much processor it uses."""

from __future__ import annotations

import asyncio
import time
from array import array
from dataclasses import dataclass
from typing import Final

from servemark.metrics.percentiles import rank

LAG_INTERVAL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class LoopHealth:
    """The client's own state over a window. `lag_*_s`: how much later than asked the event loop woke a
    sleeper, from `lag_samples` samples; timers of the loop have a grain of 1 ms, so that an idle loop shows
    up to about 1 ms. `cpu_s`: user and system time of this process.
    """

    lag_p50_s: float | None
    lag_p99_s: float | None
    lag_max_s: float | None
    lag_samples: int
    cpu_s: float


class HealthWatch:
    """Samples from construction on while `run` is running."""

    def __init__(self, interval_s: float = LAG_INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._lags = array("d")
        self._cpu_start_s = time.process_time()

    async def run(self) -> None:
        """Sample until cancelled.

        Each sample begins where the one before ended, and the one that cancelling cuts short counts as far as
        it is late: a client that stood still is seen wherever that happened, at the very end too.
        """
        woke = time.monotonic()
        try:
            while True:
                await asyncio.sleep(self._interval_s)
                now = time.monotonic()
                self._lags.append(max(0.0, now - woke - self._interval_s))
                woke = now
        finally:
            late_s = time.monotonic() - woke - self._interval_s
            if late_s > 0:
                self._lags.append(late_s)

    def result(self) -> LoopHealth:
        """What was seen so far."""
        cpu_s = time.process_time() - self._cpu_start_s
        ordered = sorted(self._lags)
        if not ordered:
            return LoopHealth(None, None, None, 0, cpu_s)
        n = len(ordered)
        return LoopHealth(ordered[rank(n, 50)], ordered[rank(n, 99)], ordered[-1], n, cpu_s)
