"""A small parent for one attempt of a sweep, which outlives the sweep's own process.

It runs as `python -I -S sweep_child.py RECORD_FD GRACE_S FOLDER -- ARGV...`, imports little and only the standard
library. It stands alone: no import of servemark.

- RECORD_FD is the attempt's record, opened and locked (flock) by the sweep before this process was started. The lock
  is inherited, by ARGV too: it is free exactly when nobody of the attempt lives any more, whatever was killed.
- The record gets two lines: `pid PID STARTTIME` (of this process; the start time as /proc gives it) before ARGV is
  started, and `exit CODE` or `signal NUMBER` when it has ended.
- Output goes to FOLDER/out.log and FOLDER/err.log; stdin is empty.
- SIGINT, SIGTERM or SIGHUP here: ARGV gets SIGINT, again for every further one, and SIGKILL after GRACE_S.
- What ARGV leaves behind in its process group gets SIGTERM, and SIGKILL after some seconds, before its end is noted.
- When this process is killed itself, ARGV gets SIGINT from the kernel (Linux).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_LEFT_BEHIND_S = 15.0
"""The guards of engines, whose launcher was killed, stop these in an orderly way first."""
_WATCHED = (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start_time(pid: int) -> str:
    """When a process began, in the kernel's ticks: with it a pid names one process for ever. `-` where unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stream:  # noqa: PTH123 - no pathlib: its import costs 10 ms
            stat = stream.read(1024)
    except OSError:
        return "-"
    fields = stat[stat.rfind(b")") + 2 :].split()
    return fields[19].decode("ascii") if len(fields) > 19 else "-"


def _become(parent: int, argv: list[str], folder: str) -> None:
    """In the forked child: never returns."""
    try:
        os.setpgid(0, 0)
        if sys.platform.startswith("linux"):
            import ctypes  # noqa: PLC0415 - 3 ms that other systems need not pay

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGINT), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(125)
        for number in (*_WATCHED, signal.SIGPIPE, signal.SIGXFSZ):  # the interpreter ignores the last two
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for name, handle in (("out.log", 1), ("err.log", 2)):
            log = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, handle)
            os.close(log)
        os.execvp(argv[0], argv)  # noqa: S606 - an argv list, no shell
    except OSError as error:
        with contextlib.suppress(OSError):
            os.write(2, f"{argv[0]}: {error.strerror}\n".encode("utf-8", "replace"))
    finally:
        os._exit(127)


def _wait(child: int, grace_s: float) -> int:
    """The child's wait status. All signals are blocked and taken from the queue one by one: none is lost."""
    deadline: float | None = None
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
            left = 1.0
        came = signal.sigtimedwait(_WATCHED, 60.0 if left is None else left)
        if came is not None and came.si_signo != signal.SIGCHLD:
            deadline = deadline or time.monotonic() + grace_s
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGINT)


def _end_group(group: int) -> None:
    """End what a child left behind in its process group; nearly always there is nothing."""
    deadline = time.monotonic() + _LEFT_BEHIND_S
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        while time.monotonic() < deadline + 1.0:
            time.sleep(0.02)
            os.killpg(group, 0 if time.monotonic() < deadline else signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """See the module's docstring for the arguments."""
    record, grace_s, folder, mark, *argv = arguments
    if mark != "--" or not argv:
        sys.stderr.write("sweep_child: bad arguments\n")
        return 2
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    own = os.getpid()
    os.write(int(record), f"pid {own} {start_time(own)}\n".encode("ascii"))
    child = os.fork()
    if child == 0:
        _become(own, argv, folder)
    status = _wait(child, float(grace_s))
    _end_group(child)
    word = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
    with contextlib.suppress(OSError):  # a full disk: then the run's own folder tells
        os.write(int(record), f"{word}\n".encode("ascii"))
        os.fsync(int(record))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
