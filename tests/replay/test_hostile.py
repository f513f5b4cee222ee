"""Whatever bytes a server sends, in whatever pieces: one final record that can be written, and no
exception."""

from __future__ import annotations

import asyncio
import socket
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.replay.conftest import LAST_CHUNK, STREAM_HEAD, chunk, delta, reply, sse, stream, usage

from servemark.replay.failures import FAILURE_KINDS
from servemark.replay.flight import Flight, FlightRules
from servemark.replay.http import Connection, Inbox, Limits
from servemark.replay.record import RequestRecord
from servemark.replay.records_io import decode_record, encode_record

LIMITS = Limits(header_bytes=2000, event_bytes=2000, reply_bytes=20_000)
PARTS = [
    STREAM_HEAD,
    LAST_CHUNK,
    stream(delta(content="a"), usage(3, 1, 0)),
    reply("200 OK", b'{"choices":[{"message":{"content":"x"}}]}', "Content-Type: application/json"),
    reply("500 Oops", b"oops"),
    reply("302 Found", b"", "Location: /"),
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\n",
    chunk(sse(delta(content="a"))),
    chunk(sse(delta("stop"))),
    chunk(sse({"error": {"message": "x"}})),
    chunk(sse(b"[DONE]")),
    chunk(b"data: {\n\n"),
    chunk(b"x" * 1500),
    b"ffffffffffffffff\r\n",
    b"-1\r\n",
    b"\r\n",
    b"\x00",
]


class Wire:
    """A transport that only remembers that it was closed."""

    def __init__(self) -> None:
        self.closed = False

    def abort(self) -> None:
        """See the class."""
        self.closed = True

    def write(self, data: bytes) -> None:
        """The rest of a request that the socket did not take."""


async def converse(pieces: list[bytes], error: OSError | None) -> RequestRecord:
    """One request; its reply comes in these pieces, and then the connection is lost."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        inbox = Inbox(asyncio.get_running_loop())
        connection = Connection(ours, inbox, zero=0.0, limits=LIMITS, forget=lambda _: None)
        connection.connection_made(Wire())  # type: ignore[arg-type]
        record = RequestRecord("r", "s", 0, "measured")
        flight = Flight(record, connection, FlightRules(LIMITS, 60, 60, stream=True, keep_text=True))
        flight.launch(b"POST / HTTP/1.1\r\n\r\n")
        for piece in pieces:
            connection.data_received(piece)
            inbox.drain()
        connection.connection_lost(error)
        await asyncio.wait_for(flight.landed, 1)
    return record


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(PARTS) | st.binary(max_size=30), max_size=8),
    st.lists(st.integers(0, 3000), max_size=6),
    st.sampled_from([None, ConnectionResetError(104, "reset"), OSError(113, "no route")]),
)
@example([STREAM_HEAD, chunk(sse(delta(content="a")))], [], None)
@example([b"HTTP/1.0 200 OK\r\n\r\n", sse(delta(content="a")), sse(delta("stop"))], [20], None)
def test_any_bytes_end_in_one_record(parts: list[bytes], cuts: list[int], error: OSError | None) -> None:
    """The record is final, its kind is one of the known ones, and it survives being written and read."""
    whole = b"".join(parts)
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[a:b] for a, b in pairwise(edges) if a < b]
    record = asyncio.run(converse(pieces, error))
    assert record.end_s is not None
    assert (record.outcome == "ok") == (record.error_kind is None)
    assert record.error_kind is None or record.error_kind in FAILURE_KINDS
    assert record.outcome in ("ok", "error", "incomplete")
    again = decode_record(encode_record(record), "f:1")
    assert (again.outcome, again.text, again.error_detail) == (
        record.outcome,
        record.text,
        record.error_detail,
    )
