"""The file of sweeps: frozen plans, states, attempts. One process writes a sweep's states; any may read and ask.

It stands beside the store, not in it: the store can be built again from the run folders at any time, a plan cannot.
Every transition is one transaction, on the disk before the call returns.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import make_folder
from servemark.base.messages import find_text
from servemark.store.database import connect, use_wal
from servemark.store.faults import fault, faults_of
from servemark.store.migrate import check, migrate, newest, shipped
from servemark.store.sweep_rows import (
    AttemptEnd,
    AttemptState,
    Failure,
    PointState,
    RequestKind,
    SweepAttempt,
    SweepPoint,
    SweepRequest,
    SweepRow,
    SweepState,
)

FILE = "sweeps.sqlite"
_MIGRATIONS = "sweep_migrations"


class SweepStore:
    """An open file of sweeps; a context manager. Every method raises ServemarkError (layer store) for a file that is
    damaged, locked for too long, read-only or out of space; nothing of the failed transaction stays."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._db = connection

    @classmethod
    def open(cls, folder: Path) -> SweepStore:
        """Open `folder`/sweeps.sqlite for writing; it is made or brought to the present schema where needed."""
        make_folder(folder)
        path = folder / FILE
        with _sweep_words(path):
            connection = connect(path, f"{path.absolute().as_uri()}?mode=rwc", "FULL")
            try:
                with faults_of(path):
                    use_wal(connection)
                    migrate(connection, path, shipped(_MIGRATIONS))
            except BaseException:  # an open handle must not outlive the failure, which goes on
                connection.close()
                raise
        return cls(path, connection)

    @classmethod
    def read(cls, folder: Path) -> SweepStore | None:
        """Open for reading; None when no sweep was ever started here."""
        path = folder / FILE
        if not path.exists():
            return None
        uri = path.absolute().as_uri()
        with _sweep_words(path):
            try:
                connection = connect(path, f"{uri}?mode=ro")
            except ServemarkError as error:
                wal = path.with_name(path.name + "-wal")
                unreadable = error.key in ("store.cannot_open", "store.read_only")
                if not unreadable or (wal.exists() and wal.stat().st_size):
                    raise
                connection = connect(path, f"{uri}?mode=ro&immutable=1")  # a folder that may not be written
            try:
                with faults_of(path):
                    steps = shipped(_MIGRATIONS)
                    have = check(connection, path, steps)
                    if have < newest(steps):
                        raise fault(path, "older_schema", found=have, known=newest(steps))
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- reading -------------------------------------------------------------------------------------------------

    def sweeps(self) -> list[SweepRow]:
        """Every sweep, the newest last."""
        query = "SELECT * FROM sweep ORDER BY rowid"  # several may start within one second
        return [_sweep(row) for row in self._all(query)]

    def sweep(self, sweep_id: str) -> SweepRow | None:
        """One sweep by its whole id."""
        found = self._all("SELECT * FROM sweep WHERE sweep_id = ?", sweep_id)
        return _sweep(found[0]) if found else None

    def points(self, sweep_id: str) -> list[SweepPoint]:
        """A sweep's points in the order of its plan."""
        query = f"SELECT {_POINT_COLUMNS} FROM sweep_point WHERE sweep_id = ? ORDER BY number"  # noqa: S608
        return [_point(row) for row in self._all(query, sweep_id)]

    def attempts(self, sweep_id: str, state: AttemptState | None = None) -> list[SweepAttempt]:
        """A sweep's attempts, oldest first; only those in `state` when it is given."""
        query = """
            SELECT a.attempt, a.unit, a.line_id, a.state, a.started_utc, a.ended_utc, a.seconds, a.exit, a.jobs,
                   (SELECT group_concat(number) FROM
                    (SELECT number FROM sweep_attempt_point p
                     WHERE p.sweep_id = a.sweep_id AND p.attempt = a.attempt ORDER BY number))
            FROM sweep_attempt a WHERE a.sweep_id = ? AND (? IS NULL OR a.state = ?) ORDER BY a.attempt
        """
        return [_attempt(row) for row in self._all(query, sweep_id, state, state)]

    def counts(self, sweep_id: str) -> dict[PointState, int]:
        """How many points are in each state; states without a point are 0."""
        query = "SELECT state, count(*) FROM sweep_point WHERE sweep_id = ? GROUP BY state"
        found = dict(self._all(query, sweep_id))
        return {state: int(found.get(state.value, 0)) for state in PointState}

    def version(self) -> int:
        """Changes whenever another process has written the file."""
        return int(self._all("PRAGMA data_version")[0][0])

    def open_requests(self, sweep_id: str) -> list[SweepRequest]:
        """What is asked and not yet answered, oldest first."""
        query = """
            SELECT id, kind, number FROM sweep_request
            WHERE sweep_id = ? AND answered_utc IS NULL ORDER BY id
        """
        return [SweepRequest(*row) for row in self._all(query, sweep_id)]

    def queue(self, cluster: str) -> list[tuple[str, int, float]]:
        """(sweep, priority, since) of all that wait for a slot of a cluster: whose turn it is first."""
        query = (
            "SELECT sweep_id, priority, since_s FROM sweep_queue WHERE cluster = ? "
            "ORDER BY priority DESC, since_s, sweep_id"
        )
        return [
            (str(sweep), int(priority), float(since)) for sweep, priority, since in self._all(query, cluster)
        ]

    # -- writing -------------------------------------------------------------------------------------------------

    def create(self, sweep: SweepRow, points: Sequence[SweepPoint]) -> None:
        """Freeze a plan: the sweep and all its points, or nothing."""
        values = (
            sweep.sweep_id,
            sweep.created_utc,
            sweep.ended_utc,
            sweep.state,
            sweep.priority,
            _json(sweep.options),
            _json(sweep.inputs),
            sweep.forgiven,
        )
        with self._writing():
            self._db.execute("INSERT INTO sweep VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
            self._put_points(sweep.sweep_id, points)

    def begin(self, sweep_id: str, attempts: Sequence[SweepAttempt], points: Sequence[SweepPoint]) -> None:
        """The intent to start attempts, and the points' new rows, before anything is started."""
        with self._writing():
            for one in attempts:
                values = (sweep_id, one.attempt, one.unit, one.line_id, one.state, one.started_utc)
                self._db.execute(
                    "INSERT INTO sweep_attempt (sweep_id, attempt, unit, line_id, state, started_utc) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    values,
                )
                self._db.executemany(
                    "INSERT INTO sweep_attempt_point (sweep_id, attempt, number) VALUES (?, ?, ?)",
                    [(sweep_id, one.attempt, number) for number in one.numbers],
                )
            self._put_points(sweep_id, points)

    def end(self, sweep_id: str, ends: Sequence[AttemptEnd]) -> None:
        """Attempts that ended, with the new rows of their points."""
        with self._writing():
            for one in ends:
                self._db.execute(
                    "UPDATE sweep_attempt SET state = ?, ended_utc = ?, seconds = ?, exit = ? "
                    "WHERE sweep_id = ? AND attempt = ?",
                    (one.state, one.ended_utc, one.seconds, one.exit, sweep_id, one.attempt),
                )
                self._db.executemany(
                    "UPDATE sweep_attempt_point SET run_id = ?, failure = ? "
                    "WHERE sweep_id = ? AND attempt = ? AND number = ?",
                    [
                        (run, _json(failure) if failure else None, sweep_id, one.attempt, number)
                        for number, (run, failure) in one.outcomes.items()
                    ],
                )
                self._put_points(sweep_id, one.points)

    def change(
        self,
        sweep_id: str,
        points: Iterable[SweepPoint] = (),
        *,
        state: SweepState | None = None,
        ended_utc: str | None = None,
        answered: tuple[Iterable[int], str] | None = None,
        forgiven: int | None = None,
    ) -> None:
        """New rows of points, a new state of the sweep, and the requests that this answers, as one transaction."""
        with self._writing():
            self._put_points(sweep_id, points)
            if state is not None:
                self._db.execute(
                    "UPDATE sweep SET state = ?, ended_utc = ? WHERE sweep_id = ?",
                    (state, ended_utc, sweep_id),
                )
            if forgiven is not None:
                self._db.execute("UPDATE sweep SET forgiven = ? WHERE sweep_id = ?", (forgiven, sweep_id))
            if answered is not None:
                self._db.executemany(
                    "UPDATE sweep_request SET answered_utc = ? WHERE id = ?",
                    [(answered[1], each) for each in answered[0]],
                )

    def note_jobs(self, sweep_id: str, attempt: int, jobs: Sequence[str]) -> None:
        """Ids of the batch jobs that an attempt holds."""
        with self._writing():
            self._db.execute(
                "UPDATE sweep_attempt SET jobs = ? WHERE sweep_id = ? AND attempt = ?",
                (" ".join(jobs), sweep_id, attempt),
            )

    def ask(self, sweep_id: str, kind: RequestKind, numbers: Sequence[int | None], asked_utc: str) -> None:
        """Leave requests for the process that writes the sweep."""
        with self._writing():
            self._db.executemany(
                "INSERT INTO sweep_request (sweep_id, kind, number, asked_utc) VALUES (?, ?, ?, ?)",
                [(sweep_id, kind, number, asked_utc) for number in numbers],
            )

    def want(self, sweep: SweepRow, cluster: str, since_s: float) -> None:
        """Queue a sweep for a slot of a cluster; its place stays when it is there already."""
        with self._writing():
            self._db.execute(
                "INSERT INTO sweep_queue VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (cluster, sweep.sweep_id, sweep.priority, since_s),
            )

    def unwant(self, sweep_id: str, cluster: str | None = None) -> None:
        """Leave a cluster's queue, or all of them."""
        with self._writing():
            self._db.execute(
                "DELETE FROM sweep_queue WHERE sweep_id = ? AND (? IS NULL OR cluster = ?)",
                (sweep_id, cluster, cluster),
            )

    def _put_points(self, sweep_id: str, points: Iterable[SweepPoint]) -> None:
        self._db.executemany(_PUT_POINT, [(sweep_id, *_point_values(point)) for point in points])

    def _all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with _sweep_words(self.path), faults_of(self.path):
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction with the write lock from its first moment; rolled back on any error."""
        with _sweep_words(self.path), faults_of(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:  # also Ctrl-C: half a transition is taken back
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise


_POINT_FIELDS = (
    "number",
    "unit",
    "point_id",
    "series_id",
    "selector",
    "suite",
    "arm",
    "topology",
    "concurrency",
    "cluster",
    "gpus",
    "canary",
    "recipe",
    "fingerprint",
    "state",
    "tries",
    "budget",
    "not_before_s",
    "attempt",
    "run_id",
    "failure",
)
_CHANGING = ("state", "tries", "budget", "not_before_s", "attempt", "run_id", "failure")
_POINT_COLUMNS = ", ".join(_POINT_FIELDS)
_PUT_POINT = (
    f"INSERT INTO sweep_point (sweep_id, {_POINT_COLUMNS}) VALUES ({', '.join('?' * (1 + len(_POINT_FIELDS)))}) "  # noqa: S608
    f"ON CONFLICT (sweep_id, number) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _CHANGING)}"
)


def _point_values(point: SweepPoint) -> tuple[object, ...]:
    values = [getattr(point, name) for name in _POINT_FIELDS]
    values[-1] = _json(point.failure) if point.failure is not None else None
    return tuple(values)


def _point(row: tuple[Any, ...]) -> SweepPoint:
    values = dict(zip(_POINT_FIELDS, row, strict=True))
    values["state"] = PointState(str(values["state"]))
    values["canary"] = bool(values["canary"])
    values["failure"] = _failure(values["failure"])
    return SweepPoint(**values)


def _failure(text: object) -> Failure | None:
    if text is None:
        return None
    found = json.loads(str(text))
    return found if isinstance(found, dict) else None


def _sweep(row: tuple[Any, ...]) -> SweepRow:
    sweep_id, created, ended, state, priority, options, inputs, forgiven = row
    return SweepRow(
        str(sweep_id),
        str(created),
        None if ended is None else str(ended),
        SweepState(str(state)),
        int(priority),
        json.loads(options),
        json.loads(inputs),
        int(forgiven),
    )


def _attempt(row: tuple[Any, ...]) -> SweepAttempt:
    attempt, unit, line_id, state, started, ended, seconds, code, jobs, numbers = row
    return SweepAttempt(
        int(attempt),
        int(unit),
        str(line_id),
        AttemptState(str(state)),
        str(started),
        None if ended is None else str(ended),
        None if seconds is None else float(seconds),
        None if code is None else str(code),
        tuple(str(jobs).split()),
        tuple(int(each) for each in str(numbers).split(",")) if numbers else (),
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@contextmanager
def _sweep_words(path: Path) -> Iterator[None]:
    """The store's messages advise to delete the file and build it again; here they say what is true of this one."""
    try:
        yield
    except ServemarkError as error:
        key = error.key.replace("store.", "store.sweeps.", 1)
        if error.layer is Layer.STORE and find_text(key, "en") is not None:
            raise ServemarkError(
                key, Layer.STORE, exit_code=error.exit_code, where=None, **error.values
            ) from error
        raise
    except (ValueError, TypeError, RecursionError) as error:  # a row that no servemark wrote
        raise ServemarkError(
            "store.sweeps.damaged", Layer.STORE, path=str(path), reason=str(error)
        ) from error
