"""Why a wrong verdict may be the deployment's fault: the usual causes of scores that are zero for no reason of the model.

Each reason has a code; its words stand in the catalogue under `evals.suspect.<code>`. A sample has at most one, the
first that holds in the order below; right answers have none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from servemark.evals.json_values import json_in
from servemark.evals.tasks import ChatMessage
from servemark.replay.record import RequestRecord

REASONS: Final = (
    "rejected",
    "context_cut",
    "tools_ignored",
    "call_in_text",
    "calls_only",
    "reasoning_only",
    "swallowed",
    "template_marks",
    "plays_user",
    "cut",
)
"""Every code, in the order in which they are looked for."""
SERIOUS_SHARE: Final = 0.02
"""From this share of a task's items on, a reason is told as a warning of the whole task."""

_MARKS: Final = re.compile(
    r"<\|?(?:im_start|im_end|im_sep|eot_id|start_header_id|end_header_id|end|endoftext|eom_id|assistant|user|system|channel"
    r"|message|return)\|?>|</?s>|\[/?INST\]|<</?SYS>>|</?(?:start|end)_of_turn>|<\uff5c[^\uff5c>]{1,40}\uff5c>|<\|begin_of_text\|>"
)
_TURN: Final = re.compile(
    r"^\s*(?:user|human|question|\u7528\u6237)\s*[:\uff1a]", re.IGNORECASE | re.MULTILINE
)
_DECLINES: Final = (
    r"i(?:['\u2019]?m| am) (?:very |so |really )?(?:sorry|unable|not able|afraid)",
    r"i (?:can(?:no|['\u2019])t|cannot|won['\u2019]t|will not|do not feel|must decline)",
    r"sorry,? (?:but )?i",
    r"as an ai\b",
    "\u62b1\u6b49|\u5bf9\u4e0d\u8d77|\u6211\u65e0\u6cd5|\u6211\u4e0d\u80fd",
    "\u4f5c\u4e3a(?:\u4e00\u4e2a)?(?:ai|\u4eba\u5de5\u667a\u80fd)",
)
_REFUSAL: Final = re.compile(rf"^\W*(?:{'|'.join(_DECLINES)})", re.IGNORECASE)
_SEARCHED: Final = 10_000
_LEAST_WORDS: Final = 50
_CUT_SHARE: Final = 0.9
_BYTES_A_TOKEN: Final = 12
"""No tokenizer makes JSON of schemas shorter; the usual is three to four bytes a token."""


def refuses(reply: str | None) -> bool:
    """The reply begins as models decline: in English or Chinese. Only asked of replies that are not right."""
    return bool(reply) and _REFUSAL.match((reply or "")[:200]) is not None


def suspect(
    record: RequestRecord,
    messages: tuple[ChatMessage, ...],
    tools: bytes | None = None,
    wants_calls: bool = False,
    answered: bool = False,
) -> str | None:
    """The reason why a verdict that is not right may not be the model's doing; None where nothing points there.

    `rejected`: the server answered with 400, 413 or 422. `context_cut`: it says that the prompt had fewer tokens than
    the messages have words between spaces, which no tokenizer does. `tools_ignored`: the prompt has fewer tokens than
    the tools alone would take. `calls_only`, `reasoning_only`: the text is empty because a parser sent everything
    elsewhere. `swallowed`: tokens were made and nothing came. `template_marks`: marks of a chat template stand in the
    text. `plays_user`: the reply goes on as the user. `cut`: the token limit ended the reply before an answer.
    """
    if record.outcome != "ok":
        return "rejected" if rejected(record) else None
    text = (record.text or "")[:_SEARCHED]
    bare = not text.strip()
    held: Mapping[str, bool] = {
        "context_cut": _cut_context(record, messages),
        "tools_ignored": bool(tools) and not record.calls and _without_tools(record, tools or b""),
        "call_in_text": wants_calls and not record.calls and _call_like(text),
        "calls_only": bare and bool(record.calls) and not wants_calls,
        "reasoning_only": bare and not record.calls and record.first_reasoning_s is not None,
        "swallowed": bare and not record.calls and (record.output_tokens or 0) > 1,
        "template_marks": _MARKS.search(text) is not None,
        "plays_user": not answered and _TURN.search(text) is not None,
        "cut": record.finish_reason == "length" and not answered,
    }
    return next((name for name in REASONS if held.get(name)), None)


def rejected(record: RequestRecord) -> bool:
    """The server is alive and will not have this request, now or later: most often its prompt is too long."""
    return record.http_status in {400, 413, 422}


def _cut_context(record: RequestRecord, messages: tuple[ChatMessage, ...]) -> bool:
    if record.input_tokens is None:
        return False
    words = sum(len(content.split()) for _, content in messages)
    return words >= _LEAST_WORDS and record.input_tokens < _CUT_SHARE * words


def _without_tools(record: RequestRecord, tools: bytes) -> bool:
    return record.input_tokens is not None and record.input_tokens < len(tools) / _BYTES_A_TOKEN


def _call_like(text: str) -> bool:
    if "<tool_call>" in text or "<function" in text or "[TOOL_CALLS]" in text:
        return True
    there, value = json_in(text)
    values = value if isinstance(value, list) else [value]
    return there and any(
        isinstance(v, dict) and "name" in v and ("arguments" in v or "parameters" in v) for v in values
    )
