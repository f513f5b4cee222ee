"""CPU time and memory of `servemark check` in fresh processes, and of a check after an edit.

    python benchmarks/checks/measure.py SUITE [--arm KEY] [--rounds 7]

Prints medians. CPU time is user + system of the child; wall time depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from servemark.checks.check import Wishes
from servemark.checks.watch import Watcher


def child(arguments: list[str]) -> tuple[float, float]:
    """(CPU seconds, wall seconds) of one run of the command line."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    command = [sys.executable, "-m", "servemark", "check", *arguments]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False, env=os.environ)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, wall


def watched(suite: Path, rounds: int, name: str) -> float:
    """Median CPU seconds of a check after a comment was added to one file of a copy of the suite."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "suite"
        shutil.copytree(suite, copy)
        watcher = Watcher(copy, Wishes())
        watcher.check()
        target = next(iter(sorted(copy.glob(name))))
        taken = []
        for number in range(rounds):
            target.write_text(target.read_text(encoding="utf-8") + f"# {number}\n", encoding="utf-8")
            start = time.process_time()
            watcher.check()
            taken.append(time.process_time() - start)
        return statistics.median(taken)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", type=Path)
    parser.add_argument("--arm", default="*")
    parser.add_argument("--rounds", type=int, default=7)
    asked = parser.parse_args()
    for said, arguments in (
        ("whole suite", [str(asked.suite)]),
        ("one arm", [str(asked.suite), "--arm", asked.arm]),
    ):
        runs = [child(arguments) for _ in range(asked.rounds)]
        cpu, wall = (statistics.median(values) for values in zip(*runs, strict=True))
        sys.stdout.write(f"{said}: {cpu:.2f} s CPU, {wall:.2f} s wall\n")
    sys.stdout.write(f"peak: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB\n")
    for name in ("configs/nvidia-master.yaml", "benchmarks/multi_node/srt-slurm-recipes/vllm/**/*.yaml"):
        sys.stdout.write(f"after an edit of {name}: {watched(asked.suite, asked.rounds, name):.3f} s CPU\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
