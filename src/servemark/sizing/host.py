"""Host memory of a KV store by scope: rank, worker, node, role, job; the suite's DRAM budget; pool capacity."""

from __future__ import annotations

from dataclasses import dataclass

from servemark.base.errors import input_error

POLICY_MIB = 2_861_022
"""Host memory that the public suite lets an agentic run count on: just below 3 TB (2,999.999 GB)."""
STORE_DEFAULT = 4 << 30
"""Segment and buffer (bytes a rank) that vLLM takes where a store configuration is silent."""
WATERMARK = 0.95
"""Share of the pool that is used before eviction starts, unless the master says otherwise."""
EVICTION = 0.10


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """What each rank of one role holds in host memory. `kind`: mooncake, hicache, offload, lmcache or trtllm.

    A segment is what a store shares with others; a buffer is the rank's own (a store's local buffer, or the whole
    of a tier that no other rank reads).
    """

    kind: str
    segment_bytes: int
    buffer_bytes: int
    protocol: str = "rdma"
    watermark: float = WATERMARK
    eviction: float = EVICTION
    watermark_stated: bool = False
    segment_text: str = ""
    buffer_text: str = ""
    reader: str = "vllm"
    """Whose rules read the segment's text; a message `sizing.reader.<reader>` says them."""
    buffer_reader: str = "vllm"
    huge_pages: bool = False
    """Whether the ranks are told to take reserved huge pages (MC_STORE_USE_HUGEPAGE is set, to whatever)."""
    ratio: float = 0.0
    """The buffer as a multiple of the rank's device pool, where it is stated so; known once the pool is."""

    @property
    def shared(self) -> bool:
        """Whether the ranks' segments make one pool."""
        return self.segment_bytes > 0

    @property
    def rank_bytes(self) -> int:
        """Segment and buffer."""
        return self.segment_bytes + self.buffer_bytes


@dataclass(frozen=True, slots=True)
class RoleHost:
    """A role's host memory."""

    store: StoreSizes
    workers: int
    ranks_per_worker: int
    ranks_per_node: int

    @property
    def worker_bytes(self) -> int:
        """All ranks of one worker."""
        return self.ranks_per_worker * self.store.rank_bytes

    @property
    def node_bytes(self) -> int:
        """All ranks of this role on one node."""
        return self.ranks_per_node * self.store.rank_bytes

    @property
    def role_bytes(self) -> int:
        """All workers."""
        return self.workers * self.worker_bytes

    @property
    def pool_bytes(self) -> int:
        """What this role adds to the pool: segments only."""
        return self.workers * self.ranks_per_worker * self.store.segment_bytes


def dram_budget_gb(node_mib: int, utilization: float, gpus: int, gpus_per_node: int) -> int:
    """The suite's budget per node in whole decimal GB:
    floor(min(node, 2,861,022 MiB) x 2^20 x utilization x gpus / gpus per node / 10^9)."""
    for name, value in (("node_mib", node_mib), ("gpus", gpus), ("gpus_per_node", gpus_per_node)):
        if value <= 0:
            raise input_error("sizing.not_positive", name=name, value=value)
    if not 0 < utilization <= 1:
        raise input_error("sizing.not_share", name="dram-utilization", value=utilization)
    return int(min(node_mib, POLICY_MIB) * (1 << 20) * utilization * gpus / gpus_per_node / 10**9)


def usable_bytes(pool_bytes: int, store: StoreSizes) -> tuple[int, int]:
    """(bytes of the pool in use before eviction starts, what is left in use after one eviction)."""
    before = int(pool_bytes * store.watermark)
    return before, int(pool_bytes * max(0.0, store.watermark - store.eviction))


def transfer_seconds(size: float, bytes_per_s: float) -> float:
    """Time that one context takes between roles at a node's whole rate."""
    if bytes_per_s <= 0:
        raise input_error("sizing.not_positive", name="bytes_per_s", value=bytes_per_s)
    return size / bytes_per_s
