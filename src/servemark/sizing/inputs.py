"""What a size report is made from: plain values, each said to be declared or assumed."""

from __future__ import annotations

from dataclasses import dataclass, field

from servemark.catalog.architecture import Architecture, Draft, Precision
from servemark.catalog.hardware import Gpu
from servemark.sizing.host import StoreSizes
from servemark.sizing.kv import KvSettings
from servemark.sizing.lines import Remark
from servemark.sizing.startup_log import StartupLog
from servemark.sizing.weights import Shards

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Stated:
    """A setting and who says it: a flag, a file, or an assumption with its half-width."""

    value: float
    source: str
    margin: float | None = None

    @property
    def assumed(self) -> bool:
        """Whether nobody said it."""
        return self.margin is not None


@dataclass(frozen=True, slots=True)
class RoleInput:
    """One role of a deployment."""

    name: str
    engine: str
    workers: int
    nodes: int
    ranks_per_worker: int
    """Engine processes of one worker, one a GPU."""
    ranks_per_node: int
    """Of this role on one node."""
    shards: Shards
    kv: KvSettings
    kv_dtype: str
    share: Stated
    """Share of GPU memory (vLLM, SGLang) or of what is left after weights (TensorRT-LLM) that may be taken."""
    max_context: Stated
    draft: Draft | None = None
    draft_name: str | None = None
    draft_precision: Precision | None = None
    store: StoreSizes | None = None
    where: str = ""
    remarks: tuple[Remark, ...] = ()
    declared: bool = True
    """False where no recipe says how the role is started."""
    fixed_context: int | None = None
    """Tokens of the cache that the engine allocates whatever its memory (llama.cpp)."""

    @property
    def data_parallel_shares(self) -> int:
        """Copies of the attention in one worker, each with a pool of its own; 1 where all ranks share one."""
        return max(1, self.ranks_per_worker // (self.kv.tp * self.kv.pp * self.kv.pcp))


@dataclass(frozen=True, slots=True)
class FitInput:
    """Everything that a report needs."""

    title: str
    model: Architecture
    precision: Precision
    roles: tuple[RoleInput, ...]
    gpu: Gpu | None
    gpus_per_node: int | None
    context: int
    """Tokens of one request that concurrency and transfer are worked out for."""
    context_stated: bool
    node_dram_bytes: int | None = None
    node_dram_source: str = ""
    budget_bytes: int | None = None
    budget_formula: dict[str, object] = field(default_factory=dict)
    transfer: str | None = None
    """What carries KV between roles; None where nothing does."""
    transfer_efa: bool = False
    colocated: bool = False
    """Whether the recipe lets roles share a node: their host memory adds up there."""
    reserve_bytes: int | None = None
    """A stated reserve for activations and graphs; None takes the assumption."""
    log: StartupLog | None = None
    remarks: tuple[Remark, ...] = ()
