"""A workload in figures: lengths, turns, gaps, arrivals, and what an unbounded prefix cache could give back.

The hit ceiling counts prompts only, an empty cache at the start, and cuts in whole blocks: of a prompt whose
first k tokens begin an earlier prompt, floor(k / block) * block tokens are hits. It does not depend on the
order of the requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise

from servemark.metrics.percentiles import Distribution
from servemark.traces.block_prompts import BlockPrompt, PackedStream
from servemark.traces.types import Session, Turn, Workload

BLOCK_SIZES = (1, 16, 64, 256, 512, 1024)
"""Tokens a cache block; engines in use have 16 to 1,024."""
RATE_BINS = 60


@dataclass(frozen=True, slots=True)
class HitCeiling:
    """`tokens` shared of all prompt tokens at a cache block of `block_tokens`, 0..1."""

    block_tokens: int
    share: float


@dataclass(frozen=True, slots=True)
class TraceStats:
    """All figures of a workload. Token counts are the trace's own, without a chat template. None: not known.

    `gap_s` is think times of all streams; `inter_arrival_s`, `rate_rps` (requests a second in RATE_BINS equal
    parts of `span_s`) and `peak_rps` count recorded arrivals of sessions. `distinct_tokens` is the working set:
    prompt tokens that an unbounded cache would hold at the end; `session_distinct_tokens` the same of each
    session alone.
    """

    name: str
    kind: str
    sessions: int
    requests: int
    sub_agents: int
    sessions_with_sub_agents: int
    background_sub_agents: int
    input_tokens: int | None
    output_tokens: int | None
    unknown_input: int
    unknown_output: int
    isl: Distribution | None
    isl_main: Distribution | None
    isl_sub_agent: Distribution | None
    first_isl: Distribution | None
    osl: Distribution | None
    turns: Distribution | None
    sub_agent_turns: Distribution | None
    requests_per_session: Distribution | None
    gap_s: Distribution | None
    gap_main_s: Distribution | None
    gap_sub_agent_s: Distribution | None
    span_s: float | None
    inter_arrival_s: Distribution | None
    rate_rps: tuple[float, ...]
    peak_rps: float | None
    hit_ceiling: tuple[HitCeiling, ...]
    within_session_share: float | None
    distinct_tokens: int | None
    session_distinct_tokens: Distribution | None
    first_turn_tokens_share: float | None
    isl_sample: tuple[int, ...] = ()
    osl_sample: tuple[int, ...] = ()

    def to_json(self) -> dict[str, object]:
        """JSON-ready: everything but the samples, which are for plots."""
        plain = asdict(self)
        del plain["isl_sample"], plain["osl_sample"]
        return plain


@dataclass(slots=True)
class _Gathered:
    """Values of every request, as they pass."""

    isl: dict[bool, list[int]] = field(default_factory=lambda: {False: [], True: []})
    first: list[int] = field(default_factory=list)
    osl: list[int] = field(default_factory=list)
    turns: dict[bool, list[int]] = field(default_factory=lambda: {False: [], True: []})
    gaps: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    requests: list[int] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    distinct: list[int] = field(default_factory=list)
    with_sub_agents: int = 0
    background: int = 0
    unknown_input: int = 0
    unknown_output: int = 0
    cold: int = 0


def trace_stats(workload: Workload) -> TraceStats:
    """The figures of a workload; reads every session once. Linear in the blocks that turns add.

    Raises ServemarkError for a session that cannot be read.
    """
    got = _Gathered()
    shared = _Shared()
    for session in workload.sessions:
        _session(session, got, shared)
    every = got.isl[False] + got.isl[True]
    known = got.unknown_input == 0 and bool(every)
    content = known and workload.source.get("content_known", True) is True
    total = sum(every)
    starts = sorted(got.starts)
    span = starts[-1] - starts[0] if len(starts) > 1 else None
    rates = _rates(starts, span)
    return TraceStats(
        name=workload.name,
        kind=str(workload.source.get("kind", "")),
        sessions=len(workload.sessions),
        requests=sum(got.requests),
        sub_agents=len(got.turns[True]),
        sessions_with_sub_agents=got.with_sub_agents,
        background_sub_agents=got.background,
        input_tokens=total if known else None,
        output_tokens=sum(got.osl) if got.osl and not got.unknown_output else None,
        unknown_input=got.unknown_input,
        unknown_output=got.unknown_output,
        isl=Distribution.of(every),
        isl_main=Distribution.of(got.isl[False]),
        isl_sub_agent=Distribution.of(got.isl[True]),
        first_isl=Distribution.of(got.first),
        osl=Distribution.of(got.osl),
        turns=Distribution.of(got.turns[False]),
        sub_agent_turns=Distribution.of(got.turns[True]),
        requests_per_session=Distribution.of(got.requests),
        gap_s=Distribution.of(got.gaps[False] + got.gaps[True]),
        gap_main_s=Distribution.of(got.gaps[False]),
        gap_sub_agent_s=Distribution.of(got.gaps[True]),
        span_s=span,
        inter_arrival_s=Distribution.of([b - a for a, b in pairwise(starts)]),
        rate_rps=rates,
        peak_rps=max(rates, default=None),
        hit_ceiling=tuple(
            HitCeiling(size, found / total)
            for size, found in zip(BLOCK_SIZES, shared.by_size, strict=True)
            if content and size >= shared.smallest
        ),
        within_session_share=shared.within / total if content else None,
        distinct_tokens=total - shared.by_size[0] if content else None,
        session_distinct_tokens=Distribution.of(got.distinct) if content else None,
        first_turn_tokens_share=got.cold / total if known else None,
        isl_sample=tuple(every),
        osl_sample=tuple(got.osl),
    )


def _session(session: Session, got: _Gathered, shared: _Shared) -> None:
    shared.begin()
    session_tokens = 0
    got.requests.append(session.requests)
    got.with_sub_agents += bool(session.children)
    got.background += sum(c.joins_turn is None for c in session.descendants())
    if session.start_s is not None:
        got.starts.append(session.start_s)
    for number, (_, turns) in enumerate(session.streams()):
        sub = number > 0
        got.turns[sub].append(len(turns))
        got.gaps[sub] += [t.think_s for t in turns[1:]]
        for index, turn in enumerate(turns):
            tokens = turn.input_tokens
            if turn.output_tokens is None:
                got.unknown_output += 1
            else:
                got.osl.append(turn.output_tokens)
            if tokens is None:
                got.unknown_input += 1
                continue
            got.isl[sub].append(tokens)
            session_tokens += tokens
            if index == 0:
                got.first.append(tokens)
                got.cold += tokens
            shared.add(turn, tokens)
    got.distinct.append(session_tokens - shared.session)


class _Shared:
    """Shared tokens of all prompts and of each session alone, over trees of prefixes.

    A packed prompt goes on from the place in the tree where its kept blocks end, so only new blocks cost.
    """

    def __init__(self) -> None:
        self.by_size = [0] * len(BLOCK_SIZES)
        self.within = 0
        self.session = 0
        self.smallest = 1
        self._all = _Tree()
        self._own = _Tree()

    def begin(self) -> None:
        """Start a session: its own tree is empty."""
        self._own = _Tree()
        self.session = 0
        self._all.paths.clear()

    def add(self, turn: Turn, tokens: int) -> None:
        messages = turn.messages
        if isinstance(messages, BlockPrompt):
            stream, number = messages.stream, messages.number
            self.smallest = max(self.smallest, round(stream.rule.block * stream.rule.scale))
            own = self._own.add_packed(stream, number, tokens)
            every = own if stream.rule.local else self._all.add_packed(stream, number, tokens)
        else:
            pieces = _pieces(turn)
            every = self._all.add(pieces)
            own = self._own.add(pieces)
        self.within += own
        self.session += own
        for index, size in enumerate(BLOCK_SIZES):
            self.by_size[index] += every // size * size


def _pieces(turn: Turn) -> list[tuple[object, int]]:
    """(name, tokens) of a prompt's runs; a role is part of the name of its first run."""
    found: list[tuple[object, int]] = []
    for message in turn.messages:
        if message.raw is not None:
            found.append(((message.role, hashlib.sha256(message.raw).digest()), message.raw_tokens or 0))
        for index, segment in enumerate(message.segments):
            found.append(((message.role if index == 0 else "", segment.id), segment.tokens))
    return found


class _Tree:
    """Prefixes of prompts. Node 0 is the empty prefix; `paths` holds the nodes of each stream's last prompt."""

    def __init__(self) -> None:
        self.children: dict[tuple[int, object], int] = {}
        self.paths: dict[int, list[int]] = {}
        self.rules: dict[object, int] = {}

    def add(self, pieces: Iterable[tuple[object, int]]) -> int:
        """Add a prompt; tokens of its longest known prefix."""
        node = shared = 0
        known = True
        for piece in pieces:
            child = self.children.get((node, piece)) if known else None
            if child is None:
                known = False
                child = self.children[node, piece] = len(self.children) + 1
            else:
                shared += piece[1]
            node = child
        return shared

    def add_packed(self, stream: PackedStream, number: int, tokens: int) -> int:
        """As `add`, for turn `number` of a packed stream, whose turns come in order."""
        rule = stream.rule
        path = self.paths.setdefault(id(stream), [])
        del path[stream.kept(number) if number else 0 :]
        scope = self.rules.setdefault(rule, -1 - len(self.rules))
        node = path[-1] if path else scope
        shared_blocks = len(path)
        known = True
        for block in stream.added(number):
            child = self.children.get((node, block)) if known else None
            if child is None:
                known = False
                child = self.children[node, block] = len(self.children) + 1
            else:
                shared_blocks += 1
            path.append(child)
            node = child
        return min(tokens, round(shared_blocks * rule.block * rule.scale))


def _rates(starts: Sequence[float], span: float | None) -> tuple[float, ...]:
    if not span:
        return ()
    counts = [0] * RATE_BINS
    for start in starts:
        counts[min(RATE_BINS - 1, int((start - starts[0]) / span * RATE_BINS))] += 1
    return tuple(count / (span / RATE_BINS) for count in counts)
