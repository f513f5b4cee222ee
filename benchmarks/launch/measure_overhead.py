"""What servemark itself adds to a run: everything but allocation, engine start and what is measured.

Usage: PYTHONPATH=src python benchmarks/launch/measure_overhead.py [ROUNDS] [local] [slurm]

Runs the shipped prefill/decode pair with one session and no accuracy task, on this host and on the four-node test
cluster (root, Debian's slurmctld slurmd slurm-client munge). Overhead = wall time of the process - allocate - services
- workers - router - warmup - replay: Python's start, preflight, health, collect, stop, the store, the closing words.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "slurm" / "local-slurm"
ARM = "smollm2-q4-cpu-llamacpp-agentic-mooncake-disagg-1p1d"
NOT_OURS = ("allocate", "services", "workers", "router", "warmup", "replay", "evals")
CLUSTERS = "launch:\n  here: {launcher: slurm, partition: batch, scratch: /dev/shm, gpus-per-node: 8}\n"


def one_run(suite: Path, home: Path, cluster: str) -> dict[str, float]:
    """Seconds of one run: overhead, and the phases that are part of it."""
    words = [
        "run",
        f"{suite}:{ARM}@1",
        "--cluster",
        cluster,
        "--no-evals",
        "--no-report",
        "--home",
        str(home),
    ]
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "servemark", *words],
        check=True,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    wall = time.perf_counter() - begun
    newest = max((home / "runs").iterdir())
    phases = json.loads((newest / "result.json").read_text(encoding="utf-8"))["phases_s"]
    ours = {name: seconds for name, seconds in phases.items() if name not in NOT_OURS}
    other = wall - sum(phases.values())
    return {
        "launcher overhead": sum(ours.values()) + other,
        **ours,
        "start of Python, row, closing words": other,
    }


def measure(cluster: str, rounds: int) -> None:
    """Print one table."""
    root = Path(tempfile.mkdtemp(prefix="overhead-", dir="/var/tmp"))
    env = os.environ | {"LS_DIR": str(root / "cluster"), "LS_ID": "198"}
    quiet = subprocess.DEVNULL
    suite, home = root / "disaggregated-cpu", root / "home"
    shutil.copytree(ROOT / "suites" / "disaggregated-cpu", suite)
    work = suite / "workloads" / "agentic-small.yaml"
    work.write_text(work.read_text(encoding="utf-8").replace("sessions: 6", "sessions: 1"), encoding="utf-8")
    home.mkdir()
    try:
        if cluster != "local":
            os.environ["SLURM_CONF"] = str(root / "cluster" / "etc" / "slurm.conf")
            (home / "clusters.yaml").write_text(CLUSTERS, encoding="utf-8")
            subprocess.run(["bash", str(SCRIPT), "up"], env=env, check=True, stdout=quiet, stderr=quiet)
        runs = [one_run(suite, home, cluster) for _ in range(rounds)]
    finally:
        if cluster != "local":
            subprocess.run(["bash", str(SCRIPT), "down"], env=env, check=False, stdout=quiet, stderr=quiet)
        shutil.rmtree(root)
    print(f"\n| {cluster} | median s of {rounds} | worst s |\n|---|---|---|")
    for part in runs[0]:
        values = [run.get(part, 0.0) for run in runs]
        print(f"| {part} | {statistics.median(values):.2f} | {max(values):.2f} |")


def main() -> None:
    """Both, or those that are named."""
    rounds = next((int(word) for word in sys.argv[1:] if word.isdigit()), 5)
    named = [word for word in sys.argv[1:] if not word.isdigit()] or ["local", "slurm"]
    for one in named:
        measure("local" if one == "local" else "here", rounds)


if __name__ == "__main__":
    main()
