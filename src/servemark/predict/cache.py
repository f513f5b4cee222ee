"""What a deployment's prefix cache is, and the cache itself, ready for requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from servemark.base.errors import input_error
from servemark.predict.types import PrefixCache

CachePolicy = Literal["vllm", "sglang", "llamacpp"]
Routing = Literal["affinity", "random", "round-robin"]


@dataclass(frozen=True, slots=True)
class StateRule:
    """Where a model with running states (hybrid) may be resumed: a prefix is reusable only where its state was kept.

    Prompt ends always; `seen_twice`: also the end of what a prompt shares with an earlier one, from then on;
    `every_tokens`: also at multiples of so many tokens (None: no). `state_tokens`: what a state costs, in tokens of
    the cache.
    """

    state_tokens: int = 0
    seen_twice: bool = False
    every_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """One deployment's prefix cache. Sizes are tokens, times seconds, counts are what their names say.

    `gpu_tokens`: of one worker's GPU pool, all its ranks together (what the engine prints; decode-context parallelism
    is in it); None: without end; 0: none. `dram_tokens`: of one worker's host cache; `store_tokens`: of the one store
    that all workers share; 0: none. `block_tokens`: tokens of a block of the whole worker (with decode-context
    parallelism: of a rank, times the ranks). `token_bytes`: of one token in all ranks of a worker; None: bytes are not
    known. `slots`, `similarity`: llama.cpp. `high_watermark`, `evict_ratio`, `lease_s`: the store.
    """

    policy: CachePolicy = "vllm"
    block_tokens: int = 16
    gpu_tokens: int | None = None
    dram_tokens: int = 0
    store_tokens: int = 0
    workers: int = 1
    routing: Routing = "affinity"
    seed: int = 0
    states: StateRule | None = None
    token_bytes: float | None = None
    slots: int = 1
    similarity: float = 0.1
    high_watermark: float = 0.95
    evict_ratio: float = 0.10
    lease_s: float = 60.0

    def __post_init__(self) -> None:
        for name, value, least in (
            ("block_tokens", self.block_tokens, 1),
            ("gpu_tokens", self.gpu_tokens or 0, 0),
            ("dram_tokens", self.dram_tokens, 0),
            ("store_tokens", self.store_tokens, 0),
            ("workers", self.workers, 1),
            ("slots", self.slots, 1),
        ):
            if value < least:
                raise input_error("predict.cache.bad_number", name=name, value=value, least=least)


def build(config: CacheConfig) -> PrefixCache:
    """An empty cache of this deployment."""
    from servemark.predict.cache_tiers import Deployment  # noqa: PLC0415 - numpy is slow to import

    return Deployment(config)
