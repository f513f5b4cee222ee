"""A real engine is asked the prompts of a workload as token ids, and says how many of them it had cached."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from servemark.predict.blocks import BlockMaker
from servemark.predict.types import CacheRequest
from servemark.traces.open import TraceOptions, open_workload
from servemark.traces.types import Workload

LOWEST = 200
"""Token ids below may be special."""
IDS = 40_000


def free_port() -> int:
    """A port that the kernel gives."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@dataclass(slots=True)
class Asked:
    """What an engine counted."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    requests: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def share(self) -> float:
        """Cached of all prompt tokens."""
        return self.cached_tokens / self.prompt_tokens


@contextlib.contextmanager
def running(
    command: Sequence[str], url: str, log: Path, budget_s: float, env: dict[str, str] | None = None
) -> Iterator[str]:
    """The base URL of an engine that is healthy; it is ended afterwards."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
        try:
            deadline = time.monotonic() + budget_s
            while True:
                assert process.poll() is None, log.read_text(errors="replace")[-2000:]
                assert time.monotonic() < deadline, "the engine did not become healthy"
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=1):
                    break
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with contextlib.suppress(ProcessLookupError):  # its own group: an engine's workers may outlive it
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def prompt_of(request: CacheRequest) -> list[int]:
    """Token ids: equal numbers of one-token blocks are equal ids, others rarely are."""
    return [LOWEST + number % IDS for number in request.blocks]


def ask_all(
    url: str, workload: Workload, lanes: int, model: str = "default", *, reset: bool = False
) -> Asked:
    """Every session's turns in order, `lanes` sessions at a time, without think times. `reset`: vLLM forgets first."""
    if reset:
        urllib.request.urlopen(
            urllib.request.Request(f"{url}/reset_prefix_cache", b"", method="POST"), timeout=30
        ).close()
    found, maker = Asked(), BlockMaker(1)
    left = list(reversed([(s, list(maker.streams(s)[""])) for s in workload.sessions]))
    errors: list[BaseException] = []

    def lane() -> None:
        while True:
            with found.lock:
                if not left or errors:
                    return
                _, requests = left.pop()
            try:
                for request in requests:
                    _ask(url, request, found, model)
            except BaseException as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=lane) for _ in range(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


def _ask(url: str, request: CacheRequest, found: Asked, model: str) -> None:
    body = {
        "model": model, "prompt": prompt_of(request), "max_tokens": request.output_tokens or 1, "temperature": 0,
        "ignore_eos": True, "cache_prompt": True,
    }  # fmt: skip
    sent = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(sent, timeout=120) as reply:
        usage = json.load(reply)["usage"]
    with found.lock:
        found.requests += 1
        found.prompt_tokens += usage["prompt_tokens"]
        found.cached_tokens += (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def shared_documents(path: Path, seed: int = 3) -> None:
    """A Mooncake trace of 24 questions about five documents of two to four blocks, in a random order."""
    rng = random.Random(seed)
    rows = []
    for number in range(24):
        document = rng.randrange(5)
        ids = [0, *(100 * (document + 1) + k for k in range(rng.randint(2, 4))), 1000 + number]
        rows.append((512 * len(ids) - rng.randint(0, 400), ids))
    _write(path, rows)


def growing_chats(path: Path, seed: int = 5) -> None:
    """A Mooncake trace of 22 prompts of five chats that take turns at random, each a block longer than its last."""
    rng = random.Random(seed)
    chats = [[0, 100 * (n + 1)] for n in range(5)]
    rows = []
    for number in range(22):
        chat = rng.choice(chats)
        chat.append(1000 + number)
        rows.append((512 * len(chat), list(chat)))
    _write(path, rows)


def _write(path: Path, rows: list[tuple[int, list[int]]]) -> None:
    lines = [
        {"timestamp": 1000 * n, "input_length": tokens, "output_length": 40, "hash_ids": ids}
        for n, (tokens, ids) in enumerate(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


AGENTS = """kind: agentic
name: agents
seed: 20260830
sessions: 5
turns: [3, 4]
system_tokens: {system}
tools_tokens: {system}
first_user_tokens: [{first}, {first}]
tool_result_tokens: {{median: {result}, sigma: 0.6, min: 6, max: 300}}
output_tokens: {{median: 3, sigma: 0.4, min: 2, max: 5}}
think_s: {{median: 2.0, sigma: 1.0, cap: 20}}
think_scale: 0.0
"""


def traces(folder: Path, scale: float) -> dict[str, Workload]:
    """Agents, documents and chats; a document's block is 512 x scale tokens."""
    shared_documents(folder / "documents.jsonl")
    growing_chats(folder / "chats.jsonl")
    parts = {"system": round(900 * scale), "first": round(500 * scale), "result": round(600 * scale)}
    (folder / "agents.yaml").write_text(AGENTS.format(**parts))
    scaled = TraceOptions(scale_lengths=scale)
    return {
        "agents": open_workload(folder / "agents.yaml"),
        "documents": open_workload(folder / "documents.jsonl", scaled),
        "chats": open_workload(folder / "chats.jsonl", scaled),
    }
