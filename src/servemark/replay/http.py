"""A connection of our own over asyncio: when bytes left, when bytes came.

Times are seconds since the client's zero on the monotonic clock. A read is stamped in `data_received`,
before a single byte of it is parsed, and parsing waits until every socket that was ready in this pass of
the event loop has been read: otherwise the last of 256 ready sockets would be stamped late by the parsing
of the 255 before it.

Plain HTTP. Redirects are never followed, and bytes that no request asked for end a connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Protocol, cast

from servemark.replay.failures import FailureKind
from servemark.replay.reply import ReplyParser


@dataclass(frozen=True, slots=True)
class Limits:
    """What one reply may cost in memory, in bytes; more ends the request as an error of kind `too_large`."""

    header_bytes: int = 64 * 1024
    event_bytes: int = 4 * 1024 * 1024
    reply_bytes: int = 64 * 1024 * 1024


class ReplyHandler(Protocol):
    """Who waits for the reply on a connection. Every call belongs to one read; `at` is that read's stamp."""

    def on_head(self, at: float, status: int, headers: Mapping[bytes, bytes]) -> None:
        """Status line and headers are complete; the headers a client acts on are handed over, names lower
        case."""

    def on_body(self, at: float, data: bytes) -> None:
        """All body bytes of one read, unframed."""

    def on_end(self, at: float, *, reusable: bool) -> None:
        """The reply is complete by its framing; `reusable`: the connection may carry another request."""

    def on_broken(self, at: float, kind: FailureKind, detail: str) -> None:
        """The bytes are not HTTP, or too many; the connection is closed already."""

    def on_lost(self, at: float, error: Exception | None, *, body_ends_here: bool) -> None:
        """The connection is gone; `body_ends_here` when closing it is how this reply's body ends."""


class Inbox:
    """Reads that have their stamp and wait to be parsed once the event loop has read every ready socket."""

    __slots__ = ("_loop", "reads")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.reads: list[tuple[Connection, float, bytes]] = []

    def schedule(self) -> None:
        """Ask for `drain` at the end of this pass; called by whoever puts in the first read."""
        self._loop.call_soon(self.drain)

    def drain(self) -> None:
        """Parse everything that waits, in order of arrival."""
        reads, self.reads = self.reads, []
        done = 0
        try:
            for connection, at, data in reads:
                done += 1
                connection.parse(at, data)
        finally:
            if done < len(reads):  # a bug in one reply must not take the others' bytes with it
                self.reads = reads[done:] + self.reads
                self.schedule()


class Connection(asyncio.Protocol):
    """One connected socket that carries one request at a time."""

    __slots__ = (
        "_forget",
        "_handler",
        "_inbox",
        "_limits",
        "_lost",
        "_received",
        "_reply",
        "_send_error",
        "_sock",
        "_tls",
        "_transport",
        "_zero",
        "closed",
        "first_read_at",
        "last_read_at",
        "used",
    )

    def __init__(
        self,
        sock: socket.socket,
        inbox: Inbox,
        *,
        zero: float,
        limits: Limits,
        forget: Callable[[Connection], None],
        tls: bool = False,
    ) -> None:
        self._sock = sock
        self._tls = tls
        self._inbox = inbox
        self._zero = zero
        self._limits = limits
        self._forget = forget
        self._reply = ReplyParser()
        self._handler: ReplyHandler | None = None
        self._transport: asyncio.Transport | None = None
        self._send_error: OSError | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._received = 0
        self.closed = False
        self.used = False
        self.first_read_at: float | None = None
        self.last_read_at = 0.0

    # -- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        # Not asked with isinstance: uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Stamp and put aside; see the module's docstring."""
        at = monotonic() - self._zero
        reads = self._inbox.reads
        if not reads:
            self._inbox.schedule()
        reads.append((self, at, data))

    def eof_received(self) -> None:
        """The server has nothing more to say: the rest of a request that it never read is not worth
        flushing."""
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """What was read before the loss is parsed before the loss is told."""
        at = monotonic() - self._zero
        self._inbox.drain()
        self.closed = True
        self._forget(self)
        handler, self._handler = self._handler, None
        if handler is not None:
            error = self._send_error or exc
            ends_here = error is None and self._reply.head_seen and not self._reply.framed
            handler.on_lost(at, error, body_ends_here=ends_here)
        if not self._lost.done():
            self._lost.set_result(None)

    # -- what the client calls

    @property
    def idle(self) -> bool:
        """Open, and no reply is owed on it."""
        return not self.closed and self._handler is None

    def now(self) -> float:
        """Seconds since the client's zero, on the clock of the stamps."""
        return monotonic() - self._zero

    def send(self, handler: ReplyHandler, request: bytes) -> float:
        """Hand the request to the socket and return the moment before that; the reply goes to `handler`.

        Written to the socket at once and not through the transport, which may put writes off until the end
        of the loop's pass: the start would then lie before the send. (Under TLS the transport must do it: there the
        start is the hand-over to it.) A failing socket is reported by `on_lost`.
        """
        transport = self._transport
        self._reply.expect()
        self._received = 0
        self.first_read_at = None
        self.used = True
        start = self.last_read_at = self.now()
        if transport is None or self.closed:
            loop = asyncio.get_running_loop()
            loop.call_soon(partial(handler.on_lost, start, None, body_ends_here=False))
            return start
        self._handler = handler
        if self._tls:
            transport.write(request)
            return start
        try:
            sent = self._sock.send(request)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._send_error = error
            transport.abort()
            return start
        if sent < len(request):
            transport.write(memoryview(request)[sent:])
        return start

    def abort(self) -> None:
        """Close without ceremony; the handler hears nothing more."""
        self._handler = None
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    async def wait_lost(self) -> None:
        """Until the event loop has let go of the socket."""
        await asyncio.shield(self._lost)

    def parse(self, at: float, data: bytes) -> None:
        """Take one read that arrived at `at`."""
        handler = self._handler
        if handler is None:
            self.abort()
            return
        self.last_read_at = at
        if not self._received:
            self.first_read_at = at
        self._received += len(data)
        reply = self._reply
        had_head = reply.head_seen
        fault = reply.feed(data)
        if not had_head and reply.head_seen:
            handler.on_head(at, reply.status, reply.headers)
        parts = reply.parts
        if parts:
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            parts.clear()
            if self._handler is handler:
                handler.on_body(at, body)
        if self._handler is not handler:
            return
        if reply.complete:
            self._handler = None
            handler.on_end(at, reusable=reply.keep_alive and not reply.surplus and fault is None)
        elif fault is not None:
            self._break(handler, at, "bad_http", fault)
        elif self._received > self._limits.reply_bytes:
            self._break(handler, at, "too_large", f"reply_bytes>{self._limits.reply_bytes}")
        elif not reply.head_seen and self._received > self._limits.header_bytes:
            self._break(handler, at, "too_large", f"header_bytes>{self._limits.header_bytes}")

    def _break(self, handler: ReplyHandler, at: float, kind: FailureKind, detail: str) -> None:
        self.abort()
        handler.on_broken(at, kind, detail)
