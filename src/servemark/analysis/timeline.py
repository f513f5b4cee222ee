"""Requests as bars in the client's lanes: when each began, first answered, ended, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from servemark.metrics.request import e2el_s, ttft_s
from servemark.replay.record import Outcome, RequestRecord
from servemark.results.measures import last_moment_s, measured

MAX_BARS = 2000
"""More bars than a drawing can show apart."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One request. Seconds since the first start of the window; `first_content_s` is None when none came.
    `ttft_s` and `e2el_s` are the request's own, by the definitions of `metrics.request`."""

    request: str
    session: str
    turn: int
    start_s: float
    first_content_s: float | None
    end_s: float
    outcome: Outcome
    input_tokens: int | None
    output_tokens: int | None
    ttft_s: float | None
    e2el_s: float | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bars by lane, lanes in ascending order, bars of a lane by start. `never_started` requests have no bar;
    `left_out` are the latest ones above the number of bars that was asked for."""

    duration_s: float
    lanes: tuple[tuple[Bar, ...], ...]
    never_started: int
    left_out: int


def timeline(records: Sequence[RequestRecord], max_bars: int = MAX_BARS) -> Timeline:
    """The measured requests of one point. Requests that name no lane share the first free one."""
    chosen = measured(records)
    started = sorted(
        ((record.start_s, record) for record in chosen if record.start_s is not None),
        key=lambda each: each[0],
    )
    if not started:
        return Timeline(0.0, (), len(chosen), 0)
    zero = started[0][0]
    lanes: dict[int, list[Bar]] = {}
    for start, record in started[:max_bars]:
        bar = bar_of(record, start, zero)
        lane = record.lane if record.lane is not None else _first_free(lanes, bar.start_s)
        lanes.setdefault(lane, []).append(bar)
    ordered = tuple(tuple(lanes[lane]) for lane in sorted(lanes))
    duration = max(bar.end_s for lane in ordered for bar in lane)
    return Timeline(duration, ordered, len(chosen) - len(started), max(0, len(started) - max_bars))


def bar_of(record: RequestRecord, start_s: float, zero_s: float) -> Bar:
    """The bar of a request that started at `start_s`, on a clock whose zero is `zero_s`."""
    end = last_moment_s(record)
    return Bar(
        request=record.id,
        session=record.session,
        turn=record.turn,
        start_s=start_s - zero_s,
        first_content_s=record.chunk_s[0] - zero_s if record.chunk_s else None,
        end_s=(start_s if end is None else end) - zero_s,
        outcome=record.outcome,
        input_tokens=record.input_tokens,
        output_tokens=record.output_tokens,
        ttft_s=ttft_s(record),
        e2el_s=e2el_s(record),
    )


def free_lane(ends_s: Sequence[float], at_s: float) -> int:
    """The lowest lane whose last bar has ended by `at_s`, given each lane's end."""
    return next((lane for lane, end in enumerate(ends_s) if end <= at_s), len(ends_s))


def _first_free(lanes: dict[int, list[Bar]], at_s: float) -> int:
    lane = 0
    while lanes.get(lane) and lanes[lane][-1].end_s > at_s:
        lane += 1
    return lane
