"""What a cluster can do to a run, done on a real one: each fault is told in words, and nothing is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.slurm.conftest import Allocate, LocalSlurm, StepOf, eventually, wanted

from servemark.base.errors import Layer, ServemarkError
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch.process import ExitStatus
from servemark.launch.slurm import SlurmLauncher
from servemark.launch.slurm_commands import SlurmCommands

pytestmark = pytest.mark.slurm


@pytest.mark.parametrize(
    ("fault", "key", "layer", "word"),
    [
        ("nodes", "launch.slurm_never", Layer.INPUT, "for ever (Partition"),
        ("gpus", "launch.slurm_refused", Layer.ALLOCATION, "Requested node configuration is not available"),
        ("partition", "launch.slurm_refused", Layer.ALLOCATION, "invalid partition specified: nowhere"),
        ("option", "launch.slurm_refused", Layer.ALLOCATION, "--no-such"),
    ],
)
def test_refused_allocation(launcher: SlurmLauncher, fault: str, key: str, layer: Layer, word: str) -> None:
    """More nodes than there are is accepted by Slurm and then waits for ever: that reason is fatal."""
    if fault == "partition":
        launcher.cluster = replace(launcher.cluster, partition="nowhere")
    elif fault == "option":
        launcher.cluster = replace(launcher.cluster, sbatch=("--no-such=1",))
    request = wanted(9 if fault == "nodes" else 1, 9 if fault == "gpus" else 0, wait_s=20.0)
    begun = time.monotonic()
    with pytest.raises(ServemarkError) as caught:
        launcher.allocate(request)
    assert (caught.value.key, caught.value.layer) == (key, layer)
    assert word in caught.value.what() and time.monotonic() - begun < 10
    assert launcher.leftovers("test") == []


def test_segment_of_a_newer_slurm(launcher: SlurmLauncher) -> None:
    """22.05 does not know --segment; it is said before anything is submitted."""
    launcher.cluster = replace(launcher.cluster, sbatch=("--segment=4",))
    with pytest.raises(ServemarkError, match=r"23\.11.*22\.05"):
        launcher.allocate(wanted())


def test_busy_cluster_times_out_and_cancels(launcher: SlurmLauncher, allocate: Allocate) -> None:
    """The reason is Slurm's; `cancelled` ends a wait as well, and neither leaves a job in the queue."""
    allocate(4)
    said: list[str] = []
    with pytest.raises(ServemarkError) as caught:
        launcher.allocate(
            wanted(2, run_id="late", wait_s=2.5), on_wait=lambda _s, reason: said.append(reason)
        )
    assert caught.value.key == "launch.slurm_wait" and said[-1] in ("Resources", "Priority")
    with pytest.raises(ServemarkError) as caught:
        launcher.allocate(wanted(2, run_id="late"), cancelled=lambda: bool(said))
    assert caught.value.layer is Layer.INTERRUPT
    assert launcher.leftovers("late") == []


def test_cancelled_by_hand(allocate: Allocate, step: StepOf, slurm: LocalSlurm) -> None:
    """Somebody's scancel is not taken for a crash of the worker."""
    allocation = allocate(2)
    worker = allocation.start(step(allocation.nodes[1], "sleep 300"))
    slurm.ask("scancel", allocation.id)
    assert eventually(lambda: allocation.lost() is not None, 10)
    assert "cancelled" in str(allocation.lost())
    assert worker.wait(10) is not None
    with pytest.raises(ServemarkError) as caught:
        allocation.start(step(allocation.nodes[0], "true", "late"))
    assert (caught.value.key, caught.value.layer) == ("launch.slurm_lost", Layer.ALLOCATION)


def test_worker_that_dies(allocate: Allocate, step: StepOf) -> None:
    """Its status and its last words come back, and the allocation stands."""
    allocation = allocate(2)
    worker = allocation.start(
        step(allocation.nodes[1], "sleep 0.3; echo 'CUDA error: out of memory'; kill -SEGV $$")
    )
    assert worker.wait(10) == ExitStatus(signal=signal.SIGSEGV)
    assert "out of memory" in worker.log_tail()
    assert allocation.lost() is None


def test_node_killed(allocate: Allocate, step: StepOf, slurm: LocalSlurm) -> None:
    """Slurm needs its SlurmdTimeout (5 s here) to notice; then the failed node is named."""
    allocation = allocate(3)
    allocation.start(step(allocation.nodes[1], "sleep 300"))
    slurm.do("kill-node", "n2")
    assert eventually(lambda: allocation.lost() is not None, 60)
    words = str(allocation.lost())
    assert "node failed" in words and "n2" in words and "n1" not in words
    allocation.release()


def test_node_that_hangs(allocate: Allocate, step: StepOf, slurm: LocalSlurm) -> None:
    """A stopped slurmd answers nobody: no step starts there, the node is named, and release does not hang."""
    allocation = allocate(2)
    slurm.do("signal-node", "n2", "STOP")
    try:
        assert eventually(lambda: allocation.lost() is not None, 60)
        assert "n2" in str(allocation.lost())
    finally:
        slurm.do("signal-node", "n2", "CONT")
    allocation.release()


def test_controller_killed_and_back(allocate: Allocate, step: StepOf, slurm: LocalSlurm) -> None:
    """Running steps do not notice; the allocation is not called lost; new steps wait until it is back."""
    allocation = allocate(2)
    worker = allocation.start(step(allocation.nodes[0], "sleep 300"))
    assert slurm.saved()
    slurm.do("kill-ctl")
    assert eventually(lambda: allocation.watch.unreachable_since is not None, 40)
    assert worker.poll() is None and allocation.lost() is None
    slurm.do("start-ctl")
    assert eventually(lambda: allocation.watch.unreachable_since is None, 40)
    assert allocation.lost() is None and worker.poll() is None
    late = allocation.start(step(allocation.nodes[1], "exit 0", "late"))
    assert late.wait(20) == ExitStatus(exit_code=0)


def test_release_while_the_controller_is_down(allocate: Allocate, slurm: LocalSlurm) -> None:
    """The keeper reads the end from our file, so the job is over when the controller comes back."""
    allocation = allocate(1)
    assert slurm.saved()
    slurm.do("kill-ctl")
    allocation.release()
    slurm.do("start-ctl")
    assert eventually(slurm.idle, 30)


_ORPHAN = """
import sys, time
from pathlib import Path
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch.allocation import AllocationRequest, NodeGroup, StepRequest
from servemark.launch.slurm import SlurmLauncher
folder = Path(sys.argv[1])
launcher = SlurmLauncher(LaunchCluster("here", "slurm", partition="batch"), folder / "state", silence_s=3.0)
held = launcher.allocate(AllocationRequest("orphan", (NodeGroup("workers", 2),), 600, 30.0))
deaf = 'trap "" TERM; setsid sh -c "trap : TERM; while :; do sleep 1; done" & while :; do sleep 0.2; done'
for node in held.nodes:
    argv = ("/bin/sh", "-c", deaf)
    held.start(StepRequest("deaf", node, argv, folder / "logs" / f"{node.name}.log", folder))
print(held.id, flush=True)
time.sleep(300)
"""


def test_launcher_killed(slurm: LocalSlurm, tmp_path: Path) -> None:
    """kill -9 of the launcher: after its silence the keeper ends the job, steps that ignore SIGTERM included."""
    process = subprocess.Popen(
        [sys.executable, "-c", _ORPHAN, str(slurm.shared)],
        stdout=subprocess.PIPE,
        env=os.environ | {"LANG": "C"},
    )
    assert process.stdout is not None
    job = process.stdout.readline().decode().strip()
    assert job.isdigit() and slurm.processes("SERVEMARK_STEP_MARK=")
    process.kill()
    process.wait()
    process.stdout.close()
    assert eventually(lambda: not slurm.ask("squeue", "-h", "-j", job).strip(), 30)
    assert eventually(lambda: not slurm.processes("SERVEMARK_STEP_MARK="), 5)
    log = slurm.shared / "state" / f"allocation-orphan-{job}.log"
    assert "no sign of the launcher for 3 s" in log.read_text(encoding="utf-8")
    assert len(list((slurm.shared / "logs").glob("n?.log"))) == 2


def test_restart_is_a_new_attempt(launcher: SlurmLauncher, allocate: Allocate, slurm: LocalSlurm) -> None:
    """Somebody requeues the job by force: the keeper refuses to run again, and the allocation says so."""
    allocation = allocate(1)
    slurm.ask("scontrol", "update", f"jobid={allocation.id}", "requeue=1")
    slurm.ask("scontrol", "requeue", allocation.id)
    assert eventually(lambda: allocation.lost() is not None, 20)
    assert "started it again" in str(allocation.lost())
    assert launcher.attach(allocation.id) is None


def test_full_disk_stops_nothing_but_the_logs(
    slurm: LocalSlurm, cluster: LaunchCluster, step: StepOf
) -> None:
    """The launcher's disk is full: the heartbeat goes on (no block is needed), the run is released, nothing is left."""
    disk = slurm.shared / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], check=True)
    try:
        # Nodes that were started before do not see a later mount; only the launcher's own files lie on it.
        launcher = SlurmLauncher(cluster, slurm.shared / "state", silence_s=3.0, commands=SlurmCommands())
        allocation = launcher.allocate(wanted(1, run_id="full"))
        log = disk / "worker.log"
        loud = "while :; do echo 0123456789012345678901234567890123456789; done"
        worker = allocation.start(step(allocation.nodes[0], loud, log_path=log))
        assert eventually(lambda: log.stat().st_size >= 200_000, 20)
        time.sleep(4.0)
        assert allocation.lost() is None
        worker.stop(0.5)
        allocation.release()
        assert launcher.leftovers("full") == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)
        disk.rmdir()


def test_state_folder_on_a_full_disk(slurm: LocalSlurm, cluster: LaunchCluster) -> None:
    """Nothing is submitted when the keeper's files cannot be written, and the message names the disk."""
    disk = slurm.shared / "tiny"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(disk)], check=True)
    try:
        (disk / "filler").write_bytes(b"x" * 4096)
        with pytest.raises(ServemarkError) as caught:
            SlurmLauncher(cluster, disk).allocate(wanted(run_id="nodisk"))
        assert caught.value.layer is Layer.HOME
        assert [path.name for path in disk.iterdir()] == ["filler"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)
        disk.rmdir()
    assert not slurm.ask("squeue", "-h").strip()


def test_nodes_that_do_not_share_our_folder(
    slurm: LocalSlurm, cluster: LaunchCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tmpfs that only the launcher sees: the job ends itself, and the reason is said."""
    monkeypatch.setattr("servemark.launch.slurm._SHARED_S", 1.0)
    disk = slurm.shared / "mine"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], check=True)
    try:
        with pytest.raises(ServemarkError) as caught:
            SlurmLauncher(cluster, disk, silence_s=3.0).allocate(wanted(run_id="apart"))
        assert caught.value.key == "launch.slurm_not_shared"
    finally:
        subprocess.run(["umount", str(disk)], check=True)
        shutil.rmtree(disk)  # below the mount lies the job's log, which the node wrote


CANARY = "canary-5f1d0c7e9b"


def test_secrets_are_shown_nowhere(
    allocate: Allocate, launcher: SlurmLauncher, step: StepOf, slurm: LocalSlurm
) -> None:
    """The step gets its secret; no command line, no view of Slurm, no log and no file holds it."""
    allocation = allocate(1)
    node = allocation.nodes[0]
    request = step(
        node, 'test "$TOKEN" = "$(echo canary-)5f1d0c7e9b" && sleep 300', secret_env={"TOKEN": CANARY}
    )
    worker = allocation.start(request)
    assert worker.wait(1.0) is None, worker.log_tail()
    seen = [slurm.ask("squeue", "--all", "-o", "%all"), slurm.ask("squeue", "--steps", "-o", "%all")]
    seen += [
        slurm.ask("scontrol", "show", "job", allocation.id, "--details"),
        slurm.ask("scontrol", "show", "step"),
    ]
    seen += [" ".join(allocation.argv(request)), repr(request), " ".join(launcher.describe(request))]
    seen += [slurm.ask("scontrol", "write", "batch_script", allocation.id, "-")]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                seen.append((entry / "cmdline").read_bytes().decode("utf-8", "replace"))
            except OSError:
                continue
    assert not [text for text in seen if CANARY in text]
    worker.stop()
    allocation.release()
    places = [
        slurm.shared,
        slurm.folder / "log",
        slurm.folder / "state",
        slurm.folder / "nodes",
        request.log_path.parent,
    ]
    holding = [
        path
        for place in places
        for path in place.rglob("*")
        if path.is_file() and CANARY.encode() in path.read_bytes()
    ]
    assert not holding
