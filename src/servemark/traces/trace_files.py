"""Bytes of untrusted trace files: bounded lines, gzip, folders, and every failure as a ServemarkError."""

from __future__ import annotations

import contextlib
import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from servemark.base.errors import ServemarkError, input_error
from servemark.base.files import sha256_file

MAX_FILE_BYTES = 4_000_000_000
"""Of the text itself, so that a small gzip file cannot grow without end."""
MAX_FOLDER_FILES = 200_000
_BOM = b"\xef\xbb\xbf"


@contextlib.contextmanager
def file_errors(path: Path, line: int | None = None) -> Iterator[None]:
    """Failures of reading `path` as ServemarkError (exit code 2); `line` is where a packed file was last read."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise input_error("traces.bad_gzip", path=str(path), line=line or 1) from None
    except OSError as error:
        raise cannot_read(path, error) from error


def cannot_read(path: Path, error: OSError) -> ServemarkError:
    """What the system says of a file that it will not let us read."""
    return input_error("traces.cannot_read", path=str(path), reason=error.strerror or str(error))


def lines(path: Path, max_line: int, max_file: int = MAX_FILE_BYTES) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, bytes) of every line that is not blank; a UTF-8 byte order mark is taken off.

    Raises ServemarkError (exit code 2) for a file that is missing, unreadable, no regular file or damaged, and
    for a line longer than `max_line` or a text longer than `max_file` bytes.
    """
    total = 0
    number = 0
    try:
        with opened(path) as stream:
            while line := stream.readline(max_line + 1):
                number += 1
                total += len(line)
                if len(line) > max_line:
                    raise input_error("traces.line_too_long", where=f"{path}:{number}", limit=max_line)
                if total > max_file:
                    raise input_error("traces.file_too_long", path=str(path), limit=max_file)
                if number == 1:
                    line = line.removeprefix(_BOM)
                if line.strip():
                    yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise input_error("traces.bad_gzip", path=str(path), line=number + 1) from None
    except OSError as error:
        raise cannot_read(path, error) from error


def opened(path: Path) -> BinaryIO:
    """The file's text as bytes, decompressed where it begins like gzip. Raises OSError or ServemarkError."""
    require_file(path)
    return cast("BinaryIO", gzip.open(path, "rb")) if is_gzip(path) else path.open("rb")


def is_gzip(path: Path) -> bool:
    """Whether a regular file begins like gzip."""
    with path.open("rb") as probe:
        return probe.read(2) == b"\x1f\x8b"


def require_file(path: Path) -> int:
    """The size of a regular file; ServemarkError for what is missing, a folder, a pipe or a device."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise input_error("traces.no_such_file", path=str(path)) from None
    except ValueError:  # a NUL in the name
        raise input_error("traces.no_such_file", path=repr(str(path))) from None
    except OSError as error:  # a loop of links, a folder that may not be entered
        raise cannot_read(path, error) from error
    if not stat.S_ISREG(found.st_mode):  # a directory, or a pipe or device that might never end
        raise input_error("traces.not_a_file", path=str(path))
    return found.st_size


def whole(path: Path, limit: int) -> bytes:
    """All bytes of a file, decompressed, without a byte order mark; ServemarkError above `limit` bytes."""
    with file_errors(path), opened(path) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise input_error("traces.file_too_long", path=str(path), limit=limit)
    return data.removeprefix(_BOM)


def head(path: Path, size: int = 65_536) -> bytes:
    """The first bytes of the text, to tell its format."""
    with file_errors(path), opened(path) as stream:
        return stream.read(size).removeprefix(_BOM)


def trace_files_of(folder: Path) -> list[Path]:
    """The .json and .jsonl files (also .gz) of a folder and its subfolders in order of their names.

    Links to folders are not followed, so a loop of links ends; links to files are, when they lead to regular
    files. Hidden files and folders are left out. Raises ServemarkError when the folder cannot be read, holds
    none, or holds more than MAX_FOLDER_FILES.
    """
    found: list[Path] = []

    def refuse(error: OSError) -> None:
        raise cannot_read(Path(error.filename or folder), error)

    for at, below, names in os.walk(folder, onerror=refuse):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(names):
            plain = name.removesuffix(".gz")
            if name.startswith(".") or not plain.endswith((".json", ".jsonl")):
                continue
            found.append(Path(at) / name)
            if len(found) > MAX_FOLDER_FILES:
                raise input_error("traces.too_many_files", path=str(folder), limit=MAX_FOLDER_FILES)
    if not found:
        raise input_error("traces.empty_folder", path=str(folder))
    return sorted(found)


def file_hash(path: Path) -> str:
    """SHA-256 of the file's bytes as they lie on the disk."""
    try:
        return sha256_file(path)
    except OSError as error:  # the file went away after it was read
        raise cannot_read(path, error) from error


def name_of(path: Path) -> str:
    """A file's name as text: a name may hold bytes that are none."""
    return path.name.encode("utf-8", "replace").decode("utf-8")
