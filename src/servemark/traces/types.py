"""What a workload is: sessions of turns; a turn's prompt is messages made of segments that may be shared."""

from __future__ import annotations

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
    """One chat message; its text is its segments' texts joined."""

    role: Role
    segments: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """One request. `messages` is the whole prompt; earlier replies are recorded stand-ins, so that the bytes
    sent do not depend on what the engine answered. `think_s` passes between the end of the previous turn's
    reply and this turn's send (0 for a first turn)."""

    messages: tuple[Message, ...]
    output_tokens: int
    think_s: float = 0.0

    @property
    def input_tokens(self) -> int:
        """Tokens of all segments; the server adds its chat template's own."""
        return sum(s.tokens for m in self.messages for s in m.segments)


@dataclass(frozen=True, slots=True)
class Session:
    """One session tree (no sub-agents yet): turns go out in order, each after the reply to the one before."""

    id: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """What a point replays. `id` is a hash of the content; `source` says how to make it again."""

    id: str
    name: str
    sessions: tuple[Session, ...]
    source: dict[str, object] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """Turns of all sessions."""
        return sum(len(s.turns) for s in self.sessions)


CacheBust = Literal["none", "session", "request"]
"""Scope of the cache-bust marker: none, one per session tree and point, or one per request and point."""
