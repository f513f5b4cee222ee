"""GGUF model files: the header, read within bounds, to know before a start whether the file is whole.

Layout (llama.cpp, docs of the format, versions 2 and 3, little-endian): magic `GGUF`, u32 version, u64 tensor
count, u64 key count, keys (string, u32 type, value), tensor infos (string, u32 dimensions, u64 each, u32
type, u64 offset), padding to `general.alignment` (32 when absent), tensor data. A string is u64 length and
bytes.
"""

from __future__ import annotations

import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from servemark.base.errors import Layer, ServemarkError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_KEYS = 65_536
_MAX_TENSORS = 1_000_000
_MAX_HEADER_BYTES = 64 << 20
"""Real headers are below 20 MiB; this bounds the memory and the seconds that a hostile file can cost."""
_MAX_NESTING = 4
_STEP = 1 << 20
_MAX_DIMS = 4

_TYPE_BYTES: dict[int, tuple[int, int]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17),
}  # fmt: skip
"""ggml type number -> (elements in a block, bytes of a block). A type that is not here has an unknown size.
"""


@dataclass(frozen=True, slots=True)
class GgufInfo:
    """What a header says. `required_bytes` is the least length of a whole file, exact when all types are
    known."""

    version: int
    tensors: int
    metadata: dict[str, object]
    """Scalar and string values only; arrays (vocabularies) are skipped."""
    required_bytes: int
    file_bytes: int
    parameters: int = 0
    """Elements of all tensors."""
    tensor_bytes: int | None = None
    """Bytes of all tensors' data; None when a tensor has a type of unknown size."""


_known: dict[tuple[str, int, int], GgufInfo] = {}
"""Headers already read, by (path, size, modification time in ns)."""


class _TruncatedError(Exception):
    """The header goes on where the file ends."""


class _MalformedError(Exception):
    """A count, length or type that no valid file has."""


class _Reader:
    """A cursor over the front of a file that reads ahead as it is needed, never beyond the header's bound."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.data = bytearray()
        self.at = 0

    def need(self, end: int) -> None:
        """Make bytes [0, end) available."""
        if end > _MAX_HEADER_BYTES:
            raise _MalformedError
        while len(self.data) < end:
            block = self.stream.read(max(_STEP, end - len(self.data)))
            if not block:
                raise _TruncatedError
            self.data += block

    def scalar(self, code: str) -> int | float | bool:
        """One little-endian value of a struct code."""
        size = struct.calcsize("<" + code)
        self.need(self.at + size)
        value: int | float | bool = struct.unpack_from("<" + code, self.data, self.at)[0]
        self.at += size
        return value

    def count(self, code: str, most: int) -> int:
        """An unsigned number that a valid file keeps at or below `most`."""
        value = int(self.scalar(code))
        if value > most:
            raise _MalformedError
        return value

    def string(self) -> str:
        """One string; bytes that are not UTF-8 are replaced."""
        length = self.count("Q", _MAX_HEADER_BYTES)
        self.need(self.at + length)
        raw = bytes(self.data[self.at : self.at + length])
        self.at += length
        return raw.decode("utf-8", "replace")

    def skip_strings(self, count: int) -> None:
        """Pass over an array of strings: a vocabulary has 10^5 of them, so the loop is kept tight."""
        at, unpack = self.at, struct.Struct("<Q").unpack_from
        data, held = self.data, len(self.data)
        for _ in range(count):
            if at + 8 > held:
                self.need(at + 8)
                held = len(data)
            at += 8 + int(unpack(data, at)[0])
            if at > held:
                self.need(at)
                held = len(data)
        self.at = at

    def value(self, kind: int, depth: int = 0) -> object:
        """A metadata value; None for an array, which is skipped."""
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY or depth >= _MAX_NESTING:
            raise _MalformedError
        item, count = self.count("I", 12), self.count("Q", _MAX_HEADER_BYTES)
        if item == _STRING:
            self.skip_strings(count)
        elif item in _SCALARS:
            self.need(self.at + count * struct.calcsize("<" + _SCALARS[item]))
            self.at += count * struct.calcsize("<" + _SCALARS[item])
        else:
            for _ in range(count):
                self.value(item, depth + 1)
        return None


def read_gguf(path: Path) -> GgufInfo:
    """Read a header and check that the file is long enough for its own tensor table (some 30 ms for 49 k
    tokens).

    Raises ServemarkError (layer model): launch.model_missing, _not_a_file, _unreadable, _empty, _not_gguf,
    _gguf_version, _damaged (the header contradicts itself) or _truncated.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ServemarkError("launch.model_not_a_file", Layer.MODEL, path=str(path))
        key = (str(path), found.st_size, found.st_mtime_ns)
        if key not in _known:
            with path.open("rb") as stream:
                _known[key] = _parse(path, stream, found.st_size)
        return _known[key]
    except (FileNotFoundError, NotADirectoryError):
        raise ServemarkError("launch.model_missing", Layer.MODEL, path=str(path)) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise ServemarkError("launch.model_unreadable", Layer.MODEL, path=str(path), reason=reason) from error


def _parse(path: Path, stream: BinaryIO, size: int) -> GgufInfo:
    reader = _Reader(stream)
    if size == 0:
        raise ServemarkError("launch.model_empty", Layer.MODEL, path=str(path))
    head = stream.read(24)
    reader.data += head
    if head[:4] != b"GGUF":
        raise ServemarkError("launch.model_not_gguf", Layer.MODEL, path=str(path), head=repr(head[:8])[2:-1])
    reader.at = 4
    try:
        version = int(reader.scalar("I"))
        if version not in (2, 3):
            raise ServemarkError("launch.model_gguf_version", Layer.MODEL, path=str(path), version=version)
        tensors, keys = reader.count("Q", _MAX_TENSORS), reader.count("Q", _MAX_KEYS)
        metadata = _metadata(reader, keys)
        required, parameters, held = _tensors(reader, tensors, metadata)
    except _MalformedError:
        raise ServemarkError("launch.model_damaged", Layer.MODEL, path=str(path), offset=reader.at) from None
    except _TruncatedError:
        raise _too_short(path, size, size + 1) from None
    if size < required:
        raise _too_short(path, size, required)
    return GgufInfo(version, tensors, metadata, required, size, parameters, held)


def _too_short(path: Path, size: int, required: int) -> ServemarkError:
    return ServemarkError("launch.model_truncated", Layer.MODEL, path=str(path), size=size, required=required)


def _metadata(reader: _Reader, keys: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for _ in range(keys):
        key = reader.string()
        value = reader.value(reader.count("I", 12))
        if value is not None:
            found[key] = value
    return found


def _tensors(reader: _Reader, tensors: int, metadata: dict[str, object]) -> tuple[int, int, int | None]:
    """(end of the last tensor's data counted from the start of the file, elements, bytes) of all tensors."""
    end, total, held, known = 0, 0, 0, True
    for _ in range(tensors):
        reader.string()
        elements = 1
        for _ in range(reader.count("I", _MAX_DIMS)):
            elements *= int(reader.scalar("Q"))
        per_block, block_bytes = _TYPE_BYTES.get(int(reader.scalar("I")), (1, 0))
        size = -(-elements // per_block) * block_bytes
        end = max(end, int(reader.scalar("Q")) + size)
        total += elements
        held += size
        known = known and block_bytes > 0
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
        raise _MalformedError
    return -(-reader.at // alignment) * alignment + end, total, held if known else None
