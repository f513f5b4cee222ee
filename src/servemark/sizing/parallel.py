"""Parallel sizes that contradict each other, or the model: found before any figure is worked out."""

from __future__ import annotations

from servemark.base.errors import ServemarkError, input_error
from servemark.catalog.architecture import Architecture
from servemark.catalog.deployment import Parallel


def parallel_faults(
    model: Architecture, engine: str, sizes: Parallel, gpus: int, where: str, *, redundant: int = 0
) -> list[ServemarkError]:
    """Every contradiction of one role, worst first; [] when the sizes can run.

    Rules: ranks = GPUs of a worker; DCP divides TP; TP divides the query heads of every group; EP divides the
    experts, `redundant` copies included; PP has a layer for each stage; DCP of grouped-query attention is at
    most TP / KV heads.
    """
    found: list[ServemarkError] = []

    def fault(key: str, **values: object) -> None:
        found.append(input_error(f"sizing.parallel_{key}", where=where or None, **values))

    for name in ("tp", "pp", "dp", "dcp", "pcp", "ep"):
        value = getattr(sizes, name)
        if value is not None and value < 1:
            fault("positive", name=name, value=value)
    if found:
        return found
    tp, dcp, ep = sizes.tp or 1, sizes.dcp or 1, sizes.ep or 1
    ranks = sizes.ranks(engine)
    if gpus and ranks is not None and ranks != gpus:
        fault("ranks", ranks=ranks, gpus=gpus)
    if tp % dcp:
        fault("dcp", dcp=dcp, tp=tp)
    attention = attention_tp(engine, sizes)
    for group in model.attention:
        if group.heads % attention:
            fault("heads", tp=attention, heads=group.heads, kind=group.kind)
        if group.kind == "gqa" and dcp > 1 and dcp * group.kv_heads > tp:
            fault("gqa_dcp", dcp=dcp, tp=tp, kv_heads=group.kv_heads)
    for feed in model.feed_forward:
        if feed.experts and (feed.experts + redundant) % ep:
            fault("experts", ep=ep, experts=feed.experts + redundant)
    if (sizes.pp or 1) > model.layers:
        fault("stages", pp=sizes.pp, layers=model.layers)
    return found


def attention_tp(engine: str, sizes: Parallel) -> int:
    """Ranks that share one attention. vLLM adds data-parallel ranks on top of TP; SGLang divides TP by them;
    TensorRT-LLM's attention-DP leaves one."""
    tp = sizes.tp or 1
    if not sizes.dp_attention or engine == "vllm":
        return tp
    if engine == "sglang":
        return max(1, tp // (sizes.dp or tp))
    return 1
