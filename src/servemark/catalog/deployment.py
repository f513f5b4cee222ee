"""What a recipe deploys, whatever its spelling: roles with workers, arguments and environment."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from servemark.base.canonical import content_hash
from servemark.catalog.engine_args import Argument
from servemark.catalog.nodes import Node, Position

RoleName = Literal["aggregated", "prefill", "decode"]
ROLE_NAMES: tuple[RoleName, ...] = ("aggregated", "prefill", "decode")
DUMMY = "dummy"
"""Weights that stand for no model."""
COLOCATION = "allow_prefill_decode_colocation"
"""The engine setting that lets prefill and decode workers share a node."""
SPREAD = "spread_workers"
"""The field of `resources` that gives each worker of fewer GPUs than a node has a node of its own."""


@dataclass(frozen=True, slots=True)
class Parallel:
    """Parallel sizes of one worker as its arguments state them; None where they say nothing."""

    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    dcp: int | None = None
    pcp: int | None = None
    dp_attention: bool | None = None

    def ranks(self, engine: str) -> int | None:
        """Engine processes (one a GPU) of one worker from its sizes; None when tp is not stated.

        In vLLM data parallel ranks come on top of tp; in SGLang and TensorRT-LLM they divide it.
        """
        if self.tp is None:
            return None
        ranks = self.tp * (self.pp or 1)
        return ranks * (self.dp or 1) * (self.pcp or 1) if engine == "vllm" else ranks


@dataclass(frozen=True, slots=True)
class Connector:
    """A KV connector, also one that stands inside another's configuration (`inside`, outermost first)."""

    name: str
    role: str | None
    inside: tuple[str, ...]
    config: dict[str, object]
    at: Position


@dataclass(frozen=True, slots=True)
class Speculative:
    """Speculative decoding of one role."""

    method: str
    draft_tokens: int | None
    draft_model: str | None
    draft_sampling: str | None
    rejection_sampling: str | None
    at: Position


@dataclass(frozen=True, slots=True)
class Service:
    """Something that runs beside the engines. `sizes`: option -> bytes, read by the service's own rules."""

    name: str
    type: str
    placement: str | None
    args: dict[str, Argument]
    options: dict[str, object]
    sizes: dict[str, int]
    at: Position


@dataclass(frozen=True, slots=True)
class Frontend:
    """What takes requests: its type, arguments, environment and how it routes."""

    type: str
    args: dict[str, Argument]
    env: dict[str, str]
    router_mode: str | None
    at: Position


@dataclass(frozen=True, slots=True)
class Software:
    """A revision that the recipe states. `kind`: version, hash, wheel, source, or identity (what it says of
    itself)."""

    name: str
    kind: str
    value: str
    at: Position


@dataclass(frozen=True, slots=True)
class Image:
    """A container image and the field that names it."""

    field: str
    image: str
    at: Position


@dataclass(frozen=True, slots=True)
class RoleSpec:
    """`workers` engine instances of one role. `gpus` counts one worker's GPUs (0 on a machine without)."""

    role: RoleName
    workers: int
    nodes: int
    gpus: int
    args: dict[str, object]
    """Engine arguments, names as the recipe spells them."""
    env: dict[str, str]
    at: Position
    flags: dict[str, Argument] = field(default_factory=dict, compare=False, repr=False)
    """The same by canonical name, JSON values parsed."""
    parallel: Parallel = field(default_factory=Parallel)
    connectors: tuple[Connector, ...] = field(default=(), compare=False)
    speculative: Speculative | None = field(default=None, compare=False)

    def flag(self, name: str) -> object:
        """An argument's value by its canonical name; None when it is not given."""
        found = self.flags.get(name)
        return found.value if found is not None else None


@dataclass(frozen=True, slots=True)
class BenchmarkSpec:
    """What is run against the deployment. Workload, evals, cache state and idle time are read from
    `servemark`."""

    workload: str | None
    """Path within the suite of a generator's recipe."""
    concurrencies: tuple[int, ...]
    evals: tuple[str, ...]
    cache_state: Literal["marked", "cold"]
    warmup_requests: int
    eval_concurrency: int | None
    """Requests in flight while evals are asked; None: as many as the point's concurrency."""
    idle_timeout_s: float
    at: Position
    type: str | None = None
    isl: int | None = None
    osl: int | None = None
    command: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    req_rate: str | None = None
    """Requests per second as written (`inf` for no limit)."""
    requests_per_slot: int | None = None
    """With `isl` and `osl` and no workload: a point sends so many requests for each that may be in flight."""
    min_requests: int = 1
    """The least that a point of fixed lengths sends."""
    budgets_s: tuple[tuple[str, float], ...] = ()
    """(phase, seconds) that the recipe allows; they change nothing of what runs."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """One recipe, resolved. Positions do not enter its fingerprint."""

    name: str
    engine: str
    model_path: str
    precision: str
    container: str
    roles: tuple[RoleSpec, ...]
    port: int | None
    """A fixed port, or None for a free one."""
    ready_budget_s: float
    benchmark: BenchmarkSpec
    identity: dict[str, object]
    """What the recipe says of itself: model repository and revision, framework versions."""
    file: str
    at: Position = field(compare=False)
    schema: int = 2
    variant: str | None = None
    """`override_NAME` or `zip_override_NAME[i]` of a file with variants."""
    ready_budget_stated: bool = True
    """False where the recipe says nothing and `ready_budget_s` is our default."""
    gpu_type: str | None = None
    gpus_per_node: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    """Set for all roles, below each role's own."""
    frontend: Frontend | None = field(default=None, compare=False)
    services: tuple[Service, ...] = field(default=(), compare=False)
    software: tuple[Software, ...] = field(default=(), compare=False)
    images: tuple[Image, ...] = field(default=(), compare=False)
    kv_transfer: tuple[str, ...] = ()
    """Engines that carry KV between roles, from connectors and arguments: `nixl`, `mooncake`, `ucx`, ..."""
    time_limit_s: int | None = None
    sbatch_options: tuple[str, ...] = field(default=(), compare=False)
    """Of the batch system, as `--NAME=VALUE`: they steer where it runs and change nothing of what runs."""
    srun_options: tuple[str, ...] = field(default=(), compare=False)
    extras: dict[str, object] = field(default_factory=dict)
    """Other engine-wide settings (colocation, launch mode, KV events, set-up script), as written."""
    node: Node | None = field(default=None, compare=False, repr=False)

    @property
    def gpus_total(self) -> int:
        """All GPUs deployed, over all roles and workers: the one denominator of per-GPU figures."""
        return sum(role.workers * role.gpus for role in self.roles)

    @property
    def weights(self) -> str | None:
        """`dummy` where a role's engine fills its weights with random values (`load-format: dummy` in vLLM and SGLang,
        `load_format` in TensorRT-LLM): times are real, texts and scores mean nothing. None: the model's own."""
        return DUMMY if any(role.flag("load-format") == DUMMY for role in self.roles) else None

    @property
    def nodes_total(self) -> int:
        """All nodes booked for roles. Roles that share a node count it for each."""
        return sum(role.nodes for role in self.roles)

    @property
    def nodes_taken(self) -> int:
        """Nodes that a run takes: one where the recipe lets prefill and decode share a node and one holds the GPUs of all
        roles; else what is booked for roles. 0 where nothing is booked."""
        shares = bool(self.extras.get(COLOCATION)) and 0 < self.gpus_total <= (self.gpus_per_node or 0)
        return min(1, self.nodes_total) if shares else self.nodes_total

    def role(self, name: RoleName) -> RoleSpec | None:
        """One role, None when it is not deployed."""
        return next((role for role in self.roles if role.role == name), None)

    def fingerprint(self) -> str:
        """SHA-256 over the canonical value."""
        try:
            return content_hash(self._canonical())
        except ValueError:  # an infinite or undefined number among the arguments
            return content_hash(self.canonical())

    def canonical(self) -> dict[str, object]:
        """What the fingerprint hashes: everything that changes what runs, no positions, no comments."""
        return {name: _finite(value) for name, value in self._canonical().items()}

    def _canonical(self) -> dict[str, object]:
        return {
            "engine": self.engine,
            "model_path": self.model_path,
            "precision": self.precision,
            "container": self.container,
            "environment": self.environment,
            "extras": self.extras,
            "images": sorted([image.field, image.image] for image in self.images),
            "software": sorted([s.name, s.kind, s.value] for s in self.software if s.kind != "identity"),
            "services": [_service(service) for service in self.services],
            "frontend": None
            if self.frontend is None
            else [self.frontend.type, _values(self.frontend.args), self.frontend.env],
            "roles": [
                {
                    "role": r.role,
                    "workers": r.workers,
                    "nodes": r.nodes,
                    "gpus": r.gpus,
                    "args": _values(r.flags) if r.flags else r.args,
                    "env": r.env,
                }
                for r in self.roles
            ],
        }


def _values(arguments: dict[str, Argument]) -> dict[str, object]:
    return {argument.name: argument.value for argument in arguments.values()}


def _service(service: Service) -> list[object]:
    return [service.name, service.type, service.placement, _values(service.args), service.options]


def _finite(value: object) -> object:
    """JSON has no infinity: such numbers are hashed as texts."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value
