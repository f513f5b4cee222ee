"""A scriptable TCP server for the tests of the client: it sends exactly the bytes it is told, when it is
told to, and remembers when it did. It knows HTTP only so far that it can tell where a request ends.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from servemark.replay.client import ChatRequest


@dataclass(frozen=True, slots=True)
class Pause:
    """Send nothing for so many seconds."""

    seconds: float


class Close:
    """Close the connection in good order."""


class Reset:
    """Reset the connection."""


Step = bytes | Pause | Close | Reset


@dataclass(slots=True)
class Exchange:
    """One request as it arrived, and what was sent back: (moment before the send, bytes)."""

    connection: int
    at: float
    head: bytes
    body: bytes
    sent: list[tuple[float, bytes]] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        """Header names in lower case."""
        lines = self.head.decode("ascii").split("\r\n")[1:]
        return {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
        }

    @property
    def json(self) -> dict[str, object]:
        """The body as a JSON object."""
        loaded: dict[str, object] = json.loads(self.body)
        return loaded


class RawServer:
    """Answers the n-th request with the n-th script, later ones with the last."""

    def __init__(self, scripts: Sequence[Sequence[Step]]) -> None:
        self.scripts = [list(script) for script in scripts]
        self.exchanges: list[Exchange] = []
        self.connections = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()

    def stop(self) -> None:
        """End all threads and sockets."""
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in (self._acceptor, *self._threads):
            thread.join(5)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer.settimeout(0.1)
            thread = threading.Thread(target=self._serve, args=(peer, self.connections))
            self.connections += 1
            self._threads.append(thread)
            thread.start()

    def _serve(self, peer: socket.socket, connection: int) -> None:
        with peer:
            buffer = b""
            while not self._over.is_set():
                exchange, buffer = self._read(peer, buffer, connection)
                if exchange is None:
                    return
                with self._lock:
                    script = self.scripts[min(len(self.exchanges), len(self.scripts) - 1)]
                    self.exchanges.append(exchange)
                if not self._play(peer, script, exchange):
                    return

    def _read(self, peer: socket.socket, buffer: bytes, connection: int) -> tuple[Exchange | None, bytes]:
        while True:
            head, blank, rest = buffer.partition(b"\r\n\r\n")
            if blank:
                exchange = Exchange(connection, time.monotonic(), head, b"")
                length = int(exchange.headers["content-length"])
                if len(rest) >= length:
                    exchange.body = rest[:length]
                    return exchange, rest[length:]
            try:
                data = peer.recv(65536)
            except TimeoutError:
                if self._over.is_set():
                    return None, b""
                continue
            except OSError:
                return None, b""
            if not data:
                return None, b""
            buffer += data

    def _play(self, peer: socket.socket, script: Sequence[Step], exchange: Exchange) -> bool:
        """False when the connection is over."""
        for step in script:
            if isinstance(step, Pause):
                if self._over.wait(step.seconds):
                    return False
            elif isinstance(step, Close):
                return False
            elif isinstance(step, Reset):
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            else:
                exchange.sent.append((time.monotonic(), step))
                try:
                    peer.sendall(step)
                except OSError:
                    return False
        return True


Serve = Callable[..., RawServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Call it with one script a request; the server ends with the test."""
    servers: list[RawServer] = []

    def start(*scripts: Sequence[Step]) -> RawServer:
        servers.append(RawServer(scripts))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def sse(value: object) -> bytes:
    """One event with a JSON value, or with bytes as they are."""
    payload = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
    return b"data: " + payload + b"\n\n"


def delta(finish: str | None = None, **fields: object) -> dict[str, object]:
    """A chat chunk with one choice."""
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def usage(prompt: object, completion: object, cached: object = None) -> dict[str, object]:
    """The usage chunk that ends a stream."""
    return {
        "choices": [],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


def stream(*events: object, done: bool = True) -> bytes:
    """A whole streamed reply in one piece: role, events, finish, `[DONE]`."""
    parts = [delta(role="assistant", content=""), *events, delta("stop")]
    body = b"".join(chunk(sse(part)) for part in parts)
    return STREAM_HEAD + body + (chunk(sse(b"[DONE]")) if done else b"") + LAST_CHUNK


def reply(status: str, body: bytes = b"", *headers: str) -> bytes:
    """A reply with a content length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def ask(name: str = "r1", **options: Any) -> ChatRequest:  # noqa: ANN401 - passed on
    """A small chat request."""
    fields: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 16} | options
    return ChatRequest(id=name, session="s1", turn=0, phase="measured", **fields)
