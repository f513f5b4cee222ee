"""Every item is counted, whatever the server does."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.evals.runner import TaskOutcome, run_task
from servemark.evals.samples import SampleRecord
from servemark.evals.statistics import statistics_of
from servemark.evals.tasks import EvalItem, EvalPrompt, EvalTask
from servemark.replay.record import Outcome, RequestRecord


def task(n: int = 10) -> EvalTask:
    """Item i asks `qi` and expects `ai`."""
    items = tuple(EvalItem(f"i{k}", "kind", f"q{k}", f"a{k}") for k in range(n))
    return EvalTask("t", "1", (("system", "s"),), items, 8)


def record(
    prompt: EvalPrompt, text: str | None, outcome: Outcome = "ok", finish: str | None = "stop"
) -> RequestRecord:
    """What a client would return for a prompt."""
    made = RequestRecord(
        prompt.item, prompt.item, 0, "eval", text=text, outcome=outcome, finish_reason=finish
    )
    made.start_s, made.end_s = 1.0, 1.25
    made.input_tokens, made.output_tokens, made.cached_tokens = 30, 2, 20
    made.error_kind = None if outcome == "ok" else "http_500"
    return made


def right(prompt: EvalPrompt) -> str:
    """The expected answer of a prompt's item."""
    return prompt.messages[-1][1].replace("q", "a")


def answering(
    reply: Callable[[EvalPrompt], RequestRecord],
) -> Callable[[EvalPrompt], Awaitable[RequestRecord]]:
    """A sender that takes one turn of the event loop."""

    async def send(prompt: EvalPrompt) -> RequestRecord:
        await asyncio.sleep(0)
        return reply(prompt)

    return send


def run(reply: Callable[[EvalPrompt], RequestRecord], n: int = 10, concurrency: int = 3) -> TaskOutcome:
    """Run the task against `reply`."""
    return asyncio.run(run_task(task(n), answering(reply), concurrency))


def test_all_right() -> None:
    outcome = run(lambda p: record(p, right(p).upper() + "."))
    score = outcome.score
    assert (score.n, score.expected_n, score.correct, score.score, score.stderr) == (10, 10, 10, 1.0, 0.0)
    assert (outcome.ended, outcome.missing, outcome.failed, outcome.retried) == ("complete", 0, 0, 0)
    assert [s.item for s in outcome.samples] == [f"i{k}" for k in range(10)]
    first = outcome.samples[0]
    assert first == SampleRecord(
        item="i0",
        kind="kind",
        prompt="q0",
        expected="a0",
        reply="A0.",
        extracted="A0.",
        correct=True,
        outcome="ok",
        error_kind=None,
        finish_reason="stop",
        latency_s=0.25,
        input_tokens=30,
        output_tokens=2,
        cached_tokens=20,
        task="t",
        version="1",
        concurrency=3,
    )


def test_wrong_empty_and_cut_replies() -> None:
    """Of ten: 5 right, 2 wrong, 2 empty, 1 cut. By hand: p = 0.5, stderr = sqrt(0.25 / 10)."""
    replies: dict[str, tuple[str | None, str]] = {
        "i5": ("no", "stop"),
        "i6": ("no", "stop"),
        "i7": ("", "stop"),
        "i8": (None, "stop"),
        "i9": ("a9 and so on and", "length"),
    }

    def reply(prompt: EvalPrompt) -> RequestRecord:
        text, finish = replies.get(prompt.item, (right(prompt), "stop"))
        return record(prompt, text, finish=finish)

    score = run(reply).score
    assert (score.correct, score.score, score.unanswered, score.truncated) == (5, 0.5, 3, 1)
    assert score.stderr == pytest.approx(math.sqrt(0.025))


def test_strange_replies_can_be_kept() -> None:
    """Half a surrogate pair becomes a question mark; of a reply without end the beginning is kept."""
    outcome = run(lambda p: record(p, "\ud83d" if p.item == "i0" else "x" * 1_000_000))
    assert outcome.samples[0].reply == "?"
    assert len(outcome.samples[1].reply or "") == 10_000
    assert outcome.score.correct == 0


def test_a_constant_answer_scores_its_share() -> None:
    assert run(lambda p: record(p, "a3")).score.correct == 1


def test_a_failed_request_is_sent_once_more() -> None:
    """i2 fails once; i4 fails twice; i6's stream breaks off with the right answer in it, twice; i8 times
    out."""
    sent: list[tuple[str, int]] = []

    def reply(prompt: EvalPrompt) -> RequestRecord:
        sent.append((prompt.item, prompt.attempt))
        if prompt.item == "i4" or (prompt.item == "i2" and prompt.attempt == 0):
            return record(prompt, None, "error")
        if prompt.item == "i6":
            return record(prompt, right(prompt), "incomplete")
        if prompt.item == "i8":
            return record(prompt, None, "timeout")
        return record(prompt, right(prompt))

    outcome = run(reply, concurrency=1)
    by_item = {s.item: s for s in outcome.samples}
    assert by_item["i2"].correct
    assert by_item["i2"].failures == ("http_500",)
    assert not by_item["i4"].correct
    assert by_item["i4"].outcome == "error"
    assert by_item["i4"].latency_s is None
    assert not by_item["i6"].correct
    assert by_item["i6"].extracted is None
    assert by_item["i6"].reply == "a6"
    assert by_item["i8"].failures == ()
    assert [s for s in sent if s[0] in ("i2", "i4", "i6", "i8")] == [
        ("i2", 0),
        ("i2", 1),
        ("i4", 0),
        ("i4", 1),
        ("i6", 0),
        ("i6", 1),
        ("i8", 0),
    ]
    assert (outcome.score.correct, outcome.score.unanswered, outcome.failed, outcome.retried) == (7, 3, 3, 3)
    assert outcome.ended == "complete"


def raising(error: BaseException) -> Callable[[EvalPrompt], RequestRecord]:
    """A sender that raises."""

    def reply(prompt: EvalPrompt) -> RequestRecord:
        raise error

    return reply


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (
            ServemarkError("traces.too_few_words", Layer.REPLAY, found=1, tried=2, needed=3),
            "traces.too_few_words",
        ),
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError(), "item_timeout"),
    ],
)
def test_a_dead_server_ends_the_task(error: Exception, kind: str) -> None:
    """After four items in a row without a reply (or as many as are in flight) the rest is missing, not
    asked."""
    outcome = run(raising(error), n=100, concurrency=2)
    assert outcome.ended == "dead"
    assert outcome.missing >= 94
    assert outcome.missing + len(outcome.samples) == 100
    assert {s.error_kind for s in outcome.samples} == {kind}
    score = outcome.score
    assert (score.n, score.expected_n, score.correct, score.unanswered) == (100, 100, 0, 100)


def test_a_server_that_dies_on_the_way() -> None:
    """20 right answers, then nothing: the 20 stay right, and the score is still of all 100."""
    count = 0

    def reply(prompt: EvalPrompt) -> RequestRecord:
        nonlocal count
        count += 1
        return record(prompt, right(prompt)) if count <= 20 else record(prompt, None, "error")

    outcome = run(reply, n=100, concurrency=1)
    assert (outcome.ended, outcome.missing, outcome.score.correct, outcome.score.score) == (
        "dead",
        76,
        20,
        0.2,
    )


def test_scattered_failures_do_not_end_it() -> None:
    def reply(prompt: EvalPrompt) -> RequestRecord:
        bad = int(prompt.item[1:]) % 4 != 3
        return record(prompt, None, "error") if bad else record(prompt, right(prompt))

    outcome = run(reply, n=40, concurrency=1)
    assert (outcome.ended, outcome.missing, outcome.score.correct, outcome.failed) == ("complete", 0, 10, 30)


def test_a_hanging_server_is_not_waited_for() -> None:
    async def send(prompt: EvalPrompt) -> RequestRecord:
        await asyncio.sleep(60)
        return record(prompt, right(prompt))

    began = time.monotonic()
    outcome = asyncio.run(run_task(task(50), send, 4, item_timeout_s=0.05))
    assert time.monotonic() - began < 5
    assert outcome.ended == "dead"
    assert {s.outcome for s in outcome.samples} == {"timeout"}
    assert outcome.score.unanswered == 50


def test_stop_cancels_what_is_in_flight() -> None:
    cancelled: list[str] = []
    seen: list[tuple[str, int, int]] = []

    async def main() -> TaskOutcome:
        stop = asyncio.Event()

        async def send(prompt: EvalPrompt) -> RequestRecord:
            if int(prompt.item[1:]) < 6:
                return record(prompt, right(prompt))
            stop.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(prompt.item)
                raise
            raise AssertionError

        def on_item(sample: SampleRecord, done: int, total: int) -> None:
            seen.append((sample.item, done, total))

        return await run_task(task(50), send, 2, on_item, stop)

    outcome = asyncio.run(main())
    assert (outcome.ended, outcome.missing, outcome.score.correct) == ("stopped", 44, 6)
    assert sorted(cancelled) == ["i6", "i7"]
    assert [done for _, done, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert {total for _, _, total in seen} == {50}


def test_concurrency_is_kept() -> None:
    flying = most = 0

    async def send(prompt: EvalPrompt) -> RequestRecord:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0.001)
        flying -= 1
        return record(prompt, right(prompt))

    outcome = asyncio.run(run_task(task(40), send, 7))
    assert most == 7
    assert outcome.score.correct == 40


def test_a_bug_is_not_a_result() -> None:
    """What is no failure of a server (here: a fault in the caller's own callback) comes out as it is."""

    def on_item(sample: SampleRecord, done: int, total: int) -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError, match="bug"):
        asyncio.run(run_task(task(), answering(lambda p: record(p, "x")), 3, on_item))
    with pytest.raises(ZeroDivisionError):
        run(raising(ZeroDivisionError()))
    with pytest.raises(ValueError, match="concurrency"):
        run(lambda p: record(p, "x"), concurrency=0)


def test_cancelling_the_call_ends_everything() -> None:
    async def main() -> int:
        async def send(prompt: EvalPrompt) -> RequestRecord:
            await asyncio.sleep(60)
            return record(prompt, "x")

        running = asyncio.create_task(run_task(task(), send, 3))
        await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return len(asyncio.all_tasks())

    assert asyncio.run(main()) == 1  # only main itself is left


def test_a_task_of_nothing_has_no_statistics() -> None:
    with pytest.raises(ValueError, match="needs items"):
        statistics_of(0, ())
