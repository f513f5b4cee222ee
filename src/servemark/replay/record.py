"""One record a request: everything that was seen, nothing that was derived."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

RECORD_SCHEMA = 2
"""1: without `agent`, `parent`, `endpoint`, `process`, `first_reasoning_s`, `retries` and `served_model`; such files
are still read, and these are None there."""

Outcome = Literal["ok", "error", "timeout", "incomplete", "cancelled"]
"""ok: the reply ended as it should. error: refused, failed or an error object in the stream. timeout:
nothing came for too long. incomplete: the stream ended early. cancelled: this client stopped it."""

Phase = Literal["warmup", "measured", "eval"]
TokensOrigin = Literal["usage", "tokenizer", "chunks", "none"]
"""Where `output_tokens` comes from: the server's usage, the reply's text counted with the target's tokenizer, the
count of content events, or nowhere."""


@dataclass(slots=True)
class RequestRecord:
    """All `_s` fields are seconds since the point's zero on one monotonic clock; None means it did not
    happen.

    `chunk_s` holds the arrival of every content event (text, reasoning, tool call), stamped when the bytes
    were read, before parsing. `chunk_tokens` is known only where the server reports usage with each event.
    """

    id: str
    session: str
    turn: int
    phase: Phase
    lane: int | None = None
    schema: int = RECORD_SCHEMA
    intended_send_s: float | None = None
    connect_s: float | None = None
    """Duration of connecting, or None when an open connection was used again."""
    start_s: float | None = None
    first_byte_s: float | None = None
    first_text_s: float | None = None
    first_reasoning_s: float | None = None
    end_s: float | None = None
    chunk_s: list[float] = field(default_factory=list)
    chunk_tokens: list[int] | None = None
    requested_output_tokens: int | None = None
    expected_input_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    tokens_origin: TokensOrigin = "none"
    outcome: Outcome = "cancelled"
    error_kind: str | None = None
    error_detail: str | None = None
    http_status: int | None = None
    finish_reason: str | None = None
    text: str | None = None
    """The reply's visible text, kept only where the caller asked for it (evals)."""
    agent: str | None = None
    """The sub-agent that sent it; None for the session's own turns."""
    parent: str | None = None
    """The sub-agent's parent within the session tree; None where that is the session itself."""
    endpoint: int | None = None
    """Which of several endpoints it went to, from 0; None where there is one."""
    process: int | None = None
    """Which of several client processes sent it, from 0; None where there is one."""
    retries: int | None = None
    """Attempts before this one that the server refused for now (429, 5xx); `start_s` is the first attempt's.
    None where retrying was off."""
    served_model: str | None = None
    """The model that the reply names."""
    calls: list[tuple[str, str]] | None = None
    """(name, arguments as the server wrote them) of each tool call, kept and written only where the caller asked for
    the reply's text and there were calls."""
