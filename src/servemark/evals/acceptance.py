"""Acceptance lengths from engines' own counters, and what they mean beside a golden one.

AL = 1 + accepted draft tokens / verify steps: tokens a step gives, the bonus token included (the definition of the golden
files; vLLM's own log line is the same). Counters are read before and after, so that only the time between counts. An
engine that gives a gauge alone (SGLang's `spec_accept_length`) gives a value of its last moments, not of the time
between: it is kept under its own name and never called AL of the window.

Sources: vLLM `vllm:spec_decode_num_drafts_total`, `…_draft_tokens_total`, `…_accepted_tokens_total` and
`…_accepted_tokens_per_pos_total{position="i"}`; llama.cpp's server the first three under `llamacpp:`; SGLang gauges
`sglang:spec_accept_length`. TensorRT-LLM counts accepted drafts only: its figure is AL - 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

PREFIXES = ("vllm", "llamacpp")
_POSITION = re.compile(r'[{,]\s*position="(\d{1,4})"')
_LABELS = re.compile(r"\{.*\Z", re.DOTALL)
GAUGES = ("sglang:spec_accept_length", "sglang_spec_accept_length")
MAX_POSITIONS = 64

Missing = Literal["no_counters", "gauge_only", "restarted", "nothing_drafted", "no_steps"]
"""no_counters: the engine reports none. gauge_only: see the module. restarted: a counter fell. nothing_drafted: counters
are there and none moved: speculation is not on, whatever was asked for. no_steps: drafts without a count of steps."""


@dataclass(frozen=True, slots=True)
class SpecCounters:
    """Speculation counters at one moment, summed over all label sets (ranks, engines). Absent is None."""

    steps: float | None
    drafted: float | None
    accepted: float | None
    per_position: tuple[float, ...] = ()
    """Accepted tokens at draft position 0, 1, …; empty where the engine does not say."""
    gauge_length: float | None = None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What speculation did between two moments. `length` is AL; `rate` accepted / drafted; `per_position[i]` the share of
    steps whose draft token i was accepted. `missing` says why `length` is None."""

    length: float | None
    rate: float | None
    steps: float | None
    drafted: float | None
    accepted: float | None
    per_position: tuple[float, ...] = ()
    gauge_length: float | None = None
    missing: Missing | None = None


def spec_counters(raw: Mapping[str, float]) -> SpecCounters:
    """From samples of an engine's /metrics (`name{labels}` -> value)."""
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    gauges = []
    for sample, value in raw.items():
        name = _LABELS.sub("", sample).rpartition(" ")[2]  # "router NAME" is another server's
        if name in GAUGES:
            gauges.append(value)
            continue
        prefix, _, rest = name.partition(":")
        if prefix not in PREFIXES or not rest.startswith("spec_decode_num_"):
            continue
        what = rest.removeprefix("spec_decode_num_").removesuffix("_total")
        if what == "accepted_tokens_per_pos":
            place = _POSITION.search(sample)
            if place is not None and int(place[1]) < MAX_POSITIONS:
                positions[int(place[1])] = positions.get(int(place[1]), 0.0) + value
        else:
            sums[what] = sums.get(what, 0.0) + value
    spread = tuple(positions.get(i, 0.0) for i in range(max(positions) + 1)) if positions else ()
    active = [gauge for gauge in gauges if gauge > 0]
    return SpecCounters(
        steps=sums.get("drafts"),
        drafted=sums.get("draft_tokens"),
        accepted=sums.get("accepted_tokens"),
        per_position=spread,
        gauge_length=sum(active) / len(active) if active else None,
    )


def acceptance(before: SpecCounters, after: SpecCounters) -> Acceptance:
    """What happened between two readings of one engine."""
    gauge = after.gauge_length
    if after.drafted is None or after.accepted is None:
        missing: Missing = "gauge_only" if gauge is not None else "no_counters"
        return Acceptance(None, None, None, None, None, gauge_length=gauge, missing=missing)
    drafted, accepted = _rise(before.drafted, after.drafted), _rise(before.accepted, after.accepted)
    steps = None if after.steps is None else _rise(before.steps, after.steps)
    if drafted < 0 or accepted < 0 or (steps is not None and steps < 0):
        return Acceptance(None, None, None, None, None, gauge_length=gauge, missing="restarted")
    if drafted == 0:
        return Acceptance(None, None, steps, 0.0, accepted, gauge_length=gauge, missing="nothing_drafted")
    rate = accepted / drafted
    if not steps:
        return Acceptance(None, rate, steps, drafted, accepted, gauge_length=gauge, missing="no_steps")
    earlier = dict(enumerate(before.per_position))
    spread = tuple((value - earlier.get(i, 0.0)) / steps for i, value in enumerate(after.per_position))
    return Acceptance(1 + accepted / steps, rate, steps, drafted, accepted, spread, gauge)


def _rise(before: float | None, after: float) -> float:
    return after - (before or 0.0)


def minimum_variance_schedule(length: float, draft_tokens: int) -> tuple[float, ...]:
    """Share of steps that accept draft position 0, 1, … when an engine forces `length` with the least variance, as vLLM's
    synthetic acceptance does: whole positions first, then the rest (3.36 of 4 -> 1, 1, 0.36, 0).

    Raises ValueError for a length outside 1 … draft_tokens + 1."""
    if not 1 <= length <= draft_tokens + 1:
        raise ValueError(f"{length} is no acceptance length of {draft_tokens} draft tokens")
    left = length - 1
    return tuple(round(min(1.0, max(0.0, left - i)), 9) for i in range(draft_tokens))
