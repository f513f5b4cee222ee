"""Host memory that a recipe takes, per rank and per node, and what a master entry records of it. Exact integers.

Recorded: floor(min(node MiB, 2,861,022) x 2^20 x utilization x GPUs of one prefill worker on a node / GPUs of a
node / 10^9), a budget in decimal GB (the reference suite's rule). Taken: what each rank allocates, by the rules of
the program that reads the number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from servemark.catalog.arms import Arm, SearchEntry
from servemark.catalog.clusters import Hardware
from servemark.catalog.deployment import Deployment, RoleSpec
from servemark.catalog.nodes import Position
from servemark.checks.view import flag_at, store_at, store_of

CAP_MIB = 2_861_022
"""The suite's own limit on a node's host memory, applied before utilization: 2,999,999,004,672 bytes."""
MIB, GIB, GB = 2**20, 2**30, 10**9
HUGE_PAGE = 2 * MIB


@dataclass(frozen=True, slots=True)
class Taken:
    """What the ranks of one role take. `segment` is the usable pool, `buffer` what is pinned beside it."""

    reader: str
    """Whose rules read the number: `mooncake`, `hicache`, `vllm-simple` or `native`."""
    written: str
    role: RoleSpec
    segment: int
    """Bytes per rank."""
    buffer: int
    """Bytes per rank."""
    at: Position

    def ranks_on_node(self, per_node: int) -> int:
        """Ranks of one worker on one of its nodes."""
        return min(self.role.gpus, per_node) or 1

    def workers_on_node(self, per_node: int) -> int:
        """Workers of the role that share a node: as many as its nodes are booked for."""
        if self.role.gpus >= per_node or not self.role.nodes:
            return 1
        return max(1, math.ceil(self.role.workers / self.role.nodes))

    def capacity(self, per_node: int) -> int:
        """Usable bytes of one worker on one node."""
        return self.segment * self.ranks_on_node(per_node)

    def allocated(self, per_node: int) -> int:
        """All bytes of one worker on one node."""
        return (self.segment + self.buffer) * self.ranks_on_node(per_node)


def fraction_of(arm: Arm, entry: SearchEntry, hardware: Hardware) -> Fraction | None:
    """Share of a node's GPUs that one prefill worker holds on a node; None where the sizes do not divide."""
    gpus, per_node = entry.prefill.gpus, hardware.gpus_per_node
    if arm.multinode and gpus > per_node:
        return Fraction(1) if gpus % per_node == 0 else None
    if gpus > per_node or (arm.multinode and per_node % gpus):
        return None
    return Fraction(gpus, per_node)


def base_bytes(hardware: Hardware) -> int:
    """A node's host memory in bytes, after the suite's cap."""
    return min(hardware.available_cpu_dram_mib, CAP_MIB) * MIB


def recorded_gb(arm: Arm, entry: SearchEntry, hardware: Hardware) -> int | None:
    """Decimal GB that the entry records; None where nothing is recorded or the sizes do not divide."""
    scenario = entry.scenario
    share = fraction_of(arm, entry, hardware)
    if entry.kv_offloading != "dram" or scenario is None or scenario.dram_utilization is None:
        return None
    if share is None:
        return None
    exact = base_bytes(hardware) * Fraction(str(scenario.dram_utilization)) * share / GB
    return math.floor(exact)


def utilization_for(wanted: int, hardware: Hardware, share: Fraction) -> str | None:
    """The least utilization of four decimals that records at least `wanted` bytes (down to the whole GB below);
    None when a node does not have that much."""
    exact = Fraction(wanted) / (base_bytes(hardware) * share)
    value = Fraction(math.ceil(exact * 10_000), 10_000)
    return f"{float(value):.4f}" if value <= 1 else None


def taken_by(deployment: Deployment, role: RoleSpec) -> Taken | None:
    """What a role's ranks take for KV offload; None where it takes none or its size follows from the GPU's."""
    names = {connector.name for connector in role.connectors}
    store = store_of(deployment)
    if "MooncakeStoreConnector" in names and store is not None:
        size = store.sizes.get("global_segment_size")
        if size is None or _mode(deployment) != "embedded":
            return None
        place = store_at(deployment, store, "global_segment_size")
        written = _written(store.options, "global_segment_size")
        return Taken("mooncake", written, role, size, store.sizes.get("local_buffer_size", 4 * GIB), place)
    simple = next((c for c in role.connectors if c.name == "SimpleCPUOffloadConnector"), None)
    if simple is not None:
        for key, ranks in (("cpu_bytes_to_use_per_rank", 1), ("cpu_bytes_to_use", max(role.gpus, 1))):
            size = _positive(simple.config.get(key))
            if size is not None:
                return Taken("vllm-simple", str(size), role, size // ranks, 0, simple.at)
    size = _positive(role.flag("hicache-size"))
    if size is not None and hierarchical(role):
        return Taken("hicache", str(size), role, size * GB, 0, flag_at(role, "hicache-size"))
    cache = role.flag("kv-cache-config")
    size = _positive(cache.get("host_cache_size")) if isinstance(cache, dict) else None
    if size is not None:
        return Taken("native", str(size), role, size, 0, flag_at(role, "kv-cache-config"))
    return None


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def hierarchical(role: RoleSpec) -> bool:
    """Whether SGLang's host cache is switched on."""
    return role.flag("enable-hierarchical-cache") in {True, "true", "True"}


def _mode(deployment: Deployment) -> str:
    store = store_of(deployment)
    config = store.options.get("store_config") if store is not None else None
    mode = config.get("mode") if isinstance(config, dict) else None
    return mode if isinstance(mode, str) else "embedded"


def _written(options: dict[str, object], name: str) -> str:
    config = options.get("store_config")
    return str(config.get(name)) if isinstance(config, dict) else ""


def pages(taken: Taken, per_node: int) -> int:
    """2 MiB pages of one worker on one node: segment and buffer each rounded up."""
    one = -(-taken.segment // HUGE_PAGE) + -(-taken.buffer // HUGE_PAGE)
    return one * taken.ranks_on_node(per_node)


def said(size: int) -> str:
    """`1,520 GiB (1,632.1 GB)`."""
    gib, gb = size / GIB, size / GB
    shown = f"{gib:,.0f}" if gib == int(gib) else f"{gib:,.1f}"
    return f"{shown} GiB ({gb:,.1f} GB)"
