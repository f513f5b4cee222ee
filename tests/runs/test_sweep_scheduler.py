"""What becomes of points: order, limits, failures, canary, retries, pause, cancel, several sweeps. Commands are real
processes; expected states follow from what each is told to do."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.base.home import Home
from servemark.runs.sweep_attempts import CHILD, WriterLock, probe, start
from servemark.runs.sweep_scheduler import Scheduler
from servemark.runs.sweep_status import read_status
from servemark.runs.sweep_transitions import backoff_s
from servemark.store.sweep_rows import AttemptState, PointState, SweepPoint, SweepState
from servemark.store.sweeps import SweepStore

MADE = runpy.run_path(str(Path(__file__).with_name("sweep_commands.py")))
make_sweep, control, Commands = MADE["make_sweep"], MADE["control"], MADE["Commands"]


def points(home: Path, sweep: str = "20260101-000000-sweep-0001") -> list[SweepPoint]:
    """As the file has them now."""
    with SweepStore.open(Home(home).sweeps) as store:
        return store.points(sweep)


def states(home: Path, sweep: str = "20260101-000000-sweep-0001") -> str:
    """The first letter of every point's state."""
    return "".join(str(point.state)[0] for point in points(home, sweep))


def lines(home: Path, word: str) -> int:
    """How many commands began or finished."""
    return sum(len(path.read_text().split()) for path in home.glob(f"{word}-*"))


def meanwhile(action: Callable[[], object], when: Callable[[], bool]) -> threading.Thread:
    """Do something as soon as a condition holds, beside the scheduler (which needs the main thread for signals)."""

    def wait() -> None:
        deadline = time.monotonic() + 20
        while not when() and time.monotonic() < deadline:
            time.sleep(0.02)
        action()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_keep_going_and_what_is_tried_again(tmp_path: Path) -> None:
    """A deterministic failure is tried once, one that may pass as often as is allowed, and nothing stops the rest."""
    sweep = make_sweep(tmp_path, ["bad", "ok", "node", "flaky", "ok"], max_attempts=3)
    end = control(tmp_path, sweep).resume()
    assert end.state is SweepState.FAILED
    assert states(tmp_path) == "fdfdd"
    assert [point.tries for point in points(tmp_path)] == [1, 1, 3, 2, 1]
    assert points(tmp_path)[0].failure == {"layer": "engine", "what": "unknown argument --no-such"}
    assert points(tmp_path)[3].failure is None
    assert lines(tmp_path, "began") == 8
    with SweepStore.open(Home(tmp_path).sweeps) as store:
        kept = [one for one in store.attempts(sweep.sweep_id) if one.unit == 4]
    assert [one.state for one in kept] == [AttemptState.FAILED, AttemptState.DONE]
    assert [one.exit for one in kept] == ["exit 4", "exit 0"]


def test_fail_fast_stops_what_runs_and_gives_up_the_rest(tmp_path: Path) -> None:
    """The running one gets Ctrl-C and ends long before its thirty seconds; what waits never begins."""
    sweep = make_sweep(tmp_path, ["slow", "second", "ok", "ok"], fail_fast=True, max_parallel=2)
    begun = time.monotonic()
    end = control(tmp_path, sweep).resume()
    assert time.monotonic() - begun < 15
    assert end.state is SweepState.FAILED
    assert states(tmp_path) == "cfcc"
    assert lines(tmp_path, "began") == 2
    assert points(tmp_path)[2].failure == {"layer": "interrupt", "key": "runs.sweep.fail_fast", "values": {}}


@pytest.mark.parametrize(("canary", "expected"), [("ok", "ddd"), ("bad", "sfs")])
def test_canary_first(tmp_path: Path, canary: str, expected: str) -> None:
    """The others run only when the canary has a result, and nothing runs beside it."""
    sweep = make_sweep(tmp_path, ["ok", canary, "ok"], canary=2, max_parallel=3)
    control(tmp_path, sweep).resume()
    assert states(tmp_path) == expected
    first = min(tmp_path.glob("began-*"), key=lambda path: path.stat().st_mtime_ns)
    assert first.name == "began-2"


def test_points_of_a_unit_share_an_attempt_and_only_the_rest_is_tried_again(tmp_path: Path) -> None:
    """The second of three fails for a passing cause: the first keeps its result and is not run again."""
    sweep = make_sweep(tmp_path, ["ok", "flaky", "ok"], unit_size=3)
    assert control(tmp_path, sweep).resume().state is SweepState.DONE
    assert [len((tmp_path / f"began-{n}").read_text().split()) for n in (1, 2, 3)] == [1, 2, 1]
    with SweepStore.open(Home(tmp_path).sweeps) as store:
        assert [one.numbers for one in store.attempts(sweep.sweep_id)] == [(1, 2, 3), (2, 3)]


def test_no_more_at_once_than_allowed(tmp_path: Path) -> None:
    """Five naps of 0.3 s, two at a time: overlaps are counted from the attempts that the file shows as running."""
    sweep = make_sweep(tmp_path, ["nap"] * 5, max_parallel=2)
    seen: list[int] = []
    control(tmp_path, sweep).resume(lambda scheduler: seen.append(len(scheduler.live)))
    assert max(seen) == 2
    assert states(tmp_path) == "ddddd"


def test_pause_lets_what_runs_end_and_resume_goes_on(tmp_path: Path) -> None:
    """Asked from outside while the scheduler lives."""
    sweep = make_sweep(tmp_path, ["gate", "ok", "ok"])
    outside = control(tmp_path, sweep)

    def pause() -> None:
        outside.pause()
        (tmp_path / "go").touch()

    thread = meanwhile(pause, lambda: lines(tmp_path, "began") == 1)
    end = control(tmp_path, sweep).resume()
    thread.join()
    assert end.state is SweepState.PAUSED
    assert states(tmp_path) == "dww"
    assert control(tmp_path, sweep).resume().state is SweepState.DONE
    assert lines(tmp_path, "began") == 3


def test_cancel_stops_what_runs(tmp_path: Path) -> None:
    """Asked from outside; the waiting point never begins, and the sweep cannot be resumed."""
    sweep = make_sweep(tmp_path, ["ok", "slow", "ok"])
    outside = control(tmp_path, sweep)
    thread = meanwhile(outside.cancel, (tmp_path / "began-2").exists)
    end = control(tmp_path, sweep).resume()
    thread.join()
    assert end.state is SweepState.CANCELLED
    assert states(tmp_path) == "dcc"
    with pytest.raises(ServemarkError) as caught:
        control(tmp_path, sweep).resume()
    assert (caught.value.key, caught.value.exit_code) == ("runs.sweep.over", 2)


def test_ctrl_c_stops_what_runs_and_keeps_it_for_later(tmp_path: Path) -> None:
    """The stopped point waits again with its budget untouched."""
    sweep = make_sweep(tmp_path, ["slow", "ok"])
    thread = meanwhile(lambda: os.kill(os.getpid(), signal.SIGINT), lambda: lines(tmp_path, "began") == 1)
    end = control(tmp_path, sweep).resume()
    thread.join()
    assert (end.state, end.signal_code) == (SweepState.PAUSED, 130)
    assert states(tmp_path) == "ww"
    assert points(tmp_path)[0].tries == 0


def test_one_point_again_after_the_end(tmp_path: Path) -> None:
    """With fail-fast the earlier failure of another point does not stop the one that is asked for."""
    sweep = make_sweep(tmp_path, ["bad", "ok", "ok"], fail_fast=True)
    control(tmp_path, sweep).resume()
    assert states(tmp_path) == "fcc"
    control(tmp_path, sweep).retry([3])
    assert states(tmp_path) == "fcd"
    first = points(tmp_path)[2].run_id
    control(tmp_path, sweep).retry([3])
    assert points(tmp_path)[2].run_id not in (None, first)  # the later complete attempt counts
    assert lines(tmp_path, "finished") == 2


def test_a_result_stands_when_a_further_attempt_fails(tmp_path: Path) -> None:
    """`flaky` goes well at its second beginning; a third that is killed takes nothing away."""
    sweep = make_sweep(tmp_path, ["ok"])
    control(tmp_path, sweep).resume()
    kept = points(tmp_path)[0].run_id
    MADE["ENDS"]["ok"], usual = "exit 3", MADE["ENDS"]["ok"]
    try:
        control(tmp_path, sweep).retry([1])
    finally:
        MADE["ENDS"]["ok"] = usual
    assert (states(tmp_path), points(tmp_path)[0].run_id) == ("d", kept)


def test_sweeps_share_the_slots_of_a_cluster_and_the_higher_priority_goes_first(tmp_path: Path) -> None:
    """One slot: while the low sweep has it, the high one queues; the low one's second point comes after all of it."""
    low = make_sweep(tmp_path, ["gate", "ok"], name="20260101-000000-sweep-0001")
    high = make_sweep(tmp_path, ["nap", "ok"], name="20260101-000000-sweep-0002", priority=5)
    folder = tmp_path / "high"
    folder.mkdir()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            while not (tmp_path / "began-1").exists():
                time.sleep(0.01)
            control(tmp_path, high, Commands(folder)).resume()
            code = 0
        finally:
            os._exit(code)

    def open_gate(scheduler: Scheduler) -> None:
        if scheduler.store.queue("local"):
            (tmp_path / "go").touch()

    control(tmp_path, low).resume(open_gate)
    assert os.waitpid(pid, 0)[1] == 0
    assert states(tmp_path, low.sweep_id) == states(tmp_path, high.sweep_id) == "dd"
    order = sorted(
        (path.stat().st_mtime_ns, str(path.relative_to(tmp_path))) for path in tmp_path.rglob("began-*")
    )
    assert [name for _, name in order] == ["began-1", "high/began-1", "high/began-2", "began-2"]


def test_only_one_process_writes_a_sweep(tmp_path: Path) -> None:
    """The second is told who holds it."""
    sweep = make_sweep(tmp_path, ["ok"])
    lock = WriterLock.take(Home(tmp_path).sweeps / sweep.sweep_id)
    assert lock is not None
    with pytest.raises(ServemarkError) as caught:
        control(tmp_path, sweep).resume()
    assert caught.value.key == "runs.sweep.held"
    assert caught.value.values["pid"] == str(os.getpid())
    lock.close()
    assert control(tmp_path, sweep).resume().state is SweepState.DONE


def test_no_new_attempt_while_a_job_of_the_old_one_lives(tmp_path: Path) -> None:
    """The runner says that a batch job could not be ended: the point stays where it is until it can."""
    sweep = make_sweep(tmp_path, ["flaky"], cluster="batch")
    runner = Commands(tmp_path, ["job 4711 COMPLETING n1"])
    again = 0.0

    def let_go(scheduler: Scheduler) -> None:
        nonlocal again
        for one in scheduler.live.values():
            if one.held:
                runner.held = []
                again = again or time.monotonic()

    control(tmp_path, sweep, runner).resume(let_go)
    assert again > 0
    assert lines(tmp_path, "began") == 2
    assert states(tmp_path) == "d"


def test_an_attempt_that_lives_on_is_waited_for(tmp_path: Path) -> None:
    """The intent and the process of an earlier scheduler that is gone: no second process, its result is taken."""
    sweep = make_sweep(tmp_path, ["nap", "ok"])
    runner = Commands(tmp_path)
    pid = os.fork()
    if pid == 0:
        control(tmp_path, sweep).resume()
        os._exit(0)
    while not (tmp_path / "began-1").exists():
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    now = read_status(Home(tmp_path), control(tmp_path, sweep).row())
    assert (now.state, states(tmp_path)) == ("stopped", "rw")
    assert control(tmp_path, sweep, runner).resume().state is SweepState.DONE
    assert (lines(tmp_path, "began"), lines(tmp_path, "finished")) == (2, 2)


def test_cancel_reaches_what_a_killed_launcher_left(tmp_path: Path) -> None:
    """Nobody works on the sweep, its attempt lives: it is stopped, and nothing of it is left."""
    sweep = make_sweep(tmp_path, ["slow", "ok"])
    pid = os.fork()
    if pid == 0:
        control(tmp_path, sweep).resume()
        os._exit(0)
    while not (tmp_path / "began-1").exists():
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert control(tmp_path, sweep).cancel().state is SweepState.CANCELLED
    assert states(tmp_path) == "cc"
    assert not probe(Home(tmp_path).sweeps / sweep.sweep_id / "attempt-00001").alive


def test_a_killed_attempt_is_lost_and_tried_again(tmp_path: Path) -> None:
    """All processes of the attempt get SIGKILL: nobody notes an end, and the point is tried again."""
    sweep = make_sweep(tmp_path, ["flaky"])
    MADE["ENDS"]["flaky"], usual = "[ $(wc -l < began-$n) -ge 2 ] && exit 0; sleep 30", MADE["ENDS"]["flaky"]

    def kill() -> None:
        found = probe(Home(tmp_path).sweeps / sweep.sweep_id / "attempt-00001")
        assert found.pid is not None
        family = [found.pid]
        for pid in family:
            family += _children(pid)
        for pid in family:
            os.kill(pid, signal.SIGKILL)

    thread = meanwhile(kill, lambda: lines(tmp_path, "began") == 1)
    try:
        control(tmp_path, sweep).resume()
    finally:
        MADE["ENDS"]["flaky"] = usual
        thread.join()
    assert states(tmp_path) == "d"
    with SweepStore.open(Home(tmp_path).sweeps) as store:
        assert [one.state for one in store.attempts(sweep.sweep_id)] == [AttemptState.LOST, AttemptState.DONE]


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_the_child_outlives_its_starter_and_notes_its_end(tmp_path: Path) -> None:
    """The record: alive with a pid, then the exit code; a program that is not there ends as 127 with its reason."""
    child = start(tmp_path / "a", ["/bin/sh", "-c", "sleep 0.2; exit 7"], {})
    while not probe(tmp_path / "a").began:
        time.sleep(0.01)
    assert probe(tmp_path / "a").pid == child.pid
    child.wait()
    assert probe(tmp_path / "a") == (found := probe(tmp_path / "a"))
    assert (found.alive, found.exit) == (False, "exit 7")
    start(tmp_path / "b", ["/no/such/program"], {}).wait()
    assert probe(tmp_path / "b").exit == "exit 127"
    assert "/no/such/program: No such file" in (tmp_path / "b" / "err.log").read_text()
    assert probe(tmp_path / "c") == type(found)(False, False, None, None)


def test_a_child_that_does_not_listen_is_killed_with_what_it_left(tmp_path: Path) -> None:
    """Patience of 0.3 s instead of the usual: SIGKILL ends the shell, SIGTERM the sleep that it leaves behind."""
    with (tmp_path / "record").open("wb", buffering=0) as record:
        command = "trap '' INT; sleep 30"
        argv = [sys.executable, "-I", "-S", str(CHILD), str(record.fileno()), "0.3", str(tmp_path), "--"]
        child = subprocess.Popen([*argv, "/bin/sh", "-c", command], pass_fds=(record.fileno(),))
    while not (family := _children(child.pid)):
        time.sleep(0.01)
    while not (left := _children(family[0])):
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    assert child.wait(20) == 0
    assert probe(tmp_path).exit == "signal 9"
    deadline = time.monotonic() + 5
    while (
        Path(f"/proc/{left[0]}").exists() and "Z" not in Path(f"/proc/{left[0]}/stat").read_text().split()[2]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("tries", "low", "high"), [(1, 7.5, 10.0), (2, 15.0, 20.0), (4, 60.0, 80.0), (40, 450.0, 600.0)]
)
def test_backoff_doubles_and_is_bounded(tries: int, low: float, high: float) -> None:
    """10 s, 20, 40, 80 ... at most 600, of which a random part of up to a quarter is taken off."""
    for _ in range(50):
        assert low <= backoff_s(10.0, tries) <= high


def test_nothing_points_to_a_state_without_a_name(tmp_path: Path) -> None:
    """Counts of the file agree with its points."""
    sweep = make_sweep(tmp_path, ["ok", "bad"])
    end = control(tmp_path, sweep).resume()
    assert end.counts == {**dict.fromkeys(PointState, 0), PointState.DONE: 1, PointState.FAILED: 1}
