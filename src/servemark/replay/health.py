"""The instrument watches itself: how late its event loop runs, how much processor it uses, and what the
kernel threw away before this client could read it."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from servemark.metrics.percentiles import rank

LAG_INTERVAL_S: Final = 0.02
CPU_INTERVAL_S: Final = 1.0
NETSTAT: Final = Path("/proc/net/netstat")
DROP_COUNTERS: Final = ("TCPRcvQDrop", "PruneCalled", "RcvPruned", "OfoPruned", "TCPBacklogDrop")
"""Counters of the kernel that rise when received bytes were dropped for want of buffer space. They count the
whole network namespace, not this process alone."""


@dataclass(frozen=True, slots=True)
class LoopHealth:
    """The client's own state over a window. `lag_*_s`: how much later than asked the event loop woke a
    sleeper, from `lag_samples` samples; timers of the loop have a grain of 1 ms, so that an idle loop shows
    up to about 1 ms. `cpu_s`: user and system time of the client's processes. `cpu_share_max`: the largest
    share of one core that any process used within a second. `kernel_drops`: rise of `DROP_COUNTERS`; None
    where they cannot be read.
    """

    lag_p50_s: float | None
    lag_p99_s: float | None
    lag_max_s: float | None
    lag_samples: int
    cpu_s: float
    cpu_share_max: float | None = None
    kernel_drops: Mapping[str, int] | None = None
    lags_s: Sequence[float] = field(default=(), repr=False)

    @classmethod
    def of(
        cls,
        lags_s: Sequence[float],
        cpu_s: float,
        cpu_share_max: float | None = None,
        kernel_drops: Mapping[str, int] | None = None,
    ) -> LoopHealth:
        """Summarise samples, of one process or the union of several."""
        ordered = array("d", sorted(lags_s))
        n = len(ordered)
        if not n:
            return cls(None, None, None, 0, cpu_s, cpu_share_max, kernel_drops)
        lags = (ordered[rank(n, 50)], ordered[rank(n, 99)], ordered[-1])
        return cls(*lags, n, cpu_s, cpu_share_max, kernel_drops, ordered)


def kernel_drops(path: Path = NETSTAT) -> dict[str, int] | None:
    """`DROP_COUNTERS` as they stand; None where the system does not tell."""
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for names, values in pairwise(lines):
        if names.startswith("TcpExt:") and values.startswith("TcpExt:"):
            found = dict(zip(names.split()[1:], values.split()[1:], strict=False))
            return {name: int(found[name]) for name in DROP_COUNTERS if found.get(name, "").isdigit()}
    return None


class HealthWatch:
    """Samples from construction on while `run` is running."""

    def __init__(self, interval_s: float = LAG_INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._lags = array("d")
        self._cpu_start_s = self._cpu_last_s = time.process_time()
        self._wall_last_s = time.monotonic()
        self._cpu_share_max: float | None = None
        self._drops = kernel_drops()

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
                if now - self._wall_last_s >= CPU_INTERVAL_S:
                    self._look_at_cpu(now)
        finally:
            late_s = time.monotonic() - woke - self._interval_s
            if late_s > 0:
                self._lags.append(late_s)

    def result(self) -> LoopHealth:
        """What was seen so far."""
        cpu_s = time.process_time() - self._cpu_start_s
        return LoopHealth.of(self._lags, cpu_s, self._cpu_share_max, self._risen())

    def _look_at_cpu(self, now: float) -> None:
        cpu = time.process_time()
        share = (cpu - self._cpu_last_s) / (now - self._wall_last_s)
        self._cpu_share_max = max(share, self._cpu_share_max or 0.0)
        self._cpu_last_s, self._wall_last_s = cpu, now

    def _risen(self) -> dict[str, int] | None:
        now = kernel_drops()
        if now is None or self._drops is None:
            return None
        return {name: now[name] - self._drops[name] for name in now if name in self._drops}
