"""Readings of stated figures; all values worked out by hand."""

from __future__ import annotations

import pytest

from servemark.base.errors import ServemarkError
from servemark.metrics.figures import figure_value, read_figure


def test_rates_come_from_latencies_and_never_from_what_is_stated() -> None:
    stated = {"tpot_s.p90": 0.02, "interactivity.p90": 999.0, "tpot_s.max": 0.05}
    assert figure_value(stated, "interactivity.p90") == 50.0
    assert figure_value(stated, "interactivity.min") == 20.0  # the slowest request's
    assert figure_value(stated, "interactivity.p50") is None
    assert read_figure(stated, "interactivity.p90").made_of == (("tpot_s.p90", 0.02),)


def test_per_gpu_and_total_give_each_other() -> None:
    assert figure_value({"output_tokens_per_s": 800.0}, "output_tokens_per_s_per_gpu", 8) == 100.0
    assert figure_value({"output_tokens_per_s_per_gpu": 100.0}, "output_tokens_per_s", 8) == 800.0
    assert (
        read_figure({"output_tokens_per_s": 800.0}, "output_tokens_per_s_per_gpu").reason
        == "metrics.absent.gpus"
    )


def test_sums_and_counts() -> None:
    parts = {"input_tokens_per_s": 30.0, "output_tokens_per_s": 10.0}
    assert figure_value(parts, "total_tokens_per_s") == 40.0
    assert figure_value(parts, "total_tokens_per_s_per_gpu", 4) == 10.0
    counted = {"output_tokens_total": 500.0, "window_s": 10.0}
    assert read_figure(counted, "output_tokens_per_s").formula == "500 ÷ 10"
    assert figure_value(counted, "output_tokens_per_s") == 50.0
    assert figure_value({"output_tokens_total": 500.0, "window_s": 0.0}, "output_tokens_per_s") is None


def test_absent_is_absent() -> None:
    assert figure_value({}, "ttft_s.p50") is None
    assert figure_value({"tpot_s.p50": 0.0}, "interactivity.p50") is None
    assert (
        read_figure({"eval_score.a": 0.5, "eval_score.b": 0.6}, "eval_score").reason
        == "metrics.absent.several_tasks"
    )
    assert figure_value({"eval_score.a": 0.5}, "eval_score") == 0.5
    with pytest.raises(ServemarkError):
        figure_value({}, "no_such")


def test_a_size_that_no_measurement_has_is_no_value() -> None:
    """1 ÷ 5e-324 is infinite, and 3600 times 1e-308 ÷ 1e6 is 0: neither may reach an axis, a cost or a mean."""
    for value in (5e-324, 1e-308, 1e308, float("inf")):
        for stated, name in (("tpot_s.p50", "interactivity.p50"), ("e2el_s.p50", "e2el_s.p50")):
            reading = read_figure({stated: value}, name)
            assert (reading.value, reading.reason) == (None, "metrics.absent.magnitude")
    assert figure_value({"output_tokens_per_s_per_gpu": 1e308}, "output_tokens_per_s", 8) is None
    assert figure_value({"error_rate": 0.0}, "error_rate") == 0.0
