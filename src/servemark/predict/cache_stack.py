"""Hits of a least-recently-used cache of every size in one pass: stack distances.

A block's distance is how many blocks were used since it was, itself included; a cache of at least that many blocks still
has it. Blocks of a prompt that were last used together form a run whose distances go up by one, so a prompt costs a few
steps whatever its length. Source: Mattson, Gecsei, Slutz and Traiger 1970; the number of blocks used since a moment is
a sum over a binary indexed tree.
"""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np

from servemark.base.errors import input_error
from servemark.predict.cache_pool import MAX_NUMBERS, Ids


class StackDistances:
    """Fed with whole prompts, one after another; nothing is pinned in this model."""

    def __init__(self) -> None:
        self._last = np.full(1024, -1, np.int64)
        self._counts = array("q", [0])
        self._sums = array("q", [0])
        self._before = array("q")
        self._lengths = array("q")
        self.distinct = 0
        """Blocks ever used."""

    def use(self, ids: Ids, limit: int, nameless: int = 0) -> None:
        """A prompt of these blocks, the first `limit` of which may hit; then `nameless` blocks that nobody asks for.

        Raises ServemarkError (exit code 2) for more distinct blocks than are held.
        """
        if len(ids):
            self._grow(int(ids.max()) + 1)
        stamps = self._last[ids]
        known = len(ids) if not len(ids) or stamps[-1] >= 0 else int((stamps < 0).argmax())
        self._add_batch()
        batch = len(self._counts) - 1
        if known:
            cuts = [0, *(np.flatnonzero(np.diff(stamps[:known])) + 1).tolist(), known]
            for start, stop in pairwise(cuts):
                then = int(stamps[start])
                hits = min(stop, limit) - start
                if hits > 0:
                    self._before.append(self._used_since(then))
                    self._lengths.append(hits)
            for start, stop in pairwise(cuts):
                self._change(int(stamps[start]), start - stop)
        self._change(batch, len(ids) + nameless)
        self._last[ids] = batch
        self.distinct += len(ids) - known

    def hits(self, capacity: int | None) -> int:
        """Blocks that a cache of `capacity` blocks finds; None: of one without end."""
        lengths = np.frombuffer(self._lengths, np.int64) if self._lengths else np.zeros(0, np.int64)
        if capacity is None:
            return int(lengths.sum())
        before = np.frombuffer(self._before, np.int64) if self._before else np.zeros(0, np.int64)
        return int(np.clip(capacity - before, 0, lengths).sum())

    @property
    def deepest(self) -> int:
        """The least capacity that finds everything."""
        return max((a + b for a, b in zip(self._before, self._lengths, strict=True)), default=0)

    def _grow(self, number: int) -> None:
        have = len(self._last)
        if number > MAX_NUMBERS:
            raise input_error("predict.cache.too_many_blocks", limit=f"{MAX_NUMBERS:,}")
        if number > have:
            size = max(number, have + have // 2)
            self._last = np.concatenate([self._last, np.full(size - have, -1, np.int64)])

    def _add_batch(self) -> None:
        """Append an empty batch. `_sums[i]` covers the batches (i - lowbit(i), i], counted from 1."""
        self._counts.append(0)
        place = len(self._counts) - 1
        low, total, step = place & -place, 0, 1
        while step < low:
            total += self._sums[place - step]
            step *= 2
        self._sums.append(total)

    def _change(self, batch: int, by: int) -> None:
        self._counts[0] += by  # place 0 is no batch: it holds the sum of all
        place, size = batch, len(self._sums)
        while place < size:
            self._sums[place] += by
            place += place & -place

    def _used_since(self, batch: int) -> int:
        """Blocks whose last use is in a later batch."""
        total, place = self._counts[0], batch
        while place:
            total -= self._sums[place]
            place -= place & -place
        return total


def least_capacity(stacks: list[StackDistances], blocks: int) -> int:
    """The least capacity of each of several caches with which they find at least `blocks` together."""
    low, high = 0, max((s.deepest for s in stacks), default=0)
    while low < high:
        middle = (low + high) // 2
        if sum(s.hits(middle) for s in stacks) >= blocks:
            high = middle
        else:
            low = middle + 1
    return low
