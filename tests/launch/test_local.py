"""The local launcher with bare commands: readiness, early ends, hangs, foreign servers, cancelling."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.launch.engines.protocol import EngineAdapter, EngineRequest
from servemark.launch.local import LocalLauncher, ReadyTick, loopback_url
from servemark.launch.ports import free_port
from servemark.launch.process import ExitStatus, RunningWorker

if TYPE_CHECKING:
    from tests.launch.conftest import BareFactory, Strays


class Bench:
    """A launcher and its workers, stopped at the end of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launcher = LocalLauncher()
        self.workers: list[RunningWorker] = []

    def start(self, adapter: EngineAdapter, request: EngineRequest) -> RunningWorker:
        """One worker."""
        log = self.folder / "logs" / f"{len(self.workers)}.log"
        worker = self.launcher.start(adapter, request, log, self.folder / "work")
        self.workers.append(worker)
        return worker

    def failure(
        self, adapter: EngineAdapter, request: EngineRequest, budget_s: float = 20.0
    ) -> ServemarkError:
        """The error with which waiting ends."""
        worker = self.start(adapter, request)
        with pytest.raises(ServemarkError) as caught:
            self.launcher.wait_ready(worker, adapter, request, budget_s)
        assert str(caught.value)
        assert caught.value.what("zh") != caught.value.what("en")
        assert caught.value.next_step("en")
        return caught.value


@pytest.fixture
def bench(tmp_path: Path, strays: Strays) -> Iterator[Bench]:
    """Stops what a test started; the strays fixture then looks whether that was all."""
    made = Bench(tmp_path)
    yield made
    for worker in made.workers:
        worker.stop(0.0)


def test_ready_and_stop(bench: Bench, bare: BareFactory) -> None:
    """Ready within a moment, the port answers, and after stop it is free again. Folders are made."""
    adapter, request = bare("serve")
    worker = bench.start(adapter, request)
    seconds = bench.launcher.wait_ready(worker, adapter, request, 20.0)
    assert 0 < seconds < 10
    assert worker.base_url == f"http://127.0.0.1:{request.port}"
    assert worker.poll() is None
    assert worker.stop(2.0) == ExitStatus(signal=signal.SIGTERM)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", request.port), timeout=2.0)


def test_two_launches_get_two_ports(bench: Bench, bare: BareFactory) -> None:
    """At once, each with its own name: neither is taken for the other."""
    pairs = [bare("serve"), bare("serve")]
    assert pairs[0][1].port != pairs[1][1].port
    workers = [bench.start(*pair) for pair in pairs]
    for worker, (adapter, request) in zip(workers, pairs, strict=True):
        bench.launcher.wait_ready(worker, adapter, request, 20.0)
    with pytest.raises(ServemarkError) as caught:
        pairs[0][0].ready(workers[1].base_url, pairs[0][1])
    assert caught.value.key == "launch.other_server"


def test_exit_at_start_is_noticed_at_once_and_explained(bench: Bench, bare: BareFactory) -> None:
    """The status and the log's error line are in the message, in both languages."""
    begin = time.monotonic()
    error = bench.failure(*bare("exit_error"))
    assert time.monotonic() - begin < 5.0
    assert error.key == "launch.engine_exited"
    assert error.layer is Layer.ENGINE
    for lang in ("en", "zh"):
        assert "exit 3" in error.what(lang)
        assert "RuntimeError: the flux capacitor is missing" in error.what(lang)
    assert "0.log" in (error.next_step("en") or "")


@pytest.mark.parametrize(
    ("mode", "key"),
    [
        ("port_in_use", "launch.engine_exited.port_in_use"),
        ("kill_self", "launch.engine_exited.killed"),
        ("runaway_exit", "launch.engine_exited"),
    ],
)
def test_known_ends(bench: Bench, bare: BareFactory, mode: str, key: str) -> None:
    """A signature in the log, a SIGKILL from outside, an end that leaves a child: named, and nothing
    stays."""
    assert bench.failure(*bare(mode)).key == key


def test_killed_while_it_starts_and_later(bench: Bench, bare: BareFactory) -> None:
    """Somebody kills the engine: during the wait it ends the wait, afterwards poll tells."""
    adapter, request = bare("logging")
    worker = bench.start(adapter, request)
    timer = threading.Timer(0.2, os.kill, (worker.pid, signal.SIGKILL))
    timer.start()
    with pytest.raises(ServemarkError) as caught:
        bench.launcher.wait_ready(worker, adapter, request, 30.0)
    timer.join()
    assert caught.value.key == "launch.engine_exited.killed"
    adapter, request = bare("serve")
    worker = bench.start(adapter, request)
    bench.launcher.wait_ready(worker, adapter, request, 20.0)
    os.kill(worker.pid, signal.SIGSEGV)
    status = worker.wait(10.0)
    assert status == ExitStatus(signal=signal.SIGSEGV)
    assert bench.launcher.exit_error(worker, adapter, status).key == "launch.engine_exited.crashed"


def test_guard_killed_while_it_starts(bench: Bench, bare: BareFactory) -> None:
    """The status was seen by nobody, and the message says so."""
    adapter, request = bare("silent")
    worker = bench.start(adapter, request)
    os.kill(worker.guard_pid, signal.SIGKILL)
    with pytest.raises(ServemarkError) as caught:
        bench.launcher.wait_ready(worker, adapter, request, 20.0)
    assert caught.value.key == "launch.engine_exited.unseen"


@pytest.mark.parametrize(
    ("mode", "key"),
    [
        ("silent", "launch.not_ready_silent"),
        ("logging", "launch.not_ready_working"),
        ("spin", "launch.not_ready_working"),
    ],
)
def test_budget_exceeded(
    bench: Bench, bare: BareFactory, monkeypatch: pytest.MonkeyPatch, mode: str, key: str
) -> None:
    """A hang is told from slow work, whether that shows in the log or only in CPU time."""
    monkeypatch.setattr("servemark.launch.local._WORKING_WINDOW_S", 0.8)
    error = bench.failure(*bare(mode), budget_s=1.5)
    assert error.key == key
    assert "1.5" in str(error)


def test_slow_start_is_waited_for_and_shown(bench: Bench, bare: BareFactory) -> None:
    """0.8 s of loading: ticks arrive meanwhile, say that it works and what it said last."""
    adapter, request = bare("slow")
    worker = bench.start(adapter, request)
    ticks: list[ReadyTick] = []
    seconds = bench.launcher.wait_ready(worker, adapter, request, 30.0, on_tick=ticks.append)
    assert seconds > 0.75
    assert 1 <= len(ticks) <= 1 + seconds / 0.5
    assert ticks[0].working
    assert ticks[0].last_line == "still loading"
    assert ticks[0].log_bytes > 0
    assert (ticks[0].rss_bytes or 0) > 1 << 20


def test_waiting_does_not_burn_the_cpu(bench: Bench, bare: BareFactory) -> None:
    """One second of waiting for a silent engine costs this process at most a fifth of it."""
    adapter, request = bare("silent")
    worker = bench.start(adapter, request)
    begin = time.process_time()
    with pytest.raises(ServemarkError):
        bench.launcher.wait_ready(worker, adapter, request, 1.0)
    assert time.process_time() - begin < 0.2


def test_a_foreign_server_on_the_port_is_not_ours(bench: Bench, bare: BareFactory) -> None:
    """Healthy and answering, but for another run: an error that names what it serves."""
    error = bench.failure(*bare("serve", served_as="somebody-else"))
    assert error.key == "launch.other_server"
    assert "somebody-else" in str(error)


def test_cancelling(bench: Bench, bare: BareFactory) -> None:
    """A request to stop is seen between two probes; its layer is the interrupt's."""
    adapter, request = bare("silent")
    worker = bench.start(adapter, request)
    asked = time.monotonic() + 0.2
    with pytest.raises(ServemarkError) as caught:
        bench.launcher.wait_ready(worker, adapter, request, 30.0, cancelled=lambda: time.monotonic() > asked)
    assert caught.value.key == "launch.cancelled"
    assert caught.value.layer is Layer.INTERRUPT
    assert time.monotonic() - asked < 5.0


def test_taken_port_is_said_before_anything_starts(bench: Bench, bare: BareFactory) -> None:
    """A fixed port that this very process holds."""
    adapter, request = bare("serve")
    with socket.create_server(("127.0.0.1", request.port)), pytest.raises(ServemarkError) as caught:
        bench.start(adapter, request)
    assert caught.value.key == "launch.port_taken"
    assert caught.value.values["pid"] == os.getpid()
    assert bench.workers == []


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org", "localhost", ""])  # noqa: S104
def test_loopback_only(bench: Bench, bare: BareFactory, host: str) -> None:
    """Nothing on this launcher may be reached from outside; names are not resolved."""
    adapter, request = bare("serve")
    with pytest.raises(ServemarkError) as caught:
        bench.start(adapter, EngineRequest(request.model, request.served_name, host, request.port))
    assert caught.value.key == "launch.not_loopback"


def test_urls() -> None:
    """IPv6 addresses stand in brackets."""
    assert loopback_url("127.0.0.5", 80) == "http://127.0.0.5:80"
    assert loopback_url("::1", 80) == "http://[::1]:80"


def test_unwritable_log_folder(bench: Bench, bare: BareFactory, tmp_path: Path) -> None:
    """A file stands where the folder should be: the disk's message, not a traceback."""
    (tmp_path / "logs").write_text("")
    adapter, request = bare("serve")
    with pytest.raises(ServemarkError) as caught:
        bench.start(adapter, request)
    assert caught.value.layer is Layer.HOME
    assert free_port() != request.port
