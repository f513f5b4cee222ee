"""Small HTTP requests to an engine's control plane: health, identity, counters, tokenise.

The client that measures lives in `replay/`, which this room may not import (a room imports only what stands
before it) and which is built for another purpose: many streams on one event loop. Here a request is rare,
short and blocking; its whole duration and the size of its reply are bounded, and proxies in the environment
are ignored.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

DEFAULT_TIMEOUT_S = 2.0
DEFAULT_MAX_BYTES = 4 << 20


class ProbeError(Exception):
    """No usable answer: refused, too slow, too long, or not HTTP/JSON. The text is the technical reason."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete HTTP reply."""

    status: int
    body: bytes

    def json(self) -> object:
        """The body as JSON; raises ProbeError when it is not."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise ProbeError(f"reply is not JSON: {type(error).__name__}") from error


class _Bounded(io.RawIOBase):
    """Reads a socket until a deadline and up to a number of bytes, whatever the server does."""

    def __init__(self, sock: socket.socket, deadline: float, limit: int) -> None:
        super().__init__()
        self._sock = sock
        self._deadline = deadline
        self._left = limit

    def readable(self) -> bool:
        """io.RawIOBase asks."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """One recv within the time and size that are left."""
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("deadline passed")
        if self._left <= 0:
            raise ProbeError("reply is longer than allowed")
        self._sock.settimeout(seconds)
        got = self._sock.recv_into(memoryview(buffer)[: self._left])
        self._left -= got
        return got

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What http.client.HTTPResponse asks of a socket."""
        return io.BufferedReader(self, 65536)


def fetch(
    base_url: str,
    path: str,
    *,
    body: object | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Reply:
    """GET `path`, or POST `body` as JSON when there is one; raises ProbeError within about `timeout_s`.

    `base_url` is `http://host:port`. Redirects are not followed; any status is returned as it is.
    """
    target = urlsplit(base_url)
    if target.scheme != "http" or target.hostname is None or target.port is None:
        raise ValueError(f"base_url must be http://host:port, not {base_url!r}")
    deadline = time.monotonic() + timeout_s
    data = b"" if body is None else json.dumps(body).encode("utf-8")
    head = [
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1",
        f"Host: {target.netloc}",
        "Connection: close",
    ]
    if body is not None:
        head += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    request = "\r\n".join([*head, "", ""]).encode("ascii") + data
    try:
        with socket.create_connection((target.hostname, target.port), timeout=timeout_s) as sock:
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            sock.sendall(request)
            return _read(_Bounded(sock, deadline, max_bytes), "GET" if body is None else "POST")
    except (OSError, http.client.HTTPException) as error:
        raise ProbeError(f"{type(error).__name__}: {error}"[:200]) from error


def _read(source: _Bounded, method: str) -> Reply:
    # HTTPResponse needs only makefile("rb") of its socket.
    response = http.client.HTTPResponse(source, method=method)  # type: ignore[arg-type]
    body = bytearray()
    try:
        response.begin()
        # In pieces: a reply may announce any length, and reading it whole would first allocate that much.
        while piece := response.read(65536):
            body += piece
        if response.length:
            raise ProbeError("reply ended early")
        return Reply(response.status, bytes(body))
    except ValueError as error:  # a chunk size or length that is no number
        raise ProbeError(f"not HTTP: {error}"[:200]) from error
    finally:
        response.close()


def fetch_json(
    base_url: str,
    path: str,
    *,
    body: object | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> object:
    """Like `fetch`, but a status other than 200 raises ProbeError and the body is decoded."""
    reply = fetch(base_url, path, body=body, timeout_s=timeout_s, max_bytes=max_bytes)
    if reply.status != 200:
        raise ProbeError(f"HTTP {reply.status}")
    return reply.json()
