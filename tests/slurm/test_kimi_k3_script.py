"""The sbatch script of the Kimi-K3 1P3D arm on a real four-node Slurm: nodes, GPUs, ports, order, health and teardown are
Slurm's and bash's own; etcd, NATS, vLLM and Dynamo are stand-ins, the store's master is Mooncake's."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.slurm.conftest import LocalSlurm, eventually

pytestmark = pytest.mark.slurm
pytest.importorskip("mooncake.store", reason="the extra `store` is not installed")
ARM = "kimi-k3-b300:kimik3-fp4-b300-dynamo-vllm-agentic-dspark-mooncake-dcp8-disagg-1p3d@32"
STAND_IN = Path(__file__).with_name("dynamo_stand_in.py")
NUMBERS = itertools.count()


@pytest.fixture
def folder(slurm: LocalSlurm) -> Path:
    """A folder that the nodes see, with the script as the command line prints it and the stand-ins beside it."""
    made = slurm.shared / f"kimi-{next(NUMBERS)}"
    (made / "bin").mkdir(parents=True)
    argv = [sys.executable, "-m", "servemark", "run", ARM, "--script", "--home", str(made / "home")]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    (made / "job.sh").write_text(said.stdout, encoding="utf-8")
    begin = f"exec {shlex.quote(sys.executable)} {shlex.quote(str(STAND_IN))}"
    for name, line in (
        ("etcd", f"{begin} etcd"),
        ("nats-server", f"{begin} nats-server"),
        ("python3", begin),
    ):
        shift = "shift; " if name == "python3" else ""  # python3 -m MODULE ...
        program = made / "bin" / name
        program.write_text(f'#!/bin/sh\n{shift}{line} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return made


def submit(slurm: LocalSlurm, folder: Path, *command: str, **env: str) -> tuple[str, str]:
    """Run the job to its end: its state by Slurm, and its output. The recipe's 72 CPUs a task are more than a node has."""
    given = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **env}
    argv = ["sbatch", "--parsable", "--partition=batch", "--cpus-per-task=1", "job.sh", *command]
    number = subprocess.run(
        argv, cwd=folder, env=given, capture_output=True, text=True, timeout=30, check=True
    ).stdout.strip()

    def state() -> str:
        return slurm.ask("squeue", "-h", "-t", "all", "-j", number, "-o", "%T").strip()

    ended = eventually(lambda: state() in {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}, 60)
    if not ended:
        slurm.ask("scancel", number)
    said = "\n".join(log.read_text(encoding="utf-8") for log in folder.glob("*.out"))
    assert ended, said
    return state(), said


def test_job_of_four_nodes_with_stand_ins(slurm: LocalSlurm, folder: Path) -> None:
    """The expected places follow from the recipe: prefill on the first node beside services and front end, a decode worker
    on each of the others, eight GPUs each, 190GB of segment a rank over EFA."""
    see = 'curl -fsS --noproxy "*" "$SERVEMARK_URL/instances" > seen.json'
    state, said = submit(
        slurm, folder, "bash", "-c", see, HUGE_PAGES="0", WANTED='{"prefill": 1, "decode": 3}'
    )
    assert state == "COMPLETED", said
    order = [line.split()[0] for line in said.splitlines() if line.endswith(" is ready")]
    assert order == ["etcd", "nats", "mooncake-master", "router"]
    seen = json.loads((folder / "seen.json").read_text(encoding="utf-8"))
    workers = sorted(seen["workers"], key=lambda one: one["node"])
    assert [(one["node"], one["role"]) for one in workers] == [
        ("n1", "prefill"), ("n2", "decode"), ("n3", "decode"), ("n4", "decode"),
    ]  # fmt: skip
    assert seen["node"] == "n1" and seen["mode"] == "least-loaded"
    assert len({one["address"] for one in workers}) == 4
    master = {one["store"][2] for one in workers}
    assert len(master) == 1 and master.pop().startswith(workers[0]["address"] + ":")
    for one in workers:
        assert one["gpus"] == "0,1,2,3,4,5,6,7" and one["huge"] == "1"
        assert one["store"][:2] == ["190GB", "efa"]
        assert one["port"] != int(one["store"][2].rpartition(":")[2])
    (logs,) = folder.glob("servemark-*")
    assert not (logs / "work").exists()
    assert eventually(slurm.idle, 20)
    assert not slurm.processes(str(folder / "bin"))


def test_a_worker_that_dies_ends_the_job(slurm: LocalSlurm, folder: Path) -> None:
    """The front end waits for a worker that never comes; a step that ended meanwhile is the reason that is told."""
    (folder / "bin" / "python3").write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    state, said = submit(slurm, folder, "true", HUGE_PAGES="0", WANTED="{}")
    assert state == "FAILED" and "a step ended while router started" in said
    assert eventually(slurm.idle, 20)
    assert not slurm.processes(str(folder / "bin"))


def test_nodes_without_huge_pages_are_refused(slurm: LocalSlurm, folder: Path) -> None:
    """8 x (97,280 + 2,048) pages and 7 % more; nothing is started."""
    state, said = submit(slurm, folder, "true", WANTED="{}")
    assert state == "FAILED"
    assert "free huge pages of 2 MiB and needs 850248" in said
    assert "sudo sysctl -w vm.nr_hugepages=850248" in said and "is ready" not in said
