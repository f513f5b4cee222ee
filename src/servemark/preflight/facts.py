"""What is known of a host: typed, immutable, None where it could not be read. Sizes are bytes, times seconds."""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PAGE_2M = 2 * MIB


@dataclass(frozen=True, slots=True)
class Pool:
    """Reserved huge pages of one size, on one NUMA node or (node None) on the whole host; pages, not bytes."""

    page_bytes: int
    node: int | None
    total: int
    free: int
    reserved: int | None
    """Promised to mappings that have not touched them yet: not free for anybody else. None for a node."""

    @property
    def usable(self) -> int:
        """Pages that a new mapping can have."""
        return max(0, self.free - (self.reserved or 0))


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node with its memory and processors (as the kernel lists them)."""

    number: int
    total_bytes: int | None
    free_bytes: int | None
    cpus: str | None


@dataclass(frozen=True, slots=True)
class Zone:
    """Free blocks of one memory zone by order: `free[n]` blocks of 2^n pages."""

    node: int
    name: str
    free: tuple[int, ...]

    def pages(self) -> int:
        """All free pages."""
        return sum(count << order for order, count in enumerate(self.free))

    def blocks_2m(self, page_bytes: int) -> int:
        """Whole 2 MiB blocks: blocks of that order and above. A lower bound of what compaction could make."""
        order = (PAGE_2M // page_bytes).bit_length() - 1
        return sum(count << (n - order) for n, count in enumerate(self.free) if n >= order)


@dataclass(frozen=True, slots=True)
class Thp:
    """Transparent huge pages: modes, page size, and counters since boot."""

    enabled: str | None
    defrag: str | None
    page_bytes: int | None
    counters: dict[str, int]


@dataclass(frozen=True, slots=True)
class Memory:
    """Host memory and everything that large allocations depend on."""

    page_bytes: int
    total_bytes: int | None
    free_bytes: int | None
    available_bytes: int | None
    swap_bytes: int | None
    nodes: tuple[NumaNode, ...]
    pools: tuple[Pool, ...]
    zones: tuple[Zone, ...]
    thp: Thp

    def pool(self, page_bytes: int) -> Pool | None:
        """The whole host's pool of one page size."""
        return next((p for p in self.pools if p.page_bytes == page_bytes and p.node is None), None)

    def node_pools(self, page_bytes: int) -> tuple[Pool, ...]:
        """The nodes' pools of one page size."""
        return tuple(p for p in self.pools if p.page_bytes == page_bytes and p.node is not None)

    def blocks_agree(self) -> bool | None:
        """Whether free blocks add up to MemFree within 10 %; None when one of the two is missing.

        They may differ for a moment after boot; counts of blocks then say nothing.
        """
        if not self.zones or not self.free_bytes:
            return None
        summed = sum(zone.pages() for zone in self.zones) * self.page_bytes
        return abs(summed - self.free_bytes) <= max(0.1 * self.free_bytes, 64 * MIB)


@dataclass(frozen=True, slots=True)
class Limits:
    """What this process may take. A limit of None means none is set; `version` None: no cgroup was found."""

    memlock_known: bool
    memlock_bytes: int | None
    memlock_exempt: bool | None
    """CAP_IPC_LOCK: the limit does not count."""
    version: int | None
    memory_limit_bytes: int | None
    memory_used_bytes: int | None
    hugetlb_2m_limit_bytes: int | None
    memory_nodes: str | None
    """NUMA nodes that this process may use (cpuset), as the kernel lists them."""

    @property
    def room_bytes(self) -> int | None:
        """What the cgroup still allows; None without a limit."""
        if self.memory_limit_bytes is None:
            return None
        return max(0, self.memory_limit_bytes - (self.memory_used_bytes or 0))


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `source`: nvml, driver (files of the NVIDIA driver), amd-smi or kfd."""

    index: int
    name: str | None
    memory_bytes: int | None
    used_bytes: int | None
    numa_node: int | None
    ecc_errors: int | None
    """Uncorrected memory errors since the driver was loaded."""
    source: str


@dataclass(frozen=True, slots=True)
class Gpus:
    """All GPUs. `known` is False when no source could be asked although a device of this kind is there."""

    devices: tuple[Gpu, ...]
    driver: str | None
    known: bool


@dataclass(frozen=True, slots=True)
class Nic:
    """One port of an RDMA device."""

    device: str
    driver: str | None
    port: int
    state: str | None
    rate_gbit: float | None
    link_layer: str | None
    numa_node: int | None
    firmware: str | None


@dataclass(frozen=True, slots=True)
class Efa:
    """What libfabric says of EFA: `asked` is False without `fi_info`; domains are the devices it can open."""

    asked: bool
    domains: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Disk:
    """Space of a folder's file system. `use` says what an arm keeps there."""

    use: str
    path: str
    total_bytes: int
    free_bytes: int
    free_inodes: int | None
    """None on file systems that make inodes as they go."""
    kind: str | None


@dataclass(frozen=True, slots=True)
class Clock:
    """Whether the kernel's clock is disciplined, and by at most how much it is off."""

    synchronised: bool | None
    max_error_s: float | None
    source: str | None


@dataclass(frozen=True, slots=True)
class Port:
    """A TCP port that somebody listens on."""

    number: int
    address: str
    holder: str | None


@dataclass(frozen=True, slots=True)
class Mooncake:
    """An installed Mooncake. `thp_path`: its library allocates segments with huge pages by itself; None: cannot tell."""

    package: str
    version: str
    thp_path: bool | None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Everything that was read, with the host's name and when (Unix seconds)."""

    node: str
    taken_at: float
    kernel: str | None
    machine: str
    cpus: int | None
    memory: Memory
    limits: Limits
    gpus: Gpus
    nics: tuple[Nic, ...]
    nics_known: bool
    efa: Efa
    disks: tuple[Disk, ...]
    clock: Clock
    listening: tuple[Port, ...]
    listening_known: bool
    mooncake: tuple[Mooncake, ...]
    root_user: bool
