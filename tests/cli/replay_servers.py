"""What the tests of the verb `replay` talk to: the C server of benchmarks/, and small servers that misbehave."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Body = dict[str, Any]
Answer = Callable[["Handler", Body, int], None]


class Handler(BaseHTTPRequestHandler):
    """One connection. `stream` and the helpers below are what answers are made of."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """The list of models; nothing else exists."""
        if self.path == "/v1/models":
            return self.whole({"data": [{"id": name} for name in self.server.models]})
        return self.whole({}, 404)

    def do_POST(self) -> None:
        """Every chat request goes to the server's answer, with its number from 0."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.startswith("/v1/"):
            return self.whole({}, 404)
        with self.server.lock:
            number = len(self.server.seen)
            self.server.seen.append((dict(self.headers), body))
        return self.server.answer(self, body, number)

    def whole(self, body: object, status: int = 200) -> None:
        """A reply in one piece."""
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def head(self) -> None:
        """The head of a streamed reply, which ends with the connection."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, value: object) -> None:
        """One event."""
        text = value if isinstance(value, str) else json.dumps(value)
        self.wfile.write(f"data: {text}\n\n".encode())
        self.wfile.flush()

    def word(self, text: str = " a", model: str = "m") -> None:
        """One content event."""
        delta = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        self.event({"model": model, "choices": [delta]})

    def finish(self, usage: object = None, model: str = "m") -> None:
        """Stop, usage where there is one, `[DONE]`."""
        end = {"index": 0, "delta": {}, "finish_reason": "length"}
        self.event({"model": model, "choices": [end]})
        if usage is not None:
            self.event({"model": model, "choices": [], "usage": usage})
        self.event("[DONE]")


class Server(ThreadingHTTPServer):
    """A chat server of one answer."""

    daemon_threads = True

    def __init__(self, answer: Answer, models: tuple[str, ...] = ("m",)) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.models = models
        self.lock = threading.Lock()
        self.seen: list[tuple[dict[str, str], Body]] = []
        self.over = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is what these tests are about."""


@contextlib.contextmanager
def serving(answer: Answer, models: tuple[str, ...] = ("m",)) -> Iterator[Server]:
    """A server in threads of its own, gone afterwards."""
    server = Server(answer, models)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def good(gap_s: float = 0.0, words: int | None = None) -> Answer:
    """As many words as were asked for, `gap_s` apart, with true usage (one token a word of the prompt)."""

    def answer(handler: Handler, body: Body, number: int) -> None:
        tokens = words if words is not None else int(body["max_tokens"])
        handler.head()
        for n in range(tokens):
            if n and gap_s and handler.server.over.wait(gap_s):
                return
            handler.word()
        prompt = sum(len(m["content"].split()) for m in body["messages"])
        handler.finish({"prompt_tokens": prompt, "completion_tokens": tokens})

    return answer


def environment(**more: str) -> dict[str, str]:
    """This process's, with English messages and a terminal of 100 columns."""
    return {**os.environ, "LANG": "C.UTF-8", "COLUMNS": "100", **more}


@dataclass(slots=True)
class Verb:
    """`servemark replay` in a process of its own.

    Without more options no text is counted beforehand, so that a server sees the replay's requests only."""

    home: Path
    process: subprocess.Popen[str] | None = None
    options: list[str] = field(default_factory=lambda: ["--tokenizer", "words"])

    def start(self, *args: str, **env: str) -> None:
        """Start without waiting."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "servemark", "replay", "--home", str(self.home), *self.options, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**env),
            start_new_session=True,
        )

    def end(self, timeout_s: float = 30) -> tuple[int, str, str]:
        """(exit code, stdout, stderr). A process that does not end is killed and fails the test."""
        assert self.process is not None
        try:
            out, err = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            out, err = self.process.communicate()
            raise AssertionError(f"it did not end: {out} {err}") from None
        assert "Traceback" not in out + err, err
        return self.process.returncode, out, err

    def run(self, *args: str, **env: str) -> tuple[int, str, str]:
        """Start and wait."""
        self.start(*args, **env)
        return self.end()

    def signal(self, number: int) -> None:
        """To the process alone, as `kill` sends it."""
        assert self.process is not None
        self.process.send_signal(number)

    def signal_group(self, number: int) -> None:
        """To all processes of the group, as a terminal and a batch system send it."""
        assert self.process is not None
        os.killpg(self.process.pid, number)

    @property
    def folders(self) -> list[Path]:
        """Run folders so far, oldest first."""
        runs = self.home / "runs"
        return sorted(runs.iterdir()) if runs.is_dir() else []

    @property
    def row(self) -> Body:
        """The only run's row."""
        (folder,) = self.folders
        loaded: Body = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        return loaded

    @property
    def records(self) -> list[Body]:
        """The only run's records."""
        (folder,) = self.folders
        lines = (folder / "requests.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]


def wait_until(true: Callable[[], bool], seconds: float = 20) -> None:
    """Poll; fails the test when it does not come true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
