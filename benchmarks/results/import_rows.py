"""Rows of published results mapped to points a second, against the JSON decoder of the standard library on the same bytes.

    python benchmarks/results/import_rows.py [--rows 20000] [--file benchmarks.json]

Rows are shaped like real ones (an aggregated and a disaggregated configuration, 12 or 27 latencies) and made from a seed;
`--file` takes a real list of rows and repeats it. Seconds are of processor time, the best of three passes; the peer in the
same run says how fast the machine is.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

SEED = 1


def make(rows: int) -> list[dict[str, object]]:
    """Rows as the public API gives them."""
    rng = random.Random(SEED)
    made: list[dict[str, object]] = []
    for number in range(rows):
        split = number % 3 == 0
        statistics = ["median", "p99"] if number % 4 else ["mean", "median", "p90", "p99", "p99.9", "std"]
        metrics: dict[str, float] = {
            f"{statistic}_{name}": rng.uniform(0.01, 20)
            for name in ("ttft", "tpot", "itl", "e2el", "intvty")
            for statistic in statistics
        }
        out = rng.uniform(10, 900)
        into = out * 8 if split else out
        total = (into * 4 + out * 32) / 36 if split else into + out
        metrics |= {"tput_per_gpu": total, "input_tput_per_gpu": into, "output_tput_per_gpu": out}
        sides = {
            f"{role}_{key}": value
            for role, workers in (("prefill", 1), ("decode", 4))
            for key, value in {
                "tp": 4,
                "ep": 1,
                "dp_attention": False,
                "num_workers": workers if split else 0,
            }.items()
        }
        made.append(
            {
                "hardware": ("b200", "h200", "gb200", "mi355x")[number // 40 % 4],
                "framework": "dynamo-trt" if split else "sglang", "model": "dsr1", "precision": "fp8",
                "spec_method": "none", "disagg": split, "is_multinode": split, **sides,
                "num_prefill_gpu": 4, "num_decode_gpu": 32 if split else 4, "isl": 1024, "osl": 1024,
                "conc": 2 ** (number % 10), "image": f"example/engine:v{number // 100 % 40}", "metrics": metrics,
                "workers": None, "date": "2026-06-11", "run_url": f"https://example.org/actions/runs/{number // 60}",
            }
        )  # fmt: skip
    return made


def best(work: Callable[[], int]) -> tuple[int, float]:
    """(rows, least processor seconds of three passes)."""
    least = float("inf")
    rows = 0
    for _ in range(3):
        begun = time.process_time()
        rows = work()
        least = min(least, time.process_time() - begun)
    return rows, least


def main() -> None:
    """Print one line of JSON."""
    from servemark.results.importers.base import HEAD_BYTES, Given  # noqa: PLC0415 - the import is not measured
    from servemark.results.importers.inferencex import read  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--file", type=Path)
    asked = parser.parse_args()
    if asked.file is None:
        rows = make(asked.rows)
    else:
        real = json.loads(asked.file.read_bytes())
        rows = (real * (asked.rows // len(real) + 1))[: asked.rows]
    data = json.dumps(rows).encode()
    del rows
    given = Given("rows.json", len(data), data[:HEAD_BYTES], lambda: io.BytesIO(data))
    statuses: dict[str, int] = {}

    def mapped() -> int:
        statuses.clear()
        for row in read(given):
            statuses[row.status] = statuses.get(row.status, 0) + 1
        return sum(statuses.values())

    count, ours = best(mapped)
    _, peer = best(lambda: len(json.loads(data)))
    result = {
        "rows": count, "statuses": statuses, "bytes": len(data), "rows_per_s": round(count / ours),
        "json_loads_rows_per_s": round(count / peer), "times_json_loads": round(ours / peer, 2),
    }  # fmt: skip
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
