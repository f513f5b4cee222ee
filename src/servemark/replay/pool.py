"""Connections to one host and port: opened with a time limit, kept alive, closed without a leak."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Final

from servemark.replay.failures import FailureKind, ReplyError, short_detail
from servemark.replay.http import Connection, Inbox, Limits

CONNECTS_AT_ONCE: Final = 64
"""Connections opened side by side when warming up; a listen queue is commonly 128 long or more."""

CLOSE_GRACE_S: Final = 1.0

_SocketAddress = tuple[socket.AddressFamily, tuple[object, ...]]


class Pool:
    """Keep-alive connections, used last in first out so that the warm ones stay warm. Never uses a proxy."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        zero: float,
        limits: Limits,
        connect_timeout_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self._host = host
        self._port = port
        self._zero = zero
        self._limits = limits
        self._connect_timeout_s = connect_timeout_s
        self._inbox = Inbox(asyncio.get_running_loop())
        self._addresses: list[_SocketAddress] = []
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()

    def take(self) -> Connection | None:
        """An idle open connection, or None."""
        while self._idle:
            connection = self._idle.pop()
            if connection.idle:
                return connection
        return None

    def give(self, connection: Connection) -> None:
        """Keep a connection whose reply has ended for the next request."""
        if connection.idle:
            self._idle.append(connection)

    async def connect(self) -> Connection:
        """Open a new connection. Raises ReplyError (`resolve_failed`, `connect_*`) when it cannot be had."""
        limit_s = self._connect_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._connect()
        except TimeoutError:
            raise ReplyError("timeout", "connect_timeout", f"connect_timeout_s={limit_s:g}") from None

    async def warm(self, count: int) -> int:
        """Open connections until `count` stand idle; returns how many do. Failures are left to the sends."""
        gate = asyncio.Semaphore(CONNECTS_AT_ONCE)

        async def one() -> None:
            async with gate:
                with contextlib.suppress(ReplyError):
                    self._idle.append(await self.connect())

        self._idle = [connection for connection in self._idle if connection.idle]
        await asyncio.gather(*(one() for _ in range(count - len(self._idle))))
        return len(self._idle)

    async def close(self) -> None:
        """Abort every connection and wait, shortly, until the event loop has let go of all of them."""
        waiting = list(self._open)
        for connection in waiting:
            connection.abort()
        self._idle.clear()
        if waiting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_GRACE_S):
                    await asyncio.gather(*(connection.wait_lost() for connection in waiting))

    async def _connect(self) -> Connection:
        if not self._addresses:
            self._addresses = await self._resolve()
        failure: OSError | None = None
        for family, address in self._addresses:
            try:
                return await self._connect_to(family, address)
            except ssl.SSLError as error:
                said = getattr(error, "verify_message", None) or error.reason or str(error)
                raise ReplyError("error", "tls_failed", short_detail(str(said))) from None
            except OSError as error:
                failure = error
        refused = isinstance(failure, ConnectionRefusedError)
        kind: FailureKind = "connect_refused" if refused else "connect_failed"
        raise ReplyError("error", kind, None if failure is None else failure.strerror)

    async def _resolve(self) -> list[_SocketAddress]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ReplyError("error", "resolve_failed", getattr(error, "strerror", None)) from None
        return [(family, address) for family, _, _, _, address in found]

    async def _connect_to(self, family: socket.AddressFamily, address: tuple[object, ...]) -> Connection:
        loop = asyncio.get_running_loop()
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
            _, connection = await loop.create_connection(
                lambda: Connection(
                    sock,
                    self._inbox,
                    zero=self._zero,
                    limits=self._limits,
                    forget=self._open.discard,
                    tls=self._tls is not None,
                ),
                sock=sock,
                ssl=self._tls,
                server_hostname=self._host if self._tls is not None else None,
            )
        except BaseException:  # also a cancellation must not leak the socket
            sock.close()
            raise
        if not connection.closed:
            self._open.add(connection)
        return connection
