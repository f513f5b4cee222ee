"""A small supervisor between the launcher and one engine, so that nothing can be left behind.

It runs as `python -I -S guard.py LAUNCHER_PID GRACE_S LOG CWD MARK ARGV...`, MARK being `--` or `--remove` (CWD is
taken away when nothing runs in it any more), and imports only the standard
library, little of it, so that it starts in some 15 ms. It stands alone: no import of servemark.

- The engine runs in a session of its own, its stdout and stderr appended to LOG, its stdin a pipe that ends
  when this process does.
- stdin here is the control pipe. A line `stop SECONDS` stops the engine (SIGTERM, then SIGKILL after
  SECONDS). End of file means that the launcher is gone, by whatever cause, and stops it too (after GRACE_S);
  so does a signal.
- stdout here is the status pipe, one line an event: `pid N`; `fail ERRNO STEP` (log, cwd or exec refused);
  `exit CODE` or `signal NUMBER` as the kernel gave it; `left PID...` (could not be killed); `gone` last.
- On Linux this process is a child subreaper: descendants that fled by setsid or a double fork come back to
  it, are found in /proc and killed; and the engine gets SIGKILL from the kernel if this process is killed
  itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_BUDGET_S = 10.0
"""How long to repeat SIGKILL before a process is reported as left; only uninterruptible disk waits take so
long."""
_AFTER_EXIT_GRACE_S = 2.0
"""What the engine's own children get to end after the engine itself has ended."""
_LAUNCHER_CHECK_S = 0.5


def process_table() -> dict[int, tuple[int, str]]:
    """pid -> (parent pid, state letter) of every process that /proc shows; empty where there is no /proc."""
    table: dict[int, tuple[int, str]] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - no pathlib: its import costs 10 ms
    except OSError:
        return table
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb", buffering=0) as stream:  # noqa: PTH123
                stat = stream.read(1024)
        except OSError:
            continue
        # The command name stands in parentheses and may hold spaces and parentheses itself.
        fields = stat[stat.rfind(b")") + 2 :].split(b" ", 2)
        if len(fields) == 3:
            table[int(name)] = (int(fields[1]), fields[0].decode("ascii", "replace"))
    return table


def descendants(root: int) -> list[int]:
    """Pids of all living (not zombie) descendants of `root`, parents first; `root` itself is not among
    them."""
    table = process_table()
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    queue = [root]
    for parent in queue:
        for pid in children.get(parent, ()):
            queue.append(pid)
            if table[pid][1] not in "ZX":
                found.append(pid)
    return found


def remove_tree(folder: str) -> None:
    """Delete a folder and all in it, following no link; what cannot be deleted stays. No shutil: it costs 10 ms."""
    with contextlib.suppress(OSError):
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    remove_tree(entry.path)
                else:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)  # noqa: PTH108 - no pathlib here
        os.rmdir(folder)  # noqa: PTH106 - no pathlib here


def _prctl(option: int, value: int) -> None:
    """Linux only; a kernel that refuses costs the extra safety, not the run."""
    if sys.platform.startswith("linux"):
        import ctypes  # noqa: PLC0415 - 3 ms that other systems need not pay

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _tell(line: str) -> None:
    """One status line; a launcher that no longer reads is no error here."""
    with contextlib.suppress(OSError):
        os.write(1, line.encode("ascii") + b"\n")


class _Guard:
    """The loop: wait for the engine, the launcher or a signal; then stop what is left."""

    def __init__(self, launcher: int, grace_s: float) -> None:
        self.launcher = launcher
        self.grace_s = grace_s
        self.engine = 0
        self.reaped = False
        self.deadline: float | None = None
        self.control = b""
        self.control_open = True
        self.wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the launcher's thread may have had some blocked

    def _on_signal(self, *_: object) -> None:
        self._stop_within(self.grace_s)

    def _stop_within(self, seconds: float) -> None:
        """Begin to stop, or hurry a stop that has begun; a later wish never lengthens the grace."""
        deadline = time.monotonic() + max(0.0, seconds)
        self.deadline = deadline if self.deadline is None else min(self.deadline, deadline)

    def _read_control(self) -> None:
        data = os.read(0, 4096)
        if not data:
            self.control_open = False
            self._stop_within(self.grace_s)
            return
        self.control += data
        *lines, self.control = self.control[-4096:].split(b"\n")
        for line in lines:
            word, _, value = line.partition(b" ")
            if word == b"stop":
                try:
                    self._stop_within(float(value))
                except ValueError:
                    self._stop_within(self.grace_s)

    def wait(self, timeout_s: float) -> None:
        """Sleep until something happens, at most `timeout_s`; then reap what has ended."""
        watched = [self.wake_read, 0] if self.control_open else [self.wake_read]
        readable, _, _ = select.select(watched, [], [], min(timeout_s, _LAUNCHER_CHECK_S))
        if self.wake_read in readable:
            os.read(self.wake_read, 4096)
        if 0 in readable:
            self._read_control()
        if os.getppid() != self.launcher:
            # A fork of the launcher may still hold the pipe open; the parent's pid does not lie.
            self._stop_within(self.grace_s)
        self.reap()

    def reap(self) -> None:
        """Collect every ended child, adopted ones included; the engine's own status is told at once."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.engine:
                self.reaped = True
                if os.WIFSIGNALED(status):
                    _tell(f"signal {os.WTERMSIG(status)}")
                else:
                    _tell(f"exit {os.WEXITSTATUS(status)}")

    def remaining(self) -> list[int]:
        """Living descendants; without /proc just the engine until it is reaped."""
        found = descendants(os.getpid())
        return found if found or self.reaped else [self.engine]

    def _send(self, number: int) -> None:
        """The signal to every descendant, once each: for some servers a second SIGTERM means "drop
        everything"."""
        found = descendants(os.getpid())
        if not found and not self.reaped:
            # No /proc. The leader is unreaped, so its group's number cannot have been given to anybody else.
            with contextlib.suppress(OSError):
                os.killpg(self.engine, number)
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def run(self, scratch: str | None = None) -> int:
        """Wait, then stop everything and remove `scratch`; 0 when nothing is left."""
        while not self.reaped and self.deadline is None:
            self.wait(60.0)
        if self.reaped:
            self._stop_within(min(self.grace_s, _AFTER_EXIT_GRACE_S))
        if self.remaining():
            self._send(signal.SIGTERM)
        while (left := self.remaining()) or not self.reaped:
            grace = (self.deadline or 0.0) - time.monotonic()
            if grace <= 0:
                break
            self.wait(min(grace, 0.02))
        give_up = time.monotonic() + _KILL_BUDGET_S
        while (left or not self.reaped) and time.monotonic() < give_up:
            self._send(signal.SIGKILL)
            self.wait(0.02)
            left = self.remaining()
        if left:
            _tell("left " + " ".join(str(pid) for pid in left))
        if scratch is not None:
            remove_tree(scratch)
        _tell("gone")
        return 1 if left else 0


def _become_engine(guard_pid: int, argv: list[str], cwd: str, streams: tuple[int, int], failed: int) -> None:
    """In the forked child: never returns. `streams` are stdin and the log.

    What went wrong is written to `failed`, which closes by itself when exec succeeds.
    """
    step = "start"
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard_pid:
            os._exit(125)  # The guard died before the kernel knew that we care.
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for source, handle in zip((streams[0], streams[1], streams[1]), (0, 1, 2), strict=True):
            os.dup2(source, handle)
        step = "cwd"
        os.chdir(cwd)
        step = "exec"
        os.execvp(argv[0], argv)  # noqa: S606 - an argv list, no shell
    except OSError as error:
        os.write(failed, f"{error.errno or 0} {step}".encode("ascii"))
    finally:
        os._exit(127)


def main(arguments: list[str]) -> int:
    """See the module's docstring for the arguments."""
    launcher, grace_s, log_path, cwd, mark, *argv = arguments
    if mark not in ("--", "--remove") or not argv:
        sys.stderr.write("guard: bad arguments\n")
        return 2
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    guard = _Guard(int(launcher), float(grace_s))
    try:
        log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        _tell(f"fail {error.errno} log")
        return 1
    stdin_read, _stdin_write = os.pipe()  # the write end stays open here, unused, for the engine's sake
    failed_read, failed_write = os.pipe()
    own = os.getpid()
    guard.engine = os.fork()
    if guard.engine == 0:
        _become_engine(own, argv, cwd, (stdin_read, log), failed_write)
    for handle in (log, stdin_read, failed_write):
        os.close(handle)
    failure = os.read(failed_read, 16)
    os.close(failed_read)
    if failure:
        os.waitpid(guard.engine, 0)
        _tell(f"fail {failure.decode('ascii')}")
        return 1
    _tell(f"pid {guard.engine}")
    return guard.run(cwd if mark == "--remove" else None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
