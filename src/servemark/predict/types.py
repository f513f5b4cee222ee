"""What the parts of a prediction hand to each other: requests as blocks, hits by tier, step times, and a figure with
its interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

PredictionClass = Literal["interpolated", "extrapolated_concurrency", "other_shape", "one_anchor", "none"]
"""How far a figure lies from what was measured. interpolated: between two measured concurrencies of this configuration
and shape. extrapolated_concurrency: outside them. other_shape: this configuration at other input or output lengths.
one_anchor: one measured point of this configuration, the rest from its kind. none: nothing measured; a ranking with a
band, never a figure."""

CLASSES: tuple[PredictionClass, ...] = (
    "interpolated",
    "extrapolated_concurrency",
    "other_shape",
    "one_anchor",
    "none",
)


@dataclass(frozen=True, slots=True)
class CacheRequest:
    """One prompt as a cache sees it. Equal numbers in `blocks` mean that the whole prompt up to and including that block
    is equal (a chain), in any request of one workload. The last block may be partial: `input_tokens` counts it.
    `output_tokens` None where the trace does not say."""

    tree: str
    stream: str
    number: int
    blocks: Sequence[int]
    block_tokens: int
    input_tokens: int
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class CacheHit:
    """What a cache had of one prompt, in tokens by tier: worker's GPU pool, host DRAM, shared store. Their sum is what
    need not be computed. `bytes_loaded` came from a lower tier for this request."""

    gpu_tokens: int
    dram_tokens: int = 0
    store_tokens: int = 0
    bytes_loaded: int = 0

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed."""
        return self.gpu_tokens + self.dram_tokens + self.store_tokens


class PrefixCache(Protocol):
    """A cache of one deployment, all its workers and tiers. Times are seconds and never fall."""

    def begin(self, request: CacheRequest, now_s: float) -> CacheHit:
        """The request is scheduled: what is found is pinned until its end."""
        ...

    def end(self, request: CacheRequest, now_s: float) -> None:
        """It has ended: its blocks, those of its reply included, may be evicted from now on."""
        ...


class StepTimes(Protocol):
    """How long one deployment's work takes, as fitted or assumed."""

    def prefill_s(self, new_tokens: int, cached_tokens: int, decoding: int) -> float:
        """Seconds from scheduling to the first token of a prompt, beside `decoding` streams."""
        ...

    def step_s(self, decoding: int, context_tokens: float, prefill_tokens: float) -> float:
        """Seconds of one decode step of `decoding` streams with `context_tokens` each on average, that carries
        `prefill_tokens` of prompts."""
        ...

    def tokens_per_step(self) -> float:
        """Tokens that a stream gains in a step: the acceptance length, 1 without speculation."""
        ...


@dataclass(frozen=True, slots=True)
class Predicted:
    """A figure that nobody has measured yet, in the metric's base unit, with the interval that held `level` of the
    held-out residuals of its class. `value`, `low` and `high` are None where nothing can be said; `reason` is a message
    key that says why. `residuals` counts what the interval rests on."""

    metric: str
    klass: PredictionClass
    value: float | None
    low: float | None
    high: float | None
    level: float
    residuals: int
    reason: str | None = None
