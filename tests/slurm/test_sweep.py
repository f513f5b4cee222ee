"""Sweeps on the real cluster: leftovers of a dead run are ended by id; jobs outlive the sweep's launcher."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.runs.test_disaggregated import make
from tests.slurm.conftest import LocalSlurm, eventually
from tests.slurm.test_run import clean, home

from servemark.base.home import Home
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch.allocation import AllocationRequest, NodeGroup
from servemark.launch.slurm import SlurmLauncher
from servemark.runs.sweep_runner import SLURM_STATE, RunVerb, Work
from servemark.store.sweep_rows import PointState, SweepPoint

__all__ = ["home"]  # the fixture of whole runs

pytestmark = pytest.mark.slurm
POINT = SweepPoint(
    1, 1, "p", "s", "a/t@1", "/suite", "a", "t", 1, "here", 8, False, None, None, PointState.RUNNING, 1, 3
)  # fmt: skip


@pytest.mark.parametrize("state", [SLURM_STATE, "elsewhere"])
def test_leftovers_of_a_dead_run(slurm: LocalSlurm, cluster: LaunchCluster, state: str) -> None:
    """The job is noted where its files are known, and is gone in either case; another run's job is left alone."""
    home = Home(slurm.shared / f"home-{state}")
    launcher = SlurmLauncher(cluster, home.root / state, silence_s=20.0)
    mine = launcher.allocate(AllocationRequest("20260101-line-1", (NodeGroup("w", 1),), 600, 30.0))
    other = launcher.allocate(AllocationRequest("20260101-line-11", (NodeGroup("w", 1),), 600, 30.0))
    runner = RunVerb(home, clusters={"here": cluster})
    work = Work("20260101-line-1", (POINT,), Path("/nowhere"))
    try:
        assert runner.jobs(work) == ((mine.id,) if state == SLURM_STATE else ())
        for _ in range(50):
            held = runner.leftovers(work)
            if not held:
                break
        assert held == []
        assert launcher.leftovers("20260101-line-11") == [f"job {other.id} RUNNING {other.nodes[0].name}"]
    finally:
        mine.release()
        other.release()


def test_two_jobs_outlive_their_sweeps_launcher(slurm: LocalSlurm, home: Path) -> None:
    """Two points as two batch jobs at once. The sweep is killed while both run; resumed, it takes their results.

    Each point has one attempt and one result, and nothing is left on the cluster.
    """
    suite = make(home / "suite", sessions=6, out=8)

    def sweep(*args: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "servemark", "sweep", *args, "--home", str(home)]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    first = sweep(
        "start", f"{suite}:pd", "--by-point", "--max-parallel", "2", "--cluster", "here", "--no-evals"
    )
    assert eventually(lambda: len(slurm.ask("squeue", "-h", "-t", "R", "-o", "%A").split()) == 2, 60)
    first.kill()
    first.communicate()
    again = sweep("resume")
    out, err = again.communicate(timeout=180)
    assert again.returncode == 0, (out, err)
    status = sweep("status", "--json")
    body = json.loads(status.communicate(timeout=30)[0])
    assert [(point["state"], point["attempts"]) for point in body["points"]] == [("done", 1), ("done", 1)], (
        body
    )
    rows = [json.loads(path.read_text()) for path in (home / "runs").glob("*/result.json")]
    assert sorted(row["concurrency"] for row in rows) == [1, 2]
    kept = [json.loads(path.read_text()) for path in (home / "runs").glob("*/allocation.json")]
    assert len({each["allocations"][0]["id"] for each in kept}) == 2 and all(
        len(k["allocations"]) == 1 for k in kept
    )
    clean(slurm, home)
