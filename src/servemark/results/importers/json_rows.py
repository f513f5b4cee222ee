"""Rows of a JSON file, element by element: memory is bounded by one window and one row, whatever the file's size.

A list is cut into its elements without building them; each is decoded on its own, so that a row with a fault in it
(NaN, an unclosed text) costs that row only. NaN and infinity are no JSON and are refused. A key that stands twice in an
object is refused: nobody can tell which value was meant.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from servemark.results.errors import bad_file
from servemark.results.importers.base import Given

WINDOW_BYTES = 1 << 20
MAX_ROW_BYTES = 16 << 20
"""One row of any known format is a few kB."""
MAX_OBJECT_BYTES = 64 << 20
"""A file that is one object is read whole; nothing real comes near."""

_SPACE = b" \t\r\n"
_OTHER_VALUES = frozenset(bytes([each]) for each in b'["-0123456789tfn')
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["{}\[\],]', re.DOTALL)
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])
_ANY = msgspec.json.Decoder(dict[str, Any])


class RowError(Exception):
    """One row cannot be decoded: `problem` says why, in the decoder's words."""

    def __init__(self, reason: str, **values: object) -> None:
        super().__init__(reason)
        self.reason = reason
        self.values = values


def first_byte(given: Given) -> bytes:
    """`[` or `{` or whatever a file begins with; empty for an empty file. A byte order mark is no content."""
    head = given.head.removeprefix(b"\xef\xbb\xbf").lstrip(_SPACE)
    return head[:1]


def decode_row(raw: bytes) -> dict[str, Any]:
    """One object. Raises RowError: no object, not JSON (NaN and infinity included), too deep, a key twice."""
    if raw[:1] != b"{" and raw[:1] in _OTHER_VALUES:
        raise RowError("results.import_not_object")
    try:
        row = _ANY.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RowError("results.import_bad_row", problem=str(error)[:200]) from error
    except RecursionError as error:
        raise RowError("results.import_bad_row", problem="nested too deeply") from error
    metrics = row.get("metrics")
    commas = raw.count(b",")
    if commas != len(row) - 1 + (len(metrics) - 1 if metrics.__class__ is dict else 0):
        twice = _key_twice(raw) if commas != _commas_in(row) else None
        if twice is not None:
            raise RowError("results.import_key_twice", key=twice[:120])
    return row


def _commas_in(row: dict[str, Any]) -> int:
    """Commas that separate what a value holds: fewer than its text has where a key stands twice, or a text has commas."""
    count = 0
    waiting: list[Any] = [row]
    while waiting:
        one = waiting.pop()
        count += max(0, len(one) - 1)
        if one.__class__ is dict:
            one = one.values()
        waiting += [each for each in one if each.__class__ is dict or each.__class__ is list]
    return count


class _TwiceError(Exception):
    pass


def _key_twice(raw: bytes) -> str | None:
    """The first key that stands twice in one object; None when there is none."""

    def look(pairs: list[tuple[str, object]]) -> None:
        seen = set()
        for key, _ in pairs:
            if key in seen:
                raise _TwiceError(key)
            seen.add(key)

    try:
        json.loads(raw, object_pairs_hook=look)
    except _TwiceError as found:
        return str(found)
    except (ValueError, RecursionError):  # what msgspec has read; a doubt is no proof
        return None
    return None


def read_object(given: Given) -> bytes:
    """The whole of a file that is one object. Raises ServemarkError (layer results): empty, too large, cut off."""
    with given.open() as stream:
        data = stream.read(MAX_OBJECT_BYTES + 1)
    if len(data) > MAX_OBJECT_BYTES:
        raise bad_file("import_object_too_large", given.name, limit=MAX_OBJECT_BYTES)
    data = data.removeprefix(b"\xef\xbb\xbf").strip(_SPACE)
    if not data:
        raise bad_file("import_empty", given.name)
    return data


def list_elements(given: Given) -> Iterator[bytes]:
    """The bytes of every element of a file that is one JSON list, in order, undecoded.

    Raises ServemarkError (layer results): empty, no list, cut off before the closing bracket, an element above
    MAX_ROW_BYTES, something after the list.
    """
    with given.open() as stream:
        buffer = stream.read(WINDOW_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip(_SPACE)
        if not buffer:
            raise bad_file("import_empty", given.name)
        if buffer[:1] != b"[":
            raise bad_file("import_not_list", given.name)
        yield from _elements(stream, buffer[1:], given.name)


def numbered_elements(given: Given) -> Iterator[tuple[int, bytes]]:
    """`list_elements` with their numbers from 0; only those of the part that is wanted."""
    part, passed = given.part, 0
    for number, raw in enumerate(list_elements(given)):
        if part is not None:
            is_first = passed < part.bytes
            passed += len(raw)
            if is_first and not part.first:
                continue
            if part.first and not is_first:
                return
        yield number, raw


def _elements(stream: BinaryIO, buffer: bytes, name: str) -> Iterator[bytes]:
    """`buffer` begins where an element, or the list's end, must come."""
    number, wanted, ended, after_comma = 0, WINDOW_BYTES, False, False
    while True:
        while not ended and len(buffer) < wanted:
            block = stream.read(wanted - len(buffer))
            ended = not block
            buffer += block
        buffer = buffer.lstrip(_SPACE)
        found, used, closed = _quick(buffer) or _scan(buffer, number == 0 and not after_comma)
        yield from found
        number += len(found)
        buffer = buffer[used:]
        if closed:
            _nothing_after(stream, buffer, name)
            return
        if found:
            wanted, after_comma = WINDOW_BYTES, True
        elif ended:
            raise bad_file("import_cut_off", name, rows=number)
        elif len(buffer) >= MAX_ROW_BYTES:
            raise bad_file("import_row_too_large", name, row=number, limit=MAX_ROW_BYTES)
        else:
            wanted = min(MAX_ROW_BYTES, max(wanted, len(buffer)) * 2)


def _quick(buffer: bytes) -> tuple[list[bytes], int, bool] | None:
    """All elements up to the last place that looks like one between two objects, if that is what it is.

    A prefix that parses as a list ends between two elements: text is cut nowhere else. None when it does not parse.
    """
    at = len(buffer)
    for _ in range(64):
        at = buffer.rfind(b"{", 0, at)
        if at <= 0:
            return None
        before = buffer[max(0, at - 64) : at].rstrip(_SPACE)
        if before[-1:] == b"," and before[:-1].rstrip(_SPACE)[-1:] == b"}":
            comma = buffer.rfind(b",", 0, at)
            try:
                raws = _RAWS.decode(b"[" + buffer[:comma] + b"]")
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return None
            return [bytes(raw) for raw in raws], comma + 1, False
    return None


def _scan(buffer: bytes, may_be_empty: bool) -> tuple[list[bytes], int, bool]:
    """Elements by their brackets alone, (elements, bytes used, whether the list was closed)."""
    found: list[bytes] = []
    depth = start = 0
    for token in _TOKEN.finditer(buffer):
        first = buffer[token.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            if depth == 0:
                last = buffer[start : token.start()].strip(_SPACE)
                if last or found or not may_be_empty:
                    found.append(last)
                return found, token.end(), True
            depth -= 1
        elif first == 0x2C:
            if depth == 0:
                found.append(buffer[start : token.start()].strip(_SPACE))
                start = token.end()
        elif token.end() - token.start() == 1:  # a text that goes on beyond what was read
            break
    return found, start, False


def _nothing_after(stream: BinaryIO, buffer: bytes, name: str) -> None:
    while True:
        if buffer.strip(_SPACE):
            raise bad_file("import_after_end", name)
        buffer = stream.read(WINDOW_BYTES)
        if not buffer:
            return
