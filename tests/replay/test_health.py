"""The watch over the client's own loop, with a loop that really stood still."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

from servemark.replay.health import HealthWatch

WATCHED = """
import asyncio
from servemark.replay.health import HealthWatch

async def main():
    watch = HealthWatch(interval_s=0.005)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0.2)
    print("up", flush=True)
    await asyncio.sleep(3)
    task.cancel()
    seen = watch.result()
    print(seen.lag_p99_s, seen.lag_max_s, flush=True)

asyncio.run(main())
"""


def test_a_stopped_process_shows_in_the_largest_lag_alone() -> None:
    """SIGSTOP for 1.2 s among 3.2 s: one of some hundreds of samples, so that the p99 knows nothing of it."""
    with subprocess.Popen([sys.executable, "-c", WATCHED], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(1.2)
        os.kill(child.pid, signal.SIGCONT)
        p99, largest = map(float, child.stdout.readline().split())
    assert 1.0 < largest < 2.5
    assert p99 < 0.5


def test_a_pause_at_the_very_end_is_seen() -> None:
    """The loop stands still for 0.3 s and the watch is cancelled before it ever wakes: late by 0.28 s at
    least."""

    async def main() -> float | None:
        watch = HealthWatch()
        task = asyncio.create_task(watch.run())
        await asyncio.sleep(0.05)
        time.sleep(0.3)  # noqa: ASYNC251 - standing still is what is tested
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return watch.result().lag_max_s

    largest = asyncio.run(main())
    assert largest is not None
    assert largest > 0.25


def test_a_watch_that_is_not_late_adds_no_sample() -> None:
    """Cancelled in the midst of a sleep: the cut sample says nothing."""

    async def main() -> int:
        watch = HealthWatch(interval_s=30.0)
        task = asyncio.create_task(watch.run())
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return watch.result().lag_samples

    assert asyncio.run(main()) == 0
