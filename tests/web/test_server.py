"""The real server: its socket, slow and greedy clients, its end, another one beside it."""

from __future__ import annotations

import asyncio
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from servemark.base.errors import ServemarkError
from servemark.web import http_protocol, server

Made = dict[str, Any]
ASK = b"GET /api/v1/metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@contextmanager
def in_thread(made: Made, home: Path) -> Iterator[int]:
    """The port of a server in a thread, with limits that a test may have shortened."""
    sock = server.listen(server.Address("127.0.0.1", 0))
    config = server.settings(made["app_of"](home))
    running = uvicorn.Server(config)
    running.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    thread = threading.Thread(target=lambda: asyncio.run(running.serve([sock])), daemon=True)
    thread.start()
    port = sock.getsockname()[1]
    made["wait_until_up"](f"http://127.0.0.1:{port}")
    try:
        yield port
    finally:
        running.should_exit = True
        thread.join(10)
        sock.close()


def closed_within(connection: socket.socket, seconds: float) -> bytes:
    """What came before the other side closed; fails when it does not."""
    connection.settimeout(seconds)
    found = b""
    while True:
        try:
            block = connection.recv(65536)
        except ConnectionResetError:
            return found
        if not block:
            return found
        found += block


def test_slow_heads_and_bodies(shared_home: Path, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slowloris: nothing, half a head that drips, and half a body are cut off; a reader beside them is served."""
    monkeypatch.setattr(http_protocol, "HEAD_S", 0.4)
    monkeypatch.setattr(http_protocol, "BODY_S", 0.4)
    with in_thread(made, shared_home) as port:
        where = ("127.0.0.1", port)
        with (
            socket.create_connection(where) as silent,
            socket.create_connection(where) as dripping,
            socket.create_connection(where) as half,
            socket.create_connection(where) as lines,
        ):
            half.sendall(
                b"POST /api/v1/overlays HTTP/1.1\r\nHost: a.localhost\r\nX-Servemark: 1\r\nContent-Length: 9\r\n\r\nab"
            )
            for piece in (b"GET / HT", b"TP/1.1\r\n", b"X: ", b"a", b"b", b"c"):
                dripping.sendall(piece)
                lines.sendall(b"\r\n")
                time.sleep(0.05)
            assert httpx.get(f"http://127.0.0.1:{port}/").status_code == 200
            assert closed_within(silent, 5) == b""
            assert closed_within(dripping, 5) == b""
            assert closed_within(lines, 5) == b""
            assert b" 201 " not in closed_within(half, 5)


def test_a_reader_that_does_not_read(shared_home: Path, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that nobody takes are dropped with their connection."""
    monkeypatch.setattr(http_protocol, "WRITE_S", 0.4)
    with in_thread(made, shared_home) as port:
        with socket.socket() as greedy:
            greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            greedy.connect(("127.0.0.1", port))
            plain = ASK.replace(b"metrics", b"openapi.json") + b"Accept-Encoding: identity\r\n\r\n"
            greedy.sendall(plain * 500)
            with pytest.raises((ConnectionResetError, BrokenPipeError)):
                for _ in range(200):
                    greedy.sendall(plain)
                    time.sleep(0.05)
        assert httpx.get(f"http://127.0.0.1:{port}/").status_code == 200


def test_large_heads(shared_home: Path, made: Made) -> None:
    """431, at once or piece by piece; a long upload is no head."""
    with in_thread(made, shared_home) as port:
        for chunk in (40_000, 3_000):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(ASK + b"X: ")
                try:
                    for _ in range(0, 80_000, chunk):
                        connection.sendall(b"a" * chunk)
                        time.sleep(0.005)
                except OSError:
                    pass  # it was cut off before all was sent
                said = closed_within(connection, 5)
                assert said == b"" or b" 431 " in said
        sent = httpx.post(
            f"http://127.0.0.1:{port}/api/v1/overlays",
            content=b" " * 300_000,
            headers=made["OWN"],
            timeout=30,
        )
        assert sent.status_code == 201


def test_no_http(shared_home: Path, made: Made) -> None:
    """Bytes that are no request end in 400 and a closed connection."""
    with in_thread(made, shared_home) as port:
        for data in (
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"GET\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"\x00" * 2000,
        ):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(data)
                assert closed_within(connection, 5).startswith(b"HTTP/1.1 400")
        assert httpx.get(f"http://127.0.0.1:{port}/").status_code == 200


def test_too_many_connections(shared_home: Path, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """One client has no more than its share; when some go, others come in."""
    monkeypatch.setattr(http_protocol, "MAX_OF_CLIENT", 5)
    with in_thread(made, shared_home) as port:
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
        time.sleep(0.3)
        for each in held:
            each.setblocking(False)
        refused = 0
        for each in held:
            try:
                refused += each.recv(1) == b""
            except BlockingIOError:
                pass
            except ConnectionResetError:
                refused += 1
        assert refused >= 3
        for each in held:
            each.close()
        made["wait_until_up"](f"http://127.0.0.1:{port}")


def test_a_taken_port_is_said(shared_home: Path, made: Made) -> None:
    """Exit code 2 and what to do, in one line each; no trace."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        argv = [
            sys.executable,
            "-m",
            "servemark",
            "serve",
            "--home",
            str(shared_home),
            "--port",
            str(port),
            "--lang",
            "en",
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert str(port) in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a b", "x" * 300])
def test_a_host_that_is_not_ours(host: str) -> None:
    """An address of another machine and words that are none."""
    with pytest.raises(ServemarkError) as raised:
        server.listen(server.Address(host, 0))
    assert raised.value.exit_code == 2


def test_beyond_this_machine_a_token_is_wanted(shared_home: Path, tmp_path: Path) -> None:
    """Every address without a token, and files that hold none: exit code 2, and nothing listens."""
    short = tmp_path / "short"
    short.write_text("abc\n")
    for options in (
        ["--host", "0.0.0.0"],  # noqa: S104 - it is refused
        ["--host", ""],
        ["--token-file", str(short)],
        ["--token-file", str(tmp_path)],
    ):
        argv = [
            sys.executable,
            "-m",
            "servemark",
            "serve",
            "--home",
            str(shared_home),
            "--port",
            "0",
            *options,
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in {1, 2}, done.stderr
        assert "Traceback" not in done.stderr


def test_sigterm_ends_it(shared_home: Path, made: Made) -> None:
    """Within two seconds, also while a client holds a connection open and another is being answered."""
    with made["served"](shared_home) as (url, child):
        port = int(url.rpartition(":")[2])
        with (
            socket.create_connection(("127.0.0.1", port)) as idle,
            socket.create_connection(("127.0.0.1", port)) as half,
        ):
            idle.sendall(ASK + b"\r\n")
            half.sendall(ASK)
            time.sleep(0.2)
            began = time.monotonic()
            child.send_signal(signal.SIGTERM)
            assert child.wait(10) in {0, -signal.SIGTERM}
            assert time.monotonic() - began < 2
        out = child.stderr.read()
        assert b"Traceback" not in out


def test_ctrl_c_is_quiet(shared_home: Path, made: Made) -> None:
    """SIGINT ends it without a trace."""
    with made["served"](shared_home) as (_, child):
        child.send_signal(signal.SIGINT)
        child.wait(10)
        assert b"Traceback" not in child.stderr.read()


def test_killed_and_started_again(home: Path, made: Made) -> None:
    """kill -9 harms no file: the store is whole, and the next server answers on the same port."""
    with made["served"](home) as (url, child):
        port = int(url.rpartition(":")[2])
        assert httpx.get(f"{url}/api/v1/front").status_code == 200
        child.kill()
        child.wait(10)
    with sqlite3.connect(home / "store.sqlite") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    with made["served"](home, port=port) as (url, _):
        assert httpx.get(f"{url}/api/v1/front").status_code == 200


def test_two_servers_and_a_writer(home: Path, made: Made) -> None:
    """Both see what a third process imports."""
    with made["served"](home) as (one, _), made["served"](home) as (two, _):
        made["fill"](home, made["rows"](run_url="https://example.org/actions/runs/2"), "more.json")
        for url in (one, two):
            columns = httpx.get(f"{url}/api/v1/front?all=yes").json()["columns"]
            assert len(columns["ref"]) == 10
