"""The vLLM P/D router as a process of its own, between a client and workers that speak vLLM's transfer protocol.

The workers are small servers here that check what vLLM's connectors need (the keys of `kv_transfer_params` are those of
vLLM's documentation of disaggregated prefilling); the same router before real vLLM servers is in test_vllm_cpu.py.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.launch.recipes import deployment_of, job_of

from servemark.base.errors import ServemarkError
from servemark.launch import engines

pytest.importorskip("aiohttp", reason="the extra `store` brings aiohttp")
ROUTER = Path(engines.__file__).resolve().parents[1] / "vllm_pd_router.py"


@dataclass
class FakeWorker:
    """A server with a role; `asked` are the bodies it got, `answer` may refuse."""

    role: str
    asked: list[dict[str, Any]] = field(default_factory=list)
    fail: int | None = None
    stall_s: float = 0.0
    healthy: bool = True
    server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self.server is not None
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def start(self) -> FakeWorker:
        """Serve in threads until `stop`."""
        worker = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                return

            def reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                if self.path == "/health" and not worker.healthy:
                    self.reply(503, b"")
                elif self.path == "/query":
                    self.reply(200, json.dumps({"0": {"engine_id": "engine-7", "worker_addr": {}}}).encode())
                else:
                    self.reply(200, b'{"data": [{"id": "m"}]}')

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                worker.asked.append(body)
                time.sleep(worker.stall_s)
                if worker.fail is not None:
                    self.reply(worker.fail, b'{"error": {"message": "no"}}')
                elif worker.role == "prefill":
                    self.reply(200, json.dumps(PREFILLED).encode())
                else:
                    self.reply(200, STREAM, "text/event-stream")

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def stop(self) -> None:
        """Close the port."""
        assert self.server is not None
        self.server.shutdown()
        self.server.server_close()


PREFILLED = {
    "choices": [{"message": {"content": "x"}}],
    "usage": {"prompt_tokens": 300, "prompt_tokens_details": {"cached_tokens": 128}},
    "kv_transfer_params": {
        "remote_engine_id": "e",
        "remote_block_ids": [1, 2],
        "remote_host": "h",
        "remote_port": 5,
    },
}
USAGE = {"prompt_tokens": 300, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 299}}
STREAM = (
    b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\ndata: '
    + json.dumps({"choices": [], "usage": USAGE}).encode()
    + b"\n\ndata: [DONE]\n\n"
)
Start = Callable[..., str]


@pytest.fixture
def workers() -> Iterator[tuple[FakeWorker, FakeWorker, FakeWorker]]:
    """Two prefill workers and one decode worker."""
    made = (FakeWorker("prefill").start(), FakeWorker("prefill").start(), FakeWorker("decode").start())
    yield made
    for worker in made:
        worker.stop()


@pytest.fixture
def router(workers: tuple[FakeWorker, FakeWorker, FakeWorker]) -> Iterator[Start]:
    """`router("nixl")` starts the script and gives its URL."""
    started: list[subprocess.Popen[bytes]] = []

    def start(connector: str, idle_s: float = 10.0) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        first, other, decode = workers
        config = {
            "host": "127.0.0.1", "port": port, "connector": connector, "idle_s": idle_s,
            "prefill": [{"name": f"prefill-{n}", "url": w.url, "bootstrap": w.url} for n, w in enumerate((first, other))],
            "decode": [{"name": "decode-0", "url": decode.url}],
        }  # fmt: skip
        started.append(subprocess.Popen([sys.executable, "-P", str(ROUTER), json.dumps(config)]))
        for _ in range(100):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
                return f"http://127.0.0.1:{port}"
            except OSError:
                time.sleep(0.1)
        raise AssertionError("the router did not start")

    yield start
    for process in started:
        process.terminate()
        assert process.wait(10) == 0


def ask(url: str, text: str = "hello", **more: object) -> tuple[int, str]:
    """Status and body of one streamed chat request."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        "max_tokens": 9,
        **more,
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_nixl_hands_the_replys_parameters_on(
    router: Start, workers: tuple[FakeWorker, FakeWorker, FakeWorker]
) -> None:
    """Prefill computes one token without a stream; decode gets the request whole, with what prefill returned.

    The client sees the prefill side's 128 cached tokens; the 299 that were handed over stand beside them.
    """
    status, text = ask(router("nixl"))
    assert status == 200 and "hi" in text and text.endswith("data: [DONE]\n\n")
    prefill = (workers[0].asked + workers[1].asked)[0]
    assert prefill["max_tokens"] == 1 and prefill["stream"] is False
    assert prefill["kv_transfer_params"]["do_remote_decode"] is True
    decode = workers[2].asked[0]
    assert decode["max_tokens"] == 9 and decode["stream"] is True
    assert decode["kv_transfer_params"] == PREFILLED["kv_transfer_params"]
    usage = json.loads(text.split("data: ")[2])["usage"]["prompt_tokens_details"]
    assert usage == {"cached_tokens": 128, "transferred_tokens": 299}


def test_mooncake_tells_both_sides_one_transfer(
    router: Start, workers: tuple[FakeWorker, FakeWorker, FakeWorker]
) -> None:
    """The decode side is told the engine id that the bootstrap address gives."""
    workers[2].stall_s = 0.3
    status, _ = ask(router("mooncake"))
    assert status == 200
    prefill, decode = (workers[0].asked + workers[1].asked)[0], workers[2].asked[0]
    mine, theirs = prefill["kv_transfer_params"], decode["kv_transfer_params"]
    assert mine["transfer_id"] == theirs["transfer_id"] and mine["do_remote_decode"] is True
    assert theirs["do_remote_prefill"] is True and theirs["remote_engine_id"] == "engine-7"
    assert theirs["remote_bootstrap_addr"] in (workers[0].url, workers[1].url)


def test_a_session_stays_with_its_prefill_worker(
    router: Start, workers: tuple[FakeWorker, FakeWorker, FakeWorker]
) -> None:
    """Two sessions of four growing prompts: the second begins on the idle worker only while the first is in flight, so
    each session has one worker to itself in the end."""
    url = router("nixl")
    for turn in range(4):
        assert ask(url, "session A " + "word " * (20 + turn))[0] == 200
    seen = [len(worker.asked) for worker in workers[:2]]
    assert sorted(seen) == [0, 4]


@pytest.mark.parametrize("connector", ["nixl", "mooncake"])
def test_a_side_that_fails_is_named(
    router: Start, workers: tuple[FakeWorker, FakeWorker, FakeWorker], connector: str
) -> None:
    """A prefill that fails ends the request although decode would wait 5 s for its blocks; a refusal keeps its status."""
    url = router(connector)
    workers[2].stall_s = 5.0
    for worker in workers[:2]:
        worker.fail = 500
    begun = time.monotonic()
    status, text = ask(url)
    assert status == 502 and "prefill" in text and time.monotonic() - begun < 4.0
    for worker in workers[:2]:
        worker.fail = 400
    assert ask(url)[0] == 400
    workers[2].stall_s = 0.0
    workers[2].fail = 503
    for worker in workers[:2]:
        worker.fail = None
    status, text = ask(url)
    assert status == 502 and "decode-0" in text


def test_health_needs_every_worker(router: Start, workers: tuple[FakeWorker, FakeWorker, FakeWorker]) -> None:
    """503 with the name of the one that is gone."""
    url = router("nixl")
    workers[1].healthy = False
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{url}/health", timeout=5)
    assert caught.value.code == 503 and json.loads(caught.value.read())["bad"] == ["prefill-1"]


PD = """
engine: {type: vllm}
frontend: {type: servemark-pd}
roles:
  prefill:
    workers: 2
    gpus: 1
    args: {tensor-parallel-size: 1, kv-transfer-config: '{"kv_connector":"CONNECTOR","kv_role":"kv_producer"}'}
  decode:
    workers: 1
    gpus: 1
    args: {tensor-parallel-size: 1, kv-transfer-config: '{"kv_connector":"CONNECTOR","kv_role":"kv_consumer"}'}
"""


def test_the_router_step_knows_its_workers(tmp_path: Path) -> None:
    """Ports in the order asked for: each worker its API and its bootstrap port, then the router's."""
    job = job_of(deployment_of(tmp_path, PD.replace("CONNECTOR", "MooncakeConnector")))
    config = json.loads(job.steps[-1].process.argv[-1])
    assert config["connector"] == "mooncake"
    assert config["prefill"] == [
        {"name": "prefill-0", "url": "http://10.0.0.1:20000", "bootstrap": "http://10.0.0.1:20001"},
        {"name": "prefill-1", "url": "http://10.0.0.1:20002", "bootstrap": "http://10.0.0.1:20003"},
    ]
    assert config["decode"] == [{"name": "decode-0", "url": "http://10.0.0.2:20004"}]
    assert job.front.base_url == "http://10.0.0.1:20006"
    nixl = job_of(deployment_of(tmp_path, PD.replace("CONNECTOR", "NixlConnector")))
    assert json.loads(nixl.steps[-1].process.argv[-1])["connector"] == "nixl"


def test_an_unknown_connector_is_refused(tmp_path: Path) -> None:
    """Before anything starts."""
    with pytest.raises(ServemarkError) as caught:
        job_of(deployment_of(tmp_path, PD.replace("CONNECTOR", "SomeConnector")))
    assert caught.value.key == "launch.pd_connector"
