"""Prompts made of hashed blocks, packed: a stream of turns keeps only the blocks that each turn adds.

A prompt of n tokens in blocks of B tokens holds block ids for its first tokens and, where the trace hashes
whole blocks only, a tail of fewer than B tokens that no other prompt shares.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import overload

from servemark.traces.types import CountedMessages, Message, Role, Segment

_MAX_U32 = 2**32


@dataclass(frozen=True, slots=True)
class BlockRule:
    """How ids become text: `scope` is put before every id (ids are local to a session, or to a file), `block`
    is tokens a block, `scale` multiplies lengths. Block i spans tokens round(i*block*scale) to
    round((i+1)*block*scale), cut at the prompt's end. `local`: no other session has ids of this scope."""

    scope: str
    block: int
    scale: float = 1.0
    local: bool = True


class PackedStream:
    """The prompts of one stream of turns.

    `system_blocks` blocks at the front make the system message (0: none). The rest alternates: after an
    earlier prompt that the turn goes on from, as many new blocks as hold the recorded reply (floor) are an
    assistant message, if at least one block is left for the user message after it; a trace of hashes knows no
    roles. Where a turn drops blocks of the turn before (a compaction), messages are cut at the same place.
    """

    __slots__ = ("_added", "_kept", "_replies", "_tokens", "name", "rule", "system_blocks")

    def __init__(self, rule: BlockRule, name: str, system_blocks: int = 0) -> None:
        self.rule = rule
        self.name = name
        self.system_blocks = system_blocks
        self._kept = array("I")
        self._added: list[array[int]] = []
        self._tokens = array("Q")
        self._replies = array("I")

    def __len__(self) -> int:
        return len(self._added)

    def add(self, before: Sequence[int], ids: Sequence[int], tokens: int, reply_tokens: int | None) -> None:
        """Append a turn. `before` holds the ids of the turn before (empty for the first), `ids` its own;
        `tokens` is the recorded length of the prompt, `reply_tokens` of its reply."""
        kept = common_prefix(before, ids)
        new = ids[kept:]
        self._kept.append(kept)
        self._added.append(array("I" if not new or max(new) < _MAX_U32 else "Q", new))
        self._tokens.append(tokens)
        self._replies.append((reply_tokens or 0) // self.rule.block)

    def kept(self, number: int) -> int:
        """Blocks that a turn shares with the front of the turn before."""
        return self._kept[number]

    def added(self, number: int) -> array[int]:
        """Ids of the blocks after the kept ones."""
        return self._added[number]

    def recorded_tokens(self, number: int) -> int:
        """Length of a prompt as recorded."""
        return self._tokens[number]

    def tokens(self, number: int) -> int:
        """Length of a prompt as sent: the recorded one, scaled; at least 1."""
        return max(1, round(self._tokens[number] * self.rule.scale))

    def ids(self, number: int) -> list[int]:
        """Block ids of a prompt."""
        found: list[int] = []
        for kept, added in zip(self._kept[: number + 1], self._added, strict=False):
            del found[kept:]
            found.extend(added)
        return found

    def spans(self, number: int) -> list[tuple[Role, int]]:
        """(role, end in blocks) of a prompt's messages; a tail belongs to the last."""
        return list(next(islice(self.each_spans(), number, None)))

    def each_spans(self) -> Iterator[list[tuple[Role, int]]]:
        """`spans` of one turn after the other, each made from the one before: the same list, changed."""
        size = len(self._added[0])
        found: list[tuple[Role, int]] = []
        self._begin(found, size)
        _extend(found, size)
        yield found
        for turn in range(1, len(self._added)):
            kept = self._kept[turn]
            whole = kept == size
            while found and found[-1][1] > kept:
                role, _ = found.pop()
                if kept > (found[-1][1] if found else 0):
                    found.append((role, kept))
            size = kept + len(self._added[turn])
            reply = self._replies[turn - 1]
            self._begin(found, size)
            if whole and found[-1][0] == "user" and 0 < reply < size - kept:
                found.append(("assistant", kept + reply))
            _extend(found, size)
            yield found

    def _begin(self, spans: list[tuple[Role, int]], size: int) -> None:
        if not spans and 0 < self.system_blocks <= size:
            spans.append(("system", self.system_blocks))

    def messages(self, number: int) -> tuple[Message, ...]:
        """The prompt's messages, made now."""
        ids = self.ids(number)
        rule = self.rule
        end = self.tokens(number)
        step = rule.block * rule.scale
        segments: list[Segment] = []
        marks = [0]
        for index, block in enumerate(ids):
            start = round(index * step)
            tokens = min(end, round((index + 1) * step)) - start
            if tokens > 0:
                segments.append(Segment(f"{rule.scope}/{block}", tokens))
            marks.append(len(segments))
        rest = end - min(end, round(len(ids) * step))
        if rest or not segments:
            segments.append(Segment(f"{rule.scope}/{self.name}/tail{number}", rest or 1))
        made: list[Message] = []
        start = 0
        spans = self.spans(number)
        for position, (role, stop) in enumerate(spans):
            upto = len(segments) if position == len(spans) - 1 else marks[stop]
            if (
                upto > start and made and made[-1].role == role
            ):  # what stood between has no token at this scale
                made[-1] = Message(role, (*made[-1].segments, *segments[start:upto]))
            elif upto > start:
                made.append(Message(role, tuple(segments[start:upto])))
            start = max(start, upto)
        if made and made[-1].role == "system":  # a prompt of nothing but the system's blocks
            made[-1] = Message("user", made[-1].segments)
        return tuple(made)


def _extend(spans: list[tuple[Role, int]], size: int) -> None:
    """End with a user message at `size` blocks: the last one grows, or a new one follows."""
    if spans and spans[-1][0] == "user":
        spans[-1] = ("user", max(size, spans[-1][1]))
    elif not spans or size > spans[-1][1]:
        spans.append(("user", size))
    else:  # cut in a reply or in the system's blocks: no block is left, so that message is the question's
        del spans[-1]
        _extend(spans, size)


class BlockPrompt(CountedMessages):
    """The messages of one turn of a packed stream; made at each access and kept by nobody."""

    __slots__ = ("number", "stream")

    def __init__(self, stream: PackedStream, number: int) -> None:
        self.stream = stream
        self.number = number

    @property
    def tokens(self) -> int:
        """Tokens of all messages, without making them."""
        return self.stream.tokens(self.number)

    def __len__(self) -> int:
        return len(self.stream.messages(self.number))

    def __iter__(self) -> Iterator[Message]:
        return iter(self.stream.messages(self.number))

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self.stream.messages(self.number)[index]


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """Length of the longest common prefix of two lists."""
    size = min(len(left), len(right))
    if left[:size] == right[:size]:
        return size
    low, high = 0, size  # left[:low] is equal, left[:high] is not
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
