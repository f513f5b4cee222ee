"""Lines of host memory by scope, the pool, huge pages, registration, and the transfer between roles."""

from __future__ import annotations

from servemark.catalog.architecture import Attention
from servemark.sizing.host import RoleHost, transfer_seconds, usable_bytes
from servemark.sizing.inputs import FitInput, RoleInput
from servemark.sizing.kv import state_bytes, token_bytes, window_bytes
from servemark.sizing.lines import TIMES, Line, Tag
from servemark.sizing.needs import PAGE_2M, PAGE_4K, HostNeeds, chunks, host_needs

EFA_GBYTE_PER_S = (100.0, 400.0)
"""Slowest and fastest node rate taken for EFA: no source read states it."""


def role_host(role: RoleInput) -> RoleHost | None:
    """A role's host memory; None without a store."""
    if role.store is None:
        return None
    return RoleHost(role.store, role.workers, role.ranks_per_worker, role.ranks_per_node)


def host_lines(role: RoleInput, attention: tuple[Attention, ...]) -> tuple[Line, ...]:
    """Rank, worker, node, role; and the tokens of a tier that each rank fills with its own entries."""
    found = role_host(role)
    if found is None:
        return ()
    store = found.store
    lines: list[Line] = []
    for name, size, said, reader in (
        ("segment", store.segment_bytes, store.segment_text, store.reader),
        (
            "buffer" if store.kind == "mooncake" else "tier",
            store.buffer_bytes,
            store.buffer_text,
            store.buffer_reader,
        ),
    ):
        if size or (name == "segment" and store.kind == "mooncake"):
            tag: Tag = "assumed" if reader == "hicache-ratio" else "declared"
            formula: dict[str, object] = {"text": said, "reader": f"sizing.reader.{reader}"}
            lines.append(Line(name, "rank", size, "bytes", tag, formula, source=said))
    lines += [
        Line(
            "host_rank", "rank", store.rank_bytes, "bytes", "exact",
            {"segment": store.segment_bytes, "buffer": store.buffer_bytes},
        ),
        Line(
            "host_worker", "worker", found.worker_bytes, "bytes", "exact",
            {"ranks": found.ranks_per_worker, "rank": store.rank_bytes},
        ),
        Line(
            "host_node", "node", found.node_bytes, "bytes", "exact",
            {"ranks": found.ranks_per_node, "rank": store.rank_bytes},
        ),
        Line(
            "host_role", "role", found.role_bytes, "bytes", "exact",
            {"workers": found.workers, "worker": found.worker_bytes},
        ),
    ]  # fmt: skip
    if store.kind != "mooncake" and store.buffer_bytes:
        per_token = token_bytes(attention, role.kv) / role.kv.context_ranks
        if per_token:
            formula = {"size": store.buffer_bytes, "token": per_token}
            tokens = int(store.buffer_bytes / per_token)
            lines.append(Line("tier_tokens", "rank", tokens, "tokens", "assumed", formula))
    return tuple(lines)


def node_needs(role: RoleInput) -> HostNeeds | None:
    """What one node of a role must have for its store; None without one."""
    if role.store is None or role.store.kind != "mooncake":
        return None
    return host_needs(
        ranks=role.ranks_per_node,
        segment_bytes=role.store.segment_bytes,
        buffer_bytes=role.store.buffer_bytes,
        protocol=role.store.protocol,
    )


def pages_lines(role: RoleInput) -> tuple[Line, ...]:
    """Huge pages, locked memory, registration entries and chunks."""
    needs = node_needs(role)
    if needs is None:
        return ()
    segment, buffer = needs.segment_bytes_per_rank, needs.buffer_bytes_per_rank
    each = {"ranks": needs.ranks, "segment": segment // PAGE_2M, "buffer": buffer // PAGE_2M}
    lines = [
        Line("pages", "node", needs.pages, "count", "exact", dict(each)),
        Line(
            "pages_reserved", "node", needs.pages_reserved, "count", "assumed",
            {"pages": needs.pages, "bytes": needs.reserved_bytes}, margin=needs.pages_reserved - needs.pages,
        ),
    ]  # fmt: skip
    if not needs.registered:
        return tuple(lines)
    lines.append(
        Line(
            "memlock", "rank", needs.memlock_bytes_per_rank, "bytes", "exact",
            {"segment": segment, "buffer": buffer},
        )
    )  # fmt: skip
    for name, page in (("entries_4k", PAGE_4K), ("entries_2m", PAGE_2M)):
        found = needs.entries_4k_per_segment if page == PAGE_4K else needs.entries_2m_per_segment
        nic = needs.entries_4k_per_nic if page == PAGE_4K else needs.entries_2m_per_nic
        formula: dict[str, object] = {
            "segment": segment, "page": page, "nic": nic, "limit": needs.entry_limit or "—",
            "chunks": chunks(segment, page, needs.entry_limit),
        }  # fmt: skip
        lines.append(Line(name, "nic", found, "count", "exact", formula))
    if needs.entry_limit is not None:
        formula = {"entries": needs.entries_4k_per_segment, "limit": needs.entry_limit}
        lines.append(Line("chunks", "nic", needs.chunks_4k, "count", "exact", formula))
    return tuple(lines)


def shared_node_bytes(asked: FitInput) -> int:
    """Host memory of a node that every role has ranks on."""
    return sum(host.node_bytes for role in asked.roles if (host := role_host(role)) is not None)


def job_lines(asked: FitInput) -> tuple[Line, ...]:
    """The whole job's pool, the budget, and what a context's way between roles takes."""
    hosts = [(role, found) for role in asked.roles if (found := role_host(role)) is not None]
    lines: list[Line] = []
    if hosts:
        total = sum(host.role_bytes for _, host in hosts)
        lines.append(Line("host_job", "job", total, "bytes", "exact", {"roles": len(hosts)}))
        lines += _pool(asked, [(role, host) for role, host in hosts if host.store.shared])
    if asked.colocated and len(hosts) > 1:
        each = " + ".join(f"{host.node_bytes:,}" for _, host in hosts)
        both = shared_node_bytes(asked)
        lines.append(Line("host_node_shared", "node", both, "bytes", "assumed", {"terms": each}))
    if asked.node_dram_bytes is not None and hosts:
        source = {"source": asked.node_dram_source}
        lines.append(Line("node_dram", "node", asked.node_dram_bytes, "bytes", "declared", dict(source)))
    if asked.budget_bytes is not None:
        lines.append(
            Line("budget_node", "node", asked.budget_bytes, "bytes", "declared", asked.budget_formula)
        )
    return (*lines, *_transfer(asked))


def _pool(asked: FitInput, hosts: list[tuple[RoleInput, RoleHost]]) -> list[Line]:
    """The pool that the segments of all roles make; none where every rank keeps its tier to itself."""
    if not hosts:
        return []
    first = hosts[0][1].store
    pool = sum(host.pool_bytes for _, host in hosts)
    terms = " + ".join(
        f"{host.workers} {TIMES} {host.ranks_per_worker} {TIMES} {host.store.segment_bytes:,}"
        for _, host in hosts
    )
    before, after = usable_bytes(pool, first)
    return [
        Line("store_pool", "job", pool, "bytes", "exact", {"terms": terms}),
        Line(
            "store_usable", "job", before, "bytes", "declared" if first.watermark_stated else "assumed",
            {"pool": pool, "watermark": first.watermark, "eviction": first.eviction, "after": after},
        ),
        *_contexts(asked, hosts[0][0], before),
    ]  # fmt: skip


def worker_context_bytes(asked: FitInput, role: RoleInput) -> int:
    """Bytes of one context over all ranks of a worker's attention, without allocator padding.

    What is replicated over tensor parallel ranks counts once; states count on every rank, as each has its own heads.
    """
    kv, model = role.kv, asked.model
    replicated = any(group.kind in {"mla", "compressed"} for group in model.attention)
    ranks = 1 if replicated else kv.tp
    per_token = token_bytes(model.attention, kv) * ranks
    drafted = token_bytes(role.draft.attention, kv) * ranks if role.draft is not None else 0.0
    states = state_bytes(model.attention, kv) * kv.tp
    return int(asked.context * (per_token + drafted) + states + window_bytes(model.attention, kv) * ranks)


def _contexts(asked: FitInput, role: RoleInput, usable: int) -> list[Line]:
    """Contexts of the asked length that the usable pool holds."""
    size = worker_context_bytes(asked, role)
    formula: dict[str, object] = {"usable": usable, "context": asked.context, "bytes": size}
    return [Line("store_contexts", "job", usable // size if size else 0, "count", "exact", formula)]


def _transfer(asked: FitInput) -> list[Line]:
    prefill = next((role for role in asked.roles if role.name == "prefill"), None)
    if prefill is None or asked.transfer is None:
        return []
    size = worker_context_bytes(asked, prefill)
    formula: dict[str, object] = {"context": asked.context, "engine": asked.transfer}
    lines = [Line("transfer_bytes", "request", size, "bytes", "exact", formula)]
    rate = asked.gpu.first("nic-gbit-per-s") if asked.gpu is not None else None
    gpus = min(prefill.ranks_per_node, prefill.ranks_per_worker)
    if asked.transfer_efa or rate is None:
        slow, fast = EFA_GBYTE_PER_S
        longest, least = (transfer_seconds(size, each * 1e9) for each in (slow, fast))
        formula = {"bytes": size, "slow": slow, "fast": fast}
        middle, half = (longest + least) / 2, (longest - least) / 2
        return [*lines, Line("transfer_band", "request", middle, "seconds", "assumed", formula, margin=half)]
    formula = {"bytes": size, "gpus": gpus, "gbit": rate}
    seconds = transfer_seconds(size, gpus * rate * 1e9 / 8)
    return [*lines, Line("transfer", "request", seconds, "seconds", "declared", formula)]
