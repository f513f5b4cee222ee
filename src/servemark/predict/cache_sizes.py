"""Sizes of a recipe's cache: what `servemark fit` works out, turned into a cache to simulate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from servemark.base.errors import input_error
from servemark.predict.cache_config import CacheConfig, CachePolicy, StateRule
from servemark.sizing.fit import RoleFit, fit
from servemark.sizing.fit_target import Wishes, asked_of
from servemark.sizing.inputs import FitInput, RoleInput
from servemark.sizing.kv import block_unit, state_bytes, token_bytes

_POLICIES: dict[str, CachePolicy] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llamacpp",
    "trtllm": "vllm",
}


@dataclass(frozen=True, slots=True)
class SizedCache:
    """A cache and where its figures come from. `ranks`: of one worker, each holds its part of the lower tiers.
    `segment_bytes`: what each rank gives to the shared store; None without one. `assumed`: names of figures that no
    file states. `decode_workers` beside the prefill workers whose cache this is (0: they do both), and what the pool of
    one holds; each data-parallel share of an attention is a worker."""

    config: CacheConfig
    role: str
    ranks: int
    segment_bytes: int | None
    store_ranks: int
    assumed: tuple[str, ...]
    decode_workers: int = 0
    decode_tokens: int | None = None


def sized_cache(target: str, wishes: Wishes | None = None) -> SizedCache:
    """The cache of an arm's or recipe's prefill role (else its only one).

    Figures are those of `sizing`: the pool's tokens, bytes of a token on all ranks, a state's bytes, segments and the
    store's watermark. A hybrid model's prefixes are matched in the units of its attention's kernel. Raises ServemarkError
    (exit code 2) where the memory cannot be worked out.
    """
    report = fit(asked_of(target, wishes or Wishes()))
    roles = report.roles
    made = next((r for r in roles if r.role.name == "prefill"), roles[0] if roles else None)
    if made is None:
        raise input_error("predict.cache.no_sizes", target=target)
    asked, role = report.asked, made.role
    each = worker_token_bytes(asked, role)
    gpu = _line(made, "tokens_fit")
    tokens = role.fixed_context if gpu is None else int(gpu[0])
    if tokens is None or not each:
        raise input_error("predict.cache.no_sizes", target=target)
    state = state_bytes(asked.model.attention, role.kv) * role.kv.tp
    block = block_unit(asked.model) if state else role.kv.block_tokens * role.kv.context_ranks
    store = role.store
    dram = store_tokens = 0
    sharing = [r.role for r in roles if r.role.store is not None and r.role.store.shared]
    store_ranks = sum(r.workers * r.ranks_per_worker for r in sharing)
    if store is not None and store.shared:
        store_tokens = int(store.segment_bytes * store_ranks / each)
    elif store is not None:
        dram = int(store.buffer_bytes * role.kv.context_ranks / token_bytes(asked.model.attention, role.kv))
    config = CacheConfig(
        policy=_POLICIES.get(role.engine, "vllm"),
        block_tokens=1 if role.engine == "llamacpp" else block,
        gpu_tokens=tokens,
        dram_tokens=dram,
        store_tokens=store_tokens,
        workers=role.workers * role.data_parallel_shares,
        states=StateRule(math.ceil(state / each)) if state and role.engine == "vllm" else None,
        token_bytes=each,
        high_watermark=store.watermark if store is not None else 0.95,
        evict_ratio=store.eviction if store is not None else 0.10,
    )
    assumed = [name for name, found in (("gpu_tokens", gpu),) if found is not None and found[1]]
    if store is not None and store.shared and not store.watermark_stated:
        assumed.append("high_watermark")
    segment = store.segment_bytes if store is not None and store.shared else None
    decode = next((r for r in roles if r.role.name == "decode" and r is not made), None)
    there = None if decode is None else _line(decode, "tokens_fit")
    return SizedCache(
        config, role.name, role.ranks_per_worker, segment, store_ranks, tuple(assumed),
        0 if decode is None else decode.role.workers * decode.role.data_parallel_shares,
        int(there[0]) if there is not None and there[0] >= 1 else None,
    )  # fmt: skip


def worker_token_bytes(asked: FitInput, role: RoleInput) -> float:
    """Bytes of one more token on all ranks of a worker's attention, its draft's included. What is replicated over
    tensor-parallel ranks counts once, as in `sizing.host_lines.worker_context_bytes`."""
    replicated = any(group.kind in {"mla", "compressed"} for group in asked.model.attention)
    own = token_bytes(asked.model.attention, role.kv)
    drafted = token_bytes(role.draft.attention, role.kv) if role.draft is not None else 0.0
    return (own + drafted) * (1 if replicated else role.kv.tp)


def _line(made: RoleFit, name: str) -> tuple[float, bool] | None:
    """(value, whether it is assumed) of one line of the report."""
    for line in made.lines:
        if line.name == name:
            return line.value, line.tag == "assumed"
    return None
