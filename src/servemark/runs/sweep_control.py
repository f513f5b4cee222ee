"""Sweeps from outside: made, found, resumed, paused, cancelled, retried; by the one that writes, or by asking it."""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.base.files import disk_error, make_folder
from servemark.base.home import Home
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.runs.manifest import utc_now
from servemark.runs.sweep_attempts import WriterLock
from servemark.runs.sweep_plan import SweepOptions, freeze
from servemark.runs.sweep_runner import Rehearsal, RunVerb, UnitRunner
from servemark.runs.sweep_scheduler import Scheduler, SweepEnd
from servemark.runs.sweep_transitions import again, ended
from servemark.store.sweep_rows import PointState, RequestKind, SweepPoint, SweepRow, SweepState
from servemark.store.sweeps import SweepStore

ANSWER_S = 20.0
"""How long an answer of the process that writes a sweep is waited for; it looks several times a second."""
_POLL_S = 0.05
_DETACH_S = 20.0
Changed = Callable[[Scheduler], None]


def create(home: Home, options: SweepOptions) -> SweepRow:
    """Freeze a plan and keep it as one transaction. Nothing runs yet. Raises ServemarkError."""
    plan = freeze(options)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    sweep = SweepRow(
        sweep_id=f"{stamp}-sweep-{secrets.token_hex(2)}",
        created_utc=utc_now(),
        ended_utc=None,
        state=SweepState.RUNNING,
        priority=options.priority,
        options=options.plain(),
        inputs=plan.inputs,
    )
    with SweepStore.open(home.sweeps) as store:
        make_folder(home.sweeps / sweep.sweep_id)
        store.create(sweep, plan.points)
    return sweep


def find(home: Home, name: str) -> SweepRow:
    """A sweep by its id, a unique beginning or ending of it, or `latest`. ServemarkError (exit 2) otherwise."""
    store = SweepStore.read(home.sweeps)
    known: list[SweepRow] = []
    if store is not None:
        with store:
            known = store.sweeps()
    if not known:
        raise input_error("runs.sweep.none_yet", home=str(home.root))
    if name == "latest":
        return known[-1]
    alike = [one for one in known if one.sweep_id == name] or [
        one for one in known if one.sweep_id.startswith(name) or one.sweep_id.endswith(name)
    ]
    if len(alike) == 1 and name:
        return alike[0]
    some = ", ".join(one.sweep_id for one in (alike or known)[-4:])
    raise input_error("runs.sweep.ambiguous" if alike else "runs.sweep.unknown", sweep=name[:160], some=some)


def runner_of(home: Home, options: SweepOptions, clusters: Mapping[str, LaunchCluster]) -> UnitRunner:
    """What executes the units of a sweep."""
    if options.rehearse:
        return Rehearsal()
    file = Path(options.clusters_file) if options.clusters_file is not None else None
    return RunVerb(home, options.arguments, clusters, file)


@dataclass(slots=True)
class Control:
    """One sweep of a home, from outside."""

    home: Home
    sweep_id: str
    clusters: Mapping[str, LaunchCluster]
    """By the names that its points carry."""
    runner: UnitRunner | None = None
    """Instead of the one that its options name."""

    @property
    def folder(self) -> Path:
        """The sweep's own folder: its lock, and a folder an attempt."""
        return self.home.sweeps / self.sweep_id

    @property
    def log(self) -> Path:
        """What a process of its own says while it works on the sweep."""
        return self.folder / "scheduler.log"

    def resume(self, changed: Changed | None = None) -> SweepEnd | None:
        """Go on where it stands; None when the process that writes it was told to. ServemarkError (exit 2) when it is
        being worked on by another process, or when nothing is left to do."""
        if self.row().state is SweepState.PAUSED:
            lock = self._take_or_ask("resume")
        else:
            lock = WriterLock.take(self.folder)
            if lock is None:
                raise self._held()
        if lock is None:
            return None
        try:
            state = self.row().state
            if state not in (SweepState.RUNNING, SweepState.PAUSED):
                raise input_error("runs.sweep.over", sweep=self.sweep_id, state=str(state))
            return self._work(SweepState.RUNNING, (), changed)
        finally:
            lock.close()

    def pause(self) -> bool:
        """Start nothing new; True when a process that writes the sweep goes on until what runs has ended."""
        if self.row().state not in (SweepState.RUNNING, SweepState.PAUSED):
            raise input_error("runs.sweep.over", sweep=self.sweep_id, state=str(self.row().state))
        lock = self._take_or_ask("pause")
        if lock is None:
            return True
        try:
            with SweepStore.open(self.home.sweeps) as store:
                store.change(self.sweep_id, state=SweepState.PAUSED)
        finally:
            lock.close()
        return False

    def cancel(self, changed: Changed | None = None) -> SweepEnd | None:
        """Stop what runs and give up what waits; None when another process does so."""
        if self.row().state not in (SweepState.RUNNING, SweepState.PAUSED):
            raise input_error("runs.sweep.over", sweep=self.sweep_id, state=str(self.row().state))
        lock = self._take_or_ask("cancel")
        if lock is None:
            return None
        try:
            with SweepStore.open(self.home.sweeps) as store:
                waiting = [p for p in store.points(self.sweep_id) if p.state is PointState.WAITING]
            return self._work(
                SweepState.CANCELLED, [ended(point, PointState.CANCELLED) for point in waiting], changed
            )
        finally:
            lock.close()

    def retry(self, numbers: Sequence[int], changed: Changed | None = None) -> SweepEnd | None:
        """One more attempt for these points; None when another process does so."""
        lock = self._take_or_ask("retry", numbers)
        if lock is None:
            return None
        try:
            self._again(numbers)
            return self._work(SweepState.RUNNING, (), changed)
        finally:
            lock.close()

    def retry_later(self, numbers: Sequence[int]) -> None:
        """Mark these points as waiting for one more attempt, or ask the process that writes the sweep to."""
        lock = self._take_or_ask("retry", numbers)
        if lock is not None:
            self._again(numbers)
            lock.close()

    def _again(self, numbers: Sequence[int]) -> None:
        with SweepStore.open(self.home.sweeps) as store:
            points = [p for p in store.points(self.sweep_id) if p.number in numbers]
            forgiven = 1 + max((one.attempt for one in store.attempts(self.sweep_id)), default=0)
            rows = [again(point) for point in points if point.state is not PointState.RUNNING]
            store.change(self.sweep_id, rows, state=SweepState.RUNNING, forgiven=forgiven)

    def detach(self) -> int:
        """Let a process of its own work on the sweep; returns its id once it holds the sweep's lock.

        Raises ServemarkError (layer launch) when it ends before that, with its last words.
        """
        argv = [sys.executable, "-m", "servemark", "sweep", "resume", self.sweep_id]
        argv.append(f"--home={self.home.root}")
        log = self.log
        try:
            with log.open("ab") as stream:
                child = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
                )
        except OSError as error:
            raise disk_error(error, log) from error
        deadline = time.monotonic() + _DETACH_S
        while time.monotonic() < deadline:
            holder = WriterLock.holder(self.folder)
            if (holder is not None and holder[1] == str(child.pid)) or child.poll() == 0:
                break
            if child.poll() is not None:
                lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
                raise ServemarkError(
                    "runs.sweep.not_detached", Layer.LAUNCH, reason=" ".join(lines[-2:])[-600:], log=str(log)
                )
            time.sleep(_POLL_S)
        pid, child.returncode = child.pid, 0  # it lives on without us
        return pid

    def _work(self, state: SweepState, rows: Sequence[SweepPoint], changed: Changed | None) -> SweepEnd:
        with SweepStore.open(self.home.sweeps) as store:
            store.change(
                self.sweep_id,
                rows,
                state=state,
                ended_utc=utc_now() if state is SweepState.CANCELLED else None,
            )
            sweep = store.sweep(self.sweep_id)
            if sweep is None:
                raise input_error("runs.sweep.unknown", sweep=self.sweep_id, some="-")
            options = SweepOptions.of(sweep.options)
            runner = self.runner or runner_of(self.home, options, self.clusters)
            return Scheduler(store, self.home.sweeps, sweep, runner, changed=changed).run()

    def row(self) -> SweepRow:
        """The sweep as its file has it now."""
        return find(self.home, self.sweep_id)

    def _held(self) -> ServemarkError:
        host, pid = WriterLock.holder(self.folder) or ("?", "?")
        return ServemarkError(
            "runs.sweep.held", Layer.INPUT, exit_code=2, sweep=self.sweep_id, host=host, pid=pid
        )

    def _take_or_ask(self, kind: RequestKind, numbers: Sequence[int] = ()) -> WriterLock | None:
        """The sweep's lock when nobody has it; None when the one that has it has answered the request."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            lock = WriterLock.take(self.folder, 0.0)
            if lock is not None:
                return lock
            with SweepStore.open(self.home.sweeps) as store:
                store.ask(self.sweep_id, kind, list(numbers) or [None], utc_now())
                while store.open_requests(self.sweep_id):
                    if WriterLock.holder(self.folder) is None:
                        break
                    if time.monotonic() > deadline:
                        raise self._held()
                    time.sleep(_POLL_S)
                else:
                    return None


def chosen_points(points: Sequence[SweepPoint], names: Sequence[str], *, failed: bool) -> list[int]:
    """Numbers of the points that are named by selector, number or beginning of the point id; with `failed` all that
    have no result and wait for nothing. ServemarkError (exit 2) for a name that fits none, or several."""
    found = [
        point.number
        for point in points
        if failed
        and point.state in (PointState.FAILED, PointState.CANCELLED, PointState.SKIPPED)
        and _can_run(point)
    ]
    for name in names:
        alike = [p for p in points if name in (p.selector, str(p.number), p.point_id)]
        alike = alike or [p for p in points if len(name) >= 6 and p.point_id.startswith(name)]
        if len(alike) != 1:
            some = ", ".join(point.selector for point in (alike or points)[:4])
            raise input_error("runs.sweep.no_point", point=name[:160], count=len(alike), some=some)
        found.append(alike[0].number)
    return list(dict.fromkeys(found))


def _can_run(point: SweepPoint) -> bool:
    """A point without a deployment is skipped for good."""
    return not (
        point.state is PointState.SKIPPED and (point.failure or {}).get("key") != "runs.sweep.canary_failed"
    )
