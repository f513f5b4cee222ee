"""Why a zero may be wrong: each cause made by hand, and nothing said where all is well."""

from __future__ import annotations

from typing import Any

import pytest

from servemark.base.messages import catalogue
from servemark.evals.suspect import REASONS, refuses, suspect
from servemark.replay.record import RequestRecord
from servemark.traces.types import Role

LONG: tuple[tuple[Role, str], ...] = (("user", "word " * 100),)
SHORT: tuple[tuple[Role, str], ...] = (("user", "hi"),)
TOOLS = b"x" * 1200


def record(**more: Any) -> RequestRecord:  # noqa: ANN401 - any field
    fields: dict[str, Any] = {"outcome": "ok", "text": "no", "finish_reason": "stop", "input_tokens": 130}
    return RequestRecord("r", "s", 0, "eval", **{**fields, **more})


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        ("rejected", {"outcome": "error", "http_status": 400}),
        ("context_cut", {"input_tokens": 60}),
        ("calls_only", {"text": "", "calls": [("f", "{}")]}),
        ("reasoning_only", {"text": " ", "first_reasoning_s": 0.1}),
        ("swallowed", {"text": "", "output_tokens": 12}),
        ("template_marks", {"text": "Oslo<|im_end|>"}),
        ("template_marks", {"text": "[INST] what"}),
        ("plays_user", {"text": "Fine.\nUser: and Peru?"}),
        ("cut", {"finish_reason": "length"}),
        (None, {}),
        (None, {"input_tokens": None}),
        (None, {"text": "", "output_tokens": 1}),  # the end of turn alone: the model said nothing
        (None, {"outcome": "error", "http_status": 500}),
        (None, {"text": "a < b and c > d, <b>bold</b>"}),
    ],
)
def test_causes(code: str | None, fields: dict[str, Any]) -> None:
    assert suspect(record(**fields), LONG) == code


def test_answers_are_not_called_cut() -> None:
    assert suspect(record(finish_reason="length"), LONG, answered=True) is None


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        ("call_in_text", {"text": '{"name": "f", "arguments": {}}'}),
        ("call_in_text", {"text": "<tool_call>\n{}"}),
        ("tools_ignored", {"input_tokens": 40}),  # 1,200 bytes of tools are at least 100 tokens
        (None, {"text": "I would call f"}),
        (None, {"calls": [("g", "{}")], "text": ""}),
    ],
)
def test_causes_where_a_call_is_wanted(code: str | None, fields: dict[str, Any]) -> None:
    assert suspect(record(**fields), SHORT, TOOLS, wants_calls=True) == code


@pytest.mark.parametrize(
    ("reply", "declines"),
    [
        ("I'm sorry, but I can't help with that.", True),
        ("I cannot answer this.", True),
        ("As an AI, I have no city.", True),
        ("\u62b1\u6b49\uff0c\u6211\u65e0\u6cd5\u56de\u7b54\u3002", True),
        ("Oslo. I can't say more.", False),
        ("", False),
        (None, False),
    ],
)
def test_refusals(reply: str | None, declines: bool) -> None:
    assert refuses(reply) is declines


def test_every_reason_has_words() -> None:
    for lang in ("en", "zh"):
        assert all(f"evals.suspect.{code}" in catalogue(lang, "evals") for code in REASONS)
