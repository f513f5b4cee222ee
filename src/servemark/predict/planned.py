"""A point that is planned, with the identity that its result will have: so that it can be looked up among measured ones.

The same fields are filled as `results.importers.own` fills them from a result; what only a run can tell (an engine's own
version, the rules of a replay) stays absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from servemark.catalog.arms import Arm, SearchEntry, WorkerBlock
from servemark.catalog.deployment import Deployment, RoleSpec
from servemark.catalog.identity import Identity
from servemark.launch.engines.registry import FRAMEWORKS as ADAPTERS
from servemark.plan.rows import PlanRow
from servemark.results.importers.inferencex_names import FRAMEWORKS, hardware_id, model_id
from servemark.results.importers.own import extra_of
from servemark.results.importers.precision_names import precision
from servemark.results.point import (
    Offload,
    PointIdentity,
    RoleName,
    RoleTopology,
    Scenario,
    Speculation,
)

ROUNDS, WARM_ROUNDS = 10, 2
"""What the field's runners send of fixed lengths unless a recipe says `num_prompts_mult` or `num_warmup_mult`."""


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """One point of one arm before it runs. `line` names the points that differ from it in concurrency alone; `gpus` are
    all GPUs of the deployment, 0 on a machine without."""

    selector: str
    point_id: str
    line: str
    identity: PointIdentity
    gpus: int
    stated_duration_s: float | None = None
    """Seconds that its replay takes because the suite says so."""
    rounds: tuple[int, int] = (ROUNDS, WARM_ROUNDS)
    """Prompts of fixed lengths for each of its concurrency: measured, and before that to warm up."""

    @property
    def concurrency(self) -> int:
        """Live sessions; a plan has no open loops."""
        return self.identity.concurrency or 0


def planned_of_row(row: PlanRow) -> PlannedPoint:
    """A row of a plan."""
    return planned_point(row.arm, row.entry, row.recipe.deployment, row.identity, row.concurrency, row.gpus)


def planned_point(  # noqa: PLR0917 - six facts make one point
    arm: Arm,
    entry: SearchEntry,
    deployment: Deployment | None,
    identity: Identity,
    concurrency: int,
    gpus: int,
) -> PlannedPoint:
    """One point of an arm's search-space entry."""
    line = f"{arm.key}/{entry.topology}"
    scenario = identity.canonical.get("scenario")
    seconds = scenario.get("duration_s") if isinstance(scenario, dict) else None
    return PlannedPoint(
        selector=f"{line}@{concurrency}",
        point_id=identity.point_id,
        line=line,
        identity=_identity(arm, entry, deployment, identity, concurrency),
        gpus=gpus,
        stated_duration_s=float(seconds) if isinstance(seconds, int | float) else None,
        rounds=(
            _multiple(deployment, "num_prompts_mult", ROUNDS),
            _multiple(deployment, "num_warmup_mult", WARM_ROUNDS),
        ),
    )


def _multiple(deployment: Deployment | None, name: str, usual: int) -> int:
    """A multiple of the concurrency that the recipe's benchmark states, else the usual one."""
    node = deployment.node if deployment is not None else None
    for key in ("benchmark", name):
        node = (node.entries or {}).get(key) if node is not None else None
    value = node.scalar if node is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10_000 else usual


def _identity(
    arm: Arm, entry: SearchEntry, deployment: Deployment | None, identity: Identity, concurrency: int
) -> PointIdentity:
    said = identity.canonical
    fingerprint = said.get("deployment")
    engine, router = _engine(arm, deployment)
    stated = arm.router_of(entry)
    return PointIdentity(
        model=model_id(arm.model) or arm.model,
        hardware=hardware_id(arm.runner) or arm.runner,
        engine=engine,
        scenario=_scenario(said.get("scenario")),
        concurrency=concurrency,
        image=arm.image,
        precision=precision(arm.precision),
        speculation=_speculation(entry, deployment),
        topology=_topology(entry, deployment),
        offload=None
        if entry.kv_offloading == "none"
        else Offload(
            entry.kv_offloading, entry.kv_offload_backend.name if entry.kv_offload_backend else None
        ),
        recipe_fingerprint=fingerprint if isinstance(fingerprint, str) else None,
        router=router or (stated.name if stated is not None else None),
        extra=extra_of(said),
    )


def _engine(arm: Arm, deployment: Deployment | None) -> tuple[str, str | None]:
    """(engine, router) that the framework's name stands for; a name that is not known stays as it is."""
    if deployment is not None and deployment.engine in ADAPTERS:
        return ADAPTERS[deployment.engine], None
    known = FRAMEWORKS.get(arm.framework.lower())
    return (known[1], known[2]) if known is not None else (arm.framework, None)


def _scenario(said: object) -> Scenario:
    """Lengths that are fixed are the work; a data set is named only where they are not, as in a result's point."""
    scenario: Mapping[str, object] = said if isinstance(said, dict) else {}
    kind, isl, osl, dataset = (scenario.get(name) for name in ("type", "isl", "osl", "dataset"))
    return Scenario(
        type=kind if isinstance(kind, str) else "unknown",
        isl=isl if isinstance(isl, int) else None,
        osl=osl if isinstance(osl, int) else None,
        dataset=dataset if isinstance(dataset, str) and not isinstance(isl, int) else None,
    )


def _speculation(entry: SearchEntry, deployment: Deployment | None) -> Speculation | None:
    role = None if deployment is None else deployment.role("decode") or deployment.role("aggregated")
    asked = role.speculative if role is not None else None
    method = None if entry.spec_decoding == "none" else entry.spec_decoding
    if method is None and asked is None:
        return None
    return Speculation(method or (asked.method if asked else ""), asked.draft_tokens if asked else None)


def _topology(entry: SearchEntry, deployment: Deployment | None) -> tuple[RoleTopology, ...]:
    """Roles with the sizes that the master states; workers and GPUs as the recipe has them where it is at hand."""
    first: RoleName = "aggregated" if entry.decode.num_worker == 0 else "prefill"
    blocks: tuple[tuple[RoleName, WorkerBlock], ...] = ((first, entry.prefill), ("decode", entry.decode))
    found = []
    for name, block in blocks:
        if block.num_worker:
            found.append(_role(name, block, None if deployment is None else deployment.role(name)))
    return tuple(found)


def _role(name: RoleName, block: WorkerBlock, spec: RoleSpec | None) -> RoleTopology:
    return RoleTopology(
        role=name,
        workers=block.num_worker if spec is None else spec.workers,
        gpus=block.gpus if spec is None else spec.gpus,
        tp=block.tp,
        pp=block.pp,
        ep=block.ep,
        dcp=block.dcp_size,
        pcp=block.pcp_size,
        dp_attention=block.dp_attn,
        hardware=hardware_id(block.hardware) if block.hardware else None,
    )
