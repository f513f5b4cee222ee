"""Workers under their guard: exit status, stop, logs, environment, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from servemark.base.errors import ServemarkError
from servemark.launch import guard
from servemark.launch.process import ExitStatus, RunningWorker, kill_marked, start_worker

if TYPE_CHECKING:
    from tests.launch.conftest import Start, Strays

PY = [sys.executable, "-I", "-S", "-c"]


def line_with(worker: RunningWorker, pattern: str, budget_s: float = 10.0) -> re.Match[str]:
    """The first match in the worker's log, awaited."""
    deadline = time.monotonic() + budget_s
    while time.monotonic() < deadline:
        if found := re.search(pattern, worker.log_tail()):
            return found
        time.sleep(0.01)
    raise AssertionError(f"{pattern} not in {worker.log_tail()!r}")


def gone(pid: int, budget_s: float = 10.0) -> bool:
    """True when the process runs no more, at the latest after the budget."""
    deadline = time.monotonic() + budget_s
    while time.monotonic() < deadline:
        entry = guard.process_table().get(pid)
        if entry is None or entry[1] in "ZX":
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("code", "status", "text"),
    [
        ("raise SystemExit(7)", ExitStatus(exit_code=7), "exit 7"),
        ("pass", ExitStatus(exit_code=0), "exit 0"),
        ("import os; os.kill(os.getpid(), 11)", ExitStatus(signal=11), "SIGSEGV (signal 11)"),
        ("import os; os.kill(os.getpid(), 40)", ExitStatus(signal=40), "signal 40"),
    ],
)
def test_exit_status_is_the_kernels(start: Start, code: str, status: ExitStatus, text: str) -> None:
    """Code and signal are told apart (137 would be a guess); the guard's own end changes nothing."""
    worker = start(argv=[*PY, code])
    assert worker.wait(10.0) == status
    assert str(status) == text
    assert worker.stop() == status == worker.poll() == worker.stop()


def test_runs_until_stopped(start: Start) -> None:
    """poll is None while it lives; stop ends it by SIGTERM, well within the grace; the worker is the
    engine's pid."""
    worker = start("wait")
    line_with(worker, "waiting")
    assert worker.poll() is None
    assert worker.wait(0.05) is None
    assert guard.process_table()[worker.pid][0] == worker.guard_pid
    begin = time.monotonic()
    assert worker.stop(5.0) == ExitStatus(signal=signal.SIGTERM)
    assert time.monotonic() - begin < 3.0
    assert worker.left_behind == ()
    assert gone(worker.pid)


def test_ignored_sigterm_ends_in_sigkill_after_the_grace(start: Start) -> None:
    """A server that swallows SIGTERM gets the grace, not more."""
    worker = start("stubborn")
    line_with(worker, "listening")
    begin = time.monotonic()
    assert worker.stop(0.3) == ExitStatus(signal=signal.SIGKILL)
    assert 0.25 < time.monotonic() - begin < 5.0


def test_interrupted_stop_can_be_hurried(start: Start) -> None:
    """A second Ctrl-C during a long grace: the next stop shortens it."""

    class ImpatientError(Exception):
        """Raised by the alarm."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise ImpatientError

    worker = start("stubborn")
    line_with(worker, "listening")
    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(ImpatientError):
            worker.stop(60.0)
    finally:
        signal.signal(signal.SIGALRM, before)
    begin = time.monotonic()
    assert worker.stop(0.0) == ExitStatus(signal=signal.SIGKILL)
    assert time.monotonic() - begin < 5.0


@pytest.mark.parametrize(
    ("mode", "status"), [("runaway", ExitStatus(signal=15)), ("runaway_exit", ExitStatus(4))]
)
def test_runaway_grandchild_is_found(start: Start, strays: Strays, mode: str, status: ExitStatus) -> None:
    """setsid + double fork + SIGTERM ignored: killed on stop, and also when the engine ends by itself."""
    worker = start(mode)
    pid = int(line_with(worker, r"runaway (\d+)")[1])
    if mode == "runaway":
        assert worker.stop(0.2) == status
    else:
        assert worker.wait(10.0) == status
        worker.stop(0.0)
    assert gone(pid)
    assert strays.pids() == []


@pytest.mark.parametrize("mode", ["wait", "runaway"])
def test_kill_9_of_the_guard_kills_the_engine(start: Start, strays: Strays, mode: str) -> None:
    """The kernel kills the engine with its guard; what fled is found by its mark. The status stays
    unknown."""
    worker = start(mode)
    line_with(worker, r"waiting|runaway")
    os.kill(worker.guard_pid, signal.SIGKILL)
    assert worker.wait(10.0) == ExitStatus()
    assert str(worker.poll()) == "?"
    assert gone(worker.pid)
    assert strays.none_left()
    assert worker.stop() == ExitStatus()


def test_sigterm_to_the_guard_stops_the_engine(start: Start) -> None:
    """Somebody ends "all python processes": the engine still ends in order."""
    worker = start("wait")
    line_with(worker, "waiting")
    os.kill(worker.guard_pid, signal.SIGTERM)
    assert worker.wait(10.0) == ExitStatus(signal=signal.SIGTERM)


LAUNCHER = """
import os, signal, sys, time
from pathlib import Path
from servemark.launch.process import start_worker
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell would have it ignored
folder, fake, mode, port, fork = sys.argv[1:]
argv = [sys.executable, "-I", "-S", fake, mode, port, "name"]
print("starting", flush=True)
worker = start_worker(argv, {}, base_url="http://127.0.0.1:" + port, log_path=Path(folder) / "engine.log",
                      work_dir=Path(folder), grace_s=0.3)
if fork == "fork" and os.fork() == 0:
    time.sleep(600)
try:
    print("started", worker.pid, flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", worker.poll(), flush=True)
    print("stopped", worker.stop(5.0), flush=True)
"""


class Launcher:
    """A launcher in a process of its own, so that it can be killed."""

    def __init__(self, folder: Path, port: int, mode: str = "runaway", fork: str = "no") -> None:
        fake = str(Path(__file__).with_name("fake_engine.py"))
        argv = [sys.executable, "-c", LAUNCHER, str(folder), fake, mode, str(port), fork]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def __enter__(self) -> Launcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.parametrize("fork", ["no", "fork"])
def test_kill_9_of_the_launcher_leaves_nothing(
    tmp_path: Path, strays: Strays, unused_port: Callable[[], int], fork: str
) -> None:
    """Engine, runaway grandchild and port are gone; also when a fork of the launcher still holds the pipe
    open."""
    with Launcher(tmp_path, unused_port(), fork=fork) as launcher:
        assert launcher.line() == "starting\n"
        engine = int(launcher.line().split()[1])
        launcher.process.kill()
        assert gone(engine)
        if fork == "fork":
            os.killpg(launcher.process.pid, signal.SIGKILL)
    assert strays.none_left()


def test_kill_9_of_the_launcher_at_any_instant(
    tmp_path: Path, strays: Strays, unused_port: Callable[[], int]
) -> None:
    """Killed 0 to 60 ms after it began to start the worker: before, during and after the guard's own
    start."""
    for step in range(5):
        with Launcher(tmp_path, unused_port()) as launcher:
            assert launcher.line() == "starting\n"
            time.sleep(step * 0.015)
            launcher.process.kill()
    assert strays.none_left()


def test_ctrl_c_reaches_only_the_launcher(
    tmp_path: Path, strays: Strays, unused_port: Callable[[], int]
) -> None:
    """The terminal signals the foreground group: the engine is in another one and is stopped in order."""
    with Launcher(tmp_path, unused_port(), mode="wait") as launcher:
        launcher.line()
        assert launcher.line().startswith("started")
        os.killpg(launcher.process.pid, signal.SIGINT)
        assert launcher.line() == "interrupted None\n"
        assert launcher.line() == "stopped SIGTERM (signal 15)\n"
    assert strays.none_left()


def test_program_that_cannot_start(start: Start, tmp_path: Path) -> None:
    """A missing program, one that may not be executed and a folder that is none: three messages, no
    process."""
    plain = tmp_path / "plain.txt"
    plain.write_text("not a program")
    for program, key in [
        ("/no/such/program", "launch.program_missing"),
        ("servemark-no-such-program", "launch.program_missing"),
        (str(plain), "launch.exec_refused"),
    ]:
        with pytest.raises(ServemarkError) as caught:
            start(argv=[program])
        assert caught.value.key == key
        assert program in str(caught.value)
    with pytest.raises(ServemarkError) as caught:
        start_worker(PY, {}, base_url="", log_path=tmp_path / "l.log", work_dir=plain)
    assert caught.value.key == "launch.cwd_refused"
    with pytest.raises(ServemarkError) as caught:
        start_worker(PY, {}, base_url="", log_path=tmp_path / "none" / "l.log", work_dir=tmp_path)
    assert caught.value.key == "base.file_failed"


@pytest.mark.parametrize("name", ["", "A B", "A=B", "1A", "Ä", "A\n", "A\0"])
def test_bad_environment_names(start: Start, name: str) -> None:
    """Refused before anything starts; the value is not shown."""
    with pytest.raises(ServemarkError) as caught:
        start("wait", **{name: "hunter2"})
    assert caught.value.key == "launch.env_name"
    assert "hunter2" not in str(caught.value)


def test_environment_reaches_the_engine_and_nothing_else(start: Start, tmp_path: Path) -> None:
    """A secret's value is in the engine's environment, in no log, repr or error; a NUL in it is refused."""
    canary = "canary-5d1f"
    worker = start(argv=[*PY, "import os; print(len(os.environ['API_TOKEN']))"], API_TOKEN=canary)
    assert worker.wait(10.0) == ExitStatus(0)
    assert worker.log_tail() == f"{len(canary)}\n"
    assert canary not in repr(worker) + repr(vars(worker))
    assert all(canary.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(ServemarkError) as caught:
        start("wait", API_TOKEN=f"{canary}\0")
    assert caught.value.key == "launch.env_value"
    assert canary not in str(caught.value) + repr(caught.value.values)


def test_nul_in_argv(start: Start) -> None:
    """No traceback from the depths of exec."""
    with pytest.raises(ServemarkError) as caught:
        start(argv=["python", "a\0b"])
    assert caught.value.key == "launch.argv_null"


def test_log_is_appended_and_read_from_this_workers_start(tmp_path: Path, strays: Strays) -> None:
    """A restarted engine adds to the log; tail, head and size are of its own part. stdout and stderr both."""
    log = tmp_path / "engine.log"
    log.write_text("of the one before: error\n")
    code = "import sys; print('out', flush=True); sys.stderr.write('err \\udcff'.encode('utf-8','replace').decode()+'\\n')"
    with start_worker([*PY, code], {}, base_url="", log_path=log, work_dir=tmp_path) as worker:
        assert worker.wait(10.0) == ExitStatus(0)
    assert worker.log_tail() == "out\nerr ?\n" == worker.log_head()
    assert worker.log_tail(6) == "err ?\n"
    assert worker.log_size() == 10
    assert log.read_text().startswith("of the one before: error\nout\n")


def test_cpu_and_memory_of_the_tree(start: Start) -> None:
    """A child of the engine counts: it holds 64 MiB and burns CPU, the engine itself only waits."""
    child = "b = bytearray(b'x' * (64 << 20)); print('held', flush=True)\nwhile True: pass"
    parent = f"import os, sys\nif os.fork() == 0:\n exec({child!r})\nos.wait()"
    worker = start(argv=[*PY, parent])
    line_with(worker, "held")
    rss, cpu = worker.rss_bytes(), worker.cpu_seconds()
    assert rss is not None and 64 << 20 < rss < 512 << 20
    assert cpu is not None
    deadline = time.monotonic() + 20.0
    while (worker.cpu_seconds() or 0.0) < cpu + 0.1:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    worker.stop(0.0)
    assert worker.rss_bytes() is None
    assert worker.cpu_seconds() is None


def test_fifty_starts_and_stops_leak_nothing(start: Start) -> None:
    """No file descriptor and no zombie of this process is left after fifty workers."""

    def children() -> list[int]:
        return [pid for pid, (parent, _) in guard.process_table().items() if parent == os.getpid()]

    before = children()  # other tests of this process may have left a helper of multiprocessing
    handles = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(50):
        start(argv=["/bin/sleep", "600"]).stop(1.0)
    assert len(list(Path("/proc/self/fd").iterdir())) == handles
    assert children() == before


def test_kill_marked_hits_only_its_own(start: Start) -> None:
    """The last resort goes by an exact mark: another worker lives on."""
    one, other = start("wait"), start("wait")
    line_with(one, "waiting")
    assert one.pid in kill_marked(one.marker)
    assert one.wait(10.0) is not None
    assert other.poll() is None
    assert kill_marked("0" * 32) == []
