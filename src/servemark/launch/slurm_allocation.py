"""A Slurm job that is ours: its nodes, steps on them, free ports there, and its end."""

from __future__ import annotations

import contextlib
import os
import random
import re
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import make_folder
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch.allocation import AllocatedNode, Step, StepRequest
from servemark.launch.process import start_worker
from servemark.launch.slurm_commands import SlurmCommands, clean_env
from servemark.launch.slurm_options import exported, step_argv
from servemark.launch.slurm_step import SlurmStep, await_step
from servemark.launch.slurm_watch import Heartbeat, Watch, read_job, wait_for

SWEEP_SCRIPT = Path(__file__).with_name("slurm_sweep.sh")
STATE_FILES = ("beat", "keeper", ".keeper", "sweep.sh", "request.json", "job")
_PORTS = (
    "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; echo range $(cat /proc/sys/net/ipv4/ip_local_port_range)"
)
_PORT_SNAPSHOT_S = 5.0
_LOWEST_PORT = 10_000
_STEP_START_S = 120.0
_RELEASE_S = 40.0
_HURRY_S = 10.0
"""A controller or a node that is silent for longer does not hold up a release: the keeper ends the job."""
_MANY = 16
_SETTLE_S = 15.0
"""Slurm tells of a node that died some seconds after the steps on it have ended."""
_ENDED_BY_SLURM = re.compile(
    r"(?i)node failure on|not responding|job step aborted|CANCELLED AT|STEP .* CANCELLED|forcing job termination"
)
_RETRIED = re.compile(
    r"(?i)unable to contact slurm controller|socket timed out|zero bytes|unable to confirm allocation|"
    r"job/step already completing|resource temporarily unavailable|memory required by task is not available"
)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a node stands in the job: its component of a heterogeneous job, None in a plain one."""

    node: AllocatedNode
    het_group: int | None


def scratch_of(cluster: LaunchCluster, mark: str) -> Path:
    """Where a job's steps work on each node; the sweep removes nothing that is not named so."""
    return cluster.scratch / f"servemark-{mark}"


class SlurmAllocation:
    """One job. Threads may share it; `release` may be called twice and at any time."""

    def __init__(
        self,
        commands: SlurmCommands,
        cluster: LaunchCluster,
        job_id: str,
        *,
        placed: Sequence[Placed],
        state: Path,
        mark: str,
        silence_s: float,
    ) -> None:
        """`state`: the folder that the keeper watches; `mark`: what every process of the job carries."""
        self.scratch = scratch_of(cluster, mark)
        self.id = job_id
        self.nodes = tuple(place.node for place in placed)
        self.mark = mark
        self.steps: list[SlurmStep] = []
        self._commands = commands
        self._cluster = cluster
        self._groups = {place.node.name: place.het_group for place in placed}
        self._state = state
        self._lock = threading.Lock()
        self._released = False
        self._ports: dict[str, tuple[float, set[int], int]] = {}
        self._handed: set[tuple[str, int]] = set()
        self._heart = Heartbeat(state / "beat")
        self.watch = Watch(commands, job_id, tuple(node.name for node in self.nodes), self._heart, silence_s)
        self.watch.start()

    def argv(self, request: StepRequest) -> list[str]:
        """The srun command line of a step."""
        return step_argv(self._cluster, request, self.id, self._groups.get(request.node.name), self.mark)

    def start(self, request: StepRequest) -> SlurmStep:
        """Start a step and wait until its program runs.

        Raises ServemarkError: layer launch when it cannot be started, layer image when its container cannot, layer
        allocation when the job is gone.
        """
        deadline = time.monotonic() + self._commands.patience_s
        while True:
            self._require()
            try:
                return self._start(request)
            except ServemarkError as error:
                # A controller that is being restarted refuses new steps, and running ones do not notice.
                reason = str(error.values.get("reason", ""))
                if not _RETRIED.search(reason) or time.monotonic() >= deadline:
                    self._require(look=True)
                    raise
            time.sleep(1.0)

    def _start(self, request: StepRequest) -> SlurmStep:
        argv = self.argv(request)
        if request.container is not None and request.container.own:
            for node in (
                request.node,
                *request.also,
            ):  # a container's mounts have to be there before it starts
                self.tell(node, ["/bin/mkdir", "-p", "-m", "700", "--", str(request.work_dir)])
        folder = request.log_path.parent
        make_folder(folder)
        worker = start_worker(
            argv,
            exported(request, self.mark),
            base_url="",
            log_path=request.log_path,
            work_dir=folder,
            grace_s=1.0,
        )
        try:
            step_id, pid = await_step(worker, request, _STEP_START_S)
        except BaseException:  # also an interrupt must not leave srun behind
            worker.stop(0.5)
            raise
        step = SlurmStep(request, worker, self._commands, step_id, pid)
        with self._lock:
            self.steps.append(step)
        return step

    def _require(self, *, look: bool = False) -> None:
        words = self.watch.look() if look else self.watch.lost
        if words is not None:
            raise ServemarkError("launch.slurm_lost", Layer.ALLOCATION, reason=words)

    def lost(self) -> str | None:
        """Why the allocation is gone, None while it stands (also while the controller is out of reach)."""
        return self.watch.lost

    def lost_nodes(self) -> tuple[str, ...]:
        """Nodes whose failure ended the job."""
        return self.watch.lost_nodes

    def settle(self, step: Step) -> None:
        """Where srun says that a node failed, or that its step was cancelled, wait until Slurm says so of the job."""
        if _ENDED_BY_SLURM.search(step.log_tail(4096)):
            wait_for(lambda: self.watch.look() is not None, _SETTLE_S, 0.3)

    def work_root(self, default: Path) -> Path:
        """A folder of each node's own, removed by the sweep."""
        return self.scratch

    def clean(self) -> None:
        """Empty the scratch folders of all nodes."""
        self._everywhere(["/bin/rm", "-rf", "--", str(self.scratch)])

    def facts(self) -> dict[str, object]:
        """Cluster, job id, nodes, Slurm's version, and the folder whose keeper holds the job."""
        nodes = [{"name": node.name, "address": node.address, "group": node.group} for node in self.nodes]
        year, month = self._commands.version()
        return {
            "launcher": "slurm",
            "cluster": self._cluster.name,
            "id": self.id,
            "nodes": nodes,
            "slurm_version": f"{year}.{month:02}",
            "state": str(self._state),
        }

    def live_steps(self) -> tuple[tuple[str, str], ...]:
        """(step id, name) of what Slurm runs in the job, the keeper left out; for re-attaching."""
        reply = self._commands.ask(["squeue", "--steps", "--noheader", "--format=%i|%j", f"--jobs={self.id}"])
        pairs = [line.strip().partition("|") for line in reply.out.splitlines() if "|" in line]
        return tuple((step, name) for step, _, name in pairs if not step.endswith((".batch", ".extern")))

    def free_ports(self, node: AllocatedNode, count: int) -> Sequence[int]:
        """Ports on which nothing listens on that node, below its range for outgoing connections; never the same twice."""
        with self._lock:
            taken, low = self._listening(node)
            candidates = [
                port
                for port in range(_LOWEST_PORT, max(low, _LOWEST_PORT))
                if port not in taken and (node.name, port) not in self._handed
            ]
            if len(candidates) < count:
                raise ServemarkError(
                    "launch.no_port", Layer.LAUNCH, host=node.name, reason=f"{len(candidates)} < {count}"
                )
            chosen = random.SystemRandom().sample(candidates, count)
            self._handed.update((node.name, port) for port in chosen)
            return chosen

    def _listening(self, node: AllocatedNode) -> tuple[set[int], int]:
        at, taken, low = self._ports.get(node.name, (0.0, set(), 0))
        if not low or time.monotonic() - at > _PORT_SNAPSHOT_S:
            out = self.tell(node, ["/bin/sh", "-c", _PORTS])
            taken, low = ports_of(out)
            self._ports[node.name] = (time.monotonic(), taken, low)
        return taken, low

    def tell(self, node: AllocatedNode, argv: Sequence[str]) -> str:
        """The output of a short command on a node. Raises ServemarkError (launch) when it fails."""
        reply = self._commands.ask(
            self._srun(self._groups.get(node.name), [f"--nodelist={node.name}", "--nodes=1"], argv)
        )
        if reply.rc != 0:
            self._require(look=True)
            raise ServemarkError(
                "launch.slurm_step_refused",
                Layer.LAUNCH,
                step=Path(argv[0]).name,
                node=node.name,
                status=f"exit {reply.rc}",
                reason=reply.reason,
                log="—",
            )
        return reply.out

    def _srun(self, het_group: int | None, where: Sequence[str], argv: Sequence[str]) -> list[str]:
        line = ["srun", f"--jobid={self.id}", "--overlap", "--mem=0", "--ntasks-per-node=1", "--input=none"]
        line += [f"--export={','.join(name for name in clean_env() if name != 'SLURM_CONF')}"]
        if het_group is not None:
            line.append(f"--het-group={het_group}")
        return [*line, *where, "--", *argv]

    def sweep(self) -> str:
        """Kill on every node what carries our mark and is still there; what was found, in the sweep's words."""
        script = SWEEP_SCRIPT.read_text(encoding="utf-8")
        return self._everywhere(["/bin/sh", "-c", script, "sweep", self.mark, str(self.scratch)])

    def _sweep_after(self) -> None:
        """The job has ended, and with it the way onto its nodes: a job of seconds sweeps those that are free now."""
        cluster, script = self._cluster, SWEEP_SCRIPT.read_text(encoding="utf-8")
        nodes = [node.name for node in self.nodes if node.name not in self.watch.lost_nodes]
        line = ["srun", f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}", "--ntasks-per-node=1"]
        line += ["--immediate=5", "--time=1", "--input=none", "--export=PATH", "--job-name=servemark-sweep"]
        line += [f"--partition={cluster.partition}"] if cluster.partition else []
        line += [f"--account={cluster.account}"] if cluster.account else []
        if nodes:
            argv = [
                *line,
                *cluster.sbatch,
                "--",
                "/bin/sh",
                "-c",
                script,
                "sweep",
                self.mark,
                str(self.scratch),
            ]
            self._commands.once(argv, timeout_s=_HURRY_S)

    def _everywhere(self, argv: Sequence[str]) -> str:
        """The output of a short command on all nodes at once; what fails is left to the sweep and the keeper."""
        words = []
        for group in dict.fromkeys(self._groups.values()):
            count = sum(1 for other in self._groups.values() if other == group)
            line = self._srun(group, [f"--nodes={count}"], argv)
            words.append(self._commands.once(line, timeout_s=_HURRY_S).out)
        return "".join(words)

    def release(self) -> None:
        """End every step, sweep the nodes, give them back, remove the state folder; logs stay."""
        with self._lock:
            if self._released:
                return
            self._released = True
            steps = list(self.steps)
        stands = self.watch.lost is None
        self._stop_all(steps)
        if stands and self.watch.unreachable_since is None:
            self.sweep()
        self.watch.stop()
        self._heart.end()
        if not stands:
            self._sweep_after()
        if not self._commands.once(["scancel", self.id], timeout_s=_HURRY_S).transient:
            wait_for(self._job_gone, _RELEASE_S, 0.1)
        self._heart.close()
        remove_state(self._state)
        for log in self._state.parent.glob(f"allocation-*-{self.id}.log"):
            with contextlib.suppress(OSError):
                if log.stat().st_size == 0:  # the keeper had nothing to say
                    log.unlink()

    def _stop_all(self, steps: Sequence[SlurmStep]) -> None:
        """All at once: each has its own grace. The last started are asked first, so that clients end before servers."""
        if steps:
            with ThreadPoolExecutor(min(_MANY, len(steps))) as pool:
                list(pool.map(lambda step: step.stop(), reversed(steps)))

    def _job_gone(self) -> bool:
        """Whether the job has ended on all nodes; with the controller out of reach its keeper ends it."""
        jobs = read_job(self._commands, self.id)
        return jobs is None or all(
            not job.alive and not job.waiting and job.state != "COMPLETING" for job in jobs
        )


def ports_of(out: str) -> tuple[set[int], int]:
    """(ports in use, lowest port of the range for outgoing connections) from a node's tables; 32768 when unsaid."""
    taken: set[int] = set()
    low = 32768
    for line in out.splitlines():
        words = line.split()
        if words[:1] == ["range"] and len(words) > 1 and words[1].isdigit():
            low = int(words[1])
        elif len(words) > 3 and words[0].endswith(":") and ":" in words[1]:
            with contextlib.suppress(ValueError):
                taken.add(int(words[1].rpartition(":")[2], 16))
    return taken, low


def remove_state(folder: Path) -> None:
    """Remove the keeper's files and folder; anything that we did not put there stays."""
    for name in STATE_FILES:
        with contextlib.suppress(OSError):
            (folder / name).unlink()
    with contextlib.suppress(OSError):
        os.rmdir(folder)  # noqa: PTH106 - only when empty
