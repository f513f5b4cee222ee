"""The one way in for other rooms: a plan, a client, a sink and a stop signal give a `ReplayOutcome`."""

from __future__ import annotations

from collections.abc import Callable

from servemark.replay.client import Client
from servemark.replay.loop import ClosedLoop, LoopPlan, run_closed_loop
from servemark.replay.open_loop import OpenLoop, OpenPlan, run_open_loop
from servemark.replay.outcome import ReplayOutcome
from servemark.replay.playing import Barrier
from servemark.replay.progress import ProgressSnapshot
from servemark.replay.prompts import SegmentText
from servemark.replay.record import RequestRecord
from servemark.replay.stop import StopSignal

__all__ = ["LoopPlan", "OpenPlan", "ReplayOutcome", "ReplayPlan", "replay"]

ReplayPlan = LoopPlan | OpenPlan


async def replay(  # noqa: PLR0917 - the last three are optional
    plan: ReplayPlan,
    client: Client,
    text_maker: SegmentText,
    sink: Callable[[RequestRecord], None],
    stop: StopSignal,
    on_progress: Callable[[ProgressSnapshot], None] | None = None,
    barrier: Barrier | None = None,
    on_made: Callable[[ClosedLoop | OpenLoop], None] | None = None,
) -> ReplayOutcome:
    """Replay in this process. See `run_closed_loop` and `run_open_loop` for sink, stop and errors."""
    if isinstance(plan, LoopPlan):
        return await run_closed_loop(
            plan, client, text_maker, sink, stop, on_progress, barrier=barrier, on_made=on_made
        )
    return await run_open_loop(
        plan, client, text_maker, sink, stop, on_progress, barrier=barrier, on_made=on_made
    )
