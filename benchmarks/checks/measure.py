"""CPU time and memory of `servemark check` in fresh processes, and of a check after an edit.

    python benchmarks/checks/measure.py SUITE [--arm KEY] [--rounds 7]

Prints medians, and the least CPU time: the machine may be shared. CPU time is user + system of the child; wall time
depends on what else the machine does.
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
from collections.abc import Callable
from pathlib import Path

from servemark.checks.check import Wishes
from servemark.checks.watch import Watcher

MASTER = "configs/nvidia-master.yaml"
RECIPES = "benchmarks/multi_node/srt-slurm-recipes/vllm/**/*.yaml"
CLUSTERS = "configs/runners.yaml"
CHANGELOG = "perf-changelog.yaml"


def _in_the_middle(text: str, number: int) -> str:
    lines = text.split("\n")
    first = next(n for n in range(len(lines) // 2, len(lines)) if lines[n] and not lines[n][0].isspace())
    return "\n".join([*lines[:first], f"# {number}", *lines[first:]])


def child(arguments: list[str]) -> tuple[float, float]:
    """(CPU seconds, wall seconds) of one run of the command line."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    command = [sys.executable, "-m", "servemark", "check", *arguments]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False, env=os.environ)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, wall


EDITS: dict[str, tuple[str, Callable[[str, int], str]]] = {
    "a comment at the end of a master": (MASTER, lambda text, n: f"{text}# {n}\n"),
    "a line at the top of a master": (MASTER, lambda text, n: f"# {n}\n{text}"),
    "a line in the middle of a master": (MASTER, _in_the_middle),
    "another value in one arm": (MASTER, lambda text, n: text.replace("osl: 1024", f"osl: {1024 + n}", 1)),
    "a comment in a recipe": (RECIPES, lambda text, n: f"{text}# {n}\n"),
    "a line at the top of the clusters file": (CLUSTERS, lambda text, n: f"# {n}\n{text}"),
    "a line at the end of the changelog": (CHANGELOG, lambda text, n: f"{text}# {n}\n"),
}
"""What is edited under watch: (file, text and number -> new text)."""


def watched(suite: Path, rounds: int, edit: str) -> tuple[float, float]:
    """(median, most) CPU seconds of a check after an edit of a copy of the suite; the first edit counts too."""
    name, change = EDITS[edit]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "suite"
        shutil.copytree(suite, copy, copy_function=shutil.copyfile)
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        time.sleep(0.1)
        watcher = Watcher(copy, Wishes())
        watcher.check()
        target = min(copy.glob(name))
        taken = []
        for number in range(1, rounds + 1):
            target.write_text(change(target.read_text(encoding="utf-8"), number), encoding="utf-8")
            start = time.process_time()
            watcher.check()
            taken.append(time.process_time() - start)
        return statistics.median(taken), max(taken)


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
        least = min(cpu for cpu, _ in runs)
        sys.stdout.write(f"{said}: {cpu:.2f} s CPU (least {least:.2f}), {wall:.2f} s wall\n")
    sys.stdout.write(f"peak: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB\n")
    for edit in EDITS:
        median, most = watched(asked.suite, asked.rounds, edit)
        sys.stdout.write(f"after {edit}: {median:.3f} s CPU (most {most:.3f})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
