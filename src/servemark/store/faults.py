"""What SQLite says, in words that help: which file, what is wrong, and that runs/ is the truth."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError

BUSY_TIMEOUT_S = 15.0
LITTLE_ROOM_BYTES = 128 * 1024
"""SQLite's index of the write-ahead log alone takes 32 KiB at a time."""
_KEYS = {
    sqlite3.SQLITE_NOTADB: "not_a_database",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_BUSY: "locked",
    sqlite3.SQLITE_LOCKED: "locked",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_CANTOPEN: "cannot_open",
    sqlite3.SQLITE_PERM: "cannot_open",
    sqlite3.SQLITE_FULL: "disk_full",
}
_DAMAGE_WORDS = ("malformed", "no such table", "no such column", "has no column")


def fault(path: Path, key: str, **values: object) -> ServemarkError:
    """`store.<key>` about the store at `path`: layer store."""
    values.setdefault("home", str(path.parent))
    return ServemarkError(f"store.{key}", Layer.STORE, exit_code=1, where=None, path=str(path), **values)


def translate(error: sqlite3.Error, path: Path) -> ServemarkError:
    """The message for an error of SQLite; one without a known cause names SQLite's own words as the
    reason."""
    if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError):
        return fault(path, "no_row", reason=str(error))
    code = getattr(error, "sqlite_errorcode", None)
    primary = code & 0xFF if isinstance(code, int) else -1
    key = _KEYS.get(primary)
    if key is None:
        known_damage = any(word in str(error) for word in _DAMAGE_WORDS)
        key = "damaged" if known_damage else "cannot_open"
        if (
            primary == sqlite3.SQLITE_IOERR
        ):  # what the operating system says when it has no room for WAL's index
            key = "disk_full" if _no_room(path) else "io_failed"
    return fault(path, key, reason=str(error), seconds=f"{BUSY_TIMEOUT_S:g}")


def _no_room(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < LITTLE_ROOM_BYTES
    except OSError:
        return False


@contextmanager
def faults_of(path: Path) -> Iterator[None]:
    """Turns any SQLite error inside into a ServemarkError (layer store), and values that SQLite cannot hold
    (whole numbers above 64 bits, text that is no UTF-8) into `store.no_row`."""
    try:
        yield
    except (OverflowError, UnicodeEncodeError) as error:
        raise fault(path, "no_row", reason=str(error)) from error
    except sqlite3.Error as error:
        raise translate(error, path) from error
