"""Figures made from a row when read. Expected values by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemark.metrics.address import all_addresses
from servemark.metrics.derive import field_value, read, value_of
from servemark.metrics.percentiles import Distribution


def a_row(**changed: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A row as JSON with round figures: 10 s, 2,000 prompt and 400 output tokens, 8 ok and 2 bad requests."""
    spread = {"n": 8, "mean": 0.03, "std": 0.01, "min": 0.01, "max": 0.08, "p50": 0.025}
    spread |= {"p75": 0.03, "p90": 0.04, "p95": 0.05, "p99": 0.08}
    row: dict[str, Any] = {
        "gpus_deployed": 4,
        "window_s": 10.0,
        "tokens": {"input": 2000, "output": 400, "cached": 500},
        "counts": {"planned": 10, "ok": 8, "error": 1, "timeout": 1, "incomplete": 0, "cancelled": 0},
        "distributions": {"tpot_s": spread},
        "evals": [{"task": "sums", "n": 50, "correct": 20, "score": 0.4}],
        "client": {"cpu_s": 0.02, "chunks": 400},
    }
    return row | changed


@pytest.mark.parametrize(
    ("address", "expected", "written"),
    [
        ("output_tokens_per_s", 40.0, "400 ÷ 10"),
        ("input_tokens_per_s", 200.0, "2000 ÷ 10"),
        ("total_tokens_per_s", 240.0, "(2000 + 400) ÷ 10"),
        ("output_tokens_per_s_per_gpu", 10.0, "400 ÷ 10 ÷ 4"),
        ("total_tokens_per_s_per_gpu", 60.0, "(2000 + 400) ÷ 10 ÷ 4"),
        ("requests_per_s", 0.8, "8 ÷ 10"),
        ("interactivity.p50", 40.0, "1 ÷ 0.025"),
        ("interactivity.p90", 25.0, "1 ÷ 0.04"),
        ("interactivity.min", 12.5, "1 ÷ 0.08"),
        ("interactivity.max", 100.0, "1 ÷ 0.01"),
        ("error_rate", 0.2, "(1 + 1 + 0 + 0) ÷ (8 + 1 + 1 + 0 + 0)"),
        ("client_cpu_us_per_chunk", 50.0, "0.02 ÷ 400 \u00d7 1000000"),
        ("eval_score.sums", 0.4, "20 ÷ 50"),
        ("eval_score", 0.4, "20 ÷ 50"),
        ("tpot_s.p95", 0.05, ""),
        ("requests_ok", 8, ""),
    ],
)
def test_values_and_their_making(address: str, expected: float, written: str) -> None:
    """Value, and the formula with its numbers."""
    found = read(a_row(), address)
    assert found.value == pytest.approx(expected)
    assert found.substituted == written
    assert found.reason is None


@pytest.mark.parametrize(
    ("address", "changed", "reason"),
    [
        ("output_tokens_per_s_per_gpu", {"gpus_deployed": 0}, "gpus"),
        ("output_tokens_per_s", {"window_s": None}, "window"),
        ("output_tokens_per_s", {"window_s": 0.0}, "window"),
        ("output_tokens_per_s", {"tokens": {"output": None}}, "usage"),
        ("total_tokens_per_s", {"tokens": {"output": 400, "input": None}}, "usage"),
        ("interactivity.p50", {"distributions": {}}, "usage"),
        ("itl_s.p50", {}, "chunk_usage"),
        ("ttft_s.p50", {"counts": {"ok": 0}}, "no_ok_request"),
        ("cache_hit_engine", {}, "engine_counters"),
        ("eval_score.other", {}, "eval"),
        ("eval_score", {"evals": [{"task": "a", "score": 1}, {"task": "b", "score": 1}]}, "several_tasks"),
        ("tpot_s.std", {"distributions": {"tpot_s": {"n": 1, "std": None}}}, "one_value"),
        ("window_s", {"window_s": math.nan}, "window"),
        ("window_s", {"window_s": True}, "window"),
        ("window_s", {"window_s": "10"}, "window"),
    ],
)
def test_absent_is_absent_and_says_why(address: str, changed: dict[str, object], reason: str) -> None:
    """None with a reason; never 0, never a default, never not-a-number."""
    found = read(a_row(**changed), address)
    assert found.value is None
    assert found.reason == f"metrics.absent.{reason}"
    assert found.substituted == ""


@pytest.mark.parametrize("address", all_addresses())
@pytest.mark.parametrize("row", [{}, {"evals": "x", "counts": [], "distributions": None, "tokens": 3}])
def test_a_row_of_any_shape_gives_none(address: str, row: dict[str, object]) -> None:
    """An empty or wrongly shaped row has no figure, and raises nothing."""
    found = read(row, address)
    assert found.value is None
    assert found.reason


@given(values=st.lists(st.floats(min_value=1e-4, max_value=10), min_size=1, max_size=60))
def test_p90_interactivity_is_what_ninety_percent_reach(values: list[float]) -> None:
    """Law 5, against the requests themselves: at least 90 % of the per-request rates are as high or
    higher."""
    spread = Distribution.of(values)
    assert spread is not None
    row = {"distributions": {"tpot_s": {name: getattr(spread, name) for name in Distribution.__slots__}}}
    for q in (50, 90, 99):
        rate = value_of(row, f"interactivity.p{q}")
        assert rate is not None
        assert 100 * sum(1 / v >= rate * (1 - 1e-12) for v in values) >= q * len(values) - 1e-6


def test_field_value_reads_numbers_only() -> None:
    """A path through something that is no mapping is absent."""
    assert field_value({"a": {"b": 2}}, "a.b") == 2
    assert field_value({"a": {"b": 2}}, "a.b.c") is None
    assert field_value({"a": [1]}, "a.0") is None
    assert field_value({"a": math.inf}, "a") is None
