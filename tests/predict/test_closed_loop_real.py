"""The simulated replay beside a real one over real sockets: the same requests in the same order."""

from __future__ import annotations

from tests.replay.conftest import Pause, Serve, delta, serve, stream

from servemark.predict.assumed_times import fixed_times
from servemark.predict.closed_loop import simulate
from servemark.predict.sim_rules import Deployment, ReplayRules
from servemark.replay.client import Client, Target, run
from servemark.replay.loop import LoopOutcome, LoopPlan, run_closed_loop
from servemark.replay.record import RequestRecord
from servemark.replay.stop import StopSignal
from servemark.replay.timeline import IdleCaps
from servemark.traces.types import Message, Segment, Session, SubAgent, Turn, Workload

__all__ = ["serve"]
ANSWER_S = 0.05


class Letters:
    """A segment's text is its id."""

    def text(self, segment: Segment) -> str:
        """See the class."""
        return segment.id


def turns(*think_s: float) -> tuple[Turn, ...]:
    """One turn for each think time."""
    return tuple(Turn((Message("user", (Segment("x", 1),)),), 1, value) for value in think_s)


def test_same_requests_in_the_same_order(serve: Serve) -> None:
    """Three trees in two lanes: a join, a child of a child, a background child, start points and an idle cap. Moments that
    the tree decides are 0.1 s apart or more."""
    first = Session(
        "a",
        turns(0, 0.1, 0.35),
        (
            SubAgent("j", turns(0, 0.2), 0, 0.25, 1, (SubAgent("g", turns(0), 0, 0.1, 1),)),
            SubAgent("b", turns(0, 0.9), 1, 0.15),
        ),
    )
    workload = Workload("w", "w", (first, Session("c", turns(0, 0.5, 30.0)), Session("d", turns(0, 0.6))))
    for share in (None, (0.5, 0.5)):
        server = serve([Pause(ANSWER_S), ANSWER])
        caps = IdleCaps(tree_s=0.8)
        plan = LoopPlan(workload, 2, "none", "x", ramp_s=0.07, idle_caps=caps, start_share=share)
        records: list[RequestRecord] = []

        async def main(url: str, plan: LoopPlan, kept: list[RequestRecord]) -> LoopOutcome:
            async with Client(Target(url, "m", idle_timeout_s=10)) as client:
                return await run_closed_loop(plan, client, Letters(), kept.append, StopSignal())

        outcome = run(main(server.url, plan, records))
        simulated = simulate(
            workload,
            None,
            fixed_times(ANSWER_S, 0.0),
            ReplayRules(2, cache_bust="none", ramp_s=0.07, idle_caps=caps, start_share=share),
            Deployment(prefills_at_once=None),
            keep_requests=True,
        )
        measured = sorted((r for r in records if r.phase == "measured"), key=lambda r: r.start_s or 0.0)
        ours = sorted(simulated.requests, key=lambda r: r.start_s)
        assert [(r.session, r.stream, r.turn) for r in ours] == [
            (r.session, r.agent or "", r.turn) for r in measured
        ]
        assert simulated.warm_ups == len(records) - len(measured)
        assert simulated.idle_moves == len(outcome.shifts)
        assert abs(simulated.idle_cut_s - sum(s.shift_s for s in outcome.shifts)) < 1.0


ANSWER = stream(delta(content="live"))
