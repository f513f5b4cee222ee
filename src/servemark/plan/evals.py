"""Which points of servemark's own plan are scored for accuracy, and why: the reference's policy, point by
point."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace

from servemark.plan.reference_evals import EVAL_LENGTHS, MIN_EVAL_CONCURRENCY, EvalMode
from servemark.plan.rows import PlanRow, Reason, reason


def with_evals(rows: list[PlanRow], mode: EvalMode, keys: dict[int, str]) -> list[PlanRow]:
    """`rows` with eval reasons; `only` and `all` leave the evaluated points alone and mark them eval-only.

    `keys`: id of an entry -> what it runs apart from concurrency; entries of one key are one topology.
    """
    if mode == "none":
        return rows
    found: dict[int, list[Reason]] = defaultdict(list)
    by_kind: dict[str, list[PlanRow]] = defaultdict(list)
    for row in rows:
        by_kind[row.kind].append(row)
    topology: Callable[[PlanRow], Hashable] = lambda row: keys[id(row.entry)]  # noqa: E731 - one short key
    _stated(rows, found)
    if mode == "all":
        _all(rows, by_kind, topology, found)
    else:
        _fixed_single(by_kind["fixed-single"], found)
        _highest(filter(_long, by_kind["fixed-multi"]), topology, MIN_EVAL_CONCURRENCY, found)
        if mode == "only":
            _highest(by_kind["agentic-single"], _hardware, 1, found)
            _highest(by_kind["agentic-multi"], topology, MIN_EVAL_CONCURRENCY, found)
    for row in rows:
        if id(row) in found and row.scored_apart:
            found[id(row)].append(reason("plan.eval.verified"))
    marked = [replace(row, eval=tuple(found[id(row)])) if id(row) in found else row for row in rows]
    if mode == "marked":
        return marked
    return [replace(row, eval_only=True) for row in marked if row.eval]


def _all(
    rows: list[PlanRow],
    by_kind: dict[str, list[PlanRow]],
    topology: Callable[[PlanRow], Hashable],
    found: dict[int, list[Reason]],
) -> None:
    for row in rows:
        if row.kind == "agentic-single" or (row.kind.startswith("fixed") and _long(row)):
            found[id(row)].append(reason("plan.eval.all"))
    _highest(by_kind["agentic-multi"], topology, 1, found)


def _stated(rows: list[PlanRow], found: dict[int, list[Reason]]) -> None:
    """A recipe that names accuracy tasks itself is scored at every point."""
    for row in rows:
        deployment = row.recipe.deployment
        if deployment is not None and deployment.benchmark.evals:
            found[id(row)].append(reason("plan.eval.recipe"))


def _long(row: PlanRow) -> bool:
    scenario = row.entry.scenario
    return scenario is not None and (scenario.isl, scenario.osl) == EVAL_LENGTHS


def _hardware(row: PlanRow) -> Hashable:
    return row.arm.model, row.arm.runner, row.arm.framework, row.arm.precision


def _grouped(rows: Iterable[PlanRow], key: Callable[[PlanRow], Hashable]) -> list[list[PlanRow]]:
    groups: dict[Hashable, list[PlanRow]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return list(groups.values())


def _fixed_single(rows: list[PlanRow], found: dict[int, list[Reason]]) -> None:
    """Every point at the highest and at the median eligible concurrency of its group."""
    eligible = [row for row in rows if _long(row) and row.concurrency >= MIN_EVAL_CONCURRENCY]
    for group in _grouped(
        eligible, lambda row: (*_array(row), row.entry.spec_decoding, row.entry.prefill.dp_attn)
    ):
        levels = sorted({row.concurrency for row in group})
        for row in group:
            if row.concurrency == levels[-1]:
                found[id(row)].append(reason("plan.eval.highest", concurrency=row.concurrency))
            if row.concurrency == levels[len(levels) // 2]:
                found[id(row)].append(reason("plan.eval.median", concurrency=row.concurrency))


def _array(row: PlanRow) -> tuple[object, ...]:
    return row.arm.model, row.arm.runner, row.arm.framework, row.arm.precision


def _highest(
    rows: Iterable[PlanRow],
    key: Callable[[PlanRow], Hashable],
    least: int,
    found: dict[int, list[Reason]],
) -> None:
    """The first point at the highest concurrency of each group."""
    for group in _grouped((row for row in rows if row.concurrency >= least), key):
        best = max(group, key=lambda row: row.concurrency)
        found[id(best)].append(reason("plan.eval.highest", concurrency=best.concurrency))
