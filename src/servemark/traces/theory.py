"""What an infinite prefix cache, empty at the start, would have to give back over a workload's prompts.

A token is shared when the whole prompt up to and including it begins an earlier prompt too. Only prompts
count: replies are not in the cache of this model, because later prompts carry stand-ins of another text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from servemark.traces.prefix_tree import Piece, PrefixTree
from servemark.traces.template import TemplateTokens
from servemark.traces.theory_blocks import Borders, PromptHit, StreamWalk, walkable
from servemark.traces.types import CacheBust, Message, Session, Turn, Workload


@dataclass(frozen=True, slots=True)
class TheoreticalHit:
    """Shares are 0..1. `blocks` counts whole blocks (a partial last one as one), as published traces do; None
    where the workload does not come in blocks. Token counts include the template's and the marker's; all are
    None where the tokens of one prompt are not known."""

    tokens: float | None
    blocks: float | None
    shared_tokens: int | None
    total_tokens: int | None


def theoretical_hit(
    workload: Workload, scope: CacheBust = "none", template: TemplateTokens | None = None
) -> TheoreticalHit:
    """Shared tokens / all prompt tokens of a workload under a marker scope.

    With scope `session` only the tokens before the marker are shared between sessions, with `request` between
    any two requests; a tree's sub-agents carry the marker of their session. The sum does not depend on the
    order of the requests: it is all tokens less the tokens
    of the distinct prefixes. With a `template` measured on an engine, the share can be compared with that
    engine's counters. Linear in the segments of all prompts; where prompts come in blocks of ids that are local to
    their session, linear in the blocks that each turn adds, with one session in memory at a time.
    """
    tree = PrefixTree()
    borders = Borders(template or TemplateTokens(), tree)
    atoms = _Atoms(borders, tree)
    shared = total = shared_blocks = blocks = 0
    for session in workload.sessions:
        atoms.forget()
        tree.forget_local()
        for stream, turns in session.streams():
            markers = _markers(session.id, stream, len(turns), scope)
            hits = _stream_hits(turns, markers, atoms, unique=scope == "request")
            if hits is None:
                return TheoreticalHit(None, None, None, None)
            for hit in hits:
                shared += hit.shared
                total += hit.total
                shared_blocks += hit.shared_blocks
                blocks += hit.blocks
    in_blocks = "block_tokens" in workload.source and blocks > 0
    return TheoreticalHit(
        shared / total if total else None, shared_blocks / blocks if in_blocks else None, shared, total
    )


def session_hits(
    session: Session, scope: CacheBust = "none", template: TemplateTokens | None = None
) -> dict[str, list[PromptHit]] | None:
    """Stream name -> what an unbounded cache, empty at the session's start, has of each prompt, stream after stream;
    None where the tokens of one prompt are not known."""
    tree = PrefixTree()
    atoms = _Atoms(Borders(template or TemplateTokens(), tree), tree)
    found: dict[str, list[PromptHit]] = {}
    for stream, turns in session.streams():
        markers = _markers(session.id, stream, len(turns), scope)
        hits = _stream_hits(turns, markers, atoms, unique=scope == "request")
        if hits is None:
            return None
        found[stream] = list(hits)
    return found


def _stream_hits(
    turns: Sequence[Turn], markers: Sequence[str | None], atoms: _Atoms, *, unique: bool
) -> Iterator[PromptHit] | None:
    """One stream's prompts, one after the other; None where the tokens of one are not known."""
    packed = walkable(turns)
    if packed is not None:
        return StreamWalk(packed, atoms.borders, atoms.tree).each(markers, unique=unique)
    if any(turn.input_tokens is None for turn in turns):
        return None
    return (atoms.hit(turn, marker) for turn, marker in zip(turns, markers, strict=True))


def _markers(session: str, stream: str, turns: int, scope: CacheBust) -> list[str | None]:
    """The name of each turn's marker; None for none."""
    if scope == "none":
        return [None] * turns
    if scope == "session":
        return [session] * turns
    return [f"{session}\0{number}" + (f"\0{stream}" if stream else "") for number in range(turns)]


class _Atoms:
    """Prompts that are made of segments; a message that several turns share is taken apart once."""

    def __init__(self, borders: Borders, tree: PrefixTree) -> None:
        self.borders = borders
        self.tree = tree
        self._messages: dict[int, tuple[Message, list[tuple[Piece, bool]]]] = {}

    def forget(self) -> None:
        """Let go of the messages: the next session has others, and a lazy workload makes them anew."""
        self._messages.clear()

    def hit(self, turn: Turn, marker: str | None) -> PromptHit:
        """Walk one prompt. Runs of no tokens count as pieces: they tell roles and message borders apart."""
        walk = self.tree.walk()
        total = shared_blocks = blocks = 0
        for piece, block in self._pieces(turn, marker):
            known = walk.step(piece)
            total += piece[2]
            blocks += block
            shared_blocks += known and block
        return PromptHit(walk.shared, total, shared_blocks, blocks)

    def _pieces(self, turn: Turn, marker: str | None) -> Iterator[tuple[Piece, bool]]:
        for number, message in enumerate(turn.messages):
            for piece in self.borders.before(message.role, marker, first=number == 0):
                yield piece, False
            yield from self._message(message)
        for piece in self.borders.after_all():
            yield piece, False

    def _message(self, message: Message) -> list[tuple[Piece, bool]]:
        """Text and closing. The cache by identity is safe: it keeps its messages alive."""
        held = self._messages.get(id(message))
        if held is not None:
            return held[1]
        if message.raw is not None:
            name = f"r{hashlib.sha256(message.raw).hexdigest()}"
            found = [(self.tree.named(name, message.raw_tokens or 0), False)]
        else:
            found = [(self.tree.named(f"s{s.id}", s.tokens), True) for s in message.segments]
        found.append((self.borders.close(), False))
        self._messages[id(message)] = (message, found)
        return found
