"""Does a deployment give the same greedy answers whatever it is busy with?

The same prompts are sent four times: one at a time, one at a time again (prefixes are cached now), `concurrency` at a
time, and `concurrency` at a time again. What differs from the first pass is listed. Where a deployment hands KV from
prefill to decode, every pass goes that way. Floating-point sums depend on the batch, so near ties may fall either way: a
few differing replies under load are usual, differing ones at the same load or on cache hits are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from servemark.base.errors import ServemarkError
from servemark.evals.runner import Send
from servemark.evals.tasks import EvalItem, EvalTask
from servemark.replay.record import RequestRecord

PassName = Literal["alone", "alone_cached", "together", "together_cached"]
PASSES: tuple[PassName, ...] = ("alone", "alone_cached", "together", "together_cached")
MAX_LISTED = 20
AROUND = 40
"""Characters shown on either side of the first that differs."""


@dataclass(frozen=True, slots=True)
class DifferingReply:
    """One prompt whose reply is not that of the first pass. `at` is the first character that differs, from 0; `share` how
    much of the longer reply is common to the beginning of both, 0..1."""

    item: str
    at: int
    share: float
    first: str
    now: str


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass. `cached_tokens` of `input_tokens` came from the cache, None where the server does not say; `compared`
    prompts were answered in this pass and in the first, `differing` of them otherwise."""

    name: PassName
    concurrency: int
    answered: int
    failed: int
    cached_tokens: int | None
    input_tokens: int | None
    compared: int
    differing: int
    listed: tuple[DifferingReply, ...]

    @property
    def cached_share(self) -> float | None:
        """Cached / all prompt tokens of the pass; None where the server does not say."""
        if self.cached_tokens is None or not self.input_tokens:
            return None
        return self.cached_tokens / self.input_tokens


@dataclass(slots=True)
class Probe:
    """All passes over `prompts` prompts of a task."""

    task: str
    version: str
    prompts: int
    passes: list[Pass] = field(default_factory=list)

    @property
    def same(self) -> bool:
        """Every prompt was answered in every pass, and alike."""
        return all(not each.differing and each.answered == self.prompts for each in self.passes)


def first_difference(one: str, other: str) -> int | None:
    """Index of the first character that differs; None for equal texts."""
    if one == other:
        return None
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def differing(item: str, first: str, now: str) -> DifferingReply | None:
    """What differs between two replies to one prompt; None when nothing does."""
    at = first_difference(first, now)
    if at is None:
        return None
    low, high = max(0, at - AROUND), at + AROUND
    return DifferingReply(item, at, at / max(len(first), len(now)), first[low:high], now[low:high])


async def probe(
    task: EvalTask,
    send: Send,
    concurrency: int,
    on_pass: Callable[[Pass], None] | None = None,
    stop: asyncio.Event | None = None,
) -> Probe:
    """Send a task's first messages in four passes (module). Failures are counted and compare with nothing. With `stop`
    set it ends after what is in flight. Raises ValueError for no items or a concurrency below 1."""
    if concurrency < 1 or not task.items:
        raise ValueError("a probe needs items and a concurrency of at least 1")
    found = Probe(task.id, task.version, len(task.items))
    reference: dict[str, str] = {}
    for name in PASSES:
        at = 1 if name.startswith("alone") else concurrency
        records = await _ask(task, send, at, stop)
        replies = {item: record.text or "" for item, record in records.items() if record.outcome == "ok"}
        if name == "alone":
            reference = replies
        made = _pass(name, at, records, replies, reference)
        found.passes.append(made)
        if on_pass is not None:
            on_pass(made)
        if not reference or (stop is not None and stop.is_set()):
            break
    return found


async def _ask(
    task: EvalTask, send: Send, concurrency: int, stop: asyncio.Event | None
) -> dict[str, RequestRecord]:
    records: dict[str, RequestRecord] = {}
    queue = iter(task.items)

    async def work() -> None:
        for item in queue:
            if stop is not None and stop.is_set():
                return
            record = await _one(task, item, send)
            if record is not None:
                records[item.id] = record

    await asyncio.gather(*(work() for _ in range(min(concurrency, len(task.items)))))
    return records


async def _one(task: EvalTask, item: EvalItem, send: Send) -> RequestRecord | None:
    try:
        return await send(task.prompt(item))
    except (ServemarkError, OSError):
        return None  # counted as failed


def _pass(
    name: PassName,
    concurrency: int,
    records: dict[str, RequestRecord],
    replies: dict[str, str],
    reference: dict[str, str],
) -> Pass:
    shared = [item for item in reference if item in replies]
    found = [one for item in shared if (one := differing(item, reference[item], replies[item])) is not None]
    good: Sequence[RequestRecord] = [r for r in records.values() if r.outcome == "ok"]
    return Pass(
        name=name,
        concurrency=concurrency,
        answered=len(replies),
        failed=len(records) - len(replies),
        cached_tokens=_total([r.cached_tokens for r in good]),
        input_tokens=_total([r.input_tokens for r in good]),
        compared=len(shared),
        differing=len(found),
        listed=tuple(found[:MAX_LISTED]),
    )


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
