"""The id of a workload: a hash over everything that shapes what is sent, and over nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from servemark.base.canonical import content_hash
from servemark.traces.types import Message, Session, SubAgent, Turn


def workload_id(sessions: Iterable[Session]) -> str:
    """64 hex digits over session trees, roles, segment ids, literal messages, token counts and times, in order.

    What a plain session lacks (sub-agents, recorded times, tools) adds nothing to the hash, so workloads
    without them keep their ids. Messages are hashed once each (turns of a session share them), so the cost is
    linear in distinct messages. Reads every session: a lazy workload takes `source_id` instead.
    """
    known: dict[int, str] = {}

    def digest(message: Message) -> str:
        found = known.get(id(message))
        if found is None:
            found = known[id(message)] = content_hash(_message(message))
        return found

    def turns(found: Sequence[Turn]) -> list[list[object]]:
        return [[[digest(m) for m in t.messages], t.output_tokens, t.think_s, *_rest(t)] for t in found]

    def child(found: SubAgent) -> list[object]:
        below = [child(c) for c in found.children]
        return [found.id, turns(found.turns), found.after_turn, found.delay_s, found.joins_turn, below]

    held = list(sessions)  # keeps every message alive, so that id() stays unique
    trees: list[list[object]] = []
    for session in held:
        tree: list[object] = [session.id, turns(session.turns)]
        if session.children:
            tree.append({"children": [child(c) for c in session.children]})
        if session.start_s is not None:
            tree.append({"start_s": session.start_s})
        trees.append(tree)
    return content_hash(trees)


def source_id(source: Mapping[str, object]) -> str:
    """The id of a workload that is read lazily: a hash over the files' hashes and the options that read them."""
    return content_hash({"source": dict(source)})


def _message(message: Message) -> list[object]:
    plain: list[object] = [message.role, [[s.id, s.tokens] for s in message.segments]]
    if message.raw is not None:
        plain.append([hashlib.sha256(message.raw).hexdigest(), message.raw_tokens])
    return plain


def _rest(turn: Turn) -> list[object]:
    rest: list[object] = []
    if turn.at_s is not None:
        rest.append({"at_s": turn.at_s})
    if turn.tools is not None:
        rest.append({"tools": hashlib.sha256(turn.tools).hexdigest()})
    return rest
