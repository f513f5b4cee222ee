"""How many requests a second one core simulates, and what a simulated cache costs beside an unbounded one.

    python -m benchmarks.predict.replay_speed [--requests 300000] [--sessions 40]

A generated agentic trace (plans made once, sessions come again) in 16 to 256 lanes with the idle caps of `agentx`. `net` is
the rate without making the plans, from the difference of two runs; CPU time of this process. Beside it, as a peer that says
how fast the machine is just now: pushes and pops of a heap of 100 entries a second. Exit code 1 when no
net rate reaches 10^5.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from pathlib import Path

from benchmarks.predict.replay_truth import made

from servemark.predict.assumed_times import AssumedTimes
from servemark.predict.cache import build
from servemark.predict.cache_config import CacheConfig
from servemark.predict.closed_loop import simulate
from servemark.predict.sim_rules import Deployment, ReplayRules, rules_of
from servemark.replay.profiles import PROFILES
from servemark.traces.types import Workload

TIMES = AssumedTimes(
    overhead_s=0.004, weights_s=0.004, stream_s=1e-5, context_s_per_token=2e-9, prefill_s_per_token=4e-6
)
WANTED = 1e5


def spent(workload: Workload, rules: ReplayRules, cache: CacheConfig | None = None) -> tuple[int, float]:
    """(requests, CPU seconds) of one simulation."""
    begun = time.process_time()
    run = simulate(
        workload, None if cache is None else build(cache), TIMES, rules, Deployment(gpus=8, max_running=512)
    )
    return run.ok, time.process_time() - begun


def heap_rate() -> float:
    """Pushes and pops a second of a small heap."""
    heap = [(i * 0.618 % 1, i) for i in range(100)]
    heapify(heap)
    begun = time.process_time()
    for number in range(200_000):
        at, _ = heappop(heap)
        heappush(heap, (at + 0.7, number))
    return 400_000 / (time.process_time() - begun)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=300_000)
    parser.add_argument("--sessions", type=int, default=40)
    args = parser.parse_args(argv)
    best = 0.0
    with tempfile.TemporaryDirectory() as folder:
        lazy = made(Path(folder), sessions=args.sessions, seed=7)
        workload = replace(lazy, sessions=tuple(lazy.sessions))
        for caps in (True, False):
            for lanes in (16, 64, 256):
                rules = replace(
                    rules_of(PROFILES["agentx"], lanes),
                    duration_s=None,
                    pressure_requests=0,
                    max_requests=args.requests,
                )
                if not caps:
                    rules = replace(rules, idle_caps=PROFILES["plain"].idle_caps, start_share=None)
                few, few_s = spent(workload, replace(rules, max_requests=args.requests // 3))
                many, many_s = spent(workload, rules)
                net = (many - few) / (many_s - few_s)
                best = max(best, net)
                name = "idle caps, start points" if caps else "plain"
                print(
                    f"{lanes:4} lanes, {name}: net {net:9,.0f} requests/s, with plans {many / many_s:9,.0f}; "
                    f"heap {heap_rate():,.0f}/s"
                )
        for blocks in (64, 1024):
            config = CacheConfig(block_tokens=blocks, gpu_tokens=4_000_000, token_bytes=13_824.0)
            rules = replace(
                rules_of(PROFILES["agentx"], 16), duration_s=None, pressure_requests=0, max_requests=3000
            )
            done, took_s = spent(workload, rules, config)
            print(
                f"  16 lanes over a cache of 4 M tokens in blocks of {blocks}: {done / took_s:,.0f} requests/s"
            )
    return 0 if best >= WANTED else 1


if __name__ == "__main__":
    raise SystemExit(main())
