"""Slurm's answers in the shapes of old and new releases; lines as Slurm 22.05 gave them, JSON as its schemas say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch.allocation import (
    AllocatedNode,
    AllocationRequest,
    Container,
    Mount,
    NodeGroup,
    StepRequest,
)
from servemark.launch.slurm_allocation import ports_of
from servemark.launch.slurm_commands import Reply, SlurmCommands
from servemark.launch.slurm_options import sbatch_argv, step_argv
from servemark.launch.slurm_state import (
    gpu_count,
    jobs_of_json,
    jobs_of_text,
    nodes_of_json,
    nodes_of_text,
    wait_status,
)
from servemark.launch.slurm_watch import end_words

JOB = (
    "JobId=17 JobName=servemark-a b=c UserId=root(0) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=0 "
    "Restarts=0 BatchFlag=1 ExitCode=7:0 RunTime=00:00:01 NodeList=n[1-2] BatchHost=n1"
)
CLUSTER = LaunchCluster("here", "slurm", partition="batch", account="bench", mounts=(Path("/srv"),))


class Said(SlurmCommands):
    """Slurm's commands with given answers."""

    def __init__(self, **replies: Reply) -> None:
        super().__init__()
        self.replies = replies

    def once(self, argv: Sequence[str], *, timeout_s: float | None = None) -> Reply:
        """The answer of the program that is asked."""
        return self.replies.get(argv[0], Reply(1, "", "no such thing"))


def test_job_of_text() -> None:
    """A job name may hold spaces and equal signs."""
    (job,) = jobs_of_text(JOB)
    assert (job.job_id, job.state, job.exit_code, job.nodes, job.name) == (
        "17",
        "FAILED",
        7,
        "n[1-2]",
        "servemark-a b=c",
    )
    assert jobs_of_text("slurm_load_jobs error: Invalid job id specified") == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1792, (7, 0)),  # 22.05: exit 7 is the raw wait status 7 << 8
        (9, (0, 9)),
        ({"status": ["ERROR"], "return_code": {"set": True, "infinite": False, "number": 7}}, (7, 0)),
        (
            {
                "return_code": {"set": False, "number": 0},
                "signal": {"id": {"set": True, "number": 9}, "name": "KILL"},
            },
            (0, 9),
        ),
        (None, (0, 0)),
    ],
)
def test_wait_status(value: object, expected: tuple[int, int]) -> None:
    """Old and new shapes of `exit_code`."""
    assert wait_status(value) == expected


def test_old_and_new_json_say_the_same() -> None:
    """A state as a word or a list, numbers plain or in an object."""
    old = {
        "job_id": 3,
        "job_state": "RUNNING",
        "state_reason": "None",
        "nodes": "n1",
        "restart_cnt": 0,
        "exit_code": 0,
    }
    number = {"set": True, "infinite": False, "number": 0}
    new = old | {"job_state": ["RUNNING"], "restart_cnt": number, "exit_code": {"return_code": number}}
    assert jobs_of_json(json.dumps({"jobs": [old]})) == jobs_of_json(json.dumps({"jobs": [new]}))
    node = {
        "name": "n1",
        "state": "idle",
        "state_flags": ["DRAIN"],
        "gres": "gpu:h:8",
        "cpus": 16,
        "real_memory": 5,
    }
    changed = node | {"state": ["IDLE", "DRAIN"]}
    assert nodes_of_json(json.dumps({"nodes": [node]}))[0].usable is False
    assert nodes_of_json(json.dumps({"nodes": [changed]}))[0].gpus == 8
    for bad in ("", "[]", '{"jobs": 1}', "[" * 100000):
        with pytest.raises(ValueError):
            jobs_of_json(bad)


def test_nodes_of_text() -> None:
    """Flags after `+` and marks such as `*` (does not answer) count."""
    line = (
        "NodeName=n2 NodeAddr=10.0.0.2 Gres=gpu:fake:8 CPUTot=16 RealMemory=2048000 State=IDLE* Partitions=batch,x "
        "Reason=a b"
    )
    (node,) = nodes_of_text(line)
    assert (node.gpus, node.memory_mib, node.partitions, node.reason) == (8, 2048000, ("batch", "x"), "a b")
    assert node.usable
    assert not nodes_of_text("NodeName=n2 State=MIXED+DRAIN Gres=(null)")[0].usable


@pytest.mark.parametrize(
    ("gres", "count"), [("gpu:h100:8(S:0-1)", 8), ("gpu:2,nic:4,gpu:a:3", 5), ("gpu", 1), ("", 0)]
)
def test_gpu_count(gres: str, count: int) -> None:
    """Spellings of gres."""
    assert gpu_count(gres) == count


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("TIMEOUT", "time limit"),
        ("CANCELLED", "cancelled"),
        ("NODE_FAIL", "n2"),
        ("PREEMPTED", "preempted"),
        ("FAILED", "7:0"),
    ],
)
def test_how_an_allocation_ended(state: str, word: str) -> None:
    """Of a node failure the node is named that Slurm no longer uses."""
    jobs = tuple(replace(job, state=state) for job in jobs_of_text(JOB))
    said = Said(scontrol=Reply(0, "NodeName=n1 State=IDLE\nNodeName=n2 State=DOWN*", ""))
    words = str(end_words(said, jobs, ("n1", "n2"), "17"))
    assert word in words and "n1" not in words


def test_no_accounting_is_no_error() -> None:
    """A job that Slurm has forgotten, on a cluster without slurmdbd: sacct says that it is disabled."""
    off = Reply(1, "", "Slurm accounting storage is disabled")
    assert str(end_words(Said(sacct=off), (), (), "17")).endswith("17")
    assert "FAILED" in str(end_words(Said(sacct=Reply(0, "FAILED\n", "")), (), (), "17"))


def test_restart_counts_as_an_end() -> None:
    """A running job with a restart count above 0 is another attempt."""
    jobs = tuple(replace(job, state="RUNNING", restarts=1) for job in jobs_of_text(JOB))
    assert "again" in str(end_words(Said(), jobs, (), "17"))


def test_sbatch_line() -> None:
    """No requeue, no -Q (it would hide the reason), components parted by a colon."""
    groups = (
        NodeGroup("prefill", 2, 8),
        NodeGroup("decode", 1, 8),
        NodeGroup("front", 1, 0, partition="cpu"),
    )
    request = AllocationRequest("r1", groups, 601, 5.0, exclude_nodes=("n9",))
    argv = sbatch_argv(CLUSTER, request, ["keeper.sh"], Path("/log"), (24, 5))
    head, tail = argv[: argv.index(":")], argv[argv.index(":") :]
    assert {
        "--no-requeue",
        "--nodes=3",
        "--gres=gpu:8",
        "--time=11",
        "--exclude=n9",
        "--partition=batch",
    } <= set(head)
    assert {"--no-requeue", "--nodes=1", "--partition=cpu"} <= set(tail) and tail[-1] == "keeper.sh"
    assert not {"-Q", "--quiet", "--requeue"} & set(argv)


def _step(**more: object) -> StepRequest:
    fields: dict[str, object] = {"argv": ("true",), "log_path": Path("/l"), "work_dir": Path("/w"), **more}
    return StepRequest("w", AllocatedNode("n1", "g", "10.0.0.1"), **fields)  # type: ignore[arg-type]


def test_step_line_shows_names_of_secrets_only() -> None:
    """Also with a container, whose own values would win without --container-env."""
    container = Container(Path("/srv/x.sqsh"), (Mount(Path("/srv/models"), "/models"),), "/w")
    argv = step_argv(CLUSTER, _step(secret_env={"TOKEN": "canary"}, container=container), "7", 1, "m")
    text = " ".join(argv)
    assert "canary" not in text and "TOKEN" in text
    assert {"--overlap", "--mem=0", "--het-group=1", "--container-mounts=/srv/models:/models:ro"} <= set(argv)
    assert "--no-container-mount-home" in argv and "--no-container-entrypoint" in argv


@pytest.mark.parametrize("source", ["/etc", "/srv/../etc", "/srvx", "/srv/a:b", "/srv/a,/etc:/etc"])
def test_mounts_stay_inside_the_roots(source: str) -> None:
    """A recipe is untrusted."""
    container = Container(Path("/srv/x.sqsh"), (Mount(Path(source), "/m"),))
    with pytest.raises(ServemarkError) as caught:
        step_argv(CLUSTER, _step(container=container), "7", None, "m")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "option", ["--output=/etc/passwd", "--prolog=/x", "-o/x", "--bcast", "--export=ALL", "--jobid=1", "x"]
)
def test_options_of_a_recipe(option: str) -> None:
    """Those that write or run something on the launcher's host are refused."""
    with pytest.raises(ServemarkError) as caught:
        step_argv(CLUSTER, _step(srun_options=(option,)), "7", None, "m")
    assert caught.value.key == "launch.slurm_option"


def test_ports_of() -> None:
    """Hexadecimal ports of /proc/net/tcp: 0x1F90 is 8080."""
    table = "  sl  local_address\n   0: 0100007F:1F90 00000000:0000 0A\n   1: 0000:0016 0000:0000 0A\nrange 32768 60999\n"
    assert ports_of(table) == ({8080, 22}, 32768)
