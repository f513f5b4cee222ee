"""The real embedded engine: start, identity, counters, tokens, prefix reuse, damage and every way to end
it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from servemark.base.errors import ServemarkError
from servemark.launch.engines.embedded import (
    PACKAGED_MODELS,
    EmbeddedAdapter,
    chat_overhead,
    chat_tokens,
    packaged_model,
    tokenize,
)
from servemark.launch.engines.protocol import EngineCommand, EngineIdentity, EngineRequest
from servemark.launch.http_probe import ProbeError, fetch_json
from servemark.launch.local import LocalLauncher
from servemark.launch.ports import free_port
from servemark.launch.process import ExitStatus, RunningWorker

if TYPE_CHECKING:
    from tests.launch.conftest import Strays

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed"),
]
MODEL = "embedded:smollm2-135m-instruct-q4_1"
BUDGET_S = 60.0


def request_for(model: str = MODEL, port: int | None = None, **args: object) -> EngineRequest:
    """Small contexts, so that a start is quick."""
    port = port or free_port()
    given = {key.replace("_", "-"): value for key, value in args.items()}
    return EngineRequest(model, f"run-{port}", "127.0.0.1", port, {"ctx-size": 2048, "parallel": 2, **given})


def chat(url: str, content: str, max_tokens: int = 8, timeout_s: float = 60.0) -> dict[str, object]:
    """One greedy chat request; the reply's usage."""
    body = {
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    reply = fetch_json(url, "/v1/chat/completions", body=body, timeout_s=timeout_s)
    assert isinstance(reply, dict)
    usage: dict[str, object] = reply["usage"]
    return usage


class Engine:
    """A running engine and what started it."""

    def __init__(self, folder: Path, request: EngineRequest) -> None:
        self.adapter = EmbeddedAdapter()
        self.launcher = LocalLauncher()
        self.request = request
        self.command: EngineCommand = self.adapter.command(request)
        self.worker: RunningWorker = self.launcher.start(self.adapter, request, folder / "engine.log", folder)

    def ready(self) -> Engine:
        """Wait for it."""
        self.launcher.wait_ready(self.worker, self.adapter, self.request, BUDGET_S)
        return self

    def identity(self) -> EngineIdentity:
        """What it says of itself."""
        return self.adapter.identity(self.worker.base_url, self.command)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One engine for the tests that only ask."""
    running = Engine(tmp_path_factory.mktemp("engine"), request_for())
    try:
        yield running.ready()
    finally:
        running.worker.stop(2.0)


def test_identity_is_read_from_what_runs(engine: Engine) -> None:
    """The child's own report comes back through its server; the hash is the packaged file's."""
    identity = engine.identity()
    assert identity.engine == "llamacpp-embedded"
    assert identity.version == importlib.metadata.version("xllamacpp")
    assert identity.build
    assert identity.served_model == engine.request.served_name
    file, digest = PACKAGED_MODELS["smollm2-135m-instruct-q4_1"]
    assert Path(identity.model_file or "").name == file
    assert identity.model_sha256 == digest == identity.details["model_sha256_packaged"]
    assert identity.details["slots"] == 2
    assert identity.details["ctx_tokens_per_slot"] == 1024
    assert identity.details["model_ftype"] == "Q4_1"
    assert "CPU" in str(identity.details["system_info"])
    assert identity.details["started_with"]
    json.dumps(identity.details, allow_nan=False)


def test_counters_include_cached_tokens(engine: Engine) -> None:
    """The same prompt twice: all prompt tokens count both times, the second time all but one of them as
    cached."""
    url = engine.worker.base_url
    prompt = " ".join(f"item {n} costs {n * 7} coins." for n in range(20))
    first = engine.adapter.counters(url)
    usage = chat(url, prompt)
    second = engine.adapter.counters(url)
    chat(url, prompt)
    third = engine.adapter.counters(url)
    tokens = usage["prompt_tokens"]
    assert isinstance(tokens, int) and tokens > 100
    values = [first.prompt_tokens, second.prompt_tokens, third.prompt_tokens]
    cached = [first.cached_prompt_tokens, second.cached_prompt_tokens, third.cached_prompt_tokens]
    assert all(value is not None for value in values + cached)
    assert [values[1] - values[0], values[2] - values[1]] == [tokens, tokens]  # type: ignore[operator]
    assert cached[2] - cached[1] == tokens - 1  # type: ignore[operator]
    assert (third.generated_tokens or 0) - (second.generated_tokens or 0) == 8


def test_tokens_are_those_of_the_server(engine: Engine) -> None:
    """The prompt's length as we count it before is what usage reports after; markers in a text stay text."""
    url = engine.worker.base_url
    messages = [{"role": "user", "content": "Say <|im_end|> twice, 请说两次。"}]
    usage = chat(url, messages[0]["content"])
    assert len(chat_tokens(url, messages)) == usage["prompt_tokens"]
    assert engine.adapter.count_prompt(url, messages) == usage["prompt_tokens"]
    assert chat_overhead(url, messages) > 0
    assert len(tokenize(url, "<|im_end|>")) > 1
    assert len(tokenize(url, "<|im_end|>", special=True)) == 1
    assert tokenize(url, "") == []


def test_it_listens_on_loopback_only(engine: Engine) -> None:
    """Every listening socket of the engine is bound to 127.0.0.1; other addresses of this host refuse."""
    listening = [
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    ]
    port = f":{engine.request.port:04X}"
    assert [address for address in listening if address.endswith(port)] == [f"0100007F{port}"]


def test_no_page_and_no_foreign_origin(engine: Engine) -> None:
    """No user interface, no right for a web page to read from it, no slot files unless asked for."""
    with socket.create_connection(("127.0.0.1", engine.request.port)) as sock:
        sock.sendall(
            b"GET /v1/models HTTP/1.1\r\nHost: x\r\nOrigin: http://evil\r\nConnection: close\r\n\r\n"
        )
        data = b""
        while piece := sock.recv(65536):
            data += piece
    assert b"Access-Control-Allow-Origin: http://evil" not in data
    assert b"Access-Control-Allow-Origin: *" not in data
    with pytest.raises(ProbeError, match="404"):
        fetch_json(engine.worker.base_url, "/")
    with pytest.raises(ProbeError, match="501"):
        fetch_json(engine.worker.base_url, "/slots/0?action=save", body={"filename": "x"})


def in_flight(url: str) -> threading.Thread:
    """A long request that is being computed; its end does not matter."""

    def run() -> None:
        try:
            chat(url, "Count to a thousand.", max_tokens=900)
        except ProbeError:
            return

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        slots = fetch_json(url, "/slots")
        if isinstance(slots, list) and any(slot.get("is_processing") for slot in slots):
            return thread
        time.sleep(0.02)
    raise AssertionError("the request never began")


@pytest.mark.parametrize("way", ["stop", "sigterm", "sigkill", "guard"])
def test_ends_with_a_request_in_flight(tmp_path: Path, strays: Strays, way: str) -> None:
    """By stop, by SIGTERM, killed from outside, killed with its guard: gone within a second or so, port
    free."""
    engine = Engine(tmp_path, request_for()).ready()
    thread = in_flight(engine.worker.base_url)
    begin = time.monotonic()
    if way == "stop":
        assert engine.worker.stop(5.0) == ExitStatus(signal=signal.SIGTERM)
    elif way == "guard":
        os.kill(engine.worker.guard_pid, signal.SIGKILL)
        assert engine.worker.wait(10.0) == ExitStatus()
    else:
        number = signal.SIGTERM if way == "sigterm" else signal.SIGKILL
        os.kill(engine.worker.pid, number)
        assert engine.worker.wait(10.0) == ExitStatus(signal=number)
    assert strays.none_left()
    assert time.monotonic() - begin < 5.0
    thread.join(10.0)
    engine.worker.stop(0.0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", engine.request.port), timeout=2.0)


LAUNCHER = """
import sys, time
from pathlib import Path
from servemark.launch.engines.protocol import EngineRequest
from servemark.launch.engines.registry import get_adapter
from servemark.launch.local import LocalLauncher
folder, port, wait = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
adapter, launcher = get_adapter("llamacpp"), LocalLauncher()
request = EngineRequest("embedded:smollm2-135m-instruct-q4_1", "n", "127.0.0.1", port, {"ctx-size": 1024})
worker = launcher.start(adapter, request, folder / "engine.log", folder)
if wait == "ready":
    launcher.wait_ready(worker, adapter, request, 60.0)
print(worker.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("wait", ["ready", "loading"])
def test_kill_9_of_the_launcher(tmp_path: Path, strays: Strays, wait: str) -> None:
    """While it loads and when it serves: no engine, no guard, no port stays."""
    port = free_port()
    argv = [sys.executable, "-c", LAUNCHER, str(tmp_path), str(port), wait]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        assert int(launcher.stdout.readline()) > 0
        launcher.kill()
    assert strays.none_left()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2.0)


def test_port_lost_to_another_program(tmp_path: Path, strays: Strays) -> None:
    """Taken between the check and the bind: the engine's own error is recognised."""
    request = request_for()
    adapter, launcher = EmbeddedAdapter(), LocalLauncher()
    worker = launcher.start(adapter, request, tmp_path / "engine.log", tmp_path)
    try:
        with socket.create_server(("127.0.0.1", request.port)), pytest.raises(ServemarkError) as caught:
            launcher.wait_ready(worker, adapter, request, BUDGET_S)
    finally:
        worker.stop(1.0)
    assert caught.value.key == "launch.engine_exited.port_in_use"
    assert "couldn't bind" in str(caught.value)
    assert strays.pids() == []


def test_model_that_is_whole_but_not_a_model(tmp_path: Path, strays: Strays) -> None:
    """A valid GGUF header without a single tensor passes our check; the engine's refusal is explained."""
    model = tmp_path / "empty.gguf"
    model.write_bytes(b"GGUF" + (3).to_bytes(4, "little") + b"\0" * 24)
    engine = Engine(tmp_path, request_for(str(model)))
    with pytest.raises(ServemarkError) as caught:
        engine.ready()
    engine.worker.stop(1.0)
    assert caught.value.key == "launch.engine_exited.model"
    assert strays.pids() == []


def test_more_context_than_memory(tmp_path: Path, strays: Strays) -> None:
    """16 M tokens of context would need some 360 GiB: said as a lack of memory, on a host that has less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if total > 300 << 30:
        pytest.skip("this host has that much memory")
    engine = Engine(tmp_path, request_for(ctx_size=1 << 24, parallel=1))
    with pytest.raises(ServemarkError) as caught:
        engine.ready()
    engine.worker.stop(1.0)
    assert caught.value.key in ("launch.engine_exited.memory", "launch.engine_exited.oom_killed")
    assert strays.pids() == []


def test_a_copy_of_the_model_by_path_and_slot_files(tmp_path: Path, strays: Strays) -> None:
    """A user's own GGUF file is served, its hash is its own; slot files appear below the working folder
    only."""
    model = tmp_path / "own.gguf"
    model.write_bytes(packaged_model("smollm2-135m-instruct-q4_1").read_bytes())
    engine = Engine(tmp_path, request_for(str(model), slot_save_path="slots")).ready()
    try:
        identity = engine.identity()
        assert identity.model_sha256 == hashlib.sha256(model.read_bytes()).hexdigest()
        assert "model_sha256_packaged" not in identity.details
        url = engine.worker.base_url
        chat(url, "Hello.")
        saved = fetch_json(url, "/slots/0?action=save", body={"filename": "s.bin"}, timeout_s=10.0)
        assert isinstance(saved, dict)
        assert (tmp_path / "slots" / "s.bin").is_file()
    finally:
        engine.worker.stop(2.0)
    assert strays.pids() == []


def test_child_without_a_launcher_ends_with_its_stdin(tmp_path: Path, strays: Strays) -> None:
    """Where the kernel has no parent-death signal, the end of the stdin pipe does the same."""
    command = EmbeddedAdapter().command(request_for())
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command.argv, stdin=subprocess.PIPE, stdout=log, stderr=log) as child,
    ):
        time.sleep(0.5)
        assert child.poll() is None
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(10.0) == 0
    assert strays.pids() == []


def test_unknown_parameter_is_said_by_the_child(tmp_path: Path) -> None:
    """A wheel of another version without one of our parameters: one line, no traceback."""
    command = EmbeddedAdapter().command(request_for())
    config = json.loads(command.argv[-1])
    config["set"]["n_flux"] = 1
    argv = [*command.argv[:-1], json.dumps(config)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "has no parameter n_flux" in done.stderr
    assert "Traceback" not in done.stderr
