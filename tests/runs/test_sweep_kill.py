"""A sweep whose process is killed (SIGKILL) again and again, at random instants: every point is run exactly once."""

from __future__ import annotations

import os
import random
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

from servemark.base.home import Home
from servemark.store.sweep_rows import AttemptState, PointState, SweepState
from servemark.store.sweeps import SweepStore

HELPER = Path(__file__).with_name("sweep_commands.py")
MADE = runpy.run_path(str(HELPER))
KILLS = 40
POINTS = 300
"""With 0.03 s each and three at once, no machine is done before the last kill: 40 x 0.06 s x 100 points/s = 240."""


def test_killed_forty_times_and_every_point_is_run_once(tmp_path: Path) -> None:
    """Each command counts its beginnings and its ends in files of its own; both must be one for every point."""
    random.seed(20261130)
    sweep = MADE["make_sweep"](tmp_path, ["tick"] * POINTS, max_parallel=3)
    server = subprocess.Popen(
        [sys.executable, str(HELPER), str(tmp_path), sweep.sweep_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None and server.stdout is not None
    kills = 0
    try:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            server.stdin.write("go\n")
            server.stdin.flush()
            pid = int(server.stdout.readline())
            if kills < KILLS:
                time.sleep(random.uniform(0.0, 0.12))
                os.kill(pid, signal.SIGKILL)
                kills += 1
            assert server.stdout.readline() == "ended\n"
            with SweepStore.open(Home(tmp_path).sweeps) as store:
                found = store.sweep(sweep.sweep_id)
            if found is not None and found.state is not SweepState.RUNNING:
                break
        assert found is not None and found.state is SweepState.DONE
        assert kills == KILLS
    finally:
        server.stdin.close()
        server.kill()
        server.wait()
        server.stdout.close()
    for number in range(1, POINTS + 1):
        for word in ("began", "finished"):
            lines = (tmp_path / f"{word}-{number}").read_text().split()
            assert len(lines) == 1, f"point {number} {word} {len(lines)} times"
    with SweepStore.open(Home(tmp_path).sweeps) as store:
        points, attempts = store.points(sweep.sweep_id), store.attempts(sweep.sweep_id)
    assert all(point.state is PointState.DONE and point.tries == 1 for point in points)
    done = [number for one in attempts if one.state is AttemptState.DONE for number in one.numbers]
    assert sorted(done) == list(range(1, POINTS + 1))
    assert {one.state for one in attempts} <= {AttemptState.DONE, AttemptState.VOID}
