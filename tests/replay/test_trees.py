"""Session trees, start points, warm-up, idle caps and passes, over real sockets; times worked out by hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from tests.replay.conftest import Exchange, Pause, Serve, delta, reply, stream

from servemark.base.errors import ServemarkError
from servemark.replay.client import Client, Target, run
from servemark.replay.loop import LoopOutcome, LoopPlan, run_closed_loop
from servemark.replay.profiles import Validity
from servemark.replay.record import RequestRecord
from servemark.replay.start_points import StreamStart, draw_start, recorded_times, start_at
from servemark.replay.stop import StopSignal
from servemark.replay.timeline import IdleCaps
from servemark.traces.types import Message, Segment, Session, SubAgent, Turn, Workload

OK = stream(delta(content="live"))


class Letters:
    """A segment's text is its id."""

    def text(self, segment: Segment) -> str:
        """See the class."""
        return segment.id


def turns(name: str, count: int, think_s: float = 0.0, times: Sequence[float] = ()) -> tuple[Turn, ...]:
    """A growing prompt with stand-ins for the replies."""
    messages: list[Message] = []
    made = []
    for t in range(count):
        messages.append(Message("user", (Segment(f"{name}{t}", 1),)))
        made.append(Turn(tuple(messages), 5, think_s if t else 0.0, times[t] if times else None))
        messages.append(Message("assistant", (Segment(f"stand-in {name}{t}", 1),)))
    return tuple(made)


def played(
    url: str,
    sessions: Sequence[Session],
    concurrency: int = 1,
    **options: Any,  # noqa: ANN401 - passed on
) -> tuple[list[RequestRecord], LoopOutcome]:
    """Run to the end."""
    fields: dict[str, Any] = {"cache_bust": "none", "marker_salt": "x", "ramp_s": 0.0} | options
    plan = LoopPlan(Workload("w", "w", tuple(sessions)), concurrency, **fields)
    records: list[RequestRecord] = []

    async def main() -> LoopOutcome:
        async with Client(Target(url, "m", idle_timeout_s=10)) as client:
            return await run_closed_loop(plan, client, Letters(), records.append, StopSignal())

    return records, run(main())


def by(records: Sequence[RequestRecord], agent: str | None) -> list[RequestRecord]:
    """Measured records of one stream."""
    return [r for r in records if r.agent == agent and r.phase == "measured"]


def ends(record: RequestRecord) -> tuple[float, float]:
    """Start and end."""
    assert record.start_s is not None and record.end_s is not None
    return record.start_s, record.end_s


def test_a_join_waits_and_a_background_child_does_not_gate(serve: Serve) -> None:
    """Turn 1 waits for the joined child (2 turns) and its own child; the background one outlives the main
    stream, and the lane takes the next session only then."""
    server = serve([Pause(0.05), OK])
    grandchild = SubAgent("g", turns("g", 2), after_turn=0, joins_turn=1)
    joined = SubAgent("j", turns("j", 2), after_turn=0, joins_turn=1, children=(grandchild,))
    background = SubAgent("b", turns("b", 6), after_turn=0)
    tree = Session("tree", turns("m", 2), (joined, background))
    records, outcome = played(server.url, [tree, Session("next", turns("n", 1))])
    assert outcome.sent == outcome.planned == 13
    main = [r for r in by(records, None) if r.session == "tree"]
    last_join = max(ends(r)[1] for r in (*by(records, "j"), *by(records, "g")))
    last_background = max(ends(r)[1] for r in by(records, "b"))
    assert ends(main[1])[0] >= last_join
    assert ends(by(records, "g")[-1])[1] <= ends(by(records, "j")[1])[0]  # tiered: j's turn 1 waits for g
    assert ends(main[1])[0] < last_background
    after = next(r for r in records if r.session == "next")
    assert ends(after)[0] >= last_background
    assert outcome.max_in_flight >= 2  # more than the one lane
    assert {r.parent for r in by(records, "g")} == {"j"} and {r.parent for r in by(records, "j")} == {None}


def test_a_child_before_the_first_turn_and_its_delay(serve: Serve) -> None:
    """after_turn -1 with a delay of 0.1 s: sent 0.1 s after the tree's own start."""
    child = SubAgent("c", turns("c", 1), after_turn=-1, delay_s=0.1)
    records, _ = played(serve([OK]).url, [Session("s", turns("m", 1), (child,))])
    begun = by(records, None)[0].intended_send_s
    assert begun is not None
    assert by(records, "c")[0].intended_send_s == pytest.approx(begun + 0.1, abs=1e-6)


def test_a_tree_idle_cap_shortens_the_gap_once(serve: Serve) -> None:
    """30 s of think time under a cap of 0.2 s for the tree: one move of about 29.8 s, kept with its size."""
    before = time.monotonic()
    records, outcome = played(
        serve([OK]).url, [Session("s", turns("m", 2, think_s=30.0))], idle_caps=IdleCaps(tree_s=0.2)
    )
    assert time.monotonic() - before < 5
    (shift,) = outcome.shifts
    assert (shift.scope, shift.tree, shift.timers) == ("tree", "s", 1)
    assert shift.shift_s == pytest.approx(29.8, abs=0.05)
    assert ends(records[1])[0] - ends(records[0])[1] == pytest.approx(0.2, abs=0.1)


def test_a_system_cap_moves_all_timers_alike_and_only_when_idle(serve: Serve) -> None:
    """Two trees that wait 20 s and 20.1 s: both moved by the same amount, their distance stays 0.1 s."""
    sessions = [Session("a", turns("a", 2, 20.0)), Session("b", turns("b", 2, 20.1))]
    records, outcome = played(serve([OK]).url, sessions, 2, idle_caps=IdleCaps(system_s=0.2))
    assert [s.scope for s in outcome.shifts] == ["system"] and outcome.shifts[0].timers == 2
    second = {r.session: r.intended_send_s for r in records if r.turn == 1}
    first = {r.session: ends(r)[1] for r in records if r.turn == 0}
    assert second["a"] is not None and second["b"] is not None
    apart = (second["b"] - first["b"]) - (second["a"] - first["a"])
    assert apart == pytest.approx(0.1, abs=1e-3)


def test_a_busy_system_is_not_moved(serve: Serve) -> None:
    """One reply takes 0.6 s while the other tree waits 0.5 s: nothing is idle beyond the cap, nothing moves."""
    server = serve([OK], [Pause(0.6), OK], [OK])
    sessions = [Session("a", turns("a", 2, 0.5)), Session("b", turns("b", 1))]
    _, outcome = played(server.url, sessions, 2, idle_caps=IdleCaps(system_s=0.1), ramp_s=0.05)
    assert outcome.shifts == ()


def test_recorded_times_and_a_start_in_the_middle() -> None:
    """Main at 0, 10, 20; child after turn 0 at 5, 15; t* = 12: main goes on with turn 2 (8 s later), the child
    with turn 1 (3 s later)."""
    child = SubAgent("c", turns("c", 2, times=(5, 15)), after_turn=0)
    late = SubAgent("late", turns("l", 1, times=(21,)), after_turn=2)
    over = SubAgent("over", turns("o", 1, times=(6,)), after_turn=0)
    session = Session("s", turns("m", 3, times=(0, 10, 20)), (child, late, over))
    start = start_at(session, recorded_times(session), 12.0)
    assert start.streams == {"": StreamStart(2, 8.0), "c": StreamStart(1, 3.0)}
    assert start.over == {"over"} and start.first_offset_s == 3.0
    for share in ((0.25, 0.75), (0.0, 1.0)):
        drawn = draw_start(session, share, ["k"])
        assert share[0] * 21 <= drawn.at_s <= share[1] * 21
        assert drawn == draw_start(session, share, ["k"])


def test_warm_up_then_the_window_from_the_start_point(serve: Serve) -> None:
    """Each live stream's last request before t* is sent for one token before anything is measured, then two
    pressure requests; nothing before t* is measured."""
    server = serve([OK])
    session = Session("s", turns("m", 4, times=(0, 1, 2, 3)))
    records, outcome = played(server.url, [session], start_share=(0.5, 0.5), pressure_requests=2)
    warm = [r for r in records if r.phase == "warmup"]
    measured = [r for r in records if r.phase == "measured"]
    assert [r.turn for r in measured] == [2, 3] and outcome.planned == outcome.sent == 2  # t* = 1.5 s
    assert warm[0].turn == 1 and len(warm) == 3
    assert {e.json["max_tokens"] for e in server.exchanges[:3]} == {1}
    assert max(ends(r)[1] for r in warm) <= min(ends(r)[0] for r in measured)


def test_a_failing_warm_up_aborts(serve: Serve) -> None:
    """A server that refuses the warm-up is not measured."""
    server = serve([reply("500 Internal Server Error", b"no")])
    with pytest.raises(ServemarkError) as caught:
        played(server.url, [Session("s", turns("m", 3, times=(0, 1, 2)))], start_share=(0.6, 0.6))
    assert caught.value.key == "replay.warmup_failed"


def contents(exchange: Exchange) -> list[str]:
    """Message contents."""
    messages = exchange.json["messages"]
    assert isinstance(messages, list)
    return [m["content"] for m in messages]


def test_live_replies_stand_in_later_prompts(serve: Serve) -> None:
    """The engine's own words take the recorded stand-in's place, in this stream only."""
    server = serve([OK])
    played(server.url, [Session("s", turns("m", 3))], replies="live")
    assert contents(server.exchanges[2]) == ["m0", "live", "m1", "live", "m2"]
    again = serve([OK])
    played(again.url, [Session("s", turns("m", 2))])
    assert contents(again.exchanges[1]) == ["m0", "stand-in m0", "m1"]


def test_sessions_come_again_with_new_markers(serve: Serve) -> None:
    """Five requests of a workload of two: three passes, each with a marker and a session name of its own."""
    server = serve([OK])
    records, outcome = played(server.url, [Session("s", turns("m", 2))], cache_bust="session", max_requests=5)
    assert (outcome.planned, outcome.sent, outcome.passes) == (5, 5, 3)
    assert [r.session for r in records] == ["s", "s", "s#2", "s#2", "s#3"]
    marks = [contents(e)[0][:18] for e in server.exchanges]
    assert len(set(marks)) == 3 and marks[0] == marks[1]
    assert len({r.id for r in records}) == 5


def test_duration_with_grace_lists_what_was_cut_off(serve: Serve) -> None:
    """A reply of 5 s in a window of 0.3 s with 0.2 s of grace: cut off, listed, and recorded as cancelled."""
    records, outcome = played(
        serve([Pause(5), OK]).url, [Session("s", turns("m", 2))], duration_s=0.3, grace_s=0.2
    )
    assert [r.outcome for r in records] == ["cancelled"]
    assert outcome.cut_off == (records[0].id,)
    assert outcome.window_s == pytest.approx(0.3) and outcome.stop_mode is None


def test_too_many_failures_abort(serve: Serve) -> None:
    """Every request fails: the limit of 10 % is judged after ten, not after a hundred."""
    server = serve([reply("500 Internal Server Error", b"no")])
    records, outcome = played(server.url, [Session("s", turns("m", 100))], validity=Validity(max_failed=0.1))
    assert len(records) == 10 and outcome.stop_reason == "failed_requests" and outcome.partial
