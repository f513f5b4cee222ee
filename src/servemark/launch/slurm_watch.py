"""The launcher's side of an allocation's life: the heartbeat that keeps it, and the watch for its end.

The heartbeat is a file of fixed width that is overwritten in place: a full disk cannot stop it. The batch step
(`slurm_keeper.sh`) ends the job when it no longer changes, by whatever cause the launcher is gone.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from servemark.base.files import disk_error
from servemark.base.messages import text
from servemark.launch.slurm_commands import SlurmCommands
from servemark.launch.slurm_state import JobState, jobs_of_text, nodes_of_text

_WIDTH = 20
_POLL_S = 2.0
_JOIN_S = 5.0
NODE_WORDS = ("NODE_FAIL", "BOOT_FAIL")


class Heartbeat:
    """The file whose change says that the launcher lives. Made on the first beat, kept open."""

    def __init__(self, path: Path) -> None:
        """Raises ServemarkError (layer home) when the file cannot be made."""
        self.path = path
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise disk_error(error, path) from error
        self.beat()

    def beat(self) -> None:
        """One sign of life: nanoseconds of the wall clock, which no earlier launcher has written."""
        self._write(f"{time.time_ns():0{_WIDTH}d}\n")

    def end(self) -> None:
        """The launcher's wish that the job end, which the keeper follows even while the controller is down."""
        self._write(f"{'end':<{_WIDTH}}\n")

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.pwrite(self._handle, line.encode("ascii"), 0)

    def close(self) -> None:
        """Give the handle back; may be called twice."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def read_job(commands: SlurmCommands, job_id: str) -> tuple[JobState, ...] | None:
    """The job's components now, () when Slurm no longer knows it, None when the controller is out of reach."""
    reply = commands.once(["scontrol", "show", "job", "--oneliner", job_id])
    if reply.rc == 0:
        return jobs_of_text(reply.out)
    return None if reply.transient else ()


COMPLETING = "COMPLETING"
_COMPLETING_S = 15.0
"""A job that takes longer to wind down (a node hangs) is told as ended although Slurm does not yet say how."""
_ENDS = {
    "TIMEOUT": "launch.slurm_lost_time",
    "DEADLINE": "launch.slurm_lost_time",
    "CANCELLED": "launch.slurm_lost_cancelled",
    "PREEMPTED": "launch.slurm_lost_preempted",
}


def end_words(
    commands: SlurmCommands, jobs: tuple[JobState, ...], nodes: tuple[str, ...], job_id: str
) -> str | None:
    """Why an allocation is gone, in words for people; None while all of it stands.

    `nodes` are the allocation's own: of a node failure those are named that Slurm no longer uses.
    """
    if not jobs:
        return text("launch.slurm_lost_forgotten", None, job=job_id) + _accounting(commands, job_id)
    if any(job.restarts for job in jobs):
        return text("launch.slurm_lost_restarted", None, job=job_id)
    ended = [job for job in jobs if not job.alive and not job.waiting]
    failed = [job for job in ended if node_failed((job,))]
    worst = next(iter(failed or [job for job in ended if job.state != COMPLETING]), None)
    if worst is None:
        return None  # while it is winding down Slurm does not say how it ended
    if failed:
        down = failed_nodes(commands, nodes)
        return text("launch.slurm_lost_node", None, job=job_id, nodes=", ".join(down or nodes))
    if worst.state in _ENDS:
        return text(_ENDS[worst.state], None, job=job_id)
    status = f"{worst.state} {worst.exit_code}:{worst.signal}"
    return text("launch.slurm_lost_ended", None, job=job_id, status=status, reason=worst.reason)


def node_failed(jobs: tuple[JobState, ...]) -> bool:
    """Whether a failed node ended one of a job's components."""
    return any(not job.alive and (job.state in NODE_WORDS or job.reason == "NodeDown") for job in jobs)


def failed_nodes(commands: SlurmCommands, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the nodes that Slurm no longer uses."""
    reply = commands.once(["scontrol", "show", "node", "--oneliner", ",".join(nodes)]) if nodes else None
    if reply is None or reply.rc != 0:
        return ()
    return tuple(node.name for node in nodes_of_text(reply.out) if not node.usable)


def _accounting(commands: SlurmCommands, job_id: str) -> str:
    """` (STATE)` from the accounting, empty where there is none: many clusters, and every small one, have none."""
    reply = commands.once(["sacct", "-X", "-n", "-P", "-o", "State", "-j", job_id])
    words = reply.out.strip().splitlines() if reply.rc == 0 else []
    return f" ({words[0]})" if words and words[0] and len(words[0]) < 80 and words[0].isprintable() else ""


class Watch:
    """A thread that beats and asks after the job; `lost` is its answer. It ends with `stop`."""

    def __init__(
        self, commands: SlurmCommands, job_id: str, nodes: tuple[str, ...], heart: Heartbeat, silence_s: float
    ) -> None:
        self.commands = commands
        self.job_id = job_id
        self.nodes = nodes
        self.heart = heart
        self.beat_s = min(5.0, max(0.1, silence_s / 8))
        self.lost: str | None = None
        self.lost_nodes: tuple[str, ...] = ()
        """Those that failed, where that is why."""
        self.unreachable_since: float | None = None
        """Monotonic seconds since when the controller has not answered; None while it does."""
        self._completing_since: float | None = None
        self._wake = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slurm-{job_id}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def hurry(self) -> None:
        """Ask at once: something has ended."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread; a question under way is not waited for longer than a few seconds."""
        self._over.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)

    def look(self) -> str | None:
        """Ask now, in the caller's thread."""
        jobs = read_job(self.commands, self.job_id)
        if jobs is None:
            self.unreachable_since = self.unreachable_since or time.monotonic()
        else:
            self.unreachable_since = None
            if self.lost is None and not self._over.is_set():
                words = end_words(self.commands, jobs, self.nodes, self.job_id) or self._stuck(jobs)
                if words is not None and node_failed(jobs):
                    self.lost_nodes = failed_nodes(self.commands, self.nodes) or self.nodes
                self.lost = words
        return self.lost

    def _stuck(self, jobs: tuple[JobState, ...]) -> str | None:
        if not any(job.state == COMPLETING for job in jobs):
            return None
        self._completing_since = self._completing_since or time.monotonic()
        if time.monotonic() - self._completing_since < _COMPLETING_S:
            return None
        return text(
            "launch.slurm_lost_ended", None, job=self.job_id, status=COMPLETING, reason=jobs[0].reason
        )

    def _run(self) -> None:
        asker = threading.Thread(target=self._ask, name=f"slurm-ask-{self.job_id}", daemon=True)
        asker.start()
        while not self._over.is_set():
            self.heart.beat()
            self._over.wait(self.beat_s)

    def _ask(self) -> None:
        """Apart from the beat: a controller that answers after half a minute must not stop the heart."""
        while not self._over.is_set() and self.lost is None:
            self._wake.wait(_POLL_S)
            self._wake.clear()
            if not self._over.is_set():
                self.look()


def wait_for(condition: Callable[[], bool], budget_s: float, pause_s: float = 0.05) -> bool:
    """True as soon as the condition holds, False when it does not within so many seconds."""
    deadline = time.monotonic() + budget_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause_s)
    return True
