"""A workload in figures, for manifests and views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from servemark.metrics.percentiles import Distribution
from servemark.traces.theory import theoretical_hit
from servemark.traces.types import Workload


def describe(workload: Workload) -> dict[str, object]:
    """JSON-ready figures; token counts are the trace's own, without the chat template.

    Keys: id, name, sessions, requests, input_tokens and output_tokens (totals), largest_request_tokens
    (prompt + output of one request: what an engine's context must hold), isl, osl, turns, think_s (each n,
    mean, min, max, p50 … p99; None when there is nothing), shared_share and shared_blocks_share (infinite
    cache, no marker), source.
    """
    turns = [t for s in workload.sessions for t in s.turns]
    inputs = [t.input_tokens for t in turns]
    outputs = [t.output_tokens for t in turns]
    thinks = [t.think_s for s in workload.sessions for t in s.turns[1:]]
    hit = theoretical_hit(workload)
    return {
        "id": workload.id,
        "name": workload.name,
        "sessions": len(workload.sessions),
        "requests": len(turns),
        "input_tokens": sum(inputs),
        "output_tokens": sum(outputs),
        "largest_request_tokens": max((i + o for i, o in zip(inputs, outputs, strict=True)), default=None),
        "isl": _figures(inputs),
        "osl": _figures(outputs),
        "turns": _figures([len(s.turns) for s in workload.sessions]),
        "think_s": _figures(thinks),
        "shared_share": hit.tokens,
        "shared_blocks_share": hit.blocks,
        "source": dict(workload.source),
    }


def _figures(values: Sequence[float]) -> dict[str, object] | None:
    found = Distribution.of(values)
    return asdict(found) if found else None
