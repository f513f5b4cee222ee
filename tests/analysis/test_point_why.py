"""Figures of an imported point: as stated, or made of stated ones when read; never a rate as a file states it."""

from __future__ import annotations

import pytest

from servemark.analysis.point_why import find_figure
from servemark.results.point import Execution, Figure, Point, PointIdentity, Scenario

IDENTITY = PointIdentity("m", "h100", "vllm", Scenario("fixed-seq-len", 1024, 1024), 8)
FIGURES = {
    "tpot_s.p90": Figure(0.05, "tool-1", "/metrics/p90_tpot", 50.0, "ms / 1000"),
    "tpot_s.mean": Figure(0.04, "tool-1", "/metrics/mean_tpot"),
    "tpot_s.p50": Figure(0.0, "tool-1", "/metrics/median_tpot"),
    "output_tokens_per_s": Figure(800.0, "tool-1", "/metrics/out"),
    "input_tokens_per_s": Figure(400.0, "tool-1", "/metrics/in"),
}
POINT = Point(IDENTITY, Execution("r"), FIGURES, "tool", 1, gpus_deployed=4)


def test_a_percentile_of_a_rate_is_one_over_the_latency() -> None:
    """1 / 0.05 s = 20 tok/s/user: what 90 % of requests reach or beat, with the latency's own place."""
    found = find_figure(POINT, "interactivity.p90").figure
    assert found is not None and found.value == 20.0 and found.stated == 50.0
    assert found.at == "/metrics/p90_tpot" and found.how == "1 / tpot_s.p90 (0.05 s); ms / 1000"


def test_a_sum_over_gpus_names_every_part() -> None:
    """(400 + 800) / 4 GPUs = 300 tok/s/GPU."""
    found = find_figure(POINT, "total_tokens_per_s_per_gpu")
    assert found.figure is not None and found.figure.value == 300.0
    assert [name for name, _ in found.parts] == ["input_tokens_per_s", "output_tokens_per_s"]
    assert found.formula == "(400 + 800) ÷ 4" and found.figure.at == "/metrics/in, /metrics/out"


def test_a_stated_figure_is_itself() -> None:
    found = find_figure(POINT, "tpot_s.p90")
    assert found.figure is FIGURES["tpot_s.p90"] and found.formula == "" and len(found.parts) == 1


@pytest.mark.parametrize(
    "metric", ["interactivity.mean", "interactivity.p50", "interactivity.p99", "ttft_s.p90", "nonsense", ""]
)
def test_nothing_is_made_of_a_mean_a_zero_or_what_is_not_there(metric: str) -> None:
    """A mean of rates is not one over a mean; 0 s is no latency; other metrics have no inverse."""
    found = find_figure(POINT, metric)
    assert found.figure is None and found.reason
