"""The store: rows in, rows out. Safe with other processes that read and write the same file."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from servemark.base.canonical import canonical_json
from servemark.base.errors import ServemarkError
from servemark.base.files import make_folder
from servemark.results.row import ResultRow, RunStatus
from servemark.results.serialize import SHA_KEY, decode_json, row_from_json, verified_json
from servemark.store.faults import BUSY_TIMEOUT_S, fault, faults_of, translate
from servemark.store.migrate import check, migrate, newest, shipped

MAPPING_VERSION = 1
"""Version of the mapping from a source file's content to a row; a row of our own maps to itself."""

Ingested = Literal["added", "same", "superseded"]


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Which rows are wanted; None asks for nothing. `limit` keeps the newest ones."""

    suite: str | None = None
    arm: str | None = None
    line_id: str | None = None
    point_id: str | None = None
    series_id: str | None = None
    run_id: str | None = None
    status: RunStatus | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class LineSummary:
    """One line: how many of its runs are in the store, and when they ran (ISO 8601 UTC)."""

    line_id: str
    suite: str
    arm: str
    runs: int
    complete: int
    started_utc: str
    finished_utc: str


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """How much the store holds. `superseded` rows are kept but never returned."""

    runs: int
    lines: int
    points: int
    source_files: int
    superseded: int


class Store:
    """An open store; a context manager. Every method raises ServemarkError (layer store) for a file that is
    damaged, locked for too long, read-only or out of space."""

    def __init__(self, path: Path, connection: sqlite3.Connection, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self._db = connection

    @classmethod
    def open(cls, path: Path, read_only: bool = False) -> Store:
        """Open the file, and unless `read_only` create it and bring it to the present schema.

        Raises ServemarkError (layer store) that says what is wrong with the file and what to do.
        """
        if read_only:
            return cls(path, _connect_read_only(path), True)
        make_folder(path.parent)
        if path.exists() and not path.is_file():
            raise fault(path, "not_a_database")
        connection = connect(path, f"{path.absolute().as_uri()}?mode=rwc")
        try:
            with faults_of(path):
                use_wal(connection)
                migrate(connection, path)
        except BaseException:  # an open handle must not outlive the failure, which goes on
            connection.close()
            raise
        return cls(path, connection, False)

    def close(self) -> None:
        """Close the file. Safe to call twice."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ingest(self, data: bytes, source_path: Path | str) -> Ingested:
        """Keep one row: the bytes of a `result.json`, and the path that they came from.

        "same": this very content is here already, nothing changed. "added": a run that was not here.
        "superseded": the run was here with other content; both are kept, and the one that finished later
        counts (of two that finished alike, the one given now). All or nothing; any number of processes may do
        so at once. Raises ServemarkError (layer results) for bytes that are no sound row, `store.no_row` for
        one whose values no store can hold, and as the class says.
        """
        plain = verified_json(data, source_path)
        row = row_from_json(plain, source_path)
        content, text = str(plain[SHA_KEY]), canonical_json(plain)
        sha256 = hashlib.sha256(data).hexdigest()
        with self.writing():
            if self._known(content):
                return "same"
            held = self._held(row.run_id)
            later = held is None or row.finished_utc >= held[0]
            raw_id = self._keep_raw(text, content, str(source_path), sha256, len(data), counts=later)
            if not later:
                return "superseded"
            self._keep_identities(row)
            self._keep_run(row, raw_id)
            if held is None:
                return "added"
            reason = f"run {row.run_id} was read again with other content"
            self._db.execute(
                "UPDATE raw_row SET status = 'superseded', reason = ? WHERE id = ?", (reason, held[1])
            )
            return "superseded"

    def rows(self, wanted: RowFilter | None = None) -> list[ResultRow]:
        """Rows that match, by start and concurrency; of each run only the content that counts."""
        where, values = _conditions(wanted or RowFilter())
        limit = (wanted or RowFilter()).limit
        query = f"""
            SELECT json FROM (
                SELECT raw_row.json AS json, run.started_utc AS started, point.concurrency AS concurrency,
                       run.run_id AS run_id
                FROM run JOIN raw_row ON raw_row.id = run.raw_row_id
                JOIN line ON line.line_id = run.line_id JOIN point ON point.point_id = run.point_id
                {where} ORDER BY run.started_utc DESC, point.concurrency DESC, run.run_id DESC LIMIT ?
            ) ORDER BY started, concurrency, run_id
        """  # noqa: S608 - `where` holds fixed column names and question marks only
        with faults_of(self.path):
            texts = [text for (text,) in self._db.execute(query, (*values, -1 if limit is None else limit))]
        return [row_from_json(decode_json(text, self.path), self.path) for text in texts]

    def lines(self) -> list[LineSummary]:
        """Every line, the newest last."""
        with faults_of(self.path):
            return [
                LineSummary(*found)
                for found in self._db.execute(_LINES.format(where="", order="ASC", limit=-1))
            ]

    def latest_line(self, suite: str, arm: str) -> str | None:
        """The id of the newest line of an arm that has at least one complete run; None when there is none."""
        where = "WHERE line.suite = ? AND line.arm = ? AND run.status = 'complete'"
        query = _LINES.format(where=where, order="DESC", limit=1)
        with faults_of(self.path):
            found = self._db.execute(query, (suite, arm)).fetchone()
        return str(found[0]) if found else None

    def counts(self) -> StoreCounts:
        """How much is here."""
        query = """
            SELECT (SELECT count(*) FROM run), (SELECT count(*) FROM line), (SELECT count(*) FROM point),
                   (SELECT count(*) FROM source_file),
                   (SELECT count(*) FROM raw_row WHERE status = 'superseded')
        """
        with faults_of(self.path):
            return StoreCounts(*self._db.execute(query).fetchone())

    def check(self) -> list[str]:
        """SQLite's own findings about the file's integrity and references; empty when it is sound."""
        with faults_of(self.path):
            found = [str(line) for (line,) in self._db.execute("PRAGMA integrity_check")]
            dangling = self._db.execute("PRAGMA foreign_key_check").fetchall()
        return [line for line in found if line != "ok"] + [f"dangling reference: {each}" for each in dangling]

    def query(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of one reading statement of this room."""
        with faults_of(self.path):
            return self._db.execute(sql, values).fetchall()

    @property
    def connection(self) -> sqlite3.Connection:
        """For the other modules of this room, within `writing`."""
        return self._db

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction that holds the write lock from its first moment, so that it cannot fail half-way
        for want of it; rolled back on any error."""
        if self.read_only:
            raise fault(self.path, "read_only")
        with faults_of(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:  # also Ctrl-C: half a transaction is taken back
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _held(self, run_id: str) -> tuple[str, int] | None:
        """(finished_utc, raw_row id) of a run's content that counts."""
        query = "SELECT finished_utc, raw_row_id FROM run WHERE run_id = ?"
        found = self._db.execute(query, (run_id,)).fetchone()
        return (str(found[0]), int(found[1])) if found else None

    def _known(self, content: str) -> bool:
        return (
            self._db.execute("SELECT 1 FROM raw_row WHERE row_sha256 = ?", (content,)).fetchone() is not None
        )

    def _keep_raw(self, text: str, content: str, path: str, sha256: str, size: int, *, counts: bool) -> int:
        """The source file and its raw row; returns the raw row's id."""
        self._db.execute(
            "INSERT INTO source_file VALUES (?, ?, ?, ?) ON CONFLICT (sha256) DO NOTHING",
            (sha256, path, size, _now()),
        )
        status, reason = ("mapped", "") if counts else ("superseded", "a later content of this run is here")
        cursor = self._db.execute(
            """
            INSERT INTO raw_row (source_sha256, ordinal, row_sha256, mapping_version, status, reason, json)
            VALUES (?, 0, ?, ?, ?, ?, ?) RETURNING id
            """,
            (sha256, content, MAPPING_VERSION, status, reason, text),
        )
        return int(cursor.fetchone()[0])

    def _keep_identities(self, row: ResultRow) -> None:
        self._db.execute(
            "INSERT INTO line VALUES (?, ?, ?) ON CONFLICT (line_id) DO NOTHING",
            (row.line_id, row.suite, row.arm),
        )
        self._db.execute(
            """
            INSERT INTO point (point_id, series_id, concurrency, identity) VALUES (?, ?, ?, ?)
            ON CONFLICT (point_id) DO NOTHING
            """,
            (row.point_id, row.series_id, row.concurrency, canonical_json(row.identity)),
        )

    def _keep_run(self, row: ResultRow, raw_id: int) -> None:
        self._db.execute(
            """
            INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (run_id) DO UPDATE SET
                line_id = excluded.line_id, point_id = excluded.point_id, raw_row_id = excluded.raw_row_id,
                status = excluded.status, started_utc = excluded.started_utc,
                finished_utc = excluded.finished_utc
            """,
            (row.run_id, row.line_id, row.point_id, raw_id, row.status, row.started_utc, row.finished_utc),
        )


_LINES = """
    SELECT line.line_id, line.suite, line.arm, count(*), sum(run.status = 'complete'),
           min(run.started_utc), max(run.finished_utc)
    FROM line JOIN run ON run.line_id = line.line_id
    {where} GROUP BY line.line_id ORDER BY min(run.started_utc) {order}, line.line_id {order} LIMIT {limit}
"""

_COLUMNS = {
    "suite": "line.suite",
    "arm": "line.arm",
    "line_id": "run.line_id",
    "point_id": "run.point_id",
    "series_id": "point.series_id",
    "run_id": "run.run_id",
    "status": "run.status",
}


def _conditions(wanted: RowFilter) -> tuple[str, list[str]]:
    """(WHERE clause of fixed column names, its values)."""
    chosen = {column: getattr(wanted, name) for name, column in _COLUMNS.items()}
    used = {column: value for column, value in chosen.items() if value is not None}
    clause = " AND ".join(f"{column} = ?" for column in used)
    return (f"WHERE {clause}" if clause else ""), list(used.values())


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def connect(path: Path, uri: str, synchronous: Literal["NORMAL", "FULL"] = "NORMAL") -> sqlite3.Connection:
    """Open a file by its URI. With NORMAL a power cut may lose the last transactions of a WAL file, with FULL none;
    neither harms the file. Raises ServemarkError (layer store)."""
    try:
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    except sqlite3.Error as error:
        raise translate(error, path) from error
    try:
        with faults_of(path):
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA synchronous = {synchronous}")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:  # an open handle must not outlive the failure, which goes on
        connection.close()
        raise
    return connection


def use_wal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging. The switch ignores the busy timeout, so two that open a new file at once
    would otherwise collide here."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _connect_read_only(path: Path) -> sqlite3.Connection:
    """Open for reading. A file in a folder that may not be written has no place for WAL's index, so there it
    is read as an unchanging file."""
    if not path.exists():
        raise fault(path, "missing")
    if not path.is_file():  # a folder, or a pipe that would never be opened
        raise fault(path, "not_a_database")
    uri = path.absolute().as_uri()
    try:
        connection = connect(path, f"{uri}?mode=ro")
    except ServemarkError as error:
        wal = path.with_name(path.name + "-wal")
        if error.key not in ("store.cannot_open", "store.read_only") or (wal.exists() and wal.stat().st_size):
            raise
        connection = connect(path, f"{uri}?mode=ro&immutable=1")
    try:
        with faults_of(path):
            have = check(connection, path, shipped())
            if have < newest():
                raise fault(path, "older_schema", found=have, known=newest())
    except BaseException:  # an open handle must not outlive the failure, which goes on
        connection.close()
        raise
    return connection
