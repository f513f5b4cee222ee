"""One engine process under its guard: start, ask, read its log and its use of the machine, stop for good."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.base.files import disk_error
from servemark.launch import guard

MARKER_ENV = "SERVEMARK_WORKER"
"""Every process of a worker inherits this variable; it is how strays are recognised when the guard is gone.
"""
DEFAULT_GRACE_S = 2.0
"""SIGTERM to SIGKILL when nobody is there any more to say otherwise."""
_START_TIMEOUT_S = 20.0
_GUARD_MARGIN_S = 15.0
"""On top of the grace: the guard repeats SIGKILL for 10 s before it reports a process as left."""
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How an engine ended, as the kernel reported it. All None: its guard was killed, so nobody saw the
    status."""

    exit_code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        """`exit 3`, `SIGKILL (signal 9)` or `?`; the same in every language."""
        if self.exit_code is not None:
            return f"exit {self.exit_code}"
        if self.signal is None:
            return "?"
        with contextlib.suppress(ValueError):
            return f"{signal.Signals(self.signal).name} (signal {self.signal})"
        return f"signal {self.signal}"


def checked_env(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment plus `extra`; raises ServemarkError (input) for a name or value that cannot
    be.

    Values never appear in the error: they may be secrets.
    """
    merged = dict(os.environ)
    for name, value in extra.items():
        if not isinstance(name, str) or not _ENV_NAME.match(name):
            raise input_error("launch.env_name", name=repr(name)[:80])
        if not isinstance(value, str) or "\0" in value:
            raise input_error("launch.env_value", name=name)
        merged[name] = value
    return merged


def kill_marked(marker: str) -> list[int]:
    """SIGKILL every process of this user that carries `marker` in its environment; the pids that were hit.

    For what a killed guard could not do: its engine dies with it by the kernel's hand, the engine's own
    children do not. Repeats until none is found, because a process may fork while it is looked for. Empty
    without /proc.
    """
    needle = f"{MARKER_ENV}={marker}".encode()
    hit: set[int] = set()
    for _ in range(50):
        found = [pid for pid in guard.process_table() if pid != os.getpid() and _carries(pid, needle)]
        if not found:
            break
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        hit.update(found)
        time.sleep(0.02)
    return sorted(hit)


def _carries(pid: int, needle: bytes) -> bool:
    """True when the living process has exactly this variable; a zombie's environment reads as empty."""
    try:
        return needle in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


class RunningWorker:
    """A started engine. Safe to ask from several threads; `stop` may be called again and answers the same.

    `pid` is the engine's, `started_s` the monotonic time of its start, `left_behind` the pids that could not
    be killed (empty in all but pathological cases). As a context manager it stops on leaving.
    """

    def __init__(
        self,
        guard_process: subprocess.Popen[bytes],
        marker: str,
        *,
        base_url: str,
        log_path: Path,
        log_start: int,
        started_s: float,
    ) -> None:
        """`log_start` and `started_s` are from before the process began, which may already have written
        since."""
        self.base_url = base_url
        self.log_path = log_path
        self.marker = marker
        self.pid = 0
        self.started_s = started_s
        self.left_behind: tuple[int, ...] = ()
        self._guard = guard_process
        self._lock = threading.RLock()
        self._buffer = b""
        self._status: ExitStatus | None = None
        self._failure: tuple[int, str] | None = None
        self._guard_gone = False
        self._log_start = log_start
        assert guard_process.stdout is not None  # noqa: S101 - we asked for the pipe
        self._status_fd = guard_process.stdout.fileno()
        os.set_blocking(self._status_fd, False)

    def __enter__(self) -> RunningWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(DEFAULT_GRACE_S)

    @property
    def guard_pid(self) -> int:
        """The supervisor's pid."""
        return self._guard.pid

    def poll(self) -> ExitStatus | None:
        """None while the engine runs. Never blocks for longer than the clean-up after a killed guard."""
        with self._lock:
            self._read_status()
            return self._status

    def wait(self, timeout_s: float) -> ExitStatus | None:
        """Sleep until the engine has ended or the time is over, without polling; the same answer as
        `poll`."""
        deadline = time.monotonic() + timeout_s
        while (status := self.poll()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            select.select([self._status_fd], [], [], left)
        return status

    def stop(self, grace_s: float = DEFAULT_GRACE_S) -> ExitStatus:
        """End the engine and all that it started, wait until they are gone, and free what this object
        holds."""
        with self._lock:
            if not self._guard_gone:
                self._ask_to_stop(grace_s)
                deadline = time.monotonic() + grace_s + _GUARD_MARGIN_S
                while not self._guard_gone and (left := deadline - time.monotonic()) > 0:
                    select.select([self._status_fd], [], [], left)
                    self._read_status()
                if not self._guard_gone:
                    self._guard.kill()
                    self._guard_ended()
            self._close()
            return self._status or ExitStatus()

    def log_size(self) -> int:
        """Bytes that this worker has added to its log."""
        return max(0, _size(self.log_path) - self._log_start)

    def log_tail(self, max_bytes: int = 8192) -> str:
        """The last `max_bytes` of what this worker wrote, undecodable bytes replaced; empty without a log."""
        return self._read_log(max(self._log_start, _size(self.log_path) - max_bytes), max_bytes)

    def log_head(self, max_bytes: int = 65536) -> str:
        """The first `max_bytes` of what this worker wrote."""
        return self._read_log(self._log_start, max_bytes)

    def rss_bytes(self) -> int | None:
        """Resident memory of the engine and all its descendants (shared pages count for each); None without
        /proc."""
        pids = self._tree()
        if not pids:
            return None
        page = os.sysconf("SC_PAGE_SIZE")
        total = 0
        for pid in pids:
            with contextlib.suppress(OSError, ValueError, IndexError):
                total += int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * page
        return total or None

    def cpu_seconds(self) -> float | None:
        """CPU time (user + system) that the engine's tree has used, ended and reaped members included.

        None where /proc cannot tell or the engine is gone.
        """
        pids = self._tree()
        if not pids:
            return None
        # Orphans that the guard has adopted and reaped count in its children's time.
        ticks = sum(_cpu_fields(self._guard.pid)[2:]) + sum(sum(_cpu_fields(pid)) for pid in pids)
        return ticks / os.sysconf("SC_CLK_TCK")

    def _tree(self) -> list[int]:
        return [] if self._guard_gone else guard.descendants(self._guard.pid)

    def _read_log(self, start: int, max_bytes: int) -> str:
        try:
            with self.log_path.open("rb") as stream:
                stream.seek(start)
                return stream.read(max_bytes).decode("utf-8", "replace")
        except OSError:
            return ""

    def _ask_to_stop(self, grace_s: float) -> None:
        assert self._guard.stdin is not None  # noqa: S101 - we asked for the pipe
        with contextlib.suppress(OSError, ValueError):
            os.write(self._guard.stdin.fileno(), f"stop {grace_s:.3f}\n".encode("ascii"))

    def _read_status(self) -> None:
        """Take in what the guard has said so far; its silence at the end of the pipe means that it is
        gone."""
        while not self._guard_gone:
            try:
                data = os.read(self._status_fd, 4096)
            except BlockingIOError:
                return
            if not data:
                self._guard_ended()
                return
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._take(line.decode("ascii", "replace").split(" "))

    def _take(self, words: list[str]) -> None:
        match words:
            case ["pid", pid]:
                self.pid = int(pid)
            case ["exit", code]:
                self._status = ExitStatus(exit_code=int(code))
            case ["signal", number]:
                self._status = ExitStatus(signal=int(number))
            case ["fail", number, step]:
                self._failure = (int(number), step)
            case ["left", *pids]:
                self.left_behind = tuple(int(pid) for pid in pids)

    def _guard_ended(self) -> None:
        """The guard is gone: reap it, and if it did not finish its work, finish it."""
        self._guard_gone = True
        code = self._guard.wait()
        if code != 0:
            kill_marked(self.marker)
        if self._status is None and self._failure is None:
            self._status = ExitStatus()

    def _close(self) -> None:
        for stream in (self._guard.stdin, self._guard.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def await_start(self, program: str) -> None:
        """Wait until the guard has started the program; raises ServemarkError (launch) when it could not."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self.pid and not self._guard_gone and (left := deadline - time.monotonic()) > 0:
            select.select([self._status_fd], [], [], left)
            with self._lock:
                self._read_status()
        if self.pid:
            return
        if self._failure is None:
            raise ServemarkError("launch.guard_failed", Layer.LAUNCH, log=str(self.log_path))
        number, step = self._failure
        missing = step == "exec" and number == errno.ENOENT
        key = "launch.program_missing" if missing else f"launch.{step}_refused"
        raise ServemarkError(
            key, Layer.LAUNCH, program=program, log=str(self.log_path), reason=os.strerror(number)
        )


def _cpu_fields(pid: int) -> list[int]:
    """utime, stime, cutime, cstime in clock ticks: fields 14..17 of proc(5), the state after the name being
    the 3rd."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return [int(value) for value in stat[stat.rfind(b")") + 2 :].split()[11:15]]
    except (OSError, ValueError):
        return []


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def start_worker(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    base_url: str,
    log_path: Path,
    work_dir: Path,
    grace_s: float = DEFAULT_GRACE_S,
    remove_work_dir: bool = False,
) -> RunningWorker:
    """Start `argv` (never a shell string) under a guard and return as soon as the program runs (some 20 ms).

    `env` is added to this process's environment. stdout and stderr are appended to `log_path`; the working
    folder is `work_dir`, which exists; `remove_work_dir` has the guard take it away at the end, also when the
    launcher is gone. Raises ServemarkError (layer launch, or input for bad environment
    names).
    """
    marker = secrets.token_hex(16)
    environment = checked_env(env)
    environment[MARKER_ENV] = marker
    command = [sys.executable, "-I", "-S", str(Path(guard.__file__)), str(os.getpid()), f"{grace_s:.3f}"]
    command += [str(log_path.absolute()), str(work_dir.absolute())]
    command += ["--remove", *argv] if remove_work_dir else ["--", *argv]
    if any("\0" in part for part in command):
        raise input_error("launch.argv_null", program=argv[0][:80])
    try:
        # What a program prints may hold secrets: until they are blanked nobody else may read it.
        log = os.fdopen(os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")
    except OSError as error:
        raise disk_error(error, log_path) from error
    with log:
        log_start, started_s = log.seek(0, os.SEEK_END), time.monotonic()
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                bufsize=0,
                start_new_session=True,  # Ctrl-C goes to the launcher, which then stops in order
            )
        except OSError as error:
            raise ServemarkError(
                "launch.guard_not_started", Layer.LAUNCH, reason=str(error.strerror)
            ) from error
    worker = RunningWorker(
        process, marker, base_url=base_url, log_path=log_path, log_start=log_start, started_s=started_s
    )
    try:
        worker.await_start(argv[0])
    except BaseException:  # an interrupt here too must leave nothing behind
        worker.stop(0.0)
        raise
    return worker
