"""A small suite on the real embedded engine, the command line as a process, and what may be left of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MASTER = """
tiny:
  image: pypi#xllamacpp:2026.10.11549
  model: HuggingFaceTB/SmolLM2-135M-Instruct
  model-prefix: smollm2
  runner: cluster:local
  precision: q4_1
  framework: llamacpp
  multinode: true
  scenarios:
    agentic-coding:
    - search-space:
      - spec-decoding: none
        kv-offloading: none
        conc-list: [1, 2]
        prefill: {num-worker: 1, tp: 1, ep: 1, dp-attn: false, additional-settings: ["CONFIG_FILE=recipes/tiny.yaml"]}
        decode: {num-worker: 0, tp: 1, ep: 1, dp-attn: false}
"""
RECIPE = """
schema: 2
name: tiny
model: {path: "MODEL", container: "pypi#xllamacpp:2026.10.11549", precision: q4_1}
engine: {type: llamacpp}
health_check: {max_attempts: READY, interval_seconds: 1}
roles:
  aggregated: {workers: 1, gpus: 0, args: {ctx-size: 4096, parallel: 2, cache-ram: 0}}
benchmark:
  type: servemark
  workload: work.yaml
  cache_state: marked
  warmup_requests: 1
  evals: []
  idle_timeout_s: IDLE
"""
WORK = """
kind: agentic
seed: 7
sessions: SESSIONS
turns: [2, 2]
system_tokens: 24
tools_tokens: 24
first_user_tokens: [8, 16]
tool_result_tokens: {median: 16, sigma: 0.3, min: 8, max: 32}
output_tokens: {median: OUT, sigma: 0, min: OUT, max: OUT}
think_s: {median: 0.05, sigma: 0.1, cap: 0.1}
"""


@pytest.fixture
def make_suite(tmp_path: Path) -> Callable[..., Path]:
    """Write a suite folder; options change what the tests vary."""

    def make(
        *,
        model: str = "embedded:smollm2-135m-instruct-q4_1",
        sessions: int = 2,
        out: int = 8,
        idle_s: float = 30,
        ready_s: int = 60,
        name: str = "suite",
    ) -> Path:
        folder = tmp_path / name
        (folder / "recipes").mkdir(parents=True)
        (folder / "suite.yaml").write_text(
            f"name: {name}\nmasters: [master.yaml]\nrecipe-roots: [recipes]\n", encoding="utf-8"
        )
        (folder / "master.yaml").write_text(MASTER, encoding="utf-8")
        recipe = RECIPE.replace("MODEL", model).replace("IDLE", str(idle_s)).replace("READY", str(ready_s))
        (folder / "recipes" / "tiny.yaml").write_text(recipe, encoding="utf-8")
        work = WORK.replace("SESSIONS", str(sessions)).replace("OUT", str(out))
        (folder / "work.yaml").write_text(work, encoding="utf-8")
        return folder

    return make


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `servemark ARGS` as a process of its own; whatever still lives at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(*args: str, code: str | None = None, **env: str) -> subprocess.Popen[str]:
        entry = ["-m", "servemark"] if code is None else ["-c", code]
        process = subprocess.Popen(
            [sys.executable, *entry, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "LANG": "C.UTF-8", **env},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def processes_with(mark: str) -> list[int]:
    """Ids of live processes whose command line holds `mark` (zombies have none)."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if mark in line:
                found.append(int(folder.name))
    return found


@pytest.fixture
def none_left() -> Callable[[str], None]:
    """Assert that no process with this mark in its command line lives on, within a few seconds."""

    def check(mark: str) -> None:
        deadline = time.monotonic() + 10
        while processes_with(mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert processes_with(mark) == []

    return check


@pytest.fixture
def wait_for() -> Callable[..., None]:
    """Wait until a condition holds, or fail."""

    def wait(condition: Callable[[], object], seconds: float = 40) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it never came to be"
            time.sleep(0.02)

    return wait
