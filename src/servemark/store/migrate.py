"""Numbered migrations: each applied once, in one transaction, and remembered with its checksum."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path

from servemark.store.faults import fault

APPLICATION_ID = 0x5E72_3A2C
"""Written into the file's header, so that another program's database is never taken for a store."""
_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")
_BOOK = """
CREATE TABLE IF NOT EXISTS migration (
    number      INTEGER NOT NULL PRIMARY KEY,
    name        TEXT NOT NULL,
    sha256      TEXT NOT NULL,
    applied_utc TEXT NOT NULL
) STRICT
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema. `sha256` is over the file's bytes."""

    number: int
    name: str
    sql: str
    sha256: str


@cache
def shipped(folder: str = "migrations") -> tuple[Migration, ...]:
    """The migrations that this servemark ships in a folder of this room, numbered 1, 2, 3 ... without a gap."""
    found = []
    for entry in resources.files("servemark.store").joinpath(folder).iterdir():
        match = _NAME.fullmatch(entry.name)
        if match:
            data = entry.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            found.append(Migration(int(match[1]), entry.name, data.decode("utf-8"), digest))
    return tuple(sorted(found, key=lambda each: each.number))


def newest(migrations: Sequence[Migration] | None = None) -> int:
    """The schema number that all migrations together lead to."""
    return max((each.number for each in (shipped() if migrations is None else migrations)), default=0)


def statements(sql: str) -> list[str]:
    """Single statements of a migration file; semicolons inside strings, comments and triggers do not split.

    `executescript` would commit behind our back, and half a migration must never stay.
    """
    found, rest = [], ""
    for piece in sql.split(";"):
        rest += piece + ";"
        if sqlite3.complete_statement(rest):
            found.append(rest.strip())
            rest = ""
    return [each for each in found if _bare(each)]


def _bare(statement: str) -> str:
    """A statement without comments and its semicolon: empty when there is nothing to execute."""
    return re.sub(r"--[^\n]*|/\*.*?\*/|;|\s", "", statement, flags=re.DOTALL)


def check(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration]) -> int:
    """The file's schema number, after making sure that it is ours, not newer, and made by the same
    migrations.

    Raises ServemarkError (layer store) otherwise. A file without any table counts as schema 0.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if not tables:
        return 0
    if application != APPLICATION_ID or "migration" not in tables:
        raise fault(path, "foreign")
    known = {each.number: each.sha256 for each in migrations}
    for number, digest in connection.execute("SELECT number, sha256 FROM migration ORDER BY number"):
        if known.get(number, digest) != digest:
            raise fault(path, "migration_changed", number=number)
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    if found > newest(migrations):
        raise fault(path, "newer_schema", found=found, known=newest(migrations))
    return int(found)


def migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration] | None = None) -> int:
    """Bring the file to the newest schema and return its number. Two processes may do so at once: each step
    takes the write lock before it looks which step is next.

    Raises ServemarkError (layer store) for a foreign, newer or differently made file, sqlite3.Error when the
    disk refuses; a step that fails leaves the file as it was before that step.
    """
    steps = shipped() if migrations is None else migrations
    while (have := check(connection, path, steps)) < newest(steps):
        connection.execute("BEGIN IMMEDIATE")
        try:
            if check(connection, path, steps) == have:
                _apply(connection, next(each for each in steps if each.number == have + 1))
            connection.execute("COMMIT")
        except BaseException:  # also Ctrl-C: half a step is taken back
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return newest(steps)


def _apply(connection: sqlite3.Connection, migration: Migration) -> None:
    connection.execute(_BOOK)
    for statement in statements(migration.sql):
        connection.execute(statement)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    connection.execute(
        "INSERT INTO migration VALUES (?, ?, ?, ?)", (migration.number, migration.name, migration.sha256, now)
    )
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {migration.number:d}")
