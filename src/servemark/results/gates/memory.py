"""Gates on host memory for KV: what was recorded, configured, reported by the server, and possible. Bytes throughout."""

from __future__ import annotations

from servemark.results.gates.base import Context, Gate, GateFinding, Severity
from servemark.results.gates.read import passed, percent, plain, role_gpus, short, skips
from servemark.results.point import Memory, Point

DRAM_TOLERANCE = 0.02
"""Below the gap between GB and GiB (7.4 %) and between neighbouring page roundings of published recipes."""
GIB_PER_GB = 2**30 / 1e9

_SCOPE_SKIP = skips("dram_scope", "no_two_memory_figures")[0]
_SCOPE_OK = passed("dram_scope")


def _near(ratio: float, wanted: float) -> bool:
    return abs(ratio / wanted - 1) <= DRAM_TOLERANCE


def _pairs(memory: Memory) -> list[tuple[str, int, str, int]]:
    """The figures that are above zero, two at a time."""
    named = (
        ("allocated_bytes", memory.allocated_bytes),
        ("reported_bytes", memory.reported_bytes),
        ("configured_bytes", memory.configured_bytes),
    )
    known = [(name, value) for name, value in named if value is not None and value > 0]
    return [(*one, *two) for at, one in enumerate(known) for two in known[at + 1 :]]


def _ranks(point: Point) -> list[int]:
    """Numbers of ranks by which a per-rank and a wider figure may differ, the most likely first: ranks of a node where
    somebody says, of a worker, of a role, of the deployment."""
    found: list[int] = []
    said = plain(point.observed.get("ranks_per_node"))
    if said is not None and said > 1:
        found.append(int(said))
    for role in point.identity.topology:
        found += [count for count in (role.gpus, role.tp, role_gpus(role)) if count is not None and count > 1]
    found += [count for count in (point.gpus_deployed,) if count is not None and count > 1]
    return list(dict.fromkeys(found))


def dram_scope(point: Point, _context: Context) -> GateFinding:
    """No two memory figures of one point differ by the number of ranks, or by GB against GiB, or both: then one is of a
    rank and was recorded as a node's, or a size string was read with the wrong unit."""
    if point.memory is None:
        return _SCOPE_SKIP
    pairs = _pairs(point.memory)
    if not pairs:
        return _SCOPE_SKIP
    ranks = _ranks(point)
    for one, one_bytes, two, two_bytes in pairs:
        ratio = max(one_bytes, two_bytes) / min(one_bytes, two_bytes)
        for factor in (*ranks, 1):
            for unit in (1.0, GIB_PER_GB, 1 / GIB_PER_GB):
                if factor * unit > 1.0 and not _near(1.0, ratio) and _near(ratio, factor * unit):
                    small, large = ((one, one_bytes), (two, two_bytes))
                    if small[1] > large[1]:
                        small, large = large, small
                    values: dict[str, object] = {
                        "small": small[0],
                        "small_gb": short(small[1] / 1e9),
                        "large": large[0],
                        "large_gb": short(large[1] / 1e9),
                        "ratio": short(ratio),
                        "ranks": factor,
                        "unit": "GiB/GB" if unit != 1.0 else "—",
                        "scope": point.memory.scope or "—",
                    }
                    return GateFinding("dram_scope", Severity.WARNING, values)
    return _SCOPE_OK


_REPORTED_SKIP = skips("dram_reported", "no_server_report")[0]
_REPORTED_OK = passed("dram_reported")


def dram_reported(point: Point, _context: Context) -> GateFinding:
    """What the server reports it allocated is what was recorded, and not more than the configured budget. Less than the
    budget is sound: a budget is no allocation."""
    memory = point.memory
    if memory is None or not memory.reported_bytes or memory.reported_bytes < 0:
        return _REPORTED_SKIP
    reported, recorded, budget = memory.reported_bytes, memory.allocated_bytes, memory.configured_bytes
    if recorded is None and budget is None:
        return _REPORTED_SKIP
    off = recorded is not None and abs(recorded / reported - 1) > DRAM_TOLERANCE
    over = budget is not None and reported > budget * (1 + DRAM_TOLERANCE)
    if not off and not over:
        return _REPORTED_OK
    values: dict[str, object] = {
        "reported_gb": short(reported / 1e9),
        "recorded_gb": "—" if recorded is None else short(recorded / 1e9),
        "configured_gb": "—" if budget is None else short(budget / 1e9),
        "tolerance_percent": percent(DRAM_TOLERANCE),
        "scope": memory.scope or "—",
    }
    return GateFinding("dram_reported", Severity.WARNING, values)


_CAPACITY_SKIP = skips("dram_capacity", "no_capacity")[0]
_CAPACITY_OK = passed("dram_capacity")


def dram_capacity(point: Point, _context: Context) -> GateFinding:
    """Nothing allocated or reported is more than the host has."""
    memory = point.memory
    if memory is None or not memory.capacity_bytes or memory.capacity_bytes < 0:
        return _CAPACITY_SKIP
    used = max(memory.allocated_bytes or 0, memory.reported_bytes or 0)
    if not used:
        return _CAPACITY_SKIP
    if used <= memory.capacity_bytes:
        return _CAPACITY_OK
    values: dict[str, object] = {
        "used_gb": short(used / 1e9),
        "capacity_gb": short(memory.capacity_bytes / 1e9),
        "scope": memory.scope or "—",
    }
    return GateFinding("dram_capacity", Severity.QUARANTINE, values)


GATES = (
    Gate(
        "dram_scope",
        1,
        dram_scope,
        DRAM_TOLERANCE,
        "below the gap between GB and GiB, 7.4 %",
        idle=("memory", _SCOPE_SKIP),
    ),
    Gate(
        "dram_reported",
        1,
        dram_reported,
        DRAM_TOLERANCE,
        "below the gap between GB and GiB, 7.4 %",
        idle=("memory", _REPORTED_SKIP),
    ),
    Gate(
        "dram_capacity",
        1,
        dram_capacity,
        0.0,
        "a host has no more memory than it has",
        idle=("memory", _CAPACITY_SKIP),
    ),
)
"""The family in the order of its tables."""
