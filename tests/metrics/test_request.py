"""Formulas over one request, on a reply whose times were chosen so that every figure can be done in the
head."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servemark.metrics import request as formulas
from servemark.replay.record import RequestRecord

REPLY = RequestRecord(
    id="r",
    session="s",
    turn=0,
    phase="measured",
    intended_send_s=9.5,
    connect_s=0.25,
    start_s=10.0,
    first_text_s=11.5,
    end_s=14.25,
    chunk_s=[11.0, 11.5, 12.0, 14.0],
    chunk_tokens=[2, 1, 4, 1],
    output_tokens=8,
    outcome="ok",
)


def test_every_formula_by_hand() -> None:
    """start 10; content at 11, 11.5, 12, 14 holding 2, 1, 4, 1 tokens."""
    assert formulas.ttft_s(REPLY) == 1.0
    assert formulas.ttfo_s(REPLY) == 1.5
    assert formulas.e2el_s(REPLY) == 4.0
    assert formulas.send_lateness_s(REPLY) == 0.5
    assert formulas.tpot_s(REPLY) == 0.5  # (14 - 11) / (8 - 2)
    assert formulas.chunk_gaps_s(REPLY) == [0.5, 0.5, 2.0]
    assert formulas.itl_s(REPLY) == [0.5, 0.125, 2.0]


def test_first_chunk_is_assumed_to_hold_one_token_and_says_so() -> None:
    """Without per-chunk counts TPOT divides by OSL - 1: 3 s / 7."""
    bare = replace(REPLY, chunk_tokens=None)
    assert formulas.first_chunk_tokens(bare) == (1, True)
    assert formulas.tpot_s(bare) == pytest.approx(3 / 7)
    assert formulas.itl_s(bare) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"output_tokens": None},
        {"output_tokens": 2},  # nothing came after the first chunk
        {"chunk_s": [11.0], "chunk_tokens": [8]},
        {"chunk_s": [], "chunk_tokens": []},
        {"chunk_s": [11.0, 11.0], "chunk_tokens": [2, 6]},  # one read, two events: no span to divide
    ],
)
def test_tpot_is_absent_when_it_cannot_be_known(changed: dict[str, object]) -> None:
    """Absent, never zero and never infinite speed."""
    assert formulas.tpot_s(replace(REPLY, **changed)) is None  # type: ignore[arg-type]


def test_nothing_received_gives_nothing() -> None:
    """A request that never started or never got content has no latency at all."""
    silent = replace(REPLY, chunk_s=[], chunk_tokens=None, first_text_s=None)
    assert [formulas.ttft_s(silent), formulas.ttfo_s(silent), formulas.e2el_s(silent)] == [None, None, None]
    assert formulas.chunk_gaps_s(silent) == []
    unsent = replace(REPLY, start_s=None)
    assert [formulas.ttft_s(unsent), formulas.e2el_s(unsent), formulas.send_lateness_s(unsent)] == [None] * 3


def test_stall_threshold_is_ten_medians_and_at_least_a_second() -> None:
    """Median 0.05 s: one second counts; median 0.3 s: three seconds do."""
    assert formulas.stall_threshold_s([0.05] * 5) == 1.0
    assert formulas.stall_threshold_s([0.3, 0.3, 0.3, 9.0]) == pytest.approx(3.0)
