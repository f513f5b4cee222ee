"""A workload in figures, for manifests and views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from servemark.metrics.percentiles import Distribution
from servemark.traces.stats import trace_stats
from servemark.traces.theory import theoretical_hit
from servemark.traces.types import Workload


def describe(workload: Workload) -> dict[str, object]:
    """JSON-ready figures; token counts are the trace's own, without the chat template.

    Keys: id, name, sessions, requests (sub-agents' too), sub_agents, input_tokens and output_tokens (totals;
    None where one is not known), largest_request_tokens (prompt + output of one request: what an engine's
    context must hold), isl, osl (over the requests where they are known), turns (of main streams), think_s
    (each n, mean, min, max, p50 … p99; None when there is nothing), shared_share and shared_blocks_share (infinite
    cache, no marker), source.
    """
    inputs: list[int] = []
    outputs: list[int] = []
    thinks: list[float] = []
    lengths: list[int] = []
    largest: int | None = None
    requests = sub_agents = 0
    for session in workload.sessions:
        lengths.append(len(session.turns))
        for number, (_, turns) in enumerate(session.streams()):
            sub_agents += number > 0
            requests += len(turns)
            thinks += [t.think_s for t in turns[1:]]
            for turn in turns:
                tokens = turn.input_tokens
                inputs += [] if tokens is None else [tokens]
                outputs += [] if turn.output_tokens is None else [turn.output_tokens]
                if tokens is not None:
                    largest = max(largest or 0, tokens + (turn.output_tokens or 0))
    shared, shared_blocks = _shared(workload)
    return {
        "id": workload.id,
        "name": workload.name,
        "sessions": len(workload.sessions),
        "requests": requests,
        "sub_agents": sub_agents,
        "input_tokens": sum(inputs) if len(inputs) == requests else None,
        "output_tokens": sum(outputs) if len(outputs) == requests else None,
        "largest_request_tokens": largest,
        "isl": _figures(inputs),
        "osl": _figures(outputs),
        "turns": _figures(lengths),
        "think_s": _figures(thinks),
        "shared_share": shared,
        "shared_blocks_share": shared_blocks,
        "source": dict(workload.source),
    }


def _shared(workload: Workload) -> tuple[float | None, float | None]:
    """(of tokens, of blocks); a lazy workload is not taken apart into segments, only into the trace's blocks."""
    if isinstance(workload.sessions, tuple):
        hit = theoretical_hit(workload)
        return hit.tokens, hit.blocks
    ceiling = trace_stats(workload).hit_ceiling
    return (ceiling[0].share if ceiling else None), None


def _figures(values: Sequence[float]) -> dict[str, object] | None:
    found = Distribution.of(values)
    return asdict(found) if found else None
