"""Session trees made ready for a simulation: lengths and times of every turn as plain lists, children by the turns that
start them and wait for them. Prompts themselves are not kept.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from servemark.base.errors import input_error
from servemark.traces.template import TemplateTokens
from servemark.traces.theory import session_hits
from servemark.traces.types import CacheBust, Message, Session, SubAgent, Turn, Workload

HELD_TURNS = 200_000
"""Turns of sessions that are kept ready, some 100 bytes each; sessions of a longer workload are read again when they
come again, so that memory does not grow with the trace."""


@dataclass(slots=True, eq=False)
class StreamPlan:
    """One stream of a tree. Lists have one value a turn: seconds of thinking, tokens of the prompt, of the reply, and
    prompt tokens that the tree's earlier requests held. `starts`: turn (-1: before the first) -> sub-agents that it
    starts; `gates`: turn -> sub-agents that it waits for. `joined` says whether a turn of its parent waits for it."""

    name: str
    parent: str | None
    think_s: list[float]
    input_tokens: list[int]
    output_tokens: list[int]
    known_tokens: list[int]
    delay_s: float = 0.0
    after_turn: int = -1
    joined: bool = False
    children: list[StreamPlan] = field(default_factory=list)
    starts: dict[int, list[StreamPlan]] = field(default_factory=dict)
    gates: dict[int, list[StreamPlan]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class SessionPlan:
    """A session tree; `streams` by name, "" is the main one, parents before children. `place` is its own in the
    workload."""

    id: str
    place: int
    streams: dict[str, StreamPlan]
    requests: int


class SessionPlans:
    """The plans of a workload, made when they are asked for and kept while there is room."""

    def __init__(
        self,
        workload: Workload,
        scope: CacheBust,
        think_scale: float,
        template: TemplateTokens | None,
        *,
        known: bool,
    ) -> None:
        self._sessions: Sequence[Session] = workload.sessions
        self._template = template
        self._scope = scope
        self._think_scale = think_scale
        self._known = known
        self._held: OrderedDict[int, SessionPlan] = OrderedDict()
        self._held_turns = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def session(self, plan: SessionPlan) -> Session:
        """The session itself, read again: for start points, and for the prompts of a simulated cache."""
        return self._sessions[plan.place]

    def at(self, index: int) -> SessionPlan:
        """Raises ServemarkError for a session that cannot be read or has lengths or times that cannot be replayed."""
        found = self._held.get(index)
        if found is not None:
            self._held.move_to_end(index)
            return found
        made = plan_session(
            self._sessions[index],
            self._scope,
            self._think_scale,
            self._template,
            known=self._known,
            place=index,
        )
        self._held[index] = made
        self._held_turns += made.requests + 8
        while self._held_turns > HELD_TURNS and len(self._held) > 1:
            _, old = self._held.popitem(last=False)
            self._held_turns -= old.requests + 8
        return made


def plan_session(
    session: Session,
    scope: CacheBust,
    think_scale: float,
    template: TemplateTokens | None = None,
    *,
    known: bool,
    place: int = 0,
) -> SessionPlan:
    """The plan of one session; without `known` nothing is worked out of what earlier requests held (all 0), and prompts
    have the trace's own tokens alone.

    Raises ServemarkError where a length is not known, or a time is none that can be waited for.
    """
    hits = session_hits(session, scope, template) if known else {}
    main = _stream(session, "", None, session.turns, think_scale)
    streams = {"": main}
    _children(session, main, streams, think_scale)
    for name, stream in streams.items():
        found = hits.get(name) if hits else None
        if found is None:
            stream.known_tokens = [0] * len(stream.input_tokens)
        else:
            stream.input_tokens = [max(1, hit.total) for hit in found]
            stream.known_tokens = [hit.shared for hit in found]
    return SessionPlan(session.id, place, streams, sum(len(s.input_tokens) for s in streams.values()))


def _children(session: Session, main: StreamPlan, streams: dict[str, StreamPlan], scale: float) -> None:
    left: list[tuple[tuple[SubAgent, ...], StreamPlan]] = [(session.children, main)]
    while left:
        agents, above = left.pop()
        for agent in agents:
            made = _stream(session, agent.id, above.name or None, agent.turns, scale)
            made.delay_s = _time(session, agent.id, 0, agent.delay_s) * scale
            made.after_turn = agent.after_turn
            made.joined = agent.joins_turn is not None
            above.children.append(made)
            above.starts.setdefault(agent.after_turn, []).append(made)
            if agent.joins_turn is not None:
                above.gates.setdefault(agent.joins_turn, []).append(made)
            streams[agent.id] = made
            left.append((agent.children, made))


def _stream(
    session: Session, name: str, parent: str | None, turns: Sequence[Turn], scale: float
) -> StreamPlan:
    think: list[float] = []
    inputs: list[int] = []
    outputs: list[int] = []
    before: Sequence[Message] = ()
    before_tokens: int | None = 0
    for number, turn in enumerate(turns):
        think.append(_time(session, name, number, turn.think_s) * scale)
        prompt, reply = _prompt_tokens(turn, before, before_tokens), turn.output_tokens
        before, before_tokens = turn.messages, prompt
        if prompt is None or reply is None:
            what = "input_tokens" if prompt is None else "output_tokens"
            raise input_error(
                "predict.replay.unknown_length",
                session=session.id,
                stream=name or "-",
                turn=number,
                what=what,
            )
        inputs.append(max(1, prompt))
        outputs.append(max(1, reply))
    return StreamPlan(name, parent, think, inputs, outputs, [])


def _prompt_tokens(turn: Turn, before: Sequence[Message], before_tokens: int | None) -> int | None:
    """`turn.input_tokens`; of a prompt that goes on from the one before only what it adds is counted."""
    now = turn.messages
    if not (isinstance(now, tuple) and isinstance(before, tuple) and before and before_tokens is not None):
        return turn.input_tokens  # messages that are made at each access know their tokens
    size = len(before)
    if now[:size] != before:
        return turn.input_tokens
    added = [message.tokens for message in now[size:]]
    return None if None in added else before_tokens + sum(each for each in added if each is not None)


def _time(session: Session, stream: str, number: int, value: float) -> float:
    if not 0 <= value < math.inf:
        where = f"{session.id}/{stream}" if stream else session.id
        raise input_error("replay.bad_think", session=where, turn=number, value=value)
    return value
