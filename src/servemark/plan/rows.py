"""servemark's own plan: one typed row a point, with both ids, what it needs, and why it is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from servemark.base.messages import find_text, text
from servemark.catalog.acceptance import as_measured, as_verified
from servemark.catalog.arms import Arm, SearchEntry, WorkerBlock
from servemark.catalog.identity import Identity
from servemark.catalog.nodes import Position
from servemark.catalog.suite import RecipeReading
from servemark.plan.reference_rows import DURATION_S, component_row


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why a point is in the plan, is evaluated or goes first; `key` names a message."""

    key: str
    values: tuple[tuple[str, object], ...] = ()

    def said(self, lang: str | None = None) -> str:
        """The reason in words."""
        return text(self.key, lang, **worded(dict(self.values), lang))

    def plain(self) -> dict[str, object]:
        """For machines: the code and its values."""
        return {"code": self.key.rpartition(".")[2], **dict(self.values)}


def worded(values: Mapping[str, object], lang: str | None = None) -> dict[str, object]:
    """Values of a reason for a sentence: the codes of a kind of point and of a prediction's class become words. Codes of
    another version stay as they are."""
    found = dict(values)
    for name, head in (("kind", "plan.kind."), ("klass", "plan.prune.by.")):
        if isinstance(found.get(name), str):
            found[name] = find_text(f"{head}{found[name]}", lang) or found[name]
    return found


def reason(key: str, **values: object) -> Reason:
    """A reason with its values."""
    return Reason(key, tuple(values.items()))


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One point to run. Figures are None where the suite does not say enough to know them."""

    arm: Arm
    entry: SearchEntry
    concurrency: int
    identity: Identity
    name: str
    """Distinct within the suite and fit for a file name. The reference's own names are shared by many points."""
    recipe: RecipeReading
    gpus: int
    """All GPUs of the deployment."""
    nodes: int | None
    dram_budget_gb: int
    """Host memory budget of one node for KV offload, GB of 10^9 bytes; 0 without offload."""
    why: tuple[Reason, ...]
    eval: tuple[Reason, ...] = ()
    """Why accuracy is scored on this point; () when it is not."""
    eval_only: bool = False
    canary: bool = False
    priority: float | None = None

    @property
    def kind(self) -> str:
        """`fixed-single`, `fixed-multi`, `agentic-single` or `agentic-multi`."""
        scenario = self.entry.scenario
        first = "agentic" if scenario is not None and scenario.kind == "agentic-coding" else "fixed"
        return f"{first}-{'single' if self.entry.single_node else 'multi'}"

    @property
    def counted_kind(self) -> str:
        """Kind of workload and nodes as counted, whatever form the entry has: `agentic-one`, `fixed-several`,
        `fixed-unknown`, ..."""
        nodes = "unknown" if self.nodes is None else "one" if self.nodes == 1 else "several"
        return f"{self.kind.partition('-')[0]}-{nodes}"

    @property
    def scored_apart(self) -> bool:
        """Acceptance is forced on this point: its accuracy needs a start of its own, with real verification."""
        deployment = self.recipe.deployment
        if deployment is None:
            return False
        measured = as_measured(self.entry, deployment)
        return as_verified(measured) is not measured

    @property
    def selector(self) -> str:
        """How this point is named on a command line: `ARM/TOPOLOGY@CONC`."""
        return f"{self.arm.key}/{self.entry.topology}@{self.concurrency}"

    @property
    def at(self) -> Position:
        """Where the search-space entry stands."""
        return self.entry.at

    def plain(self) -> dict[str, object]:
        """For machines: every field in snake_case; null where nothing is stated."""
        arm, entry = self.arm, self.entry
        scenario = entry.scenario
        router, backend = arm.router_of(entry), entry.kv_offload_backend
        deployment = self.recipe.deployment
        return {
            "point_id": self.identity.point_id,
            "series_id": self.identity.series_id,
            "selector": self.selector,
            "name": self.name,
            "arm": arm.key,
            "model": arm.model,
            "model_prefix": arm.model_prefix,
            "precision": arm.precision,
            "framework": arm.framework,
            "image": arm.image,
            "cluster": arm.runner,
            "scenario": scenario.kind if scenario is not None else None,
            "isl": scenario.isl if scenario is not None else None,
            "osl": scenario.osl if scenario is not None else None,
            "duration_s": DURATION_S if self.kind.startswith("agentic") else None,
            "topology": entry.topology,
            "concurrency": self.concurrency,
            "disagg": arm.disagg,
            "workers": {"prefill": _block(entry.prefill), "decode": _block(entry.decode)}
            if entry.decode.num_worker
            else {"aggregated": _block(entry.prefill)},
            "gpus": self.gpus,
            "nodes": self.nodes,
            "spec_decoding": entry.spec_decoding,
            "kv_offloading": entry.kv_offloading,
            "kv_offload_backend": component_row(backend) if backend is not None else None,
            "dram_budget_gb_per_node": self.dram_budget_gb,
            "router": component_row(router) if router is not None else None,
            "kv_p2p_transfer": arm.transfer_of(entry),
            "recipe": {
                "state": self.recipe.state,
                "setting": self.recipe.setting,
                "file": self.recipe.file,
                "fingerprint": self.identity.canonical["deployment"],
                "engine": deployment.engine if deployment is not None else None,
            },
            "eval": [one.plain() for one in self.eval],
            "eval_only": self.eval_only,
            "eval_start": bool(self.eval) and self.scored_apart,
            "canary": self.canary,
            "priority": self.priority,
            "why": [one.plain() for one in self.why],
            "at": str(self.at),
        }


def _block(block: WorkerBlock) -> dict[str, object]:
    return {
        "workers": block.num_worker,
        "tp": block.tp,
        "pp": block.pp,
        "ep": block.ep,
        "dcp": block.dcp_size,
        "pcp": block.pcp_size,
        "dp_attention": block.dp_attn,
        "gpus_per_worker": block.gpus,
        "hardware": block.hardware,
        "settings": [f"{name}={value}" for name, value in block.settings],
    }
