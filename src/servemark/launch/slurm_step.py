"""One step of a Slurm allocation: an `srun` under the guard on this host, its program on a node.

The guard ties srun to the launcher: when the launcher goes, srun is told to end, and srun ends its step. `srun` gives
a step no grace (SIGTERM to srun kills the step at once), so the grace is asked for by `scancel --signal=TERM`.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError
from servemark.launch.allocation import AllocatedNode, StepRequest
from servemark.launch.failure import printable
from servemark.launch.process import ExitStatus, RunningWorker
from servemark.launch.slurm_commands import SlurmCommands
from servemark.launch.slurm_watch import wait_for

_STARTED = re.compile(r"^servemark-step: started (\d+(?:\+\d+)?\.\d+) on (\S+) pid (\d+)$", re.MULTILINE)
_REFUSED = re.compile(r"^servemark-step: refused (\w+)(.*)$", re.MULTILINE)
_EXITED = re.compile(r"^srun: error: \S+: tasks? [\d,-]+: Exited with exit code (\d+)", re.MULTILINE)
_SIGNALLED = re.compile(r"^srun: error: \S+: tasks? [\d,-]+: (?!Exited)\w", re.MULTILINE)
"""A task that a signal ended did run, although its last output may be lost with it."""
_CONTAINER = re.compile(
    r"(?im)^.*(?:pyxis|enroot|container|spank).*(?:fail|error|no such|does not exist|cannot|unable|already exists).*$"
)
_NODE_FAILED = re.compile(
    r"(?i)node failure on (\S+)|srun: error: Node (\S+) not responding|"
    r"task launch for \S+ failed on node (\S+): (?:communication|.*timed out|.*connection)"
)
_KILL_S = 12.0
"""srun waits 7 s for a step that it kills."""
_LOST_BYTES = 1 << 16


class SlurmStep:
    """A started step. `step_id` is Slurm's own (`17.3`), `pid` the program's on its node."""

    def __init__(
        self, request: StepRequest, worker: RunningWorker, commands: SlurmCommands, step_id: str, pid: int
    ) -> None:
        self.name = request.name
        self.node: AllocatedNode = request.node
        self.log_path: Path = request.log_path
        self.started_s = worker.started_s
        self.step_id = step_id
        self.pid = pid
        self._grace_s = request.grace_s
        self._tasks = request.tasks
        self._worker = worker
        self._commands = commands
        self._stopped: ExitStatus | None = None

    def poll(self) -> ExitStatus | None:
        """How it ended, None while it runs. A status above 128 that a signal caused comes back as the signal."""
        status = self._worker.poll()
        return None if status is None else self._told(status)

    def wait(self, timeout_s: float) -> ExitStatus | None:
        """Wait at most so long; returns at once when it ends."""
        status = self._worker.wait(timeout_s)
        return None if status is None else self._told(status)

    def _told(self, status: ExitStatus) -> ExitStatus:
        """srun says 128 + N for a task that signal N ended, and in its log that it did not exit by itself.

        Of several ranks the first that ended badly counts: srun ends the others, and reports the highest status.
        """
        code = status.exit_code
        if code and self._tasks > 1 and (first := _EXITED.search(self._worker.log_tail(_LOST_BYTES))):
            return ExitStatus(exit_code=int(first.group(1)))
        if code is None or not 128 < code < 193:
            return status
        said = _EXITED.findall(self._worker.log_tail(4096))
        return status if said and int(said[-1]) == code else ExitStatus(signal=code - 128)

    def stop(self, grace_s: float | None = None) -> ExitStatus:
        """SIGTERM, after the grace SIGKILL to all of the step; returns when Slurm no longer knows it."""
        if self._stopped is not None:
            return self._stopped
        grace_s = self._grace_s if grace_s is None else grace_s
        ended = self._worker.poll()
        if ended is None and grace_s > 0:
            self._signal("TERM")
            ended = self._worker.wait(grace_s)
        if ended is None:
            self._signal("KILL")
            ended = self._worker.wait(_KILL_S / 2)
        status = self._worker.stop(_KILL_S)
        if not self._gone():
            self._signal("KILL")
            wait_for(self._gone, _KILL_S, 0.2)
        self._stopped = self._told(ended or status)
        return self._stopped

    def _signal(self, name: str) -> None:
        if self.step_id:
            self._commands.once(["scancel", f"--signal={name}", self.step_id])

    def _gone(self) -> bool:
        """Whether Slurm has no such step any more; a controller out of reach cannot say, and is not waited for."""
        if not self.step_id:
            return True
        reply = self._commands.once(
            ["squeue", "--steps", "--noheader", "--format=%i", f"--jobs={self.step_id.partition('.')[0]}"]
        )
        return reply.rc != 0 or self.step_id not in reply.out.split()

    def log_size(self) -> int:
        """Bytes of the log so far."""
        return self._worker.log_size()

    def log_head(self, max_bytes: int = 65536) -> str:
        """The log's first bytes as text."""
        return self._worker.log_head(max_bytes)

    def log_tail(self, max_bytes: int = 8192) -> str:
        """The log's last bytes as text."""
        return self._worker.log_tail(max_bytes)

    def cpu_seconds(self) -> float | None:
        """None: the node's processes are not seen from here."""
        return None

    def rss_bytes(self) -> int | None:
        """None: the node's processes are not seen from here."""
        return None


def started_line(log: str) -> tuple[str, int] | None:
    """(step id, pid) that the step's script wrote, None before it did."""
    found = _STARTED.search(log)
    return (found.group(1), int(found.group(3))) if found else None


def await_step(worker: RunningWorker, request: StepRequest, timeout_s: float) -> tuple[str, int]:
    """Wait until the program runs on its node: (step id, pid), ("", 0) for one that was killed before it could say.

    ServemarkError (launch, image, allocation) when it cannot start.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = 0.01
    while True:
        found = started_line(worker.log_head())
        if found is not None:
            return found
        if (status := worker.wait(pause_s)) is not None:
            log = worker.log_head()
            found = started_line(log)
            if found is not None or _SIGNALLED.search(log):  # it ran and has ended already
                return found or ("", 0)
            raise start_error(log, request, str(status))
        if time.monotonic() >= deadline:
            raise ServemarkError(
                "launch.slurm_step_slow",
                Layer.LAUNCH,
                step=request.name,
                node=request.node.name,
                seconds=f"{timeout_s:g}",
                log=str(request.log_path),
                last=last_line(worker.log_tail()),
            )
        pause_s = min(pause_s * 1.3, 0.1)


def last_line(log: str) -> str:
    """The last line that says something, for a message."""
    lines = [shown for line in log.splitlines() if (shown := printable(line))]
    return lines[-1] if lines else "—"


def start_error(log: str, request: StepRequest, status: str) -> ServemarkError:
    """Why a step never came to run its program, from what its script and srun said."""
    program, where = request.argv[0], str(request.log_path)
    refused = _REFUSED.search(log)
    if refused is not None:
        kind = refused.group(1)
        if kind == "program":
            return ServemarkError("launch.program_missing", Layer.LAUNCH, program=program)
        if kind == "cwd":
            reason = last_line(log[: refused.start()])
            return ServemarkError("launch.cwd_refused", Layer.LAUNCH, reason=reason)
        return ServemarkError(
            "launch.slurm_gpus",
            Layer.LAUNCH,
            step=request.name,
            node=request.node.name,
            wanted=",".join(str(one) for one in request.gpus or ()),
            given=printable(refused.group(2)) or "—",
        )
    failed = _NODE_FAILED.search(log)
    if failed is not None:
        node = next(name for name in failed.groups() if name)
        return ServemarkError(
            "launch.slurm_step_node", Layer.ALLOCATION, step=request.name, node=node, log=where
        )
    container = _CONTAINER.search(log[:_LOST_BYTES]) if request.container is not None else None
    if container is not None:
        return ServemarkError(
            "launch.slurm_container",
            Layer.IMAGE,
            step=request.name,
            node=request.node.name,
            reason=printable(container.group(0)),
            log=where,
        )
    lines = [
        printable(line.removeprefix("srun: error: ")) for line in log.splitlines() if "error" in line.lower()
    ]
    return ServemarkError(
        "launch.slurm_step_refused",
        Layer.LAUNCH,
        step=request.name,
        node=request.node.name,
        status=status,
        reason=next((line for line in lines if line), last_line(log)),
        log=where,
    )
