"""What the Slurm launcher itself costs, on the four-node test cluster: everything but the wait for the allocation.

Usage (root, Debian's slurmctld slurmd slurm-client munge): PYTHONPATH=src python benchmarks/launch/measure_slurm.py [ROUNDS]

A run here is four trivial steps on four nodes, started at once, waited for, and released. Seconds, medians.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch.allocation import AllocationRequest, NodeGroup, StepRequest
from servemark.launch.slurm import SlurmLauncher

SCRIPT = Path(__file__).resolve().parents[2] / "tests" / "slurm" / "local-slurm"


def one_run(launcher: SlurmLauncher, folder: Path, number: int) -> dict[str, float]:
    """Seconds of each part of one run."""
    begun = time.perf_counter()
    allocation = launcher.allocate(AllocationRequest(f"bench-{number}", (NodeGroup("w", 4),), 600, 60.0))
    allocated = time.perf_counter()
    requests = [
        StepRequest(f"s{i}", node, ("true",), folder / f"{number}-{i}.log", folder)
        for i, node in enumerate(allocation.nodes)
    ]
    with ThreadPoolExecutor(4) as pool:
        steps = list(pool.map(allocation.start, requests))
    started = time.perf_counter()
    for step in steps:
        assert step.wait(30) is not None
    ended = time.perf_counter()
    allocation.release()
    released = time.perf_counter()
    return {
        "allocation (Slurm's)": allocated - begun,
        "4 steps started": started - allocated,
        "waited for": ended - started,
        "stopped, swept, released": released - ended,
        "launcher overhead": released - allocated,
    }


def main() -> None:
    """Print the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    root = Path(tempfile.mkdtemp(prefix="slurm-bench-", dir="/var/tmp"))
    env = os.environ | {"LS_DIR": str(root / "cluster"), "LS_ID": "199"}
    os.environ["SLURM_CONF"] = str(root / "cluster" / "etc" / "slurm.conf")
    devnull = subprocess.DEVNULL
    try:
        subprocess.run(["bash", str(SCRIPT), "up"], env=env, check=True, stdout=devnull, stderr=devnull)
        (root / "state").mkdir()
        launcher = SlurmLauncher(LaunchCluster("bench", "slurm", partition="batch"), root / "state")
        runs = [one_run(launcher, root, number) for number in range(rounds)]
    finally:
        subprocess.run(["bash", str(SCRIPT), "down"], env=env, check=True, stdout=devnull, stderr=devnull)
        shutil.rmtree(root)
    print(f"| part | median s of {rounds} | worst s |\n|---|---|---|")
    for part in runs[0]:
        values = [run[part] for run in runs]
        print(f"| {part} | {statistics.median(values):.2f} | {max(values):.2f} |")


if __name__ == "__main__":
    main()
