"""Session files read lazily: an index of places in files; a session is read and parsed when it is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from servemark.base.errors import input_error
from servemark.traces.trace_files import cannot_read, file_errors, is_gzip, lines, require_file, whole
from servemark.traces.types import Session

MAX_SESSION_BYTES = 512_000_000
"""Of one session's JSON: the largest published session is below 100 MB."""
MAX_TRACE_BYTES = 64_000_000_000

Glance = Callable[[bytes, str], tuple[str, int]]
"""JSON of a session and its place -> (session id, requests); raises ServemarkError for a bad one."""
Parse = Callable[[bytes, str], Session]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session lies. `line` counts from 1, 0 for a file that is one session. A session of a compressed
    file has no place to go back to, so it is `held`, packed."""

    path: Path
    offset: int
    size: int
    line: int
    held: Session | None = None

    @property
    def where(self) -> str:
        """file:line for messages."""
        return f"{self.path}:{self.line}" if self.line else str(self.path)


class LazySessions(Sequence[Session]):
    """Sessions by their places. Reading one raises ServemarkError when its file has changed or is bad."""

    def __init__(self, places: Sequence[Place], parse: Parse) -> None:
        self.places = places
        self._parse = parse

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[Session]:
        return map(self._read, self.places)

    @overload
    def __getitem__(self, index: int) -> Session: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Session]: ...
    def __getitem__(self, index: int | slice) -> Session | Sequence[Session]:
        if isinstance(index, slice):
            return LazySessions(self.places[index], self._parse)
        return self._read(self.places[index])

    def _read(self, place: Place) -> Session:
        if place.held is not None:
            return place.held
        with file_errors(place.path), place.path.open("rb") as stream:
            stream.seek(place.offset)
            data = stream.read(place.size)
        if len(data) != place.size:
            raise input_error("traces.file_changed", where=place.where)
        return self._parse(data, place.where)


@dataclass(frozen=True, slots=True)
class SessionIndex:
    """What one reading of the files found: places in order, the number of requests, a hash of all content."""

    places: tuple[Place, ...]
    requests: int
    sha256: str


def index_sessions(
    files: Sequence[Path], glance: Glance, parse: Parse, limit: int | None = None, root: Path | None = None
) -> SessionIndex:
    """Read files once, look at each session (`glance`), and note its place; the first `limit` sessions only.

    A .json file is one session, a .jsonl file one a line. The hash goes over the sessions' own bytes in order.
    Raises ServemarkError for bad files and sessions, and for two sessions with the same id, with both places.
    """
    places: list[Place] = []
    seen: dict[str, int] = {}
    requests = 0
    digest = hashlib.sha256()
    for path in files:
        for place, data in _sessions_of(path, alone=len(files) == 1 and root is None):
            name, count = glance(data, place.where)
            if name in seen:
                first = places[seen[name]].where
                raise input_error("traces.duplicate_session", where=place.where, session=name, first=first)
            seen[name] = len(places)
            held = parse(data, place.where) if is_held(place) else None
            places.append(Place(place.path, place.offset, place.size, place.line, held))
            requests += count
            digest.update(len(data).to_bytes(8, "big"))
            digest.update(data)
            if limit is not None and len(places) >= limit:
                return SessionIndex(tuple(places), requests, digest.hexdigest())
    if not places:
        raise input_error("traces.empty_file", path=str(root or files[0]))
    return SessionIndex(tuple(places), requests, digest.hexdigest())


def is_held(place: Place) -> bool:
    """Whether a place has no offset to go back to: that of a compressed file."""
    return place.offset < 0


def _sessions_of(path: Path, *, alone: bool) -> Iterator[tuple[Place, bytes]]:
    require_file(path)
    with file_errors(path):
        packed = is_gzip(path)
    name = path.name.removesuffix(".gz")
    if name.endswith(".json") and not (alone and _many_lines(path)):
        data = whole(path, MAX_SESSION_BYTES)
        if not data.strip():
            raise input_error("traces.empty_file", path=str(path))
        yield Place(path, -1 if packed else _start(path, data), len(data), 0), data
        return
    offset = 0
    if not packed:
        for number, start, line in _lines_with_offsets(path):
            yield Place(path, start, len(line), number), line
        return
    for number, line in lines(path, MAX_SESSION_BYTES, MAX_TRACE_BYTES):
        yield Place(path, -1, len(line), number), line
        offset += len(line)


def _start(path: Path, data: bytes) -> int:
    """Offset of the text: after a byte order mark."""
    return path.stat().st_size - len(data)


def _many_lines(path: Path) -> bool:
    """Whether a file called .json holds one whole object in its first line and more after it."""
    found = lines(path, MAX_SESSION_BYTES, MAX_TRACE_BYTES)
    first = next(found, None)
    second = next(found, None)
    return (
        first is not None
        and second is not None
        and first[1].strip().endswith(b"}")
        and second[1].lstrip()[:1] == b"{"
    )


def _lines_with_offsets(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """(line number, offset, bytes) of the lines of a plain file that are not blank."""
    try:
        with path.open("rb") as stream:
            number = offset = 0
            while line := stream.readline(MAX_SESSION_BYTES + 1):
                number += 1
                if len(line) > MAX_SESSION_BYTES:
                    raise input_error(
                        "traces.line_too_long", where=f"{path}:{number}", limit=MAX_SESSION_BYTES
                    )
                skip = 3 if offset == 0 and line.startswith(b"\xef\xbb\xbf") else 0
                if line[skip:].strip():
                    yield number, offset + skip, line[skip:]
                offset += len(line)
    except OSError as error:
        raise cannot_read(path, error) from error
