"""Memory facts against an arm's needs: sizes, NUMA, huge pages, THP, free blocks, compaction."""

from __future__ import annotations

from collections.abc import Iterator

from servemark.preflight.facts import GIB, PAGE_2M, HostFacts, Memory, Mooncake, Pool
from servemark.preflight.finding import Command, Finding, Saying, Verdict, both, count, say, size
from servemark.preflight.needs import Needs, StoreNeed

MANY_STALLS = 1000
MOSTLY = 0.5


def judge_memory(facts: HostFacts, needs: Needs | None) -> Iterator[Finding]:
    """Findings in the order in which they are read."""
    store = needs.store if needs is not None else None
    yield _memory(facts, needs, store)
    yield _numa(facts.memory, store)
    yield _pools(facts.memory, store)
    yield _thp(facts, store)
    yield _blocks(facts.memory, store)
    yield _compaction(facts.memory)


def _memory(facts: HostFacts, needs: Needs | None, store: StoreNeed | None) -> Finding:
    memory = facts.memory
    found = say(
        "preflight.memory.found",
        total=size(memory.total_bytes),
        available=size(memory.available_bytes),
        swap=size(memory.swap_bytes),
    )
    verdict: Verdict = "none"
    why: list[Saying] = []
    need = None
    if store is not None:
        need = _store_need(store)
        verdict = "ok"
        pool = memory.pool(store.huge_page_bytes)
        held = pool.free * pool.page_bytes if pool is not None and store.huge == "hugetlb" else 0
        there = memory.available_bytes + held if memory.available_bytes is not None else None
        if there is None:
            verdict = "unknown"
        elif store.node_bytes > there:
            verdict = "fail"
            why.append(say("preflight.memory.short", missing=both(store.node_bytes - there)))
            fitting = int(0.9 * there) // store.ranks - store.buffer_bytes
            if fitting >= GIB:
                why.append(say("preflight.memory.fits", segment=size(fitting // GIB * GIB)))
        elif store.node_bytes > 0.9 * there:
            verdict = "warn"
            why.append(say("preflight.memory.tight", share=f"{store.node_bytes / there:.0%}"))
    budget = needs.host_budget_bytes if needs is not None else None
    if budget is not None and memory.total_bytes is not None and budget > memory.total_bytes:
        verdict = "warn" if verdict in {"ok", "none"} else verdict
        why.append(say("preflight.memory.budget", stated=size(budget), total=size(memory.total_bytes)))
    plain: dict[str, object] = {
        "total_bytes": memory.total_bytes,
        "available_bytes": memory.available_bytes,
        "swap_bytes": memory.swap_bytes,
        "needs_node_bytes": store.node_bytes if store is not None else None,
    }
    return Finding("memory", verdict, found, need, tuple(why), (), plain)


def _store_need(store: StoreNeed) -> Saying:
    return say(
        "preflight.memory.need",
        node=both(store.node_bytes),
        ranks=store.ranks,
        segment=size(store.segment_bytes),
        buffer=size(store.buffer_bytes),
    )


def _numa(memory: Memory, store: StoreNeed | None) -> Finding:
    listed = [
        say(
            "preflight.numa.node",
            node=node.number,
            total=size(node.total_bytes),
            free=size(node.free_bytes),
            cpus=node.cpus or "—",
        )
        for node in memory.nodes
    ]
    plain: dict[str, object] = {
        "nodes": len(memory.nodes),
        "total_bytes": [node.total_bytes for node in memory.nodes],
        "free_bytes": [node.free_bytes for node in memory.nodes],
    }
    if not listed:
        return Finding("numa", "unknown", say("preflight.numa.none"), facts=plain)
    found = say("preflight.numa.found", nodes=listed)
    holding = [node for node in memory.nodes if node.total_bytes]
    if store is None or len(holding) < 2:
        return Finding("numa", "none", found, facts=plain)
    share = store.node_bytes // len(holding)
    need = say("preflight.numa.need", share=both(share), nodes=len(holding))
    short = [node.number for node in holding if (node.total_bytes or 0) < share]
    if short:
        why = (say("preflight.numa.uneven", nodes=short),)
        return Finding("numa", "warn", found, need, why, facts=plain)
    return Finding("numa", "ok", found, need, facts=plain)


def _pools(memory: Memory, store: StoreNeed | None) -> Finding:
    plain: dict[str, object] = {
        f"{pool.page_bytes // 1024}kB{'' if pool.node is None else f'/node{pool.node}'}": {
            "total": pool.total,
            "free": pool.free,
        }
        for pool in memory.pools
    }
    hosts = [pool for pool in memory.pools if pool.node is None]
    if not hosts:
        verdict: Verdict = "fail" if store is not None and store.huge == "hugetlb" else "unknown"
        return Finding("huge_pages", verdict, say("preflight.huge_pages.none"), facts=plain)
    found = say("preflight.huge_pages.found", pools=[_pool_said(memory, pool) for pool in hosts])
    if store is None or store.huge != "hugetlb":
        return Finding("huge_pages", "none", found, facts=plain)
    need = say(
        "preflight.huge_pages.need",
        reserve=count(store.reserve_pages),
        page=size(store.huge_page_bytes),
        formula=page_formula(store),
        headroom=f"{store.reserve_pages / max(store.pages, 1) - 1:.1%}",
    )
    plain |= {"needs_pages": store.pages, "needs_reserved": store.reserve_pages}
    pool = memory.pool(store.huge_page_bytes)
    usable = pool.usable if pool is not None else 0
    if usable >= store.reserve_pages:
        return Finding("huge_pages", "ok", found, need, facts=plain)
    # Pages that others hold stay theirs: the whole pool has to grow by what is missing.
    total = (pool.total if pool is not None else 0) + store.reserve_pages - usable
    enough = usable >= store.pages
    why = say("preflight.huge_pages.tight" if enough else "preflight.huge_pages.short", usable=count(usable))
    return Finding(
        "huge_pages",
        "warn" if enough else "fail",
        found,
        need,
        (why, say("preflight.huge_pages.granted")),
        reserve_commands(memory, store.huge_page_bytes, total),
        plain,
    )


def page_formula(store: StoreNeed) -> str:
    """The store's pages with its numbers: `8 x (97,280 + 2,048) = 794,624`."""
    page = store.huge_page_bytes
    segment, buffer = -(-store.segment_bytes // page), -(-store.buffer_bytes // page)
    return f"{store.ranks} x ({segment:,} + {buffer:,}) = {store.pages:,}"


def _pool_said(memory: Memory, pool: Pool) -> Saying:
    nodes = memory.node_pools(pool.page_bytes)
    where = (
        " + ".join(f"node{one.node} {one.free:,}" for one in nodes) if len(nodes) > 1 and pool.total else ""
    )
    return say(
        "preflight.huge_pages.pool",
        page=size(pool.page_bytes),
        total=count(pool.total),
        free=count(pool.usable),
        where=f" ({where})" if where else "",
    )


def reserve_commands(memory: Memory, page_bytes: int, pages: int) -> tuple[Command, ...]:
    """Reserve a pool and read it back. Memory is compacted first, since only whole blocks can be taken.

    None at all where the host has less memory than that: no command mends it.
    """
    if memory.total_bytes is not None and pages * page_bytes > memory.total_bytes:
        return ()
    if page_bytes == PAGE_2M:
        take = f"sudo sysctl -w vm.nr_hugepages={pages} && cat /proc/sys/vm/nr_hugepages"
    else:
        knob = f"/sys/kernel/mm/hugepages/hugepages-{page_bytes // 1024}kB/nr_hugepages"
        take = f"echo {pages} | sudo tee {knob} && cat {knob}"
    commands = [Command("echo 1 | sudo tee /proc/sys/vm/compact_memory"), Command(take, str(pages))]
    if len(memory.nodes) > 1:
        knobs = f"/sys/devices/system/node/node*/hugepages/hugepages-{page_bytes // 1024}kB/nr_hugepages"
        commands.append(Command(f"grep . {knobs}"))
    return tuple(commands)


def allocates_with_thp(facts: HostFacts) -> bool | None:
    """Whether the installed Mooncake allocates segments with transparent huge pages by itself; None: cannot tell."""
    answers = {one.thp_path for one in facts.mooncake}
    return answers.pop() if len(answers) == 1 else None


def _thp(facts: HostFacts, store: StoreNeed | None) -> Finding:
    thp = facts.memory.thp
    plain: dict[str, object] = {"enabled": thp.enabled, "defrag": thp.defrag, "page_bytes": thp.page_bytes}
    if thp.enabled is None:
        return Finding("thp", "unknown", say("preflight.thp.none"), facts=plain)
    found = say(
        "preflight.thp.found", enabled=thp.enabled, defrag=thp.defrag or "?", page=size(thp.page_bytes)
    )
    if store is None or store.huge == "hugetlb":
        return Finding("thp", "none", found, facts=plain)
    need = say("preflight.thp.need")
    if thp.enabled == "never":
        knob = "/sys/kernel/mm/transparent_hugepage/enabled"
        command = Command(f"echo madvise | sudo tee {knob} && cat {knob}", "always [madvise] never")
        return Finding("thp", "fail", found, need, (say("preflight.thp.never"),), (command,), plain)
    if thp.enabled == "madvise" and store.huge == "plain" and allocates_with_thp(facts) is False:
        return Finding("thp", "warn", found, need, (say("preflight.thp.unasked"),), (), plain)
    return Finding("thp", "ok", found, need, facts=plain)


def _blocks(memory: Memory, store: StoreNeed | None) -> Finding:
    page = memory.page_bytes
    zones = {f"node{zone.node}/{zone.name}": zone.blocks_2m(page) for zone in memory.zones}
    agree = memory.blocks_agree()
    total = sum(zones.values())
    plain: dict[str, object] = {"zones": dict(zones), "total": total if agree else None}
    if agree is None:
        return Finding("blocks", "unknown", say("preflight.blocks.none"), facts=plain)
    listed = [f"{name} {blocks:,}" for name, blocks in zones.items() if blocks]
    found = say(
        "preflight.blocks.found",
        total=count(total),
        bytes=size(total * PAGE_2M),
        zones=", ".join(listed) or "—",
    )
    if not agree:
        summed = sum(zone.pages() for zone in memory.zones) * page
        why = say("preflight.blocks.differ", summed=size(summed), free=size(memory.free_bytes))
        waiting = _waiting(memory)
        if waiting and abs((memory.free_bytes or 0) - summed - waiting) < GIB:
            why = say("preflight.blocks.waiting", waiting=size(waiting))
        return Finding("blocks", "unknown", found, None, (why,), (), plain)
    if store is None:
        return Finding("blocks", "none", found, facts=plain)
    pages = -(-store.node_bytes // PAGE_2M)
    pool = memory.pool(PAGE_2M)
    if store.huge == "hugetlb" and pool is not None:
        pages = max(0, store.reserve_pages * store.huge_page_bytes // PAGE_2M - pool.usable)
    need = say("preflight.blocks.need", pages=count(pages), bytes=size(pages * PAGE_2M))
    if total >= pages:
        return Finding("blocks", "ok", found, need, facts=plain)
    why = say("preflight.blocks.short", share=f"{total / pages:.0%}")
    commands = (
        Command("sync && echo 3 | sudo tee /proc/sys/vm/drop_caches"),
        Command("echo 1 | sudo tee /proc/sys/vm/compact_memory"),
        Command("cat /proc/buddyinfo"),
    )
    return Finding("blocks", "warn", found, need, (why,), commands, plain)


def _waiting(memory: Memory) -> int | None:
    """Memory that counts as free but was not handed to any NUMA node yet, as some virtual machines start; bytes."""
    totals = [node.total_bytes for node in memory.nodes if node.total_bytes is not None]
    if memory.total_bytes is None or not totals:
        return None
    return max(0, memory.total_bytes - sum(totals))


def _compaction(memory: Memory) -> Finding:
    counters = memory.thp.counters
    plain: dict[str, object] = dict(counters)
    if "compact_stall" not in counters:
        return Finding("compaction", "unknown", say("preflight.compaction.none"), facts=plain)
    success, failed = counters.get("compact_success", 0), counters.get("compact_fail", 0)
    alloc, fallback = counters.get("thp_fault_alloc", 0), counters.get("thp_fault_fallback", 0)
    found = say(
        "preflight.compaction.found",
        stalls=count(counters["compact_stall"]),
        success=count(success),
        failed=count(failed),
        alloc=count(alloc),
        fallback=count(fallback),
    )
    why = []
    if counters["compact_stall"] >= MANY_STALLS and failed > MOSTLY * (failed + success):
        why.append(say("preflight.compaction.failing", share=f"{failed / (failed + success):.0%}"))
    if alloc + fallback >= MANY_STALLS and fallback > 0.1 * (alloc + fallback):
        why.append(say("preflight.compaction.fallback", share=f"{fallback / (alloc + fallback):.0%}"))
    commands = (Command("echo 1 | sudo tee /proc/sys/vm/compact_memory"), Command("cat /proc/buddyinfo"))
    if why:
        return Finding("compaction", "warn", found, None, tuple(why), commands, plain)
    return Finding("compaction", "none", found, facts=plain)


def mooncake_finding(facts: HostFacts, store: StoreNeed | None) -> Finding:
    """Which Mooncake is installed, and whether it allocates with huge pages by itself."""
    plain: dict[str, object] = {
        "packages": {one.package: one.version for one in facts.mooncake},
        "thp_path": allocates_with_thp(facts),
    }
    if not facts.mooncake:
        verdict: Verdict = "none" if store is None else "unknown"
        inside = () if store is None else (say("preflight.mooncake.inside"),)
        return Finding("mooncake", verdict, say("preflight.mooncake.none"), None, inside, (), plain)
    found = say("preflight.mooncake.found", packages=[_package(one) for one in facts.mooncake])
    if store is None:
        return Finding("mooncake", "none", found, facts=plain)
    need = say("preflight.mooncake.need")
    if store.huge == "hugetlb" or allocates_with_thp(facts):
        return Finding("mooncake", "ok", found, need, facts=plain)
    if allocates_with_thp(facts) is None:
        return Finding("mooncake", "unknown", found, need, (say("preflight.mooncake.unread"),), (), plain)
    why = (
        say(f"preflight.mooncake.{'malloc' if store.huge == 'malloc-thp' else 'plain'}"),
        say("preflight.mooncake.reserve", pages=count(store.reserve_pages), formula=page_formula(store)),
    )
    pool = facts.memory.pool(PAGE_2M)
    total = store.reserve_pages - (pool.usable if pool else 0) + (pool.total if pool else 0)
    commands = reserve_commands(facts.memory, PAGE_2M, max(total, 0)) if store.node_bytes >= GIB else ()
    return Finding("mooncake", "warn", found, need, why, commands, plain)


def _package(one: Mooncake) -> Saying:
    state = {True: "by_itself", False: "not_by_itself", None: "unread_library"}[one.thp_path]
    return say(f"preflight.mooncake.{state}", package=one.package, version=one.version)
