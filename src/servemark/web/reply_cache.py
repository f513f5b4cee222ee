"""Finished answers, compressed, by what was asked and what it hangs on; bounded in bytes. For one thread, the event
loop's."""

from __future__ import annotations

import gzip
from collections import OrderedDict
from dataclasses import dataclass, field

LIMIT_BYTES = 64 * 2**20
SMALL = 860
"""Below this a packet is not saved by compression."""
LEVEL = 5
_OVERHEAD = 400


@dataclass(frozen=True, slots=True)
class Finished:
    """An answer ready to be sent. `packed` tells whether `data` is gzip."""

    data: bytes
    packed: bool
    etag: str
    media: str
    filename: str | None = None

    def headers(self, *, packed: bool) -> list[tuple[bytes, bytes]]:
        """Of a 200, but for the length; the same for a 304."""
        found = [
            (b"content-type", self.media.encode()),
            (b"etag", self.etag.encode()),
            (b"cache-control", b"private, no-cache"),
            (b"vary", b"accept-encoding, accept-language"),
        ]
        if packed:
            found.append((b"content-encoding", b"gzip"))
        if self.filename is not None:
            found.append((b"content-disposition", f'attachment; filename="{self.filename}"'.encode()))
        return found

    def plain(self) -> bytes:
        """For a client that takes no gzip."""
        return gzip.decompress(self.data) if self.packed else self.data


def pack(data: bytes) -> tuple[bytes, bool]:
    """(bytes, whether they are gzip now)."""
    return (data, False) if len(data) < SMALL else (gzip.compress(data, LEVEL, mtime=0), True)


@dataclass(slots=True)
class ReplyCache:
    """The least recently asked for is given up first."""

    limit: int = LIMIT_BYTES
    size: int = 0
    _held: OrderedDict[str, Finished] = field(default_factory=OrderedDict)

    def get(self, key: str) -> Finished | None:
        """A finished answer, or None."""
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
        return found

    def put(self, key: str, finished: Finished) -> None:
        """Keep one, unless it alone is larger than an eighth of the room."""
        cost = len(finished.data) + len(key) + _OVERHEAD
        if cost > self.limit // 8 or key in self._held:
            return
        self._held[key] = finished
        self.size += cost
        while self.size > self.limit:
            old, gone = self._held.popitem(last=False)
            self.size -= len(gone.data) + len(old) + _OVERHEAD
