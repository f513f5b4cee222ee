"""The one process that writes a sweep: it starts units, takes their outcomes, and answers what others ask.

Every transition is on disk before what depends on it happens: the intent before the process, the outcome before the
next start. So it may be killed at any instant; the next one finds every attempt finished, alive or dead.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError
from servemark.runs.interrupts import Interrupts
from servemark.runs.manifest import utc_now
from servemark.runs.sweep_attempts import Probe, WriterLock, interrupt, probe, start, take_slot
from servemark.runs.sweep_plan import PlanGuard, SweepOptions, failure_of
from servemark.runs.sweep_runner import Outcome, UnitRunner, Work
from servemark.runs.sweep_transitions import Wish, after, again, attempt_state, ended
from servemark.store.sweep_rows import (
    AttemptEnd,
    AttemptState,
    Failure,
    PointState,
    SweepAttempt,
    SweepPoint,
    SweepRow,
    SweepState,
)
from servemark.store.sweeps import SweepStore

SLOTS = "slots"
_TICK_S = 0.2
_JOBS_EVERY_S = 2.0
_LEFTOVERS_AGAIN_S = 2.0
_AT_ONCE = 64
"""Attempts started in one transaction, so that requests and signals are seen in between."""
_OPEN = (PointState.WAITING, PointState.RUNNING)


@dataclass(slots=True)
class _Live:
    """An attempt that has not been closed yet."""

    attempt: SweepAttempt
    work: Work
    began_s: float
    """time.time() of its start, from the file for one that an earlier process started."""
    child: subprocess.Popen[bytes] | None = None
    pidfd: int = -1
    stopping: bool = False
    look_again_s: float = 0.0
    jobs_seen_s: float = 0.0
    held: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SweepEnd:
    """How the scheduler's work ended. `state` RUNNING: it was told to leave at once, attempts live on."""

    state: SweepState
    counts: dict[PointState, int]
    signal_code: int | None = None
    """130 for Ctrl-C, 143 for SIGTERM; None when no signal came."""


class Scheduler:
    """Runs one sweep until nothing is left to do, it is paused, or cancelled. Holds the sweep's lock meanwhile."""

    def __init__(
        self,
        store: SweepStore,
        folder: Path,
        sweep: SweepRow,
        runner: UnitRunner,
        *,
        changed: Callable[[Scheduler], None] | None = None,
    ) -> None:
        """`folder` is that of all sweeps. `changed` is called after transitions, and a few times a second."""
        self.store = store
        self.folder = folder
        self.runner = runner
        self.options = SweepOptions.of(sweep.options)
        self.interrupts = Interrupts()
        self._sweep = sweep
        self._guard = PlanGuard(sweep.inputs)
        self._changed = changed
        self.points: dict[int, SweepPoint] = {}
        self._numbers: dict[PointState, set[int]] = {state: set() for state in PointState}
        self.live: dict[int, _Live] = {}
        self._next_attempt = 1
        self._version = -1
        self._queued: set[str] = set()
        self._left = False
        self._signals_seen = 0
        self._canary: SweepPoint | None = None

    @property
    def sweep(self) -> SweepRow:
        """The sweep as it is now."""
        return self._sweep

    def run(self) -> SweepEnd:
        """Work. Raises ServemarkError when the home or the file refuses; attempts that live then live on."""
        with self.interrupts:
            self._recover()
            try:
                while not self._over():
                    self._signals()
                    self._requests()
                    self._collect()
                    self._settle()
                    self._start()
                    if self._changed is not None:
                        self._changed(self)
                    self._wait()
            finally:
                self._close()
        code = self.interrupts.error().exit_code if self.interrupts.requested else None
        return SweepEnd(self._sweep.state, self.store.counts(self._sweep.sweep_id), code)

    # -- beginning and end ---------------------------------------------------------------------------------------

    def _recover(self) -> None:
        sweep_id = self._sweep.sweep_id
        self._put(self.store.points(sweep_id))
        attempts = self.store.attempts(sweep_id)
        self._next_attempt = 1 + max((one.attempt for one in attempts), default=0)
        for one in attempts:
            if one.state is AttemptState.RUNNING:
                folder = self._attempt_folder(one.attempt)
                work = Work(one.line_id, tuple(self.points[number] for number in one.numbers), folder)
                self.live[one.attempt] = _Live(one, work, _epoch(one.started_utc))
        if self._sweep.state is SweepState.CANCELLED:
            self._stop_live()
        self._change(answered=[asked.id for asked in self.store.open_requests(sweep_id)])
        self.store.unwant(sweep_id)

    def _put(self, points: Iterable[SweepPoint]) -> None:
        """New rows in memory; the file has them already."""
        for point in points:
            old = self.points.get(point.number)
            if old is not None:
                self._numbers[old.state].discard(point.number)
            self._numbers[point.state].add(point.number)
            self.points[point.number] = point
            if point.canary:
                self._canary = point

    def _over(self) -> bool:
        if self._left:
            return True
        if self.live:
            return False
        return self._sweep.state is not SweepState.RUNNING

    def _close(self) -> None:
        for one in self.live.values():
            if one.pidfd >= 0:
                os.close(one.pidfd)
            if one.child is not None:
                one.child.returncode = 0  # it lives on without us; nothing is to be said about that
        if self._queued:
            with contextlib.suppress(ServemarkError):
                self.store.unwant(self._sweep.sweep_id)

    def _with(self, *states: PointState) -> list[SweepPoint]:
        return [self.points[number] for state in states for number in sorted(self._numbers[state])]

    def _any(self, *states: PointState) -> bool:
        return any(self._numbers[state] for state in states)

    def _attempt_folder(self, attempt: int) -> Path:
        return self.folder / self._sweep.sweep_id / f"attempt-{attempt:05d}"

    def _change(
        self,
        points: Iterable[SweepPoint] = (),
        state: SweepState | None = None,
        answered: Iterable[int] = (),
        forgiven: int | None = None,
    ) -> None:
        """One transaction, then the same in memory."""
        rows = list(points)
        now = utc_now()
        ended_utc = None if state in (None, SweepState.RUNNING, SweepState.PAUSED) else now
        self.store.change(
            self._sweep.sweep_id,
            rows,
            state=state,
            ended_utc=ended_utc,
            answered=(list(answered), now),
            forgiven=forgiven,
        )
        self._put(rows)
        if state is not None:
            self._sweep = replace(self._sweep, state=state, ended_utc=ended_utc)
        if forgiven is not None:
            self._sweep = replace(self._sweep, forgiven=forgiven)

    # -- what others ask -----------------------------------------------------------------------------------------

    def _signals(self) -> None:
        """The first Ctrl-C or SIGTERM pauses and stops what runs; the second hurries it; the third leaves at once."""
        count = self.interrupts.count
        if count == self._signals_seen:
            return
        self._signals_seen = count
        if self._sweep.state is SweepState.RUNNING:
            self._change(state=SweepState.PAUSED)
        self._stop_live()
        if count >= 2:
            for one in self.live.values():
                interrupt(one.work.folder)
        self._left = count >= 3

    def _stop_live(self) -> None:
        for one in self.live.values():
            if not one.stopping:
                one.stopping = True
                interrupt(one.work.folder)

    def _requests(self) -> None:
        version = self.store.version()
        if version == self._version:
            return
        self._version = version
        for asked in self.store.open_requests(self._sweep.sweep_id):
            if asked.kind == "pause" and self._sweep.state is SweepState.RUNNING:
                self._change(state=SweepState.PAUSED, answered=[asked.id])
            elif asked.kind == "resume" and self._sweep.state is SweepState.PAUSED:
                self._change(state=SweepState.RUNNING, answered=[asked.id])
            elif asked.kind == "cancel":
                self._cancel(asked.id)
            elif asked.kind == "retry" and asked.number in self.points:
                point = self.points[asked.number]
                self._change(
                    [again(point)] if point.state not in _OPEN else [],
                    state=SweepState.RUNNING,
                    answered=[asked.id],
                    forgiven=self._next_attempt,
                )
            else:
                self._change(answered=[asked.id])

    def _cancel(self, request: int) -> None:
        rows = [
            ended(point, PointState.CANCELLED, "runs.sweep.cancelled")
            for point in self._with(PointState.WAITING)
        ]
        self._change(rows, state=SweepState.CANCELLED, answered=[request])
        self._stop_live()

    # -- what ended ----------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Close attempts of which nothing lives any more."""
        ends = []
        now = time.time()
        for number, one in list(self.live.items()):
            if one.child is not None:
                one.child.poll()  # takes the zombie
            found = probe(one.work.folder) if one.look_again_s <= now else None
            if found is None:
                continue
            if found.alive:
                self._note_jobs(one, now)
                _watch(one, found)
                continue
            end = self._end_of(one, found, now)
            if end is None:
                one.look_again_s = now + _LEFTOVERS_AGAIN_S
                continue
            ends.append(end)
            del self.live[number]
            if one.pidfd >= 0:
                os.close(one.pidfd)
        if ends:
            self._keep_ends(ends)

    def _keep_ends(self, ends: list[AttemptEnd]) -> None:
        self.store.end(self._sweep.sweep_id, ends)
        for end in ends:
            self._put(end.points)

    def _note_jobs(self, one: _Live, now: float) -> None:
        if one.attempt.jobs or now - one.jobs_seen_s < _JOBS_EVERY_S:
            return
        one.jobs_seen_s = now
        jobs = self.runner.jobs(one.work)
        if jobs:
            self.store.note_jobs(self._sweep.sweep_id, one.attempt.attempt, jobs)
            one.attempt = replace(one.attempt, jobs=jobs)

    def _end_of(self, one: _Live, found: Probe, now: float) -> AttemptEnd | None:
        """How an attempt ended; None while something of it (a batch job) must still be ended."""
        outcomes = self.runner.outcomes(one.work, found.exit)
        complete = all(outcome.run_id is not None for outcome in outcomes.values())
        if found.began and not (complete and found.exit is not None):
            one.held = self.runner.leftovers(one.work)
            if one.held:
                return None
        state = attempt_state(
            complete=complete,
            stopping=one.stopping,
            exit_word=found.exit,
            void=not found.began and one.child is None,
        )
        known_end = found.exit is not None or complete
        return AttemptEnd(
            attempt=one.attempt.attempt,
            state=state,
            ended_utc=utc_now(),
            seconds=max(0.0, now - one.began_s) if known_end else None,
            exit=found.exit,
            points=tuple(
                after(self.points[number], outcome, state, self._wish(), now)
                for number, outcome in outcomes.items()
            ),
            outcomes={number: (outcome.run_id, outcome.failure) for number, outcome in outcomes.items()},
        )

    def _wish(self) -> Wish:
        paused = self._sweep.state is SweepState.PAUSED
        going = paused or (self._sweep.state is SweepState.RUNNING and not self._failed_fast)
        return Wish(going=going, backoff_s=self.options.backoff_s)

    @property
    def _failed_fast(self) -> bool:
        return self.options.fail_fast and any(
            (point.attempt or 0) >= self._sweep.forgiven for point in self._with(PointState.FAILED)
        )

    # -- what follows --------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """What a failure means for the others, and the sweep's end."""
        if self._sweep.state is not SweepState.RUNNING:
            return
        if self._failed_fast:
            if self._any(PointState.WAITING):
                waiting = self._with(PointState.WAITING)
                self._change(ended(point, PointState.CANCELLED, "runs.sweep.fail_fast") for point in waiting)
            self._stop_live()
        canary = self._canary
        bad = (PointState.FAILED, PointState.CANCELLED, PointState.SKIPPED)
        if canary is not None and canary.state in bad and self._any(PointState.WAITING):
            values: dict[str, object] = {"point": canary.selector}
            self._change(
                ended(point, PointState.SKIPPED, "runs.sweep.canary_failed", values)
                for point in self._with(PointState.WAITING)
            )
        if not self._any(*_OPEN) and not self.live:
            bad_end = self._any(PointState.FAILED, PointState.CANCELLED)
            self._change(state=SweepState.FAILED if bad_end else SweepState.DONE)

    def _startable(self) -> Iterator[list[SweepPoint]]:
        """Units with waiting points, in the order of the plan."""
        now = time.time()
        held = self._canary is not None and self._canary.state is not PointState.DONE
        busy = {one.attempt.unit for one in self.live.values()}
        units: dict[int, list[SweepPoint]] = {}
        for point in self._with(PointState.WAITING):
            if point.unit not in busy and (point.canary or not held):
                units.setdefault(point.unit, []).append(point)
        for points in units.values():
            if all(point.not_before_s <= now for point in points):
                yield points

    def _start(self) -> None:
        if self._sweep.state is not SweepState.RUNNING or self._failed_fast:
            self._forget_queues(set())
            return
        chosen: list[tuple[list[SweepPoint], int | None]] = []
        full: set[str] = set()
        try:
            for points in self._startable():
                if len(self.live) + len(chosen) >= self.options.max_parallel or len(chosen) >= _AT_ONCE:
                    break
                cluster = points[0].cluster
                if cluster in full:
                    continue
                problem = self._guard.problem(points)
                if problem is not None:
                    self._change(replace(p, state=PointState.FAILED, failure=problem) for p in points)
                    continue
                slot = None
                if not self.options.rehearse:
                    slot = self._slot(cluster)
                    if slot is None:
                        full.add(cluster)
                        continue
                chosen.append((points, slot))
            self._forget_queues(full)
            if chosen:
                self._launch(chosen)
        finally:
            for _, slot in chosen:
                if slot is not None:
                    os.close(slot)

    def _slot(self, cluster: str) -> int | None:
        """A slot of a cluster when it is this sweep's turn; else the sweep queues for one."""
        mine = self._sweep.sweep_id
        for sweep_id, priority, _ in self.store.queue(cluster):
            if sweep_id == mine:
                break
            ahead = priority > self._sweep.priority or (
                cluster not in self._queued and priority == self._sweep.priority
            )
            if (ahead or cluster in self._queued) and WriterLock.holder(self.folder / sweep_id) is not None:
                self._queue_for(cluster)
                return None
        slot = take_slot(self.folder / SLOTS / cluster, self.options.max_parallel)
        if slot is None:
            self._queue_for(cluster)
        return slot

    def _queue_for(self, cluster: str) -> None:
        if cluster not in self._queued:
            self.store.want(self._sweep, cluster, time.time())
            self._queued.add(cluster)

    def _forget_queues(self, full: set[str]) -> None:
        for cluster in self._queued - full:
            self.store.unwant(self._sweep.sweep_id, cluster)
        self._queued &= full

    def _launch(self, chosen: list[tuple[list[SweepPoint], int | None]]) -> None:
        """The intent to start all of these as one transaction, then the processes."""
        now = utc_now()
        attempts, rows, works = [], [], []
        for points, slot in chosen:
            number = self._next_attempt
            self._next_attempt += 1
            running = [
                replace(point, state=PointState.RUNNING, tries=point.tries + 1, attempt=number)
                for point in points
            ]
            work = Work(self.runner.new_line_id(points[0]), tuple(running), self._attempt_folder(number))
            numbers = tuple(point.number for point in points)
            attempts.append(
                SweepAttempt(number, points[0].unit, work.line_id, AttemptState.RUNNING, now, numbers=numbers)
            )
            rows += running
            works.append((work, slot))
        self.store.begin(self._sweep.sweep_id, attempts, rows)
        self._put(rows)
        ends = []
        for attempt, (work, slot) in zip(attempts, works, strict=True):
            one = _Live(attempt, work, time.time())
            if self.options.rehearse:
                ends.append(self._rehearsed(one))
                continue
            failure = self._spawn(one, slot)
            if failure is None:
                self.live[attempt.attempt] = one
            else:
                ends.append(self._not_started(one, failure))
        if ends:
            self._keep_ends(ends)

    def _spawn(self, one: _Live, slot: int | None) -> Failure | None:
        try:
            one.child = start(one.work.folder, self.runner.argv(one.work), self.runner.env(), slot)
        except ServemarkError as error:
            if error.layer is Layer.HOME:
                raise  # nothing can be kept: the intent stays, and is found void by the next process
            return failure_of(error)
        with contextlib.suppress(OSError, AttributeError):
            one.pidfd = os.pidfd_open(one.child.pid)
        return None

    def _rehearsed(self, one: _Live) -> AttemptEnd:
        found = Probe(False, True, None, "exit 0")
        end = self._end_of(one, found, time.time())
        if end is None:
            raise RuntimeError("a rehearsal leaves nothing behind")
        return end

    def _not_started(self, one: _Live, failure: Failure) -> AttemptEnd:
        number = one.attempt.attempt
        outcome = Outcome(failure=failure, transient=True)  # out of memory or of processes: it may pass
        wish, now = self._wish(), time.time()
        points = tuple(after(point, outcome, AttemptState.FAILED, wish, now) for point in one.work.points)
        outcomes: dict[int, tuple[str | None, Failure | None]] = {p.number: (None, failure) for p in points}
        return AttemptEnd(number, AttemptState.FAILED, utc_now(), 0.0, None, points, outcomes)

    def _wait(self) -> None:
        """Until an attempt ends, at most a fifth of a second; not at all while a rehearsal goes on."""
        if (
            self.options.rehearse
            and self._sweep.state is SweepState.RUNNING
            and self._any(PointState.WAITING)
        ):
            return
        if self._over() or not self._any(*_OPEN):
            return
        poll = select.poll()
        for one in self.live.values():
            if one.pidfd >= 0 and one.look_again_s == 0:
                poll.register(one.pidfd, select.POLLIN)
        poll.poll(_TICK_S * 1000)


def _watch(one: _Live, found: Probe) -> None:
    """Be woken by the end of the attempt's process; when that has ended and its child lives on, look now and then."""
    if one.pidfd >= 0 and select.select([one.pidfd], [], [], 0)[0]:
        os.close(one.pidfd)
        one.pidfd = -1
    elif one.pidfd < 0 and one.child is None and found.pid is not None:
        with contextlib.suppress(OSError, AttributeError):
            one.pidfd = os.pidfd_open(found.pid)


def _epoch(utc: str) -> float:
    import calendar  # noqa: PLC0415 - only after a crash

    try:
        return float(calendar.timegm(time.strptime(utc, "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return time.time()
