"""Host memory that a recipe takes, per rank and per node, and what a master entry records of it. Exact integers.

Recorded: the suite's budget of a node in decimal GB (`sizing.host.dram_budget_gb`). Taken: what each rank
allocates, read by the rules of the program that reads the number (`sizing.size_strings`), and what a node needs for
it (`sizing.needs`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from servemark.base.errors import ServemarkError
from servemark.catalog.arms import Arm, SearchEntry
from servemark.catalog.clusters import Hardware
from servemark.catalog.deployment import Deployment, RoleSpec, Service
from servemark.catalog.nodes import Position
from servemark.checks.view import flag_at, store_at, store_config, store_of
from servemark.sizing.host import POLICY_MIB, STORE_DEFAULT, dram_budget_gb
from servemark.sizing.needs import HostNeeds, host_needs
from servemark.sizing.size_strings import GIB, MIB, mooncake_python_size, sglang_host_pool_size, vllm_size

GB = 10**9
STEPS = 10_000
"""Utilizations are written with four decimals."""


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

    protocol: str = "tcp"
    """The store's transport, which decides what is registered."""

    def ranks_on_node(self, per_node: int) -> int:
        """Ranks of one worker on one of its nodes."""
        return min(self.role.gpus, per_node) or 1

    def workers_on_node(self, per_node: int) -> int:
        """Workers of the role that share a node: as many as its nodes are booked for."""
        if self.role.gpus >= per_node or not self.role.nodes:
            return 1
        return max(1, math.ceil(self.role.workers / self.role.nodes))

    def needs(self, per_node: int, workers: int = 1) -> HostNeeds:
        """What a node must have for `workers` workers of the role."""
        return host_needs(
            ranks=self.ranks_on_node(per_node) * workers,
            segment_bytes=self.segment,
            buffer_bytes=self.buffer,
            protocol=self.protocol,
        )

    def capacity(self, per_node: int) -> int:
        """Usable bytes of one worker on one node."""
        return self.segment * self.ranks_on_node(per_node)

    def allocated(self, per_node: int) -> int:
        """All bytes of one worker on one node."""
        return self.needs(per_node).bytes_per_node


def fraction_of(arm: Arm, entry: SearchEntry, hardware: Hardware) -> Fraction | None:
    """Share of a node's GPUs that one prefill worker holds on a node; None where the sizes do not divide."""
    gpus, per_node = entry.prefill.gpus, hardware.gpus_per_node
    if arm.multinode and gpus > per_node:
        return Fraction(1) if gpus % per_node == 0 else None
    if gpus > per_node or (arm.multinode and per_node % gpus):
        return None
    return Fraction(gpus, per_node)


def recorded_gb(arm: Arm, entry: SearchEntry, hardware: Hardware) -> int | None:
    """Decimal GB that the entry records; None where nothing is recorded or the sizes do not divide."""
    scenario = entry.scenario
    share = fraction_of(arm, entry, hardware)
    if entry.kv_offloading != "dram" or scenario is None or scenario.dram_utilization is None:
        return None
    if share is None or not 0 < scenario.dram_utilization <= 1:
        return None
    return _budget(hardware, scenario.dram_utilization, share)


def _budget(hardware: Hardware, utilization: float, share: Fraction) -> int:
    mib = hardware.available_cpu_dram_mib
    return dram_budget_gb(mib, utilization, share.numerator, share.denominator)


def utilization_for(wanted: int, hardware: Hardware, share: Fraction) -> tuple[str, int] | None:
    """(a utilization of four decimals, the whole GB that it records) of at least `wanted` bytes, down to the whole
    GB below; None when a node does not have that much.

    It is rounded up with half a step to spare where there is room: the suite multiplies in binary floating point and
    cuts off, so that a value without room may record one GB less.
    """
    node = min(hardware.available_cpu_dram_mib, POLICY_MIB) * MIB
    exact = Fraction(wanted) / (node * share) * STEPS
    for steps in (math.ceil(exact + Fraction(1, 2)), math.ceil(exact)):
        if 0 < steps <= STEPS:
            return f"{steps / STEPS:.4f}", _budget(hardware, steps / STEPS, share)
    return None


def taken_by(deployment: Deployment, role: RoleSpec) -> Taken | None:
    """What a role's ranks take for KV offload; None where it takes none or its size follows from the GPU's."""
    names = {connector.name for connector in role.connectors}
    store = store_of(deployment)
    if "MooncakeStoreConnector" in names and store is not None:
        return _embedded(deployment, role, store)
    simple = next((c for c in role.connectors if c.name == "SimpleCPUOffloadConnector"), None)
    if simple is not None:
        for key, ranks in (("cpu_bytes_to_use_per_rank", 1), ("cpu_bytes_to_use", engine_ranks(role))):
            size = _positive(simple.config.get(key))
            if size is not None:
                return Taken("vllm-simple", str(size), role, max(1, size // ranks), 0, simple.at)
    size = _positive(role.flag("hicache-size"))
    if size is not None and hierarchical(role):
        pool = sglang_host_pool_size(size)
        return Taken("hicache", str(size), role, pool, 0, flag_at(role, "hicache-size"))
    cache = role.flag("kv-cache-config")
    size = _positive(cache.get("host_cache_size")) if isinstance(cache, dict) else None
    if size is not None:
        return Taken("native", str(size), role, size, 0, flag_at(role, "kv-cache-config"))
    return None


def engine_ranks(role: RoleSpec) -> int:
    """Ranks that share one vLLM engine: those of one data parallel rank, tp x pp x pcp; all of a worker's GPUs where
    the recipe does not state tp. A connector's size of "all ranks" is of these."""
    sizes = role.parallel
    return (sizes.tp or role.gpus or 1) * (sizes.pp or 1) * (sizes.pcp or 1)


def _embedded(deployment: Deployment, role: RoleSpec, store: Service) -> Taken | None:
    """What ranks give to a Mooncake store that is embedded in them."""
    config = store_config(store)
    segment = store_bytes(deployment, store, "global_segment_size")
    buffer = store_bytes(deployment, store, "local_buffer_size")
    if not segment or config.get("mode", "embedded") != "embedded":
        return None  # KVC508 tells of an embedded rank that gives nothing
    return Taken(
        reader="mooncake",
        written=str(config["global_segment_size"]),
        role=role,
        segment=segment,
        buffer=STORE_DEFAULT if buffer is None else buffer,
        at=store_at(deployment, store, "global_segment_size"),
        protocol=str(config.get("protocol", "rdma")),
    )


def size_reader(deployment: Deployment) -> Callable[[object], int]:
    """How the program that reads the recipe's store configuration reads a size; it raises ServemarkError."""
    return vllm_size if deployment.engine == "vllm" else mooncake_python_size


def store_bytes(deployment: Deployment, store: Service, name: str) -> int | None:
    """A size of the store's configuration as its reader reads it; None where it is not stated or not readable."""
    value = store_config(store).get(name)
    if value is None:
        return None
    try:
        return size_reader(deployment)(value)
    except ServemarkError:
        return None


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def hierarchical(role: RoleSpec) -> bool:
    """Whether SGLang's host cache is switched on."""
    return role.flag("enable-hierarchical-cache") in {True, "true", "True"}


def said(size: int) -> str:
    """`1,520 GiB (1,632.1 GB)`."""
    gib, gb = size / GIB, size / GB
    shown = f"{gib:,.0f}" if gib == int(gib) else f"{gib:,.1f}"
    return f"{shown} GiB ({gb:,.1f} GB)"
