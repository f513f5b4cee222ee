"""How a unit becomes a `servemark run`, and what is made of what that run left."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.base.home import Home
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.cli.main import run_cli
from servemark.runs.folder import RunFolder
from servemark.runs.manifest import run_id
from servemark.runs.sweep_runner import RunVerb, Work, is_transient
from servemark.store.sweep_rows import PointState, SweepPoint

POINT = SweepPoint(
    1, 1, "p1", "s1", "dsr1/1p1d@8", "/suites/mine", "dsr1", "1p1d", 8, "local", 8, False, None, None,
    PointState.RUNNING, 1, 3,
)  # fmt: skip


def work(tmp_path: Path, *points: SweepPoint) -> Work:
    """An attempt at these points whose folder is there."""
    folder = tmp_path / "attempt"
    folder.mkdir(exist_ok=True)
    return Work("20260101-line", points or (POINT,), folder)


def test_local_and_cluster_differ_in_arguments_only(tmp_path: Path) -> None:
    """By hand: one selector with all concurrencies, the id made beforehand, then where."""
    both = (POINT, replace(POINT, number=2, concurrency=16))
    runner = RunVerb(Home(tmp_path), ("--no-evals",))
    local = runner.argv(work(tmp_path, *both))
    assert local[1:] == [
        "-m", "servemark", "run", "/suites/mine:dsr1/1p1d@8,16", "--line-id=20260101-line", f"--home={tmp_path}",
        "--no-report", "--json", "--no-evals",
    ]  # fmt: skip
    cluster = LaunchCluster("b300-a", "slurm")
    remote = RunVerb(Home(tmp_path), ("--no-evals",), {"b300-a": cluster}, Path("/etc/clusters.yaml"))
    away = tuple(replace(point, cluster="b300-a") for point in both)
    assert remote.argv(work(tmp_path, *away)) == [*local, "--cluster=b300-a", "--clusters=/etc/clusters.yaml"]


@pytest.mark.parametrize(
    ("printed", "layer", "what"),
    [
        (b'{"error": {"key": "k", "layer": "input", "what": "no such arm"}}\n', "input", "no such arm"),
        (b'noise\n{"error": {"layer": "allocation", "what": "refused"}}\n', "allocation", "refused"),
        (b'{"error": {"layer": "nonsense", "what": "\\u001b[2Jboo"}}', "launch", "\\x1b[2Jboo"),
        (b"[" * 60_000, "launch", None),
        (b'{"error": 7}\n{"error": {"what": 0}}\n\xff\xfe', "launch", None),
        (b"", "launch", None),
    ],
)
def test_a_run_that_never_had_a_folder(tmp_path: Path, printed: bytes, layer: str, what: str | None) -> None:
    """Its JSON error counts; without one it died. What it printed is untrusted."""
    one = work(tmp_path)
    (one.folder / "out.log").write_bytes(printed)
    outcome = RunVerb(Home(tmp_path)).outcomes(one, "exit 2")[1]
    assert outcome.failure is not None
    assert (outcome.run_id, outcome.failure["layer"], outcome.failure.get("what")) == (None, layer, what)
    assert outcome.transient == (what in (None, "refused"))


def test_a_run_that_died_is_transient_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    """A folder with a manifest and a free lock; then the same with a result that is none."""
    home, one = Home(tmp_path), work(tmp_path)
    folder = home.runs / run_id(one.line_id, 8)
    RunFolder.create(folder, {"line_id": one.line_id, "point_id": "p1"}).close()
    died = RunVerb(home).outcomes(one, None)[1]
    assert died.failure is not None
    assert (died.failure["key"], died.transient) == ("runs.sweep.died", True)
    (folder / "result.json").write_text("{}")
    damaged = RunVerb(home).outcomes(one, "exit 0")[1]
    assert damaged.failure is not None
    assert (damaged.failure["key"], damaged.transient) == ("runs.sweep.damaged", False)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ({"layer": "allocation", "key": "launch.allocation_lost"}, True),
        ({"layer": "image", "key": "launch.image_locked"}, True),
        ({"layer": "interrupt", "key": "runs.interrupted"}, True),
        ({"layer": "engine", "key": "launch.exited"}, False),
        ({"layer": "input", "what": "no such arm"}, False),
        ({}, False),
    ],
)
def test_which_layers_may_pass(failure: dict[str, object], expected: bool) -> None:
    """Nodes, queues, images and runs that somebody stopped; never what is wrong by itself."""
    assert is_transient(failure) is expected


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-x", "a" * 130])
def test_a_line_id_names_no_path(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The id that a sweep hands to a run is checked like anything from outside."""
    assert run_cli(["run", "quickstart", f"--line-id={name}", "--home", str(tmp_path / "h"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["key"] == "cli.run.bad_line_id"
    assert not (tmp_path / "h").exists()
