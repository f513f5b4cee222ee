"""`servemark run --cluster` on the real four-node cluster: the shipped 1P1D from end to end, and what ends it halfway."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.launch.test_pd_real import RECIPE, aggregated, ask, content, counter, deployment
from tests.launch.test_pd_real import start as start_here
from tests.runs.test_disaggregated import make
from tests.runs.test_faults import measured
from tests.slurm.conftest import LocalSlurm, eventually

from servemark.launch.allocation import AllocationRequest, NodeGroup
from servemark.launch.job import JobPlace, build_job
from servemark.launch.live_job import LiveJob
from servemark.launch.slurm import SlurmLauncher

pytestmark = pytest.mark.slurm
ARM = "smollm2-q4-cpu-llamacpp-agentic-mooncake-disagg-1p1d"
NUMBERS = itertools.count()
CLUSTERS = """
launch:
  here:
    launcher: slurm
    labels: [cluster:local]
    partition: batch
    gpus-per-node: 8
    scratch: /dev/shm
    silence-s: 4
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def home(slurm: LocalSlurm) -> Path:
    """A home folder that the nodes see, with the cluster described in it."""
    folder = slurm.shared / f"home-{next(NUMBERS)}"
    folder.mkdir()
    (folder / "clusters.yaml").write_text(CLUSTERS, encoding="utf-8")
    return folder


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    """Start `servemark run ARGS` as a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def run(*args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "servemark", "run", *args, "--home", str(home), "--no-report"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "LANG": "C.UTF-8"},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def run_folder(home: Path) -> Path:
    """The one run of a home."""
    (found,) = (home / "runs").glob("*")
    return found


def allocations(home: Path) -> list[dict[str, object]]:
    """What the run has written down of where it runs; empty before it did."""
    try:
        body = json.loads((run_folder(home) / "allocation.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    found: list[dict[str, object]] = body["allocations"]
    return found


def names(allocation: dict[str, object]) -> list[str]:
    """Its nodes."""
    return [node["name"] for node in allocation["nodes"]]  # type: ignore[attr-defined]


def left(slurm: LocalSlurm, home: Path) -> list[str]:
    """What a run may have left: jobs, marked processes, scratch folders of each node, the state folder."""
    found = slurm.ask("squeue", "-h").split()
    found += [str(pid) for pid in slurm.processes("SERVEMARK_STEP_MARK=")]
    for number in range(1, 5):
        if (slurm.folder / "nodes" / f"n{number}" / "init.pid").exists():
            found += slurm.do("exec", f"n{number}", "ls", "/dev/shm").split()  # noqa: S108 - each node's own
    return found + [str(path) for path in (home / "slurm").glob("slurm-*")]


def clean(slurm: LocalSlurm, home: Path, budget_s: float = 20.0) -> None:
    """Nothing is left, within seconds."""
    eventually(lambda: not left(slurm, home), budget_s)
    assert left(slurm, home) == []


def await_replay(process: subprocess.Popen[str], home: Path, requests: int) -> None:
    """Until so many measured requests have ended; a run that ends or stalls instead shows its own words."""
    eventually(lambda: measured(home) >= requests or process.poll() is not None, 60)
    if measured(home) < requests:
        process.send_signal(signal.SIGINT)
        folders = list((home / "runs").glob("*"))
        logs = (
            [path.read_text(errors="replace")[-1500:] for path in folders[0].rglob("*.log")]
            if folders
            else []
        )
        raise AssertionError(
            "\n".join([*map(str, allocations(home)), *process.communicate(timeout=60), *logs])
        )


def step_pid(home: Path, step: str) -> int:
    """The program of a step: it works in the step's scratch folder. 0 while there is none."""
    marks = {str(one.get("state", "")).rpartition("slurm-")[2] for one in allocations(home)}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cwd").readlink().match(f"servemark-*/{step}") and any(
                    f"SERVEMARK_STEP_MARK={mark}".encode() in (entry / "environ").read_bytes()
                    for mark in marks
                ):
                    return int(entry.name)
            except OSError:
                continue
    return 0


def test_shipped_pair_from_end_to_end(slurm: LocalSlurm, home: Path, start: Start) -> None:
    """The recipe is the shipped one to the letter; only the workload is shorter. Its label chooses the cluster."""
    suite = home / "disaggregated-cpu"
    shutil.copytree(RECIPE.parents[3], suite)
    work = suite / "workloads" / "agentic-small.yaml"
    work.write_text(work.read_text(encoding="utf-8").replace("sessions: 6", "sessions: 1"), encoding="utf-8")
    process = start(f"{suite}:{ARM}@1")
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    clean(slurm, home)
    folder = run_folder(home)
    row = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    planned, warmup, evals = row["counts"]["planned"], 1, 102
    assert row["counts"]["ok"] == planned > 2
    (score,) = row["evals"]
    assert score["task"] == "basics" and score["n"] == evals and score["unanswered"] == 0
    store, site = row["observed"]["store"], row["observed"]["allocation"]
    assert store["store_put_count"] == store["store_get_count"] == planned
    assert store["store_put_bytes"] == store["store_get_bytes"] > planned * 1_000_000
    assert store["store_put_seconds"] > 0 and store["store_get_seconds"] > 0
    assert all(rank["store_setup_s"] > 0 and rank["page_bytes"] == 4096 for rank in store["ranks"].values())
    assert all("compact_stall" in rank["vmstat_after"] for rank in store["ranks"].values())
    workers = row["observed"]["engine"]["details"]["workers"]
    assert {name: worker["node"] for name, worker in workers.items()} == {"prefill-0": "n1", "decode-0": "n2"}
    assert site["cluster"] == "here" and site["id"].isdigit() and names(site) == ["n1", "n2"]
    assert re.fullmatch(r"\d\d\.\d\d", site["slurm_version"])
    assert allocations(home)[0]["id"] == site["id"]
    assert set(row["phases_s"]) == {
        "allocate", "preflight", "services", "workers", "router", "health", "warmup", "replay", "evals", "collect", "stop",
    }  # fmt: skip
    assert "worker_differs" not in {warning["code"] for warning in row["warnings"]}
    assert set(row["observed"]["preflight"]["nodes"]) == {"n1", "n2"}
    samples = (folder / "server_metrics.jsonl").read_text(encoding="utf-8").splitlines()
    last = json.loads(samples[-1])["counters"]
    # One prompt token a request at most was computed on the decode side, all others came through the store.
    assert 0 < last["decode-0 llamacpp:prompt_tokens_total"] <= last["store_get_count"] + 1
    assert warmup + planned <= last["store_get_count"] <= warmup + planned + evals


def test_same_text_as_one_server(launcher: SlurmLauncher, slurm: LocalSlurm, tmp_path: Path) -> None:
    """On two nodes: the decode worker computes one token, and the greedy text is that of one server alone."""
    allocation = launcher.allocate(AllocationRequest("pair", (NodeGroup("all", 2),), 600, 30.0))
    where = JobPlace(
        allocation.nodes,
        allocation.free_ports,
        allocation.work_root(tmp_path),
        slurm.shared / "pair-logs",
        bind="node",
    )
    pair = LiveJob(
        build_job(deployment(RECIPE), where, run_id="pair", served_name="pair"), allocation, "llamacpp", 60.0
    )
    alone = None
    try:
        pair.start()
        computed = "decode-0 llamacpp:prompt_tokens_total"
        before = counter(pair, computed)
        reply = ask(pair, "Name three colours.")
        usage: dict[str, object] = reply["usage"]  # type: ignore[assignment]
        details: dict[str, int] = usage["prompt_tokens_details"]  # type: ignore[assignment]
        assert counter(pair, computed) - before <= 1
        assert details["transferred_tokens"] == usage["prompt_tokens"] - 1  # type: ignore[operator]
        assert counter(pair, "store_get_count") == counter(pair, "store_put_count") == 1
        alone = start_here(aggregated(), tmp_path)
        ask(alone, "Name three colours.")  # the second answer has its prefix cached, as the decode worker has
        assert content(ask(alone, "Name three colours.")) == content(reply)
    finally:
        if alone is not None:
            alone.stop()
        pair.stop()
    assert launcher.leftovers("pair") == []


def test_dry_run_shows_what_slurm_is_asked(start: Start) -> None:
    """Per node the srun lines, as the launcher describes them; nothing is submitted."""
    process = start(f"disaggregated-cpu:{ARM}@1", "--dry-run", "--cluster", "here")
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "--nodelist=node0" in out and "--nodelist=node1" in out and "/servemark-MARK/decode-0" in out
    process = start(f"disaggregated-cpu:{ARM}@1", "--dry-run", "--cluster", "local")
    assert "srun" not in process.communicate(timeout=30)[0]
    process = start(f"disaggregated-cpu:{ARM}@1", "--dry-run", "--cluster", "hear")
    assert "here" in process.communicate(timeout=30)[1] and process.returncode == 2


def test_a_worker_dies(slurm: LocalSlurm, home: Path, start: Start) -> None:
    """In the middle of the replay: at once failed, with the instance and its node."""
    process = start(f"{make(home / 'suite', sessions=40, out=24)}:pd@1")
    await_replay(process, home, 3)
    os.kill(step_pid(home, "decode-0"), signal.SIGKILL)
    began = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and time.monotonic() - began < 20
    assert "[engine]" in err and "decode-0" in err and "n2" in err and "SIGKILL" in err
    failure = json.loads((run_folder(home) / "failure.json").read_text(encoding="utf-8"))
    assert Path(failure["values"]["log"]).is_file()
    clean(slurm, home)


def test_cancelled_keeps_its_logs(slurm: LocalSlurm, home: Path, start: Start) -> None:
    """Ctrl-C: exit code 130, every step's log is there."""
    process = start(f"{make(home / 'suite', sessions=40, out=24)}:pd@1")
    await_replay(process, home, 2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    logs = {path.stem for path in (run_folder(home) / "logs" / "steps").glob("*.log")}
    assert logs == {"mooncake-master", "prefill-0", "decode-0"}
    assert (run_folder(home) / "logs" / "engine.log").stat().st_size > 0
    clean(slurm, home)


def test_killed_launcher_and_silent_controller(slurm: LocalSlurm, home: Path, start: Start) -> None:
    """A controller that goes away and comes back is not noticed; kill -9 of servemark leaves nothing on the nodes."""
    process = start(f"{make(home / 'suite', sessions=200, out=24)}:pd@1")
    await_replay(process, home, 2)
    assert slurm.saved()
    slurm.do("kill-ctl")
    before = measured(home)
    assert eventually(lambda: measured(home) >= before + 5, 30)
    slurm.do("start-ctl")
    assert eventually(lambda: measured(home) >= before + 8, 30) and process.poll() is None
    process.kill()
    clean(slurm, home, 40.0)
    assert (run_folder(home) / "logs" / "steps.live" / "decode-0.log").stat().st_size > 0


def test_a_node_dies_in_the_replay(slurm: LocalSlurm, home: Path, start: Start) -> None:
    """Failed as an allocation that is gone, with the node's name, not as the server that went with it."""
    process = start(f"{make(home / 'suite', sessions=200, out=24)}:pd@1")
    await_replay(process, home, 2)
    slurm.do("kill-node", "n2")
    _, err = process.communicate(timeout=90)
    assert process.returncode == 1 and "[allocation]" in err and "node failed: n2" in err, err
    slurm.do("up")
    clean(slurm, home)


def test_a_node_dies_before_the_replay(slurm: LocalSlurm, home: Path, start: Start) -> None:
    """The run starts again on other nodes, says so in its record, and ends with a result."""
    process = start(f"{make(home / 'suite')}:pd@1")
    assert eventually(lambda: len(allocations(home)) == 1 and "nodes" in allocations(home)[0], 30)
    slurm.do("kill-node", "n2")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    first, second = allocations(home)
    assert names(first) == ["n1", "n2"] and len(names(second)) == 2 and "n2" not in names(second)
    row = json.loads((run_folder(home) / "result.json").read_text(encoding="utf-8"))
    assert row["observed"]["allocation"]["id"] == second["id"] != first["id"]
    slurm.do("up")
    clean(slurm, home)
