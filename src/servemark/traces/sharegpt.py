"""Recorded conversations with text: ShareGPT-style JSON, a list (or JSON lines) of {"id", "conversations"}.

A conversation is a list of {"from": "human" | "gpt" | "system", "value": text} (also user and assistant, also
"role" and "content"). Every reply becomes a turn whose prompt is all that was said before it, with the recorded
replies; what follows the last reply is left out, because nobody answered it. Token counts are not in the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from servemark.base.errors import input_error
from servemark.traces.identity import source_id
from servemark.traces.trace_files import file_hash, head, lines, name_of, whole
from servemark.traces.types import Message, Role, Session, Turn, Workload

MAX_BYTES = 2_000_000_000
MAX_LINE_BYTES = 64_000_000
_ROLES: dict[str, Role] = {
    "human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "bing": "assistant",
    "bard": "assistant", "assistant": "assistant", "system": "system", "tool": "tool",
}  # fmt: skip


class _Said(msgspec.Struct):
    from_: Annotated[str, msgspec.Meta(max_length=40)] | None = msgspec.field(default=None, name="from")
    value: str | None = None
    role: Annotated[str, msgspec.Meta(max_length=40)] | None = None
    content: str | None = None


class _Conversation(msgspec.Struct):
    id: str | int | None = None
    conversations: list[_Said] | None = None
    conversation: list[_Said] | None = None


_DECODER = msgspec.json.Decoder(_Conversation)


def read_sharegpt(path: Path, limit: int | None = None) -> Workload:
    """The workload of a file of conversations; those without a reply are left out and counted in `source`.

    Raises ServemarkError with the file and the conversation's number (from 1) for what is none.
    """
    sessions: list[Session] = []
    seen: dict[str, int] = {}
    left_out = 0
    for where, data in _conversations(path):
        try:
            found = _DECODER.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            key = "traces.sharegpt_wrong" if isinstance(error, msgspec.ValidationError) else "traces.bad_json"
            raise input_error(key, where=where, reason=str(error)[:300]) from None
        said = found.conversations if found.conversations is not None else found.conversation
        if said is None:
            raise input_error("traces.sharegpt_wrong", where=where, reason="no `conversations`")
        turns = _turns(said, where)
        if not turns:
            left_out += 1
            continue
        name = f"c{len(sessions):06d}" if found.id is None else str(found.id)[:500]
        seen[name] = seen.get(name, 0) + 1
        # The public files hold parts of one conversation under one id.
        sessions.append(Session(name if seen[name] == 1 else f"{name}#{seen[name]}", turns))
        if limit is not None and len(sessions) >= limit:
            break
    if not sessions:
        raise input_error("traces.empty_file", path=str(path))
    source: dict[str, object] = {
        "kind": "sharegpt", "file": name_of(path), "sha256": file_hash(path), "sessions": len(sessions),
        "conversations_without_reply": left_out,
    }  # fmt: skip
    return Workload(source_id(source), name_of(path), tuple(sessions), source)


def _turns(said: list[_Said], where: str) -> tuple[Turn, ...]:
    prompt: tuple[Message, ...] = ()
    turns: list[Turn] = []
    for index, one in enumerate(said):
        speaker = (one.from_ or one.role or "").lower()
        role = _ROLES.get(speaker)
        words = one.value if one.value is not None else one.content
        if role is None or words is None:
            reason = f"conversations[{index}]: " + (f"from `{speaker}`" if role is None else "no `value`")
            raise input_error("traces.sharegpt_wrong", where=where, reason=reason)
        if role == "assistant" and any(m.role == "user" for m in prompt):
            turns.append(Turn(prompt, None))
        prompt += (Message(role, raw=msgspec.json.encode({"role": role, "content": words})),)
    return tuple(turns)


def _conversations(path: Path) -> Iterator[tuple[str, bytes | msgspec.Raw]]:
    if head(path, 256).lstrip()[:1] != b"[":
        for number, line in lines(path, MAX_LINE_BYTES):
            yield f"{path}:{number}", line
        return
    try:
        items = msgspec.json.decode(whole(path, MAX_BYTES), type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise input_error("traces.bad_json", where=str(path), reason=str(error)[:300]) from None
    for number, item in enumerate(items, 1):
        yield f"{path}:[{number}]", item
