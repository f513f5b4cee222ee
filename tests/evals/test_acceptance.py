"""Acceptance lengths; counters written by hand in each engine's own words, results worked out by hand."""

from __future__ import annotations

import pytest

from servemark.evals.acceptance import (
    SpecCounters,
    acceptance,
    minimum_variance_schedule,
    spec_counters,
)

VLLM = {
    'vllm:spec_decode_num_drafts_total{engine="0",model_name="m"}': 100.0,
    'vllm:spec_decode_num_drafts_total{engine="1",model_name="m"}': 100.0,
    'vllm:spec_decode_num_draft_tokens_total{engine="0"}': 800.0,
    'vllm:spec_decode_num_accepted_tokens_total{engine="0"}': 472.0,
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"}': 200.0,
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"}': 200.0,
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="2"}': 72.0,
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="3"}': 0.0,
    "vllm:prompt_tokens_total": 5.0,
}
NONE = SpecCounters(None, None, None)


def test_vllm_sums_its_engines() -> None:
    found = acceptance(NONE, spec_counters(VLLM))
    assert found.length == pytest.approx(1 + 472 / 200)  # 3.36
    assert found.rate == pytest.approx(472 / 800)
    assert found.per_position == pytest.approx((1, 1, 0.36, 0))
    assert found.per_position == pytest.approx(minimum_variance_schedule(3.36, 4))
    assert sum(found.per_position) + 1 == pytest.approx(found.length)


def test_only_the_time_between_counts() -> None:
    before = {name: value / 2 for name, value in VLLM.items()}
    found = acceptance(spec_counters(before), spec_counters(VLLM))
    assert found.steps == 100
    assert found.length == pytest.approx(3.36)


def test_llama_cpp() -> None:
    raw = {
        "llamacpp:spec_decode_num_drafts_total": 12.0,
        "llamacpp:spec_decode_num_draft_tokens_total": 35.0,
        "llamacpp:spec_decode_num_accepted_tokens_total": 35.0,
    }
    found = acceptance(NONE, spec_counters(raw))
    assert found.length == pytest.approx(47 / 12)  # 3.92, as measured on the server
    assert found.rate == 1.0
    assert found.per_position == ()


def test_speculation_that_is_asked_for_and_off_is_told_from_none() -> None:
    idle = spec_counters(
        {
            "llamacpp:spec_decode_num_drafts_total": 0.0,
            "llamacpp:spec_decode_num_draft_tokens_total": 0.0,
            "llamacpp:spec_decode_num_accepted_tokens_total": 0.0,
        }
    )
    assert acceptance(idle, idle).missing == "nothing_drafted"
    assert acceptance(NONE, spec_counters({"vllm:prompt_tokens_total": 1.0})).missing == "no_counters"


def test_a_gauge_is_no_length_of_the_window() -> None:
    raw = {'sglang:spec_accept_length{tp_rank="0"}': 3.0, 'sglang:spec_accept_length{tp_rank="1"}': 0.0}
    found = acceptance(NONE, spec_counters(raw))
    assert (found.length, found.missing, found.gauge_length) == (None, "gauge_only", 3.0)


def test_a_restart_is_seen() -> None:
    assert acceptance(spec_counters(VLLM), spec_counters(dict.fromkeys(VLLM, 1.0))).missing == "restarted"


@pytest.mark.parametrize("length", [0.99, 5.01, float("nan")])
def test_what_no_schedule_gives(length: float) -> None:
    with pytest.raises(ValueError, match="acceptance length"):
        minimum_variance_schedule(length, 4)
