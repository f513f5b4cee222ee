"""Several client processes: merged exactly, a killed one is noticed, a stop reaches all."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from tests.replay.conftest import Pause, Serve, delta, stream

from servemark.base.errors import ServemarkError
from servemark.replay.loop import LoopPlan, Shard
from servemark.replay.merging import merge_records
from servemark.replay.outcome import LoopOutcome
from servemark.replay.processes import ProcessReplay, process_count
from servemark.replay.records_io import read_records
from servemark.replay.shard_process import ShardJob
from servemark.replay.stop import StopSignal
from servemark.replay.target import Target
from servemark.traces.open import open_workload
from servemark.traces.text import TextMaker
from servemark.traces.types import Workload

OK = stream(delta(content="a"))
SPEC = "random:isl=10,osl=5,requests=24"


def make_plan(duration_s: float | None, workload: Workload, shard: Shard) -> LoopPlan:
    """Four lanes over both processes."""
    return LoopPlan(
        workload, 4, "session", "salt", duration_s=duration_s, grace_s=2.0, ramp_s=0.0, shard=shard
    )


def played(
    url: str, folder: Path, duration_s: float | None, kill: int | None = None, stop: StopSignal | None = None
) -> tuple[LoopOutcome, list[Path]]:
    """Two processes; `kill` is sent a SIGKILL 0.6 s after its start-up is over."""
    planned = None if duration_s else open_workload(SPEC).requests
    job = ShardJob(
        partial(open_workload, SPEC), partial(make_plan, duration_s), Target(url, "m"),
        TextMaker(["word"], 1), time.monotonic_ns(), 4, planned,
    )  # fmt: skip
    parts = [folder / f"{n}.jsonl" for n in range(2)]
    pids: list[int] = []
    killed = threading.Event()

    def on_progress(now: object) -> None:
        if kill is not None and not killed.is_set() and getattr(now, "done", 0) > 2:
            killed.set()
            os.kill(pids[kill], signal.SIGKILL)

    stop = stop or StopSignal()
    return ProcessReplay(job, 2, parts.__getitem__, stop, on_progress, pids.extend).run(), parts


def test_two_processes_send_everything_once(serve: Serve, tmp_path: Path) -> None:
    """24 requests in all, each in exactly one file, merged to one; clocks agree within a millisecond."""
    outcome, parts = played(serve([Pause(0.01), OK]).url, tmp_path, None)
    assert (outcome.sent, outcome.planned, outcome.partial) == (24, 24, False)
    for facts in outcome.processes:
        assert not facts.lost and facts.offset_s is not None and abs(facts.offset_s) < 0.01
    whole = tmp_path / "requests.jsonl"
    assert merge_records(parts, whole) == 0
    records = [r for _, r in read_records(whole)]
    assert len({r.id for r in records}) == 24 and {r.process for r in records} == {0, 1}
    assert {r.lane for r in records} == {0, 1, 2, 3}
    assert outcome.health.lag_samples == len(outcome.health.lags_s) > 0
    assert not parts[0].exists()


def test_a_killed_process_makes_the_result_partial(serve: Serve, tmp_path: Path) -> None:
    """kill -9 in the middle: the other one goes on to its end, and what the dead one wrote is kept."""
    outcome, parts = played(serve([Pause(0.02), OK]).url, tmp_path, 2.5, kill=1)
    assert outcome.partial and [p.lost for p in outcome.processes] == [False, True]
    assert outcome.window_s == pytest.approx(2.5, abs=0.01)
    whole = tmp_path / "requests.jsonl"
    merge_records(parts, whole)
    assert sum(1 for _ in read_records(whole)) == outcome.sent > outcome.processes[0].sent


def test_a_stop_reaches_every_process(serve: Serve, tmp_path: Path) -> None:
    """Drain after a second of a window of a minute."""
    stop = StopSignal()
    timer = threading.Timer(2.0, stop.request, ("drain", "interrupt"))
    timer.start()
    before = time.monotonic()
    outcome, _ = played(serve([Pause(0.02), OK]).url, tmp_path, 60.0, stop=stop)
    assert time.monotonic() - before < 20
    assert (outcome.stop_mode, outcome.stop_reason, outcome.partial) == ("drain", "interrupt", True)


def test_torn_ends_are_left_out(tmp_path: Path) -> None:
    """A part that a killed process left in the middle of a line."""
    one, two = tmp_path / "1", tmp_path / "2"
    one.write_bytes(b"a\nb\nhalf")
    two.write_bytes(b"c\n")
    assert merge_records([one, two], tmp_path / "all") == 1
    assert (tmp_path / "all").read_bytes() == b"a\nb\nc\n"


def test_counts() -> None:
    """auto gives one for few streams; never more than streams; nonsense is refused."""
    assert process_count("auto", 4) == 1 and process_count("8", 3) == 3
    for bad in ("0", "x", "1000"):
        with pytest.raises(ServemarkError):
            process_count(bad, 2000)
