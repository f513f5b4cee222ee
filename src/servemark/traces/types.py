"""What a workload is: session trees of turns; a turn's prompt is messages made of segments that may be shared.

A workload holds ids and token counts until a turn is sent: `Workload.sessions` may be a lazy sequence that
reads a session when it is asked for, and `Turn.messages` may be computed at each access.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of `tokens` tokens. Equal `id` and `tokens` mean equal text, in every request of every point."""

    id: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message: its segments' texts joined, or `raw`, a JSON object that is sent as it is.

    `raw` carries recorded text, tool calls and content parts; `raw_tokens` is its length for the target
    tokenizer, None where nobody has counted it.
    """

    role: Role
    segments: tuple[Segment, ...] = ()
    raw: bytes | None = None
    raw_tokens: int | None = None

    @property
    def tokens(self) -> int | None:
        """Tokens of the content, without the chat template's own; None where they are not known."""
        return self.raw_tokens if self.raw is not None else sum(s.tokens for s in self.segments)


class CountedMessages(Sequence[Message]):
    """Messages that are made anew at each access, and whose tokens are known without making them."""

    __slots__ = ()

    @property
    @abstractmethod
    def tokens(self) -> int:
        """Tokens of all messages."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request. `messages` is the whole prompt; earlier replies are recorded stand-ins, so that the bytes
    sent do not depend on what the engine answered.

    `think_s` passes between the moment when everything the turn waits for has ended (the reply to the turn
    before it, and the sub-agents that join here) and its send; 0 for a first turn. `at_s` is the recorded
    send in seconds from the session's start, None where the trace has no times. `output_tokens` None: the
    trace does not say, and the engine may end where it likes. `tools` is a JSON array sent as `tools`.
    """

    messages: Sequence[Message]
    output_tokens: int | None
    think_s: float = 0.0
    at_s: float | None = None
    tools: bytes | None = None

    @property
    def input_tokens(self) -> int | None:
        """Tokens of all messages; the server adds its chat template's own. None where one is not known."""
        if isinstance(self.messages, CountedMessages):
            return self.messages.tokens
        total = 0
        for message in self.messages:
            tokens = message.tokens
            if tokens is None:
                return None
            total += tokens
        return total


@dataclass(frozen=True, slots=True)
class SubAgent:
    """A stream of turns that a parent's turn starts and a later one may wait for.

    Its first turn is sent `delay_s` after the end of the reply to the parent's turn `after_turn` (-1: after
    the parent's own start). The parent's turn `joins_turn` is not sent before this sub-agent and all its own
    children have ended; None: nothing but the end of the whole tree waits for it (a background child).
    """

    id: str
    turns: Sequence[Turn]
    after_turn: int
    delay_s: float = 0.0
    joins_turn: int | None = None
    children: tuple[SubAgent, ...] = ()


@dataclass(frozen=True, slots=True)
class Session:
    """One session tree: turns go out in order, each after the reply to the one before; sub-agents run beside
    them. `start_s` is the recorded arrival in seconds from the trace's start, None where it has no times."""

    id: str
    turns: Sequence[Turn]
    children: tuple[SubAgent, ...] = ()
    start_s: float | None = None

    @property
    def requests(self) -> int:
        """Turns of the whole tree."""
        return len(self.turns) + sum(len(c.turns) for c in self.descendants())

    def streams(self) -> Iterator[tuple[str, Sequence[Turn]]]:
        """(name within the tree, turns) of the main stream, named "", and of every sub-agent."""
        yield "", self.turns
        for child in self.descendants():
            yield child.id, child.turns

    def descendants(self) -> Iterator[SubAgent]:
        """Every sub-agent of the tree, parents before children."""
        left = list(reversed(self.children))
        while left:
            child = left.pop()
            yield child
            left.extend(reversed(child.children))


@dataclass(frozen=True, slots=True)
class Workload:
    """What a point replays. `id` is a hash of the content; `source` says how to make it again.

    `requests_known` is the number of turns where counting them by reading every session would be dear.
    """

    id: str
    name: str
    sessions: Sequence[Session]
    source: dict[str, object] = field(default_factory=dict)
    requests_known: int | None = None

    @property
    def requests(self) -> int:
        """Turns of all session trees."""
        return (
            self.requests_known if self.requests_known is not None else sum(s.requests for s in self.sessions)
        )


CacheBust = Literal["none", "session", "request"]
"""Scope of the cache-bust marker: none, one per session tree and point, or one per request and point."""
