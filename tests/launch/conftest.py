"""Fixtures of the launch tests: a bare-command adapter around fake_engine.py, and strays found in /proc."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from servemark.launch.engines.openai_probe import serves_ours
from servemark.launch.engines.protocol import EngineCommand, EngineCounters, EngineIdentity, EngineRequest
from servemark.launch.failure import known_signature
from servemark.launch.ports import free_port
from servemark.launch.process import RunningWorker, start_worker

FAKE_ENGINE = Path(__file__).with_name("fake_engine.py")
MARK = "SERVEMARK_TEST_MARK"


class BareAdapter:
    """A bare command as an engine: what later adapters of real servers look like, without a model."""

    name = "bare"

    def __init__(self, mode: str, served_as: str | None = None) -> None:
        self.mode = mode
        self.served_as = served_as

    def check_installed(self) -> None:
        """Python is here."""

    def command(self, request: EngineRequest) -> EngineCommand:
        """fake_engine.py in the wanted mode."""
        name = self.served_as or request.served_name
        argv = (sys.executable, "-I", "-S", str(FAKE_ENGINE), self.mode, str(request.port), name)
        return EngineCommand(argv=argv, env=request.env)

    def ready(self, base_url: str, request: EngineRequest) -> bool:
        """The shared probe of OpenAI-like servers."""
        return serves_ours(base_url, request.served_name)

    def identity(self, base_url: str, command: EngineCommand) -> EngineIdentity:
        """Nothing is known of it."""
        return EngineIdentity("bare", None, None, None, None, None)

    def counters(self, base_url: str) -> EngineCounters:
        """It counts nothing."""
        return EngineCounters(None, None, None)

    def failure_hint(self, log_tail: str) -> tuple[str, dict[str, object]] | None:
        """The signatures that all engines share."""
        kind = known_signature(log_tail)
        return None if kind is None else (f"launch.engine_exited.{kind}", {})

    def tokenize(self, base_url: str, content: str) -> list[int]:
        """It has no tokenizer."""
        raise NotImplementedError

    def count_prompt(self, base_url: str, messages: Sequence[Mapping[str, object]]) -> int:
        """It has no tokenizer."""
        raise NotImplementedError


def request_for(port: int | None = None, **env: str) -> EngineRequest:
    """A request for a bare engine on a free port."""
    return EngineRequest("none", f"run-{secrets.token_hex(4)}", "127.0.0.1", port or free_port(), env=env)


def eventually(condition: Callable[[], bool], budget_s: float = 10.0) -> bool:
    """True as soon as the condition holds, False when it does not within the budget."""
    deadline = time.monotonic() + budget_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    """True for a process that runs (a zombie does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rfind(b")") + 2 : stat.rfind(b")") + 3] not in (b"Z", b"X")


class Strays:
    """Finds every living process that a test started, by a variable that all of them inherit."""

    def __init__(self, token: str) -> None:
        self.token = token

    def pids(self) -> list[int]:
        """Living processes, other than this one, that carry the token."""
        needle = f"{MARK}={self.token}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid() and alive(int(entry.name)):
                try:
                    if needle in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def none_left(self, budget_s: float = 10.0) -> bool:
        """True when all are gone, at the latest after the budget."""
        return eventually(lambda: not self.pids(), budget_s)


@pytest.fixture
def strays(monkeypatch: pytest.MonkeyPatch) -> Iterator[Strays]:
    """Marks all children of the test; whatever is left at its end fails it (and is killed)."""
    token = secrets.token_hex(8)
    monkeypatch.setenv(MARK, token)
    found = Strays(token)
    yield found
    left = found.pids()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, f"left behind: {left}"


Start = Callable[..., RunningWorker]


@pytest.fixture
def start(tmp_path: Path, strays: Strays) -> Iterator[Start]:
    """Starts fake_engine.py in a mode (or any argv) under a guard; all are stopped at the end of the test."""
    workers: list[RunningWorker] = []

    def begin(mode: str = "serve", *, argv: list[str] | None = None, **env: str) -> RunningWorker:
        port = free_port()
        command = argv or [sys.executable, "-I", "-S", str(FAKE_ENGINE), mode, str(port), "name"]
        url = f"http://127.0.0.1:{port}"
        log = tmp_path / f"engine{len(workers)}.log"
        worker = start_worker(command, env, base_url=url, log_path=log, work_dir=tmp_path)
        workers.append(worker)
        return worker

    yield begin
    for worker in workers:
        worker.stop(0.0)


@pytest.fixture
def unused_port() -> Callable[[], int]:
    """A free port, another at every call."""
    return free_port


BareFactory = Callable[..., tuple[BareAdapter, EngineRequest]]


@pytest.fixture
def bare() -> BareFactory:
    """An adapter of a fake_engine.py mode and a request for it on a free port."""

    def make(mode: str, served_as: str | None = None) -> tuple[BareAdapter, EngineRequest]:
        return BareAdapter(mode, served_as), request_for()

    return make
