"""Asks a task's items of an endpoint, some at a time, and judges every reply.

How many items there are is known before the first is sent; whatever happens, every one of them is counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from servemark.base.errors import ServemarkError
from servemark.evals.samples import MAX_REPLY_CHARS, SampleRecord
from servemark.evals.statistics import Tally, TaskStatistics, score_of
from servemark.evals.suspect import refuses, rejected, suspect
from servemark.evals.tasks import ChatMessage, EvalItem, EvalPrompt, EvalTask, Reply, Verdict
from servemark.metrics.accuracy import EvalScore
from servemark.replay.record import Outcome, RequestRecord

Send = Callable[[EvalPrompt], Awaitable[RequestRecord]]
"""Sends one request and waits for its end; `text` must be kept in the record. Failures come back as a
record's outcome or as ServemarkError or OSError."""

Ended = Literal["complete", "stopped", "dead"]
"""complete: every item was asked. stopped: the caller's stop was set. dead: the server failed item after
item."""

DEAD_AFTER = 4
"""The task ends early when this many items in a row, and no fewer than are in flight, got no reply at all."""
ITEM_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """A task's score, its statistics, and samples for showing: all of them, in the order of the task's items, unless
    they were only streamed (`run_task`) or are too many (`evals.io.read_evals`). Items without a sample are missing:
    they were never answered because the task ended early; they count as wrong and as unanswered."""

    score: EvalScore
    statistics: TaskStatistics
    samples: tuple[SampleRecord, ...]
    preamble: tuple[ChatMessage, ...]
    ended: Ended

    @property
    def missing(self) -> int:
        """Items without a sample."""
        return self.statistics.missing

    @property
    def sampled(self) -> int:
        """Items with a sample, which the samples file holds."""
        return self.statistics.expected_n - self.statistics.missing

    @property
    def failed(self) -> int:
        """Items whose last request ended without a reply."""
        return self.statistics.failed

    @property
    def retried(self) -> int:
        """Items that were asked more than once."""
        return self.statistics.retried


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an earlier, unfinished attempt left: `tally` of its good samples, their items, and for items that failed the
    names of the failures, which the next attempt goes on from."""

    tally: Tally
    items: frozenset[str]
    failures: Mapping[str, tuple[str, ...]]
    duration_s: float = 0.0


async def run_task(
    task: EvalTask,
    send: Send,
    concurrency: int,
    on_item: Callable[[SampleRecord, int, int], None] | None = None,
    stop: asyncio.Event | None = None,
    *,
    item_timeout_s: float = ITEM_TIMEOUT_S,
    earlier: Earlier | None = None,
    keep: int | None = None,
) -> TaskOutcome:
    """Ask every item, `concurrency` at a time, and judge the replies.

    A failed request is sent once more; one that ran into a timeout is not, since it would only cost as long again, and
    neither is one that the server rejected. `on_item` gets each sample with the number done and the number expected.
    When `stop` is set, or when the server is dead, what is in flight is cancelled and the outcome says how many items
    are missing.
    Items that `earlier` has are not asked again. The outcome holds the first `keep` samples (None: all), so that
    memory does not grow with the task when `on_item` keeps them elsewhere.
    Raises what `on_item` and the task's judge raise, nothing for what a server does; a cancellation of this call ends
    everything it started.
    """
    if concurrency < 1 or not task.items:
        raise ValueError("a task needs items and a concurrency of at least 1")
    run = _Run(task, send, on_item, item_timeout_s, concurrency, earlier, keep)
    began = time.monotonic()
    workers = [asyncio.create_task(run.work()) for _ in range(min(concurrency, len(task.items)))]
    finished = asyncio.create_task(_all_of(workers))
    signals = [run.dead] if stop is None else [run.dead, stop]
    watchers = [asyncio.create_task(_wait_for(signal)) for signal in signals]
    try:
        await asyncio.wait([finished, *watchers], return_when=asyncio.FIRST_COMPLETED)
        if finished.done():
            finished.result()  # a bug in judging or in `on_item` must not pass for a result
    finally:
        for pending in (finished, *workers, *watchers):
            pending.cancel()
        await asyncio.gather(finished, *workers, *watchers, return_exceptions=True)
    return run.outcome(time.monotonic() - began + (earlier.duration_s if earlier else 0.0))


async def _all_of(workers: list[asyncio.Task[None]]) -> None:
    await asyncio.gather(*workers)


async def _wait_for(signal: asyncio.Event) -> None:
    await signal.wait()


class _Run:
    """The state that the workers of one task share."""

    def __init__(  # noqa: PLR0917 - what `run_task` was given
        self,
        task: EvalTask,
        send: Send,
        on_item: Callable[[SampleRecord, int, int], None] | None,
        item_timeout_s: float,
        concurrency: int,
        earlier: Earlier | None,
        keep: int | None,
    ) -> None:
        self.task = task
        self.send = send
        self.on_item = on_item
        self.item_timeout_s = item_timeout_s
        self.concurrency = concurrency
        self.dead_after = max(DEAD_AFTER, concurrency)
        self.dead = asyncio.Event()
        self.failures = earlier.failures if earlier else {}
        self.queue = (item for item in task.items if earlier is None or item.id not in earlier.items)
        self.tally = earlier.tally if earlier else Tally(len(task.items))
        self.keep = len(task.items) if keep is None else keep
        self.kept: dict[str, SampleRecord] = {}
        self.failed_in_a_row = 0

    async def work(self) -> None:
        """Take items until none is left or the server is dead."""
        for item in self.queue:
            sample = await self._ask(item)
            self.tally.add(sample)
            if len(self.kept) < self.keep:
                self.kept[item.id] = sample
            if self.on_item is not None:
                self.on_item(sample, self.tally.seen, len(self.task.items))
            alive = sample.outcome == "ok" or sample.suspect == "rejected"
            self.failed_in_a_row = 0 if alive else self.failed_in_a_row + 1
            if self.failed_in_a_row >= self.dead_after:
                self.dead.set()
                return

    async def _ask(self, item: EvalItem) -> SampleRecord:
        """All turns of an item; one that fails twice ends it."""
        failures = self.failures.get(item.id, ())
        replies: tuple[str, ...] = ()
        while True:
            prompt = self.task.prompt(item, 0, replies)
            record = await self._attempt(prompt)
            if record.outcome in ("error", "incomplete") and not rejected(record):
                failures = (*failures, record.error_kind or record.outcome)
                record = await self._attempt(self.task.prompt(item, 1, replies))
            if record.outcome != "ok" or len(replies) == len(item.turns):
                return judged(self.task, item, record, prompt, failures, self.concurrency)
            replies = (*replies, clean(record.text) or "")

    async def _attempt(self, prompt: EvalPrompt) -> RequestRecord:
        """One request. The time limit is this room's own, for senders that have none."""
        try:
            async with asyncio.timeout(self.item_timeout_s):
                return await self.send(prompt)
        except TimeoutError:
            return self._failed(prompt, "timeout", "item_timeout")
        except ServemarkError as error:
            return self._failed(prompt, "error", error.key)
        except OSError as error:
            return self._failed(prompt, "error", error.strerror or type(error).__name__)

    def _failed(self, prompt: EvalPrompt, outcome: Outcome, kind: str) -> RequestRecord:
        return RequestRecord(
            prompt.item, prompt.item, prompt.attempt, "eval", outcome=outcome, error_kind=kind
        )

    def outcome(self, duration_s: float) -> TaskOutcome:
        """The figures of what was done so far; items without a sample are missing."""
        found = self.tally.statistics()
        ended: Ended = "dead" if self.dead.is_set() else "stopped" if found.missing else "complete"
        return TaskOutcome(
            score=score_of(self.task.id, self.task.version, found, duration_s, self.concurrency),
            statistics=found,
            samples=tuple(self.kept[item.id] for item in self.task.items if item.id in self.kept),
            preamble=self.task.preamble,
            ended=ended,
        )


def clean(text: str | None) -> str | None:
    """A server may send any length and halves of surrogate pairs, which no JSON file can hold."""
    return None if text is None else text[:MAX_REPLY_CHARS].encode("utf-8", "replace").decode("utf-8")


def judged(  # noqa: PLR0917 - all that a sample is made from
    task: EvalTask,
    item: EvalItem,
    record: RequestRecord,
    prompt: EvalPrompt,
    failures: tuple[str, ...] = (),
    concurrency: int | None = None,
) -> SampleRecord:
    """The sample of one item and the record of its last request. A reply counts only when it ended as it
    should: half an answer that happens to be right is no answer."""
    ok = record.outcome == "ok"
    reply = clean(record.text)
    verdict = Verdict(None)
    if ok and (reply is not None or record.calls):
        calls = tuple((name, said) for name, said in record.calls or ())
        verdict = task.judge(item, Reply(reply or "", record.finish_reason, calls))
    latency_s = None
    if ok and record.start_s is not None and record.end_s is not None:
        latency_s = record.end_s - record.start_s
    reason = None
    if not verdict.correct:
        reason = suspect(record, prompt.messages, task.tools, task.calls, verdict.extracted is not None)
    return SampleRecord(
        item=item.id,
        kind=item.kind,
        prompt=prompt.messages[-1][1],
        expected=item.expected,
        reply=reply,
        extracted=clean(verdict.extracted),
        correct=verdict.correct,
        outcome=record.outcome,
        error_kind=record.error_kind,
        finish_reason=record.finish_reason,
        latency_s=latency_s,
        input_tokens=record.input_tokens,
        output_tokens=record.output_tokens,
        cached_tokens=record.cached_tokens,
        failures=failures,
        refused=ok and not verdict.correct and refuses(reply),
        suspect=reason,
        before=prompt.messages[len(task.preamble) : -1],
        task=task.id,
        version=task.version,
        concurrency=concurrency,
    )
