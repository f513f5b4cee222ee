"""A sweep whose run process is dead finds the run's batch job by the line's id and ends it before it tries again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from servemark.base.home import Home
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch.allocation import AllocationRequest, NodeGroup
from servemark.launch.slurm import SlurmLauncher
from servemark.runs.sweep_runner import SLURM_STATE, RunVerb, Work
from servemark.store.sweep_rows import PointState, SweepPoint

if TYPE_CHECKING:
    from tests.slurm.conftest import LocalSlurm

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
