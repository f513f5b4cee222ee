"""The open loop: it never waits for replies, and every way to send on time is worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any

import pytest
from tests.replay.conftest import Pause, Serve, delta, stream

from servemark.base.errors import ServemarkError
from servemark.metrics.request import ttft_intended_s, ttft_s
from servemark.replay.arrivals import parse_arrivals
from servemark.replay.client import Client, Target, run
from servemark.replay.open_loop import OpenPlan, run_open_loop
from servemark.replay.outcome import LoopOutcome
from servemark.replay.record import RequestRecord
from servemark.replay.stop import StopSignal
from servemark.traces.types import Message, Segment, Session, Turn, Workload

OK = stream(delta(content="a"))


class Letters:
    """A segment's text is its id."""

    def text(self, segment: Segment) -> str:
        """See the class."""
        return segment.id


def load(starts: Sequence[float | None]) -> Workload:
    """One session of one request for each start."""
    turn = Turn((Message("user", (Segment("q", 1),)),), 5, at_s=0.0)
    return Workload("w", "w", tuple(Session(f"s{i}", (turn,), start_s=s) for i, s in enumerate(starts)))


def played(
    url: str,
    workload: Workload,
    law: str,
    stop: StopSignal | None = None,
    **options: Any,  # noqa: ANN401 - passed on
) -> tuple[list[RequestRecord], LoopOutcome]:
    """Run to the end."""
    plan = OpenPlan(workload, parse_arrivals(law), "none", "x", **options)
    records: list[RequestRecord] = []

    async def main() -> LoopOutcome:
        async with Client(Target(url, "m", idle_timeout_s=10)) as client:
            return await run_open_loop(plan, client, Letters(), records.append, stop or StopSignal())

    return records, run(main())


def intended(records: Sequence[RequestRecord]) -> list[float]:
    """Intended sends from the first one, in order."""
    times = sorted(r.intended_send_s for r in records if r.intended_send_s is not None)
    return [at - times[0] for at in times]


def test_it_does_not_wait_for_replies(serve: Serve) -> None:
    """20 requests a second against replies of 0.5 s: ten are in flight before the first is answered."""
    records, outcome = played(serve([Pause(0.5), OK]).url, load([None] * 10), "constant:20")
    assert intended(records) == pytest.approx([n / 20 for n in range(10)], abs=1e-6)
    assert outcome.max_in_flight == 10 and outcome.held_by_cap == 0
    for record in records:
        late, plain = ttft_intended_s(record), ttft_s(record)
        assert late is not None and plain is not None and late >= plain


def test_a_cap_holds_back_and_says_so(serve: Serve) -> None:
    """At most 2 in flight: held requests keep their intended times, so that the wait is in the latency."""
    records, outcome = played(serve([Pause(0.2), OK]).url, load([None] * 6), "constant:100", max_in_flight=2)
    assert outcome.max_in_flight == 2 and outcome.held_by_cap >= 3
    worst = max(ttft_intended_s(r) or 0 for r in records)
    assert worst > 0.5  # three rounds of 0.2 s, due within 0.05 s


def test_trace_times_are_scaled(serve: Serve) -> None:
    """Recorded at 100, 100.2 and 100.6 s, at double speed: 0, 0.1 and 0.3 s."""
    records, _ = played(serve([OK]).url, load([100.6, 100.0, 100.2]), "trace:2")
    assert intended(records) == pytest.approx([0, 0.1, 0.3], abs=1e-6)
    # Records come in the order of their ends, which no law fixes for requests that do not wait for each other.
    ordered = sorted(records, key=lambda record: record.intended_send_s or 0.0)
    assert [r.session for r in ordered] == ["s1", "s2", "s0"]
    with pytest.raises(ServemarkError) as caught:
        played(serve([OK]).url, load([None]), "trace")
    assert caught.value.key == "replay.no_times"


def test_laws() -> None:
    """Poisson: seeded, mean distance 1/rate within 5 % of 4,000 draws. Ramp 0-10 over 2 s: the n-th at
    sqrt(n / 2.5), eleven in all."""
    times = list(islice(parse_arrivals("poisson:50", 7).times(None), 4000))
    assert times == list(islice(parse_arrivals("poisson:50", 7).times(None), 4000))
    assert sum(b - a for a, b in pairwise(times)) / 3999 == pytest.approx(0.02, rel=0.05)
    ramp = list(parse_arrivals("ramp:0-10").times(2.0))
    assert ramp == pytest.approx([(n / 2.5) ** 0.5 for n in range(11)])


@pytest.mark.parametrize(
    "spec", ["", "constant", "constant:0", "poisson:nan", "ramp:5", "ramp:0-0", "x:1", "trace:0"]
)
def test_bad_laws(spec: str) -> None:
    """Each is refused in words."""
    with pytest.raises(ServemarkError) as caught:
        parse_arrivals(spec)
    assert caught.value.exit_code == 2


def test_a_sink_that_fails_ends_it(serve: Serve) -> None:
    """A full disk: its own error comes out, and nothing hangs."""
    plan = OpenPlan(load([None] * 50), parse_arrivals("constant:50"), "none", "x")

    def sink(record: RequestRecord) -> None:
        raise OSError(28, "full")

    async def main() -> None:
        async with Client(Target(serve([OK]).url, "m")) as client:
            await run_open_loop(plan, client, Letters(), sink, StopSignal())

    with pytest.raises(OSError, match="full"):
        run(main())


def test_duration_ends_the_sending(serve: Serve) -> None:
    """0.5 s at 20 a second: ten sends, of a workload of two that comes again."""
    records, outcome = played(serve([OK]).url, load([None] * 2), "constant:20", duration_s=0.5, grace_s=1.0)
    assert len(records) == 10 and outcome.passes == 5 and outcome.window_s == pytest.approx(0.5)
