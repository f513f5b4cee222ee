"""Against fakesse, which logs in its own process when it really emitted each event of each request."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.replay.conftest import ask

from servemark.replay.client import Client, Target, run
from servemark.replay.record import RequestRecord

SOURCES = Path(__file__).resolve().parents[2] / "benchmarks" / "replay" / "fakesse"
STREAMS, EVENTS = 8, 20
LATE_MS = 250


@dataclass(frozen=True, slots=True)
class FakeServer:
    """A running fakesse and its log, which `dump` writes."""

    url: str
    log: Path

    def dump(self) -> dict[str, tuple[int, list[int]]]:
        """Request id -> moment of receipt (monotonic ns) and of each content event (ns after it)."""
        urllib.request.urlopen(f"{self.url}/__dump", timeout=10).close()
        with self.log.open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        return {
            row["request_id"]: (int(row["mono_recv_ns"]), [int(at) for at in row["emitted_ns"].split()])
            for row in rows
        }


Start = Callable[..., AbstractContextManager[FakeServer]]


@pytest.fixture(scope="module")
def fakesse(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Builds the server once; call it with switches to run one."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("fakesse")
    binary = folder / "fakesse"
    subprocess.run([compiler, "-O1", "-o", str(binary), str(SOURCES / "fakesse.c")], check=True)

    @contextlib.contextmanager
    def start(*switches: str) -> Iterator[FakeServer]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        log = folder / f"{port}.csv"
        argv = [str(binary), "--port", str(port), "--log", str(log), "--keep-times", "1", *switches]
        process = subprocess.Popen(argv)
        try:
            url = f"http://127.0.0.1:{port}"
            for _ in range(200):
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=1):
                    break
                time.sleep(0.01)
            yield FakeServer(url, log)
        finally:
            process.terminate()
            process.wait()

    return start


def replay(server: FakeServer, tokens: int) -> tuple[list[RequestRecord], int]:
    """Some streams at once; returns their records and the client's zero."""
    zero_ns = time.monotonic_ns()

    async def main() -> list[RequestRecord]:
        async with Client(Target(server.url, "fake"), zero_ns=zero_ns) as client:
            await client.warm(STREAMS)
            requests = [ask(f"r{n}", max_tokens=tokens, keep_text=True) for n in range(STREAMS)]
            return await asyncio.gather(*(client.send(request) for request in requests))

    return run(main()), zero_ns


@pytest.mark.parametrize(
    ("switches", "tokens_per_event", "origin"),
    [
        ([], 1, "usage"),
        (["--role-early", "1"], 1, "usage"),
        (["--crlf", "1", "--comments", "1"], 1, "usage"),
        (["--split-us", "200"], 1, "usage"),
        (["--no-usage", "1"], 1, "chunks"),
        (["--batch", "4"], 1, "usage"),
        (["--tok-per-chunk", "3", "--usage-all", "1"], 3, "usage"),
    ],
    ids=lambda value: "-".join(value).replace("--", "") if isinstance(value, list) else str(value),
)
def test_arrivals_against_the_servers_log(
    fakesse: Start, switches: list[str], tokens_per_event: int, origin: str
) -> None:
    """8 streams, first event after 20 ms, then one every 3 ms: each arrival follows its emission, none is
    missing."""
    tokens = EVENTS * tokens_per_event
    with fakesse("--ttft-ms", "20", "--itl-ms", "3", *switches) as server:
        records, zero_ns = replay(server, tokens)
        truth = server.dump()
    for record in records:
        assert record.outcome == "ok"
        assert record.text == " the" * tokens
        assert (record.output_tokens, record.tokens_origin) == (tokens, origin)
        assert record.chunk_tokens == ([tokens_per_event] * EVENTS if "--usage-all" in switches else None)
        received, emitted = truth[record.id]
        assert record.start_s is not None
        assert record.start_s * 1e9 + zero_ns <= received
        assert len(record.chunk_s) == len(emitted) == EVENTS
        for at, true in zip(record.chunk_s, emitted, strict=True):
            late_ms = (at * 1e9 + zero_ns - received - true) / 1e6
            assert -0.001 <= late_ms < LATE_MS


def test_reasoning_then_text(fakesse: Start) -> None:
    """5 events of reasoning: first content is the first of them, first text the sixth event."""
    with fakesse("--ttft-ms", "20", "--itl-ms", "3", "--reasoning", "5") as server:
        records, _ = replay(server, EVENTS)
    for record in records:
        assert len(record.chunk_s) == EVENTS
        assert record.first_text_s == record.chunk_s[5]
        assert record.text == " the" * (EVENTS - 5)
