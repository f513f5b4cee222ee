"""Agentic session traces in weka JSON: one object a session, prompts as ids of hashed blocks.

    {"id", "models", "block_size": 64, "hash_id_scope": "local", "tool_tokens"?, "system_tokens"?, "totals"?,
     "requests": [{"t", "type": "n"|"s", "model", "in", "out", "hash_ids", "api_time"?, "think_time"?, "ttft"?,
                   "input_types"?, "output_types"?, "stop"?}
                 | {"t", "type": "subagent", "agent_id", "subagent_type", "duration_ms", "total_tokens",
                    "tool_use_count", "status", "models", "requests", "tool_tokens"?, "system_tokens"?}]}

`t`, `api_time`, `think_time`, `ttft` in seconds from the session's start; ids name blocks within the session.
Keys that the format does not have are refused with their names: what they ask for would silently not happen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

from servemark.base.errors import ServemarkError, input_error
from servemark.traces.block_prompts import BlockPrompt, BlockRule, PackedStream, common_prefix
from servemark.traces.types import Session, SubAgent, Turn

MAX_TOKENS = 10_000_000
"""Of one prompt or output: ten times the longest context that anyone serves today."""
MAX_TIME_S = 1e9
MAX_DEPTH = 16
"""Sub-agents within sub-agents."""
MAX_ID_CHARS = 500
SPLIT_RULE = "prefix-and-time/1"
JOIN_RULE = "first-turn-after-end/1"

_Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_TIME_S)]
_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID_CHARS)]


class WekaRow(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A request or, where `type` is "subagent", a group of requests of a sub-agent. See the module."""

    t: _Seconds
    type: Literal["n", "s", "subagent"]
    model: str | None = None
    in_: _Tokens | None = msgspec.field(default=None, name="in")
    out: _Tokens | None = None
    hash_ids: list[Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]] | None = None
    input_types: list[str] | None = None
    output_types: list[str] | None = None
    stop: str | None = None
    api_time: _Seconds | None = None
    think_time: _Seconds | None = None
    ttft: _Seconds | None = None
    agent_id: _Id | None = None
    subagent_type: str | None = None
    duration_ms: Annotated[float, msgspec.Meta(ge=0, le=MAX_TIME_S * 1000)] | None = None
    total_tokens: _Count | None = None
    tool_use_count: _Count | None = None
    status: str | None = None
    models: list[str] | None = None
    tool_tokens: _Tokens | None = None
    system_tokens: _Tokens | None = None
    requests: list[WekaRow] | None = None


class WekaSession(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One session. See the module."""

    id: _Id
    block_size: Annotated[int, msgspec.Meta(ge=1, le=65_536)]
    hash_id_scope: Literal["local"]
    requests: Annotated[list[WekaRow], msgspec.Meta(min_length=1)]
    models: list[str] = msgspec.field(default_factory=list)
    tool_tokens: _Tokens | None = None
    system_tokens: _Tokens | None = None
    totals: msgspec.Raw = msgspec.Raw()


class _LightRow(msgspec.Struct, gc=False):
    t: _Seconds
    type: Literal["n", "s", "subagent"]
    in_: _Tokens | None = msgspec.field(default=None, name="in")
    out: _Tokens | None = None
    requests: list[_LightRow] | None = None


class _LightSession(msgspec.Struct, gc=False):
    id: _Id
    block_size: Annotated[int, msgspec.Meta(ge=1, le=65_536)]
    hash_id_scope: Literal["local"]
    requests: Annotated[list[_LightRow], msgspec.Meta(min_length=1)]


_LIGHT = msgspec.json.Decoder(_LightSession)
_FULL = msgspec.json.Decoder(WekaSession)


@dataclass(frozen=True, slots=True)
class WekaOptions:
    """How recorded sessions become turns: lengths and gaps are multiplied, gaps are first cut at the cap."""

    scale_lengths: float = 1.0
    think_scale: float = 1.0
    think_cap_s: float = math.inf

    def gap_s(self, seconds: float) -> float:
        """A recorded gap as it is replayed: never negative, whole microseconds."""
        return round(min(max(0.0, seconds), self.think_cap_s) * self.think_scale, 6)


def glance(data: bytes, where: str) -> tuple[str, int]:
    """(session id, number of requests) of one session's JSON, whose times and lengths are checked on the way.

    Several times cheaper than `parse`, which checks everything. Raises ServemarkError at `where`.
    """
    try:
        found = _LIGHT.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_session(where, error) from None
    return found.id, _count(found.requests, where)


def decode(data: bytes, where: str) -> WekaSession:
    """One session's JSON, every field checked for its type and range. Raises ServemarkError at `where`."""
    try:
        return _FULL.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_session(where, error) from None


def bad_session(where: str, error: Exception) -> ServemarkError:
    """What is wrong with a session's JSON, in the decoder's words, which name the place in the object."""
    key = "traces.weka_wrong" if isinstance(error, msgspec.ValidationError) else "traces.bad_json"
    return input_error(key, where=where, reason=str(error)[:300])


def parse(data: bytes, where: str, options: WekaOptions) -> Session:
    """The session tree of one session's JSON. Raises ServemarkError at `where`."""
    return session_of(decode(data, where), where, options)


def session_of(found: WekaSession, where: str, options: WekaOptions) -> Session:
    """The session tree: main rows are the session's turns, sub-agent groups its children.

    A group's rows are split into streams (SPLIT_RULE): a row goes on from the stream whose last row had ended
    and shares the longest front of blocks, else it begins a stream. Each stream is a sub-agent: it starts at its
    recorded distance from the end of the parent's row before it, and joins (JOIN_RULE) the first later row of
    the parent that was sent at or after the end of the whole group; where there is none it is a background
    child. A turn's think time is the recorded one, or, after a join, what passed since the last of those ends.
    """
    builder = _Builder(found, where, options)
    rows, groups = _parted(found.requests, where, "requests")
    if not rows:
        raise input_error("traces.weka_no_main", where=where, session=found.id)
    scope = BlockRule(f"weka/{found.id}", found.block_size, options.scale_lengths)
    system = _system_blocks(found.tool_tokens, found.system_tokens, found.block_size)
    joins = [_join(rows, g) for g in groups]
    turns = builder.turns(_Stream("", rows), scope, system, _join_ends(groups, joins))
    children = builder.children(rows, groups, joins, scope, 1)
    return Session(found.id, turns, children)


@dataclass(slots=True)
class _Placed:
    """A row with its name for messages and the index of the parent's row before it (-1: none)."""

    row: WekaRow
    at: str
    after: int


@dataclass(slots=True)
class _Stream:
    name: str
    rows: list[_Placed] = field(default_factory=list)


def _parted(rows: Sequence[WekaRow], where: str, at: str) -> tuple[list[_Placed], list[_Placed]]:
    main: list[_Placed] = []
    groups: list[_Placed] = []
    for index, row in enumerate(rows):
        name = f"{at}[{index}]"
        if row.type == "subagent":
            if not row.requests:
                continue  # a sub-agent that sent nothing
            if row.agent_id is None:
                raise input_error("traces.weka_missing", where=where, at=name, field="agent_id")
            whole = msgspec.structs.replace(row, requests=_absolute(row))
            groups.append(_Placed(whole, name, len(main) - 1))
        else:
            for key, value in (("in", row.in_), ("out", row.out), ("hash_ids", row.hash_ids)):
                if value is None:
                    raise input_error("traces.weka_missing", where=where, at=name, field=key)
            main.append(_Placed(row, name, len(main) - 1))
    return main, groups


def end_of(row: WekaRow) -> float:
    """When a request had ended, seconds from the session's start; its start where `api_time` is absent."""
    return row.t + (row.api_time or 0.0)


def end_of_group(group: WekaRow) -> float:
    """When the last request below a sub-agent marker had ended, from `duration_ms` where rows have no times."""
    last = group.t + (group.duration_ms or 0.0) / 1000
    ends = [end_of_group(r) if r.type == "subagent" else end_of(r) for r in group.requests or ()]
    timed = all(r.api_time is not None for r in group.requests or () if r.type != "subagent")
    return max(ends, default=last) if timed else max([last, *ends])


def _join(rows: Sequence[_Placed], group: _Placed) -> int | None:
    end = end_of_group(group.row)
    return next((i for i in range(group.after + 1, len(rows)) if rows[i].row.t >= end), None)


def _join_ends(groups: Sequence[_Placed], joins: Sequence[int | None]) -> dict[int, float]:
    ends: dict[int, float] = {}
    for group, join in zip(groups, joins, strict=True):
        if join is not None:
            ends[join] = max(ends.get(join, 0.0), end_of_group(group.row))
    return ends


def _system_blocks(tools: int | None, system: int | None, block: int) -> int:
    return -(-((tools or 0) + (system or 0)) // block)


class _Builder:
    """Makes turns and sub-agents of one session."""

    def __init__(self, session: WekaSession, where: str, options: WekaOptions) -> None:
        self.session = session
        self.where = where
        self.options = options
        self.used: set[str] = set()

    def turns(
        self, stream: _Stream, rule: BlockRule, system: int, ends: dict[int, float]
    ) -> tuple[Turn, ...]:
        packed = PackedStream(rule, stream.name or "main", system)
        turns: list[Turn] = []
        ids: Sequence[int] = ()
        last_end: float | None = None
        for number, placed in enumerate(stream.rows):
            row = placed.row
            self._check(placed, rule.block, system if number == 0 else 0)
            packed.add(ids, row.hash_ids or (), row.in_ or 0, row.out)
            ids = row.hash_ids or ()
            think = 0.0
            if last_end is not None:
                joined = ends.get(number)
                gap = row.t - max(last_end, joined or 0.0)
                think = gap if row.think_time is None or joined is not None else row.think_time
            output = max(1, round((row.out or 0) * rule.scale))
            turns.append(Turn(BlockPrompt(packed, number), output, self.options.gap_s(think), row.t))
            last_end = end_of(row)
        return tuple(turns)

    def _check(self, placed: _Placed, block: int, system: int) -> None:
        row, count = placed.row, len(placed.row.hash_ids or ())
        tokens = row.in_ or 0
        if tokens < 1 or (count and tokens <= (count - 1) * block):
            raise input_error(
                "traces.weka_blocks", where=self.where, at=placed.at, tokens=tokens, blocks=count, block=block
            )
        if count < system:
            raise input_error(
                "traces.weka_system", where=self.where, at=placed.at, blocks=count, needed=system, block=block
            )

    def children(
        self,
        parents: Sequence[_Placed],
        groups: Sequence[_Placed],
        joins: Sequence[int | None],
        rule: BlockRule,
        depth: int,
    ) -> tuple[SubAgent, ...]:
        if depth > MAX_DEPTH:
            raise input_error("traces.weka_deep", where=self.where, limit=MAX_DEPTH)
        made: list[SubAgent] = []
        for group, join in zip(groups, joins, strict=True):
            made += self._group(parents, group, join, rule, depth)
        return tuple(made)

    def _group(
        self,
        parents: Sequence[_Placed],
        group: _Placed,
        join: int | None,
        rule: BlockRule,
        depth: int,
    ) -> list[SubAgent]:
        row = group.row
        rows, nested = _parted(row.requests or [], self.where, f"{group.at}.requests")
        if not rows:
            raise input_error("traces.weka_no_main", where=self.where, session=row.agent_id)
        system = _system_blocks(row.tool_tokens, row.system_tokens, rule.block)
        streams = _split(rows)
        parent_end = end_of(parents[group.after].row) if group.after >= 0 else 0.0
        made: list[SubAgent] = []
        for number, stream in enumerate(streams):
            stream.name = self._name(row.agent_id or "", number)
            mine = nested if number == 0 else []
            inner = [_at_row(stream.rows, g) for g in mine]
            joins = [_join(stream.rows, g) for g in inner]
            first = stream.rows[0]
            fits = len(first.row.hash_ids or ()) >= system
            made.append(
                SubAgent(
                    stream.name,
                    self.turns(stream, rule, system if number == 0 or fits else 0, _join_ends(inner, joins)),
                    group.after,
                    self.options.gap_s(first.row.t - parent_end),
                    join,
                    self.children(stream.rows, inner, joins, rule, depth + 1),
                )
            )
        return made

    def _name(self, agent: str, number: int) -> str:
        """The agent's id; further streams, and an agent that is called again, get a number after it."""
        name = agent if number == 0 else f"{agent}.{number + 1}"
        again = 2
        unique = name
        while unique in self.used:
            unique = f"{name}#{again}"
            again += 1
        self.used.add(unique)
        return unique


def _at_row(rows: Sequence[_Placed], group: _Placed) -> _Placed:
    """A nested group placed after the last row of its stream that was sent before it."""
    after = max((i for i, placed in enumerate(rows) if placed.row.t <= group.row.t), default=-1)
    return _Placed(group.row, group.at, after)


def _absolute(group: WekaRow) -> list[WekaRow]:
    """A group's rows with times from the session's start: raw recordings count them from the group's."""
    rows = group.requests or []
    if rows and rows[0].t < group.t - 0.001:
        rows = [_shifted(row, group.t) for row in rows]
    return [
        msgspec.structs.replace(row, requests=_absolute(row)) if row.type == "subagent" else row
        for row in rows
    ]


def _shifted(row: WekaRow, by: float) -> WekaRow:
    inner = [_shifted(r, by) for r in row.requests] if row.requests else row.requests
    return msgspec.structs.replace(row, t=row.t + by, requests=inner)


def _split(rows: Sequence[_Placed]) -> list[_Stream]:
    streams: list[_Stream] = []
    for placed in rows:
        best: _Stream | None = None
        longest = 0
        for stream in streams:
            last = stream.rows[-1].row
            if end_of(last) <= placed.row.t + 1e-6:
                shared = common_prefix(last.hash_ids or (), placed.row.hash_ids or ())
                if shared > longest:
                    best, longest = stream, shared
        if best is None:
            best = _Stream("")
            streams.append(best)
        best.rows.append(placed)
    return streams


def _count(rows: Sequence[_LightRow], where: str) -> int:
    total = 0
    left = list(rows)
    while left:
        row = left.pop()
        if row.type == "subagent":
            left.extend(row.requests or ())
        elif row.in_ is None or row.out is None:
            raise input_error(
                "traces.weka_missing",
                where=where,
                at=f"t={row.t:g}",
                field="in" if row.in_ is None else "out",
            )
        else:
            total += 1
    return total
