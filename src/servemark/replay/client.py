"""The one HTTP client that measures: sends chat requests to a target and returns a record of what was seen.

`Client.send` never raises for what a server does; it raises CancelledError when its task is cancelled.
Secrets (the API key, values of extra headers) are struck out of whatever a server repeats of them.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from servemark.replay.chat import encode_body
from servemark.replay.failures import ReplyError
from servemark.replay.flight import Flight, FlightRules
from servemark.replay.http import Connection, Limits
from servemark.replay.pool import Pool
from servemark.replay.record import RequestRecord
from servemark.replay.target import ChatRequest, Target, header_value, read_api_key, request_head, split_url

__all__ = ["ChatRequest", "Client", "Target", "run"]

T = TypeVar("T")
_SECRET_CHARACTERS: Final = 8
"""Header values shorter than this are too common to be struck out of texts."""


class Client:
    """Async context manager over one target, for one event loop.

    All times of its records are seconds since `zero_ns`, a value of `time.monotonic_ns()`; by default the
    moment of construction. Raises ServemarkError (layer input) when the API key is asked for and missing.
    """

    def __init__(self, target: Target, *, zero_ns: int | None = None, limits: Limits | None = None) -> None:
        self.target = target
        self.limits = limits or Limits()
        self.zero_ns = time.monotonic_ns() if zero_ns is None else zero_ns
        self._zero = self.zero_ns / 1e9
        self._address = split_url(target.base_url)
        key = read_api_key(target)
        self._head = request_head(target, self._address, key)
        hidden = [key or "", *target.headers.values()]
        hidden += [word for value in target.headers.values() for word in value.split()]
        self._secrets = sorted({h for h in hidden if len(h) >= _SECRET_CHARACTERS}, key=len, reverse=True)
        if key and key not in self._secrets:
            self._secrets.append(key)
        self._pool: Pool | None = None
        self.in_flight = 0
        """Requests whose bytes were handed to a socket and that have not ended."""
        self.max_in_flight = 0

    async def __aenter__(self) -> Self:
        self._pool = Pool(
            self._address.host,
            self._address.port,
            zero=self._zero,
            limits=self.limits,
            connect_timeout_s=self.target.connect_timeout_s,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    def now_s(self) -> float:
        """Seconds since this client's zero."""
        return time.monotonic() - self._zero

    async def warm(self, connections: int) -> int:
        """Connect ahead of the first request; returns how many connections stand. Failures show at the
        sends."""
        return await self._opened().warm(connections)

    async def send(self, request: ChatRequest, into: RequestRecord | None = None) -> RequestRecord:
        """Send one request, wait for its end, and return its record.

        With `into` (from `request.new_record()`) that record is filled, so that its owner still has it when
        this call is cancelled: its outcome is `cancelled` then, and it holds everything seen up to that
        moment.
        """
        record = request.new_record() if into is None else into
        try:
            await self._send(request, record)
        except asyncio.CancelledError:
            if record.end_s is None:  # otherwise the request had ended before the cancelling reached it
                record.outcome = "cancelled"
                record.end_s = self.now_s()
            raise
        finally:
            self._strike_out(record)
        return record

    async def _send(self, request: ChatRequest, record: RequestRecord) -> None:
        pool = self._opened()
        try:
            payload = self._payload(request)
        except UnicodeEncodeError as error:
            self._fail(record, ReplyError("error", "unencodable", f"U+{ord(error.object[error.start]):04X}"))
            return
        connection = pool.take()
        try:
            if connection is not None:
                if not await self._attempt(pool, connection, request, record, payload):
                    return
                _forget_attempt(record)
            before = time.monotonic()
            connection = await pool.connect()
            record.connect_s = time.monotonic() - before
        except ReplyError as error:
            self._fail(record, error)
            return
        await self._attempt(pool, connection, request, record, payload)

    async def _attempt(
        self, pool: Pool, connection: Connection, request: ChatRequest, record: RequestRecord, payload: bytes
    ) -> bool:
        """Send on this connection and wait for the end. True when a kept connection had gone stale: try
        another."""
        reused = connection.used
        rules = FlightRules(
            self.limits,
            self.target.idle_timeout_s,
            self.target.total_timeout_s,
            request.stream,
            request.keep_text,
        )
        flight = Flight(record, connection, rules)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            flight.launch(payload)
            await flight.landed
        except BaseException:  # also a cancellation: the socket is given up, then it goes on
            flight.cancel(self.now_s())
            raise
        finally:
            self.in_flight -= 1
            if flight.reusable:
                pool.give(connection)
            else:
                connection.abort()
        return reused and flight.went_stale()

    def _payload(self, request: ChatRequest) -> bytes:
        extra = {**self.target.extra_body, **request.extra} if request.extra else self.target.extra_body
        body = encode_body(
            self.target.model,
            request.messages,
            stream=request.stream,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            ignore_eos=request.ignore_eos,
            stop=request.stop,
            extra=extra,
        )
        head = (
            f"X-Request-ID: {header_value(request.id)}\r\n"
            f"X-Session-ID: {header_value(request.session)}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return b"".join((self._head, head.encode("ascii"), body))

    def _fail(self, record: RequestRecord, error: ReplyError) -> None:
        record.outcome = error.outcome
        record.error_kind = error.kind
        record.error_detail = error.detail
        record.end_s = self.now_s()

    def _strike_out(self, record: RequestRecord) -> None:
        for secret in self._secrets:
            if record.error_detail and secret in record.error_detail:
                record.error_detail = record.error_detail.replace(secret, "***")
            if record.text and secret in record.text:
                record.text = record.text.replace(secret, "***")

    def _opened(self) -> Pool:
        if self._pool is None:
            raise RuntimeError("a Client is used inside `async with`")
        return self._pool


def _forget_attempt(record: RequestRecord) -> None:
    """Clear what a stale connection left: the request's times are those of the send that reached the
    server."""
    record.start_s = record.end_s = None
    record.outcome = "cancelled"
    record.error_kind = record.error_detail = None


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on uvloop where it is installed, else on asyncio's own loop."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if sys.platform != "win32":
        try:
            import uvloop  # noqa: PLC0415 - costs 60 ms that only a replay should pay
        except ImportError:
            factory = None
        else:
            factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
