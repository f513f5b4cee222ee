"""How long the tool itself takes: `--version`, `--help`, and what `run` adds to engine start, replay and evals.

Usage: python benchmarks/startup.py [--runs N] [--json]. Byte code must be compiled (`scripts/install` does it). Wall
times of whole processes; medians over N runs. `run overhead` is the wall time of `servemark run quickstart@1 --no-evals`
less its phases ready, warm-up and replay, so it holds reading, manifests, launch, collecting, store and report.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def wall_s(*args: str) -> float:
    """Seconds of one whole process."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-m", "servemark", *args], check=True, capture_output=True)
    return time.perf_counter() - begun


def run_overhead_s() -> float:
    """Seconds that one run takes beside its engine start, warm-up and replay."""
    with tempfile.TemporaryDirectory() as home:
        total = wall_s("run", "quickstart@1", "--no-evals", "--home", home)
        row = json.loads(next(Path(home).glob("runs/*/result.json")).read_text(encoding="utf-8"))
        return total - sum(float(row["phases_s"][name]) for name in ("ready", "warmup", "replay"))


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = {
        "python_start_s": statistics.median(bare_s() for _ in range(options.runs)),
        "version_s": statistics.median(wall_s("--version") for _ in range(options.runs)),
        "help_s": statistics.median(wall_s("--help") for _ in range(options.runs)),
        "run_overhead_s": statistics.median(run_overhead_s() for _ in range(max(1, options.runs // 5))),
    }
    if options.json:
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        for name, value in figures.items():
            sys.stdout.write(f"{name:<16} {value:.3f}\n")
    return 0


def bare_s() -> float:
    """An interpreter that does nothing: what no tool in Python can beat."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
