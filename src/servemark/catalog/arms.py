"""What a master entry says, typed and immutable. `node` gives the position of every scalar in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from servemark.catalog.nodes import Node, Position

ScenarioKind = Literal["fixed-seq-len", "agentic-coding"]
SEQUENCE_NAMES = {(1024, 1024): "1k1k", (8192, 1024): "8k1k"}


@dataclass(frozen=True, slots=True)
class Component:
    """A named part with a version (a router, a KV offload back end); None where no version is stated."""

    name: str
    version: str | None
    at: Position


@dataclass(frozen=True, slots=True)
class WorkerBlock:
    """One role's workers as a master entry declares them."""

    num_worker: int
    tp: int
    pp: int
    dcp_size: int
    pcp_size: int
    ep: int
    dp_attn: bool
    settings: tuple[tuple[str, str], ...]
    at: Position
    hardware: str | None = None
    """Another GPU type than the runner's, where the two roles differ."""
    node: Node | None = field(default=None, compare=False, repr=False)
    """The block itself; for a single-node entry, the search-space entry."""

    @property
    def gpus(self) -> int:
        """GPUs of one worker: tp x pp x pcp. dcp and ep divide the same GPUs and add none."""
        return self.tp * self.pp * self.pcp_size

    def setting(self, name: str) -> str | None:
        """The value of one additional setting, the last one when it is repeated."""
        found = [value for key, value in self.settings if key == name]
        return found[-1] if found else None

    @property
    def shape(self) -> str:
        """`tp8`, `tp8dcp8ep8dpa`: sizes of 1 are left out, except tp."""
        sizes = (("pp", self.pp), ("dcp", self.dcp_size), ("pcp", self.pcp_size), ("ep", self.ep))
        parts = [f"tp{self.tp}", *(f"{name}{size}" for name, size in sizes if size != 1)]
        return "".join(parts) + ("dpa" if self.dp_attn else "")


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is run: fixed sequence lengths (tokens in, tokens out), or an agentic trace."""

    kind: ScenarioKind
    isl: int | None
    osl: int | None
    dram_utilization: float | None
    """Share of a node's host memory that KV offload may take: a budget, not what is allocated."""
    node: Node = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """`1k1k`, `8k1k`, `ISL_OSL`, or `agentic`."""
        if self.isl is None or self.osl is None:
            return "agentic"
        return SEQUENCE_NAMES.get((self.isl, self.osl), f"{self.isl}_{self.osl}")


@dataclass(frozen=True, slots=True)
class SearchEntry:
    """One topology of an arm with the concurrencies to measure on it.

    A single-node entry is kept as one aggregated worker: `prefill` holds it and `decode.num_worker` is 0.
    """

    prefill: WorkerBlock
    decode: WorkerBlock
    spec_decoding: str
    kv_offloading: str
    concurrencies: tuple[int, ...]
    """As listed, or the range doubled from start up to and including its end."""
    at: Position
    single_node: bool = False
    conc_range: tuple[int, int] | None = None
    router: Component | None = None
    kv_p2p_transfer: str | None = None
    kv_offload_backend: Component | None = None
    scenario: Scenario | None = None
    label: str = ""
    """The topology's name, distinct within the arm: how selectors, series and pages name it."""
    node: Node | None = field(default=None, compare=False, repr=False)

    @property
    def topology(self) -> str:
        """`agg1xtp1` or `1p1d-tp8-tp8`, with whatever else makes it another topology; see `label`."""
        return self.label or self.shape

    @property
    def shape(self) -> str:
        """The topology from the entry's own numbers; two entries of an arm may share it."""
        if self.decode.num_worker == 0:
            shape = f"agg{self.prefill.num_worker}x{self.prefill.shape}"
        else:
            counts = f"{self.prefill.num_worker}p{self.decode.num_worker}d"
            shape = f"{counts}-{self.prefill.shape}-{self.decode.shape}"
        spec = "" if self.spec_decoding == "none" else f"-{self.spec_decoding}"
        return shape + spec + ("" if self.kv_offloading == "none" else f"-kv{self.kv_offloading}")

    @property
    def config_file(self) -> str | None:
        """CONFIG_FILE of the prefill block as written, `:selector` included; None when no recipe is named."""
        return self.prefill.setting("CONFIG_FILE")

    def expanded(self, step: int = 2) -> tuple[int, ...]:
        """Concurrencies with ranges multiplied by `step` instead of doubled."""
        if self.conc_range is None:
            return self.concurrencies
        return expand_range(*self.conc_range, step)


def expand_range(start: int, end: int, step: int = 2) -> tuple[int, ...]:
    """`start`, `start*step`, ... and always `end` last: 4..100 -> 4, 8, 16, 32, 64, 100."""
    values = []
    value = start
    while value < end:
        values.append(value)
        value *= step
    return (*values, end)


@dataclass(frozen=True, slots=True)
class Arm:
    """One master entry."""

    key: str
    image: str
    model: str
    model_prefix: str
    precision: str
    framework: str
    runner: str
    disagg: bool
    entries: tuple[SearchEntry, ...]
    """All search-space entries in the order of the reference plan: fixed sequences first, then agentic."""
    at: Position
    multinode: bool = True
    router: Component | None = None
    kv_p2p_transfer: str | None = None
    node: Node | None = field(default=None, compare=False, repr=False)

    def router_of(self, entry: SearchEntry) -> Component | None:
        """The router in force for an entry: its own, else the arm's."""
        return entry.router or self.router

    def transfer_of(self, entry: SearchEntry) -> str | None:
        """The KV transfer engine in force for an entry: its own, else the arm's."""
        return entry.kv_p2p_transfer or self.kv_p2p_transfer
