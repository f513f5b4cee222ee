"""A pool of blocks in least-recently-used order that keeps runs of neighbouring numbers instead of single blocks.

Prompts of a session go on from one another, so their blocks were last used in a few long runs. A run that waits is one
entry of a linked list, longest unused first; within it the last block goes first, as in `cache_pool.LruPool`, whose
rules these are block for block: what is found, given away and counted is the same. A prompt costs a few steps for every
run it has, whatever its length.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, overload

from servemark.base.errors import input_error

Runs = Sequence[tuple[int, int]]
"""(first number, number after the last) of each run, in the prompt's order."""

_SHIFT: Final = 14
"""Runs are kept by 2**14 numbers, so that finding one and making another stays short in a large pool."""
_RUN_NUMBERS: Final = 16
"""A run takes the memory of so many numbers of an array of blocks."""


class BlockRuns(Sequence[int]):
    """Numbers of a prompt's blocks: of its whole ones as runs, then of a partial last one. A prompt of thousands of
    blocks is a few runs."""

    __slots__ = ("partial", "runs")

    def __init__(self, runs: Runs, partial: int | None = None) -> None:
        self.runs = runs
        self.partial = partial

    def __len__(self) -> int:
        return sum(stop - first for first, stop in self.runs) + (self.partial is not None)

    def __iter__(self) -> Iterator[int]:
        numbers = chain.from_iterable(range(first, stop) for first, stop in self.runs)
        return numbers if self.partial is None else chain(numbers, (self.partial,))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        return list(self)[index]


def runs_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as runs of neighbours."""
    found: list[tuple[int, int]] = []
    first = stop = -1
    for number in numbers:
        if number != stop:
            if stop > first:
                found.append((first, stop))
            first = number
        stop = number + 1
    if stop > first:
        found.append((first, stop))
    return found


def part_of(runs: Runs, first: int, stop: int) -> list[tuple[int, int]]:
    """The runs of a prompt's blocks `first` to before `stop`, by their places in it."""
    found = []
    for begin, end in runs:
        size = end - begin
        if max(0, first) < min(size, stop):
            found.append((begin + max(0, first), begin + min(size, stop)))
        first -= size
        stop -= size
        if stop <= 0:
            break
    return found


class _Run:
    """Neighbouring blocks with one history. `pins`: requests that use them; 0: they wait between `before` and `after`.
    A reply's blocks, which nobody asks for, are a run with `first` 0 and `pins` -1 that is in the line alone."""

    __slots__ = ("after", "before", "first", "pins", "stop")

    before: _Run
    after: _Run

    def __init__(self, first: int, stop: int, pins: int) -> None:
        self.first = first
        self.stop = stop
        self.pins = pins


def _unlink(run: _Run) -> None:
    before, after = run.before, run.after
    before.after = after
    after.before = before


def _link(run: _Run, after: _Run) -> None:
    """Put a run into the line right before `after`."""
    before = after.before
    run.before, run.after = before, after
    before.after = after.before = run


class RunPool:
    """Blocks of one tier. `capacity` in blocks, None: without end. `most`: numbers whose memory its runs may take.

    `free`, `used`, `evicted` and `overcommitted` are blocks and mean what they mean in `LruPool`.
    """

    def __init__(self, capacity: int | None, *, most: int) -> None:
        self.capacity = capacity
        self.free = capacity if capacity is not None else 1 << 62
        self.used = 0
        self.evicted = 0
        self.overcommitted = 0
        self._most = most // _RUN_NUMBERS
        self._runs = 0
        self._waiting = 0
        """Blocks in the line."""
        self._parts: dict[int, tuple[list[int], list[_Run]]] = {}
        self._line = line = _Run(0, 0, 0)  # its `after` is next to go
        line.before = line.after = line

    # -- looking

    def prefix(self, runs: Runs) -> int:
        """How many of the first blocks are here."""
        found = 0
        for first, stop in runs:
            at = first
            for run in self._over(first, stop):
                if run.first > at:
                    break
                at = min(stop, run.stop)
            found += at - first
            if at < stop:
                break
        return found

    def room(self, runs: Runs, anonymous: int) -> bool:
        """Whether these blocks, and so many nameless ones, fit beside what is in use."""
        total = sum(stop - first for first, stop in runs)
        if self.capacity is None or total + anonymous <= self.free + self._waiting:
            return True  # even if none of them were here, or all of them waited
        here = waiting = 0
        for first, stop in runs:
            for run in self._over(first, stop):
                size = min(stop, run.stop) - max(first, run.first)
                here += size
                if not run.pins:
                    waiting += size
        return total - here + anonymous <= self.free + self._waiting - waiting

    def _over(self, first: int, stop: int) -> Iterator[_Run]:
        """Runs with numbers of [first, stop), in order."""
        for part in range(first >> _SHIFT, ((stop - 1) >> _SHIFT) + 1):
            found = self._parts.get(part)
            if found is None:
                continue
            firsts, runs = found
            place = bisect_right(firsts, first) - 1
            if place < 0 or runs[place].stop <= first:
                place += 1
            while place < len(runs) and firsts[place] < stop:
                yield runs[place]
                place += 1

    # -- using

    def pin(self, runs: Runs, anonymous: int = 0) -> tuple[int, int]:
        """Use these blocks: those that are here leave the line, others and the nameless ones take the place of the
        longest unused. Returns how many of the first blocks were here, and how many of all were new. Raises
        ServemarkError (exit code 2) for more runs than memory holds."""
        new = found = 0
        for first, stop in runs:
            at = first
            while at < stop:
                part = at >> _SHIFT
                end = (part + 1) << _SHIFT
                if end > stop:  # noqa: PLR1730 - faster than a call
                    end = stop
                kept, fresh = self._pin(part, at, end)
                if not new:
                    found += kept
                new += fresh
                at = end
        if self._runs > self._most:
            raise input_error("predict.cache.too_many_blocks", limit=f"{self._most:,}")
        self._take(new + anonymous)
        return found, new

    def _pin(self, part: int, first: int, stop: int) -> tuple[int, int]:
        """Numbers of one part: (how many were here before the first that was not, how many were not)."""
        known = self._parts.get(part)
        if known is None:
            self._parts[part] = [first], [_Run(first, stop, 1)]
            self._runs += 1
            return 0, stop - first
        firsts, runs = known
        place = bisect_right(firsts, first) - 1
        if place >= 0 and runs[place].stop > first:
            if firsts[place] < first:
                self._split(known, place, first)
                place += 1
        else:
            place += 1
        kept = -1
        new = 0
        at = first
        while at < stop:
            if place < len(firsts) and firsts[place] < stop:
                run = runs[place]
                if firsts[place] == at:
                    if run.stop > stop:
                        self._split(known, place, stop)
                    if not run.pins:
                        _unlink(run)
                        self._waiting -= run.stop - at
                    run.pins += 1
                    at = run.stop
                    place += 1
                    continue
                end = firsts[place]
            else:
                end = stop
            if kept < 0:
                kept = at - first
            new += end - at
            firsts.insert(place, at)
            runs.insert(place, _Run(at, end, 1))
            self._runs += 1
            at = end
            place += 1
        return (kept if kept >= 0 else stop - first), new

    def _split(self, known: tuple[list[int], list[_Run]], place: int, at: int) -> None:
        """Cut the run of a place in two; of blocks that wait, the later ones stay next to go."""
        firsts, runs = known
        front = runs[place]
        back = _Run(at, front.stop, front.pins)
        front.stop = at
        if not front.pins:
            _link(back, front)
        firsts.insert(place + 1, at)
        runs.insert(place + 1, back)
        self._runs += 1

    def unpin(self, runs: Runs, kept_anonymous: int = 0, free_anonymous: int = 0) -> None:
        """A request has ended: blocks that no other uses wait in line behind all others, the last of the prompt first.
        `kept_anonymous` full blocks of its reply wait before them; `free_anonymous` ones are free at once."""
        self.free += free_anonymous
        self.used -= free_anonymous
        if kept_anonymous:
            _link(_Run(0, kept_anonymous, -1), self._line)
            self._waiting += kept_anonymous
        for first, stop in reversed(runs):
            end = stop
            while first < end:
                part = (end - 1) >> _SHIFT
                begin = part << _SHIFT
                if begin < first:  # noqa: PLR1730
                    begin = first
                self._unpin(self._parts[part], begin, end)
                end = begin
        if self.free < 0 and self._waiting:
            self._evict(-self.free)

    def _unpin(self, known: tuple[list[int], list[_Run]], first: int, stop: int) -> None:
        """Numbers of one part, all in use; what is idle now and was used together becomes one run."""
        firsts, runs = known
        place = bisect_left(firsts, stop) - 1
        line = self._line
        above: _Run | None = None
        while True:
            run = runs[place]
            run.pins -= 1
            if run.pins:
                above = None
            else:
                self._waiting += run.stop - run.first
                if above is not None:
                    _unlink(above)
                    run.stop = above.stop
                    del firsts[place + 1], runs[place + 1]
                    self._runs -= 1
                last = line.before  # as _link(run, line)
                run.before, run.after = last, line
                last.after = line.before = run
                above = run
            if run.first <= first:
                return
            place -= 1

    def _take(self, blocks: int) -> None:
        if blocks > self.free:
            self._evict(blocks - self.free)
            if blocks > self.free:
                self.overcommitted += blocks - self.free
        self.free -= blocks
        self.used += blocks

    def _evict(self, blocks: int) -> None:
        """Free so many blocks, as far as any are in line."""
        line, before = self._line, blocks
        while blocks > 0:
            run = line.after
            if run is line:
                break
            size = run.stop - run.first
            if size > blocks:
                run.stop -= blocks
                blocks = 0
                break
            blocks -= size
            _unlink(run)
            if not run.pins:
                self._drop(run)
        gone = before - blocks
        self.evicted += gone
        self._waiting -= gone
        self.free += gone
        self.used -= gone

    def _drop(self, run: _Run) -> None:
        part = run.first >> _SHIFT
        firsts, runs = self._parts[part]
        place = bisect_left(firsts, run.first)
        del firsts[place], runs[place]
        self._runs -= 1
        if not firsts:
            del self._parts[part]

    def touch(self, runs: Runs) -> int:
        """Put these blocks at the end of the line, new ones included. Returns how many were new."""
        _, new = self.pin(runs)
        self.unpin(runs)
        return new
