"""The closed loop over real sockets: who is sent when, what is sent, and that nothing planned is lost."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.replay.conftest import STREAM_HEAD, Exchange, Pause, Serve, chunk, delta, reply, sse, stream

from servemark.base.errors import ServemarkError
from servemark.replay import playing
from servemark.replay.client import Client, Target, run
from servemark.replay.loop import LoopOutcome, LoopPlan, ProgressSnapshot, StopSignal, run_closed_loop
from servemark.replay.record import RequestRecord
from servemark.traces.types import CacheBust, Message, Segment, Session, Turn, Workload

LATE_S = 0.25
OK = stream(delta(content="a"))


class Letters:
    """A segment's text is its id, as many times as it has tokens."""

    def text(self, segment: Segment) -> str:
        """See the class."""
        return segment.id * segment.tokens


def workload(sessions: int, turns: int, think_s: float = 0.0) -> Workload:
    """Sessions that share a system prompt and grow by a user message and a stand-in reply a turn."""
    made = []
    for s in range(sessions):
        messages = [Message("system", (Segment("T", 2), Segment("U", 1)))]
        rounds = []
        for t in range(turns):
            messages.append(Message("user", (Segment(f"q{s}.{t}", 1),)))
            rounds.append(Turn(tuple(messages), 10 + t, think_s if t else 0.0))
            messages.append(Message("assistant", (Segment(f"r{s}.{t}", 1),)))
        made.append(Session(f"s{s}", tuple(rounds)))
    return Workload("w", "test", tuple(made))


def plan(load: Workload, concurrency: int, **options: Any) -> LoopPlan:  # noqa: ANN401 - passed on
    """A plan without a ramp, so that a test knows when lanes start."""
    fields: dict[str, Any] = {"cache_bust": "none", "marker_salt": "salt", "ramp_s": 0.0} | options
    return LoopPlan(load, concurrency, **fields)


class Replay:
    """Runs a plan and keeps what the sink got. `during` is called with the stop signal after each record."""

    def __init__(self, url: str, made: LoopPlan) -> None:
        self.url = url
        self.plan = made
        self.records: list[RequestRecord] = []
        self.progress: list[ProgressSnapshot] = []
        self.stop = StopSignal()
        self.maker: Any = Letters()
        self.on_record: Callable[[RequestRecord], None] = lambda _: None
        self.on_progress: Callable[[ProgressSnapshot], None] = self.progress.append

    def sink(self, record: RequestRecord) -> None:
        """Keep, then let the test act."""
        self.records.append(record)
        self.on_record(record)

    async def main(self) -> LoopOutcome:
        """The loop on a client of its own."""
        async with Client(Target(self.url, "m", idle_timeout_s=20)) as client:
            return await run_closed_loop(
                self.plan, client, self.maker, self.sink, self.stop, self.on_progress
            )

    def run(self) -> LoopOutcome:
        """To the end."""
        outcome = run(self.main())
        assert outcome.planned == self.plan.workload.requests
        assert outcome.sent == len(self.records)
        assert outcome.sent + outcome.not_sent == outcome.planned
        return outcome


def contents(exchange: Exchange) -> list[str]:
    """The contents of the messages that were sent."""
    messages = exchange.json["messages"]
    assert isinstance(messages, list)
    return [message["content"] for message in messages]


def most_at_once(exchanges: list[Exchange]) -> int:
    """The server's own count: requests between their arrival and the last send of their reply."""
    edges = [(e.at, 1) for e in exchanges] + [(e.sent[-1][0], -1) for e in exchanges]
    live = most = 0
    for _, step in sorted(edges):
        live += step
        most = max(most, live)
    return most


def test_everything_planned_is_sent_in_order(serve: Serve) -> None:
    """5 sessions of 3 turns on 2 lanes: 15 records, never more than 2 at the server, turns in order on one
    lane."""
    server = serve([Pause(0.01), OK])
    replay = Replay(server.url, plan(workload(5, 3), 2))
    outcome = replay.run()
    assert (outcome.sent, outcome.not_sent, outcome.stop_mode) == (15, 0, None)
    assert len({r.id for r in replay.records}) == 15
    assert {r.outcome for r in replay.records} == {"ok"}
    assert most_at_once(server.exchanges) == 2 == outcome.max_in_flight
    by_session = defaultdict(list)
    for record in replay.records:
        by_session[record.session].append(record)
    for records in by_session.values():
        assert [r.turn for r in records] == [0, 1, 2]
        assert len({r.lane for r in records}) == 1
        for before, after in pairwise(records):
            assert after.start_s is not None and before.end_s is not None
            assert after.start_s >= before.end_s
    assert {r.lane for r in replay.records} == {0, 1}
    assert outcome.achieved_concurrency is not None and 1.2 < outcome.achieved_concurrency <= 2 + 1e-9
    assert server.connections == 2


def test_what_is_sent(serve: Serve) -> None:
    """Turn 1 repeats turn 0's messages and adds to them; the asked length, seed and temperature are in the
    body."""
    server = serve([OK])
    replay = Replay(server.url, plan(workload(1, 2), 1, seed=7, temperature=0.5))
    replay.run()
    first, second = server.exchanges
    assert contents(first) == ["TTU", "q0.0"]
    assert contents(second) == ["TTU", "q0.0", "r0.0", "q0.1"]
    messages = second.json["messages"]
    assert isinstance(messages, list)
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
    body = second.json
    assert (body["max_tokens"], body["seed"], body["temperature"], body["ignore_eos"]) == (11, 7, 0.5, True)
    record = replay.records[1]
    assert (record.requested_output_tokens, record.expected_input_tokens) == (11, 6)
    assert record.phase == "measured"
    assert second.headers["x-request-id"] == record.id
    assert second.headers["x-session-id"] == "s0"


def test_think_time_counts_from_the_end_of_the_reply(serve: Serve) -> None:
    """0.05 s of recorded think time at scale 2: due 0.1 s after the end of the reply, and never sent
    before."""
    server = serve([Pause(0.05), OK])
    replay = Replay(server.url, plan(workload(1, 3, think_s=0.05), 1, think_scale=2.0))
    replay.run()
    for before, after in pairwise(replay.records):
        assert before.end_s is not None and after.start_s is not None
        due_s = before.end_s + 0.1
        assert after.intended_send_s == pytest.approx(due_s, abs=1e-9)
        assert 0 <= after.start_s - due_s < LATE_S
    first = replay.records[0]
    assert first.start_s is not None and first.intended_send_s is not None
    assert 0 <= first.start_s - first.intended_send_s < LATE_S


def test_think_scale_zero_leaves_them_out(serve: Serve) -> None:
    """An hour of recorded think time, scaled away."""
    replay = Replay(serve([OK]).url, plan(workload(1, 3, think_s=3600), 1, think_scale=0.0))
    before = time.monotonic()
    assert replay.run().sent == 3
    assert time.monotonic() - before < 5


def marker(*parts: str) -> str:
    """The marker by its definition: 12 hex digits of SHA-256 over the parts with zero bytes between them."""
    return f"[rid:{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}]\n\n"


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("none", {"s0": ["", ""], "s1": ["", ""]}),
        (
            "session",
            {
                "s0": [marker("salt", "s0"), marker("salt", "s0")],
                "s1": [marker("salt", "s1"), marker("salt", "s1")],
            },
        ),
        (
            "request",
            {
                "s0": [marker("salt", "s0", "0"), marker("salt", "s0", "1")],
                "s1": [marker("salt", "s1", "0"), marker("salt", "s1", "1")],
            },
        ),
    ],
)
def test_cache_bust_markers(serve: Serve, scope: CacheBust, expected: dict[str, list[str]]) -> None:
    """In front of the first message and nowhere else; the same for a session tree, or another for each
    request."""
    server = serve([OK])
    Replay(server.url, plan(workload(2, 2), 1, cache_bust=scope)).run()
    seen = defaultdict(list)
    for exchange in server.exchanges:
        first, *others = contents(exchange)
        assert first.endswith("TTU")
        assert not any("[rid:" in content for content in others)
        seen[exchange.headers["x-session-id"]].append(first.removesuffix("TTU"))
    assert seen == expected


def test_points_never_share_a_marker(serve: Serve) -> None:
    """The same workload under another salt: no first message in common."""
    server = serve([OK])
    for salt in ("point-1", "point-2"):
        Replay(server.url, plan(workload(2, 2), 1, cache_bust="session", marker_salt=salt)).run()
    firsts = [contents(e)[0] for e in server.exchanges]
    assert not set(firsts[:4]) & set(firsts[4:])
    ids = [e.headers["x-request-id"] for e in server.exchanges]
    assert len(set(ids)) == 8


def test_session_goes_on_after_a_failed_turn(serve: Serve) -> None:
    """The second turn gets a 500; the third is sent, with the prompt it would have had anyway."""
    server = serve([OK], [reply("500 Internal Server Error", b"oops")], [OK])
    replay = Replay(server.url, plan(workload(1, 3), 1))
    replay.run()
    assert [r.outcome for r in replay.records] == ["ok", "error", "ok"]
    assert contents(server.exchanges[2]) == ["TTU", "q0.0", "r0.0", "q0.1", "r0.1", "q0.2"]


def test_server_that_is_not_there() -> None:
    """12 planned, 12 records, all refused."""
    replay = Replay("http://127.0.0.1:1", plan(workload(4, 3), 3))
    outcome = replay.run()
    assert outcome.sent == 12
    assert {r.error_kind for r in replay.records} == {"connect_refused"}


def test_lanes_beyond_the_sessions_do_nothing(serve: Serve) -> None:
    """Concurrency 8 on 2 sessions: 2 lanes; the outcome says that 8 were asked and at most 2 were live."""
    server = serve([Pause(0.05), OK])
    outcome = Replay(server.url, plan(workload(2, 1), 8)).run()
    assert (outcome.concurrency, outcome.max_in_flight) == (8, 2)
    assert outcome.achieved_concurrency is not None and 1 < outcome.achieved_concurrency <= 2 + 1e-9


def test_empty_workload() -> None:
    """Nothing planned, nothing sent, no window."""
    outcome = Replay("http://127.0.0.1:1", plan(Workload("w", "empty", ()), 2)).run()
    assert (outcome.planned, outcome.sent, outcome.achieved_concurrency) == (0, 0, None)


def test_ramp(serve: Serve) -> None:
    """Three lanes over 0.1 s: due at 0, 0.05 and 0.1 s after the window opens."""
    server = serve([Pause(0.25), OK])
    replay = Replay(server.url, plan(workload(3, 1), 3, ramp_s=0.1))
    outcome = replay.run()
    starts = sorted(r.start_s - outcome.window_start_s for r in replay.records if r.start_s is not None)
    for start, due in zip(starts, [0.0, 0.05, 0.1], strict=True):
        assert due <= start < due + LATE_S
    assert [r.connect_s for r in replay.records] == [None] * 3


@pytest.mark.parametrize(
    ("lanes", "step_s"), [(1, 0.0), (2, 0.02), (51, 0.02), (101, 0.01), (1025, 1 / 1024)]
)
def test_default_ramp(lanes: int, step_s: float) -> None:
    """20 ms apart, or all within a second."""
    assert LoopPlan(workload(lanes, 1), lanes, "none", "x").ramp_step_s == pytest.approx(step_s)


def test_drain_finishes_what_is_in_flight(serve: Serve) -> None:
    """Asked for after the first of two parallel replies: the other one ends well, nothing new is sent."""
    server = serve([Pause(0.03), OK], [Pause(0.12), OK], [OK])
    replay = Replay(server.url, plan(workload(4, 2), 2))
    replay.on_record = lambda _: replay.stop.request("drain", "enough")
    outcome = replay.run()
    assert [r.outcome for r in replay.records] == ["ok", "ok"]
    assert (outcome.sent, outcome.not_sent) == (2, 6)
    assert (outcome.stop_mode, outcome.stop_reason) == ("drain", "enough")
    assert len(server.exchanges) == 2


@pytest.mark.parametrize("mode", ["drain", "now"])
def test_stop_wakes_lanes_that_think(serve: Serve, mode: Any) -> None:  # noqa: ANN401 - a literal
    """A think time of an hour does not hold a stop, which may come from another thread."""
    server = serve([OK])
    replay = Replay(server.url, plan(workload(2, 2, think_s=3600), 2))
    threading.Timer(0.1, replay.stop.request, (mode, "signal")).start()
    before = time.monotonic()
    outcome = replay.run()
    assert time.monotonic() - before < 5
    assert [r.outcome for r in replay.records] == ["ok", "ok"]
    assert (outcome.not_sent, outcome.stop_mode) == (2, mode)


def test_now_gives_up_what_is_in_flight(serve: Serve) -> None:
    """One reply ends, the other is cut off after its first chunk: it is recorded as cancelled, with that
    chunk."""
    begun = STREAM_HEAD + chunk(sse(delta(content="a")))
    server = serve([Pause(0.1), OK], [begun, Pause(10)])
    replay = Replay(server.url, plan(workload(4, 2), 2))

    def stop(_: RequestRecord) -> None:
        replay.stop.request("drain", "first")
        replay.stop.request("now", "second")

    replay.on_record = stop
    before = time.monotonic()
    outcome = replay.run()
    assert time.monotonic() - before < 5
    assert sorted(r.outcome for r in replay.records) == ["cancelled", "ok"]
    cancelled = next(r for r in replay.records if r.outcome == "cancelled")
    assert len(cancelled.chunk_s) == 1
    assert cancelled.end_s is not None
    assert (outcome.sent, outcome.not_sent) == (2, 6)
    assert (outcome.stop_mode, outcome.stop_reason) == ("now", "second")


@pytest.mark.parametrize("mode", ["drain", "now"])
def test_stop_before_the_start(serve: Serve, mode: Any) -> None:  # noqa: ANN401 - a literal
    """Nothing is sent, everything is accounted for."""
    server = serve([OK])
    replay = Replay(server.url, plan(workload(2, 2), 2))
    replay.stop.request(mode, "early")
    outcome = replay.run()
    assert (outcome.sent, outcome.not_sent) == (0, 4)
    assert server.exchanges == []


def test_cancelling_the_loop_records_what_was_in_flight(serve: Serve) -> None:
    """Ctrl-C as asyncio delivers it: every request in flight still reaches the sink."""
    replay = Replay(serve([Pause(10)]).url, plan(workload(3, 1), 3))

    async def main() -> None:
        task = asyncio.create_task(replay.main())
        await asyncio.sleep(0.08)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    assert [r.outcome for r in replay.records] == ["cancelled"] * 3


def test_sink_that_fails_stops_everything(serve: Serve) -> None:
    """A full disk at the first record: its error comes out, the request in flight is given up, nothing is
    sent."""
    server = serve([Pause(0.05), OK], [Pause(10)], [OK])
    replay = Replay(server.url, plan(workload(4, 2), 2))
    error = OSError(28, "No space left on device")

    def fail(_: RequestRecord) -> None:
        raise error

    replay.on_record = fail
    before = time.monotonic()
    with pytest.raises(OSError) as caught:
        run(replay.main())
    assert caught.value is error
    assert time.monotonic() - before < 5
    assert len(replay.records) == 1
    assert len(server.exchanges) == 2


def test_text_maker_that_fails_stops_everything(serve: Serve) -> None:
    """A bug in the text of one session: the other lane's request is given up and recorded."""

    class Broken:
        def text(self, segment: Segment) -> str:
            if segment.id == "q1.0":
                raise LookupError("no such text")
            return "x"

    replay = Replay(serve([Pause(10)]).url, plan(workload(2, 1), 2, ramp_s=0.1))
    replay.maker = Broken()
    with pytest.raises(LookupError, match="no such text"):
        run(replay.main())
    assert [r.outcome for r in replay.records] == ["cancelled"]


def test_progress(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers only grow, and the last snapshot is the end: 6 of 6, one failed."""
    monkeypatch.setattr(playing, "PROGRESS_INTERVAL_S", 0.02)
    server = serve([reply("500 Oops", b"")], [Pause(0.05), stream(delta(content="a"), delta(content="b"))])
    replay = Replay(server.url, plan(workload(2, 3), 1))
    replay.run()
    seen = replay.progress
    assert len(seen) >= 3
    assert all(a.done <= b.done and a.elapsed_s <= b.elapsed_s for a, b in pairwise(seen))
    first, last = seen[0], seen[-1]
    assert (first.planned, first.done, first.ttft_p50_s, first.tokens_per_s) == (6, 0, None, None)
    assert (last.planned, last.sent, last.done, last.errors) == (6, 6, 6, 1)
    assert (last.in_flight, last.live_sessions) == (0, 0)
    assert last.ttft_p50_s is not None and 0.05 <= last.ttft_p50_s < 0.05 + LATE_S
    assert last.tokens_per_s == pytest.approx(10 / last.elapsed_s)


def test_progress_that_fails_stops_everything(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever draws has a bug: it comes out, and the request in flight is recorded."""
    monkeypatch.setattr(playing, "PROGRESS_INTERVAL_S", 0.05)
    replay = Replay(serve([Pause(10)]).url, plan(workload(1, 1), 1))

    def fail(snapshot: ProgressSnapshot) -> None:
        if snapshot.sent:
            raise LookupError("cannot draw")

    replay.on_progress = fail
    with pytest.raises(LookupError, match="cannot draw"):
        run(replay.main())
    assert [r.outcome for r in replay.records] == ["cancelled"]


def test_the_instrument_notices_that_it_was_late(serve: Serve) -> None:
    """A sink that burns 0.15 s of processor time in the loop shows as lag and as processor time of that
    size."""
    server = serve([Pause(0.1), OK])
    replay = Replay(server.url, plan(workload(1, 3), 1))

    def burn(record: RequestRecord) -> None:
        end = time.process_time() + (0.15 if record.turn == 1 else 0.0)
        while time.process_time() < end:
            pass

    replay.on_record = burn
    health = replay.run().health
    assert health.lag_max_s is not None and health.lag_max_s > 0.1
    assert health.lag_p50_s is not None and health.lag_p50_s < 0.1
    assert health.lag_p99_s == health.lag_max_s
    assert health.cpu_s > 0.15
    assert health.lag_samples >= 3


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"concurrency": 0}, "replay.bad_concurrency"),
        ({"think_scale": -1.0}, "replay.bad_think_scale"),
        ({"think_scale": float("nan")}, "replay.bad_think_scale"),
        ({"ramp_s": float("inf")}, "replay.bad_ramp"),
        ({"workload": workload(1, 2, think_s=float("nan"))}, "replay.bad_think"),
        ({"workload": workload(1, 2, think_s=-1.0)}, "replay.bad_think"),
    ],
)
def test_plans_that_cannot_run(options: dict[str, Any], key: str) -> None:
    """Said before anything is sent, with a way out, in both languages."""
    fields: dict[str, Any] = {"workload": workload(1, 1), "concurrency": 1} | options
    with pytest.raises(ServemarkError) as caught:
        LoopPlan(cache_bust="none", marker_salt="x", **fields)
    assert (caught.value.key, caught.value.exit_code) == (key, 2)
    assert caught.value.next_step("en") and caught.value.next_step("zh")
