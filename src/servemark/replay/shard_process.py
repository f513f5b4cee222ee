"""The inside of one client process of several; see `processes`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from servemark.base.errors import ServemarkError
from servemark.replay.client import Client, run
from servemark.replay.loop import ClosedLoop, Shard
from servemark.replay.open_loop import OpenLoop
from servemark.replay.outcome import LoopOutcome
from servemark.replay.playing import Go, Ready
from servemark.replay.progress import PROGRESS_INTERVAL_S
from servemark.replay.prompts import SegmentText
from servemark.replay.records_io import RecordWriter
from servemark.replay.run import ReplayPlan, replay
from servemark.replay.stop import StopSignal
from servemark.replay.target import Target
from servemark.traces.types import Workload


@dataclass(frozen=True, slots=True)
class ShardJob:
    """What every process needs, all of it picklable: `open_workload` and `make_plan` are called in each."""

    open_workload: Callable[[], Workload]
    make_plan: Callable[[Workload, Shard], ReplayPlan]
    target: Target
    text: SegmentText
    zero_ns: int
    concurrency: int
    planned: int | None
    system_idle_cap_s: float | None = None
    duration_s: float | None = None


def main(pipe: Connection, job: ShardJob, shard: Shard, records: Path) -> None:
    """Entry of the process. Ctrl-C at a terminal, and a batch system's SIGTERM, reach every process of the
    group: the parent alone decides what they mean, and tells."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    line = _Line(pipe, job.zero_ns)
    line.say("hello")
    if not line.answer_clocks():
        return
    try:
        run(_replay(line, job, shard, records))
    except ServemarkError as error:
        line.say("failed", *_plain(error))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        values = {"process": shard.index, "reason": reason[:300]}
        line.say("failed", "replay.shards_failed", "replay", 1, None, values)
    finally:
        line.close()


class _Line:
    """The pipe to the parent: said from the event loop's thread, heard in a thread of its own."""

    def __init__(self, pipe: Connection, zero_ns: int) -> None:
        self._pipe = pipe
        self._zero_ns = zero_ns
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._go: asyncio.Future[Go] | None = None
        self._made: ClosedLoop | OpenLoop | None = None
        self.stop = StopSignal()

    def say(self, *message: object) -> None:
        """A parent that is gone hears nothing; the listener notices that too."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._pipe.send(message)

    def close(self) -> None:
        """End the line."""
        with contextlib.suppress(OSError):
            self._pipe.close()

    def answer_clocks(self) -> bool:
        """Before anything else runs here, so that answers come at once. False when the parent is gone."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                kind, *values = self._pipe.recv()
                if kind == "clock":
                    self.say("clock", time.monotonic_ns())
                elif kind == "stop":
                    self.stop.request(values[0], values[1])
                elif kind == "begin":
                    return True
        return False

    def listen(self) -> None:
        """Start to hear; called in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._go = self._loop.create_future()
        threading.Thread(target=self._hear, name="parent", daemon=True).start()

    def made(self, loop: ClosedLoop | OpenLoop) -> None:
        """The replay exists: its idle moments are the parent's to judge."""
        self._made = loop
        loop.timeline.on_idle = lambda since_s, due_s: self.say("idle", since_s, due_s)
        loop.timeline.on_busy = lambda: self.say("busy")

    async def barrier(self, ready: Ready) -> Go:
        """Ready; wait for the common start, or for a stop."""
        self.say("ready", ready)
        if self._go is None:
            raise RuntimeError("not listening")
        return await self._go

    def _hear(self) -> None:
        try:
            while True:
                self._act(self._pipe.recv())
        except (EOFError, OSError, TypeError):
            self.stop.request("now", "parent")
            self._in_loop(self._release)

    def _act(self, message: tuple[Any, ...]) -> None:
        kind, *values = message
        if kind == "go":
            self._in_loop(self._release, values[0])
        elif kind == "shift":
            self._in_loop(self._shift, values[0])
        elif kind == "stop":
            self.stop.request(values[0], values[1])
            self._in_loop(self._release)

    def _in_loop(self, call: Any, *values: object) -> None:  # noqa: ANN401 - any of this class's own
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(call, *values)

    def _release(self, go: Go | None = None) -> None:
        if self._go is not None and not self._go.done():
            self._go.set_result(go or Go((time.monotonic_ns() - self._zero_ns) / 1e9, 0.0))

    def _shift(self, shift_s: float) -> None:
        if self._made is not None:
            self._made.timeline.shift_all(shift_s)


async def _replay(line: _Line, job: ShardJob, shard: Shard, records: Path) -> None:
    line.listen()
    workload = job.open_workload()
    plan = job.make_plan(workload, shard)
    with RecordWriter(records) as writer:
        async with Client(job.target, zero_ns=job.zero_ns) as client:
            outcome = await _told(line, plan, client, job, writer)
    line.say("done", outcome)


async def _told(
    line: _Line, plan: ReplayPlan, client: Client, job: ShardJob, writer: RecordWriter
) -> LoopOutcome:
    made: list[ClosedLoop | OpenLoop] = []

    def on_made(loop: ClosedLoop | OpenLoop) -> None:
        made.append(loop)
        line.made(loop)

    async def tell() -> None:
        while True:
            await asyncio.sleep(PROGRESS_INTERVAL_S)
            if made:
                line.say("progress", made[0].progress.part(client.in_flight))

    teller = asyncio.create_task(tell())
    try:
        return await replay(
            plan, client, job.text, writer.write, line.stop, barrier=line.barrier, on_made=on_made
        )
    finally:
        teller.cancel()
        if made:
            line.say("progress", made[0].progress.part(client.in_flight))


def _plain(error: ServemarkError) -> tuple[str, str, int, str | None, dict[str, object]]:
    values = {k: v if isinstance(v, str | int | float) else str(v) for k, v in error.values.items()}
    return error.key, str(error.layer), error.exit_code, error.where, dict(values)
