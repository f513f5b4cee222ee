"""Free ports and ports that are taken, with real sockets."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from servemark.base.errors import ServemarkError
from servemark.launch.ports import Holder, command_line, free_port, port_holder, require_free


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket of this process that listens on a port of the kernel's choice."""
    with socket.create_server(("127.0.0.1", 0)) as sock:  # sets SO_REUSEADDR, as servers do
        yield sock


def test_no_port_is_handed_out_twice() -> None:
    """Four threads, 400 ports, all different and each free to listen on."""
    with ThreadPoolExecutor(4) as pool:
        ports = list(pool.map(lambda _: free_port(), range(400)))
    assert len(set(ports)) == 400
    require_free(ports[0])
    require_free(ports[-1])


def test_taken_port_names_its_holder() -> None:
    """Another process listens: its pid and command are in the message, its secret option is not."""
    code = (
        "import socket,sys; s=socket.socket(); s.bind(('127.0.0.1',0)); s.listen(); print(s.getsockname()[1],"
    )
    code += "flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", code, "--api-key", "hunter2", "--token=hunter3", "plain\x1b[31m"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        holder = port_holder(port)
        with pytest.raises(ServemarkError) as caught:
            require_free(port)
        other.kill()
    assert holder is not None
    assert holder.pid == other.pid
    assert caught.value.key == "launch.port_taken"
    assert caught.value.values["pid"] == other.pid
    assert str(port) in str(caught.value)
    assert "hunter" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(holder.command) <= 120


def test_secret_options_are_hidden_and_the_rest_is_shown() -> None:
    """`--api-key V` and `--token=V` lose their values, the words around them stay."""
    code = "print(flush=True); input()"
    argv = [sys.executable, "-c", code, "--api-key", "hunter2", "--token=hunter3", "--port", "80"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        shown = command_line(other.pid)
        other.kill()
    assert shown.endswith("input() --api-key *** --token=*** --port 80")


def test_wildcard_listener_takes_the_loopback_port_too() -> None:
    """A server on 0.0.0.0 would answer in our engine's place."""
    with socket.socket() as sock:
        sock.bind(("0.0.0.0", 0))  # noqa: S104 - the point of the test
        sock.listen(1)
        with pytest.raises(ServemarkError):
            require_free(sock.getsockname()[1])


def test_unknown_holder_has_its_own_message(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc does not say (here: made silent), the message says so and invents nobody."""
    monkeypatch.setattr("servemark.launch.ports.port_holder", lambda _port: None)
    with pytest.raises(ServemarkError) as caught:
        require_free(listener.getsockname()[1])
    assert caught.value.key == "launch.port_taken_unknown"


def test_time_wait_is_no_obstacle(listener: socket.socket) -> None:
    """A fixed port must work again at once after the server closed its connections first."""
    port = listener.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port)) as client:
        server, _ = listener.accept()
        server.close()  # the side that closes first keeps TIME_WAIT
        assert client.recv(1) == b""
    listener.close()
    require_free(port)


@pytest.mark.parametrize("port", [0, -1, 65536, True, "80", 1.5, None])
def test_no_such_port(port: object) -> None:
    """Bad use, exit code 2, before any socket."""
    with pytest.raises(ServemarkError) as caught:
        require_free(port)  # type: ignore[arg-type]
    assert caught.value.key == "launch.port_range"
    assert caught.value.exit_code == 2


def test_address_that_is_not_ours() -> None:
    """192.0.2.1 (a documentation address) is not on this host: a message, no traceback."""
    with pytest.raises(ServemarkError) as caught:
        require_free(8080, "192.0.2.1")
    assert caught.value.key == "launch.port_refused"
    with pytest.raises(ServemarkError) as caught:
        free_port("192.0.2.1")
    assert caught.value.key == "launch.no_port"


def test_nobody_listens() -> None:
    """No holder of a free port; the type is a plain value."""
    assert port_holder(free_port()) is None
    assert Holder(1, "x") == Holder(1, "x")
