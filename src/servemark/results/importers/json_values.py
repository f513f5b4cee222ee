"""A file of JSON values, one at a time, in bounded memory: a single object, an array of them, or JSON Lines.

Arrays of per-request detail (`itls`, texts) can be thousands of times the size of the figures and are not needed; they
are replaced by null while the bytes stream past, so a file of any size costs one value without them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import BinaryIO

from servemark.base.errors import ServemarkError
from servemark.results.errors import bad_file
from servemark.results.importers.base import Given

CHUNK = 1 << 20
MAX_VALUE_BYTES = 64 << 20
"""One value without its detail: a summary is a few KB; with the per-request lists of 10^6 requests, 40 MB."""
MAX_STRING_BYTES = 4 << 20
MAX_DEPTH = 64
"""No known format nests deeper than 20."""
MAX_DIGITS = 400
FAST_BYTES = 64 << 20
_DECODE = json.JSONDecoder().raw_decode
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_BEGIN = re.compile(r"[ \t\r\n]*(\[?)[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n]*(,?)[ \t\r\n]*")
_END = re.compile(r"\][ \t\r\n]*\Z")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.S)
_FLAT = re.compile(rb"(?:\s*+\[[-+0-9.eE,\s]*+\]\s*+,?)++")
"""Many lists of numbers at once, where they are skipped."""
_NAMED = re.compile(rb"\s*:")
_SPACE = b" \t\r\n"
_OPEN, _CLOSE = b"{[", b"}]"


@dataclass(slots=True)
class _Scan:
    """Where the scan is: open brackets, the bytes of the value so far, and the depth at which skipping began."""

    name: str
    drop: frozenset[bytes]
    stack: bytearray = field(default_factory=bytearray)
    value: bytearray = field(default_factory=bytearray)
    rows_at: int | None = None
    skip_to: int | None = None
    drop_next: bool = False

    def keep(self, part: bytes) -> None:
        """Bytes that are no bracket or string."""
        if self.skip_to is not None:
            return
        if self.rows_at is None or len(self.stack) <= self.rows_at:
            stray = part.strip(_SPACE + b"," if self.rows_at else _SPACE)
            if stray:
                raise bad_file("import_not_json", self.name, reason="text outside an object")
            return
        if self.drop_next and part.strip(_SPACE + b":"):
            self.drop_next = False  # the value is a number or a word: small, so kept
        self.value += part
        if len(self.value) > MAX_VALUE_BYTES:
            raise bad_file("import_value_too_large", self.name, limit=MAX_VALUE_BYTES >> 20)

    def open(self, bracket: bytes) -> None:
        """A bracket opens: a row, part of one, or detail to skip."""
        if self.rows_at is None:
            self.rows_at = 1 if bracket == b"[" else 0
        if len(self.stack) >= MAX_DEPTH:
            raise bad_file("import_too_deep", self.name, limit=MAX_DEPTH)
        if self.drop_next and self.skip_to is None:
            self.value += b"null"
            self.skip_to = len(self.stack)
        self.drop_next = False
        self.stack += bracket
        if self.skip_to is None and len(self.stack) > self.rows_at:
            self.value += bracket

    def close(self, bracket: bytes) -> bytes | None:
        """A bracket closes; the value, if that ends it."""
        if not self.stack or _OPEN.index(self.stack[-1]) != _CLOSE.index(bracket):
            raise bad_file("import_not_json", self.name, reason="a bracket closes that was not opened")
        self.stack.pop()
        if self.skip_to is not None:
            if len(self.stack) == self.skip_to:
                self.skip_to = None
            return None
        if self.rows_at is not None and len(self.stack) >= self.rows_at:
            self.value += bracket
            if len(self.stack) == self.rows_at:
                done = bytes(self.value)
                self.value.clear()
                return done
        return None


def json_values(stream: BinaryIO, name: str, drop: frozenset[bytes] = frozenset()) -> Iterator[bytes]:
    """The bytes of each value of the file, in order. Lists and objects under a key in `drop` are left out (null).

    Raises ServemarkError for an empty or cut file, text that is no JSON, and nesting or values beyond any known format.
    """
    scan, rest, ended = _Scan(name, drop), b"", False
    begun = False
    while not ended:
        more = stream.read(CHUNK)
        ended = not more
        buffer = rest + more
        buffer = buffer if begun else buffer.removeprefix(b"\xef\xbb\xbf")
        begun = begun or bool(buffer.strip())
        position = 0
        while token := _TOKEN.search(buffer, position):
            text = token.group()
            if text == b'"' or (text[:1] == b'"' and not ended and len(buffer) - token.end() < 64):
                break  # cut by the chunk's end, or what follows (a colon?) is not yet here
            scan.keep(buffer[position : token.start()])
            position = token.end()
            if text[:1] == b'"':
                scan.keep(text)
                named = _NAMED.match(buffer, position)
                inside = scan.skip_to is None and scan.stack[-1:] == b"{"
                scan.drop_next = inside and bool(named) and text[1:-1] in drop
            elif text in _OPEN:
                scan.open(text)
                if scan.skip_to is not None and (flat := _FLAT.match(buffer, position)):
                    position = flat.end()
            elif (value := scan.close(text)) is not None:
                yield value
        rest = buffer[position:]
        if b'"' not in rest:
            scan.keep(rest)
            rest = b""
        if len(rest) > MAX_STRING_BYTES + CHUNK:
            raise bad_file("import_value_too_large", name, limit=MAX_STRING_BYTES >> 20)
    if not begun:
        raise bad_file("import_empty", name)
    if scan.stack or rest.strip():
        raise bad_file("import_cut", name)
    if scan.rows_at is None:
        raise bad_file("import_not_json", name, reason="no object in it")


def json_objects(
    given: Given, drop: frozenset[bytes] = frozenset()
) -> Iterator[tuple[bytes, dict[str, object]]]:
    """Each object of the file as (its bytes without the dropped detail, its value), in order.

    A small file without such detail goes through the C parser; from the first thing that it does not take, and for every
    other file, `json_values` goes on, so that errors are the same."""
    done = 0
    with given.open() as stream:
        rest = stream
        if given.size <= FAST_BYTES:
            data = stream.read(FAST_BYTES + 1)
            rest = BytesIO(data)
            if not _SURROGATE.search(data) and not any(b'"' + key + b'"' in data for key in drop):
                for one in _fast(data):
                    if one is None:
                        return
                    yield one
                    done += 1
        for ordinal, value in enumerate(json_values(rest, given.name, drop)):
            if ordinal >= done:
                yield value, parse_object(value, given.name)


def _fast(data: bytes) -> Iterator[tuple[bytes, dict[str, object]] | None]:
    """Objects until something else comes; None after the last one of a file that was read to its end."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return
    match = _BEGIN.match(text)
    array, place = match[1] == "[" if match else False, match.end() if match else 0
    seen = False
    while text[place : place + 1] == "{":
        try:
            value, end = _DECODE(text, place)
        except (ValueError, RecursionError):
            return
        yield text[place:end].encode(), value
        seen = True
        after = _BETWEEN.match(text, end)
        place = after.end() if after else end
        comma = bool(after and after[1])
        if comma != (array and text[place : place + 1] == "{"):
            break
    if seen and (_END.match(text, place) if array else place == len(text)):
        yield None


def parse_object(data: bytes, name: str) -> dict[str, object]:
    """One value as a dict. NaN and Infinity pass here and are refused where a number is used.

    Raises ServemarkError when it is no JSON object."""
    try:
        value = json.loads(data, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise _not_json(name, str(error)) from None
    if not isinstance(value, dict):
        raise _not_json(name, "not an object")
    return _whole_text(value) if _SURROGATE.search(data) else value  # type: ignore[return-value]


def _whole_text(value: object) -> object:
    """Half a surrogate pair, which JSON can spell and UTF-8 cannot, becomes a question mark."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_whole_text(one) for one in value]
    if isinstance(value, dict):
        return {_whole_text(key): _whole_text(one) for key, one in value.items()}
    return value


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) < MAX_DIGITS else float("inf")


def _not_json(name: str, reason: str) -> ServemarkError:
    return bad_file("import_not_json", name, reason=reason[:200])
