"""What a recipe deploys, whatever its spelling: roles with workers, arguments and environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from servemark.catalog.yaml_nodes import Position

RoleName = Literal["aggregated", "prefill", "decode"]


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


@dataclass(frozen=True, slots=True)
class BenchmarkSpec:
    """What is run against the deployment: workload file, evals, the cache state each point starts from."""

    workload: str | None
    """Path within the suite of a generator's recipe."""
    concurrencies: tuple[int, ...]
    evals: tuple[str, ...]
    cache_state: Literal["marked", "cold"]
    warmup_requests: int
    eval_concurrency: int
    idle_timeout_s: float
    at: Position


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

    @property
    def gpus_total(self) -> int:
        """All GPUs deployed, over all roles and workers: the one denominator of per-GPU figures."""
        return sum(role.workers * role.gpus for role in self.roles)

    def canonical(self) -> dict[str, object]:
        """What the fingerprint hashes: everything that changes what runs, no positions, no comments."""
        return {
            "engine": self.engine,
            "model_path": self.model_path,
            "precision": self.precision,
            "container": self.container,
            "roles": [
                {
                    "role": r.role,
                    "workers": r.workers,
                    "nodes": r.nodes,
                    "gpus": r.gpus,
                    "args": r.args,
                    "env": r.env,
                }
                for r in self.roles
            ],
        }
