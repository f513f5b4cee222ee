"""A pool of blocks that are given back in least-recently-used order, as vLLM keeps its GPU blocks.

Where a hybrid model keeps states, numbers are doubled: even ones are blocks, odd ones the state at the end of a block,
which takes `state_blocks` blocks' room. A request's entries are given back together, its last block first in line, so
that a prefix never outlives what stands before it. Source: vLLM 0.32 `BlockPool.free_blocks`, `KVCacheManager.free`.
Everything is done on whole arrays: a prompt of thousands of blocks costs microseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from servemark.base.errors import input_error
from servemark.predict.cache_runs import BlockRuns

Ids = npt.NDArray[np.int64]
MAX_NUMBERS = 400_000_000
"""Distinct blocks of a trace, however large the memory is."""
_BYTES = 40
"""Of one distinct block in one pool, its arrays' growth included."""
_PART = 0.6
"""Of the memory that is free when a simulation begins."""
_ABSENT = -1
_PINNED = 0


def as_ids(blocks: Sequence[int]) -> Ids:
    """The numbers as an array, without a copy where they are an `array`."""
    if isinstance(blocks, BlockRuns):
        parts = [np.arange(first, stop) for first, stop in blocks.runs]
        if blocks.partial is not None:
            parts.append(np.array([blocks.partial], np.int64))
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)
    try:
        return np.frombuffer(blocks, dtype=np.int64)  # type: ignore[call-overload, no-any-return]  # array("q")
    except (TypeError, BufferError, ValueError):
        return np.asarray(blocks, dtype=np.int64)


def most_numbers(pools: int) -> int:
    """Distinct blocks that so many pools can tell apart in this machine's free memory, at most MAX_NUMBERS."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
                return min(MAX_NUMBERS, int(free * _PART) // (_BYTES * max(1, pools)))
    except (OSError, ValueError, IndexError):
        pass
    return MAX_NUMBERS // max(1, pools)


class LruPool:
    """Blocks of one tier. `capacity` in blocks, None: without end. `state_blocks` None: numbers are blocks all. `most`:
    the largest number, beyond which it is said that there are too many.

    `_stamp[number]` is the batch in which the block waits to be given away, _PINNED while a request uses it, _ABSENT
    when it is not here. A batch lists entries in the order of their giving away; one whose stamp has changed since is
    passed over. A negative entry is so many blocks that nobody will ask for (a reply's).
    """

    def __init__(
        self, capacity: int | None, state_blocks: int | None = None, *, most: int = MAX_NUMBERS
    ) -> None:
        self._most = most
        self.capacity = capacity
        self.free = capacity if capacity is not None else 1 << 62
        self.used = 0
        self.evicted = 0
        self.overcommitted = 0
        """Blocks that were asked for when all others were in use."""
        self._stamp = np.full(1024, _ABSENT, np.int64)
        self._pins = np.zeros(1024, np.int32)
        self._state_blocks = state_blocks
        self._queue: deque[tuple[int, Ids]] = deque()
        self._queued = 0
        self._valid = 0
        self._batch = 0

    def grow(self, number: int) -> None:
        """Make room for numbers below `number`. Raises ServemarkError (exit code 2) beyond `most`."""
        have = len(self._stamp)
        if number <= have:
            return
        if number > self._most:
            raise input_error("predict.cache.too_many_blocks", limit=f"{self._most:,}")
        size = max(number, min(self._most, have + have // 2))
        self._stamp = np.concatenate([self._stamp, np.full(size - have, _ABSENT, np.int64)])
        self._pins = np.concatenate([self._pins, np.zeros(size - have, np.int32)])

    def weigh(self, ids: Ids) -> Ids:
        """Room that each entry takes, in blocks."""
        if self._state_blocks is None:
            return np.ones(len(ids), np.int64)
        return np.where(ids & 1, self._state_blocks, 1)

    def _room_of(self, ids: Ids) -> int:
        if self._state_blocks is None:
            return len(ids)
        return len(ids) + (self._state_blocks - 1) * int(np.count_nonzero(ids & 1))

    def prefix(self, ids: Ids) -> int:
        """How many of the first entries are here."""
        if not len(ids):
            return 0
        self.grow(int(ids.max()) + 1)
        missing = self._stamp[ids] == _ABSENT
        first = int(missing.argmax())
        return first if missing[first] else len(ids)

    def present(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Which of the entries are here."""
        if not len(ids):
            return np.zeros(0, np.bool_)
        self.grow(int(ids.max()) + 1)
        return np.not_equal(self._stamp[ids], _ABSENT)

    def room(self, ids: Ids, anonymous: int) -> bool:
        """Whether these blocks, and so many nameless ones, fit beside what is in use."""
        if self.capacity is None or self._room_of(ids) + anonymous <= self.free + self._valid:
            return True  # even if none of them were here, or all of them waited
        new = self._room_of(ids[~self.present(ids)])
        waiting = self._valid - self._room_of(ids[self._stamp[ids] > _PINNED])
        return new + anonymous <= self.free + waiting

    def pin(self, ids: Ids, anonymous: int = 0) -> int:
        """Use these blocks: those that are here leave the line, others and the nameless ones take the place of the
        longest unused. Returns how many were new."""
        if len(ids):
            self.grow(int(ids.max()) + 1)
        stamps = self._stamp[ids]
        fresh = stamps == _ABSENT
        new = self._room_of(ids[fresh])
        self._valid -= self._room_of(ids[stamps > _PINNED])
        self._stamp[ids] = _PINNED
        self._pins[ids] += 1
        self._take(new + anonymous)
        return new

    def _take(self, blocks: int) -> None:
        if blocks > self.free:
            self._evict(blocks - self.free)
        if blocks > self.free:
            self.overcommitted += blocks - self.free
        self.free -= blocks
        self.used += blocks

    def unpin(self, ids: Ids, kept_anonymous: int = 0, free_anonymous: int = 0) -> None:
        """A request has ended: blocks that no other uses wait in line behind all others, the last of the prompt first.
        `kept_anonymous` full blocks of its reply wait before them; `free_anonymous` ones are free at once."""
        self._pins[ids] -= 1
        idle = ids[self._pins[ids] == 0]
        self._batch += 1
        self._stamp[idle] = self._batch
        entries = idle[::-1]
        if kept_anonymous:
            entries = np.concatenate([np.array([-kept_anonymous], np.int64), entries])
        self.free += free_anonymous
        self.used -= free_anonymous
        if len(entries):
            self._queue.append((self._batch, np.ascontiguousarray(entries)))
            self._queued += len(entries)
            self._valid += self._room_of(idle) + kept_anonymous
        if self._queued > 4096 and self._queued > 4 * self._valid + 64 * len(self._queue):
            self._compact()
        if self.free < 0 and self._valid:
            self._evict(-self.free)

    def _live(self, batch: int, entries: Ids) -> Ids:
        named = entries >= 0
        keep = ~named
        keep[named] = self._stamp[entries[named]] == batch
        return entries[keep]

    def _compact(self) -> None:
        """Let go of entries that are passed over anyway."""
        kept = deque((batch, live) for batch, e in self._queue if len(live := self._live(batch, e)))
        self._queue = kept
        self._queued = sum(len(entries) for _, entries in kept)

    def _evict(self, blocks: int) -> None:
        """Free at least so many blocks, as far as any are in line."""
        while blocks > 0 and self._queue:
            batch, entries = self._queue.popleft()
            self._queued -= len(entries)
            live = self._live(batch, entries)
            if not len(live):
                continue
            weights = np.where(live < 0, -live, self.weigh(live))
            ends = np.cumsum(weights)
            cut = int(np.searchsorted(ends, blocks)) + 1
            gone, rest = live[:cut], live[cut:]
            freed = int(ends[min(cut, len(live)) - 1])
            over = freed - blocks
            if over > 0 and gone[-1] < 0:  # only a part of the nameless ones is needed
                rest = np.concatenate([np.array([-over], np.int64), rest])
                freed = blocks
            self._stamp[gone[gone >= 0]] = _ABSENT
            self.evicted += freed
            self._valid -= freed
            self.free += freed
            self.used -= freed
            blocks -= freed
            if len(rest):
                self._queue.appendleft((batch, rest))
                self._queued += len(rest)

    def touch(self, ids: Ids) -> int:
        """Put these blocks at the end of the line, new ones included. Returns how many were new."""
        new = self.pin(ids)
        self.unpin(ids)
        return new
