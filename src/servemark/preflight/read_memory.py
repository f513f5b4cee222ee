"""Memory facts from /proc and /sys: sizes, NUMA nodes, huge pages, free blocks, THP, memlock and cgroup limits."""

from __future__ import annotations

import os
import re

from servemark.preflight.facts import KIB, Limits, Memory, NumaNode, Pool, Thp, Zone
from servemark.preflight.root import HostRoot, chosen, integer, table

THP = "/sys/kernel/mm/transparent_hugepage"
HUGE = "/sys/kernel/mm/hugepages"
NODES = "/sys/devices/system/node"
COUNTERS = (
    "thp_fault_alloc",
    "thp_fault_fallback",
    "thp_collapse_alloc",
    "compact_stall",
    "compact_success",
    "compact_fail",
)
NO_LIMIT = 1 << 60
"""cgroup v1 writes 2^63 less a page for `no limit`."""
CAP_IPC_LOCK = 14


def read_memory(root: HostRoot) -> Memory:
    """All of it; None and () for what a host does not show."""
    info = table(root.text("/proc/meminfo"))
    nodes = _node_numbers(root)
    pools = _pools(root, HUGE, None)
    for number in nodes:
        pools += _pools(root, f"{NODES}/node{number}/hugepages", number)
    return Memory(
        page_bytes=os.sysconf("SC_PAGE_SIZE") if root.live else 4 * KIB,
        total_bytes=info.get("MemTotal"),
        free_bytes=info.get("MemFree"),
        available_bytes=info.get("MemAvailable"),
        swap_bytes=info.get("SwapTotal"),
        nodes=tuple(_node(root, number) for number in nodes),
        pools=tuple(pools),
        zones=zones_of(root.text("/proc/buddyinfo")),
        thp=read_thp(root),
    )


def read_thp(root: HostRoot) -> Thp:
    """Modes and counters of transparent huge pages."""
    counters = table(root.text("/proc/vmstat"))
    return Thp(
        enabled=chosen(root.line(f"{THP}/enabled")),
        defrag=chosen(root.line(f"{THP}/defrag")),
        page_bytes=root.number(f"{THP}/hpage_pmd_size"),
        counters={name: counters[name] for name in COUNTERS if name in counters},
    )


def zones_of(text: str | None) -> tuple[Zone, ...]:
    """Zones of /proc/buddyinfo; lines that do not fit are left out."""
    found = []
    for line in (text or "").splitlines():
        match = re.match(r"Node\s+(\d{1,6}), zone\s+(\S+)\s+([\d\s]+)\Z", line)
        if match is not None:
            free = tuple(int(n) for n in match.group(3).split() if len(n) < 19)
            found.append(Zone(int(match.group(1)), match.group(2), free))
    return tuple(found)


def _node_numbers(root: HostRoot) -> list[int]:
    names = (re.fullmatch(r"node(\d{1,6})", name) for name in root.names(NODES))
    return [int(match.group(1)) for match in names if match is not None]


def _node(root: HostRoot, number: int) -> NumaNode:
    # Lines read "Node 0 MemTotal:  24683652 kB": the first two words are cut off.
    text = root.text(f"{NODES}/node{number}/meminfo") or ""
    info = table("\n".join(re.sub(r"^Node\s+\d+\s+", "", line) for line in text.splitlines()))
    return NumaNode(
        number, info.get("MemTotal"), info.get("MemFree"), root.line(f"{NODES}/node{number}/cpulist")
    )


def _pools(root: HostRoot, where: str, node: int | None) -> list[Pool]:
    found = []
    for name in root.names(where):
        match = re.fullmatch(r"hugepages-(\d{1,12})kB", name)
        total = root.number(f"{where}/{name}/nr_hugepages")
        free = root.number(f"{where}/{name}/free_hugepages")
        if match is not None and total is not None and free is not None:
            reserved = root.number(f"{where}/{name}/resv_hugepages")
            found.append(Pool(int(match.group(1)) * KIB, node, total, free, reserved))
    return found


def read_limits(root: HostRoot) -> Limits:
    """memlock of this process and what its cgroup allows, all levels considered."""
    known, memlock = _memlock(root)
    paths = _cgroup_paths(root)
    version, limit, used = _memory_limit(root, paths)
    v1 = version == 1
    huge = [
        root.number(f"{folder}/hugetlb.2MB.{'limit_in_bytes' if v1 else 'max'}")
        for folder in _levels("hugetlb", paths)
    ]
    bounded = [value for value in huge if value is not None and value < NO_LIMIT]
    status = root.text("/proc/self/status") or ""
    return Limits(
        memlock_known=known,
        memlock_bytes=memlock,
        memlock_exempt=_capable(status, CAP_IPC_LOCK),
        version=version,
        memory_limit_bytes=limit,
        memory_used_bytes=used,
        hugetlb_2m_limit_bytes=min(bounded, default=None),
        memory_nodes=_field(status, "Mems_allowed_list"),
    )


def _memlock(root: HostRoot) -> tuple[bool, int | None]:
    """(known, soft limit in bytes; None for unlimited)."""
    for line in (root.text("/proc/self/limits") or "").splitlines():
        match = re.match(r"Max locked memory\s+(\S+)", line)
        if match is not None:
            soft = match.group(1)
            return (True, None) if soft == "unlimited" else (integer(soft) is not None, integer(soft))
    return False, None


def _field(status: str, name: str) -> str | None:
    for line in status.splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return None


def _capable(status: str, bit: int) -> bool | None:
    mask = _field(status, "CapEff")
    if mask is None or not re.fullmatch(r"[0-9a-fA-F]{1,16}", mask):
        return None
    return bool(int(mask, 16) >> bit & 1)


def _cgroup_paths(root: HostRoot) -> dict[str, str]:
    """Controller -> path from /proc/self/cgroup; `` stands for cgroup v2."""
    found: dict[str, str] = {}
    for line in (root.text("/proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/") and ".." not in parts[2].split("/"):
            for controller in parts[1].split(","):
                found[controller] = parts[2]
    return found


def _levels(controller: str, paths: dict[str, str]) -> list[str]:
    """Folders of a controller from this process's group up to the root.

    A container often sees its own group as the root of the mount, so every level that exists is looked at.
    """
    v1 = controller in paths
    path = paths.get(controller, paths.get("", "/"))
    bases = [f"/sys/fs/cgroup/{controller}"] if v1 else ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
    parts = [part for part in path.split("/") if part]
    levels = ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]
    return [f"{base}/{level}".rstrip("/") for base in bases for level in levels]


def _memory_limit(root: HostRoot, paths: dict[str, str]) -> tuple[int | None, int | None, int | None]:
    """(cgroup version, tightest limit, what is used at that level)."""
    v1 = "memory" in paths
    names = ("limit_in_bytes", "usage_in_bytes") if v1 else ("max", "current")
    version: int | None = None
    tightest: tuple[int, int | None] | None = None
    for folder in _levels("memory", paths):
        limit_text = root.line(f"{folder}/memory.{names[0]}")
        if limit_text is None:
            continue
        version = 1 if v1 else 2
        limit = integer(limit_text)
        if limit is None or limit >= NO_LIMIT:
            continue
        used = _working_set(root, folder, names[1])
        if tightest is None or limit - (used or 0) < tightest[0] - (tightest[1] or 0):
            tightest = (limit, used)
    if version is None and paths.keys() >= {""} and not v1 and root.line("/sys/fs/cgroup/cgroup.controllers"):
        version = 2
    return version, *(tightest or (None, None))


def _working_set(root: HostRoot, folder: str, name: str) -> int | None:
    """Bytes in use that the kernel cannot simply drop: usage less file pages that nobody touched lately."""
    used = root.number(f"{folder}/memory.{name}")
    stat = table(root.text(f"{folder}/memory.stat"))
    idle = stat.get("total_inactive_file", stat.get("inactive_file", 0))
    return max(0, used - idle) if used is not None else None
