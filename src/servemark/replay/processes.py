"""One replay in several client processes: each has every n-th lane and session, its own event loop, and its
own file of records.

All use the clock CLOCK_MONOTONIC, which is one for the whole system; how far each reads apart is measured all
the same. The parent starts the window of all at one moment, adds up progress, passes a stop on, moves idle
timers of all alike, and notices a process that ends without a word: the result is partial then.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.replay.health import kernel_drops
from servemark.replay.loop import Shard
from servemark.replay.merging import merge_outcomes
from servemark.replay.outcome import LoopOutcome, ProcessFacts
from servemark.replay.playing import Go
from servemark.replay.progress import PROGRESS_INTERVAL_S, MergedProgress, ProgressSnapshot
from servemark.replay.records_io import read_records
from servemark.replay.shard_process import ShardJob, main
from servemark.replay.stop import StopMode, StopSignal

MAX_PROCESSES: Final = 256
STREAMS_A_PROCESS: Final = 256
"""Streams that one process is given by `auto`: at 20 ms between tokens about a third of a core."""
_POLL_S: Final = 0.1
_HEAD_START_S: Final = 0.2
_END_S: Final = 2.5
_CLOCK_ROUNDS: Final = 5


def process_count(asked: str, streams: int) -> int:
    """Client processes: a number, or `auto`: one for 256 streams, as far as there are cores to spare.

    Raises ServemarkError (exit code 2) for what is neither.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if asked == "auto":
        return max(1, min(-(-streams // STREAMS_A_PROCESS), cores - 1, streams))
    try:
        count = int(asked)
    except ValueError:
        count = 0
    if not 1 <= count <= MAX_PROCESSES:
        raise input_error("replay.bad_processes", value=asked[:20], limit=MAX_PROCESSES)
    return min(count, max(1, streams))


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """A signal to the whole group must not end a process that is still importing: it inherits this mask, and lifts it
    when it ignores them itself. The parent's own are delivered afterwards."""
    resource_tracker.ensure_running()  # its start would lift the mask again
    held = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(slots=True, eq=False)
class _Child:
    """The parent's side of one process."""

    index: int
    process: BaseProcess
    pipe: Connection
    records: Path
    ready: float | None = None
    idle: tuple[float, float] | None = None
    outcome: LoopOutcome | None = None
    error: ServemarkError | None = None
    offset_s: float | None = None
    offset_error_s: float | None = None
    gone: bool = False

    def tell(self, *message: object) -> None:
        """Say something; a process that is gone hears nothing."""
        try:
            self.pipe.send(message)
        except (OSError, ValueError):
            self.gone = True


@dataclass(slots=True)
class ProcessReplay:
    """Runs a job in `count` processes. `records` names each process's file of records."""

    job: ShardJob
    count: int
    records: Callable[[int], Path]
    stop: StopSignal
    on_progress: Callable[[ProgressSnapshot], None] | None = None
    on_started: Callable[[list[int]], None] | None = None
    at_window: Callable[[], None] | None = None
    """Called once, when all are ready and before the window begins."""
    _children: list[_Child] = field(default_factory=list)
    _begun: bool = False
    _start_s: float = 0.0
    _told: StopMode | None = None

    def run(self) -> LoopOutcome:
        """To the end. Raises the first ServemarkError of a process (after stopping the others), or
        `replay.shards_lost` when none lived to tell."""
        drops = kernel_drops()
        merged = MergedProgress(self.job.planned, self.job.duration_s)
        try:
            with _signals_held():
                self._start()
            self._loop(merged)
        finally:
            self._end_all()
        error = next((c.error for c in self._children if c.error is not None), None)
        if error is not None:
            raise error
        parts = {c.index: c.outcome for c in self._children if c.outcome is not None}
        if not parts:
            raise ServemarkError("replay.shards_lost", Layer.REPLAY, count=self.count)
        after = kernel_drops()
        risen = None if drops is None or after is None else {k: after[k] - drops.get(k, 0) for k in after}
        return merge_outcomes(
            parts,
            [_facts(child) for child in self._children],
            planned=self.job.planned,
            concurrency=self.job.concurrency,
            drops=risen,
            stopped=(self.stop.mode, self.stop.reason),
        )

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        for index in range(self.count):
            ours, theirs = context.Pipe()
            records = self.records(index)
            process = context.Process(
                target=main, args=(theirs, self.job, Shard(index, self.count), records), daemon=True
            )
            process.start()
            self._children.append(_Child(index, process, ours, records))
            theirs.close()
        if self.on_started is not None:
            self.on_started([child.process.pid or 0 for child in self._children])

    def _loop(self, merged: MergedProgress) -> None:
        told_s = 0.0
        while living := [c for c in self._children if not c.gone]:
            for pipe in wait([c.pipe for c in living], _POLL_S):
                child = next(c for c in living if c.pipe is pipe)
                try:
                    self._take(child, child.pipe.recv(), merged)
                except (EOFError, OSError):
                    child.gone = True
            self._pass_stop_on()
            self._begin_when_ready()
            self._move_when_idle()
            now_s = time.monotonic()
            if self.on_progress is not None and now_s - told_s >= PROGRESS_INTERVAL_S:
                told_s = now_s
                self.on_progress(merged.snapshot(self._elapsed_s()))
        if self.on_progress is not None:
            self.on_progress(merged.snapshot(self._elapsed_s()))

    def _take(self, child: _Child, message: tuple[Any, ...], merged: MergedProgress) -> None:
        kind, *values = message
        if kind == "hello":
            self._compare_clocks(child)
        elif kind == "ready":
            child.ready = values[0].first_offset_s
        elif kind == "progress":
            merged.take(child.index, values[0])
        elif kind == "idle":
            child.idle = (values[0], values[1])
        elif kind == "busy":
            child.idle = None
        elif kind == "done":
            child.outcome = values[0]
        elif kind == "failed":
            key, layer, exit_code, where, said = values
            child.error = ServemarkError(key, Layer(layer), exit_code=exit_code, where=where, **said)
            self.stop.request("now", "process")

    def _compare_clocks(self, child: _Child) -> None:
        """The smallest round trip bounds the offset best: the other's reading lies between ours."""
        for _ in range(_CLOCK_ROUNDS):
            before = time.monotonic_ns()
            child.tell("clock")
            if child.gone or not child.pipe.poll(1.0):
                return
            kind, theirs = child.pipe.recv()
            after = time.monotonic_ns()
            if kind != "clock":
                return
            error_s = (after - before) / 2e9
            if child.offset_error_s is None or error_s < child.offset_error_s:
                child.offset_error_s = error_s
                child.offset_s = (theirs - (before + after) / 2) / 1e9
        child.tell("begin")

    def _begin_when_ready(self) -> None:
        if self._begun or any(c.ready is None for c in self._children if not c.gone):
            return
        self._begun = True
        if self.at_window is not None:
            self.at_window()
        first_s = min((c.ready for c in self._children if c.ready is not None), default=0.0)
        self._start_s = time.monotonic() - self.job.zero_ns / 1e9 + _HEAD_START_S
        for child in self._children:
            child.tell("go", Go(self._start_s, first_s))

    def _move_when_idle(self) -> None:
        cap_s = self.job.system_idle_cap_s
        living = [c for c in self._children if not c.gone and c.outcome is None]
        if cap_s is None or not living or any(c.idle is None for c in living):
            return
        since_s = max(c.idle[0] for c in living if c.idle)
        earliest_s = min(c.idle[1] for c in living if c.idle)
        if earliest_s - since_s > cap_s:
            for child in living:
                child.idle = None
                child.tell("shift", earliest_s - since_s - cap_s)

    def _pass_stop_on(self) -> None:
        mode = self.stop.mode
        if mode is not None and mode != self._told:
            self._told = mode
            for child in self._children:
                child.tell("stop", mode, self.stop.reason or "")

    def _elapsed_s(self) -> float:
        if not self._begun:
            return 0.0
        return max(0.0, time.monotonic() - self.job.zero_ns / 1e9 - self._start_s)

    def _end_all(self) -> None:
        for child in self._children:
            child.pipe.close()  # a child that still runs gives up what it has in flight, keeps its records, and ends
        until_s = time.monotonic() + _END_S
        for child in self._children:
            child.process.join(max(0.0, until_s - time.monotonic()))
            if child.process.is_alive():
                child.process.kill()
                child.process.join()


def _facts(child: _Child) -> ProcessFacts:
    out = child.outcome
    if out is not None:
        sent = out.sent
    else:
        try:
            sent = sum(r.phase == "measured" for _, r in read_records(child.records, allow_torn_tail=True))
        except ServemarkError:
            sent = 0
    health = None if out is None else out.health
    return ProcessFacts(
        child.index,
        sent,
        None if health is None else health.lag_p99_s,
        None if health is None else health.cpu_s,
        None if health is None else health.cpu_share_max,
        child.offset_s,
        child.offset_error_s,
        out is None,
    )
