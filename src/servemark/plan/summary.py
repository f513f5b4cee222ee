"""What a plan asks for: points, deployments, GPUs, nodes and estimated GPU-hours, by cluster and in all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from servemark.plan.rows import PlanRow
from servemark.plan.strict import Plan

AGENTIC_HOURS = 1.0
"""An agentic point replays for 3600 s."""
FIXED_HOURS = 0.25
"""Assumed: a fixed-sequence point takes a quarter of an hour."""
START_HOURS = 0.25
"""Assumed: a deployment is up after a quarter of an hour."""


@dataclass(frozen=True, slots=True)
class Share:
    """Figures of one cluster, or of all. Hours are estimates; `nodes` is None when no row's nodes are
    known."""

    cluster: str | None
    arms: int
    points: int
    deployments: int
    evals: int
    largest_gpus: int
    largest_nodes: int | None
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class Summary:
    """A plan in numbers."""

    total: Share
    clusters: tuple[Share, ...]
    kinds: dict[str, int]
    """By the form of the entry, which says `multinode` for one worker on one node too."""
    spread: dict[tuple[str, int | None], int]
    """(`agentic` or `fixed`, nodes counted or None where they are not known) -> points."""
    recipes: dict[str, int]
    """State of a point's recipe -> points."""
    recipe_files: dict[str, int]
    """State -> distinct recipes; a state that has none is absent."""
    reasons: dict[str, int]
    """Message key of a reason -> points that have it."""
    canaries: int

    def plain(self) -> dict[str, object]:
        """For machines, with the assumptions behind the estimate."""
        return {
            "total": _plain(self.total),
            "clusters": [_plain(share) for share in self.clusters],
            "kinds": self.kinds,
            "recipes": self.recipes,
            "reasons": {key.rpartition(".")[2]: count for key, count in self.reasons.items()},
            "canaries": self.canaries,
            "assumed_hours": {
                "agentic_point": AGENTIC_HOURS,
                "fixed_point": FIXED_HOURS,
                "start_of_a_deployment": START_HOURS,
            },
        }


def _plain(share: Share) -> dict[str, object]:
    return {
        "cluster": share.cluster,
        "arms": share.arms,
        "points": share.points,
        "deployments": share.deployments,
        "evals": share.evals,
        "largest_gpus": share.largest_gpus,
        "largest_nodes": share.largest_nodes,
        "gpu_hours_estimate": round(share.gpu_hours, 2),
    }


def summarize(plan: Plan) -> Summary:
    """The figures of a plan."""
    by_cluster: dict[str, list[PlanRow]] = defaultdict(list)
    for row in plan.rows:
        by_cluster[row.arm.runner].append(row)
    shares = [_share(name, rows) for name, rows in by_cluster.items()]
    shares.sort(key=lambda share: (-share.gpu_hours, share.cluster or ""))
    return Summary(
        total=_share(None, plan.rows),
        clusters=tuple(shares),
        kinds=dict(Counter(row.kind for row in plan.rows)),
        spread=dict(Counter((row.kind.partition("-")[0], row.nodes) for row in plan.rows)),
        recipes=dict(Counter(row.recipe.state for row in plan.rows)),
        recipe_files=dict(Counter(state for state, _ in _recipes(plan.rows))),
        reasons=dict(Counter(why.key for row in plan.rows for why in row.why)),
        canaries=sum(row.canary for row in plan.rows),
    )


def _recipes(rows: Iterable[PlanRow]) -> set[tuple[str, str]]:
    """(state, file or setting) of every recipe that a point names, once."""
    named = ((row.recipe.state, row.recipe.file or row.recipe.setting) for row in rows)
    return {(state, name) for state, name in named if name}


def _share(cluster: str | None, rows: Iterable[PlanRow]) -> Share:
    rows = list(rows)
    starts: dict[object, int] = {}
    hours = 0.0
    for row in rows:
        # A multi-node fixed-sequence entry is one allocation for its whole list; all else starts each point.
        start = id(row.entry) if row.kind == "fixed-multi" else row.identity.point_id
        starts[start] = row.gpus
        if row.eval and row.scored_apart:
            starts["scored", start] = row.gpus
        hours += row.gpus * (AGENTIC_HOURS if row.kind.startswith("agentic") else FIXED_HOURS)
    hours += START_HOURS * sum(starts.values())
    nodes = [row.nodes for row in rows if row.nodes is not None]
    return Share(
        cluster=cluster,
        arms=len({row.arm.key for row in rows}),
        points=len(rows),
        deployments=len(starts),
        evals=sum(bool(row.eval) for row in rows),
        largest_gpus=max((row.gpus for row in rows), default=0),
        largest_nodes=max(nodes, default=None),
        gpu_hours=hours,
    )
