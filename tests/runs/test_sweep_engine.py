"""Sweeps of real runs on the real embedded engine: launchers and runs are killed, no point is lost or measured twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from servemark.base.home import Home
from servemark.runs.sweep_attempts import probe
from servemark.store.sweep_rows import AttemptState
from servemark.store.sweeps import SweepStore

pytestmark = pytest.mark.engine
Start = Callable[..., "subprocess.Popen[str]"]
WaitFor = Callable[..., None]


def records(home: Path) -> int:
    """Requests that the runs have measured so far."""
    return sum(len(path.read_bytes().splitlines()) for path in home.glob("runs/*/requests.jsonl"))


def results(home: Path) -> list[str]:
    """Runs with a result."""
    return sorted(path.parent.name for path in home.glob("runs/*/result.json"))


def begin(start: Start, suite: Path, home: Path) -> subprocess.Popen[str]:
    """Both points of the tiny arm as one unit."""
    return start("sweep", "start", f"{suite}:tiny", "--home", str(home), "--json", "--backoff", "0.1")


def finish(start: Start, home: Path) -> dict[str, object]:
    """Resume to the end; the status."""
    process = start("sweep", "resume", "latest", "--home", str(home), "--json")
    out, err = process.communicate(timeout=110)
    assert process.returncode == 0, out + err
    body: dict[str, object] = json.loads(out)
    return body


def attempts(home: Path) -> list[AttemptState]:
    """How each attempt of the only sweep went."""
    with SweepStore.open(Home(home).sweeps) as store:
        return [one.state for one in store.attempts(store.sweeps()[0].sweep_id)]


def test_a_killed_launcher_finds_its_run_again(
    start: Start,
    make_suite: Callable[..., Path],
    tmp_path: Path,
    wait_for: WaitFor,
    none_left: Callable[[str], None],
) -> None:
    """kill -9 while the first point is measured: the run goes on, the next launcher waits for it and takes its rows."""
    home = tmp_path / "home"
    process = begin(start, make_suite(), home)
    wait_for(lambda: records(home) > 0)
    process.kill()
    process.communicate()
    body = finish(start, home)
    assert attempts(home) == [AttemptState.DONE]
    points = body["points"]
    assert isinstance(points, list)
    assert [(point["state"], point["attempts"]) for point in points] == [("done", 1), ("done", 1)]
    assert sorted(point["run_id"] for point in points) == results(home)
    assert len(list((home / "runs").iterdir())) == 2
    none_left(results(home)[0].removesuffix("-c1"))


def test_a_killed_run_is_tried_again(
    start: Start,
    make_suite: Callable[..., Path],
    tmp_path: Path,
    wait_for: WaitFor,
    none_left: Callable[[str], None],
) -> None:
    """kill -9 to launcher and run at once: the dead run stays in its folder, the points are measured by another."""
    home = tmp_path / "home"
    process = begin(start, make_suite(), home)
    wait_for(lambda: records(home) > 0)
    found = probe(next(home.glob("sweeps/*/attempt-00001")))
    assert found.pid is not None
    run = int(Path(f"/proc/{found.pid}/task/{found.pid}/children").read_text())
    for pid in (process.pid, run):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    body = finish(start, home)
    assert attempts(home) == [AttemptState.FAILED, AttemptState.DONE]
    assert len(results(home)) == 2
    assert len(list((home / "runs").iterdir())) == 4
    counts = body["counts"]
    assert isinstance(counts, dict)
    assert counts["done"] == 2
    for name in {path.name.rpartition("-c")[0] for path in (home / "runs").iterdir()}:
        none_left(name)


def test_cancelled_from_outside(
    start: Start,
    make_suite: Callable[..., Path],
    tmp_path: Path,
    wait_for: WaitFor,
    none_left: Callable[[str], None],
) -> None:
    """The run ends in its orderly way and says `interrupted`; no process stays."""
    home = tmp_path / "home"
    process = begin(start, make_suite(sessions=40), home)
    wait_for(lambda: records(home) > 0)
    other = start("sweep", "cancel", "latest", "--home", str(home))
    assert other.wait(30) == 0
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert json.loads(out)["counts"]["cancelled"] == 2
    failure = json.loads(next(home.glob("runs/*-c1/failure.json")).read_text())
    assert failure["layer"] == "interrupt"
    none_left(next(home.glob("runs/*-c1")).name.removesuffix("-c1"))


def test_a_fault_of_the_recipe_is_not_tried_again(
    start: Start, make_suite: Callable[..., Path], tmp_path: Path
) -> None:
    """A model that is not there: one attempt, and the reason stands in the status."""
    home = tmp_path / "home"
    process = begin(start, make_suite(model="/no/such/model.gguf"), home)
    out, _ = process.communicate(timeout=60)
    body = json.loads(out)
    assert process.returncode == 1
    assert [point["state"] for point in body["points"]] == ["failed", "failed"]
    assert [point["attempts"] for point in body["points"]] == [1, 1]
    assert "/no/such/model.gguf" in body["points"][0]["failure"]["what"]
