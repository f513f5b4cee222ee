"""What an infinite prefix cache, empty at the start, would have to give back over a workload's prompts.

A token is shared when the whole prompt up to and including it begins an earlier prompt too. Only prompts
count: replies are not in the cache of this model, because later prompts carry stand-ins of another text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from servemark.traces.template import TemplateTokens
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
    engine's counters. Linear in the segments of all prompts.
    """
    seen = _Prefixes()
    atoms = _Atoms(template or TemplateTokens())
    shared = total = shared_blocks = blocks = 0
    for session in workload.sessions:
        atoms.forget()
        for number, turn, stream in _turns(session):
            if turn.input_tokens is None:
                return TheoreticalHit(None, None, None, None)
            name = f"{session.id}\0{number}" + (f"\0{stream}" if stream else "")
            marker = {"none": None, "session": session.id, "request": name}[scope]
            prompt = atoms.of(turn, marker)
            tokens, whole = seen.add(prompt)
            shared += tokens
            total += sum(atom.tokens for atom in prompt)
            shared_blocks += sum(atom.block for atom in prompt[:whole])
            blocks += sum(atom.block for atom in prompt)
    in_blocks = "block_tokens" in workload.source and blocks > 0
    return TheoreticalHit(
        shared / total if total else None, shared_blocks / blocks if in_blocks else None, shared, total
    )


def _turns(session: Session) -> Iterator[tuple[int, Turn, str]]:
    for stream, turns in session.streams():
        for number, turn in enumerate(turns):
            yield number, turn, stream


@dataclass(frozen=True, slots=True, eq=False)
class _Atom:
    """A run of tokens, shared as a whole or in part. Equal `name` and `tokens` have equal `key`; of two atoms
    with equal `name` the shorter is a prefix of the longer."""

    key: int
    name: int
    tokens: int
    block: bool


class _Atoms:
    """Turns prompts into atoms; a message that several turns share is taken apart once."""

    def __init__(self, template: TemplateTokens) -> None:
        self.template = template
        self.names: dict[str, int] = {}
        self.known: dict[tuple[int, int], _Atom] = {}
        self.messages: dict[int, tuple[Message, list[_Atom]]] = {}

    def forget(self) -> None:
        """Let go of the messages: the next session has others, and a lazy workload makes them anew."""
        self.messages.clear()

    def atom(self, name: str, tokens: int, block: bool = False) -> _Atom:
        number = self.names.setdefault(name, len(self.names))
        found = self.known.get((number, tokens))
        if found is None:
            found = self.known[number, tokens] = _Atom(len(self.known), number, tokens, block)
        return found

    def message(self, message: Message) -> list[_Atom]:
        """Text and closing. The cache by identity is safe: it keeps its messages alive."""
        held = self.messages.get(id(message))
        if held is not None:
            return held[1]
        if message.raw is not None:
            found = [self.atom(f"r{hashlib.sha256(message.raw).hexdigest()}", message.raw_tokens or 0)]
        else:
            found = [self.atom(f"s{s.id}", s.tokens, True) for s in message.segments]
        found.append(self.atom("close", self.template.closing))
        self.messages[id(message)] = (message, found)
        return found

    def of(self, turn: Turn, marker: str | None) -> list[_Atom]:
        """A turn's prompt. Runs of no tokens are kept: they tell roles and message borders apart."""
        prompt: list[_Atom] = []
        if turn.messages and turn.messages[0].role != "system" and self.template.preamble:
            prompt.append(self.atom("preamble", self.template.preamble))
        for number, message in enumerate(turn.messages):
            prompt.append(self.atom(f"open {message.role}", self.template.opening(message.role)))
            if marker is not None and number == 0:
                prompt.append(self.atom(f"marker {marker}", self.template.marker))
            prompt += self.message(message)
        if self.template.generation == self.template.assistant:
            # The reply's opening is an assistant message's: the next turn's prompt goes on through it.
            prompt.append(self.atom("open assistant", self.template.assistant))
        elif self.template.generation:
            prompt.append(self.atom("generation", self.template.generation))
        return prompt


class _Prefixes:
    """The tree of all prompts so far. Node 0 is the empty prefix."""

    def __init__(self) -> None:
        self.children: dict[tuple[int, int], int] = {}
        self.longest: dict[tuple[int, int], int] = {}

    def add(self, prompt: list[_Atom]) -> tuple[int, int]:
        """Add a prompt; returns the tokens of its longest known prefix and the number of atoms in it."""
        node = tokens = whole = 0
        for atom in prompt:
            child = self.children.get((node, atom.key))
            if child is None:
                tokens += min(atom.tokens, self.longest.get((node, atom.name), 0))
                break
            tokens += atom.tokens
            node = child
            whole += 1
        for atom in prompt[whole:]:
            spot = (node, atom.name)
            self.longest[spot] = max(atom.tokens, self.longest.get(spot, 0))
            self.children[node, atom.key] = node = len(self.children) + 1
        return tokens, whole
