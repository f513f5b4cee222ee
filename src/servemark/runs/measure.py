"""One point while it is measured: warm-up, the window, evals; watched for an engine that dies or falls silent."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servemark.base.errors import Layer, ServemarkError
from servemark.evals.runner import TaskOutcome, run_task
from servemark.evals.samples import SampleRecord, SampleWriter
from servemark.evals.tasks import EvalTask
from servemark.launch.engines.protocol import EngineCounters
from servemark.replay.client import ChatRequest, Client, Target, run
from servemark.replay.outcome import ReplayOutcome
from servemark.replay.record import RequestRecord
from servemark.replay.run import LoopPlan, replay
from servemark.replay.stop import StopSignal
from servemark.runs.deploy import LiveEngine
from servemark.runs.eval_send import sender
from servemark.runs.interrupts import Interrupts
from servemark.runs.phases import over
from servemark.runs.request import LineRequest
from servemark.runs.view import RunView
from servemark.traces.text import TextMaker

WATCH_S = 0.1


@dataclass(slots=True)
class Measured:
    """What one point gave. Clocks: wall and monotonic seconds at both ends, to notice a jump; `wall_zero` is the wall
    clock at the client's zero."""

    loop: ReplayOutcome | None = None
    evals: list[TaskOutcome] = field(default_factory=list)
    counters_before: EngineCounters | None = None
    counters_after: EngineCounters | None = None
    phases_s: dict[str, float] = field(default_factory=dict)
    wall_zero: float = 0.0
    zero_ns: int = 0
    """The client's zero, a value of `time.monotonic_ns()`."""
    wall_start: float = 0.0
    mono_start: float = 0.0
    wall_end: float = 0.0
    mono_end: float = 0.0

    @property
    def clock_jump_s(self) -> float | None:
        """How far the wall clock moved against the monotonic one, when by more than a second."""
        jump = (self.wall_end - self.wall_start) - (self.mono_end - self.mono_start)
        return jump if abs(jump) > 1.0 else None


@dataclass(slots=True)
class PointJob:
    """Everything one point needs; `keep` stores a record at once; samples of accuracy tasks go to the
    file at `samples_path` as they come."""

    request: LineRequest
    engine: LiveEngine
    concurrency: int
    marker_salt: str
    text: TextMaker
    keep: Callable[[RequestRecord], None]
    samples_path: Path
    view: RunView
    interrupts: Interrupts
    wall: Callable[[], float] = time.time


class _Limit:
    """The phase that is going on and the moment at which it must be over."""

    def __init__(self, budgets_s: Mapping[str, float]) -> None:
        self.budgets_s = budgets_s
        self.phase = ""
        self.deadline = float("inf")
        self.passed: str | None = None

    def enter(self, phase: str) -> None:
        """That phase begins."""
        self.phase, self.deadline = phase, time.monotonic() + self.budgets_s[phase]

    def look(self) -> bool:
        """True once a phase is over its budget; then `passed` names it."""
        if self.passed is None and time.monotonic() >= self.deadline:
            self.passed = self.phase
        return self.passed is not None


class _Ends:
    """How requests have ended so far: time-outs with no success since mean a hang, no success at all means nothing
    was measured."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.timeouts = 0
        self.ok = 0
        self.last_bad: RequestRecord | None = None

    def note(self, record: RequestRecord) -> None:
        """One more request ended."""
        if record.phase == "measured":
            self.ok += record.outcome == "ok"
            self.last_bad = self.last_bad if record.outcome == "ok" else record
        if record.outcome == "timeout":
            self.timeouts += 1
        elif record.outcome == "ok":
            self.timeouts = 0

    @property
    def hung(self) -> bool:
        """True once every lane has waited in vain."""
        return self.timeouts >= self.limit


def measure(job: PointJob) -> Measured:
    """Run one point to its end. Raises ServemarkError when the engine died or hangs, or a signal came."""
    return run(_measure(job))


async def _measure(job: PointJob) -> Measured:
    out = Measured()
    ends, limit = _Ends(job.concurrency), _Limit(job.engine.clock.budgets_s)

    def sink(record: RequestRecord) -> None:
        job.keep(record)
        ends.note(record)

    async with Client(_target(job)) as client:
        out.zero_ns = client.zero_ns
        stop = StopSignal()
        async with _watched(job, stop, ends, limit):
            limit.enter("warmup")
            begun = time.monotonic()
            job.view.phase("warmup", job.concurrency)
            await _stoppable(_warm_up(job, client, sink), stop, limit.budgets_s["warmup"])
            out.phases_s["warmup"] = time.monotonic() - begun
            _raise_if_ended(job, ends, limit)
            limit.enter("replay")
            await _window(job, client, sink, stop, out)
            _raise_if_ended(job, ends, limit)
            _raise_if_none_ok(job, ends)
            if job.request.tasks and job.request.scored is None:
                await _evals(job, client, sink, stop, ends, limit, out)
    return out


def score(job: PointJob, out: Measured) -> None:
    """Ask the tasks of a point that has been measured, on the deployment that runs now, and put them into `out`.
    Raises as `measure`."""
    run(_score(job, out))


async def _score(job: PointJob, out: Measured) -> None:
    ends, limit = _Ends(job.concurrency), _Limit(job.engine.clock.budgets_s)

    def sink(record: RequestRecord) -> None:
        job.keep(record)
        ends.note(record)

    async with Client(_target(job), zero_ns=out.zero_ns) as client:
        stop = StopSignal()
        async with _watched(job, stop, ends, limit):
            await _evals(job, client, sink, stop, ends, limit, out)


async def _evals(  # noqa: PLR0917 - the state of one point
    job: PointJob,
    client: Client,
    sink: Callable[[RequestRecord], None],
    stop: StopSignal,
    ends: _Ends,
    limit: _Limit,
    out: Measured,
) -> None:
    begun = time.monotonic()
    limit.enter("evals")
    job.view.phase("evals", job.concurrency)
    with SampleWriter(job.samples_path) as samples:
        for task in job.request.tasks:
            out.evals.append(await _evaluate(job, client, task, sink, samples.write, stop))
            _raise_if_ended(job, ends, limit)
    out.phases_s["evals"] = time.monotonic() - begun


def _target(job: PointJob) -> Target:
    bench = job.request.choice.deployment.benchmark
    return Target(
        base_url=job.engine.base_url, model=job.engine.served_name, idle_timeout_s=bench.idle_timeout_s
    )


async def _window(
    job: PointJob, client: Client, sink: Callable[[RequestRecord], None], stop: StopSignal, out: Measured
) -> None:
    """The measured window, with the engine's counters read on either side of it."""
    job.view.phase("replay", job.concurrency)
    out.counters_before = await asyncio.to_thread(job.engine.counters)
    out.wall_start, out.mono_start = job.wall(), time.monotonic()
    out.wall_zero = out.wall_start - client.now_s()
    plan = LoopPlan(
        workload=job.request.workload,
        concurrency=job.concurrency,
        cache_bust=job.request.cache_bust,
        marker_salt=job.marker_salt,
    )
    out.loop = await replay(plan, client, job.text, sink, stop, job.view.progress)
    out.wall_end, out.mono_end = job.wall(), time.monotonic()
    out.phases_s["replay"] = out.mono_end - out.mono_start
    if stop.mode is None:  # an engine that died or hangs has nothing to say
        out.counters_after = await asyncio.to_thread(job.engine.counters)


async def _warm_up(job: PointJob, client: Client, sink: Callable[[RequestRecord], None]) -> None:
    """A few requests that share nothing with the window: first-use costs are not the point's."""
    for number in range(job.request.choice.deployment.benchmark.warmup_requests):
        content = f"[warm-up {job.marker_salt} {number}] Say hello."
        sink(
            await client.send(
                ChatRequest(
                    id=f"warmup-{number}",
                    session="warmup",
                    turn=number,
                    phase="warmup",
                    messages=[{"role": "user", "content": content}],
                    max_tokens=8,
                )
            )
        )


async def _evaluate(  # noqa: PLR0917 - all that a task is asked with
    job: PointJob,
    client: Client,
    task: EvalTask,
    sink: Callable[[RequestRecord], None],
    keep: Callable[[SampleRecord], None],
    stop: StopSignal,
) -> TaskOutcome:
    """One accuracy task against the same endpoint; its records are kept, and never enter the window."""

    correct = 0

    def on_item(sample: SampleRecord, done: int, total: int) -> None:
        nonlocal correct
        correct += sample.correct
        keep(sample)
        job.view.eval_progress(task.id, done, total, correct)

    ended = asyncio.Event()
    concurrency = job.request.choice.deployment.benchmark.eval_concurrency or job.concurrency
    with stop.watched(ended.set):
        send = sender(client, task, sink)
        return await run_task(task, send, concurrency, on_item, ended, keep=0)


async def _stoppable(work: Coroutine[Any, Any, None], stop: StopSignal, limit_s: float) -> None:
    """Do something that has no stop of its own until it is done, is stopped, or has taken too long."""
    task = asyncio.ensure_future(work)

    def give_up() -> None:
        task.cancel()

    with stop.watched(give_up):
        await asyncio.wait({task}, timeout=limit_s)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def _watched(job: PointJob, stop: StopSignal, ends: _Ends, limit: _Limit) -> AsyncIterator[None]:
    """While inside: a dead or silent engine, a signal, or a budget that is spent, stops whatever is being sent."""

    async def watch() -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            if await asyncio.to_thread(job.engine.exited) is not None or ends.hung:
                stop.request("now", "engine")
            elif limit.look():
                stop.request("now", "budget")
            elif job.interrupts.requested:
                stop.request("now", "interrupt")

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _raise_if_none_ok(job: PointJob, ends: _Ends) -> None:
    """A window in which nothing was answered measures nothing."""
    bad = ends.last_bad
    if ends.ok == 0 and bad is not None:
        raise ServemarkError(
            "runs.none_answered",
            Layer.ENGINE,
            outcome=bad.outcome,
            kind=bad.error_kind or "-",
            detail=(bad.error_detail or "-")[:200],
            log=str(job.engine.log_path),
        )


def _raise_if_ended(job: PointJob, ends: _Ends, limit: _Limit) -> None:
    """The cause of an early end, the engine's word before the client's."""
    job.interrupts.check()
    died = job.engine.exited()
    if died is not None:
        raise died
    if ends.hung:
        raise job.engine.hung(job.request.choice.deployment.benchmark.idle_timeout_s, ends.timeouts)
    if limit.look() and limit.passed is not None:
        raise over(limit.passed, limit.budgets_s[limit.passed], str(job.engine.log_path))
