"""Histograms, timelines, lines and figures as text: by hand and as properties."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemark.analysis.format import ABSENT, SPACE, display, group, one, significant
from servemark.analysis.histogram import MAX_BINS, histogram
from servemark.analysis.series import lines
from servemark.analysis.timeline import timeline
from servemark.metrics.registry import Unit
from servemark.replay.record import RequestRecord
from servemark.results.serialize import read_result

MADE = runpy.run_path(str(Path(__file__).parents[1] / "results" / "make_run.py"))
BUILD = runpy.run_path(str(Path(__file__).parents[1] / "results" / "test_build.py"))
VALUES = st.lists(st.floats(0, 1e6) | st.integers(0, 3).map(float), min_size=1, max_size=300)


@given(values=VALUES, log=st.booleans())
def test_every_value_is_counted_once(values: list[float], log: bool) -> None:
    """In a bin, above the last one, or without a logarithm; edges ascend and bound what is inside."""
    made = histogram("ttft_s", "s", values, log=log)
    assert made is not None
    assert sum(made.counts) + made.above + made.at_or_below_zero == made.n == len(values)
    assert len(made.edges) == len(made.counts) + 1 <= MAX_BINS + 1
    assert list(made.edges) == sorted(made.edges)
    assert made.max == max(values)
    assert made.p50 in values
    if not made.log:
        assert made.edges[0] == min(values)
        assert made.above == sum(value > made.edges[-1] for value in values)


def test_histogram_by_hand() -> None:
    """0..8 in nine values: Q1 = 2, Q3 = 6, width 2 x 4 / 9^(1/3) = 3.85, so 8 / 3.85 -> the minimum of 5
    bins."""
    made = histogram("ttft_s", "s", [float(i) for i in range(9)])
    assert made is not None
    assert made.edges == pytest.approx((0, 1.6, 3.2, 4.8, 6.4, 8.0))
    assert made.counts == (2, 2, 1, 2, 2)


def test_one_outlier_does_not_squeeze_the_rest() -> None:
    """A hundred values from 1 to 1.99 and two outliers: Q3 = 1.76, IQR = 0.51, so the fence is 5.84: of 5.8
    and 5.9 the second is counted apart, and its size is said."""
    made = histogram("ttft_s", "s", [1 + i / 100 for i in range(100)] + [5.8, 5.9])
    assert made is not None
    assert (made.above, made.max) == (1, 5.9)
    assert made.edges[-1] == pytest.approx(5.8)


def test_equal_values_and_no_values() -> None:
    """One bin for a single place; nothing for nothing; no logarithm of zeros alone."""
    made = histogram("ttft_s", "s", [2.0, 2.0])
    assert made is not None
    assert (made.edges, made.counts) == ((2.0, 2.0), (2,))
    assert histogram("ttft_s", "s", []) is None
    zeros = histogram("chunk_gap_s", "s", [0.0, 0.0], log=True)
    assert zeros is not None
    assert not zeros.log


def test_timeline_by_hand() -> None:
    """Two lanes; times count from the first start; a request that never started has no bar."""
    first, second = BUILD["a_record"]("a", 100.0), BUILD["a_record"]("b", 101.0, lane=1)
    never = RequestRecord(id="c", session="c", turn=0, phase="measured")
    warm = BUILD["a_record"]("w", 50.0, phase="warmup")
    found = timeline([warm, second, first, never])
    assert (len(found.lanes), found.never_started, found.left_out) == (2, 1, 0)
    ((bar,), (other,)) = found.lanes
    assert (bar.request, bar.start_s, bar.first_content_s) == ("a", 0.0, 1.0)
    assert bar.end_s == pytest.approx(3.1)
    assert other.start_s == 1.0
    assert found.duration_s == pytest.approx(4.1)


def test_lanes_are_found_where_records_name_none() -> None:
    """Two overlapping requests, then one after both: it goes into the lane that is free first."""
    records = [BUILD["a_record"](name, at, lane=None) for name, at in (("a", 0.0), ("b", 1.0), ("c", 3.2))]
    found = timeline(records)
    assert [[bar.request for bar in lane] for lane in found.lanes] == [["a", "c"], ["b"]]


def test_timeline_of_nothing_and_of_too_much() -> None:
    """No bar is no error; bars beyond the limit are counted."""
    assert timeline([]).lanes == ()
    found = timeline([BUILD["a_record"](str(i), 10.0 * i) for i in range(5)], max_bars=3)
    assert (sum(len(lane) for lane in found.lanes), found.left_out) == (3, 2)


def test_points_of_different_lines_are_never_joined(tmp_path: Path) -> None:
    """Law 6: two runs of the same points stay two lines, each by concurrency, whatever the order given."""
    rows = [
        read_result(MADE["make_point"](tmp_path / name, c, line=name))
        for name in ("b", "a")
        for c in (4, 1, 2)
    ]
    found = lines(rows)
    assert found == lines(reversed(rows))
    assert [[row.concurrency for row in line.rows] for line in found] == [[1, 2, 4]] * 2
    assert all(len({row.line_id for row in line.rows}) == 1 for line in found)


def test_a_second_run_of_a_point_replaces_the_first(tmp_path: Path) -> None:
    """The later one stands; a partial one never replaces a whole one; the replaced stay listed."""
    row = read_result(MADE["make_point"](tmp_path, 2))
    later = replace(row, run_id="later", started_utc="2026-12-01T00:00:00Z")
    torn = replace(row, run_id="torn", started_utc="2026-12-02T00:00:00Z", status="partial")
    (line,) = lines([torn, later, row])
    assert [each.run_id for each in line.rows] == ["later"]
    assert [each.run_id for each in line.replaced] == ["torn", row.run_id]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"),
        (1.0, "1.00"),
        (0.012345, "0.0123"),
        (12.345, "12.3"),
        (99.96, "100"),
        (9.996, "10.0"),
        (999.6, "1000"),
        (1234.5, "1235"),
        (12345.6, f"12{SPACE}346"),
        (1234567.0, f"1{SPACE}234{SPACE}567"),
        (-0.5, "-0.500"),
        (1e-12, "0"),
        (float("nan"), ABSENT),
        (float("inf"), ABSENT),
    ],
)
def test_significant(value: float, expected: str) -> None:
    """Three significant digits, no exponent, whole parts never cut."""
    assert significant(value) == expected


def test_halves_are_rounded_as_browsers_do() -> None:
    """(312.5).toFixed(0) is 313 and (1.125).toFixed(2) is 1.13 in JavaScript; halves to even would give 312 and 1.12."""
    assert [significant(v) for v in (312.5, 1.125, -312.5)] == ["313", "1.13", "-313"]


@given(st.floats(1e-6, 1e9))
def test_significant_is_close(value: float) -> None:
    """What is written is within half a unit of the third digit."""
    assert float(significant(value).replace(SPACE, "")) == pytest.approx(value, rel=0.00501)


def test_units_suit_the_whole_column() -> None:
    """Milliseconds while the largest is below a second; shares as per cent; counts without a unit word."""
    assert display(Unit.SECONDS, (0.012, 0.9)).text(0.012) == f"12.0{SPACE}ms"
    assert display(Unit.SECONDS, (0.012, 1.1)).text(0.012) == f"0.0120{SPACE}s"
    assert one(0.00045, Unit.SECONDS) == f"450{SPACE}µs"
    assert one(0.123, Unit.SHARE) == f"12.3{SPACE}%"
    assert one(12000, Unit.COUNT) == f"12{SPACE}000"
    assert one(58.0, Unit.REQUESTS) == "58"
    assert one(None, Unit.SECONDS) == ABSENT
    assert one(0.0, Unit.SECONDS) == f"0{SPACE}ms"
    assert group("1234.5") == "1234.5"
