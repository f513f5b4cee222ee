"""Where in its recorded life a session tree is when it is first measured.

A moment t* is drawn within the tree's recorded time. A stream (the main one or a sub-agent) that sent before
t* and sends again at or after it is live: the last request before t* warms it up, the first one at or after
t* is measured, at its recorded distance from t*. A stream that ended before t* is over. One that its parent
has not started yet begins when its parent does start it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from servemark.traces.rng import SplitMix
from servemark.traces.types import Session, SubAgent, Turn


@dataclass(frozen=True, slots=True)
class StreamStart:
    """Where one stream begins: its first measured turn, and the seconds from t* to that turn's send."""

    first_turn: int
    offset_s: float


@dataclass(frozen=True, slots=True)
class TreeStart:
    """Where a whole tree begins. `streams` holds the streams that t* finds live or due, by name ("" is the
    main one); `over` the names of those that had ended; all others wait for their parent's turn."""

    at_s: float
    streams: dict[str, StreamStart] = field(default_factory=dict)
    over: frozenset[str] = frozenset()

    @property
    def first_offset_s(self) -> float:
        """Seconds from t* to the tree's first measured send."""
        return min(start.offset_s for start in self.streams.values())


def recorded_times(session: Session) -> dict[str, list[float]]:
    """Stream name -> recorded send of each turn, seconds from the session's start, never falling.

    Where the trace gives no times, a turn is placed by its think time alone (replies take no time); a tree
    without any is placed by its turns' numbers, one second each.
    """
    think = 1.0 if _timeless(session) else None
    times = {"": _stream_times(session.turns, 0.0, think)}
    _children_times(session.children, times[""], times, think)
    return times


def _timeless(session: Session) -> bool:
    return all(
        turn.at_s is None and turn.think_s == 0 for _, turns in session.streams() for turn in turns
    ) and all(child.delay_s == 0 for child in session.descendants())


def _stream_times(turns: Sequence[Turn], start_s: float, think: float | None) -> list[float]:
    times: list[float] = []
    now_s = start_s
    for number, turn in enumerate(turns):
        if turn.at_s is not None:
            now_s = max(now_s, turn.at_s)
        elif number:
            now_s += turn.think_s if think is None else think
        times.append(now_s)
    return times


def _children_times(
    children: tuple[SubAgent, ...], parent: list[float], times: dict[str, list[float]], think: float | None
) -> None:
    for child in children:
        after = min(child.after_turn, len(parent) - 1)
        begun_s = (parent[after] if after >= 0 else parent[0] if parent else 0.0) + child.delay_s
        times[child.id] = _stream_times(child.turns, begun_s, think)
        _children_times(child.children, times[child.id], times, think)


def draw_start(session: Session, share: tuple[float, float], key: object) -> TreeStart:
    """Draw t* evenly between the two shares of the tree's recorded time; `key` seeds the draw.

    The recorded time lasts from the start to the last send of any stream, so that at least one send is left.
    """
    times = recorded_times(session)
    last_s = max((moments[-1] for moments in times.values() if moments), default=0.0)
    low, high = share
    return start_at(session, times, last_s * (low + (high - low) * SplitMix(key).uniform()))


def start_at(session: Session, times: dict[str, list[float]], at_s: float) -> TreeStart:
    """The start of a tree whose t* is `at_s`."""
    streams: dict[str, StreamStart] = {}
    over: set[str] = set()

    def place(name: str, begun: bool) -> None:
        moments = times[name]
        turn = next((i for i, moment in enumerate(moments) if moment >= at_s), len(moments))
        if turn == len(moments):
            over.add(name)
        elif begun or turn:
            streams[name] = StreamStart(turn, moments[turn] - at_s)

    def children_of(children: tuple[SubAgent, ...], parent: str) -> None:
        if parent not in streams and parent not in over:
            return  # it has not begun: it starts its children itself
        for child in children:
            sent = sum(moment < at_s for moment in times[parent])
            place(child.id, begun=child.after_turn < sent and (child.after_turn >= 0 or sent > 0))
            children_of(child.children, child.id)

    place("", begun=True)
    children_of(session.children, "")
    return TreeStart(at_s, streams, frozenset(over))
