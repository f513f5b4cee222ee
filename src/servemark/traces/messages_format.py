"""Servemark's own trace format: JSON lines of chat messages, with tool calls, tools, times and sub-agents.

A line is one session:

    {"id": "s1", "start_s"?: 0.0, "tools"?: [...], "turns": [TURN, ...], "children"?: [CHILD, ...]}
    TURN  = {"messages": [...]} the whole prompt, or {"append": [...]} what follows the turn before,
            with "output_tokens"?, "think_s"?, "at_s"?
    CHILD = {"id", "turns", "after_turn", "delay_s"?, "joins_turn"?, "tools"?, "children"?}

or one request: {"messages": [...], "id"?, "tools"?, "output_tokens"?, "start_s"?}.

A message is an object of the chat API (role, content, tool_calls …), sent as it stands; "tokens" beside it is
its length and is not sent. {"role", "segments": [[id, tokens], ...]} stands for text that is not recorded:
equal ids are equal text. The JSON schema is docs/messages.schema.json.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal, cast

import msgspec

from servemark.base.errors import ServemarkError, input_error
from servemark.traces.types import Message, Role, Segment, Session, SubAgent, Turn

MAX_TOKENS = 10_000_000
MAX_TIME_S = 1e9
MAX_DEPTH = 16
MAX_ID_CHARS = 500
ROLES = ("system", "user", "assistant", "tool")

_ABSENT = msgspec.Raw()
"""The encoder leaves a field out only where it holds this very object."""
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_TIME_S)]
_Tokens = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID_CHARS)]


class TurnLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One turn: `messages` or `append`. See the module."""

    messages: list[msgspec.Raw] | None = None
    append: list[msgspec.Raw] | None = None
    output_tokens: _Tokens | None = None
    think_s: _Seconds | None = None
    at_s: _Seconds | None = None


class ChildLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One sub-agent. See the module."""

    id: _Id
    turns: Annotated[list[TurnLine], msgspec.Meta(min_length=1)]
    after_turn: Annotated[int, msgspec.Meta(ge=-1, le=10**9)]
    delay_s: _Seconds = 0.0
    joins_turn: Annotated[int, msgspec.Meta(ge=0, le=10**9)] | None = None
    tools: msgspec.Raw = _ABSENT
    children: list[ChildLine] = msgspec.field(default_factory=list)


class SessionLine(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One line of a file. See the module."""

    id: _Id | None = None
    start_s: _Seconds | None = None
    tools: msgspec.Raw = _ABSENT
    turns: Annotated[list[TurnLine], msgspec.Meta(min_length=1)] | None = None
    children: list[ChildLine] = msgspec.field(default_factory=list)
    messages: list[msgspec.Raw] | None = None
    output_tokens: _Tokens | None = None


class SegmentsMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message whose text is not recorded."""

    role: Literal["system", "user", "assistant", "tool"]
    segments: Annotated[
        list[tuple[_Id, Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]]], msgspec.Meta(min_length=1)
    ]


class _Peek(msgspec.Struct):
    role: Annotated[str, msgspec.Meta(max_length=40)]
    segments: msgspec.Raw = _ABSENT
    tokens: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)] | None = None


_LINE = msgspec.json.Decoder(SessionLine)
_PEEK = msgspec.json.Decoder(_Peek)
_SEGMENTS = msgspec.json.Decoder(SegmentsMessage)


def decode(data: bytes, where: str) -> SessionLine:
    """One line, every field of ours checked. Raises ServemarkError at `where`."""
    try:
        found = _LINE.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(where, error) from None
    if (found.turns is None) == (found.messages is None):
        raise input_error("traces.messages_one_of", where=where, one="turns", other="messages")
    return found


def glance(data: bytes, where: str) -> tuple[str, int]:
    """(session id, requests) of a line; a line without id is named by its content's hash and its place."""
    found = decode(data, where)
    count = len(found.turns or [0])
    left = list(found.children)
    while left:
        child = left.pop()
        count += len(child.turns)
        left.extend(child.children)
    return session_id(found, where), count


def session_id(found: SessionLine, where: str) -> str:
    """The line's id, or `line<N>` where it has none."""
    return found.id or "line" + where.rpartition(":")[2]


def parse(data: bytes, where: str, think_scale: float = 1.0, think_cap_s: float = math.inf) -> Session:
    """The session of a line. Raises ServemarkError at `where`."""
    found = decode(data, where)
    reader = _Reader(where, think_scale, think_cap_s)
    name = session_id(found, where)
    if found.messages is not None:
        if found.children:
            raise input_error("traces.messages_one_of", where=where, one="turns", other="children")
        single = TurnLine(messages=found.messages, output_tokens=found.output_tokens, at_s=0.0)
        turns = reader.turns([single], found.tools, "")
    else:
        if found.output_tokens is not None:
            raise input_error("traces.messages_one_of", where=where, one="turns", other="output_tokens")
        turns = reader.turns(found.turns or [], found.tools, "turns")
    return Session(name, turns, reader.children(found.children, len(turns), "children", 1), found.start_s)


class _Reader:
    def __init__(self, where: str, think_scale: float, think_cap_s: float) -> None:
        self.where = where
        self.scale = think_scale
        self.cap = think_cap_s
        self.names: set[str] = set()

    def gap(self, seconds: float | None) -> float:
        return round(min(seconds or 0.0, self.cap) * self.scale, 6)

    def turns(self, found: Sequence[TurnLine], tools: msgspec.Raw, at: str) -> tuple[Turn, ...]:
        sent = self.tools(tools)
        prompt: tuple[Message, ...] = ()
        made: list[Turn] = []
        for index, turn in enumerate(found):
            name = f"{at}[{index}]" if at else "messages"
            if (turn.messages is None) == (turn.append is None):
                raise input_error(
                    "traces.messages_one_of", where=f"{self.where} {name}", one="messages", other="append"
                )
            new = tuple(
                self.message(m, f"{name}[{i}]") for i, m in enumerate(turn.messages or turn.append or ())
            )
            prompt = new if turn.messages is not None else prompt + new
            if not prompt:
                raise input_error("traces.messages_empty", where=f"{self.where} {name}")
            think = self.gap(turn.think_s) if index else 0.0
            made.append(Turn(prompt, turn.output_tokens, think, turn.at_s, sent))
        return tuple(made)

    def tools(self, found: msgspec.Raw) -> bytes | None:
        raw = bytes(found)
        if raw in {b"", b"null"}:
            return None
        if not raw.lstrip().startswith(b"["):
            raise input_error("traces.messages_tools", where=self.where)
        return raw

    def message(self, raw: msgspec.Raw, at: str) -> Message:
        data = bytes(raw)
        try:
            data.decode("utf-8")  # sent as it stands, so it must be text
            peek = _PEEK.decode(data)
            if peek.role not in ROLES:
                raise input_error(
                    "traces.messages_role", where=f"{self.where} {at}", role=peek.role, known=", ".join(ROLES)
                )
            role = cast("Role", peek.role)
            if bytes(peek.segments) not in {b"", b"null"}:
                pieces = _SEGMENTS.decode(data).segments
                return Message(role, tuple(Segment(name, tokens) for name, tokens in pieces))
            if peek.tokens is not None:
                plain = msgspec.json.decode(data)
                del plain["tokens"]
                data = msgspec.json.encode(plain)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _bad(f"{self.where} {at}", error) from None
        return Message(role, raw=data, raw_tokens=peek.tokens)

    def children(
        self, found: Sequence[ChildLine], parent_turns: int, at: str, depth: int
    ) -> tuple[SubAgent, ...]:
        if depth > MAX_DEPTH:
            raise input_error("traces.weka_deep", where=self.where, limit=MAX_DEPTH)
        made: list[SubAgent] = []
        for index, child in enumerate(found):
            name = f"{self.where} {at}[{index}]"
            if child.id in self.names:
                raise input_error("traces.child_twice", where=name, child=child.id)
            self.names.add(child.id)
            last = parent_turns - 1
            if child.after_turn > last:
                raise input_error(
                    "traces.child_after", where=name, child=child.id, turn=child.after_turn, last=last
                )
            if child.joins_turn is not None and not child.after_turn < child.joins_turn <= last:
                raise input_error(
                    "traces.child_join",
                    where=name, child=child.id, turn=child.joins_turn, after=child.after_turn, last=last,
                )  # fmt: skip
            turns = self.turns(child.turns, child.tools, f"{at}[{index}].turns")
            below = self.children(child.children, len(turns), f"{at}[{index}].children", depth + 1)
            made.append(
                SubAgent(child.id, turns, child.after_turn, self.gap(child.delay_s), child.joins_turn, below)
            )
        return tuple(made)


def _bad(where: str, error: Exception) -> ServemarkError:
    key = "traces.messages_wrong" if isinstance(error, msgspec.ValidationError) else "traces.bad_json"
    return input_error(key, where=where, reason=str(error)[:300])


def encode(session: Session) -> bytes:
    """One line (with its newline) that `parse` reads back to an equal session."""
    line = SessionLine(session.id, session.start_s, _tools(session.turns), _turn_lines(session.turns))
    line.children = [_child_line(c) for c in session.children]
    return msgspec.json.encode(line) + b"\n"


def _child_line(child: SubAgent) -> ChildLine:
    return ChildLine(
        child.id, _turn_lines(child.turns), child.after_turn, child.delay_s, child.joins_turn,
        _tools(child.turns), [_child_line(c) for c in child.children],
    )  # fmt: skip


def _tools(turns: Sequence[Turn]) -> msgspec.Raw:
    return _ABSENT if turns[0].tools is None else msgspec.Raw(turns[0].tools)


def _turn_lines(turns: Sequence[Turn]) -> list[TurnLine]:
    made: list[TurnLine] = []
    before: tuple[Message, ...] = ()
    for turn in turns:
        prompt = tuple(turn.messages)
        grows = bool(before) and len(prompt) > len(before) and prompt[: len(before)] == before
        new = [_raw(m) for m in (prompt[len(before) :] if grows else prompt)]
        line = TurnLine(output_tokens=turn.output_tokens, think_s=turn.think_s or None, at_s=turn.at_s)
        if grows:
            line.append = new
        else:
            line.messages = new
        made.append(line)
        before = prompt
    return made


def _raw(message: Message) -> msgspec.Raw:
    if message.raw is None:
        pieces = [(s.id, s.tokens) for s in message.segments]
        return msgspec.Raw(msgspec.json.encode(SegmentsMessage(message.role, pieces)))
    if message.raw_tokens is None:
        return msgspec.Raw(message.raw)
    plain = msgspec.json.decode(message.raw)
    return msgspec.Raw(msgspec.json.encode({**plain, "tokens": message.raw_tokens}))
