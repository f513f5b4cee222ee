"""`requests.jsonl`: one record a line, written as each request ends, read back with its line numbers.

Times are rounded to a microsecond. A line is whole only with its line end: whoever is killed while writing
leaves at most one line without it, and every line before that one is good.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import msgspec

from servemark.base.errors import ServemarkError, input_error
from servemark.base.files import disk_error
from servemark.replay.record import RECORD_SCHEMA, RequestRecord

MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""No record is longer: the longest reply a client accepts has about a million events of ten characters
each."""

MAX_TIME_S: Final = 1e9
"""Thirty years on either side of the point's zero: beyond lies no run, and sums of squares overflow."""
MAX_COUNT: Final = 2**53 - 1
_DIGITS: Final = 6
_TIMES: Final = (
    "intended_send_s",
    "connect_s",
    "start_s",
    "first_byte_s",
    "first_text_s",
    "first_reasoning_s",
    "end_s",
)
_READABLE: Final = range(1, RECORD_SCHEMA + 1)
"""Older schemas only lack fields, whose defaults say "not known"."""
_COUNTS: Final = (
    "requested_output_tokens",
    "expected_input_tokens",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "endpoint",
    "process",
    "retries",
)


class _Head(msgspec.Struct):
    schema: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RequestRecord).decode
_decode_head = msgspec.json.Decoder(_Head).decode


def encode_record(record: RequestRecord) -> bytes:
    """The record as one line of JSON with its line end. The record itself is not changed."""
    fields = {name: getattr(record, name) for name in RequestRecord.__slots__}
    for name in _TIMES:
        value = fields[name]
        if value is not None:
            fields[name] = round(value, _DIGITS)
    if record.calls is None:  # most records have none, and there are many
        del fields["calls"]
    fields["chunk_s"] = [round(at, _DIGITS) for at in record.chunk_s]
    return _encode(fields) + b"\n"


def decode_record(line: bytes, where: str) -> RequestRecord:
    """A record out of its line, of this schema or an earlier one. Raises ServemarkError (layer input) at
    `where` for a later schema or bad content."""
    try:
        return _decoded(line)
    except _BadLineError as bad:
        raise bad.at(where) from None


class _BadLineError(Exception):
    """A line that is no record: message key and values. Where it stands is put together only when it is told."""

    def __init__(self, key: str, **values: object) -> None:
        super().__init__(key)
        self.key = key
        self.values = values

    def at(self, where: str) -> ServemarkError:
        """The error to tell."""
        return input_error(self.key, where=where, **self.values)


def _decoded(line: bytes) -> RequestRecord:
    try:
        record = _decode(line)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _undecodable(line, error) from None
    if record.schema not in _READABLE:
        raise _BadLineError("replay.record_schema", found=record.schema, known=RECORD_SCHEMA)
    record.schema = RECORD_SCHEMA
    reason = _contradiction(record)
    if reason is not None:
        raise _BadLineError("replay.record_bad", reason=reason)
    return record


def _undecodable(line: bytes, error: Exception) -> _BadLineError:
    """Why a line is no record: of a later schema, which may have changed a type, or bad."""
    with contextlib.suppress(msgspec.MsgspecError, RecursionError):
        schema = _decode_head(line).schema
        if schema not in _READABLE:
            return _BadLineError("replay.record_schema", found=schema, known=RECORD_SCHEMA)
    return _BadLineError("replay.record_bad", reason=str(error))


def records_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of one line of `requests.jsonl`, made from the record; published as
    docs/requests.schema.json. Fields that a later version adds are allowed, as readers of this one pass them over."""
    (root,), parts = msgspec.json.schema_components((RequestRecord,), ref_template="#/$defs/{name}")
    body = dict(parts.pop(str(root["$ref"]).rsplit("/", 1)[-1]))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"servemark request record, schema {RECORD_SCHEMA}",
        **{key: value for key, value in body.items() if key != "title"},
    }


def _open(path: Path) -> BinaryIO:
    """A regular file, open for reading; anything else is refused, since a pipe without a writer never opens."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise input_error("replay.records_not_a_file", path=path)
    return os.fdopen(handle, "rb")


def read_records(path: Path, *, allow_torn_tail: bool = False) -> Iterator[tuple[int, RequestRecord]]:
    """(line number, record) of each line, in order, without holding the file in memory.

    Raises ServemarkError naming file:line for the first bad line: `replay.record_torn` when it is a last
    line without its line end (the writer was killed), `replay.record_bad`, `replay.record_schema` or
    `replay.record_too_long` otherwise. With `allow_torn_tail` such a last line is left out; `has_torn_tail`
    tells whether there is one.
    """
    yield from _read(path, 0, None, allow_torn_tail=allow_torn_tail)


def _read(
    path: Path, start: int, end: int | None, *, allow_torn_tail: bool = False
) -> Iterator[tuple[int, RequestRecord]]:
    """The lines that begin between two places in bytes; `end` None: to the file's end."""
    number = 0
    try:
        with _open(path) as stream:
            stream.seek(start)
            while (end is None or start < end) and (line := stream.readline(MAX_LINE_BYTES + 1)):
                number += 1
                start += len(line)
                if len(line) > MAX_LINE_BYTES:
                    raise _BadLineError("replay.record_too_long", limit=MAX_LINE_BYTES)
                if not line.endswith(b"\n"):
                    if allow_torn_tail:
                        return
                    raise _BadLineError("replay.record_torn")
                yield number, _decoded(line)
    except _BadLineError as bad:
        raise bad.at(f"{path}:{number}") from None
    except OSError as error:
        raise input_error("replay.records_unreadable", path=path, reason=error.strerror or error) from None


def split_lines(path: Path, parts: int) -> list[tuple[int, int]]:
    """At most `parts` (start, end) places in bytes that cover the file, each made of whole lines, about equally
    long. Raises ServemarkError when the file cannot be read."""
    try:
        with _open(path) as stream:
            size = stream.seek(0, os.SEEK_END)
            edges = [0]
            for number in range(1, parts):
                stream.seek(max(edges[-1], size * number // parts))
                stream.readline(MAX_LINE_BYTES + 1)
                edges.append(stream.tell())
            edges.append(size)
    except OSError as error:
        raise input_error("replay.records_unreadable", path=path, reason=error.strerror or error) from None
    return [(start, end) for start, end in pairwise(edges) if end > start]


def read_part(path: Path, start: int, end: int) -> Iterator[RequestRecord]:
    """The records of one of `split_lines`'s places. Errors as of `read_records`, which alone can name the line:
    here it is counted from `start`."""
    for _, record in _read(path, start, end):
        yield record


def has_torn_tail(path: Path) -> bool:
    """True when the last line lacks its line end. Raises ServemarkError when the file cannot be read."""
    try:
        with _open(path) as stream:
            if stream.seek(0, os.SEEK_END) == 0:
                return False
            stream.seek(-1, os.SEEK_END)
            return stream.read(1) != b"\n"
    except OSError as error:
        raise input_error("replay.records_unreadable", path=path, reason=error.strerror or error) from None


class RecordWriter:
    """Appends records to a file, each handed to the system before `write` returns, so that a killed process
    loses none that had ended. Fit to be the sink of a loop. Context manager; leaving it forces the file to
    the disk. Raises ServemarkError when the file cannot be opened or ends in a torn line, on which nothing
    must be built.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0
        self.count = 0
        try:
            if path.is_file() and has_torn_tail(path):
                raise input_error("replay.record_torn", where=str(path))
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
            self._file = os.open(path, flags, 0o644)
            self._size = os.fstat(self._file).st_size
        except OSError as error:
            raise disk_error(error, path) from error

    def write(self, record: RequestRecord) -> None:
        """Append one record. Raises ServemarkError (layer home) when the disk refuses; what had been
        written of the line is taken back then, as far as the disk allows.
        """
        line = encode_record(record)
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise disk_error(error, self._path) from error
        self._size += len(line)
        self.count += 1

    def close(self) -> None:
        """Force to the disk and close. Raises ServemarkError (layer home) when the disk refuses."""
        if self._file < 0:
            return
        file, self._file = self._file, -1
        try:
            try:
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            if error.errno != errno.EINVAL:  # what has no disk behind it cannot be forced to one
                raise disk_error(error, self._path) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except ServemarkError:
            if error is None:  # the first error is the one to tell
                raise


_times_of = attrgetter(*_TIMES)
_counts_of = attrgetter(*_COUNTS)


def _contradiction(record: RequestRecord) -> str | None:
    """What makes a well-typed record impossible, as field and value; None when nothing does."""
    chunks = record.chunk_s
    times = [value for value in _times_of(record) if value is not None]
    if chunks:  # the rest lies between
        times += (chunks[0], chunks[-1])
    if times and not -MAX_TIME_S <= min(times) <= max(times) <= MAX_TIME_S:
        ends = [("chunk_s", at) for at in (*chunks[:1], *chunks[-1:])]
        named = [*zip(_TIMES, _times_of(record), strict=True), *ends]
        return _first_wrong(named, lambda value: abs(value) <= MAX_TIME_S)
    if chunks != sorted(chunks):
        return "chunk_s descends"
    # A server whose running total falls gives a negative difference: odd, and kept as it was seen.
    tokens = record.chunk_tokens or ()
    counts = [value for value in _counts_of(record) if value is not None]
    if (counts and not 0 <= min(counts) <= max(counts) <= MAX_COUNT) or (
        tokens and not -MAX_COUNT <= min(tokens) <= max(tokens) <= MAX_COUNT
    ):
        named = [*zip(_COUNTS, _counts_of(record), strict=True), *(("chunk_tokens", abs(n)) for n in tokens)]
        return _first_wrong(named, lambda value: 0 <= value <= MAX_COUNT)
    if record.chunk_tokens is not None and len(tokens) != len(chunks):
        return f"len(chunk_tokens)={len(tokens)}, len(chunk_s)={len(chunks)}"
    return None


def _first_wrong(named: Sequence[tuple[str, float | None]], good: Callable[[float], bool]) -> str | None:
    return next((f"{name}={v}" for name, v in named if v is not None and not good(v)), None)
