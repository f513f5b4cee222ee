"""A recipe's roles -> typed inputs: which flag of which engine says what, and what nobody says."""

from __future__ import annotations

from dataclasses import replace

from servemark.base.errors import input_error
from servemark.catalog.architecture import Architecture, Draft, Precision
from servemark.catalog.arms import WorkerBlock
from servemark.catalog.deployment import Deployment, Parallel, RoleSpec
from servemark.sizing.inputs import RoleInput, Stated
from servemark.sizing.kv import DTYPE_BYTES, KvSettings, StatePool
from servemark.sizing.lines import Remark
from servemark.sizing.parallel import attention_tp, parallel_faults
from servemark.sizing.store_sizes import store_of
from servemark.sizing.weights import Shards

DEFAULT_SHARE = {
    "vllm": Stated(0.92, "vLLM 0.26.0 default", 0.02),
    "sglang": Stated(0.85, "assumed", 0.05),
    "trtllm": Stated(0.9, "TensorRT-LLM default", 0.0),
}
"""Where a recipe is silent: vLLM's default was 0.90 in older releases; SGLang works its own out at start-up."""
_SHARE_FLAG = {"vllm": "gpu-memory-utilization", "sglang": "mem-fraction-static"}
_CONTEXT_FLAG = ("max-model-len", "context-length", "max-seq-len")


def roles_of(deployment: Deployment, model: Architecture) -> tuple[RoleInput, ...]:
    """Every role of a deployment; ServemarkError for the first contradiction of its parallel sizes."""
    found = []
    for role in deployment.roles:
        _readable_sizes(role)
        copies = _count(role.flag("ep-num-redundant-experts")) or 0
        faults = parallel_faults(
            model, deployment.engine, role.parallel, role.gpus, str(role.at), redundant=copies
        )
        if faults:
            raise faults[0]
        found.append(_role(deployment, role, model))
    return tuple(found)


_SIZE_FLAGS = (
    ("tensor-parallel-size", "tp"),
    ("pipeline-parallel-size", "pp"),
    ("data-parallel-size", "dp"),
    ("decode-context-parallel-size", "dcp"),
    ("prefill-context-parallel-size", "pcp"),
    ("expert-parallel-size", "ep"),
)


MAX_DRAFTED = 1024
_BOUNDED: dict[str, float] = {
    "max-model-len": 1 << 32,
    "context-length": 1 << 32,
    "max-seq-len": 1 << 32,
    "block-size": 1 << 20,
    "page-size": 1 << 20,
    "max-mamba-cache-size": 1 << 24,
    "mamba-full-memory-ratio": 1000,
    "swa-full-tokens-ratio": 1,
}
"""Flags that size something, and more than any engine takes: beyond it a figure would only look like one."""


def _readable_sizes(role: RoleSpec) -> None:
    """A parallel size that is written and is no positive number (0, -8, `eight`) must not count as absent."""
    for flag, most in _BOUNDED.items():
        value = role.flag(flag)
        count = _number(value)
        if value is not None and (count is None or not 0 < count <= most):
            raise input_error(
                "sizing.count_bounds",
                where=str(role.flags[flag].at),
                name=flag,
                value=str(value)[:60],
                most=most,
            )
    spec = role.speculative
    if spec is not None and spec.draft_tokens is not None and not 0 <= spec.draft_tokens <= MAX_DRAFTED:
        raise input_error(
            "sizing.count_bounds",
            where=str(role.at),
            name="draft tokens",
            value=spec.draft_tokens,
            most=MAX_DRAFTED,
        )
    for flag, name in _SIZE_FLAGS:
        value = role.flag(flag)
        if value is not None and getattr(role.parallel, name) is None:
            raise input_error(
                "sizing.parallel_positive", where=str(role.flags[flag].at), name=flag, value=str(value)[:60]
            )


def roles_of_blocks(
    engine: str, blocks: tuple[tuple[str, WorkerBlock], ...], model: Architecture, gpus_per_node: int | None
) -> tuple[RoleInput, ...]:
    """Roles of an arm that a script launches: sizes from its master entry, everything else assumed."""
    found = []
    for name, block in blocks:
        dp = block.ep if block.dp_attn and engine == "vllm" and block.ep > block.tp else None
        sizes = Parallel(tp=block.tp, pp=block.pp, dp=dp, ep=block.ep, dcp=block.dcp_size, pcp=block.pcp_size)
        faults = parallel_faults(model, "any", sizes, 0, str(block.at))
        if faults:
            raise faults[0]
        ranks = block.gpus
        attention = 1 if block.dp_attn else block.tp
        kv = KvSettings(tp=attention, pp=block.pp, dcp=block.dcp_size, hybrid_pages=engine == "vllm")
        kv = replace(kv, state_pool=StatePool() if engine == "sglang" and _keeps_states(model) else None)
        per_node = min(gpus_per_node or ranks, ranks * block.num_worker)
        role = RoleInput(
            name=name,
            engine=engine,
            workers=block.num_worker,
            nodes=1,
            ranks_per_worker=ranks,
            ranks_per_node=per_node,
            shards=Shards(tp=attention, pp=block.pp, experts=max(1, ranks // block.pp)),
            kv=kv,
            kv_dtype="auto",
            share=DEFAULT_SHARE.get(engine, DEFAULT_SHARE["vllm"]),
            max_context=Stated(model.max_context, "model"),
            where=str(block.at),
            declared=False,
        )
        found.append(role)
    return tuple(found)


def ranks_per_node(role: RoleSpec, deployment: Deployment) -> int:
    """Engine processes of a role on its fullest node: workers that are smaller than a node are packed whole."""
    per_node = deployment.gpus_per_node or role.gpus or 1
    workers = -(-role.workers // max(role.nodes, 1))
    if not role.gpus:
        return workers
    if role.gpus >= per_node:
        return per_node
    return max(1, min(per_node // role.gpus, workers)) * role.gpus


def _keeps_states(model: Architecture) -> bool:
    return any(group.keeps_state for group in model.attention)


def _role(deployment: Deployment, role: RoleSpec, model: Architecture) -> RoleInput:
    engine, sizes = deployment.engine, role.parallel
    ranks = max(1, role.gpus or (sizes.ranks(engine) or 1))
    shards = Shards(
        tp=attention_tp(engine, sizes), pp=sizes.pp or 1, experts=max(1, ranks // (sizes.pp or 1))
    )
    remarks: list[Remark] = []
    draft, draft_name = _draft(role, model, remarks)
    kv, dtype = _kv(engine, role, shards, model, remarks)
    if dtype == "auto" and _is_plain(deployment, role):
        dtype = str(role.flag("dtype"))
    on_node = ranks_per_node(role, deployment)
    context = _context(role, model)
    fixed = _count(role.flag("ctx-size")) if engine == "llamacpp" else None
    if engine == "llamacpp":
        slots = _count(role.flag("parallel")) or 1
        context = Stated((fixed or model.max_context) // slots, "ctx-size / parallel")
    _graphs(role, remarks)
    return RoleInput(
        name=role.role,
        engine=engine,
        workers=role.workers,
        nodes=role.nodes,
        ranks_per_worker=ranks,
        ranks_per_node=max(1, on_node),
        shards=shards,
        kv=kv,
        kv_dtype=dtype,
        share=_share(engine, role),
        max_context=context,
        draft=draft,
        draft_name=draft_name,
        draft_precision=Precision("bf16", 16, 16) if draft is not None and not draft.builtin else None,
        store=store_of(deployment, role, remarks),
        where=str(role.at),
        remarks=tuple(remarks),
        fixed_context=fixed,
    )


def _count(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return (
        int(value)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16
        else None
    )


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    try:
        return float(value) if isinstance(value, str) and len(value) < 20 else None
    except ValueError:
        return None


def _trt_cache(role: RoleSpec, name: str) -> object:
    found = role.flag("kv-cache-config")
    return found.get(name) if isinstance(found, dict) else None


def _share(engine: str, role: RoleSpec) -> Stated:
    name = _SHARE_FLAG.get(engine)
    value = _number(role.flag(name)) if name else _number(_trt_cache(role, "free_gpu_memory_fraction"))
    if value is None:
        return DEFAULT_SHARE.get(engine, Stated(1.0, "assumed", 0.0))
    if not 0 < value <= 1:
        raise input_error(
            "sizing.not_share", where=str(role.at), name=name or "free_gpu_memory_fraction", value=value
        )
    return Stated(value, name or "free_gpu_memory_fraction")


def _context(role: RoleSpec, model: Architecture) -> Stated:
    for name in _CONTEXT_FLAG:
        value = _count(role.flag(name))
        if value is not None:
            if value < 1:
                raise input_error("sizing.not_positive", where=str(role.at), name=name, value=value)
            return Stated(value, name)
    return Stated(model.max_context, "model")


def _kv(
    engine: str, role: RoleSpec, shards: Shards, model: Architecture, remarks: list[Remark]
) -> tuple[KvSettings, str]:
    dtype = role.flag("kv-cache-dtype")
    if engine == "trtllm":
        dtype = _trt_cache(role, "dtype")
    if engine == "llamacpp":
        dtype = role.flag("cache-type-k") or "f16"
    name = str(dtype).lower() if isinstance(dtype, str) else "auto"
    element = DTYPE_BYTES.get(name)
    if element is None:
        element = 2.0
        if name != "auto":
            remarks.append(Remark("kv_dtype_unknown", "warning", {"dtype": name[:40]}))
    if name == "auto" and any(group.kind == "compressed" for group in model.attention):
        name, element = "fp8", 1.0  # these entries have one form, whatever is asked for
    state = role.flag("mamba-ssm-cache-dtype") or role.flag("mamba-ssm-dtype")
    draft_tokens = role.speculative.draft_tokens if role.speculative else None
    sizes = role.parallel
    pcp = sizes.pcp or 1
    if engine != "vllm" and pcp > 1:
        remarks.append(Remark("context_parallel", "note", {"role": role.role, "pcp": pcp}))
        pcp = 1
    block = _count(role.flag("block-size")) or _count(role.flag("page-size"))
    block = block or _count(_trt_cache(role, "tokens_per_block"))
    return (
        KvSettings(
            tp=shards.tp,
            pp=shards.pp,
            dcp=sizes.dcp or 1,
            pcp=pcp,
            element_bytes=element,
            state_bytes=DTYPE_BYTES.get(str(state).lower(), 4.0),
            draft_tokens=draft_tokens or 0,
            block_tokens=max(1, block or (1 if engine in {"sglang", "llamacpp"} else 16)),
            draft_sharded=True,
            hybrid_pages=engine == "vllm",
            prefix_caching=role.flag("enable-prefix-caching") is not False
            and role.flag("no-enable-prefix-caching") is not True,
            state_pool=_state_pool(engine, role, model),
            window_share=_window_share(engine, role, model),
            index_share=_index_share(role, model),
        ),
        name,
    )


def _is_plain(deployment: Deployment, role: RoleSpec) -> bool:
    """Whether the checkpoint is not quantised and the engine's element is stated: `auto` is then that element, since only
    a quantised checkpoint brings another for its KV cache."""
    return deployment.precision in {"bf16", "fp16"} and role.flag("dtype") in {"bfloat16", "float16", "half"}


def _state_pool(engine: str, role: RoleSpec, model: Architecture) -> StatePool | None:
    """How SGLang and TensorRT-LLM set states apart; None where none are kept or the engine pages them."""
    if not _keeps_states(model):
        return None
    if engine == "trtllm":
        return StatePool(slots=_count(role.flag("max-batch-size")) or 2048, per_request=1)
    if engine != "sglang":
        return None
    strategy = role.flag("mamba-scheduler-strategy") or role.flag("mamba-radix-cache-strategy") or ""
    shares = (role.parallel.dp or 1) if role.parallel.dp_attention else 1
    each = 5 if str(strategy).startswith("extra_buffer") else 3
    slots = _count(role.flag("max-mamba-cache-size"))
    if role.flag("disable-radix-cache"):
        each = 1
        slots = slots or _count(role.flag("max-running-requests"))
    ratio = _number(role.flag("mamba-full-memory-ratio"))
    return StatePool(
        slots=max(1, slots // shares) if slots else None,  # data-parallel attention divides them
        ratio=ratio if ratio is not None and 0 < ratio < 1000 else 0.9,
        per_request=each,
    )


def _window_share(engine: str, role: RoleSpec, model: Architecture) -> float:
    """SGLang's share of tokens with windows (--swa-full-tokens-ratio, 0.1 for compressed entries)."""
    if engine != "sglang" or not any(group.kind == "compressed" for group in model.attention):
        return 0.0
    stated = _number(role.flag("swa-full-tokens-ratio"))
    return stated if stated is not None and 0 < stated <= 1 else 0.1


def _index_share(role: RoleSpec, model: Architecture) -> float:
    """vLLM's attention-config `indexer_kv_dtype: fp8` halves bf16 index keys: 128 B instead of 256 a token and layer,
    which a public refusal of MiniMax-M3 (37.62 GiB for 1,048,576 tokens, TP 2) shows to the byte."""
    config = role.flag("attention-config")
    kept = config.get("indexer_kv_dtype") if isinstance(config, dict) else None
    plain = any(group.kind == "gqa" and group.index_layers for group in model.attention)
    return 0.5 if plain and str(kept).startswith("fp8") else 1.0


def _draft(role: RoleSpec, model: Architecture, remarks: list[Remark]) -> tuple[Draft | None, str | None]:
    """The draft that a role's speculative decoding loads; a remark where its geometry is not known."""
    spec = role.speculative
    if spec is None:
        return None, None
    if spec.draft_model is not None:
        wanted = spec.draft_model.lower()
        found = next((draft for draft in model.drafts if draft.name.lower() == wanted), None)
    else:
        builtin = spec.method in {"mtp", "nextn", "eagle", "deepseek_mtp"} or "mtp" in spec.method
        found = next((draft for draft in model.drafts if draft.builtin), None) if builtin else None
        if spec.method in {"ngram", "ngram_gpu", "suffix", "pld"}:
            return None, spec.method
    if found is None:
        name = spec.draft_model or spec.method
        remarks.append(Remark("draft_unknown", "warning", {"draft": name[:120]}))
        return None, name
    return found, found.name


def _graphs(role: RoleSpec, remarks: list[Remark]) -> None:
    size = _count(role.flag("max-cudagraph-capture-size"))
    if size is not None and size >= 256 and role.flag("max-num-seqs") is None:
        remarks.append(Remark("graphs", "note", {"size": size, "role": role.role}))
