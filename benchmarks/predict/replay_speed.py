"""How many requests a second one core simulates, over an unbounded cache and over one that is too small.

    python -m benchmarks.predict.replay_speed [--requests 90000] [--sessions 40] [--rounds 3]

A generated agentic trace (plans made once, sessions come again) in 16 to 256 lanes, with the idle caps of `agentx` and
without. `net` is the rate without making the plans, from the difference of two runs; CPU time of this process, the least of
some rounds, as other work on the machine slows them. Beside it, as a peer that says how fast the machine is just now:
pushes and pops of a heap of 100 entries a second, and how many of them a request costs. Exit code 1 when a net rate over the
unbounded cache is below 10^5, or one over a cache of 4 M tokens below 2 * 10^4.
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
WANTED, WANTED_CACHED = 1e5, 2e4


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


def net_rate(workload: Workload, rules: ReplayRules, cache: CacheConfig | None, rounds: int) -> float:
    """Requests a second beyond the first third, which makes the plans."""
    whole = rules.max_requests or 0
    few = replace(rules, max_requests=whole // 3)
    few_s = min(spent(workload, few, cache)[1] for _ in range(rounds))
    many_s = min(spent(workload, rules, cache)[1] for _ in range(rounds))
    return (whole - whole // 3) / (many_s - few_s)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and judge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=90_000)
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(argv)
    good = True
    with tempfile.TemporaryDirectory() as folder:
        lazy = made(Path(folder), sessions=args.sessions, seed=7)
        workload = replace(lazy, sessions=tuple(lazy.sessions))
        for name, lanes, cache, wanted in cases():
            rules = replace(
                rules_of(PROFILES["agentx"], lanes),
                duration_s=None,
                pressure_requests=0,
                max_requests=args.requests if cache is None else args.requests // 3,
            )
            if name == "plain":
                rules = replace(rules, idle_caps=PROFILES["plain"].idle_caps, start_share=None)
            net = net_rate(workload, rules, cache, args.rounds)
            heap = heap_rate()
            good &= net >= wanted
            print(
                f"{lanes:4} lanes, {name}: net {net:9,.0f} requests/s; heap {heap:,.0f}/s, {heap / net:,.0f} a request"
            )
    return 0 if good else 1


def cases() -> list[tuple[str, int, CacheConfig | None, float]]:
    """(rules, lanes, cache, the least rate)."""
    found: list[tuple[str, int, CacheConfig | None, float]] = [
        (name, lanes, None, WANTED)
        for name in ("idle caps, start points", "plain")
        for lanes in (16, 64, 256)
    ]
    for blocks in (16, 64, 1024):
        config = CacheConfig(block_tokens=blocks, gpu_tokens=4_000_000, token_bytes=13_824.0)
        found.append((f"4 M tokens in blocks of {blocks}", 16, config, WANTED_CACHED))
    return found


if __name__ == "__main__":
    raise SystemExit(main())
