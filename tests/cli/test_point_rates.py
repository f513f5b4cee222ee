"""Rates of an imported point: made of its latencies when read, never taken as a file states them."""

from __future__ import annotations

from servemark.cli.point_view import _derived
from servemark.results.point import Figure

LATENCIES = {
    "tpot_s.p90": Figure(0.05, "tool-1", "/metrics/p90_tpot", 50.0, "ms / 1000"),
    "tpot_s.mean": Figure(0.04, "tool-1", "/metrics/mean_tpot"),
    "tpot_s.p50": Figure(0.0, "tool-1", "/metrics/median_tpot"),
}


def test_a_percentile_of_a_rate_is_one_over_the_latency() -> None:
    """1 / 0.05 s = 20 tok/s/user: what 90 % of requests reach or beat, with the latency's own place."""
    found = _derived(LATENCIES, "interactivity.p90")
    assert found is not None and found.value == 20.0 and found.stated == 50.0
    assert found.at == "/metrics/p90_tpot" and found.how == "1 / tpot_s.p90 (0.05 s); ms / 1000"


def test_nothing_is_made_of_a_mean_a_zero_or_what_is_not_there() -> None:
    """A mean of rates is not one over a mean; 0 s is no latency; other metrics have no inverse."""
    for metric in (
        "interactivity.mean",
        "interactivity.p50",
        "interactivity.p99",
        "ttft_s.p90",
        "nonsense",
        "",
    ):
        assert _derived(LATENCIES, metric) is None
