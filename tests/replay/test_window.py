"""The measured and the steady window of a client that lags: one never exceeds the other."""

from __future__ import annotations

import time

import pytest
from tests.replay.conftest import Serve
from tests.replay.test_loop import OK, Letters, Replay, plan, workload

from servemark.replay.client import run
from servemark.results.replay_figures import questions_of, replay_figures
from servemark.results.summary import summarise
from servemark.traces.types import Segment

LAG_S = 0.05


class Slow(Letters):
    """A busy client: making a text blocks it."""

    def text(self, segment: Segment) -> str:
        """See the class."""
        time.sleep(LAG_S)
        return super().text(segment)


@pytest.mark.parametrize("duration_s", [None, 0.6])
def test_a_steady_window_lies_in_its_window(serve: Serve, duration_s: float | None) -> None:
    """A request starts well after its lane took the session; both windows begin with the request all the same."""
    replay = Replay(serve([OK]).url, plan(workload(1, 2), 1, duration_s=duration_s))
    replay.maker = Slow()
    outcome = run(replay.main())
    seen = summarise(replay.records, questions_of(outcome))
    figures = replay_figures(outcome, seen)
    assert outcome.steady_start_s is not None
    assert seen.first_start_s is not None
    assert seen.first_start_s > outcome.steady_start_s + LAG_S
    whole, steady = figures.window, figures.steady
    assert steady is not None
    if duration_s is not None:
        assert whole is not None
        assert steady.start_s >= whole.start_s
        assert steady.window_s <= whole.window_s
        return
    assert (steady.start_s, steady.end_s) == (seen.first_start_s, seen.last_moment_s)
    assert steady.window_s == seen.window_s()
    assert steady.output_tokens == sum(len(record.chunk_s) for record in replay.records)
