"""One record a request: everything that was seen, nothing that was derived."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

RECORD_SCHEMA = 1

Outcome = Literal["ok", "error", "timeout", "incomplete", "cancelled"]
"""ok: the reply ended as it should. error: refused, failed or an error object in the stream. timeout:
nothing came for too long. incomplete: the stream ended early. cancelled: this client stopped it."""

Phase = Literal["warmup", "measured", "eval"]
TokensOrigin = Literal["usage", "chunks", "none"]
"""Where `output_tokens` comes from: the server's usage, the count of content events, or nowhere."""


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
    """Sub-agent of the session tree that sent this; None for the tree's main stream."""
    parent: str | None = None
    """The agent that started this one; None for the main stream and for its direct children."""
    process: int | None = None
    """Client process that sent this, from 0, where there were several."""
