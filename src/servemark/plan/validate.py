"""The last look at finished rows: what the reference changes after its own validation is checked after
everything here."""

from __future__ import annotations

from collections.abc import Iterator

from servemark.catalog.clusters import Clusters
from servemark.catalog.nodes import Problem
from servemark.plan.rows import PlanRow


def validated(rows: list[PlanRow], clusters: Clusters, problems: list[Problem]) -> list[PlanRow]:
    """Rows that hold what a plan promises; others are left out and noted as errors at their entry."""
    taken: dict[str, set[str]] = {"point_id": set(), "series_id": set(), "selector": set(), "name": set()}
    sound = []
    for row in rows:
        faults = [*_faults(row, clusters), *_taken(row, taken)]
        if faults:
            values: dict[str, object] = {"point": row.selector, "faults": ", ".join(faults)}
            problems.append(Problem(row.at, "plan.invalid_row", values))
        else:
            sound.append(row)
    return sound


def _faults(row: PlanRow, clusters: Clusters) -> Iterator[str]:
    """Names of the fields whose values cannot be."""
    if row.concurrency not in row.entry.concurrencies:
        yield "concurrency"
    if clusters.file is not None and row.arm.runner not in clusters.labels:
        yield "cluster"
    if row.gpus < 0:
        yield "gpus"
    if row.nodes is not None and row.nodes < 1:
        yield "nodes"
    if row.dram_budget_gb < 0:
        yield "dram_budget_gb_per_node"
    if row.eval_only and not row.eval:
        yield "eval_only"
    if row.identity.canonical["concurrency"] != row.concurrency:
        yield "point_id"
    if not row.why:
        yield "why"


def _taken(row: PlanRow, taken: dict[str, set[str]]) -> Iterator[str]:
    """Names of the fields that another row has with the same value; this row's are noted."""
    own = {
        "point_id": row.identity.point_id,
        "series_id": row.identity.series_id,
        "selector": row.selector,
        "name": row.name,
    }
    for name, value in own.items():
        if value in taken[name]:
            yield name
        taken[name].add(value)
