"""What a deployment's prefix cache is: rules, sizes, tiers, workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from servemark.base.errors import input_error

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
    """One deployment's prefix cache. Sizes are tokens, times seconds.

    `gpu_tokens`: of one worker's GPU pool, all its ranks together, as the engine prints it (decode-context parallelism
    is in it); None: without end; 0: none. `dram_tokens`: of one worker's host cache. `store_tokens`: of the one store
    that all workers share. `block_tokens`: tokens of a block of the whole worker (with decode-context parallelism: of
    a rank, times the ranks). `token_bytes`: of one token in all ranks of a worker; None: bytes are not known.

    llama.cpp's are `slots`, `similarity` (least share of a prompt that makes a slot its own), `unified` (slots share a
    buffer of `gpu_tokens`) and `save_idle`; its `dram_tokens` is its host prompt cache. `high_watermark`,
    `evict_ratio`, `lease_s`: the store's. Raises ServemarkError (exit code 2) for what cannot be.
    """

    policy: CachePolicy = "vllm"
    block_tokens: int = 16
    gpu_tokens: int | None = None
    dram_tokens: int | None = 0
    store_tokens: int | None = 0
    workers: int = 1
    routing: Routing = "affinity"
    seed: int = 0
    states: StateRule | None = None
    token_bytes: float | None = None
    slots: int = 1
    similarity: float = 0.1
    unified: bool = False
    save_idle: bool = True
    high_watermark: float = 0.95
    evict_ratio: float = 0.10
    lease_s: float = 60.0

    def __post_init__(self) -> None:
        for name, value, least in (
            ("block_tokens", self.block_tokens, 1),
            ("gpu_tokens", self.gpu_tokens or 0, 0),
            ("dram_tokens", self.dram_tokens or 0, 0),
            ("store_tokens", self.store_tokens or 0, 0),
            ("workers", self.workers, 1),
            ("slots", self.slots, 1),
        ):
            if value < least:
                raise input_error("predict.cache.bad_number", name=name, value=value, least=least)
        for part, of in ((self.high_watermark, "high_watermark"), (self.evict_ratio, "evict_ratio")):
            if not 0 < part <= 1:
                raise input_error("predict.cache.bad_share", name=of, value=part)
        if self.states is not None and self.policy != "vllm":
            raise input_error("predict.cache.states_policy", policy=self.policy)
        if self.policy == "llamacpp" and self.store_tokens != 0:
            raise input_error("predict.cache.no_store")

    @property
    def state_blocks(self) -> int | None:
        """Blocks that one kept state takes; None for a model without states."""
        return None if self.states is None else max(1, -(-self.states.state_tokens // self.block_tokens))

    def blocks(self, tokens: int | None) -> int | None:
        """Whole blocks that so many tokens make; None: without end."""
        return None if tokens is None else tokens // self.block_tokens
