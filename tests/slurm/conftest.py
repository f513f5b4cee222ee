"""A real four-node Slurm for the tests: up once a session, down at its end, with nothing left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch.allocation import AllocatedNode, AllocationRequest, NodeGroup, StepRequest
from servemark.launch.slurm import SlurmLauncher
from servemark.launch.slurm_allocation import SlurmAllocation
from servemark.launch.slurm_commands import SlurmCommands

HERE = Path(__file__).parent
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "ip", "unshare", "nsenter")


class LocalSlurm:
    """The cluster as the tests hurt it."""

    def __init__(self, folder: Path, number: int, spank: Path | None) -> None:
        self.folder = folder
        self.shared = folder.parent / "shared"
        self.shared.mkdir()
        self.spank = spank
        self.env = {**os.environ, "LS_DIR": str(folder), "LS_ID": str(number)}
        if spank is not None:
            self.env["LS_SPANK"] = f"required {spank}"

    def do(self, *words: str, budget_s: float = 90.0) -> str:
        """One verb of the script; its output."""
        # Output goes to a file: the daemons inherit it, and a pipe would stay open as long as they live.
        with tempfile.TemporaryFile() as out:
            done = subprocess.run(
                ["bash", str(HERE / "local-slurm"), *words],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=budget_s,
                check=False,
            )
            out.seek(0)
            said = out.read().decode("utf-8", "replace")
        assert done.returncode == 0, f"local-slurm {' '.join(words)}: {said}"
        return said

    def ask(self, *argv: str) -> str:
        """A Slurm command's output."""
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False).stdout

    def processes(self, needle: str) -> list[int]:
        """Living processes of the host and of all nodes, with this cluster's configuration, whose environment holds
        the text."""
        found, own = [], str(self.folder).encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    held = (entry / "environ").read_bytes()
                    if needle.encode() in held and own in held:
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def saved(self) -> bool:
        """Wait until the controller has written the jobs of now to its disk, so that a killed one knows them again."""
        now, file = time.time(), self.folder / "state" / "job_state"
        for job in self.ask("squeue", "-h", "-o", "%A").split():  # a change that it has to write down
            self.ask("scontrol", "update", f"jobid={job}", f"comment=saved-{now:.0f}")
        return eventually(lambda: file.exists() and file.stat().st_mtime > now, 15.0)

    def idle(self) -> bool:
        """No job, and all nodes ready for one."""
        states = self.ask("sinfo", "-h", "-N", "-p", "batch", "-o", "%T").split()
        return not self.ask("squeue", "-h").strip() and states == ["idle"] * 4


def eventually(condition: Callable[[], bool], budget_s: float = 20.0) -> bool:
    """True as soon as the condition holds, False when it does not within the budget."""
    deadline = time.monotonic() + budget_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _missing() -> str | None:
    """Why there can be no cluster here; None when there can."""
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin:/sbin"
    missing = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: slurmctld slurmd slurm-client munge iproute2)"
    if os.geteuid() != 0:
        return "the test cluster needs root for its network namespaces"
    argv = ["unshare", "--net", "--uts", "--mount", "--ipc", "--pid", "--fork", "ip", "link", "add", "probe"]
    tried = subprocess.run(
        [*argv, "type", "bridge"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode != 0:
        return f"no network namespaces with a bridge here: {tried.stderr.strip()[:200]}"
    return None


def _spank(folder: Path) -> Path | None:
    """The container plugin, built; None where there is no compiler or no header."""
    built = folder / "container_spank.so"
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    argv = [
        compiler,
        "-Wall",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        str(built),
        str(HERE / "container_spank.c"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 or "spank.h" in done.stderr, done.stderr
    return built if done.returncode == 0 else None


def _free_number() -> int:
    taken = {entry.name for entry in Path("/sys/class/net").iterdir()}
    return (
        next(n for n in (os.getpid() % 200 + step for step in range(200)) if f"lsbr{n % 200}" not in taken)
        % 200
    )


@pytest.fixture(scope="session")
def standing_cluster() -> Iterator[LocalSlurm]:
    """One cluster for all tests of the session."""
    missing = _missing()
    if missing is not None:
        pytest.skip(missing)
    root = Path(tempfile.mkdtemp(prefix="slurm-test-", dir="/var/tmp"))
    found = LocalSlurm(root / "cluster", _free_number(), _spank(root))
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(found.folder / "etc" / "slurm.conf")
    try:
        found.do("up")
        yield found
    finally:
        found.do("down")
        shutil.rmtree(root)
        if before is None:
            os.environ.pop("SLURM_CONF", None)
        else:
            os.environ["SLURM_CONF"] = before
        left = found.processes(str(root))
        assert not left, f"left behind: {left}"


@pytest.fixture
def slurm(standing_cluster: LocalSlurm) -> Iterator[LocalSlurm]:
    """The cluster, whole and idle before and after the test."""
    yield standing_cluster
    standing_cluster.do("up")
    assert eventually(standing_cluster.idle, 30.0), standing_cluster.ask("squeue") + standing_cluster.ask(
        "sinfo"
    )
    left = list((standing_cluster.shared / "state").glob("slurm-*"))
    assert not left, left
    assert not standing_cluster.processes("SERVEMARK_STEP_MARK=")


@pytest.fixture
def cluster(slurm: LocalSlurm) -> LaunchCluster:
    """The cluster as its file would describe it."""
    return LaunchCluster("here", "slurm", partition="batch", gpus_per_node=8, mounts=(slurm.shared,))


@pytest.fixture
def launcher(slurm: LocalSlurm, cluster: LaunchCluster) -> SlurmLauncher:
    """Ends a job after 4 s of silence."""
    state = slurm.shared / "state"
    state.mkdir(exist_ok=True)
    return SlurmLauncher(cluster, state, silence_s=4.0, commands=SlurmCommands(patience_s=20.0))


def wanted(nodes: int = 1, gpus: int = 0, run_id: str = "test", **more: float) -> AllocationRequest:
    """A request for one group."""
    wait_s = more.get("wait_s", 30.0)
    return AllocationRequest(
        run_id, (NodeGroup("workers", nodes, gpus),), int(more.get("time_limit_s", 600)), wait_s
    )


Allocate = Callable[..., SlurmAllocation]


@pytest.fixture
def allocate(launcher: SlurmLauncher) -> Iterator[Allocate]:
    """Allocations that are released at the end of the test."""
    held: list[SlurmAllocation] = []

    def begin(nodes: int = 1, gpus: int = 0, run_id: str = "test", **more: float) -> SlurmAllocation:
        held.append(launcher.allocate(wanted(nodes, gpus, run_id, **more)))
        return held[-1]

    yield begin
    for allocation in held:
        allocation.release()


StepOf = Callable[..., StepRequest]


@pytest.fixture
def step(tmp_path: Path) -> StepOf:
    """A shell line as a step on a node."""

    def make(node: AllocatedNode, script: str, name: str = "worker", **more: object) -> StepRequest:
        fields: dict[str, object] = {"argv": ("/bin/sh", "-c", script), "work_dir": tmp_path, "grace_s": 1.0}
        fields |= {"log_path": tmp_path / f"{name}.log", "env": {}, **more}
        return StepRequest(name=name, node=node, **fields)  # type: ignore[arg-type]  # fields are named by the tests

    return make
