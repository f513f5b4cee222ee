"""A stand-in engine for tests: `fake_engine.py MODE PORT NAME`; speaks just enough HTTP to look healthy.

Imports little, so that it starts in some 20 ms under `python -I -S`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable


def say(line: str) -> None:
    """One line to the log."""
    os.write(1, line.encode() + b"\n")


def serve(port: int, name: str) -> None:
    """Answer /health and /v1/models for ever, one connection at a time."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(16)
    say("listening")
    while True:
        connection, _ = listener.accept()
        request = connection.recv(65536)
        body = b'{"status":"ok"}' if b"/health" in request else b'{"data":[{"id":"%s"}]}' % name.encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
        connection.sendall(head + body)
        connection.close()


def runaway() -> None:
    """A grandchild in a session of its own whose parent is gone, and which does not mind SIGTERM."""
    told, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            say(f"runaway {os.getpid()}")
            os.write(tell, b".")
            time.sleep(600)
        os._exit(0)
    os.wait()
    os.read(told, 1)


def end_with(code: int, *lines: str) -> None:
    """Say some lines and exit."""
    for line in lines:
        say(line)
    sys.exit(code)


def log_for(seconds: float, pause_s: float) -> None:
    """A slow start that shows in the log."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        say("still loading")
        time.sleep(pause_s)


def spin() -> None:
    """A slow start that shows in CPU time only."""
    while True:
        pass


def runaway_exit() -> None:
    """The runaway stays, the engine ends."""
    runaway()
    sys.exit(4)


def wait() -> None:
    """Run without serving."""
    say("waiting")
    time.sleep(600)


MODES: dict[str, Callable[[], object]] = {
    "serve": lambda: None,
    "exit_error": lambda: end_with(3, "loading", "RuntimeError: the flux capacitor is missing"),
    "port_in_use": lambda: end_with(1, "OSError: [Errno 98] Address already in use"),
    "silent": lambda: time.sleep(600),
    "slow": lambda: log_for(0.8, 0.1),
    "logging": lambda: log_for(600, 0.05),
    "spin": spin,
    "stubborn": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "runaway": runaway,
    "runaway_exit": runaway_exit,
    "kill_self": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "wait": wait,
}


if __name__ == "__main__":
    MODES[sys.argv[1]]()
    serve(int(sys.argv[2]), sys.argv[3])
