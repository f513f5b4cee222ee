"""Connections: reuse, staleness, warming, cancelling, and what is sent over them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from pathlib import Path

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

from servemark.base.errors import ServemarkError
from servemark.replay import flight
from servemark.replay.client import ChatRequest, Client, Target, run
from servemark.replay.record import RequestRecord
from servemark.replay.records_io import encode_record
from servemark.replay.target import header_value

OK = stream(delta(content="a"))


def send_all(url: str, count: int) -> list[RequestRecord]:
    """Requests one after the other on one client."""

    async def main() -> list[RequestRecord]:
        async with Client(Target(url, "m")) as client:
            return [await client.send(ask(f"r{n}")) for n in range(count)]

    return run(main())


def test_kept_connection_is_used_again(serve: Serve) -> None:
    """Five requests, one connection; only the first has a connect time."""
    server = serve([OK])
    records = send_all(server.url, 5)
    assert [r.outcome for r in records] == ["ok"] * 5
    assert server.connections == 1
    assert [r.connect_s is None for r in records] == [False, True, True, True, True]


def test_connection_close_is_heeded(serve: Serve) -> None:
    """A server that says it closes gets a new connection each time, and no request is lost on the old one."""
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
    server = serve([closing, Close()])
    records = send_all(server.url, 3)
    assert [r.outcome for r in records] == ["ok"] * 3
    assert server.connections == 3


@pytest.mark.parametrize("end", [Close(), Reset()], ids=["close", "reset"])
def test_stale_connection_is_retried_once_on_a_fresh_one(serve: Serve, end: Step) -> None:
    """The second request meets a connection that the server drops without a word; the third script answers
    it.

    Its start is that of the send that was answered: 0.1 s after the first try.
    """
    server = serve([OK], [Pause(0.1), end], [stream(delta(content="a"), done=False)])
    first, second = send_all(server.url, 2)
    assert (first.outcome, second.outcome) == ("ok", "ok")
    assert [e.connection for e in server.exchanges] == [0, 0, 1]
    assert second.connect_s is not None
    assert first.end_s is not None and second.start_s is not None
    assert second.start_s - first.end_s >= 0.09
    assert second.end_s is not None and second.end_s >= second.chunk_s[-1] >= second.start_s


def test_fresh_connection_is_not_retried(serve: Serve) -> None:
    """The same silence on a new connection is the server's failure."""
    server = serve([Close()], [OK])
    assert send_all(server.url, 1)[0].error_kind == "closed"
    assert len(server.exchanges) == 1


def test_retry_happens_once(serve: Serve) -> None:
    """A server that drops the fresh connection too has failed."""
    server = serve([OK], [Close()], [Close()], [OK])
    _, second = send_all(server.url, 2)
    assert (second.outcome, second.error_kind) == ("error", "closed")
    assert len(server.exchanges) == 3


def test_no_retry_after_a_byte(serve: Serve) -> None:
    """A server that began to answer had taken the request."""
    server = serve([OK], [b"HTTP/1.1 2", Pause(0.05), Close()], [OK])
    _, second = send_all(server.url, 2)
    assert second.error_kind == "closed"
    assert second.first_byte_s is not None
    assert len(server.exchanges) == 2


def test_no_retry_after_thinking(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence for longer than a stale connection takes to show: the server had it and failed."""
    monkeypatch.setattr(flight, "STALE_WINDOW_S", 0.05)
    server = serve([OK], [Pause(0.1), Close()], [OK])
    _, second = send_all(server.url, 2)
    assert second.error_kind == "closed"


def test_idle_connection_that_the_server_closes_is_forgotten(serve: Serve) -> None:
    """The close is seen before the next send: no failed try, just a new connection."""
    server = serve([OK, Close()], [OK])

    async def main() -> list[RequestRecord]:
        async with Client(Target(server.url, "m")) as client:
            first = await client.send(ask())
            await asyncio.sleep(0.05)
            return [first, await client.send(ask())]

    assert [r.outcome for r in run(main())] == ["ok", "ok"]
    assert [e.connection for e in server.exchanges] == [0, 1]


def test_warm_connects_ahead(serve: Serve) -> None:
    """Three connections stand before the first request; three at once then connect no more."""
    server = serve([Pause(0.1), OK])

    async def main() -> list[RequestRecord]:
        async with Client(Target(server.url, "m")) as client:
            assert await client.warm(3) == 3
            assert await client.warm(2) == 3
            return await asyncio.gather(*(client.send(ask(f"r{n}")) for n in range(3)))

    records = run(main())
    assert server.connections == 3
    assert [r.connect_s for r in records] == [None] * 3


def test_warm_towards_nobody() -> None:
    """No server: nothing stands, nothing is raised."""

    async def main() -> int:
        async with Client(Target("http://127.0.0.1:1", "m", connect_timeout_s=1)) as client:
            return await client.warm(2)

    assert run(main()) == 0


def test_in_flight_is_counted_at_the_socket(serve: Serve) -> None:
    """Four at once are four; afterwards none."""
    server = serve([Pause(0.1), OK])

    async def main() -> tuple[int, int]:
        async with Client(Target(server.url, "m")) as client:
            await asyncio.gather(*(client.send(ask(f"r{n}")) for n in range(4)))
            return client.max_in_flight, client.in_flight

    assert run(main()) == (4, 0)


def test_cancelling_leaves_a_record(serve: Serve) -> None:
    """The caller's own record says cancelled and keeps the chunk that had come; its connection is not used
    again."""
    server = serve([STREAM_HEAD + chunk(sse(delta(content="a"))), Pause(5)], [OK])

    async def main() -> tuple[RequestRecord, RequestRecord]:
        async with Client(Target(server.url, "m")) as client:
            request = ask()
            record = request.new_record()
            task = asyncio.create_task(client.send(request, record))
            while not record.chunk_s:  # noqa: ASYNC110 - a record is no event
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return record, await client.send(ask("r2"))

    record, after = run(main())
    assert (record.outcome, record.error_kind, len(record.chunk_s)) == ("cancelled", None, 1)
    assert record.end_s is not None and record.output_tokens == 1
    assert after.outcome == "ok"
    assert [e.connection for e in server.exchanges] == [0, 1]


def test_cancelling_after_the_end_changes_nothing(serve: Serve) -> None:
    """The reply said `[DONE]` and only its framing is awaited: it ended well, and stays so."""
    server = serve([OK.removesuffix(LAST_CHUNK), Pause(5)])

    async def main() -> RequestRecord:
        async with Client(Target(server.url, "m")) as client:
            request = ask()
            record = request.new_record()
            task = asyncio.create_task(client.send(request, record))
            while record.end_s is None:  # noqa: ASYNC110 - a record is no event
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return record

    record = run(main())
    assert (record.outcome, record.tokens_origin, record.output_tokens) == ("ok", "chunks", 1)


def test_cancelling_while_connecting(serve: Serve) -> None:
    """Nothing was sent; the record says so."""
    server = serve([OK])

    async def main() -> RequestRecord:
        async with Client(Target(server.url, "m")) as client:
            request = ask()
            record = request.new_record()
            task = asyncio.create_task(client.send(request, record))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return record

    record = run(main())
    assert (record.outcome, record.start_s) == ("cancelled", None)


def open_sockets() -> set[str]:
    """The sockets of this process."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(str(entry.readlink()))
    return {name for name in found if name.startswith("socket:")}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs a /proc to look into")
def test_leaving_the_client_closes_everything() -> None:
    """Towards a server that never answers: after the client is left, this process has the sockets it had
    before."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        before = open_sockets()

        async def main() -> None:
            async with Client(Target(url, "m")) as client:
                await client.warm(3)
                task = asyncio.create_task(client.send(ask()))
                await asyncio.sleep(0.05)
                task.cancel()
                await asyncio.wait([task])

        run(main())
        assert open_sockets() == before


def test_large_prompt_is_sent_whole(serve: Serve) -> None:
    """4 MB do not fit a socket's buffer: the rest follows as the server reads."""
    server = serve([OK])
    content = "x" * 4_000_000

    async def main() -> RequestRecord:
        async with Client(Target(server.url, "m")) as client:
            return await client.send(ask(messages=[{"role": "user", "content": content}]))

    assert run(main()).outcome == "ok"
    assert server.exchanges[0].json["messages"] == [{"role": "user", "content": content}]


def test_server_that_answers_before_reading_everything() -> None:
    """An early 413 and a close reach the record although the prompt was never taken."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(1000)
            peer.sendall(reply("413 Payload Too Large", b"too long", "Connection: close"))
            time.sleep(0.1)

    async def main() -> RequestRecord:
        async with Client(Target(f"http://127.0.0.1:{listener.getsockname()[1]}", "m")) as client:
            return await client.send(ask(messages=[{"role": "user", "content": "x" * 20_000_000}]))

    thread = threading.Thread(target=answer)
    thread.start()
    with listener:
        record = run(main())
        thread.join()
    assert (record.outcome, record.error_kind, record.http_status) == ("error", "http_status", 413)


def test_server_that_half_closes_and_reads_no_more() -> None:
    """It will never answer: the request ends at once, not when its prompt could not be flushed for a
    minute."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def half_close() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(1000)
            peer.shutdown(socket.SHUT_WR)
            over.wait(10)

    async def main() -> RequestRecord:
        async with Client(Target(f"http://127.0.0.1:{listener.getsockname()[1]}", "m")) as client:
            return await client.send(ask(messages=[{"role": "user", "content": "x" * 20_000_000}]))

    thread = threading.Thread(target=half_close)
    thread.start()
    with listener:
        before = time.monotonic()
        record = run(main())
        took_s = time.monotonic() - before
        over.set()
        thread.join()
    assert (record.outcome, record.error_kind) == ("error", "closed")
    assert took_s < 5


def test_long_ids_stay_apart() -> None:
    """Two ids that differ in their last letter only, too long for a header: 200 bytes each, and still two."""
    values = [header_value("x" * 500 + end) for end in "ab"]
    assert [len(value) for value in values] == [200, 200]
    assert values[0] != values[1]
    assert header_value("y" * 200) == "y" * 200


def test_headers(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids are sent so that server logs can be joined; a line end in one stays inside its header. No proxy
    is used."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("SERVEMARK_TEST_KEY", "sk-secret-0123456789")
    server = serve([OK])
    target = Target(
        server.url, "m", api_key_env="SERVEMARK_TEST_KEY", extra_body={"top_k": 3}, headers={"X-Team": "blue"}
    )

    async def main() -> RequestRecord:
        async with Client(target) as client:
            request = ChatRequest("a/1", "会话\r\nX-Evil: 1", 0, "eval", [], 1, extra={"seed": 5})
            return await client.send(request)

    assert run(main()).outcome == "ok"
    exchange = server.exchanges[0]
    assert exchange.head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    headers = exchange.headers
    assert headers["x-request-id"] == "a/1"
    assert headers["x-session-id"] == "%E4%BC%9A%E8%AF%9D%0D%0AX-Evil:%201"
    assert "x-evil" not in headers
    assert headers["authorization"] == "Bearer sk-secret-0123456789"
    assert headers["x-team"] == "blue"
    assert headers["host"] == f"127.0.0.1:{server.port}"
    assert (exchange.json["top_k"], exchange.json["seed"]) == (3, 5)


def test_secrets_never_reach_a_record(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that repeats the key in its error, and one that repeats a header in its text."""
    monkeypatch.setenv("SERVEMARK_TEST_KEY", "sk-secret-0123456789")
    said = b'{"error":{"message":"bad key sk-secret-0123456789, cookie tasty-cookie-42"}}'
    server = serve(
        [reply("401 Unauthorized", said)],
        [stream(delta(content="your cookie is tasty-cookie-42 and sk-secret-0123456789"))],
    )
    target = Target(
        server.url, "m", api_key_env="SERVEMARK_TEST_KEY", headers={"Cookie": "id tasty-cookie-42"}
    )

    async def main() -> list[RequestRecord]:
        async with Client(target) as client:
            return [await client.send(ask(keep_text=True)) for _ in range(2)]

    refused, told = run(main())
    assert refused.error_detail == "bad key ***, cookie ***"
    assert told.text == "your cookie is *** and ***"
    for record in (refused, told):
        line = encode_record(record)
        assert b"sk-secret" not in line and b"tasty" not in line
    assert "tasty" not in repr(target)


def test_key_that_is_missing_or_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by its variable, never by its value."""
    monkeypatch.delenv("SERVEMARK_TEST_KEY", raising=False)
    target = Target("http://127.0.0.1:1", "m", api_key_env="SERVEMARK_TEST_KEY")
    with pytest.raises(ServemarkError) as missing:
        Client(target)
    assert (missing.value.key, missing.value.exit_code) == ("replay.api_key_missing", 2)
    monkeypatch.setenv("SERVEMARK_TEST_KEY", "sk-1\nX-Evil: 1")
    with pytest.raises(ServemarkError) as bad:
        Client(target)
    assert bad.value.key == "replay.api_key_bad"
    assert "sk-1" not in str(bad.value)


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("ftp://host", "replay.bad_url"),
        ("127.0.0.1:8000", "replay.bad_url"),
        ("http://", "replay.bad_url"),
        ("http://host:99999", "replay.bad_url"),
        ("http://host:0", "replay.bad_url"),
        ("http://host/v1?x=1", "replay.bad_url"),
        ("http://host/a b", "replay.bad_url"),
        ("http://host/\r\nX-Evil: 1", "replay.bad_url"),
        ("http://[::1", "replay.bad_url"),
        ("http://user:hunter22@host", "replay.url_has_user"),
        ("http://user:hunter22@host:99999", "replay.bad_url"),
    ],
)
def test_addresses_that_cannot_work(url: str, key: str) -> None:
    """Refused when the target is made; a password in the address is not repeated."""
    with pytest.raises(ServemarkError) as caught:
        Target(url, "m")
    assert caught.value.key == key
    assert caught.value.next_step("zh")
    assert "hunter22" not in caught.value.what("en") + caught.value.what("zh")


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("", "/v1/chat/completions"),
        ("/", "/v1/chat/completions"),
        ("/v1", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/openai", "/openai/v1/chat/completions"),
    ],
)
def test_paths(serve: Serve, base: str, path: str) -> None:
    """With or without /v1, the same endpoint."""
    server = serve([OK])

    async def main() -> RequestRecord:
        async with Client(Target(server.url + base, "m")) as client:
            return await client.send(ask())

    assert run(main()).outcome == "ok"
    assert server.exchanges[0].head.startswith(f"POST {path} HTTP".encode())


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"headers": {"X-A": "b\r\nX-Evil: 1"}}, "replay.bad_header"),
        ({"headers": {"X A": "b"}}, "replay.bad_header"),
        ({"headers": {"Content-Length": "3"}}, "replay.bad_header"),
        ({"headers": {"Authorization": "Bearer x"}, "api_key_env": "K"}, "replay.bad_header"),
        ({"extra_body": {"stream": False}}, "replay.reserved_field"),
        ({"idle_timeout_s": 0.0}, "replay.bad_timeout"),
        ({"total_timeout_s": float("nan")}, "replay.bad_timeout"),
        ({"connect_timeout_s": float("inf")}, "replay.bad_timeout"),
    ],
)
def test_targets_that_cannot_work(fields: dict[str, object], key: str) -> None:
    """Header injection, fields that would make the record a lie, limits that are none."""
    with pytest.raises(ServemarkError) as caught:
        Target("http://h", "m", **fields)  # type: ignore[arg-type]
    assert caught.value.key == key


def test_stopped_process_does_not_blame_the_server(serve: Serve) -> None:
    """The event loop is blocked for longer than the idle limit while the reply waits in the socket: it is
    read."""
    server = serve([Pause(0.08), OK])

    async def main() -> RequestRecord:
        async with Client(Target(server.url, "m", idle_timeout_s=0.15)) as client:
            task = asyncio.create_task(client.send(ask()))
            await asyncio.sleep(0.02)
            time.sleep(0.25)  # noqa: ASYNC251 - a stop of the whole process is what is tested
            return await task

    assert run(main()).outcome == "ok"
