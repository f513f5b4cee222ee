"""servemark's own plan: points with ids, exact duplicates removed and reported, names distinct, facts
checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from servemark.base.collector import uncollected
from servemark.catalog.acceptance import as_measured
from servemark.catalog.arms import Arm, SearchEntry
from servemark.catalog.fields import Fields, nearest
from servemark.catalog.identity import Identity, identify_line
from servemark.catalog.nodes import Problem
from servemark.catalog.priorities import Priorities
from servemark.catalog.suite import RecipeReading, Suite
from servemark.plan.evals import with_evals
from servemark.plan.reference_evals import EvalMode
from servemark.plan.reference_rows import DURATION_S, dram_budget_gb
from servemark.plan.rows import PlanRow, Reason, reason
from servemark.plan.selection import Selection
from servemark.plan.validate import validated

if TYPE_CHECKING:
    from servemark.catalog.deployment import Deployment

Scenario = dict[str, object]
ScenarioOf = Callable[[SearchEntry, "Deployment | None"], Scenario]
Why = Callable[[Arm, SearchEntry], "tuple[Reason, ...] | None"]


@dataclass(frozen=True, slots=True)
class Removed:
    """A point that would have run the same work a second time."""

    row: PlanRow
    kept: PlanRow


@dataclass(frozen=True, slots=True)
class Plan:
    """Rows in the order in which they run, what was left out, and everything that was found wrong."""

    suite: Suite
    rows: tuple[PlanRow, ...]
    removed: tuple[Removed, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is planned and how it is ordered."""

    selection: Selection = field(default_factory=Selection)
    evals: EvalMode = "marked"
    canary: bool = True
    priorities: Priorities | None = None
    scenario_of: ScenarioOf | None = None
    """Gives what is replayed where the caller knows more than the suite says (data set, cache policy)."""
    why: Why | None = None
    """Gives the reasons of an entry; None leaves the entry out."""


def plan_suite(suite: Suite, wishes: Wishes) -> Plan:
    """The plan of a suite. ServemarkError (exit 2) for a filter value that nothing in the suite has."""
    problems: list[Problem] = []
    maker = _Maker(suite, wishes, problems)
    with uncollected():
        rows = maker.rows(wishes.selection.arms(suite))
    kept, removed = maker.without_duplicates(rows)
    kept = with_evals(kept, wishes.evals, maker.work)
    if wishes.priorities is not None:
        scores = wishes.priorities
        kept = [replace(row, priority=scores.score(row.arm, row.entry)) for row in kept]
        kept.sort(key=lambda row: -(row.priority or 0.0))
    if wishes.canary:
        kept = _canaries_first(kept)
    kept = validated(kept, suite.clusters, problems)
    return Plan(suite, tuple(kept), tuple(removed), tuple(problems))


def plain_scenario(entry: SearchEntry, deployment: Deployment | None) -> Scenario:
    """What the suite itself says of what is replayed."""
    scenario = entry.scenario
    if scenario is None or scenario.kind == "agentic-coding":
        return {"type": "agentic-coding", "duration_s": DURATION_S}
    return {"type": scenario.kind, "isl": scenario.isl, "osl": scenario.osl}


class _Maker:
    """Turns entries into rows; reads each recipe once and notes each of its problems once."""

    def __init__(self, suite: Suite, wishes: Wishes, problems: list[Problem]) -> None:
        self.suite = suite
        self.wishes = wishes
        self.problems = problems
        self.work: dict[int, str] = {}
        """id of an entry -> what it runs, concurrency and arm left out."""
        self.reported: set[str] = set()
        self.fingerprints: dict[int, str] = {}

    def rows(self, arms: Iterable[Arm]) -> list[PlanRow]:
        found: list[PlanRow] = []
        for arm in arms:
            if self._cluster_is_known(arm):
                for entry in arm.entries:
                    if self.wishes.selection.takes_entry(entry):
                        found += self._entry(arm, entry)
        return found

    def _cluster_is_known(self, arm: Arm) -> bool:
        clusters = self.suite.clusters
        if clusters.file is None or arm.runner in clusters.labels:
            return True
        prefixed = f"cluster:{arm.runner}"
        near = prefixed if prefixed in clusters.labels else nearest(arm.runner, clusters.labels)
        key = "plan.unknown_cluster_near" if near else "plan.unknown_cluster"
        at = Fields(arm.node, [], "").at("runner") if arm.node is not None else arm.at
        values: dict[str, object] = {
            "arm": arm.key,
            "runner": arm.runner,
            "near": near,
            "file": clusters.file,
        }
        self.problems.append(Problem(at, key, values))
        return False

    def _entry(self, arm: Arm, entry: SearchEntry) -> list[PlanRow]:
        selection = self.wishes.selection
        concurrencies = [value for value in entry.concurrencies if selection.takes_concurrency(value)]
        if not concurrencies:
            return []
        why = self.wishes.why(arm, entry) if self.wishes.why is not None else ()
        if why is None:
            return []
        budget = dram_budget_gb(arm, entry, self.suite.clusters, self.problems)
        if budget is None:
            return []
        recipe = self.suite.recipe(entry)
        if recipe.setting is not None and recipe.setting not in self.reported:
            self.reported.add(recipe.setting)
            self.problems += recipe.problems
        gpus, nodes = self._sizes(arm, entry, recipe.deployment)
        why = (*why, *self._listed(entry))
        return [
            PlanRow(
                arm,
                entry,
                concurrency,
                identity,
                f"{arm.key}_{entry.topology}_c{concurrency}",
                recipe,
                gpus,
                nodes,
                budget,
                why,
            )
            for concurrency, identity in zip(
                concurrencies, self._identities(arm, entry, recipe, concurrencies), strict=True
            )
        ]

    @staticmethod
    def _listed(entry: SearchEntry) -> tuple[Reason, ...]:
        if entry.conc_range is None:
            return (reason("plan.why.listed"),)
        start, end = entry.conc_range
        return (reason("plan.why.range", start=start, end=end),)

    def _identities(
        self, arm: Arm, entry: SearchEntry, recipe: RecipeReading, concurrencies: list[int]
    ) -> list[Identity]:
        deployment = recipe.deployment
        fingerprint = None
        if deployment is not None:
            measured = as_measured(entry, deployment)
            if measured is not deployment:  # the entry's own, and exactly what will run
                fingerprint = measured.fingerprint()
        if deployment is not None and fingerprint is None:
            fingerprint = self.fingerprints.get(id(deployment))
            if fingerprint is None:
                fingerprint = self.fingerprints[id(deployment)] = deployment.fingerprint()
        scenario = (self.wishes.scenario_of or plain_scenario)(entry, deployment)
        found = identify_line(self.suite.name, arm, entry, deployment, scenario, concurrencies, fingerprint)
        own = {k: v for k, v in found[0].canonical.items() if k not in {"arm", "concurrency"}}
        self.work[id(entry)] = repr(own)  # always made in one order, and cheaper than JSON
        return found

    def _sizes(self, arm: Arm, entry: SearchEntry, deployment: Deployment | None) -> tuple[int, int | None]:
        """All GPUs, and nodes where they are stated or follow from whole nodes of known size."""
        blocks = [(b.num_worker, b.gpus) for b in (entry.prefill, entry.decode) if b.num_worker]
        if deployment is not None:
            return deployment.gpus_total, deployment.nodes_taken or None
        gpus = sum(workers * size for workers, size in blocks)
        stated = [entry.prefill.setting("PREFILL_NODES"), entry.decode.setting("DECODE_NODES")]
        if all(value is not None and value.isascii() and value.isdigit() for value in stated):
            return gpus, sum(int(value[:6]) for value in stated if value is not None)
        hardware = self.suite.clusters.hardware.get(arm.runner)
        if entry.single_node:
            return gpus, 1
        if hardware is None:
            return gpus, None
        return gpus, sum(workers * -(-size // hardware.gpus_per_node) for workers, size in blocks)

    def without_duplicates(self, rows: list[PlanRow]) -> tuple[list[PlanRow], list[Removed]]:
        """Rows that run the same work at the same concurrency are one; which arm states it is no
        difference."""
        first: dict[tuple[str, int], PlanRow] = {}
        removed: list[Removed] = []
        for row in rows:
            kept = first.setdefault((self.work[id(row.entry)], row.concurrency), row)
            if kept is not row:
                removed.append(Removed(row, kept))
                values: dict[str, object] = {
                    "point": row.selector,
                    "kept": kept.selector,
                    "other": str(kept.at),
                }
                self.problems.append(Problem(row.at, "plan.duplicate", values, "warning"))
        return list(first.values()), removed


def _canaries_first(rows: list[PlanRow]) -> list[PlanRow]:
    """Of every kind of work on one node or several the cheapest point (GPUs, then concurrency, then prompt) goes first."""
    cheapest: dict[str, PlanRow] = {}
    for row in rows:
        kept = cheapest.get(row.counted_kind)
        if kept is None or _cost(row) < _cost(kept):
            cheapest[row.counted_kind] = row
    chosen = {id(row) for row in cheapest.values()}
    first = [
        replace(row, canary=True, why=(*row.why, reason("plan.why.canary", kind=row.counted_kind)))
        for row in rows
        if id(row) in chosen
    ]
    return first + [row for row in rows if id(row) not in chosen]


def _cost(row: PlanRow) -> tuple[int, int, int]:
    scenario = row.entry.scenario
    return row.gpus, row.concurrency, (scenario.isl or 0) if scenario is not None else 0
