"""Lines of one rank's device memory: weights, reserve, pool, cache per token and request, what fits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from servemark.catalog.architecture import Architecture, Attention
from servemark.sizing.inputs import FitInput, RoleInput
from servemark.sizing.kv import (
    KvSettings,
    block_unit,
    entry_elements,
    pages_of,
    request_cost,
    requests_that_fit,
    state_bytes,
    state_layer_bytes,
    state_split,
    token_bytes,
    tokens_that_fit,
    window_bytes,
    window_token_bytes,
)
from servemark.sizing.lines import TIMES, Line, Scope, Tag
from servemark.sizing.startup_log import StartupLog
from servemark.sizing.weights import draft_parameters, rank_weights, weight_bytes

GIB = 1 << 30
SPARSE_ENTRY_MORE = 80
"""Bytes by which an fp8 entry of sparse MLA is larger in the layout of some kernels: 512 + 16 of scales + 64 x 2 = 656,
not 576."""
_M = 1 << 20
RESERVES: dict[tuple[str, bool], tuple[int, int, str]] = {
    ("vllm", False): (1536 * _M, 1024 * _M, "sizing.reserve.vllm_one"),
    ("vllm", True): (8192 * _M, 4096 * _M, "sizing.reserve.vllm_many"),
    ("sglang", False): (1024 * _M, 512 * _M, "sizing.reserve.sglang"),
    ("sglang", True): (2048 * _M, 1536 * _M, "sizing.reserve.sglang"),
    ("trtllm", False): (3072 * _M, 2048 * _M, "sizing.reserve.trtllm"),
    ("trtllm", True): (8192 * _M, 6144 * _M, "sizing.reserve.trtllm"),
    ("llamacpp", False): (64 * _M, 48 * _M, "sizing.reserve.host"),
}
"""(engine, several ranks) -> bytes kept beside weights and cache, half-width, why. What is kept is the engine's own:
vLLM profiles activations, communication and (since 0.21) graphs inside gpu-memory-utilization; SGLang keeps graphs and
activations outside mem-fraction-static, so that only what is taken before loading counts (0.8 GiB on one public
start); TensorRT-LLM takes its fraction of what a trial run leaves."""
OTHER_RESERVE = (8192 * _M, 6144 * _M, "sizing.reserve.other")


@dataclass(frozen=True, slots=True)
class GpuPart:
    """A role's lines with the figures that the verdict needs. Bytes are of the fullest rank."""

    lines: tuple[Line, ...]
    memory: int | None
    budget: float | None
    weights: float
    pool: float | None
    pool_margin: float
    longest_request: int
    longest: int
    request: int
    states: int = 0
    """Bytes of the pool of states where the engine keeps them apart; `pool` holds them."""

    @property
    def entries_pool(self) -> float | None:
        """What the pool leaves for entries."""
        return None if self.pool is None else self.pool - self.states


def assumed_tag(margin: float | None) -> Tag:
    """`assumed` for a figure with a margin, else `exact`."""
    return "assumed" if margin else "exact"


def gpu_part(asked: FitInput, role: RoleInput) -> GpuPart:
    """Everything about one rank's memory."""
    lines: list[Line] = []
    memory, budget = _budget(asked, role, lines)
    weights, weights_margin = _weights(asked, role, lines)
    reserve, reserve_margin = _reserve(asked, role, lines)
    pool, margin = _pool(asked, role, lines, budget, weights, reserve, weights_margin + reserve_margin)
    settings = settled(asked, role, pool)
    _cache(asked.model, role, settings, lines)
    _block_of_log(asked, role, settings, lines)
    longest = int(role.max_context.value)
    most = request_cost(asked.model, settings, role.draft, longest).total
    states = _states_apart(asked, role, settings, lines, pool)
    request = _requests(asked, role, settings, lines, pool, margin)
    return GpuPart(tuple(lines), memory, budget, weights, pool, margin, most, longest, request, states)


def _budget(asked: FitInput, role: RoleInput, lines: list[Line]) -> tuple[int | None, float | None]:
    if role.fixed_context is not None and role.engine == "llamacpp" and asked.gpu is None:
        memory = asked.node_dram_bytes
        if memory is not None:
            lines.append(
                Line("host_memory", "rank", memory, "bytes", "declared", {"source": asked.node_dram_source})
            )
        return memory, None if memory is None else float(memory)
    memory = asked.gpu.memory_bytes if asked.gpu is not None else None
    if asked.gpu is None or memory is None:
        return None, None
    figure = asked.gpu.figures["memory-bytes"][0]
    source = (
        f"hardware/{asked.gpu.name}.yaml, {asked.gpu.sources.get(figure.origin.source, figure.origin.source)}"
    )
    lines.append(Line("gpu_memory", "rank", memory, "bytes", "declared", {"source": source}, source=source))
    if role.engine == "trtllm":
        return memory, float(memory)
    share = role.share
    margin = None if share.margin is None else share.margin * memory
    budget = share.value * memory
    formula = {"share": share.value, "memory": memory, "source": share.source}
    tag: Tag = "assumed" if margin is not None else "declared"
    lines.append(
        Line("gpu_budget", "rank", budget, "bytes", tag, formula, margin=margin, source=share.source)
    )
    return memory, budget


def _weights(asked: FitInput, role: RoleInput, lines: list[Line]) -> tuple[float, float]:
    """Weights and draft on the fullest rank, and how far assumed forms may be off."""
    shards = role.shards
    own: float
    formula: dict[str, object] = {"tp": shards.tp, "pp": shards.pp, "experts": shards.experts}
    if asked.model.weight_bytes is not None:
        own = asked.model.weight_bytes / shards.tp / shards.pp
        formula |= {"sharded": int(own), "replicated": 0, "routed": 0}
    else:
        found = rank_weights(asked.model, asked.precision, shards)
        own = found.total
        formula |= {"sharded": found.sharded, "replicated": found.replicated, "routed": found.routed}
    band = form_band(asked)
    formula["form"] = "sizing.form.assumed" if band else "sizing.form.known"
    margin = own * band if band else 0.0
    draft, draft_margin, draft_formula = _draft_weights(asked, role)
    total = own + draft
    measured = asked.log.value("weights_bytes") if asked.log is not None else None
    if measured is not None and asked.log is not None:
        reading = asked.log.facts["weights_bytes"]
        source = f"{asked.log.file}:{reading.line}"
        lines.append(
            Line("weights", "rank", measured, "bytes", "measured", formula, source=source, replaced=total)
        )
        return measured, 0.0
    lines.append(
        Line("weights", "rank", own, "bytes", assumed_tag(margin or None), formula, margin=margin or None)
    )
    if draft:
        lines.append(
            Line("draft_weights", "rank", draft, "bytes", "assumed", draft_formula, margin=draft_margin)
        )
    return total, margin + draft_margin


def form_band(asked: FitInput) -> float:
    """Relative half-width of the weights' size where the bits of their form are assumed; 0 where published."""
    path = f"precisions.{asked.precision.name}."
    bands = [origin.band or 0.0 for name, origin in asked.model.origins.items() if name.startswith(path)]
    extra = asked.model.origins.get("extra-parameters")
    return max([*bands, (extra.band or 0.0) if extra is not None else 0.0])


def _draft_weights(asked: FitInput, role: RoleInput) -> tuple[float, float, dict[str, object]]:
    if role.draft is None:
        return 0.0, 0.0, {}
    precision = role.draft_precision or asked.precision
    counted = draft_parameters(role.draft)
    rest = replace(counted, routed=0)
    size = counted.routed * precision.routed_bits / 8 / role.shards.experts
    size += weight_bytes(rest, precision) / role.shards.tp
    formula: dict[str, object] = {
        "rest": counted.total - counted.routed, "bits": precision.other_bits, "tp": role.shards.tp,
        "routed": counted.routed, "routed_bits": precision.routed_bits, "experts": role.shards.experts,
        "draft": role.draft.name,
    }  # fmt: skip
    return size, size * 0.1, formula


def _reserve(asked: FitInput, role: RoleInput, lines: list[Line]) -> tuple[float, float]:
    """What is kept beside weights and cache: a stated figure or the engine's stated assumption."""
    if asked.reserve_bytes is not None:
        size: float = asked.reserve_bytes
        lines.append(
            Line("reserve", "rank", size, "bytes", "declared", {"source": "--reserve"}, source="--reserve")
        )
        return size, 0.0
    many = role.ranks_per_worker > 1
    value, margin, why = RESERVES.get((role.engine, many), OTHER_RESERVE)
    lines.append(Line("reserve", "rank", value, "bytes", "assumed", {"why": why}, margin=margin))
    if asked.log is not None:
        return _reserve_of_log(asked.log, role, lines, value, margin)
    return value, margin


def _reserve_of_log(
    log: StartupLog, role: RoleInput, lines: list[Line], value: float, margin: float
) -> tuple[float, float]:
    """llama.cpp names its compute and output buffers; what is not named stays as assumed."""
    compute, output = log.value("compute_bytes"), log.value("output_bytes") or 0.0
    graphs = log.value("graph_bytes")
    if graphs is not None:
        source = f"{log.file}:{log.facts['graph_bytes'].line}"
        lines.append(Line("graphs", "rank", graphs, "bytes", "measured", {}, source=source))
    if role.engine != "llamacpp" or compute is None:
        return value, margin
    source = f"{log.file}:{log.facts['compute_bytes'].line}"
    assumed = lines.pop()
    lines.append(
        Line(
            "reserve",
            "rank",
            compute + output,
            "bytes",
            "measured",
            assumed.formula,
            source=source,
            replaced=value,
        )
    )
    return compute + output, 0.0


def _pool(  # noqa: PLR0917 - the terms of one difference
    asked: FitInput,
    role: RoleInput,
    lines: list[Line],
    budget: float | None,
    weights: float,
    reserve: float,
    margin: float,
) -> tuple[float | None, float]:
    """Bytes for the cache on a rank; None where the memory is not known."""
    if role.fixed_context is not None:
        size = role.fixed_context * token_bytes(asked.model.attention, role.kv)
        formula: dict[str, object] = {
            "context": role.fixed_context, "token": token_bytes(asked.model.attention, role.kv),
        }  # fmt: skip
        return _measured_pool(asked, lines, "kv_context", size, "exact", formula, 0.0), margin
    if budget is None:
        measured = _measured_pool(asked, lines, "pool", None, "exact", {}, 0.0)
        return measured, 0.0
    share = role.share.value if role.engine == "trtllm" else 1.0
    size = share * (budget - weights - reserve)
    margin += (role.share.margin or 0.0) * (asked.gpu.memory_bytes or 0 if asked.gpu is not None else 0)
    formula = {"budget": budget, "weights": weights, "reserve": reserve, "share": share}
    tag: Tag = "assumed" if margin else "declared"
    found = _measured_pool(asked, lines, "pool", size, tag, formula, margin)
    measured = asked.log.value("pool_bytes") if asked.log is not None else None
    if measured is None:
        return found, margin
    if role.engine == "vllm":
        kept = budget - weights - measured
        formula = {"budget": budget, "weights": weights, "pool": measured}
        tag = "measured" if role.share.margin is None else "assumed"
        lines.append(
            Line("kept", "rank", kept, "bytes", tag, formula, replaced=reserve if tag == "measured" else None)
        )
    return found, 0.0


def _measured_pool(  # noqa: PLR0917 - one line's parts
    asked: FitInput,
    lines: list[Line],
    name: str,
    size: float | None,
    tag: Tag,
    formula: dict[str, object],
    margin: float,
) -> float | None:
    measured = asked.log.value("pool_bytes") if asked.log is not None else None
    if measured is not None and asked.log is not None:
        source = f"{asked.log.file}:{asked.log.facts['pool_bytes'].line}"
        lines.append(Line(name, "rank", measured, "bytes", "measured", formula, source=source, replaced=size))
        return measured
    if size is not None:
        lines.append(Line(name, "rank", size, "bytes", tag, formula, margin=margin or None))
    return size


def settled(asked: FitInput, role: RoleInput, pool: float | None) -> KvSettings:
    """The settings with the draft's sharding as a log shows it: of both readings the one whose tokens are nearer."""
    tokens = asked.log.value("pool_tokens") if asked.log is not None else None
    if role.draft is None or role.kv.context_ranks == 1 or tokens is None or not pool:
        return role.kv
    longest = int(role.max_context.value)
    both = [replace(role.kv, draft_sharded=sharded) for sharded in (True, False)]
    return min(both, key=lambda s: abs(tokens_that_fit(asked.model, s, role.draft, pool, longest) - tokens))


def _terms(groups: tuple[Attention, ...], settings: KvSettings) -> str:
    """`24 x 576 x 1` for every group with an entry a token, indexes too."""
    parts = []
    for group in groups:
        elements = entry_elements(group, settings)
        if elements and (group.window is None or group.kind == "compressed"):
            parts.append(f"{group.layers} {TIMES} {elements:g} {TIMES} {settings.element_bytes:g}")
        if group.index_layers:
            parts.append(f"{group.index_layers} {TIMES} {group.index_bytes * settings.index_share:g}")
    return " + ".join(parts) or "0"


def _state_terms(groups: tuple[Attention, ...], settings: KvSettings) -> str:
    parts = []
    for group in groups:
        if group.keeps_state:
            heads = math.ceil(group.heads / settings.tp)
            kept = group.conv_kernel - 1 + settings.draft_tokens
            if group.kind == "kda":
                channels = heads * (2 * group.head_dim + group.value_dim)
            else:
                keys = math.ceil(group.kv_heads / settings.tp)
                channels = heads * group.value_dim + 2 * keys * group.head_dim
            matrix = (
                f"{heads} {TIMES} {group.head_dim} {TIMES} {group.value_dim} {TIMES} {settings.state_bytes:g}"
            )
            parts.append(
                f"{group.layers} {TIMES} ({matrix} + {channels:,} {TIMES} {kept} {TIMES} {settings.conv_bytes:g})"
            )
    return " + ".join(parts)


def token_margin(model: Architecture, role: RoleInput, settings: KvSettings) -> float | None:
    """How far the bytes of one token may be off: an unstated cache type, an index whose form is not published, or
    sparse entries in a kernel's larger layout. None where none of these applies."""
    guessed = any(
        origin.assumed and "index" in path and path.startswith("attention")
        for path, origin in model.origins.items()
    )
    margin = token_bytes(model.attention, settings) / 2 if role.kv_dtype == "auto" else None
    if guessed and settings.index_share == 1:
        index = sum(group.index_layers * group.index_bytes for group in model.attention)
        margin = (margin or 0.0) + index
    sparse = sum(group.layers for group in model.attention if group.kind == "mla" and group.index_layers)
    if sparse and settings.element_bytes == 1:
        margin = (margin or 0.0) + sparse * SPARSE_ENTRY_MORE
    return margin


def _cache(model: Architecture, role: RoleInput, settings: KvSettings, lines: list[Line]) -> None:
    """Bytes per token, per state, per window, and the allocator's pages."""
    per_token = token_bytes(model.attention, settings)
    margin = token_margin(model, role, settings)
    terms: dict[str, object] = {"terms": _terms(model.attention, settings), "dtype": role.kv_dtype}
    lines.append(Line("kv_token", "rank", per_token, "bytes", assumed_tag(margin), terms, margin=margin))
    if settings.context_ranks > 1:
        formula: dict[str, object] = {"token": per_token, "dcp": settings.dcp, "pcp": settings.pcp}
        lines.append(
            Line(
                "kv_token_share",
                "rank",
                per_token / settings.context_ranks,
                "bytes",
                assumed_tag(margin),
                formula,
            )
        )
    drafted = token_bytes(role.draft.attention, settings) if role.draft is not None else 0.0
    if role.draft is not None and drafted:
        formula = {"terms": _terms(role.draft.attention, settings), "draft": role.draft.name}
        lines.append(Line("draft_token", "rank", drafted, "bytes", "exact", formula))
    state = state_bytes(model.attention, settings)
    if state:
        formula = {"terms": _state_terms(model.attention, settings), "drafted": settings.draft_tokens}
        lines.append(Line("state_request", "rank", state, "bytes", "exact", formula))
    aside = settings.window_share * window_token_bytes(model.attention, settings)
    if aside:
        formula = {"share": settings.window_share, "token": window_token_bytes(model.attention, settings)}
        lines.append(Line("window_token", "rank", aside, "bytes", "exact", formula))
    window = 0.0 if aside else window_bytes(model.attention, settings)
    if window:
        formula = {"block": settings.block_tokens}
        lines.append(Line("window_request", "rank", window, "bytes", "exact", formula))
    pages = pages_of(model, settings, role.draft)
    if pages is not None:
        formula = {
            "block": pages.block_tokens,
            "state": max(state_layer_bytes(group, settings) for group in model.attention),
            "token": pages.page_bytes // pages.block_tokens, "full": pages.full_layers,
            "unit": block_unit(model),
            "states": pages.state_layers, "draft": pages.draft_layers, "spread": settings.context_ranks,
        }  # fmt: skip
        tokens = pages.block_tokens * settings.context_ranks
        lines.append(Line("page", "rank", pages.page_bytes, "bytes", "exact", formula))
        lines.append(Line("page_tokens", "worker", tokens, "tokens", "exact", formula))


def _block_of_log(asked: FitInput, role: RoleInput, settings: KvSettings, lines: list[Line]) -> None:
    """The block that the engine printed, beside the one that was worked out."""
    measured = asked.log.value("block_tokens") if asked.log is not None else None
    if asked.log is None or measured is None:
        return
    pages = pages_of(asked.model, settings, role.draft)
    source = f"{asked.log.file}:{asked.log.facts['block_tokens'].line}"
    estimate = pages.block_tokens if pages is not None else None
    formula: dict[str, object] = {"block": settings.block_tokens}
    lines.append(
        Line("block", "rank", measured, "tokens", "measured", formula, source=source, replaced=estimate)
    )


def _states_apart(
    asked: FitInput, role: RoleInput, settings: KvSettings, lines: list[Line], pool: float | None
) -> int:
    """The pool of states of SGLang and TensorRT-LLM, and how many requests its slots hold."""
    apart = settings.state_pool
    if apart is None or pool is None:
        return 0
    size, slots = state_split(asked.model, settings, pool)
    if not size:
        return 0
    log = asked.log
    measured = log.value("state_slots") if log is not None else None
    formula: dict[str, object] = {
        "slots": slots, "state": state_bytes(asked.model.attention, settings), "drafted": settings.draft_tokens,
        "each": apart.per_request, "ratio": apart.ratio,
        "why": "sizing.states.stated" if apart.slots is not None else "sizing.states.ratio",
    }  # fmt: skip
    if log is not None and measured is not None:
        source = f"{log.file}:{log.facts['state_slots'].line}"
        lines.append(
            Line("state_slots", "rank", measured, "count", "measured", formula, source=source, replaced=slots)
        )
    else:
        tag: Tag = "declared" if apart.slots is not None else "assumed"
        lines.append(Line("state_slots", "rank", slots, "count", tag, formula))
    lines.append(Line("state_pool", "rank", size, "bytes", "assumed", formula))
    return size


def _requests(  # noqa: PLR0917 - what fits, from all that was found
    asked: FitInput,
    role: RoleInput,
    settings: KvSettings,
    lines: list[Line],
    pool: float | None,
    margin: float,
) -> int:
    """Tokens and requests that fit; gives the bytes of one request of the asked length."""
    model, draft = asked.model, role.draft
    cost = request_cost(model, settings, draft, asked.context)
    formula: dict[str, object] = {
        "context": asked.context, "entries": cost.entries, "states": cost.states, "draft": cost.draft,
        "windows": cost.windows,
    }  # fmt: skip
    kept = token_margin(asked.model, role, settings)
    wide = None if kept is None else kept / token_bytes(model.attention, settings) * cost.entries
    lines.append(Line("request", "rank", cost.total, "bytes", assumed_tag(wide), formula, margin=wide))
    if pool is None or role.fixed_context is not None:
        return cost.total
    share = 0.0 if wide is None else wide / cost.total
    loose = share / (1 - share) if share < 1 else 1.0  # entries may be smaller: the other reading lies within
    longest = int(role.max_context.value)
    most = request_cost(model, settings, draft, longest).total
    tokens = tokens_that_fit(model, settings, draft, pool, longest)
    spread = abs(margin) * longest / most + tokens * loose
    formula = {"longest": longest, "request": most, "left": _left(model, settings, pool)}
    scope: Scope = "worker" if role.data_parallel_shares == 1 else "share"
    line = Line("tokens_fit", scope, tokens, "tokens", assumed_tag(spread), formula, margin=spread or None)
    lines.append(_or_measured(asked, line, "pool_tokens"))
    measured = asked.log is not None and asked.log.value("pool_tokens") is not None
    if draft is not None and settings.context_ranks > 1 and not measured:
        other = replace(settings, draft_sharded=False)
        most = request_cost(model, other, draft, longest).total
        whole = tokens_that_fit(model, other, draft, pool, longest)
        off = abs(margin) * longest / most + whole * loose
        formula = {"pool": pool, "longest": longest, "request": most}
        lines.append(Line("tokens_fit_whole", scope, whole, "tokens", "assumed", formula, margin=off))
    lines += _at_once(asked, role, settings, pool, margin, loose)
    return cost.total


def _at_once(  # noqa: PLR0917 - what fits, from all that was found
    asked: FitInput, role: RoleInput, settings: KvSettings, pool: float, margin: float, loose: float
) -> list[Line]:
    """Requests of the asked length that a pool holds, and of all pools of a worker with data-parallel attention.

    `loose`: relative half-width of the bytes of an entry.
    """
    model = asked.model
    size = request_cost(model, settings, role.draft, asked.context).total
    states, slots = state_split(model, settings, pool)
    count = requests_that_fit(model, settings, role.draft, pool, asked.context)
    formula: dict[str, object] = {
        "request": size, "context": asked.context, "left": _left(model, settings, pool),
    }  # fmt: skip
    off = abs(margin) / size + count * loose
    scope: Scope = "worker" if role.data_parallel_shares == 1 else "share"
    found = Line("requests_fit", scope, count, "count", assumed_tag(off), formula, margin=off or None)
    if settings.state_pool is not None and slots and count < int((pool - states) // size):
        formula |= {"slots": slots, "each": settings.state_pool.per_request}
        found = Line("requests_slots", scope, count, "count", "assumed", formula)
    if scope == "worker":
        return [found]
    formula = {"each": count, "shares": role.data_parallel_shares}
    total = count * role.data_parallel_shares
    return [found, Line("requests_worker", "worker", total, "count", found.tag, formula)]


def _left(model: Architecture, settings: KvSettings, pool: float) -> str:
    """The pool without that of states, as a formula shows it."""
    states = state_split(model, settings, pool)[0]
    return f"({pool:,.0f} - {states:,})" if states else f"{pool:,.0f}"


def _or_measured(asked: FitInput, line: Line, fact: str) -> Line:
    """The line, or what the log says in its place with the estimate beside it."""
    measured = asked.log.value(fact) if asked.log is not None else None
    if measured is None or asked.log is None:
        return line
    source = f"{asked.log.file}:{asked.log.facts[fact].line}"
    return replace(line, value=measured, tag="measured", margin=None, source=source, replaced=line.value)
