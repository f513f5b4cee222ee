"""Records -> row. A point of four requests whose times were chosen so that every figure can be done in the
head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from servemark.launch.engines.protocol import EngineCounters
from servemark.replay.record import RequestRecord
from servemark.results.build import LoopFigures, RowInputs, build_row, engine_cache_share
from servemark.results.row import ResultRow
from servemark.results.serialize import encode_result
from servemark.results.summary import summarise


def a_record(name: str, start: float, **changed: Any) -> RequestRecord:  # noqa: ANN401 - any field
    """An ok request: first content after 1 s, then four gaps of 0.5 s; 100 prompt tokens, 40 of them
    cached."""
    times = [start + 1 + 0.5 * i for i in range(5)]
    record = RequestRecord(
        id=name,
        session=name,
        turn=0,
        phase="measured",
        lane=0,
        start_s=start,
        first_text_s=times[0],
        end_s=times[-1] + 0.1,
        chunk_s=times,
        requested_output_tokens=5,
        expected_input_tokens=100,
        input_tokens=100,
        output_tokens=5,
        cached_tokens=40,
        tokens_origin="usage",
        outcome="ok",
    )
    return replace(record, **changed)


def failed(name: str, start: float, outcome: str) -> RequestRecord:
    """A request that ended badly at start + 2, without tokens."""
    return a_record(
        name,
        start,
        outcome=outcome,
        chunk_s=[],
        first_text_s=None,
        end_s=start + 2,
        input_tokens=None,
        output_tokens=None,
        cached_tokens=None,
        tokens_origin="none",
    )


def inputs(*records: RequestRecord, **changed: Any) -> RowInputs:  # noqa: ANN401 - any field
    """Everything else that a row needs, plain."""
    base: dict[str, Any] = {
        "run_id": "line-c1",
        "line_id": "line",
        "point_id": "p" * 16,
        "series_id": "s" * 16,
        "suite": "suite",
        "arm": "arm",
        "concurrency": 1,
        "started_utc": "2026-11-30T01:00:00Z",
        "finished_utc": "2026-11-30T01:01:00Z",
        "identity": {"model": "m"},
        "declared": {},
        "observed": {"engine": {"engine": "e"}},
        "workload": {"id": "w"},
        "cache_state": {"kind": "cold"},
        "gpus_deployed": 0,
        "planned_requests": len(records),
        "seen": summarise(records),
        "loop": LoopFigures(cpu_s=0.01, chunks=10, loop_lag_p50_s=0.0001, loop_lag_p99_s=0.001),
    }
    return RowInputs(**base | changed)


def built(*records: RequestRecord, **changed: Any) -> ResultRow:  # noqa: ANN401 - any field
    """The row of some records."""
    return build_row(inputs(*records, **changed))


def test_figures_by_hand() -> None:
    """Two ok requests at 0 and 5 s, one that timed out at 8 s, and a warm-up that must not count."""
    warm = a_record("warm", -50.0, phase="warmup", input_tokens=9999)
    judged = a_record("eval", 90.0, phase="eval", input_tokens=9999)
    row = built(warm, a_record("a", 0.0), a_record("b", 5.0), failed("c", 8.0, "timeout"), judged)
    assert (row.counts.ok, row.counts.timeout, row.counts.error) == (2, 1, 0)
    assert row.window_s == 10.0  # from 0 to the time-out's end at 10
    assert row.tokens == {"input": 200, "output": 10, "cached": 80}
    ttft, tpot, e2el = (row.distributions[name] for name in ("ttft_s", "tpot_s", "e2el_s"))
    assert (ttft.n, ttft.p50) == (2, 1.0)
    assert tpot.p50 == pytest.approx(2.0 / 4)  # span 2 s over 5 - 1 tokens
    assert e2el.p99 == pytest.approx(3.0)
    assert row.distributions["chunk_gap_s"].n == 8
    assert "itl_s" not in row.distributions
    assert "connect_s" not in row.distributions
    assert row.cache.usage == pytest.approx(0.4)
    # Sessions live 3.1 + 3.1 + 2 s of a window of 10 s.
    assert row.achieved_concurrency == pytest.approx(0.82)


def test_concurrent_sessions_are_time_weighted() -> None:
    """One session with two turns (thinking in between counts), another inside it: 8.1 + 3.1 over 8.1 s."""
    first, second = a_record("a1", 0.0, session="a"), a_record("a2", 5.0, session="a", turn=1)
    row = built(first, second, a_record("b", 1.0, session="b"), concurrency=2)
    assert row.window_s == pytest.approx(8.1)
    assert row.achieved_concurrency == pytest.approx((8.1 + 3.1) / 8.1)


def test_one_missing_count_makes_the_sum_absent_and_is_said() -> None:
    """A sum over some of the requests would be a smaller number that looks like the whole."""
    row = built(a_record("a", 0.0), a_record("b", 5.0, output_tokens=None, tokens_origin="none"))
    assert row.tokens == {"input": 200, "output": None, "cached": 80}
    assert {warned.code: warned.values for warned in row.warnings}["tokens_unknown"] == {"lacking": 1, "n": 2}


def test_no_request_at_all() -> None:
    """Nothing is measured, nothing is zero, and the row can be written."""
    row = built(planned_requests=5)
    assert row.window_s is None
    assert row.achieved_concurrency is None
    assert row.tokens == {"input": None, "output": None, "cached": None}
    assert row.distributions == {}
    assert row.cache.usage is None
    encode_result(row)


def test_requests_that_never_started() -> None:
    """Cancelled before anything was sent: counted, and in no window."""
    row = built(a_record("a", 0.0), RequestRecord(id="x", session="x", turn=0, phase="measured"))
    assert row.counts.cancelled == 1
    assert row.window_s == pytest.approx(3.1)


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        (EngineCounters(100, 0, 0), EngineCounters(300, 150, 9), 0.75),
        (EngineCounters(100, 50, 0), EngineCounters(100, 50, 0), None),  # nothing was prompted
        (EngineCounters(100, 50, 0), EngineCounters(40, 10, 0), None),  # the engine began again
        (EngineCounters(100, None, 0), EngineCounters(300, 150, 9), None),
        (EngineCounters(float("nan"), 0, 0), EngineCounters(300, 150, 9), None),
        (None, EngineCounters(300, 150, 9), None),
    ],
)
def test_engine_cache_share(
    before: EngineCounters | None, after: EngineCounters, share: float | None
) -> None:
    """(150 - 0) / (300 - 100) = 0.75; absent wherever the counters tell no story."""
    assert engine_cache_share(before, after) == share


def test_a_lying_engine_cannot_break_the_row() -> None:
    """Not-a-number in the counters and more cached than prompt tokens in usage: absent, said, still
    written."""
    nan = float("nan")
    row = built(
        a_record("a", 0.0, cached_tokens=500),
        counters_before=EngineCounters(nan, 0, 0),
        counters_after=EngineCounters(300, nan, float("inf")),
    )
    assert row.cache.usage is None
    assert row.cache.engine is None
    assert "cache_counter_impossible" in {warned.code for warned in row.warnings}
    encode_result(row)
