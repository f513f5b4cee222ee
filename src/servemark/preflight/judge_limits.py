"""Limits of the process and of the network's memory registration: memlock, cgroup, registration entries."""

from __future__ import annotations

from collections.abc import Iterator

from servemark.preflight.facts import PAGE_2M, HostFacts
from servemark.preflight.finding import Command, Finding, Saying, both, count, say, size
from servemark.preflight.judge_memory import allocates_with_thp
from servemark.preflight.needs import Needs, StoreNeed
from servemark.sizing.needs import EFA_ENTRIES, PAGE_4K

PINNING = ("efa", "rdma", "verbs", "ucx", "libfabric", "barex")
"""Transports that pin what they register."""


def judge_limits(facts: HostFacts, needs: Needs | None) -> Iterator[Finding]:
    """Findings in the order in which they are read."""
    yield _memlock(facts, needs)
    yield _cgroup(facts, needs)
    if needs is not None and needs.store is not None:
        yield _registration(facts, needs.store)


def _memlock(facts: HostFacts, needs: Needs | None) -> Finding:
    limits = facts.limits
    plain: dict[str, object] = {
        "known": limits.memlock_known,
        "unlimited": limits.memlock_known and limits.memlock_bytes is None,
        "bytes": limits.memlock_bytes,
        "exempt": limits.memlock_exempt,
    }
    if not limits.memlock_known:
        return Finding("memlock", "unknown", say("preflight.memlock.none"), facts=plain)
    unlimited = limits.memlock_bytes is None
    found: Saying = (
        say("preflight.memlock.unlimited")
        if unlimited
        else say("preflight.memlock.found", limit=size(limits.memlock_bytes))
    )
    store = needs.store if needs is not None else None
    if needs is None or not set(needs.protocols) & set(PINNING):
        return Finding("memlock", "none", found, facts=plain)
    bytes_ = store.rank_bytes if store is not None and store.protocol in PINNING else None
    need = (
        say("preflight.memlock.need", rank=both(bytes_))
        if bytes_ is not None
        else say("preflight.memlock.need_some")
    )
    if unlimited or (bytes_ is not None and (limits.memlock_bytes or 0) >= bytes_):
        return Finding("memlock", "ok", found, need, facts=plain)
    if limits.memlock_exempt:
        return Finding("memlock", "ok", found, need, (say("preflight.memlock.exempt"),), (), plain)
    file = "/etc/security/limits.d/90-memlock.conf"
    line = f"printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' | sudo tee {file}"
    commands = (Command(line), Command("srun --propagate=MEMLOCK bash -c 'ulimit -l'", "unlimited"))
    return Finding("memlock", "fail", found, need, (say("preflight.memlock.short"),), commands, plain)


def _cgroup(facts: HostFacts, needs: Needs | None) -> Finding:
    limits = facts.limits
    plain: dict[str, object] = {
        "version": limits.version,
        "memory_limit_bytes": limits.memory_limit_bytes,
        "memory_used_bytes": limits.memory_used_bytes,
        "hugetlb_2m_limit_bytes": limits.hugetlb_2m_limit_bytes,
        "memory_nodes": limits.memory_nodes,
    }
    if limits.version is None:
        return Finding("cgroup", "unknown", say("preflight.cgroup.none"), facts=plain)
    if limits.memory_limit_bytes is None:
        found = say("preflight.cgroup.unlimited", version=limits.version, nodes=limits.memory_nodes or "?")
    else:
        found = say(
            "preflight.cgroup.found",
            version=limits.version,
            limit=size(limits.memory_limit_bytes),
            used=size(limits.memory_used_bytes),
            nodes=limits.memory_nodes or "?",
        )
    store = needs.store if needs is not None else None
    if store is None:
        return Finding("cgroup", "none", found, facts=plain)
    huge = store.huge == "hugetlb"
    need = say("preflight.cgroup.need", node=both(store.node_bytes))
    # hugetlb pages are not charged to the memory controller, but to the hugetlb one.
    room = limits.hugetlb_2m_limit_bytes if huge else limits.room_bytes
    if room is not None and room < store.node_bytes:
        key = "preflight.cgroup.hugetlb" if huge else "preflight.cgroup.short"
        commands = () if huge else (Command("srun --mem=0 …"),)
        return Finding("cgroup", "fail", found, need, (say(key, room=size(room)),), commands, plain)
    return Finding("cgroup", "ok", found, need, facts=plain)


def _registration(facts: HostFacts, store: StoreNeed) -> Finding:
    small, large = store.entries(PAGE_4K), store.entries(PAGE_2M)
    found = say(
        "preflight.registration.found",
        small=count(small),
        large=count(large),
        segment=size(store.segment_bytes),
    )
    plain: dict[str, object] = {
        "entries_4k": small,
        "entries_2m": large,
        "chunks_4k": store.chunks(PAGE_4K),
        "chunks_2m": store.chunks(PAGE_2M),
        "budget": EFA_ENTRIES,
    }
    if store.protocol != "efa":
        return Finding("registration", "none", found, facts=plain)
    need = say("preflight.registration.need", budget=count(EFA_ENTRIES), reach=size(EFA_ENTRIES * PAGE_4K))
    if small <= EFA_ENTRIES or store.huge == "hugetlb":
        return Finding("registration", "ok", found, need, facts=plain)
    itself = allocates_with_thp(facts)
    split = say("preflight.registration.split", chunks=store.chunks(PAGE_4K))
    if itself:
        # The same library also plans its entries by what is really backed by huge pages.
        return Finding("registration", "ok", found, need, (say("preflight.registration.thp"),), (), plain)
    if itself is None:
        why = (say("preflight.registration.unread"), split)
        return Finding("registration", "unknown", found, need, why, (), plain)
    return Finding("registration", "warn", found, need, (split,), (), plain)
