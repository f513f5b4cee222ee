"""The one HTTP client that measures: sends chat requests to a target and returns a record of what was seen.

`Client.send` never raises for what a server does; it raises CancelledError when its task is cancelled.
Secrets (the API key, values of extra headers) are struck out of whatever a server repeats of them.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from servemark.base.errors import input_error
from servemark.replay.failures import ReplyError
from servemark.replay.flight import Flight, FlightRules
from servemark.replay.http import Connection, Limits
from servemark.replay.pool import Pool
from servemark.replay.protocols import BodyParts
from servemark.replay.record import RequestRecord
from servemark.replay.target import (
    MAX_RETRY_WAIT_S,
    Address,
    ChatRequest,
    Target,
    read_api_key,
    request_head,
    request_ids,
    secrets_of,
    split_url,
    without_secrets,
)

__all__ = ["ChatRequest", "Client", "Target", "run"]

T = TypeVar("T")
_SERVERS_WORDS: Final = ("error_detail", "text", "served_model", "finish_reason")


@dataclass(slots=True)
class _Endpoint:
    """One of the target's endpoints: where it is, the head its requests share, its connections."""

    number: int
    address: Address
    head: bytes
    pool: Pool | None = None

    def opened(self) -> Pool:
        if self.pool is None:
            raise RuntimeError("a Client is used inside `async with`")
        return self.pool


class Client:
    """Async context manager over one target, for one event loop.

    All times of its records are seconds since `zero_ns`, a value of `time.monotonic_ns()`; by default the
    moment of construction. `count_tokens` counts the tokens of a reply's text where the server sends no usage.
    Raises ServemarkError (layer input) when the API key or a certificate file is asked for and not usable.
    """

    def __init__(
        self,
        target: Target,
        *,
        zero_ns: int | None = None,
        limits: Limits | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        self.target = target
        self._count_tokens = count_tokens
        self.limits = limits or Limits()
        self.zero_ns = time.monotonic_ns() if zero_ns is None else zero_ns
        self._zero = self.zero_ns / 1e9
        key = read_api_key(target)
        addresses = [split_url(url) for url in target.urls]
        self._endpoints = [
            _Endpoint(number, address, request_head(target, address, key))
            for number, address in enumerate(addresses)
        ]
        self._next_endpoint = 0
        self._homes: dict[str, _Endpoint] = {}
        self._tls = tls_context(target) if any(address.tls for address in addresses) else None
        self._secrets = secrets_of(target)
        self._no_retries = asyncio.Event()
        self.in_flight = 0
        """Requests whose bytes were handed to a socket and that have not ended."""
        self.max_in_flight = 0

    async def __aenter__(self) -> Self:
        for endpoint in self._endpoints:
            endpoint.pool = Pool(
                endpoint.address.host,
                endpoint.address.port,
                zero=self._zero,
                limits=self.limits,
                connect_timeout_s=self.target.connect_timeout_s,
                tls=self._tls if endpoint.address.tls else None,
            )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for endpoint in self._endpoints:
            if endpoint.pool is not None:
                pool, endpoint.pool = endpoint.pool, None
                await pool.close()

    def now_s(self) -> float:
        """Seconds since this client's zero."""
        return time.monotonic() - self._zero

    async def warm(self, connections: int) -> int:
        """Connect ahead of the first request, to all endpoints together; returns how many connections stand.
        Failures show at the sends."""
        share = -(-connections // len(self._endpoints))
        return sum([await endpoint.opened().warm(share) for endpoint in self._endpoints])

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
        endpoint = self._endpoint_of(request)
        if len(self._endpoints) > 1:
            record.endpoint = endpoint.number
        try:
            payload = self._payload(request, endpoint)
        except UnicodeEncodeError as error:
            self._fail(record, ReplyError("error", "unencodable", f"U+{ord(error.object[error.start]):04X}"))
            return
        except ReplyError as error:
            self._fail(record, error)
            return
        await self._send_once(endpoint.opened(), request, record, payload)
        for attempt in range(1, self.target.retries + 1):
            if record.http_status != 429 and not 500 <= (record.http_status or 0) < 600:
                break
            first_start_s = record.start_s
            if await self._told_to_end(_retry_after_s(record, attempt)):
                break  # the refusal is how the request ended
            _forget_refusal(record)
            await self._send_once(endpoint.opened(), request, record, payload)
            # Users wait through refusals too: the request began with its first attempt.
            record.start_s = first_start_s
            record.retries = attempt
        if self.target.retries and record.retries is None:
            record.retries = 0

    def end_retries(self) -> None:
        """From now on no refused request is sent again: what waits to be ends as it was refused."""
        self._no_retries.set()

    async def _told_to_end(self, wait_s: float) -> bool:
        """Wait before another attempt; True, at once, when there is to be none."""
        try:
            await asyncio.wait_for(self._no_retries.wait(), wait_s)
        except TimeoutError:
            return False
        return True

    def _endpoint_of(self, request: ChatRequest) -> _Endpoint:
        """The next endpoint in turn, or with `sticky` the one that this session began on."""
        home = self._homes.get(request.session) if self.target.sticky else None
        if home is None:
            home = self._endpoints[self._next_endpoint]
            self._next_endpoint = (self._next_endpoint + 1) % len(self._endpoints)
            if self.target.sticky:
                self._homes[request.session] = home
        return home

    async def _send_once(
        self, pool: Pool, request: ChatRequest, record: RequestRecord, payload: bytes
    ) -> None:
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
            self.target.wire.translate,
            self._count_tokens,
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

    def _payload(self, request: ChatRequest, endpoint: _Endpoint) -> bytes:
        extra = {**self.target.extra_body, **request.extra} if request.extra else self.target.extra_body
        parts = BodyParts(
            self.target.model,
            request.messages,
            request.stream,
            request.max_tokens,
            request.temperature,
            request.ignore_eos,
            request.stop,
            request.tools,
            extra,
        )
        body = self.target.wire.body(parts)
        ids = request_ids(self.target, request)
        return b"".join((endpoint.head, ids, b"Content-Length: %d\r\n\r\n" % len(body), body))

    def _fail(self, record: RequestRecord, error: ReplyError) -> None:
        record.outcome = error.outcome
        record.error_kind = error.kind
        record.error_detail = error.detail
        record.end_s = self.now_s()

    def _strike_out(self, record: RequestRecord) -> None:
        for name in _SERVERS_WORDS:
            said = getattr(record, name)
            if said:
                setattr(record, name, without_secrets(said, self._secrets))


def tls_context(target: Target) -> ssl.SSLContext:
    """Checks certificates and names, against the system's authorities or `ca_file`. Raises ServemarkError (layer
    input) for a file that is none."""
    try:
        context = ssl.create_default_context(cafile=None if target.ca_file is None else str(target.ca_file))
    except OSError as error:  # ssl.SSLError is one too
        reason = error.strerror or str(error)
        raise input_error("replay.bad_ca", path=target.ca_file, reason=reason) from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _retry_after_s(record: RequestRecord, attempt: int) -> float:
    """What the server asked for in seconds (dates are not read), else 0.5 s doubled with each attempt."""
    # The header's words begin the detail; what follows is the reply's body, which may say anything.
    said = re.match(r"retry-after=(\d+(?:\.\d+)?)\b", record.error_detail or "")
    return min(float(said[1]) if said else 0.5 * 2 ** (attempt - 1), MAX_RETRY_WAIT_S)


def _forget_refusal(record: RequestRecord) -> None:
    """Clear what a refused attempt left, before the next one fills the record."""
    _forget_attempt(record)
    record.first_byte_s = record.http_status = None


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
