"""Block look-ups a second of processor time of the cache simulator, beside a plain ordered dictionary in the same run.

    python benchmarks/predict/cache_speed.py [--sessions 24] [--rounds 3] [--json]

Sessions of the seeded generator in blocks of 16 tokens, a pool of two million tokens. Prompts are cut beforehand, so the
cache alone is timed; "whole" is a simulation with everything: reading, cutting, clock, cache, stack distances. The peer
keeps the same blocks in an OrderedDict, touched one by one. The budget is a million look-ups a second for the cache and
for the whole; exit code 1 when the median misses it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import OrderedDict
from pathlib import Path

from servemark.predict.blocks import requests_of
from servemark.predict.cache import CacheConfig, build
from servemark.predict.session_clock import Pacing
from servemark.predict.simulate import Source, simulate
from servemark.predict.types import CacheRequest
from servemark.traces.agentic_tree import TreeRecipe
from servemark.traces.open import TraceOptions, open_workload
from servemark.traces.write import write_made

BUDGET = 1e6
BLOCK = 16
POOL = 2_000_000


def cache_rate(requests: list[CacheRequest], policy: str) -> tuple[float, float]:
    """(look-ups a second, hit rate) of the cache alone."""
    cache = build(CacheConfig(policy=policy, block_tokens=BLOCK, gpu_tokens=POOL))  # type: ignore[arg-type]
    start = time.process_time()
    for number, request in enumerate(requests):
        cache.begin(request, float(number))
        cache.end(request, float(number))
    took = time.process_time() - start
    return cache.counts.looked_up_blocks / took, cache.counts.gpu_tokens / cache.counts.prompt_tokens


def peer_rate(requests: list[CacheRequest]) -> float:
    """Look-ups a second of an OrderedDict of blocks."""
    held: OrderedDict[int, None] = OrderedDict()
    looked = 0
    start = time.process_time()
    for request in requests:
        for block in request.blocks:
            if block in held:
                held.move_to_end(block)
            else:
                held[block] = None
        looked += len(request.blocks)
        while len(held) > POOL // BLOCK:
            held.popitem(last=False)
    return looked / (time.process_time() - start)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agents.jsonl"
        write_made(TreeRecipe(asked.sessions), path, "weka")
        workload = open_workload(path, TraceOptions(think_cap_s=60.0))
        whole = []
        for _ in range(asked.rounds):
            start = time.process_time()
            report = simulate(Source(workload), CacheConfig(block_tokens=BLOCK, gpu_tokens=POOL), Pacing(8))
            whole.append(report.counts.looked_up_blocks / (time.process_time() - start))
        requests = list(
            requests_of(open_workload(path, TraceOptions(sessions=max(1, asked.sessions // 3))), BLOCK)
        )
    rates = {
        policy: [cache_rate(requests, policy)[0] for _ in range(asked.rounds)]
        for policy in ("vllm", "sglang")
    }
    peer = statistics.median(peer_rate(requests) for _ in range(asked.rounds))
    found = {f"{policy}_lookups_per_s": statistics.median(rate) for policy, rate in rates.items()}
    found["whole_lookups_per_s"] = statistics.median(whole)
    found["peer_lookups_per_s"] = peer
    found["vllm_over_peer"] = found["vllm_lookups_per_s"] / peer
    good = min(found["vllm_lookups_per_s"], found["whole_lookups_per_s"]) >= BUDGET
    if asked.json:
        print(json.dumps({**found, "budget": BUDGET, "within": good}))
    else:
        for name, value in found.items():
            print(f"{name:>24} {value:14,.1f}")
        print(f"{'budget':>24} {BUDGET:14,.0f}  {'kept' if good else 'MISSED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
