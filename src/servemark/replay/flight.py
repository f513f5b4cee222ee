"""One attempt of one request on one connection: from its send to its outcome, with the time limits on the
way."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from servemark.replay.chat import StreamReader, WholeReader, error_detail, lenient_event
from servemark.replay.events import Translate, TranslatedStream, TranslatedWhole
from servemark.replay.failures import FailureKind, ReplyError, short_detail
from servemark.replay.http import Connection, Limits
from servemark.replay.record import Outcome, RequestRecord

STALE_WINDOW_S: Final = 1.0
"""A used connection that closes this soon after a send, without a byte, had been closed by the server
beforehand."""

LAST_LOOK_S: Final = 0.05
"""Before a timeout counts, sockets are read once more: a process that was stopped for a while owes them
that."""

AFTER_DONE_S: Final = 0.25
"""How long a reply that said `[DONE]` may take to end its framing before its connection is given up."""

ERROR_BODY_BYTES: Final = 16 * 1024
_RESETS: Final = frozenset({errno.ECONNRESET, errno.EPIPE, errno.ECONNABORTED, errno.ESHUTDOWN})


@dataclass(frozen=True, slots=True)
class FlightRules:
    """What one attempt is held to. `stream` is what was asked for; the reply's content type has the last
    word. `translate` reads the events of a protocol other than chat; `count` counts a text's tokens where the
    server sends no usage."""

    limits: Limits
    idle_timeout_s: float
    total_timeout_s: float
    stream: bool
    keep_text: bool
    translate: Translate | None = None
    count: Callable[[str], int] | None = None


class _Reader(Protocol):
    over: bool

    def feed(self, at: float, data: bytes) -> None: ...
    def end(self, at: float, *, whole: bool) -> None: ...
    def close(self) -> None: ...


class _RefusalReader:
    """Reads the body of a reply that is not a 200, as far as its message is likely to reach."""

    __slots__ = ("_failure", "_parts", "_size", "over")

    def __init__(self, failure: ReplyError) -> None:
        self._failure = failure
        self._parts: list[bytes] = []
        self._size = 0
        self.over = False

    def feed(self, at: float, data: bytes) -> None:
        """Keep the first 16 KiB; a body that goes on longer ends the request."""
        self._parts.append(data)
        self._size += len(data)
        if self._size > ERROR_BODY_BYTES:
            self.end(at, whole=False)

    def end(self, at: float, *, whole: bool) -> None:
        """Raises the failure, with the server's message as its detail."""
        body = b"".join(self._parts)[:ERROR_BODY_BYTES]
        said = self._failure.detail
        try:
            event = lenient_event(body)
            message = error_detail(event.error) if event.error is not None else None
        except ReplyError as error:
            message = error.detail
        if message is None:
            message = short_detail(body.decode("utf-8", "replace"))
        detail = "; ".join(part for part in (said, message) if part)
        raise ReplyError(self._failure.outcome, self._failure.kind, detail or None)

    def close(self) -> None:
        """A refusal has no tokens."""


class Flight:
    """Handles the reply on one connection and fills the record; `landed` is done when the record is final."""

    __slots__ = (
        "_after_done",
        "_final",
        "_loop",
        "_reader",
        "_rules",
        "_timer",
        "connection",
        "landed",
        "record",
        "reusable",
    )

    def __init__(self, record: RequestRecord, connection: Connection, rules: FlightRules) -> None:
        self.record = record
        self.connection = connection
        self.reusable = False
        self._final = False
        self._rules = rules
        self._loop = asyncio.get_running_loop()
        self.landed: asyncio.Future[None] = self._loop.create_future()
        self._reader: _Reader | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._after_done: asyncio.TimerHandle | None = None

    def launch(self, request: bytes) -> None:
        """Send. From here on the record ends by the reply, by a limit, or by `cancel`."""
        rules = self._rules
        self.record.start_s = self.connection.send(self, request)
        self._timer = self._loop.call_later(
            min(rules.idle_timeout_s, rules.total_timeout_s), self._look, False
        )

    def cancel(self, at: float) -> None:
        """Stop this attempt from our side: the connection is closed, the record keeps what was seen."""
        if self._final:
            return
        self.connection.abort()
        if self._reader is not None and self._reader.over:
            self._end_body(at, whole=False, reusable=False)
        else:
            self._land(at, "cancelled", None, None)

    def went_stale(self) -> bool:
        """True when nothing but the age of a kept connection explains the failure, so that one retry is
        fair."""
        record = self.record
        if record.error_kind not in ("closed", "reset") or record.first_byte_s is not None:
            return False
        if record.end_s is None or record.start_s is None:
            return False
        return record.end_s - record.start_s <= STALE_WINDOW_S

    # -- what the connection calls

    def on_head(self, at: float, status: int, headers: Mapping[bytes, bytes]) -> None:
        """See http.ReplyHandler."""
        record = self.record
        record.first_byte_s = self.connection.first_read_at
        record.http_status = status
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        if 300 <= status < 400:
            location = _header_text(headers, b"location")
            self._fail(at, ReplyError("error", "redirect", location and f"location={location}"))
        elif status != 200:
            wait = _header_text(headers, b"retry-after")
            self._reader = _RefusalReader(ReplyError("error", "http_status", wait and f"retry-after={wait}"))
        elif encoding not in (b"", b"identity"):
            self._fail(at, ReplyError("error", "compressed", _header_text(headers, b"content-encoding")))
        else:
            self._reader = self._open_reader(
                stream=self._is_stream(headers.get(b"content-type", b"").lower())
            )

    def on_body(self, at: float, data: bytes) -> None:
        """See http.ReplyHandler."""
        reader = self._reader
        if reader is None:
            return
        try:
            reader.feed(at, data)
        except ReplyError as error:
            self._fail(at, error)
            return
        if reader.over and self._after_done is None:
            self.record.end_s = at
            self._after_done = self._loop.call_later(AFTER_DONE_S, self._give_up_connection)

    def on_end(self, at: float, *, reusable: bool) -> None:
        """See http.ReplyHandler."""
        self._end_body(at, whole=True, reusable=reusable)

    def on_broken(self, at: float, kind: FailureKind, detail: str) -> None:
        """See http.ReplyHandler."""
        if self.record.first_byte_s is None:
            self.record.first_byte_s = self.connection.first_read_at
        if self._reader is not None and self._reader.over:
            self._end_body(at, whole=False, reusable=False)
        else:
            self._fail(at, ReplyError("error", kind, short_detail(detail)))

    def on_lost(self, at: float, error: Exception | None, *, body_ends_here: bool) -> None:
        """See http.ReplyHandler."""
        record = self.record
        record.first_byte_s = self.connection.first_read_at
        if self._reader is not None and (body_ends_here or self._reader.over):
            self._end_body(at, whole=body_ends_here, reusable=False)
            return
        reset = isinstance(error, OSError) and error.errno in _RESETS
        kind: FailureKind = "reset" if reset else "closed"
        detail = None if error is None or reset else short_detail(str(error))
        if isinstance(self._reader, _RefusalReader):
            self._end_body(at, whole=False, reusable=False)
        elif self._reader is not None:
            self._fail(at, ReplyError("incomplete", "reset" if reset else "truncated", detail))
        else:
            self._fail(at, ReplyError("error", kind, detail))

    # -- inside

    def _open_reader(self, *, stream: bool) -> _Reader:
        rules = self._rules
        keep, count, limit = rules.keep_text, rules.count, rules.limits.event_bytes
        if rules.translate is None:
            if stream:
                return StreamReader(self.record, keep_text=keep, event_limit=limit, count=count)
            return WholeReader(self.record, keep_text=keep, count=count)
        if stream:
            return TranslatedStream(
                self.record, rules.translate, keep_text=keep, event_limit=limit, count=count
            )
        return TranslatedWhole(self.record, rules.translate, keep_text=keep, count=count)

    def _is_stream(self, content_type: bytes) -> bool:
        if b"event-stream" in content_type:
            return True
        return self._rules.stream and b"json" not in content_type and b"html" not in content_type

    def _end_body(self, at: float, *, whole: bool, reusable: bool) -> None:
        reader = self._reader
        if reader is None:
            return
        self.reusable = reusable
        try:
            reader.end(at, whole=whole)
        except ReplyError as error:
            self._land(at, error.outcome, error.kind, error.detail)
        else:
            self._land(at, "ok", None, None)

    def _give_up_connection(self) -> None:
        """The reply is over but its framing is not: the record is good, the connection is not."""
        if not self._final:
            self.connection.abort()
            self._end_body(self.record.end_s or 0.0, whole=False, reusable=False)

    def _fail(self, at: float, error: ReplyError) -> None:
        self.connection.abort()
        self._land(at, error.outcome, error.kind, error.detail)

    def _land(self, at: float, outcome: Outcome, kind: FailureKind | None, detail: str | None) -> None:
        if self._final:
            return
        self._final = True
        for timer in (self._timer, self._after_done):
            if timer is not None:
                timer.cancel()
        record = self.record
        if self._reader is not None:
            self._reader.close()
        if record.end_s is None or outcome != "ok":
            record.end_s = at
        record.outcome = outcome
        record.error_kind = kind
        record.error_detail = detail
        if not self.landed.done():  # cancelling the task that awaits it has ended it already
            self.landed.set_result(None)

    def _look(self, last: bool) -> None:
        """A limit may have passed: compare with what was read since, and look again when it has not."""
        if self._final:
            return
        rules = self._rules
        start = self.record.start_s or 0.0
        now = self.connection.now()
        idle_left = self.connection.last_read_at + rules.idle_timeout_s - now
        total_left = start + rules.total_timeout_s - now
        left = min(idle_left, total_left)
        if left > 0:
            self._timer = self._loop.call_later(left, self._look, False)
        elif not last:
            self._timer = self._loop.call_later(LAST_LOOK_S, self._look, True)
        else:
            self.record.first_byte_s = self.connection.first_read_at
            kind: FailureKind = "total_timeout" if total_left <= idle_left else "idle_timeout"
            limit = rules.total_timeout_s if kind == "total_timeout" else rules.idle_timeout_s
            self._fail(now, ReplyError("timeout", kind, f"{kind}_s={limit:g}"))


def _header_text(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else short_detail(value.decode("latin-1"))
