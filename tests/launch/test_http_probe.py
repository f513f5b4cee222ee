"""The probe against servers that are slow, endless, lying or broken: bounded in time and size, one error
type.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from servemark.launch.http_probe import ProbeError, Reply, fetch, fetch_json

Behaviour = Callable[[socket.socket], None]
Serve = Callable[[Behaviour], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a one-connection server whose reply is a function over the accepted socket; gives its base
    URL."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def begin(behaviour: Behaviour) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    behaviour(connection)
                except OSError:
                    return

        thread = threading.Thread(target=run)
        thread.start()
        threads.append(thread)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield begin
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join(10.0)
        assert not thread.is_alive()


def answering(data: bytes) -> Behaviour:
    """Read the request, send fixed bytes, close."""

    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(data)

    return behave


def endless(head: bytes, piece: bytes, pause_s: float = 0.0) -> Behaviour:
    """Send `head`, then `piece` again and again until the other side hangs up."""

    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(head)
        while True:
            connection.sendall(piece)
            time.sleep(pause_s)

    return behave


def mute(connection: socket.socket) -> None:
    """Accept, read, say nothing for a while."""
    connection.recv(65536)
    time.sleep(0.6)


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (OK + b"Content-Length: 2\r\n\r\nhi", Reply(200, b"hi")),
        (OK + b"\r\nuntil the end", Reply(200, b"until the end")),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", Reply(200, b"abcde")),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", Reply(503, b"")),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            Reply(302, b""),
        ),
    ],
)
def test_whole_replies(serve: Serve, data: bytes, expected: Reply) -> None:
    """Three ways to say where a body ends; a status is not judged; a redirect is not followed."""
    assert fetch(serve(answering(data)), "/x") == expected


def test_request_is_what_was_asked(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """POST with JSON, length and Host; the environment's proxy is not used."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    seen: list[bytes] = []

    def behave(connection: socket.socket) -> None:
        seen.append(connection.recv(65536))
        connection.sendall(OK + b'Content-Length: 7\r\n\r\n{"a":1}')

    url = serve(behave)
    assert fetch_json(url, "/tokenize", body={"content": "é"}) == {"a": 1}
    head, _, body = seen[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /tokenize HTTP/1.1"
    assert f"Host: {url.removeprefix('http://')}" in lines
    assert f"Content-Length: {len(body)}" in lines
    assert body == b'{"content": "\\u00e9"}'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        OK + b"Content-Length: 10\r\n\r\nshort",
        OK + b"Content-Length: 99999999999999999999\r\n\r\nx",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc",
        OK + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffff\r\nabc",
        OK + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
        OK + b"X: y\r\n" * 200 + b"\r\n",
    ],
)
def test_broken_replies(serve: Serve, data: bytes) -> None:
    """Whatever is wrong, ProbeError and nothing else; no allocation of an announced length."""
    with pytest.raises(ProbeError):
        fetch(serve(answering(data)), "/x")


@pytest.mark.parametrize(
    "behaviour",
    [
        endless(OK + b"\r\n", b"x" * 65536),
        endless(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"4\r\nabcd\r\n" * 5000),
        endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
    ],
)
def test_endless_replies_are_cut(serve: Serve, behaviour: Behaviour) -> None:
    """At the size limit, long before the time limit."""
    begin = time.monotonic()
    with pytest.raises(ProbeError):
        fetch(serve(behaviour), "/x", timeout_s=30.0, max_bytes=1 << 20)
    assert time.monotonic() - begin < 10.0


@pytest.mark.parametrize(
    "behaviour",
    [
        endless(OK + b"X: ", b"y", 0.02),
        endless(OK + b"Content-Length: 100000\r\n\r\n", b"y", 0.02),
        mute,
    ],
)
def test_slow_replies_are_cut(serve: Serve, behaviour: Behaviour) -> None:
    """A server that drips bytes resets no clock: the whole request has one deadline."""
    begin = time.monotonic()
    with pytest.raises(ProbeError):
        fetch(serve(behaviour), "/x", timeout_s=0.3)
    assert 0.25 < time.monotonic() - begin < 5.0


def test_nobody_listens(serve: Serve) -> None:
    """Connection refused is a ProbeError; a URL that this room never makes is a bug and says so."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    with pytest.raises(ProbeError, match="ConnectionRefused"):
        fetch(f"http://127.0.0.1:{port}", "/x")
    with pytest.raises(ValueError, match="base_url"):
        fetch("https://127.0.0.1:1", "/x")


@pytest.mark.parametrize("body", [b"not json", b"", b"[" * 100_000, b"\xff"])
def test_not_json(serve: Serve, body: bytes) -> None:
    """Text that is no JSON, or nested without end."""
    data = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with pytest.raises(ProbeError):
        fetch_json(serve(answering(data)), "/x")
    with pytest.raises(ProbeError, match="HTTP 404"):
        fetch_json(serve(answering(b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\n{}")), "/x")
