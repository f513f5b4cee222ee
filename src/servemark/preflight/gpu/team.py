"""One probe's processes, from the parent's side: started early, told to go, read with a time limit, and ended.

Whatever they do - hang, die, write nonsense, write nothing - becomes a `Trouble`, and never an exception.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from servemark.preflight.gpu.lines import (
    MAX_LINE,
    PROBES_OF,
    Figure,
    Line,
    Trouble,
    believed,
    printable,
)

MAX_OUTPUT = 4 << 20
"""Bytes of one process; more is not ours."""
GRACE_SECONDS = 3.0
"""For a process that was told to end, so that it gives reserved pages back."""
ENVIRONMENT = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "OMP_NUM_THREADS": "4",
    "PYTHONUNBUFFERED": "1",
}
"""NVLink multicast is never used: on hosts that are shared, a program that does can put every GPU out of service."""
DROPPED = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CUDA_LAUNCH_BLOCKING")
"""Settings of somebody's session that would change what is measured."""

Command = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class Job:
    """A probe of some GPUs. `visible`: what CUDA_VISIBLE_DEVICES becomes (None: left as it is)."""

    probe: str
    gpus: tuple[int, ...]
    limit_s: float
    visible: str | None = None
    ranks: int = 1
    cpus: tuple[int, ...] = ()
    options: dict[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Names its folder."""
        return "-".join([self.probe, *map(str, self.gpus)])


def child_command(probe: str) -> list[str]:
    """How a probe is started: this Python, not reading modules from the working folder."""
    return [sys.executable, "-P", "-m", "servemark.preflight.gpu.child", probe]


@dataclass(slots=True)
class Rank:
    """One process. `open`: more may come; `nonsense`: it wrote what is no line of ours; `killed`: by us."""

    process: subprocess.Popen[bytes]
    errors: Path
    buffer: bytes = b""
    taken: int = 0
    ready: bool = False
    done: bool = False
    nonsense: bool = False
    open: bool = True
    killed: bool = False
    troubled: bool = False


class Team:
    """The processes of one job."""

    def __init__(self, job: Job, folder: Path, command: Command = child_command) -> None:
        self.job = job
        self.folder = folder / job.name
        self.folder.mkdir(mode=0o700)
        self.ranks = [self._start(rank, command) for rank in range(job.ranks)]
        self.lines: list[Line] = []

    def _start(self, rank: int, command: Command) -> Rank:
        environment = {name: value for name, value in os.environ.items() if name not in DROPPED} | ENVIRONMENT
        if self.job.visible is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self.job.visible
        errors = self.folder / f"errors-{rank}"
        with errors.open("wb") as stream:
            process = subprocess.Popen(
                command(self.job.probe),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env=environment,
            )
        os.set_blocking(_out(process).fileno(), False)
        return Rank(process, errors)

    def go(self, left_s: float) -> None:
        """Give every process its job; it has its limit, or what is left of all the time."""
        for number, rank in enumerate(self.ranks):
            job = {
                "gpus": list(self.job.gpus),
                "rank": number,
                "ranks": self.job.ranks,
                "folder": str(self.folder),
                "limit_s": min(self.job.limit_s, left_s),
                "cpus": list(self.job.cpus),
                "options": self.job.options,
            }
            stream = rank.process.stdin
            with contextlib.suppress(OSError):  # it may have ended already
                if stream is not None:
                    stream.write(json.dumps(job).encode() + b"\n")
                    stream.flush()
                    if self.job.probe != "watch":
                        stream.close()

    def finish_watching(self) -> None:
        """The end of stdin is the end of the watch."""
        for rank in self.ranks:
            with contextlib.suppress(OSError):
                if rank.process.stdin is not None:
                    rank.process.stdin.close()

    def run(self, end: float, sink: Callable[[Line], None], *, started: bool = False) -> None:
        """Wait until all are ready, let them go, and read until they end, the job's limit or `end` (monotonic)."""
        limit: float | None = time.monotonic() + self.job.limit_s if started else None
        late: str | None = None
        with selectors.DefaultSelector() as selector:
            for rank in self.ranks:
                if rank.open:
                    selector.register(_out(rank.process), selectors.EVENT_READ, rank)
            while any(rank.open for rank in self.ranks):
                until = end if limit is None else min(end, limit)
                now = time.monotonic()
                if now >= until:
                    late = "late" if limit is None or until < limit else "hang"
                    break
                if limit is None and all(rank.ready or not rank.open for rank in self.ranks):
                    self.go(until - now)
                    limit = now + self.job.limit_s
                    continue
                for key, _ in selector.select(min(until - now, 0.5)):
                    self.read(key.data, sink)
                    if not key.data.open:
                        selector.unregister(key.fileobj)
                        if (
                            self.job.ranks > 1
                            and limit is not None
                            and (key.data.troubled or not key.data.done)
                        ):
                            limit = min(limit, time.monotonic() + GRACE_SECONDS)  # the others wait in vain
        self.stop(polite=self.job.probe == "pin" and late is not None)
        for trouble in self._troubles(late):
            self.lines.append(trouble)
            sink(trouble)

    def read(self, rank: Rank, sink: Callable[[Line], None]) -> None:
        """Take what a process has written since the last time."""
        try:
            data = os.read(_out(rank.process).fileno(), 1 << 16)
        except BlockingIOError:
            return
        rank.taken += len(data)
        rank.buffer += data
        *whole, rank.buffer = rank.buffer.split(b"\n")
        for raw in whole:
            self._line(rank, raw, sink)
        if not data or rank.done:
            rank.open = False
        elif len(rank.buffer) > MAX_LINE or rank.taken > MAX_OUTPUT:
            rank.nonsense, rank.open = True, False

    def _line(self, rank: Rank, raw: bytes, sink: Callable[[Line], None]) -> None:
        word = raw.strip()
        if word in (b'{"kind": "ready"}', b'{"kind": "done"}'):
            rank.ready = True
            rank.done = b"done" in word
            return
        found = believed(raw, self.job.probe, self.job.gpus) if len(raw) <= MAX_LINE else None
        if found is None:
            rank.nonsense = True
            return
        rank.troubled = rank.troubled or isinstance(found, Trouble)
        if found not in self.lines:  # each process of a probe may tell the same trouble
            self.lines.append(found)
            sink(found)

    def _troubles(self, late: str | None) -> list[Trouble]:
        """What is missing, and why: at most one for a job, beside what its processes told themselves."""
        if any(isinstance(line, Trouble) for line in self.lines):
            return []
        ended = [found for rank in self.ranks if (found := _end_of(rank)) is not None]
        wanted = {name for name, probe in PROBES_OF.items() if probe == self.job.probe}
        wanted -= {line.name for line in self.lines if isinstance(line, Figure)}
        reason = next((one for one in ended if one[0] != "killed"), None)
        if reason is None and late is not None:
            reason = late, f"{self.job.limit_s:g} s" if late == "hang" else ""
        if reason is None and (wanted or not self.lines):
            reason = "silent", ", ".join(sorted(wanted))
        if reason is None:
            return []
        return [Trouble("unmeasured", self.job.probe, self.job.gpus, reason[0], printable(reason[1]))]

    def stop(self, *, polite: bool = False) -> None:
        """End what still runs; one that does not even die by SIGKILL (stuck in the driver) is left to the kernel."""
        for rank in self.ranks:
            if polite and rank.process.poll() is None:
                rank.killed = True
                rank.process.terminate()
        for rank in self.ranks:
            wait = GRACE_SECONDS if polite else (0.5 if not rank.open and not rank.nonsense else 0)
            with contextlib.suppress(subprocess.TimeoutExpired):
                rank.process.wait(wait)
            if rank.process.poll() is None:
                rank.killed = True
                rank.process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    rank.process.wait(1.0)
            for stream in (rank.process.stdin, rank.process.stdout):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()


def settle(teams: Sequence[Team], end: float, sink: Callable[[Line], None]) -> None:
    """Wait until all processes have loaded what they need, or `end` (monotonic): loading would disturb the probes."""
    with selectors.DefaultSelector() as selector:
        for team in teams:
            for rank in team.ranks:
                selector.register(_out(rank.process), selectors.EVENT_READ, (team, rank))
        while selector.get_map() and time.monotonic() < end:
            for key, _ in selector.select(min(0.5, max(0.0, end - time.monotonic()))):
                team, rank = key.data
                team.read(rank, sink)
                if rank.ready or not rank.open:
                    selector.unregister(key.fileobj)


def _end_of(rank: Rank) -> tuple[str, str] | None:
    """How a process ended, when not as it should: (reason, detail); `killed` when we ended it ourselves."""
    code = rank.process.returncode
    if rank.nonsense:
        return "garbage", ""
    if rank.done:
        return None
    if rank.killed or code is None:
        return "killed", ""
    if code < 0:
        return "crash", f"{signal_name(-code)} {last_line(rank.errors)}"
    return "exit", f"{code} {last_line(rank.errors)}"


def _out(process: subprocess.Popen[bytes]) -> IO[bytes]:
    if process.stdout is None:
        raise ValueError(process.args)
    return process.stdout


def signal_name(number: int) -> str:
    """`SIGSEGV`; `signal 64` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_line(path: Path) -> str:
    """The end of what a process said, printable; empty when it said nothing."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 2048))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines: Sequence[str] = [line for line in text.splitlines() if line.strip()]
    return printable(lines[-1]) if lines else ""
