"""Formulas over one request. All times are seconds on one monotonic clock; None means "cannot be known".

Definitions (id `servemark-1`):
- start: the request's bytes are handed to a connected socket; connecting is its own figure.
- TTFT = first content of any kind - start; TTFO = first visible text - start; E2EL = last content - start.
- TPOT = (last - first content) / (OSL - tokens of the first chunk).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from operator import sub
from typing import Protocol

DEFINITIONS_ID = "servemark-1"


class RequestTimes(Protocol):
    """What a formula may read of a request. `chunk_s` holds the arrival of each content event, ascending."""

    @property
    def connect_s(self) -> float | None: ...
    @property
    def intended_send_s(self) -> float | None: ...
    @property
    def start_s(self) -> float | None: ...
    @property
    def first_text_s(self) -> float | None: ...
    @property
    def chunk_s(self) -> Sequence[float]: ...
    @property
    def chunk_tokens(self) -> Sequence[int] | None: ...
    @property
    def output_tokens(self) -> int | None: ...


def ttft_s(request: RequestTimes) -> float | None:
    """Time to first token: first content of any kind (text, reasoning, tool call) - start."""
    if request.start_s is None or not request.chunk_s:
        return None
    return request.chunk_s[0] - request.start_s


def ttfo_s(request: RequestTimes) -> float | None:
    """Time to first output: first visible text - start."""
    if request.start_s is None or request.first_text_s is None:
        return None
    return request.first_text_s - request.start_s


def e2el_s(request: RequestTimes) -> float | None:
    """End-to-end latency: last content - start."""
    if request.start_s is None or not request.chunk_s:
        return None
    return request.chunk_s[-1] - request.start_s


def send_lateness_s(request: RequestTimes) -> float | None:
    """Actual start - intended send, where a schedule intended one."""
    if request.start_s is None or request.intended_send_s is None:
        return None
    return request.start_s - request.intended_send_s


def ttft_intended_s(request: RequestTimes) -> float | None:
    """First content - intended send: what a user of an open loop waits, the client's own lateness included."""
    if request.intended_send_s is None or not request.chunk_s:
        return None
    return request.chunk_s[0] - request.intended_send_s


def e2el_intended_s(request: RequestTimes) -> float | None:
    """Last content - intended send."""
    if request.intended_send_s is None or not request.chunk_s:
        return None
    return request.chunk_s[-1] - request.intended_send_s


def e2el_per_token_s(request: RequestTimes) -> float | None:
    """E2EL / output tokens: the whole wait, first token included, spread over the reply."""
    whole_s = e2el_s(request)
    if whole_s is None or whole_s <= 0 or not request.output_tokens:
        return None
    return whole_s / request.output_tokens


def first_chunk_tokens(request: RequestTimes) -> tuple[int, bool]:
    """(tokens in the first content event, assumed?): the server's count, else 1 and marked assumed."""
    if request.chunk_tokens:
        return request.chunk_tokens[0], False
    return 1, True


def tpot_s(request: RequestTimes) -> float | None:
    """Time per output token after the first chunk; None when no token came after it or the count is
    unknown."""
    if request.output_tokens is None or not request.chunk_s:
        return None
    rest = request.output_tokens - first_chunk_tokens(request)[0]
    span = request.chunk_s[-1] - request.chunk_s[0]
    if rest <= 0 or span <= 0:
        return None
    return span / rest


def chunk_gaps_s(request: RequestTimes) -> list[float]:
    """Raw gaps between content events; stalls live here. Zero gaps (one read, several events) are legal."""
    return list(map(sub, islice(request.chunk_s, 1, None), request.chunk_s))


def itl_s(request: RequestTimes) -> list[float] | None:
    """Inter-token latency: each gap / tokens of the chunk it leads to; None where tokens per chunk are
    unknown."""
    if request.chunk_tokens is None or len(request.chunk_tokens) != len(request.chunk_s):
        return None
    gaps = chunk_gaps_s(request)
    return [gap / tokens for gap, tokens in zip(gaps, request.chunk_tokens[1:], strict=True) if tokens > 0]


LEAST_STALL_S = 1.0


def stall_threshold_s(gaps: Sequence[float]) -> float:
    """A gap longer than max(10 x the reply's median gap, 1 s) is a stall. `gaps` must not be empty."""
    ordered = sorted(gaps)
    return max(10 * ordered[len(ordered) // 2], LEAST_STALL_S)


@dataclass(frozen=True, slots=True)
class Stall:
    """A pause inside a reply: `gap_s` seconds without content before content event number `chunk` (from 0), which
    arrived at `at_s` on the record's clock."""

    chunk: int
    at_s: float
    gap_s: float


def stalls(request: RequestTimes) -> list[Stall]:
    """Every gap of one reply that is longer than its `stall_threshold_s`, in order. The wait for the first content
    is no stall but the TTFT."""
    gaps = chunk_gaps_s(request)
    if not gaps:
        return []
    threshold_s = stall_threshold_s(gaps)
    return [
        Stall(number, request.chunk_s[number], gap) for number, gap in enumerate(gaps, 1) if gap > threshold_s
    ]
