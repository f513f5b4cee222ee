"""A plan as a person reads it: a line that says it all, a table by cluster, points, and what is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence

from servemark.base.joined import clauses, in_list
from servemark.base.messages import text
from servemark.catalog.nodes import Problem, limited
from servemark.cli.text_table import columns_of, table, wrapped
from servemark.plan.rows import PlanRow
from servemark.plan.strict import Plan
from servemark.plan.summary import FIXED_HOURS, START_HOURS, Share, Summary

SHORT_PLAN = 30
"""Plans up to this many points are listed without being asked to."""
MAX_WIDTH = 140
RECIPE_STATES = ("read", "elsewhere", "faulty", "foreign", "none")


def diagnostic(problem: Problem) -> dict[str, object]:
    """One problem for machines."""
    error = problem.error()
    return {
        "severity": problem.severity,
        "code": problem.key,
        "file": problem.at.file,
        "line": problem.at.line,
        "column": problem.at.column,
        "message": text(problem.key, None, **problem.shown),
        "next": error.next_step(),
    }


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Errors first, then by file and place."""
    listed = sorted(problems, key=lambda p: (p.severity != "error", p.at.file, p.at.line, p.at.column))
    return limited(listed)


def diagnostics_lines(problems: Iterable[Problem]) -> list[str]:
    """Every problem with its position and what to do, errors first."""
    listed = in_order(problems)
    lines = []
    for problem in listed:
        error = problem.error()
        said = text(f"plan.severity.{problem.severity}")
        lines.append(f"{problem.at}: {said}: {text(problem.key, None, **problem.shown)}")
        step = error.next_step()
        if step:
            lines.append(f"    {text('plan.view.next', None, step=step)}")
    if listed:
        errors = sum(problem.severity == "error" for problem in listed)
        lines.append(text("plan.view.found", None, errors=errors, warnings=len(listed) - errors))
    return lines


def terminal_width() -> int:
    """Columns that a plan may take."""
    return min(shutil.get_terminal_size((100, 24)).columns, MAX_WIDTH)


def plan_lines(plan: Plan, summary: Summary, output: str) -> list[str]:
    """The plan for a terminal; `output` is `summary`, `list` or `text` (a list when it is short)."""
    width = terminal_width()
    total = summary.total
    head = text(
        "plan.view.head",
        None,
        suite=plan.suite.name,
        points=f"{total.points:,}",
        arms=total.arms,
        evals=total.evals,
        canaries=summary.canaries,
    )
    lines = wrapped(head, width, "")
    if total.points:
        lines += ["", *_cluster_table(summary, width)]
        lines.append("")
        for fact in _facts(plan, summary):
            lines += wrapped(fact, width, "")
    if total.points and (output == "list" or (output == "text" and total.points <= SHORT_PLAN)):
        lines += ["", *_points(plan.rows, width)]
    elif output == "text" and total.points:
        lines += ["", text("plan.view.more")]
    return lines


def _cluster_table(summary: Summary, width: int) -> list[str]:
    names = ("cluster", "arms", "points", "deployments", "evals", "gpus", "nodes", "hours")
    heads = [text(f"plan.column.{name}") for name in names]
    rows = [_share_cells(share) for share in summary.clusters]
    if len(rows) > 1:
        rows.append(_share_cells(summary.total))
    return table(heads, rows, width)


def _share_cells(share: Share) -> list[str]:
    nodes = "?" if share.largest_nodes is None else str(share.largest_nodes)
    return [
        share.cluster or text("plan.view.total"),
        str(share.arms),
        f"{share.points:,}",
        f"{share.deployments:,}",
        str(share.evals),
        str(share.largest_gpus),
        nodes,
        f"{share.gpu_hours:,.0f}",
    ]


def _facts(plan: Plan, summary: Summary) -> list[str]:
    recipes = [
        text(
            f"plan.recipe.{state}",
            None,
            recipes=summary.recipe_files.get(state, 0),
            points=summary.recipes[state],
        )
        for state in RECIPE_STATES
        if summary.recipes.get(state)
    ]
    lines = [
        text("plan.view.kinds", None, kinds=in_list(_spread(summary))),
        text("plan.view.recipes", None, recipes=clauses(recipes)),
    ]
    lines += _beyond(plan)
    reasons = [f"{text(f'{key}.short')} {count}" for key, count in summary.reasons.items()]
    lines.append(text("plan.view.why", None, reasons=in_list(reasons)))
    if plan.removed:
        lines.append(text("plan.view.removed", None, count=len(plan.removed)))
    minutes = {"fixed": int(FIXED_HOURS * 60), "start": int(START_HOURS * 60)}
    lines.append(text("plan.view.assumed", None, **minutes))
    return lines


def _beyond(plan: Plan) -> list[str]:
    """Arms that take more nodes than the clusters file counts behind their label: no run of them ever starts."""
    there = plan.suite.clusters.hardware
    found: dict[tuple[str, int, int], int] = {}
    for row in plan.rows:
        hardware = there.get(row.arm.runner)
        if hardware is not None and hardware.nodes is not None and (row.nodes or 0) > hardware.nodes:
            key = (row.arm.runner, row.nodes or 0, hardware.nodes)
            found[key] = found.get(key, 0) + 1
    return [
        text("plan.view.beyond", None, cluster=cluster, nodes=nodes, have=have, points=points)
        for (cluster, nodes, have), points in found.items()
    ]


def _spread(summary: Summary) -> list[str]:
    """Points by kind of workload and nodes counted; what an entry calls itself is no count."""
    found = sorted(summary.spread.items(), key=lambda each: (each[0][0], each[0][1] or 0))
    told = []
    for (kind, nodes), points in found:
        form = "unknown" if nodes is None else "one" if nodes == 1 else "more"
        told.append(
            text(f"plan.spread.{form}", None, kind=text(f"plan.spread.{kind}"), nodes=nodes, points=points)
        )
    return told


def _points(rows: Sequence[PlanRow], width: int) -> list[str]:
    """A table with each point's reasons below it where they change; two lines a point where names do not fit."""
    names = ["number", "point", "gpus", "nodes", "marks"]
    if any(row.priority is not None for row in rows):
        names.append("priority")
    heads = [text(f"plan.column.{name}") for name in names]
    cells = [_point_cells(number, row)[: len(names)] for number, row in enumerate(rows, 1)]
    figured = range(2, len(names))
    widest = max(columns_of(row.selector) for row in rows)
    others = sum(max(columns_of(row[i]) for row in [heads, *cells]) + 2 for i in (0, *figured))
    wide = widest + others <= width
    lines = table(heads, cells, width, flexible=1) if wide else []
    head, body = lines[:2], lines[2:]
    if not wide:
        body = [f"{number:>{len(str(len(rows)))}}  {row.selector}" for number, row in enumerate(rows, 1)]
    printed = list(head)
    last, repeated = None, False
    for line, row, cell in zip(body, rows, cells, strict=True):
        printed.append(line)
        why = clauses(dict.fromkeys(one.said() for one in (*row.why, *row.eval)))
        if not wide:
            figures = [f"{heads[i]} {cell[i]}" for i in figured if cell[i]]
            why = clauses([in_list(figures), why])
        if why != last:
            printed += wrapped(why, width, " " * 6)
        repeated |= why == last
        last = why
    legend = [text("plan.view.marks"), *([text("plan.view.same_reasons")] if repeated else [])]
    return [*printed, "", *legend]


def _point_cells(number: int, row: PlanRow) -> list[str]:
    marks = ("C" if row.canary else "") + ("E" if row.eval else "")
    nodes = "?" if row.nodes is None else str(row.nodes)
    priority = "" if row.priority is None else f"{row.priority:g}"
    return [str(number), row.selector, str(row.gpus), nodes, marks or "·", priority]
