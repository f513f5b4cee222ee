"""The launcher for Slurm clusters, over Slurm's own commands: one batch job a run, its roles as steps of it.

The batch job runs nothing but a keeper that ends it when the launcher falls silent (`slurm_keeper.sh`), so an orphaned
job cannot hold nodes. Everything else is an `srun --overlap` step, started from the launcher's host.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.base.files import make_folder, write_atomic
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch.allocation import AllocatedNode, AllocationRequest, NodeGroup, StepRequest
from servemark.launch.local_allocation import describe_env
from servemark.launch.slurm_allocation import SWEEP_SCRIPT, Placed, SlurmAllocation, remove_state, scratch_of
from servemark.launch.slurm_commands import SlurmCommands
from servemark.launch.slurm_options import (
    STEP_SCRIPT,
    allocation_refused,
    components,
    job_name,
    sbatch_argv,
    step_argv,
)
from servemark.launch.slurm_state import JobState, jobs_of_json, jobs_of_text, nodes_of_text
from servemark.launch.slurm_watch import Heartbeat, end_words, read_job, wait_for

KEEPER_SCRIPT = Path(__file__).with_name("slurm_keeper.sh")
DEFAULT_SILENCE_S = 60.0
"""How long the launcher may be silent before its job ends: longer than any pause of a shared file system."""
_POLL_S = 0.2
_LONGEST_POLL_S = 5.0
_SHARED_S = 30.0
_NEVER_TWICE = 2


@dataclass(frozen=True, slots=True)
class _Job:
    """What is known of a job from its submission on."""

    job_id: str
    state: Path
    mark: str


class SlurmLauncher:
    """Allocates on one cluster. `state_dir` lies on a file system that the nodes share with this host."""

    name = "slurm"

    def __init__(
        self,
        cluster: LaunchCluster,
        state_dir: Path,
        *,
        silence_s: float = DEFAULT_SILENCE_S,
        commands: SlurmCommands | None = None,
    ) -> None:
        """`silence_s`: seconds without a sign of the launcher after which the job ends itself."""
        self.cluster = cluster
        self.state_dir = state_dir
        self.silence_s = silence_s
        self.commands = commands or SlurmCommands()

    def allocate(
        self,
        request: AllocationRequest,
        *,
        on_wait: Callable[[float, str], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
        on_id: Callable[[str], None] | None = None,
    ) -> SlurmAllocation:
        """Block until the nodes are ours. `on_wait` gets seconds waited and Slurm's reason, `on_id` the job's id.

        Raises ServemarkError: layer input for what can never be given, layer allocation for refusals, time-outs and
        jobs that end while they wait, layer interrupt when `cancelled`. Nothing stays in the queue then.
        """
        if not request.groups or any(group.nodes < 1 or group.gpus < 0 for group in request.groups):
            raise input_error("launch.no_nodes", run_id=request.run_id[:80])
        job = self._submit(request)
        heart = Heartbeat(job.state / "beat")
        try:
            if on_id is not None:
                on_id(job.job_id)
            running = self._await(request, job, heart, on_wait, cancelled)
            placed = self._placed(request, running)
            return self._allocation(job, placed)
        except BaseException:  # also an interrupt must not leave a job waiting
            heart.end()
            with contextlib.suppress(ServemarkError):
                self.commands.ask(["scancel", job.job_id], patience_s=2.0)
            remove_state(job.state)
            raise
        finally:
            heart.close()

    def _allocation(self, job: _Job, placed: Sequence[Placed]) -> SlurmAllocation:
        return SlurmAllocation(
            self.commands,
            self.cluster,
            job.job_id,
            placed=placed,
            state=job.state,
            mark=job.mark,
            silence_s=self.silence_s,
        )

    def _submit(self, request: AllocationRequest) -> _Job:
        mark = secrets.token_hex(8)
        state = self.state_dir.absolute() / f"slurm-{mark}"
        log = self.state_dir.absolute() / f"allocation-{request.run_id}-%j.log"
        groups = len(components(request.groups))
        period = max(1, min(5, int(self.silence_s / 6)))
        script = [
            str(KEEPER_SCRIPT),
            str(state),
            str(max(1, round(self.silence_s))),
            str(period),
            mark,
            str(groups),
            str(scratch_of(self.cluster, mark)),
        ]
        argv = sbatch_argv(self.cluster, request, script, log, self.commands.version())
        make_folder(state)
        try:
            state.chmod(0o700)
            body = {
                "run_id": request.run_id,
                "mark": mark,
                "groups": [asdict(group) for group in request.groups],
            }
            write_atomic(state / "request.json", json.dumps(body, ensure_ascii=False).encode())
            write_atomic(state / "sweep.sh", SWEEP_SCRIPT.read_bytes())
            Heartbeat(state / "beat").close()
            job_id = self._sbatch(argv, request)
            write_atomic(state / "job", job_id.encode("ascii"))
        except BaseException:  # no job, no state, whatever the cause
            remove_state(state)
            raise
        return _Job(job_id, state, mark)

    def _sbatch(self, argv: Sequence[str], request: AllocationRequest) -> str:
        """Submit once. A controller that took the job and then fell silent must not be given it twice."""
        reply = self.commands.once(argv)
        deadline = time.monotonic() + self.commands.patience_s
        while reply.transient and time.monotonic() < deadline:
            time.sleep(1.0)
            held = self._jobs_named(job_name(request.run_id))
            if held:
                return held[0].job_id
            if held is not None:
                reply = self.commands.once(argv)
        job_id = reply.out.strip().partition(";")[0]
        if reply.rc != 0 or not job_id.isdigit():
            raise allocation_refused(reply.reason, self.cluster)
        return job_id

    def _await(
        self,
        request: AllocationRequest,
        job: _Job,
        heart: Heartbeat,
        on_wait: Callable[[float, str], None] | None,
        cancelled: Callable[[], bool] | None,
    ) -> tuple[JobState, ...]:
        begun, pause_s, never = time.monotonic(), _POLL_S, 0
        while True:
            heart.beat()
            if cancelled is not None and cancelled():
                raise ServemarkError("launch.wait_cancelled", Layer.INTERRUPT)
            waited_s = time.monotonic() - begun
            jobs = read_job(self.commands, job.job_id)
            if jobs is not None and jobs and all(one.alive for one in jobs):
                self._require_shared(job, heart, cancelled)
                return jobs
            reason = self._waiting_reason(job, jobs, request)
            never = never + 1 if jobs and any(one.never for one in jobs) else 0
            if never >= _NEVER_TWICE:
                raise self._never(request, reason)
            if waited_s >= request.wait_s:
                raise ServemarkError(
                    "launch.slurm_wait",
                    Layer.ALLOCATION,
                    seconds=f"{request.wait_s:g}",
                    reason=reason,
                    cluster=self.cluster.name,
                )
            if on_wait is not None:
                on_wait(waited_s, reason)
            time.sleep(min(pause_s, max(0.05, request.wait_s - waited_s)))
            pause_s = min(_LONGEST_POLL_S, self.silence_s / 4, pause_s * (1.0 if waited_s < 10 else 1.3))

    def _waiting_reason(
        self, job: _Job, jobs: tuple[JobState, ...] | None, request: AllocationRequest
    ) -> str:
        """Slurm's word for why it waits; raises when the job has ended instead."""
        if jobs is None:
            return "no answer from slurmctld"
        words = end_words(self.commands, jobs, (), job.job_id)
        if words is not None:
            raise ServemarkError("launch.slurm_lost", Layer.ALLOCATION, reason=words)
        return next((one.reason for one in jobs if one.waiting and one.reason != "None"), "Priority")

    def _never(self, request: AllocationRequest, reason: str) -> ServemarkError:
        return input_error(
            "launch.slurm_never",
            reason=reason,
            nodes=sum(group.nodes for group in request.groups),
            cluster=self.cluster.name,
            partition=self.cluster.partition or "—",
        )

    def _require_shared(self, job: _Job, heart: Heartbeat, cancelled: Callable[[], bool] | None) -> None:
        """The keeper's own file shows that the nodes see our folder; without it they could not see our heartbeat."""
        keeper = job.state / "keeper"

        def seen() -> bool:
            heart.beat()
            return keeper.exists() or (cancelled is not None and cancelled())

        if not wait_for(seen, _SHARED_S, 0.05):
            jobs = read_job(self.commands, job.job_id)
            words = end_words(self.commands, jobs, (), job.job_id) if jobs is not None else None
            if words is not None:
                raise ServemarkError("launch.slurm_lost", Layer.ALLOCATION, reason=words)
            raise ServemarkError("launch.slurm_not_shared", Layer.ALLOCATION, path=str(self.state_dir))

    def _placed(self, request: AllocationRequest, jobs: Sequence[JobState]) -> list[Placed]:
        """Slurm's nodes, in its order, dealt to the groups in theirs."""
        parts = components(request.groups)
        addresses = self._addresses(jobs)
        placed = []
        for offset, groups in enumerate(parts):
            names = list(self.commands.hostnames(jobs[offset].nodes))
            if len(names) < sum(group.nodes for group in groups):
                raise allocation_refused(jobs[offset].nodes or "—", self.cluster)
            for group in groups:
                for _ in range(group.nodes):
                    name = names.pop(0)
                    address = addresses.get(name, name)
                    node = AllocatedNode(name, group.group, address, tuple(range(group.gpus)))
                    placed.append(Placed(node, offset if len(parts) > 1 else None))
        return placed

    def _addresses(self, jobs: Sequence[JobState]) -> dict[str, str]:
        """Node -> numeric address where one can be found: NodeAddr is a name on most clusters."""
        wanted = ",".join(job.nodes for job in jobs)
        reply = self.commands.ask(["scontrol", "show", "node", "--oneliner", wanted])
        found = {}
        for node in nodes_of_text(reply.out):
            written = node.address or node.name
            found[node.name] = written
            with contextlib.suppress(OSError):
                found[node.name] = str(socket.getaddrinfo(written, None, type=socket.SOCK_STREAM)[0][4][0])
        return found

    def attach(self, allocation_id: str) -> SlurmAllocation | None:
        """A live allocation of an earlier launcher by its job id; None when it has ended or is not ours.

        Its steps ended with the launcher that started them (their srun was its child), what Slurm still runs of them
        is in `live_steps`; the nodes stay, and that is what took the waiting.
        """
        job = self._held(allocation_id)
        jobs = read_job(self.commands, allocation_id) if job is not None else None
        if job is None or not jobs or not all(one.alive and not one.restarts for one in jobs):
            return None
        try:
            body = json.loads((job.state / "request.json").read_text(encoding="utf-8"))
            groups = tuple(NodeGroup(**group) for group in body["groups"])
            request = AllocationRequest(body["run_id"], groups, 60, 0.0)
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return self._allocation(job, self._placed(request, jobs))

    def _held(self, job_id: str) -> _Job | None:
        for folder in self.state_dir.absolute().glob("slurm-*"):
            for name in ("job", "keeper"):
                with contextlib.suppress(OSError):
                    if (folder / name).read_text(encoding="ascii").strip() == job_id:
                        return _Job(job_id, folder, folder.name.removeprefix("slurm-"))
        return None

    def leftovers(self, run_id: str) -> list[str]:
        """Jobs of that run which Slurm still holds, in words for people; empty when there are none."""
        jobs = self._jobs_named(job_name(run_id))
        if jobs is None:
            return ["slurmctld: ?"]
        return [f"job {job.job_id} {job.state} {job.nodes}".rstrip() for job in jobs]

    def end_leftovers(self, run_id: str) -> list[str]:
        """End every job of a run whose launcher is gone, by its id; returns those that Slurm still holds, in words.

        Raises ServemarkError (layer allocation) when Slurm does not answer.
        """
        for job in self._jobs_named(job_name(run_id)) or ():
            held = self.attach(job.job_id)
            if held is not None:
                held.release()
            else:
                self.commands.ask(["scancel", job.job_id], patience_s=2.0)
        return self.leftovers(run_id)

    def _jobs_named(self, name: str) -> tuple[JobState, ...] | None:
        """Jobs of that name that have not ended; None when the controller does not answer."""
        reply = self.commands.once(
            ["squeue", "--noheader", "--format=%A", f"--name={name}", "--states=PD,CF,R,S,CG"]
        )
        if reply.rc != 0:
            return None
        found: list[JobState] = []
        for job_id in dict.fromkeys(reply.out.split()):
            found += [job for job in read_job(self.commands, job_id) or () if job.name == name]
        return tuple({job.job_id: job for job in found}.values())

    def describe(self, request: StepRequest) -> list[str]:
        """The srun line of a step, with `JOB` and `MARK` where an allocation's own would stand; names of secrets only.

        The step's script stands there as its file; the launcher hands its text over.
        """
        argv = step_argv(self.cluster, request, "JOB", None, "MARK")
        at = argv.index("/bin/sh")
        shown = [*argv[: at + 1], str(STEP_SCRIPT), *argv[at + 4 :]]
        return [*describe_env(replace(request, gpus=None)), *shown]


def queue(commands: SlurmCommands) -> tuple[JobState, ...]:
    """All jobs that the cluster shows: JSON where this Slurm has it, text where it has not."""
    reply = commands.ask(["squeue", "--json"])
    if reply.rc == 0:
        with contextlib.suppress(ValueError):
            return jobs_of_json(reply.out)
    return jobs_of_text(commands.ask(["scontrol", "show", "job", "--oneliner"]).out)
