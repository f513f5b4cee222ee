"""Allocations and steps on a real four-node Slurm: what is promised by launch/allocation.py, kept."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.slurm.conftest import Allocate, LocalSlurm, StepOf, wanted

from servemark.base.errors import Layer, ServemarkError
from servemark.launch.allocation import AllocationRequest, NodeGroup
from servemark.launch.process import ExitStatus
from servemark.launch.slurm import SlurmLauncher, queue

pytestmark = pytest.mark.slurm


def test_nodes_have_names_and_addresses(allocate: Allocate) -> None:
    """Addresses are those that tests/slurm/local-slurm gives: 10.77.N.11 for n1, 12 for n2."""
    nodes = allocate(2, 8).nodes
    assert [(node.name, node.group, node.gpus) for node in nodes] == [
        ("n1", "workers", tuple(range(8))),
        ("n2", "workers", tuple(range(8))),
    ]
    assert [node.address.split(".")[3] for node in nodes] == ["11", "12"]


def test_step_runs_on_its_node_with_its_environment(allocate: Allocate, step: StepOf) -> None:
    """Values with commas, quotes and newlines arrive as they are; nothing passes through a shell of ours."""
    odd = "a,b='c'\n$(id);\""
    allocation = allocate(2)
    request = step(allocation.nodes[1], 'hostname; printf %s "$ODD"; pwd', env={"ODD": odd})
    started = allocation.start(request)
    assert started.wait(20) == ExitStatus(exit_code=0)
    log = request.log_path.read_text(encoding="utf-8")
    assert f"\nservemark-step: started {allocation.id}." in f"\n{log}"
    assert "n2\n" + odd in log and str(request.work_dir) in log


def test_steps_overlap_on_one_node(allocate: Allocate, step: StepOf) -> None:
    """Without --mem=0 the second would wait for the first's memory for ever."""
    allocation = allocate(1)
    first, second = (allocation.start(step(allocation.nodes[0], "sleep 60", name)) for name in ("a", "b"))
    assert first.poll() is None and second.poll() is None
    assert {name for _, name in allocation.live_steps()} == {"a", "b"}


def test_exit_codes_and_signals_are_told_apart(allocate: Allocate, step: StepOf) -> None:
    """137 as an exit code is not SIGKILL, although srun's own exit code is the same."""
    allocation = allocate(1)
    node = allocation.nodes[0]
    scripts = {"five": "exit 5", "plain": "exit 137", "killed": "kill -9 $$"}
    ended = {name: allocation.start(step(node, script, name)).wait(20) for name, script in scripts.items()}
    assert ended == {
        "five": ExitStatus(exit_code=5),
        "plain": ExitStatus(exit_code=137),
        "killed": ExitStatus(signal=9),
    }


def test_gpus_are_chosen_among_the_steps_own(allocate: Allocate, step: StepOf) -> None:
    """gres gives every overlapping step all GPUs of the job; positions pick from them."""
    allocation = allocate(1, 4)
    node = allocation.nodes[0]
    seen = {}
    for name, gpus in (("all", None), ("two", (1, 3)), ("none", ())):
        request = step(node, 'echo "g=$CUDA_VISIBLE_DEVICES"', name, gpus=gpus)
        allocation.start(request).wait(20)
        seen[name] = request.log_path.read_text(encoding="utf-8").splitlines()[-1]
    assert seen == {"all": "g=0,1,2,3", "two": "g=1,3", "none": "g="}
    with pytest.raises(ServemarkError) as caught:
        allocation.start(step(node, "true", "five", gpus=(5,)))
    assert caught.value.key == "launch.slurm_gpus"


def test_ranks_of_one_program_over_nodes(allocate: Allocate, step: StepOf, launcher: SlurmLauncher) -> None:
    """Four ranks on two nodes, numbered over both; one that ends badly ends the others, and its status is the step's."""
    launcher.cluster = replace(launcher.cluster, mpi="pmi2")
    allocation = allocate(2)
    first, second = allocation.nodes
    script = 'echo "rank $SLURM_PROCID of $SLURM_NTASKS, $PMI_FD on $(hostname)"'
    request = step(first, script, also=(second,), tasks=4)
    assert allocation.start(request).wait(20) == ExitStatus(exit_code=0)
    said = sorted(re.findall(r"rank (\d of 4), \d+ on (n\d)", request.log_path.read_text(encoding="utf-8")))
    assert said == [("0 of 4", "n1"), ("1 of 4", "n1"), ("2 of 4", "n2"), ("3 of 4", "n2")]
    bad = step(first, "[ $SLURM_PROCID != 3 ] || exit 7; sleep 300", "bad", also=(second,), tasks=4)
    assert allocation.start(bad).wait(30) == ExitStatus(exit_code=7)


def test_what_cannot_start_says_why(allocate: Allocate, step: StepOf) -> None:
    """Errors come from `start`, not as an exit status of a program that never ran."""
    allocation = allocate(1)
    node = allocation.nodes[0]
    for more, key in (
        ({"argv": ("/no/such/program",)}, "launch.program_missing"),
        ({"work_dir": Path("/proc/nowhere")}, "launch.cwd_refused"),
        ({"srun_options": ("--cpus-per-task=99",)}, "launch.slurm_step_refused"),
    ):
        with pytest.raises(ServemarkError) as caught:
            allocation.start(step(node, "true", "bad", **more))
        assert caught.value.key == key and caught.value.layer is Layer.LAUNCH


def test_stop_gives_grace_then_kills(allocate: Allocate, step: StepOf, slurm: LocalSlurm) -> None:
    """A program that ends on SIGTERM gets the time for it; one that ignores it is gone after the grace."""
    allocation = allocate(1)
    node = allocation.nodes[0]
    polite = allocation.start(
        step(node, 'trap "sleep 0.5; echo bye; exit 3" TERM; while :; do sleep 0.1; done', "polite")
    )
    deaf = allocation.start(step(node, 'trap "" TERM; while :; do sleep 0.1; done', "deaf"))
    assert polite.stop(10.0) == ExitStatus(exit_code=3)
    assert "bye" in polite.log_tail()
    begun = time.monotonic()
    assert deaf.stop(0.5) == ExitStatus(signal=9)
    assert time.monotonic() - begun < 10
    assert deaf.stop() == ExitStatus(signal=9)
    assert not allocation.live_steps()


def test_what_left_its_step_is_swept(allocate: Allocate, step: StepOf, slurm: LocalSlurm) -> None:
    """A daemon of its own session, whose parent has ended, is in no process tree that Slurm watches here."""
    allocation = allocate(2)
    mark = f"SERVEMARK_STEP_MARK={allocation.mark}"
    fled = allocation.start(
        step(allocation.nodes[1], "setsid sh -c 'sleep 300 & exit' </dev/null >/dev/null 2>&1 &")
    )
    fled.wait(20)
    assert slurm.processes(mark)
    allocation.release()
    assert not slurm.processes(mark)


def test_free_ports_are_free_on_the_node(allocate: Allocate, step: StepOf) -> None:
    """A port that is listened on is not given; the same port is never given twice."""
    allocation = allocate(2)
    first, other = allocation.nodes
    ports = allocation.free_ports(first, 50)
    assert len(set(ports)) == 50 and all(1023 < port < 65536 for port in ports)
    again = allocation.free_ports(first, 50)
    assert not set(ports) & set(again)
    assert len(allocation.free_ports(other, 5)) == 5


def test_unlike_hardware_is_one_het_job(launcher: SlurmLauncher, step: StepOf, slurm: LocalSlurm) -> None:
    """Two groups with different GPUs: one job of two components, steps on both, all gone at the end."""
    groups = (NodeGroup("prefill", 1, 8), NodeGroup("frontend", 1, 0, partition="spare"))
    allocation = launcher.allocate(AllocationRequest("het", groups, 600, 30.0))
    try:
        assert [(node.name, node.group) for node in allocation.nodes] == [
            ("n1", "prefill"),
            ("n4", "frontend"),
        ]
        for node in allocation.nodes:
            request = step(node, "hostname", node.group)
            assert allocation.start(request).wait(20) == ExitStatus(exit_code=0)
            assert request.log_path.read_text(encoding="utf-8").splitlines()[-1] == node.name
        assert {job.offset for job in queue(launcher.commands) if job.alive} == {0, 1}
    finally:
        allocation.release()
    assert launcher.leftovers("het") == []


def test_like_groups_share_one_job(launcher: SlurmLauncher) -> None:
    """Nodes are dealt in Slurm's order, groups in ours."""
    groups = (NodeGroup("prefill", 1, 8), NodeGroup("decode", 2, 8))
    allocation = launcher.allocate(AllocationRequest("dealt", groups, 600, 30.0))
    allocation.release()
    assert [(n.name, n.group) for n in allocation.nodes] == [
        ("n1", "prefill"),
        ("n2", "decode"),
        ("n3", "decode"),
    ]


def test_attach_finds_a_live_allocation(launcher: SlurmLauncher, step: StepOf) -> None:
    """By its job id alone; the second holder's release ends it for the first too."""
    allocation = launcher.allocate(wanted(2, run_id="again"))
    assert launcher.leftovers("again") == [f"job {allocation.id} RUNNING n[1-2]"]
    again = SlurmLauncher(launcher.cluster, launcher.state_dir, silence_s=4.0).attach(allocation.id)
    assert again is not None and again.nodes == allocation.nodes
    assert again.start(step(again.nodes[0], "exit 0")).wait(20) == ExitStatus(exit_code=0)
    again.release()
    assert launcher.attach(allocation.id) is None
    assert launcher.attach("999999") is None
    allocation.release()
