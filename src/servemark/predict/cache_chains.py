"""The prompts of one session whose blocks nobody else has, worked out once for all the times that it is played.

Prompts are lists of a trace's hashed blocks that begin alike and part; they make a tree of runs of ids in which a node is
as long as no prompt leaves it. Blocks are numbered along its branches, so that a prompt is a few runs of numbers. A play
of the session has the same runs from another number on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from servemark.predict.cache_runs import BlockRuns
from servemark.predict.types import CacheRequest
from servemark.traces.block_prompts import BlockPrompt, BlockRule, PackedStream, common_prefix
from servemark.traces.types import CacheBust, Session, Turn

_WHOLE: Final = -1


@dataclass(frozen=True, slots=True)
class TurnBlocks:
    """One prompt: numbers of its whole blocks from 0 on, and of a partial last one. `distinct_tokens`: those that no
    earlier prompt of the session began with, streams in their order."""

    runs: tuple[tuple[int, int], ...]
    partial: int | None
    input_tokens: int
    output_tokens: int | None
    distinct_tokens: int


@dataclass(frozen=True, slots=True)
class SessionBlocks:
    """All prompts of a session by stream. Numbers of whole blocks are below `numbers`, of partial ones below
    `partials`; `turns`: how many prompts they are."""

    block_tokens: int
    numbers: int
    partials: int
    turns: int
    streams: dict[str, list[TurnBlocks]]

    def request(self, tree: str, stream: str, number: int, base: tuple[int, int]) -> CacheRequest:
        """A turn of a play whose numbers begin at `base`: of whole blocks and, downwards from -1, of partial ones."""
        turn = self.streams[stream][number]
        first_number, first_partial = base
        runs = [(first + first_number, stop + first_number) for first, stop in turn.runs]
        partial = None if turn.partial is None else -1 - first_partial - turn.partial
        return CacheRequest(
            tree, stream, number, BlockRuns(runs, partial), self.block_tokens, turn.input_tokens,
            turn.output_tokens,
        )  # fmt: skip


def session_blocks(session: Session, block_tokens: int, scope: CacheBust) -> SessionBlocks | None:
    """None where prompts are not all of hashed blocks, or share blocks with other sessions. `scope`: of the marker that
    makes prompts differ."""
    count = 0
    for _, turns in session.streams():
        for turn in turns:
            if not isinstance(turn.messages, BlockPrompt):
                return None
            if scope == "none" and not turn.messages.stream.rule.local:
                return None
        count += len(turns)
    made = _Session(block_tokens, apart=scope == "request")
    for name, turns in session.streams():
        made.stream(name, turns)
    return SessionBlocks(block_tokens, made.numbers + made.lone, made.partials, count, made.finished())


class _Node:
    """Ids that follow each other from block `start` of their prompts on. `serial` counts ids, `number` blocks."""

    __slots__ = ("children", "ids", "number", "serial", "start")

    def __init__(self, ids: list[int], start: int, serial: int, number: int) -> None:
        self.ids = ids
        self.start = start
        self.serial = serial
        self.number = number
        self.children: dict[int, _Node] = {}


@dataclass(frozen=True, slots=True)
class _Turn:
    """A prompt before it is known how many numbers the branches take: `lone` blocks of its tail from `first_lone` on,
    and its partial one, have numbers after those."""

    runs: list[tuple[int, int]]
    first_lone: int
    lone: int
    partial: int | None
    input_tokens: int
    output_tokens: int | None
    distinct_tokens: int


class _Session:
    """Takes in the prompts of one session."""

    def __init__(self, block_tokens: int, *, apart: bool) -> None:
        self._size = block_tokens
        self._apart = apart
        self._roots: dict[str, _Node] = {}
        self._serials = 0
        self.numbers = self.lone = 0
        self._turns: dict[str, list[_Turn]] = {}
        self._partials: dict[tuple[str, int, int], int] = {}
        self._covered = 0
        """Blocks that the path's last prompt had."""
        self._parts: dict[int, set[int]] = {}
        """Of an id that a prompt had only in part: the lengths that were counted."""

    @property
    def partials(self) -> int:
        """Numbers of partial last blocks."""
        return len(self._partials)

    def finished(self) -> dict[str, list[TurnBlocks]]:
        """All prompts with their final numbers."""
        found: dict[str, list[TurnBlocks]] = {}
        for name, turns in self._turns.items():
            made = found[name] = []
            for turn in turns:
                runs = list(turn.runs)
                if turn.lone:
                    first = self.numbers + turn.first_lone
                    runs.append((first, first + turn.lone))
                made.append(
                    TurnBlocks(
                        tuple(runs), turn.partial, turn.input_tokens, turn.output_tokens, turn.distinct_tokens
                    )
                )
        return found

    def stream(self, name: str, turns: Sequence[Turn]) -> None:
        """All turns of a stream."""
        made = self._turns[name] = []
        ids: list[int] = []
        path: list[_Node] = []
        before: BlockPrompt | None = None
        for turn in turns:
            prompt = turn.messages
            if not isinstance(prompt, BlockPrompt):  # session_blocks has looked
                continue
            stream, number = prompt.stream, prompt.number
            goes_on = before is not None and before.stream is stream and before.number + 1 == number
            before = prompt
            if goes_on and not self._apart:
                kept = stream.kept(number)
                del ids[kept:]
                ids.extend(stream.added(number))
            else:
                kept, ids = 0, stream.ids(number)
                path, self._covered = [self._root(stream.rule)], 0
            made.append(self._prompt(stream, stream.tokens(number), ids, path, kept, turn.output_tokens))

    def _root(self, rule: BlockRule) -> _Node:
        if self._apart:
            return _Node([], 0, -1, 0)
        found = self._roots.get(rule.scope)
        if found is None:
            found = self._roots[rule.scope] = _Node([], 0, -1, 0)
        return found

    def _prompt(  # noqa: PLR0917 - one prompt, as its stream has it
        self,
        stream: PackedStream,
        end: int,
        ids: list[int],
        path: list[_Node],
        kept: int,
        output_tokens: int | None,
    ) -> _Turn:
        """One prompt of `end` tokens; `path` leads to what it keeps of the one before, and then to its own end."""
        rule, size = stream.rule, self._size
        step = rule.block * rule.scale
        count = _held(len(ids), step, end)
        at = min(kept, count, self._covered)
        while len(path) > 1 and path[-1].start >= at:
            path.pop()
        new = self._insert(ids, at, count, path, step)
        self._covered = count
        tokens = min(end, round(count * step))
        distinct = tokens - round(new * step) if new < count else 0
        if self._parts and count:
            distinct += self._made_whole(path, max(0, at - 1), count, tokens, step)
        if tokens < round(count * step):
            distinct += self._cut_short(path[-1], new, count, tokens - round((count - 1) * step))
        runs: list[tuple[int, int]] = []
        blocks = tokens // size
        for node, after in zip(path[1:], [*path[2:], None], strict=True):
            first = round(node.start * step) // size
            stop = blocks if after is None else round(after.start * step) // size
            if stop > first:
                _join(runs, node.number, node.number + stop - first)
        rest = end - tokens
        lone = end // size - blocks
        first_lone = self.lone
        self.lone += lone
        partial = None
        if end % size:
            where = path[-1]
            serial = where.serial + count - 1 - where.start if count else -1
            key = rule.scope, serial, end if not rest and not self._apart else -1 - len(self._partials)
            partial = self._partials.setdefault(key, len(self._partials))
        return _Turn(runs, first_lone, lone, partial, end, output_tokens, distinct + rest)

    def _insert(self, ids: list[int], at: int, count: int, path: list[_Node], step: float) -> int:
        """Lead the path on from block `at` to `count`; from which block on there are new ids."""
        node = path[-1]
        while at < count:
            place = at - node.start
            if place < len(node.ids):
                same = common_prefix(node.ids[place:], ids[at:count])
                at += same
                if at < count and place + same < len(node.ids):
                    self._split(node, place + same, step)
                continue
            child = node.children.get(ids[at])
            if child is None:
                self._add(node, ids[at:count], at, path, step)
                return at
            path.append(child)
            node = child
        return count

    def _add(self, node: _Node, ids: list[int], at: int, path: list[_Node], step: float) -> None:
        """New ids after a node: a leaf that was the last to get any grows."""
        first, stop = round(at * step) // self._size, round((at + len(ids)) * step) // self._size
        grown = node.number + first - round(node.start * step) // self._size
        newest = node.serial + len(node.ids) == self._serials and grown == self.numbers
        if len(path) > 1 and not node.children and newest:
            node.ids.extend(ids)
        else:
            made = node.children[ids[0]] = _Node(ids, at, self._serials, self.numbers)
            path.append(made)
        self._serials += len(ids)
        self.numbers += stop - first

    def _split(self, node: _Node, place: int, step: float) -> None:
        """A prompt leaves a node in its middle: what follows becomes its child."""
        start = node.start + place
        first = round(start * step) // self._size - round(node.start * step) // self._size
        back = _Node(node.ids[place:], start, node.serial + place, node.number + first)
        back.children = node.children
        node.ids = node.ids[:place]
        node.children = {back.ids[0]: back}

    def _made_whole(self, path: list[_Node], at: int, count: int, tokens: int, step: float) -> int:
        """Tokens of ids from block `at` on that earlier prompts had only in part, and this one has whole."""
        found = 0
        whole = count if tokens == round(count * step) else count - 1
        for node in path[1:]:
            for place in range(max(at, node.start), min(whole, node.start + len(node.ids))):
                lengths = self._parts.get(node.serial + place - node.start)
                if lengths is not None and _WHOLE not in lengths:
                    lengths.add(_WHOLE)
                    found += round((place + 1) * step) - round(place * step)
        return found

    def _cut_short(self, last: _Node, new: int, count: int, tokens: int) -> int:
        """The prompt has only so many tokens of its last id: how many of them count beside those of new ids."""
        serial = last.serial + count - 1 - last.start
        lengths = self._parts.setdefault(serial, {_WHOLE} if new >= count else set())
        found = tokens if new >= count and tokens not in lengths else 0
        lengths.add(tokens)
        return found


def _held(blocks: int, step: float, end: int) -> int:
    """How many of so many blocks begin before the prompt's end."""
    found = min(blocks, int(end / step) + 2)
    while found and round((found - 1) * step) >= end:
        found -= 1
    return found


def _join(runs: list[tuple[int, int]], first: int, stop: int) -> None:
    if runs and runs[-1][1] == first:
        runs[-1] = runs[-1][0], stop
    else:
        runs.append((first, stop))
