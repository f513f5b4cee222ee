"""uvicorn's HTTP connection with what it lacks: time limits for heads, bodies and slow readers, a size limit for heads, and
a limit of connections in all and for one client."""

from __future__ import annotations

import asyncio
from collections import Counter
from enum import Enum

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from servemark.web.rate_limit import client_name

HEAD_S = 10.0
"""From a connection's first moment, and from a request's first byte, to the end of its headers."""
BODY_S = 120.0
WRITE_S = 30.0
"""How long a client may read nothing of an answer that waits for it."""
LINGER_S = 2.0
"""How long the rest of a refused upload is read, so that its sender sees the answer."""
MAX_HEAD = 32 * 1024
MAX_CONNECTIONS = 1024
MAX_OF_CLIENT = 512
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_clients: Counter[str] = Counter()


class _Part(Enum):
    """What of a request comes next. BODY lasts until the request's end."""

    BETWEEN = 0
    HEAD = 1
    BODY = 2


class GuardedProtocol(HttpToolsProtocol):
    """One connection. At most one deadline runs at a time beside the one for writing."""

    _deadline: asyncio.TimerHandle | None = None
    _write_deadline: asyncio.TimerHandle | None = None
    _who: str | None = None
    _head_bytes = 0
    _part = _Part.BETWEEN

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, or refuse it without a word."""
        super().connection_made(transport)
        who = client_name(self.client[0]) if self.client else ""
        if len(self.connections) > MAX_CONNECTIONS or _clients[who] >= MAX_OF_CLIENT:
            transport.abort()
            return
        self._who = who
        _clients[who] += 1
        self._limit(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        if self._who is not None:
            _clients[self._who] -= 1
            if not _clients[self._who]:
                del _clients[self._who]
            self._who = None
        self._limit(None)
        self._limit_writing(None)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bound what is kept of a head."""
        if self.transport.is_closing():
            return
        if self._part is _Part.BETWEEN and self._deadline is None:
            self._limit(HEAD_S)
        going_on = self._part is _Part.HEAD
        super().data_received(data)
        if self._part is _Part.HEAD and going_on:
            self._count(len(data))

    def on_message_begin(self) -> None:
        """A head begins."""
        self._part, self._head_bytes = _Part.HEAD, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of it."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One line of it."""
        super().on_header(name, value)
        self._count(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """A body may follow, for so long."""
        if self.transport.is_closing():
            return
        self._part = _Part.BODY
        self._limit(BODY_S)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is here."""
        self._part = _Part.BETWEEN
        self._limit(None)
        if self.cycle is not None:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Keep the connection when the whole request was read; else read on for a moment and close it."""
        super().on_response_complete()
        if self._part is _Part.BODY and not self.transport.is_closing():
            self._limit(LINGER_S)

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._limit_writing(WRITE_S)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        self._limit_writing(None)

    def _count(self, more: int) -> None:
        self._head_bytes += more
        if self._head_bytes > MAX_HEAD and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def _limit(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._too_slow)

    def _limit_writing(self, seconds: float | None) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
        self._write_deadline = None if seconds is None else self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        self._deadline = self._write_deadline = None
        self.transport.abort()
