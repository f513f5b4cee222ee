"""The report of `servemark fit`: lines by role and scope, a verdict, and what the reader must know beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from servemark.catalog.architecture import Architecture
from servemark.sizing.gpu_lines import SPARSE_ENTRY_MORE, GpuPart, assumed_tag, form_band, gpu_part
from servemark.sizing.host_lines import (
    host_lines,
    job_lines,
    node_needs,
    pages_lines,
    role_host,
    shared_node_bytes,
)
from servemark.sizing.inputs import GIB, FitInput, RoleInput
from servemark.sizing.kv import pages_of, token_bytes, tokens_that_fit, window_token_bytes
from servemark.sizing.lines import Line, Remark, Verdict
from servemark.sizing.startup_log import StartupLog
from servemark.sizing.weights import parameters_of, weight_bytes


@dataclass(frozen=True, slots=True)
class RoleFit:
    """One role's lines."""

    role: RoleInput
    gpu: GpuPart
    host: tuple[Line, ...]
    pages: tuple[Line, ...]
    same_as: str | None = None
    """Name of an earlier role with exactly the same figures."""

    @property
    def lines(self) -> tuple[Line, ...]:
        """All of them."""
        return (*self.gpu.lines, *self.host, *self.pages)


@dataclass(frozen=True, slots=True)
class FitReport:
    """What was asked, all lines, the verdict and the remarks."""

    asked: FitInput
    model: tuple[Line, ...]
    roles: tuple[RoleFit, ...]
    job: tuple[Line, ...]
    verdict: Verdict
    remarks: tuple[Remark, ...]


def fit(asked: FitInput) -> FitReport:
    """Work everything out. Figures are of the fullest rank; nothing is read from this machine."""
    roles: list[RoleFit] = []
    for asked_role in asked.roles:
        part = gpu_part(asked, asked_role)
        role = sized(asked_role, part.entries_pool, asked.model)
        made = RoleFit(role, part, host_lines(role, asked.model.attention), pages_lines(role))
        same = next((old.role.name for old in roles if old.lines == made.lines), None)
        roles.append(RoleFit(role, made.gpu, made.host, made.pages, same))
    asked = replace(asked, roles=tuple(made.role for made in roles))
    verdict = _verdict(asked, roles)
    return FitReport(
        asked, model_lines(asked), tuple(roles), job_lines(asked), verdict, _remarks(asked, roles)
    )


def sized(role: RoleInput, pool: float | None, model: Architecture) -> RoleInput:
    """The role with a tier's size that is stated as a multiple of the device pool of entries; without the tier where
    that pool is not known. Windows that are set aside are not mirrored."""
    store = role.store
    if store is None or not store.ratio:
        return role
    if pool is None or pool <= 0:
        unknown = Remark("tier_unknown", "warning", {"role": role.name, "ratio": store.ratio})
        return replace(role, store=None, remarks=(*role.remarks, unknown))
    entry = token_bytes(model.attention, role.kv)
    aside = role.kv.window_share * window_token_bytes(model.attention, role.kv)
    pool *= entry / (entry + aside) if entry else 1.0
    size = int(store.ratio * pool)
    text = f"{store.ratio:g} x {int(pool):,}"
    return replace(
        role, store=replace(store, buffer_bytes=size, buffer_text=text, buffer_reader="hicache-ratio")
    )


def model_lines(asked: FitInput) -> tuple[Line, ...]:
    """Parameters and checkpoint of the model."""
    model = asked.model
    if model.weight_bytes is not None:
        return (
            Line("parameters", "model", model.parameters or 0, "parameters", "exact", {"source": model.file}),
            Line("checkpoint", "model", model.weight_bytes, "bytes", "exact", {"source": model.file}),
        )
    found = parameters_of(model)
    formula: dict[str, object] = {
        "routed": found.routed, "attention": found.attention + found.down, "shared": found.shared,
        "dense": found.dense, "latent": found.latent, "router": found.router,
        "tables": found.embedding + found.head,
    }  # fmt: skip
    size = weight_bytes(found, asked.precision)
    bits: dict[str, object] = {
        "routed": found.routed, "routed_bits": asked.precision.routed_bits,
        "other": found.other, "other_bits": asked.precision.other_bits,
        "tables": found.embedding + found.head + found.router, "table_bits": asked.precision.embedding_bits,
    }  # fmt: skip
    band = form_band(asked) or None
    return (
        Line("parameters", "model", found.total, "parameters", "exact", formula),
        Line("active", "model", found.active, "parameters", "exact", {"total": found.total}),
        Line("checkpoint", "model", size, "bytes", assumed_tag(band), bits, margin=band and size * band),
    )


def _verdict(asked: FitInput, roles: list[RoleFit]) -> Verdict:
    """Worst finding first: does not fit, then cannot say, then fits."""
    found = [verdict for role in roles for verdict in (_gpu_verdict(asked, role), _host_verdict(asked, role))]
    for kind in ("does_not_fit", "cannot_say"):
        worst = [verdict for verdict in found if verdict is not None and verdict.kind == kind]
        if worst:
            return max(worst, key=lambda verdict: verdict.missing)
    return Verdict("fits")


def _gpu_verdict(asked: FitInput, made: RoleFit) -> Verdict | None:
    """One role's device memory; None when it fits."""
    part, role = made.gpu, made.role
    if part.pool is None or (part.budget is None and asked.log is None):
        reason = "host_memory" if role.engine == "llamacpp" else "gpu_memory"
        return Verdict("cannot_say", reason=reason, values={"role": role.name})
    if role.fixed_context is not None:
        needed = part.weights + part.pool + part.pool_margin
        if part.budget is None or needed <= part.budget:
            return None
        return Verdict("does_not_fit", scope="rank", missing=int(needed - part.budget), reason="fixed")
    return _pool_verdict(asked, role, part, part.pool - part.states)


def _pool_verdict(asked: FitInput, role: RoleInput, part: GpuPart, pool: float) -> Verdict | None:
    """vLLM refuses to start when its pool does not hold one request of the longest length; others start with any
    pool, so there a stated length must fit."""
    if pool + part.pool_margin < 0:
        return Verdict("does_not_fit", scope="rank", missing=int(-pool - part.pool_margin), reason="weights")
    values: dict[str, object] = {"tokens": part.longest, "role": role.name, "margin": part.pool_margin}
    if not role.declared:
        return Verdict("cannot_say", scope="rank", reason="no_recipe", values=values)
    needed, reason = part.longest_request, "longest"
    if role.engine != "vllm":
        needed, reason = (part.request if asked.context_stated else 1), "asked"
        values["tokens"] = asked.context if asked.context_stated else 1
    if pool + part.pool_margin < needed:
        return Verdict(
            "does_not_fit",
            scope="rank",
            missing=int(needed - pool - part.pool_margin),
            reason=reason,
            values=values,
        )
    if pool - part.pool_margin < needed:
        return Verdict("cannot_say", scope="rank", reason="reserve", values=values)
    return None


def _host_verdict(asked: FitInput, made: RoleFit) -> Verdict | None:
    host = role_host(made.role)
    if host is None:
        return None
    needed = shared_node_bytes(asked) if asked.colocated else host.node_bytes
    if asked.node_dram_bytes is None:
        fleets = known_fleets(asked)
        if fleets and needed <= min(fleets.values()):
            return None  # on whatever known node: a remark says so
        values: dict[str, object] = {"role": made.role.name, "needed": needed, "known": _fleets_text(fleets)}
        return Verdict("cannot_say", scope="node", reason="node_dram", values=values)
    if needed > asked.node_dram_bytes:
        missing = needed - asked.node_dram_bytes
        if made.role.store is not None and made.role.store.ratio:
            values = {"role": made.role.name, "ratio": made.role.store.ratio}
            return Verdict("cannot_say", scope="node", reason="tier", values=values)
        return Verdict("does_not_fit", scope="node", missing=missing, reason="dram")
    return None


def known_fleets(asked: FitInput) -> dict[str, int]:
    """Bytes of host memory of a node by the label of every fleet that is known for the GPU."""
    if asked.gpu is None:
        return {}
    figures = asked.gpu.figures.get("node-dram-mib", ())
    return {
        f"{asked.gpu.name}-{figure.where}" if figure.where else asked.gpu.name: int(figure.value) << 20
        for figure in figures
    }


def _fleets_text(fleets: dict[str, int]) -> str:
    return ", ".join(f"{label} ({size / GIB:,.0f} GiB)" for label, size in fleets.items()) or "—"


def _remarks(asked: FitInput, roles: list[RoleFit]) -> tuple[Remark, ...]:
    found: list[Remark] = list(asked.remarks)
    for made in roles:
        if made.same_as is None:
            found += made.role.remarks
            found += _role_remarks(asked, made)
    found += _log_remarks(asked, roles)
    found += _conflicts(asked)
    return tuple(_unique(found))


def _unique(remarks: list[Remark]) -> list[Remark]:
    kept: dict[tuple[str, str], Remark] = {}
    for remark in remarks:
        kept.setdefault((remark.name, str(remark.values)), remark)
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(kept.values(), key=lambda remark: order[remark.severity])


def _role_remarks(asked: FitInput, made: RoleFit) -> list[Remark]:
    role = made.role
    found: list[Remark] = []
    needs = node_needs(role)
    if needs is not None and needs.needs_huge_pages:
        values: dict[str, object] = {
            "chunks": needs.chunks_4k, "entries": needs.entries_4k_per_segment, "limit": needs.entry_limit,
            "pages": needs.pages_reserved,
        }  # fmt: skip
        taken = role.store is not None and role.store.huge_pages
        found.append(
            Remark("registration_huge", "note", values)
            if taken
            else Remark("registration", "warning", values)
        )
    host = role_host(role)
    fleets = known_fleets(asked)
    if host is not None and asked.node_dram_bytes is None and fleets:
        found.append(Remark("node_dram_known", "note", {"role": role.name, "known": _fleets_text(fleets)}))
    if host is not None and asked.budget_bytes is not None and asked.budget_bytes > 0:
        ratio = asked.budget_bytes / host.node_bytes if host.node_bytes else 0.0
        if host.node_bytes > asked.budget_bytes:
            values = {"allocated": host.node_bytes, "budget": asked.budget_bytes}
            found.append(Remark("over_budget", "error", values))
        elif ratio > 1.02:
            values = {"allocated": host.node_bytes, "budget": asked.budget_bytes, "ratio": ratio}
            found.append(Remark("budget_is_not_allocation", "warning", values))
    part = made.gpu
    short = part.entries_pool is not None and 0 < part.entries_pool < part.longest_request
    if role.engine != "vllm" and role.fixed_context is None and short:
        values = {"role": role.name, "tokens": part.longest}
        found.append(Remark("longest_short", "warning", values))
    measured = asked.log is not None and asked.log.value("pool_tokens") is not None
    if role.draft is not None and role.kv.context_ranks > 1 and not measured:
        found.append(Remark("draft_sharding", "note", {"draft": role.draft.name}))
    if (
        role.kv.draft_tokens
        and not measured
        and made.gpu.pool is not None
        and pages_of(asked.model, role.kv, role.draft) is not None
    ):
        fewer = replace(role.kv, resident_states=2 if role.kv.prefix_caching else 1)
        tokens = tokens_that_fit(asked.model, fewer, role.draft, made.gpu.pool, made.gpu.longest)
        values = {"kept": role.kv.states_kept, "other": fewer.states_kept, "tokens": tokens}
        found.append(Remark("resident_states", "note", values))
    found += _layout_remarks(asked, made)
    if role.kv_dtype == "auto" and role.engine != "llamacpp":
        found.append(Remark("kv_dtype_auto", "note", {"role": role.name}))
    return found


def _layout_remarks(asked: FitInput, made: RoleFit) -> list[Remark]:
    """Facts of the cache that are open, each with both values and the line that settles it."""
    role, model = made.role, asked.model
    found: list[Remark] = []
    sparse = sum(group.layers for group in model.attention if group.kind == "mla" and group.index_layers)
    if sparse and role.kv.element_bytes == 1:
        entry = sum(group.kv_rank + group.rope_dim for group in model.attention if group.index_layers)
        values: dict[str, object] = {"small": entry, "large": entry + SPARSE_ENTRY_MORE}
        found.append(Remark("sparse_entry", "note", values))
    found += _index_remarks(asked, made)
    compressed = any(group.kind == "compressed" for group in model.attention)
    if compressed and role.kv.context_ranks > 1:
        found.append(Remark("compressed_dcp", "note", {"role": role.name}))
    store = role.store
    stateful = any(group.keeps_state for group in model.attention)
    if store is not None and store.kind == "hicache" and store.buffer_bytes and stateful:
        twice = role.ranks_per_node * (store.rank_bytes + store.buffer_bytes)
        found.append(Remark("hicache_states", "note", {"allocated": twice, "role": role.name}))
    return found


def _index_remarks(asked: FitInput, made: RoleFit) -> list[Remark]:
    """Both readings of an index that layers share, and of a log the one that is nearer."""
    role, model, pool = made.role, asked.model, made.gpu.entries_pool
    own = sum(group.index_layers for group in model.attention)
    layers = sum(group.layers for group in model.attention if group.index_layers)
    if not own or own == layers or not any(group.kind == "mla" for group in model.attention):
        return []
    both = {every: replace(role.kv, index_everywhere=every) for every in (False, True)}
    values: dict[str, object] = {"own": own, "layers": layers, "role": role.name}
    for name, every in (("shared", False), ("whole", True)):
        values[f"{name}_bytes"] = token_bytes(model.attention, both[every])
    if pool is None:
        return [Remark("index_shared", "note", values | {"tokens": "—"})]
    counts = {
        every: tokens_that_fit(model, kv, role.draft, made.gpu.pool or 0.0, made.gpu.longest)
        for every, kv in both.items()
    }
    measured = asked.log.value("pool_tokens") if asked.log is not None else None
    if measured is None:
        return [Remark("index_shared", "note", values | {"tokens": counts[True]})]
    nearer = min(counts, key=lambda every: abs(counts[every] - measured))
    values |= {"tokens": measured, "shared": counts[False], "whole": counts[True]}
    return [Remark("index_is_whole" if nearer else "index_is_shared", "note", values)]


def _log_remarks(asked: FitInput, roles: list[RoleFit]) -> list[Remark]:
    """What a log settles: how the draft is sharded, and how far tokens were off."""
    log = asked.log
    found: list[Remark] = []
    if log is None:
        return found
    found += _remarks_of_ranks(log)
    for made in roles[:1]:
        role, pool, tokens = made.role, log.value("pool_bytes"), log.value("pool_tokens")
        if role.draft is None or role.kv.context_ranks == 1 or not pool or tokens is None:
            continue
        counts = {
            sharded: tokens_that_fit(
                asked.model, replace(role.kv, draft_sharded=sharded), role.draft, pool, made.gpu.longest
            )
            for sharded in (True, False)
        }
        nearer = min(counts, key=lambda sharded: abs(counts[sharded] - tokens))
        values: dict[str, object] = {"tokens": tokens, "sharded": counts[True], "whole": counts[False]}
        found.append(Remark("draft_is_sharded" if nearer else "draft_is_whole", "note", values))
    return found


def _remarks_of_ranks(log: StartupLog) -> list[Remark]:
    """Ranks that disagree, starts beside the last, tokens that were counted by blocks, blocks that were forced."""
    found = [
        Remark(
            f"ranks_differ_{spread.name}",
            "warning",
            {
                "least": spread.least.value, "most": spread.most.value, "ranks": spread.ranks,
                "least_rank": spread.least.rank, "most_rank": spread.most.rank,
            },
        )
        for spread in log.spreads
    ]  # fmt: skip
    if log.starts > 1:
        found.append(Remark("log_starts", "note", {"starts": log.starts}))
    counted = log.value("block_pool_tokens")
    if counted is not None:
        values: dict[str, object] = {"blocks": counted, "tokens": log.value("pool_tokens") or 0.0}
        found.append(Remark("log_counts_blocks", "note", values))
    forced = log.value("forced_blocks")
    if forced is not None:
        found.append(Remark("log_blocks_forced", "warning", {"blocks": forced}))
    return found


def _conflicts(asked: FitInput) -> list[Remark]:
    if asked.gpu is None:
        return []
    found = []
    for name in ("memory-bytes", "nic-gbit-per-s"):
        figures = asked.gpu.conflicts.get(name)
        if figures:
            said = "; ".join(
                f"{figure.value:,.0f} ({asked.gpu.sources.get(figure.origin.source, figure.origin.source)})"
                for figure in figures
            )
            found.append(Remark("conflict", "note", {"gpu": asked.gpu.name, "name": name, "said": said}))
    return found
