"""The prompts of packed streams, walked through a tree of prefixes by what each turn adds.

A turn's prompt goes on from the one before it, so its walk begins where the two part. Blocks are ids throughout:
no segment and no text is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import get_args

from servemark.traces.block_prompts import BlockPrompt, PackedStream
from servemark.traces.prefix_tree import Piece, PrefixTree
from servemark.traces.template import TemplateTokens
from servemark.traces.types import Role


@dataclass(frozen=True, slots=True)
class PromptHit:
    """One prompt: its tokens and blocks, and how many of them an earlier prompt began with."""

    shared: int
    total: int
    shared_blocks: int
    blocks: int


_Message = tuple[Role, int, int]
"""(role, first block, end in blocks); messages follow each other."""


class Borders:
    """The runs of tokens that a template and the marker put between blocks, as pieces."""

    def __init__(self, template: TemplateTokens, tree: PrefixTree) -> None:
        self.template = template
        self.around = {role: template.opening(role) + template.closing for role in get_args(Role)}
        """Tokens before and after a message's text."""
        self._tree = tree

    def named(self, name: str, tokens: int) -> Piece:
        """A piece that all prompts share under its name."""
        return self._tree.named(name, tokens)

    def before(self, role: Role, marker: str | None, *, first: bool) -> Iterator[Piece]:
        """What stands before a message's text."""
        if first and role != "system" and self.template.preamble:
            yield self.named("preamble", self.template.preamble)
        yield self.named(f"open {role}", self.template.opening(role))
        if first and marker is not None:
            yield self.named(f"marker {marker}", self.template.marker)

    def close(self) -> Piece:
        """What stands after a message's text."""
        return self.named("close", self.template.closing)

    def after_all(self) -> Iterator[Piece]:
        """The generation prompt; where it is an assistant message's opening, the next prompt goes on through it."""
        if self.template.generation == self.template.assistant:
            yield self.named("open assistant", self.template.assistant)
        elif self.template.generation:
            yield self.named("generation", self.template.generation)


def walkable(turns: object) -> PackedStream | None:
    """The packed stream whose turns these are, all and in order, when each of its blocks has a token and no other
    session has its ids; else None."""
    if not isinstance(turns, tuple) or not turns:
        return None
    first = turns[0].messages
    if not isinstance(first, BlockPrompt):
        return None
    stream = first.stream
    rule = stream.rule
    if not rule.local or rule.block * rule.scale < 1 or len(stream) != len(turns):
        return None
    for number, turn in enumerate(turns):
        prompt = turn.messages
        if not isinstance(prompt, BlockPrompt) or prompt.stream is not stream or prompt.number != number:
            return None
    return stream


class StreamWalk:
    """Walks one stream. `_nodes[i]` and `_counted[i]` are the tree's node and the tokens of the
    last prompt up to and with block i."""

    def __init__(self, stream: PackedStream, borders: Borders, tree: PrefixTree) -> None:
        self._stream = stream
        self._borders = borders
        self._tree = tree
        self._ids: list[int] = []
        self._nodes: list[int] = []
        self._counted: list[int] = []
        self._spans: list[tuple[Role, int]] = []
        self._messages: list[_Message] = []
        self._around: list[int] = []
        """Tokens that the template puts around the messages up to and with each."""
        self._used = self._whole = 0
        self._marker: str | None = None

    def each(self, markers: Iterable[str | None], *, unique: bool = False) -> Iterator[PromptHit]:
        """One turn after the other, each with its own marker; `unique`: no two prompts have the same."""
        for number, (spans, marker) in enumerate(zip(self._stream.each_spans(), markers, strict=False)):
            yield self._turn(number, spans, marker, unique=unique)

    def _turn(
        self, number: int, spans: list[tuple[Role, int]], marker: str | None, *, unique: bool
    ) -> PromptHit:
        stream, step = self._stream, self._stream.rule.block * self._stream.rule.scale
        kept = stream.kept(number)
        del self._ids[kept:]
        self._ids.extend(stream.added(number))
        end = stream.tokens(number)
        used = whole = len(self._ids)
        while (
            used and round((used - 1) * step) >= end
        ):  # lengths are rounded: the last block may have no token left
            used -= 1
        whole = used
        while whole and round(whole * step) > end:
            whole -= 1
        tail = end > round(len(self._ids) * step)
        agreed = self._reshape(spans, used)
        common = min(agreed, kept, whole, self._whole) if marker == self._marker else 0
        self._whole, self._marker = whole, marker
        total = self._total(end, marker)
        if unique:  # nothing behind the marker is ever met again
            walk = self._tree.walk()
            for piece in self._borders.before(self._messages[0][0], marker, first=True):
                walk.step(piece)
            return PromptHit(walk.shared, total, 0, used + tail)
        shared, shared_blocks = self._walk(common, end, step, tail=tail)
        return PromptHit(shared, total, shared_blocks, used + tail)

    def _reshape(self, spans: list[tuple[Role, int]], used: int) -> int:
        """Make the messages of the next prompt, as `PackedStream.messages` does, in blocks. Returns up to which block
        they are those of the prompt before."""
        before, messages = self._spans, self._messages
        same = _equal_front(before, spans) if len(messages) == len(before) else 0
        same = max(0, min(same, len(before) - 1, len(spans) - 1))  # the last one may have been or be another
        while same and (spans[same - 1][1] >= used or spans[same - 1][1] > self._used):
            same -= 1  # one that nothing follows is the last, and a last one of the system's is the user's
        old = messages[same:]
        del messages[same:], self._around[same:]
        start = messages[-1][2] if messages else 0
        reached = start
        for position in range(same, len(spans)):
            role, stop = spans[position]
            last = position == len(spans) - 1
            upto = used if last else min(stop, used)
            if upto > start or (last and not messages):
                messages.append((role, start, upto))
            start = max(start, upto)
        if messages[-1][0] == "system":
            messages[-1] = ("user", *messages[-1][1:])
        for role, _, _ in messages[same:]:
            self._around.append((self._around[-1] if self._around else 0) + self._borders.around[role])
        for one, other in zip(old, messages[same:], strict=False):
            if one[:2] != other[:2]:
                break
            reached = min(one[2], other[2])
            if one[2] != other[2]:
                break
        self._spans, self._used = list(spans), used
        return reached

    def _total(self, end: int, marker: str | None) -> int:
        template = self._borders.template
        preamble = template.preamble if self._messages[0][0] != "system" else 0
        marked = template.marker if marker is not None else 0
        return end + self._around[-1] + preamble + marked + template.generation

    def _walk(self, common: int, end: int, step: float, *, tail: bool) -> tuple[int, int]:
        """(shared tokens, shared whole blocks) of the prompt; the tree has learnt it then. The first `common`
        blocks, and the messages that they lie in, are those of the prompt before."""
        borders, nodes, counted, messages = self._borders, self._nodes, self._counted, self._messages
        del nodes[common:], counted[common:]
        walk = self._tree.walk(nodes[-1], counted[-1], local=True) if common else self._tree.walk()
        first = len(messages) if common else 0
        while first and messages[first - 1][2] >= common:
            first -= 1
        shared_blocks = common
        for index in range(first, len(messages)):
            role, start, stop = messages[index]
            if not common or start >= common:
                for piece in borders.before(role, self._marker, first=index == 0):
                    walk.step(piece)
            walk.go_local()
            start = max(start, common)
            sizes = _sizes(start, stop, end, step)
            shared_blocks += walk.blocks(self._ids[start:stop], sizes, nodes, counted)
            if tail and index == len(messages) - 1:
                return walk.shared, shared_blocks  # nobody else has the tail, nor what follows it
            walk.step(borders.close())
        for piece in borders.after_all():
            walk.step(piece)
        return walk.shared, shared_blocks


def _equal_front(before: list[tuple[Role, int]], now: list[tuple[Role, int]]) -> int:
    """How many of the first entries are equal."""
    if now[: len(before)] == before:
        return len(before)
    return next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), len(now))


def _sizes(start: int, stop: int, end: int, step: float) -> list[int]:
    """Tokens of blocks of a prompt that ends at `end`."""
    if step.is_integer() and stop * step <= end:
        return [int(step)] * (stop - start)
    edges = [min(end, round(block * step)) for block in range(start, stop + 1)]
    return [after - before for before, after in pairwise(edges)]
