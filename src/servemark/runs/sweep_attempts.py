"""One attempt as a process: started so that no instant exists in which it could be lost or run twice.

The attempt's record is a file that is locked before the process exists and whose lock the process inherits. So a sweep
that was killed at any instant finds either no lock (nothing lives, and the record says whether something was started
and how it ended) or a lock (it lives: wait for it).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import disk_error, make_folder
from servemark.runs.sweep_child import start_time

CHILD = Path(__file__).with_name("sweep_child.py")
RECORD = "record"
GRACE_S = 90.0
"""What a run that was asked to stop may take: replies in flight, engines, logs, the allocation's end."""
PATIENCE_S = 0.5
"""A look at a lock, and a process about to be replaced by another program, hold it for a moment."""
_RECORD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Probe:
    """What an attempt's record says. `exit` is None when nobody noted an end."""

    alive: bool
    began: bool
    """Whether the process was ever there."""
    pid: int | None
    exit: str | None


def probe(folder: Path) -> Probe:
    """Look at an attempt. Never waits. ServemarkError (layer home) when the record is there and cannot be read."""
    try:
        handle = os.open(folder / RECORD, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Probe(False, False, None, None)
    except OSError as error:
        raise disk_error(error, folder / RECORD) from error
    try:
        alive = not _take(handle, fcntl.LOCK_SH)
        lines = os.pread(handle, _RECORD_BYTES, 0).decode("ascii", "replace").splitlines()
    finally:
        os.close(handle)
    pid, code = None, None
    for line in lines:
        words = line.split()
        if len(words) == 3 and words[0] == "pid" and words[1].isdigit():
            known = start_time(int(words[1])) == words[2]  # else the number is somebody else's by now
            pid = int(words[1]) if alive and known else None
        elif len(words) == 2 and words[0] in ("exit", "signal") and words[1].isdigit():
            code = line
    return Probe(alive, any(line.startswith("pid ") for line in lines), pid, code)


def start(
    folder: Path, argv: Sequence[str], env: Mapping[str, str], slot: int | None = None
) -> subprocess.Popen[bytes]:
    """Start an attempt. `slot` is a lock that it is to hold as long as it lives; the caller keeps its own handle.

    Raises ServemarkError: layer home when the folder cannot be made, layer launch when no process can be started.
    """
    make_folder(folder)
    try:
        record = os.open(
            folder / RECORD, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644
        )
    except OSError as error:
        raise disk_error(error, folder / RECORD) from error
    try:
        fcntl.flock(record, fcntl.LOCK_EX)
        command = [
            sys.executable,
            "-I",
            "-S",
            str(CHILD),
            str(record),
            f"{GRACE_S:g}",
            str(folder),
            "--",
            *argv,
        ]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(env),
            pass_fds=(record,) if slot is None else (record, slot),
            start_new_session=True,
        )
    except OSError as error:
        raise ServemarkError(
            "runs.sweep.no_process", Layer.LAUNCH, reason=error.strerror or str(error)
        ) from error
    finally:
        os.close(record)


def interrupt(folder: Path) -> bool:
    """Ask an attempt to stop in its orderly way; asked again, in haste. False when it cannot be reached from here."""
    found = probe(folder)
    if found.pid is None:
        return not found.alive
    with contextlib.suppress(ProcessLookupError):
        os.kill(found.pid, signal.SIGINT)
    return True


def take_slot(folder: Path, limit: int) -> int | None:
    """A free one of `limit` slots as a locked file handle; None when all are taken. Close it after the start: the
    attempt holds the lock on. ServemarkError (layer home) when the folder cannot be written."""
    make_folder(folder)
    for number in range(limit):
        path = folder / f"{number}.lock"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise disk_error(error, path) from error
        if _take(handle, fcntl.LOCK_EX):
            return handle
        os.close(handle)
    return None


def _take(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class WriterLock:
    """The right to write one sweep. The file says who holds it; the kernel frees it, also after kill -9."""

    NAME = "lock"

    def __init__(self, handle: int) -> None:
        self._handle = handle

    @classmethod
    def take(cls, folder: Path, patience_s: float = PATIENCE_S) -> WriterLock | None:
        """None when another process has it and keeps it for `patience_s`. ServemarkError (layer home) when the
        folder cannot be written."""
        make_folder(folder)
        try:
            handle = os.open(folder / cls.NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise disk_error(error, folder / cls.NAME) from error
        deadline = time.monotonic() + patience_s
        while not _take(handle, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                os.close(handle)
                return None
            time.sleep(0.02)
        with contextlib.suppress(OSError):  # who it is, for people; a full disk does not undo the lock
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.uname().nodename[:200]} {os.getpid()}\n".encode("utf-8", "replace"), 0)
        return cls(handle)

    @classmethod
    def holder(cls, folder: Path) -> tuple[str, str] | None:
        """(host, process id) of who writes the sweep; None when nobody does."""
        try:
            handle = os.open(folder / cls.NAME, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            if _take(handle, fcntl.LOCK_SH):
                return None
            words = os.pread(handle, 512, 0).decode("utf-8", "replace").split()
        finally:
            os.close(handle)
        return (words[0], words[1]) if len(words) == 2 else ("?", "?")

    def close(self) -> None:
        """Free the lock. Safe to call twice."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                os.close(self._handle)
            self._handle = -1
