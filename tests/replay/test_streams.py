"""Times and counts of replies over real sockets, against what the server says it did when.

The server's moment is taken just before its send, so an arrival can never lie before it; it may lie after
it by what the machine's scheduling adds, for which LATE_S is generous.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from tests.replay.conftest import (
    LAST_CHUNK,
    STREAM_HEAD,
    Close,
    Pause,
    RawServer,
    Serve,
    Step,
    ask,
    chunk,
    delta,
    reply,
    sse,
    stream,
    usage,
)

from servemark.metrics.request import chunk_gaps_s, itl_s, tpot_s, ttfo_s, ttft_s
from servemark.replay import flight
from servemark.replay.chat import StreamReader
from servemark.replay.client import Client, Target, run
from servemark.replay.record import RequestRecord

LATE_S = 0.25
T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


def on_asyncio(main: Coroutine[Any, Any, T]) -> T:
    """The standard library's event loop, for machines without uvloop."""
    return asyncio.run(main)


def one(server: RawServer, runner: Run[RequestRecord] = run, **options: Any) -> tuple[RequestRecord, float]:  # noqa: ANN401
    """Send one request; returns its record and the client's zero on the monotonic clock."""
    zero_ns = time.monotonic_ns()

    async def main() -> RequestRecord:
        async with Client(Target(server.url, "m"), zero_ns=zero_ns) as client:
            return await client.send(ask(**options))

    return runner(main()), zero_ns / 1e9


def check_arrivals(record: RequestRecord, zero: float, sent: list[float]) -> None:
    """Every content event arrived after the server sent it, and soon after."""
    assert len(record.chunk_s) == len(sent)
    for arrived, left in zip(record.chunk_s, sent, strict=True):
        assert 0 <= arrived + zero - left < LATE_S


@pytest.mark.parametrize("runner", [run, on_asyncio], ids=["default", "asyncio"])
def test_times_follow_the_servers_schedule(serve: Serve, runner: Run[RequestRecord]) -> None:
    """Role at once, content at 0.08 s and 0.14 s, finish and usage after another 0.02 s."""
    server = serve(
        [
            STREAM_HEAD + chunk(sse(delta(role="assistant", content=""))),
            Pause(0.08),
            chunk(sse(delta(content="a"))),
            Pause(0.06),
            chunk(sse(delta(content="b"))),
            Pause(0.02),
            chunk(sse(delta("stop")) + sse(usage(5, 2, 3)) + sse(b"[DONE]")) + LAST_CHUNK,
        ]
    )
    record, zero = one(server, runner)
    exchange = server.exchanges[0]
    moments = [at for at, _ in exchange.sent]
    check_arrivals(record, zero, moments[1:3])
    assert record.outcome == "ok"
    assert (record.input_tokens, record.output_tokens, record.cached_tokens) == (5, 2, 3)
    assert record.http_status == 200
    assert record.start_s is not None and record.first_byte_s is not None and record.end_s is not None
    assert 0 <= exchange.at - zero - record.start_s < LATE_S
    assert 0 <= record.first_byte_s + zero - moments[0] < LATE_S
    assert 0 <= record.end_s + zero - moments[3] < LATE_S
    assert record.connect_s is not None and 0 < record.connect_s < LATE_S
    ttft, ttfo = ttft_s(record), ttfo_s(record)
    assert ttft is not None and 0.08 <= ttft < 0.08 + LATE_S
    assert ttfo == ttft
    assert 0.06 - 0.05 < chunk_gaps_s(record)[0] < 0.06 + LATE_S


def test_connecting_is_not_the_servers_time(serve: Serve) -> None:
    """The start lies after connecting: it is the moment of the send, even when the loop was slow to get
    there."""
    server = serve([stream(delta(content="a"))])
    record, _ = one(server)
    assert record.start_s is not None and record.connect_s is not None
    assert record.start_s >= record.connect_s


def test_events_of_one_packet_have_zero_gaps(serve: Serve) -> None:
    """Three events in one send: three equal times, gaps of exactly zero."""
    server = serve([stream(delta(content="a"), delta(content="b"), delta(content="c"))])
    record, _ = one(server)
    assert chunk_gaps_s(record) == [0.0, 0.0]
    assert (record.output_tokens, record.tokens_origin) == (3, "chunks")
    assert tpot_s(record) is None


def test_character_and_event_split_over_packets(serve: Serve) -> None:
    """An event counts when its last byte is there; a character cut in two comes out whole."""
    event = chunk(sse(delta(content="水")))
    cut = event.index("水".encode()) + 1
    tail = chunk(sse(delta("stop")) + sse(b"[DONE]")) + LAST_CHUNK
    server = serve([STREAM_HEAD + event[:cut], Pause(0.05), event[cut:], Pause(0.02), tail])
    record, zero = one(server, keep_text=True)
    check_arrivals(record, zero, [server.exchanges[0].sent[1][0]])
    assert record.text == "水"


def test_one_byte_a_packet(serve: Serve) -> None:
    """The whole reply, head and all, in single bytes."""
    whole = stream(delta(content="a"), delta(content="b"))
    server = serve([whole[i : i + 1] for i in range(len(whole))])
    record, _ = one(server, keep_text=True)
    assert (record.outcome, record.text, len(record.chunk_s)) == ("ok", "ab", 2)


def test_crlf_comments_and_keep_alives(serve: Serve) -> None:
    """CRLF line ends and comments between and before events change nothing."""
    body = b"".join(
        [
            b": connected\r\n\r\n",
            b"data: " + sse(delta(content="a"))[6:-2] + b"\r\n\r\n",
            b": ping\r\n\r\n",
            b"data: " + sse(delta("stop"))[6:-2] + b"\r\n\r\ndata: [DONE]\r\n\r\n",
        ]
    )
    server = serve([STREAM_HEAD + chunk(body) + LAST_CHUNK])
    record, _ = one(server, keep_text=True)
    assert (record.outcome, record.text) == ("ok", "a")


def test_reasoning_comes_before_text(serve: Serve) -> None:
    """TTFT is to the reasoning, TTFO to the text 0.06 s later."""
    server = serve(
        [
            STREAM_HEAD + chunk(sse(delta(reasoning_content="hm"))),
            Pause(0.06),
            chunk(sse(delta(content="42")) + sse(delta("stop")) + sse(b"[DONE]")) + LAST_CHUNK,
        ]
    )
    record, _ = one(server)
    ttft, ttfo = ttft_s(record), ttfo_s(record)
    assert ttft is not None and ttfo is not None
    assert 0.06 - 0.05 < ttfo - ttft < 0.06 + LATE_S


def test_chunks_of_several_tokens(serve: Serve) -> None:
    """4 tokens, then 0.1 s later 2 more: TPOT is 0.1 / (6 - 4), and so is the one inter-token latency."""

    def counted(text: str, total: int) -> bytes:
        return chunk(sse(delta(content=text) | {"usage": {"prompt_tokens": 3, "completion_tokens": total}}))

    end = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"completion_tokens": 6}}
    tail = chunk(sse(end) + sse(b"[DONE]")) + LAST_CHUNK
    server = serve([STREAM_HEAD + counted("abcd", 4), Pause(0.1), counted("ef", 6), tail])
    record, _ = one(server)
    assert record.chunk_tokens == [4, 2]
    gap = chunk_gaps_s(record)[0]
    assert 0.1 - 0.05 < gap < 0.1 + LATE_S
    assert tpot_s(record) == pytest.approx(gap / 2)
    assert itl_s(record) == pytest.approx([gap / 2])


def test_an_engine_that_merges_tokens_looks_neither_faster_nor_slower(serve: Serve) -> None:
    """40 tokens at 10 ms each. One server sends every one; the other's front end lags, and sends tokens 11 to 30 as one
    event when the last of them is due, 200 ms after the tenth. Over the whole reply both make 39 tokens in 390 ms.
    The merging shows in the gaps between events (0.2 s instead of 0.01 s), which is where a reader sees it."""

    def counted(total: int) -> bytes:
        return chunk(sse(delta(content="x") | {"usage": {"prompt_tokens": 3, "completion_tokens": total}}))

    def server(totals: Sequence[int]) -> RawServer:
        steps: list[Step] = [STREAM_HEAD]
        for before, total in pairwise([totals[0], *totals]):
            steps += [Pause((total - before) * 0.01), counted(total)]
        return serve([*steps, chunk(sse(delta("stop")) + sse(b"[DONE]")) + LAST_CHUNK])

    steady, _ = one(server(range(1, 41)))
    merged, _ = one(server([*range(1, 11), *range(30, 41)]))
    assert (steady.output_tokens, merged.output_tokens) == (40, 40)
    assert (len(steady.chunk_s), len(merged.chunk_s)) == (40, 21)
    for record in (steady, merged):
        span = record.chunk_s[-1] - record.chunk_s[0]
        assert tpot_s(record) == pytest.approx(span / 39)
        assert 0.390 <= span < 0.390 + LATE_S
    worst = max(itl_s(merged) or [])
    assert worst < 0.2, "20 tokens in one event of 0.2 s are 10 ms each, not one of 200 ms"
    assert max(chunk_gaps_s(merged)) >= 0.19


def test_empty_reply_has_no_times(serve: Serve) -> None:
    """A good reply without content gives no TTFT, and no TTFT of zero."""
    server = serve([stream()])
    record, _ = one(server)
    assert record.outcome == "ok"
    assert (record.chunk_s, record.first_text_s, record.output_tokens) == ([], None, None)
    assert record.tokens_origin == "none"
    assert ttft_s(record) is None


@pytest.mark.parametrize("length", [True, False], ids=["content-length", "until-close"])
def test_bodies_without_chunks(serve: Serve, length: bool) -> None:
    """A stream framed by its length, and one that ends with its connection."""
    body = sse(delta(content="a")) + sse(delta("stop")) + sse(b"[DONE]")
    if length:
        server = serve([reply("200 OK", body, "Content-Type: text/event-stream")])
    else:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        server = serve([head + body, Pause(0.05), Close()])
    record, _ = one(server, keep_text=True)
    assert (record.outcome, record.text) == ("ok", "a")


def test_body_until_close_without_done(serve: Serve) -> None:
    """A finish reason and an orderly close are a whole reply where closing is the framing."""
    head = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    server = serve([head + sse(delta(content="a")) + sse(delta("stop")), Close()])
    record, _ = one(server)
    assert record.outcome == "ok"


def test_interim_replies_are_passed_over(serve: Serve) -> None:
    """100 Continue and 103 Early Hints are not the reply."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nContent-Type: text/html\r\n\r\n"
    server = serve([interim, Pause(0.05), stream(delta(content="a"))])
    record, _ = one(server, keep_text=True)
    assert (record.outcome, record.http_status, record.text) == ("ok", 200, "a")


def test_reply_that_is_not_streamed(serve: Serve) -> None:
    """`stream=False`: asked for so, read so; its content is one event, when the last byte had come."""
    body = (
        b'{"choices":[{"index":0,"message":{"role":"assistant","content":"Paris"},"finish_reason":"stop"}],'
        b'"usage":{"prompt_tokens":8,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":6}}}'
    )
    head = reply("200 OK", body, "Content-Type: application/json")[: -len(body)]
    server = serve([head + body[:20], Pause(0.05), body[20:]])
    record, zero = one(server, stream=False, keep_text=True)
    assert (record.outcome, record.text, record.finish_reason) == ("ok", "Paris", "stop")
    assert (record.input_tokens, record.output_tokens, record.cached_tokens) == (8, 2, 6)
    check_arrivals(record, zero, [server.exchanges[0].sent[1][0]])
    sent = server.exchanges[0].json
    assert sent["stream"] is False
    assert "stream_options" not in sent


def test_server_decides_whether_it_streams(serve: Serve) -> None:
    """JSON though a stream was asked for, and a stream though it was not: both are read for what they are."""
    body = b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}'
    server = serve([reply("200 OK", body, "Content-Type: application/json")], [stream(delta(content="b"))])

    async def main() -> list[str | None]:
        async with Client(Target(server.url, "m")) as client:
            first = await client.send(ask(keep_text=True))
            second = await client.send(ask(keep_text=True, stream=False))
            return [first.text, second.text]

    assert run(main()) == ["a", "b"]


def test_done_without_an_end_of_the_body(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply is over at `[DONE]`; a body that never ends costs its connection and a moment, not the
    record."""
    monkeypatch.setattr(flight, "AFTER_DONE_S", 0.05)
    server = serve([stream(delta(content="a"))[: -len(LAST_CHUNK)], Pause(5)], [stream(delta(content="b"))])

    async def main() -> list[RequestRecord]:
        async with Client(Target(server.url, "m")) as client:
            return [await client.send(ask("r1")), await client.send(ask("r2"))]

    before = time.monotonic()
    first, second = run(main())
    assert time.monotonic() - before < 3
    assert (first.outcome, second.outcome) == ("ok", "ok")
    assert first.end_s == first.chunk_s[0]
    assert server.connections == 2


def test_stamps_do_not_wait_for_parsing(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three replies lie in their sockets; reading their events takes 0.06 s each, and no stamp is late by
    it."""
    server = serve([Pause(0.05), stream(delta(content="a"))])
    read_events = StreamReader.feed

    def slow(reader: StreamReader, at: float, data: bytes) -> None:
        time.sleep(0.06)
        read_events(reader, at, data)

    monkeypatch.setattr(StreamReader, "feed", slow)

    async def main() -> list[RequestRecord]:
        async with Client(Target(server.url, "m")) as client:
            await client.warm(3)
            tasks = [asyncio.create_task(client.send(ask(f"r{n}"))) for n in range(3)]
            await asyncio.sleep(0.02)
            time.sleep(0.12)  # noqa: ASYNC251 - until all three have come
            return await asyncio.gather(*tasks)

    arrivals = [record.chunk_s[0] for record in run(main())]
    assert max(arrivals) - min(arrivals) < 0.05
