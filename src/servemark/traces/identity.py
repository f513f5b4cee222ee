"""The id of a workload: a hash over everything that shapes what is sent, and over nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from servemark.base.canonical import content_hash
from servemark.traces.types import Message, Session


def workload_id(sessions: Iterable[Session]) -> str:
    """64 hex digits over session ids, roles, segment ids, token counts and think times, in order.

    Messages are hashed once each (turns of a session share them), so the cost is linear in distinct messages.
    """
    known: dict[int, str] = {}

    def digest(message: Message) -> str:
        found = known.get(id(message))
        if found is None:
            found = content_hash([message.role, [[s.id, s.tokens] for s in message.segments]])
            known[id(message)] = found
        return found

    held = list(sessions)  # keeps every message alive, so that id() stays unique
    return content_hash(
        [
            [s.id, [[[digest(m) for m in t.messages], t.output_tokens, t.think_s] for t in s.turns]]
            for s in held
        ]
    )
