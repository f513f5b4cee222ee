"""Every way in which a server can fail ends in one record with an outcome and a kind, and raises nothing."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
from tests.replay.conftest import (
    LAST_CHUNK,
    STREAM_HEAD,
    Close,
    Pause,
    Reset,
    Serve,
    Step,
    ask,
    chunk,
    delta,
    reply,
    sse,
    stream,
)

from servemark.base.messages import text
from servemark.replay.client import Client, Target, run
from servemark.replay.failures import FAILURE_KINDS, describe
from servemark.replay.http import Limits
from servemark.replay.record import RequestRecord

UPGRADE = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
GOOD = STREAM_HEAD + chunk(sse(delta(content="a")))


def send(url: str, *, limits: Limits | None = None, **target: Any) -> RequestRecord:  # noqa: ANN401
    """One request to one server."""

    async def main() -> RequestRecord:
        async with Client(Target(url, "m", **target), limits=limits) as client:
            return await client.send(ask())

    return run(main())


@pytest.mark.parametrize(
    ("script", "outcome", "kind", "status"),
    [
        ([Close()], "error", "closed", None),
        ([Reset()], "error", "reset", None),
        ([STREAM_HEAD, Close()], "incomplete", "truncated", 200),
        ([GOOD, Pause(0.02), Close()], "incomplete", "truncated", 200),
        ([GOOD, Pause(0.02), Reset()], "incomplete", "reset", 200),
        ([GOOD + LAST_CHUNK], "incomplete", "truncated", 200),
        ([GOOD + b"zzz\r\n"], "error", "bad_http", 200),
        ([b"SSH-2.0-OpenSSH_9.2\r\n"], "error", "bad_http", None),
        ([UPGRADE], "error", "bad_http", None),
        ([GOOD + chunk(sse(b"{broken"))], "error", "bad_event", 200),
        ([GOOD + chunk(sse({"error": {"message": "kaputt"}}))], "error", "stream_error", 200),
        ([stream(delta("abort", content="x"))], "ok", None, 200),
        ([reply("200 OK", b"<html></html>", "Content-Type: text/html")], "error", "bad_reply", 200),
        ([reply("200 OK", b"x", "Content-Encoding: gzip")], "error", "compressed", 200),
        ([b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{}", Close()],
         "incomplete", "truncated", 200),
    ],
)  # fmt: skip
def test_outcome(
    serve: Serve, script: list[Step], outcome: str, kind: str | None, status: int | None
) -> None:
    """What the server did, and what the record says of it."""
    record = send(serve(script).url)
    assert (record.outcome, record.error_kind, record.http_status) == (outcome, kind, status)
    assert record.end_s is not None and record.start_s is not None and record.end_s >= record.start_s


def test_what_was_seen_before_the_failure_is_kept(serve: Serve) -> None:
    """Two chunks, then a reset: the record keeps both, and counts them."""
    server = serve([GOOD, Pause(0.02), chunk(sse(delta(content="b"))), Pause(0.02), Reset()])
    record = send(server.url)
    assert (record.outcome, len(record.chunk_s)) == ("incomplete", 2)
    assert (record.output_tokens, record.tokens_origin) == (2, "chunks")


@pytest.mark.parametrize(
    ("status", "body", "headers", "detail"),
    [
        ("429 Too Many Requests", b'{"error":{"message":"slow down","type":"rate"}}', ["Retry-After: 7"],
         "retry-after=7; rate: slow down"),
        ("500 Internal Server Error", b"Traceback:\n  File x", [], "Traceback: File x"),
        ("503 Service Unavailable", b"", [], None),
        ("404 Not Found", b'{"detail":"Not Found"}', [], '{"detail":"Not Found"}'),
        ("204 No Content", b"", [], None),
    ],
)  # fmt: skip
def test_refusals(serve: Serve, status: str, body: bytes, headers: list[str], detail: str | None) -> None:
    """The status, and the server's words on one line."""
    record = send(serve([reply(status, body, *headers)]).url)
    assert (record.outcome, record.error_kind) == ("error", "http_status")
    assert record.http_status == int(status[:3])
    assert record.error_detail == detail


def test_refusal_keeps_the_connection(serve: Serve) -> None:
    """A 429 is an answer like any other: the next request uses the same connection."""
    server = serve([reply("429 Too Many Requests", b"no")], [stream(delta(content="a"))])

    async def main() -> list[str]:
        async with Client(Target(server.url, "m")) as client:
            return [(await client.send(ask())).outcome for _ in range(2)]

    assert run(main()) == ["error", "ok"]
    assert server.connections == 1


def test_endless_refusal_is_cut_off(serve: Serve) -> None:
    """An error page without an end does not hold the request."""
    endless = b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"x" * 4096) * 8
    before = time.monotonic()
    record = send(serve([endless, Pause(10)]).url)
    assert (record.error_kind, record.http_status) == ("http_status", 500)
    assert len(record.error_detail or "") == 300
    assert time.monotonic() - before < 5


def test_redirect_is_not_followed(serve: Serve) -> None:
    """A redirect could send prompts and keys anywhere."""
    other = serve([stream(delta(content="a"))])
    record = send(serve([reply("307 Temporary Redirect", b"", f"Location: {other.url}/v1")]).url)
    assert (record.outcome, record.error_kind, record.http_status) == ("error", "redirect", 307)
    assert record.error_detail == f"location={other.url}/v1"
    assert other.exchanges == []


def test_refused_connection() -> None:
    """Nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    record = send(f"http://127.0.0.1:{port}")
    assert (record.outcome, record.error_kind) == ("error", "connect_refused")
    assert (record.start_s, record.connect_s, record.first_byte_s) == (None, None, None)


def test_name_that_does_not_resolve() -> None:
    """RFC 2606 reserves .invalid; a label of 70 characters cannot even be looked up."""
    assert send("http://nowhere.invalid:1").error_kind == "resolve_failed"
    assert send(f"http://{'x' * 70}.invalid:1").error_kind == "resolve_failed"


def test_connect_timeout() -> None:
    """A listen queue that is full does not answer: the limit ends it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        try:
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(address)
            time.sleep(0.05)
            record = send(f"http://127.0.0.1:{address[1]}", connect_timeout_s=0.1)
        finally:
            for filler in fillers:
                filler.close()
    assert (record.outcome, record.error_kind) == ("timeout", "connect_timeout")


@pytest.mark.parametrize(
    ("script", "chunks"),
    [([Pause(10)], 0), ([STREAM_HEAD, Pause(10)], 0), ([GOOD, Pause(10)], 1)],
    ids=["before-head", "after-head", "mid-stream"],
)
def test_idle_timeout(serve: Serve, script: list[Step], chunks: int) -> None:
    """0.1 s without a byte, wherever it happens, measured from the last byte."""
    record = send(serve(script).url, idle_timeout_s=0.1)
    assert (record.outcome, record.error_kind, len(record.chunk_s)) == ("timeout", "idle_timeout", chunks)
    last = record.first_byte_s if record.first_byte_s is not None else record.start_s
    assert last is not None and record.end_s is not None
    assert 0.1 <= record.end_s - last < 1.0


def test_bytes_hold_the_idle_timeout_off(serve: Serve) -> None:
    """A keep-alive comment every 0.03 s for 0.24 s is life enough for a limit of 0.15 s."""
    ping: list[Step] = [chunk(b": ping\n\n"), Pause(0.03)]
    server = serve([STREAM_HEAD, *ping * 8, stream(delta(content="a"))[len(STREAM_HEAD) :]])
    assert send(server.url, idle_timeout_s=0.15).outcome == "ok"


def test_total_timeout(serve: Serve) -> None:
    """A reply that never pauses and never ends is ended 0.15 s after its start."""
    drip: list[Step] = [chunk(sse(delta(content="a"))), Pause(0.05)]
    record = send(serve([STREAM_HEAD, *drip * 100]).url, total_timeout_s=0.15)
    assert (record.outcome, record.error_kind) == ("timeout", "total_timeout")
    assert len(record.chunk_s) >= 2
    assert record.start_s is not None and record.end_s is not None
    assert 0.15 <= record.end_s - record.start_s < 1.15


def test_gigantic_line(serve: Serve) -> None:
    """One event of 2 MB where 1 MB is allowed: the request ends, the process and its memory do not mind."""
    line = chunk(b"x" * 65536) * 32
    server = serve([STREAM_HEAD + chunk(b"data: ") + line, Pause(5)])
    record = send(server.url, limits=Limits(event_bytes=1 << 20))
    assert (record.outcome, record.error_kind) == ("error", "too_large")


def test_gigantic_reply(serve: Serve) -> None:
    """Good events without end."""
    events = b"".join(chunk(sse(delta(content="a"))) for _ in range(1000))
    record = send(serve([STREAM_HEAD, *[events] * 50]).url, limits=Limits(reply_bytes=200_000))
    assert (record.outcome, record.error_kind) == ("error", "too_large")
    assert record.chunk_s


def test_gigantic_head(serve: Serve) -> None:
    """A header line without end."""
    server = serve([b"HTTP/1.1 200 OK\r\nX: ", *[b"y" * 65536] * 40, Pause(5)])
    record = send(server.url, limits=Limits(header_bytes=65536))
    assert (record.outcome, record.error_kind) == ("error", "too_large")


def test_bytes_that_nobody_asked_for(serve: Serve) -> None:
    """A second reply in the same packet is dropped with its connection; it must not answer the next
    request."""
    server = serve([stream(delta(content="a")) + stream(delta(content="evil"))], [stream(delta(content="b"))])

    async def main() -> list[str | None]:
        async with Client(Target(server.url, "m")) as client:
            return [(await client.send(ask(keep_text=True))).text for _ in range(2)]

    assert run(main()) == ["a", "b"]
    assert server.connections == 2


def test_prompt_that_has_no_utf8(serve: Serve) -> None:
    """Half a surrogate pair out of somebody's file ends in a record, not in a traceback."""

    async def main() -> RequestRecord:
        async with Client(Target(serve([stream()]).url, "m")) as client:
            return await client.send(ask(messages=[{"role": "user", "content": "a\ud83d"}]))

    record = run(main())
    assert (record.outcome, record.error_kind, record.error_detail) == ("error", "unencodable", "U+D83D")


@pytest.mark.parametrize("kind", FAILURE_KINDS)
def test_every_kind_has_words(kind: str) -> None:
    """In both languages, and not the same ones."""
    english, chinese = text(f"replay.kind_{kind}", "en"), text(f"replay.kind_{kind}", "zh")
    assert describe(kind, "en") == english != chinese == describe(kind, "zh")


def test_unknown_kind_is_shown_as_it_is() -> None:
    """A record of a newer version."""
    assert describe("of_tomorrow") == "of_tomorrow"
