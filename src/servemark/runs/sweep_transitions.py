"""What an attempt's end means for a point: pure functions from one row to the next."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from servemark.base.errors import Layer
from servemark.runs.sweep_runner import Outcome, died
from servemark.store.sweep_rows import AttemptState, Failure, PointState, SweepPoint

_LONGEST_BACKOFF_S = 600.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of points that have no result: `going` says that they may be tried again, now or after a pause."""

    going: bool
    backoff_s: float
    """Seconds before the second attempt."""


def attempt_state(*, complete: bool, stopping: bool, exit_word: str | None, void: bool) -> AttemptState:
    """How an attempt went. `void`: an earlier sweep process meant to start it and did not come to it."""
    if complete:
        return AttemptState.DONE
    if void:
        return AttemptState.VOID
    if stopping:
        return AttemptState.STOPPED
    return AttemptState.LOST if exit_word is None else AttemptState.FAILED


def after(point: SweepPoint, outcome: Outcome, state: AttemptState, wish: Wish, now_s: float) -> SweepPoint:
    """The row of a running point after its attempt. `now_s`: seconds since 1970."""
    if outcome.run_id is not None:  # the later result counts, the earlier run stays in its folder
        return replace(point, state=PointState.DONE, run_id=outcome.run_id or None, failure=None)
    if state in (AttemptState.VOID, AttemptState.STOPPED):
        found = replace(
            point, tries=point.tries - 1, failure=None if state is AttemptState.VOID else outcome.failure
        )
        return replace(found, state=PointState.WAITING) if wish.going else ended(found, PointState.CANCELLED)
    if point.run_id is not None:  # an earlier result stands
        return replace(point, state=PointState.DONE, failure=outcome.failure)
    if outcome.transient and point.tries < point.budget and wish.going:
        wait_s = backoff_s(wish.backoff_s, point.tries)
        return replace(point, state=PointState.WAITING, failure=outcome.failure, not_before_s=now_s + wait_s)
    return replace(point, state=PointState.FAILED, failure=outcome.failure or died(None))


def backoff_s(first_s: float, tries: int) -> float:
    """Seconds before the attempt after `tries` ones: doubled each time, at most ten minutes, a quarter of it random so
    that sweeps which failed together do not come back together."""
    full = min(first_s * 2.0 ** max(0, min(tries - 1, 30)), _LONGEST_BACKOFF_S)
    return full * (0.75 + 0.25 * random.random())  # noqa: S311 - no secret


def again(point: SweepPoint) -> SweepPoint:
    """The point ready for one more attempt, whatever became of it before; a result that it has is kept meanwhile."""
    return replace(
        point, state=PointState.WAITING, budget=max(point.budget, point.tries + 1), not_before_s=0.0
    )


def ended(
    point: SweepPoint,
    state: PointState,
    key: str = "runs.sweep.cancelled",
    values: dict[str, object] | None = None,
) -> SweepPoint:
    """A point that gets no (further) attempt, and the message that says why."""
    layer = Layer.INTERRUPT if state is PointState.CANCELLED else Layer.PREFLIGHT
    failure: Failure = {"layer": str(layer), "key": key, "values": values or {}}
    return replace(point, state=state, failure=failure)
