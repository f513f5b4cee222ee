"""A real engine is asked the prompts of a workload as token ids, and says how many of them it had cached."""

from __future__ import annotations

import contextlib
import json
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
from servemark.traces.types import Session, Workload

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
def running(command: Sequence[str], url: str, log: Path, budget_s: float, env: dict[str, str] | None = None) -> Iterator[str]:
    """The base URL of an engine that is healthy; it is ended afterwards."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True)
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
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def prompt_of(request: CacheRequest) -> list[int]:
    """Token ids: equal numbers of one-token blocks are equal ids, others rarely are."""
    return [LOWEST + number % IDS for number in request.blocks]


def ask_all(url: str, workload: Workload, lanes: int, model: str = "default") -> Asked:
    """Every session's turns in order, `lanes` sessions at a time, without think times."""
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
            except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
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
    import random  # noqa: PLC0415

    rng = random.Random(seed)
    rows = []
    for number in range(24):
        document = rng.randrange(5)
        ids = [0, *(100 * (document + 1) + k for k in range(rng.randint(2, 4))), 1000 + number]
        tokens = 512 * len(ids) - rng.randint(0, 400)
        rows.append({"timestamp": number * 1000, "input_length": tokens, "output_length": 60, "hash_ids": ids})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def all_sessions(workload: Workload) -> list[Session]:
    """In order."""
    return list(workload.sessions)
