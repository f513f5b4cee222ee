"""`servemark plan`: what a suite asks to be run, in which order and why."""

from __future__ import annotations

import gc
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.errors import input_error
from servemark.cli.options import Finite, Verb, common

if TYPE_CHECKING:
    from servemark.catalog.nodes import Problem
    from servemark.catalog.priorities import Priorities
    from servemark.catalog.suite import Suite
    from servemark.cli.plan_predict import PlanPredictions
    from servemark.plan.changed import Base
    from servemark.plan.reference_evals import EvalMode
    from servemark.plan.rows import PlanRow
    from servemark.plan.selection import Selection
    from servemark.plan.strict import Plan
    from servemark.predict.pruning import PruneRules


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line, beyond the filters."""

    evals: EvalMode
    changed_since: str | None
    changelog: tuple[str, str] | None
    priorities: Path | None
    canary: bool
    output: str
    """`json`, `reference`, `summary`, `list` or `text`."""
    predict: bool = False
    """Predictions are wanted where the home has measured anything."""
    prune: PruneRules | None = None
    card: str | None = None
    home: str | None = None


def _names(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Repeated options and comma-separated values alike."""
    return tuple(part for one in value for part in one.split(",") if part)


@click.command(cls=Verb, name="plan")
@click.argument("suite", required=False, default=".")
@click.option("--keys", multiple=True, metavar="KEY,...", callback=_names, help="plan.option.keys")
@click.option("--model", multiple=True, metavar="NAME,...", callback=_names, help="plan.option.model")
@click.option("--precision", multiple=True, metavar="NAME,...", callback=_names, help="plan.option.precision")
@click.option("--framework", multiple=True, metavar="NAME,...", callback=_names, help="plan.option.framework")
@click.option("--cluster", multiple=True, metavar="LABEL,...", callback=_names, help="plan.option.cluster")
@click.option("--scenario", multiple=True, metavar="NAME,...", callback=_names, help="plan.option.scenario")
@click.option("--topology", multiple=True, metavar="NAME,...", callback=_names, help="plan.option.topology")
@click.option("--conc", metavar="N|N-M,...", help="plan.option.conc")
@click.option("--changed-since", metavar="GITREF", help="plan.option.changed_since")
@click.option("--changelog", nargs=2, metavar="BASE HEAD", help="plan.option.changelog")
@click.option("--priorities", type=click.Path(path_type=Path), metavar="FILE", help="plan.option.priorities")
@click.option("--no-evals", is_flag=True, help="plan.option.no_evals")
@click.option("--evals-only", is_flag=True, help="plan.option.evals_only")
@click.option("--all-evals", is_flag=True, help="plan.option.all_evals")
@click.option("--no-canary", is_flag=True, help="plan.option.no_canary")
@click.option("--summary", is_flag=True, help="plan.option.summary")
@click.option("--list", "as_list", is_flag=True, help="plan.option.list")
@click.option("--prune", is_flag=True, help="plan.option.prune")
@click.option("--prune-share", type=Finite(0, 1), metavar="SHARE", help="plan.option.prune_share")
@click.option("--prune-seed", type=click.IntRange(0, 2**31), metavar="N", help="plan.option.prune_seed")
@click.option(
    "--prune-also", multiple=True, type=click.Choice(["one_anchor", "none"]), help="plan.option.prune_also"
)
@click.option("--card", metavar="NAME|FILE", help="plan.option.card")
@click.option("--format", "form", type=click.Choice(["servemark", "reference"]), help="plan.option.format")
@common
def plan(suite: str, home: str | None, as_json: bool, **options: object) -> int:
    """Read a suite and print its plan."""
    gc.disable()  # a short process whose trees are all in use until its end
    selection = _selection(options)
    asked = replace(_asked(options, as_json=as_json), home=home)
    from servemark.catalog.suite import read_suite  # noqa: PLC0415 - help needs no reader

    found, problems = read_suite(suite)
    show = _reference if asked.output == "reference" else _own
    code = show(found, problems, selection, asked)
    gc.freeze()  # nothing is searched for cycles at exit
    return code


def _selection(options: dict[str, object]) -> Selection:
    from servemark.plan.selection import Selection, parse_concurrencies  # noqa: PLC0415

    conc = options["conc"]

    def names(option: str) -> tuple[str, ...]:
        value = options[option]
        return value if isinstance(value, tuple) else ()

    return Selection(
        keys=names("keys"),
        models=names("model"),
        precisions=names("precision"),
        frameworks=names("framework"),
        clusters=names("cluster"),
        scenarios=names("scenario"),
        topologies=names("topology"),
        concurrencies=parse_concurrencies(conc) if isinstance(conc, str) else (),
    )


def _asked(options: dict[str, object], *, as_json: bool) -> Asked:
    none, only, every = (bool(options[name]) for name in ("no_evals", "evals_only", "all_evals"))
    if none and (only or every):
        other = "--evals-only" if only else "--all-evals"
        raise input_error("plan.contrary_options", first="--no-evals", second=other)
    evals: EvalMode = "none" if none else "all" if every else "only" if only else "marked"
    reference = options["form"] == "reference"
    if options["card"] is not None and not (options["summary"] or options["prune"]):
        raise input_error("plan.card_needs", option="--card")
    changelog, since = options["changelog"], options["changed_since"]
    if changelog is not None and not reference:
        raise input_error("plan.needs_reference", option="--changelog")
    if changelog is not None and since is not None:
        raise input_error("plan.contrary_options", first="--changelog", second="--changed-since")
    priorities = options["priorities"]
    output = "reference" if reference else "json" if as_json else "text"
    if output == "text" and (options["summary"] or options["as_list"]):
        output = "summary" if options["summary"] else "list"
    return Asked(
        evals=evals,
        changed_since=since if isinstance(since, str) else None,
        changelog=(str(changelog[0]), str(changelog[1])) if isinstance(changelog, tuple) else None,
        priorities=priorities if isinstance(priorities, Path) else None,
        canary=not options["no_canary"],
        output=output,
        predict=bool(options["summary"] or options["prune"]),
        prune=_pruning(options, reference=reference),
        card=options["card"] if isinstance(options["card"], str) else None,
    )


def _pruning(options: dict[str, object], *, reference: bool) -> PruneRules | None:
    """How to prune; None where nothing is to be pruned."""
    share, seed, also = options["prune_share"], options["prune_seed"], options["prune_also"]
    if not options["prune"]:
        for name, given in (("--prune-share", share), ("--prune-seed", seed), ("--prune-also", also or None)):
            if given is not None:
                raise input_error("plan.prune.needs_prune", option=name)
        return None
    if reference:
        raise input_error("plan.prune.needs_own", option="--prune")
    from servemark.cli.plan_predict import prune_rules  # noqa: PLC0415 - a plan without it needs none

    classes = also if isinstance(also, tuple) else ()
    return prune_rules(
        classes, share if isinstance(share, float) else None, seed if isinstance(seed, int) else None
    )


def _own(suite: Suite, problems: list[Problem], selection: Selection, asked: Asked) -> int:
    from servemark.cli.plan_view import diagnostic, diagnostics_lines, in_order, plan_lines  # noqa: PLC0415
    from servemark.plan.strict import Wishes, plan_suite  # noqa: PLC0415
    from servemark.plan.summary import summarize  # noqa: PLC0415
    from servemark.runs.scenario import planned_scenario  # noqa: PLC0415

    base = _base(suite, asked, problems)
    wishes = Wishes(
        selection=selection,
        evals=asked.evals,
        canary=asked.canary,
        priorities=_priorities(suite, asked, problems),
        why=base.why if base is not None else None,
        scenario_of=lambda entry, deployment: planned_scenario(suite, entry, deployment),
    )
    reading_failed = any(problem.severity == "error" for problem in problems)
    made = plan_suite(suite, wishes)
    problems = [*problems, *made.problems]
    found = _predictions(made.rows, asked)
    whole, made = (
        made,
        replace(made, rows=tuple(row for row in made.rows if found is None or found.runs(row))),
    )
    summary = summarize(made)
    if asked.output == "json":
        more = {} if found is None else {"predicted": found.plain()}
        body = {
            "suite": suite.name,
            "root": str(suite.root),
            "summary": summary.plain() | more,
            "points": [_row(row, found) for row in made.rows],
            "pruned": [_row(row, found) for row in whole.rows if found is not None and not found.runs(row)],
            "removed": [
                {"selector": r.row.selector, "kept": r.kept.selector, "at": str(r.row.at)}
                for r in made.removed
            ],
            "diagnostics": [diagnostic(problem) for problem in in_order(problems)],
        }
        click.echo(json.dumps(body, ensure_ascii=False, allow_nan=False))
    else:
        for line in plan_lines(made, summary, asked.output):
            click.echo(line)
        _say_predictions(found, whole, asked)
        for line in diagnostics_lines(problems):
            click.echo(line, err=True)
    return _exit_code(problems, reading_failed=reading_failed)


def _predictions(rows: Sequence[PlanRow], asked: Asked) -> PlanPredictions | None:
    if not asked.predict:
        return None
    from servemark.cli.plan_predict import predictions_of  # noqa: PLC0415 - a plan without it needs none

    return predictions_of(rows, asked.home, asked.card, asked.prune)


def _row(row: PlanRow, found: PlanPredictions | None) -> dict[str, object]:
    return row.plain() if found is None else row.plain() | found.plain_row(row)


def _say_predictions(found: PlanPredictions | None, whole: Plan, asked: Asked) -> None:
    if found is None:
        return
    from servemark.cli.plan_predict import prediction_lines, pruned_lines  # noqa: PLC0415
    from servemark.cli.plan_view import terminal_width  # noqa: PLC0415

    width = terminal_width()
    lines = ["", *prediction_lines(found, width)]
    if asked.prune is not None:
        lines += ["", *pruned_lines(found, whole.rows, width)]
    for line in lines:
        click.echo(line)


def _exit_code(problems: list[Problem], *, reading_failed: bool) -> int:
    if reading_failed:
        return 2
    return 1 if any(problem.severity == "error" for problem in problems) else 0


def _reference(suite: Suite, problems: list[Problem], selection: Selection, asked: Asked) -> int:
    """Rows exactly as the reference prints them; nothing at all when a file has errors."""
    from servemark.cli.plan_view import diagnostics_lines  # noqa: PLC0415
    from servemark.plan.reference_evals import mark_evals  # noqa: PLC0415
    from servemark.plan.reference_select import selected_rows  # noqa: PLC0415

    failed = any(problem.severity == "error" for problem in problems)
    text: str | None = None
    if not failed and asked.changelog is not None:
        text = json.dumps(_buckets(suite, asked.changelog, problems), separators=(",", ":"))
    elif not failed:
        base = _base(suite, asked, problems)
        rows = selected_rows(suite, selection, problems, base.why if base is not None else None)
        text = json.dumps(mark_evals(rows, asked.evals))
    for line in diagnostics_lines(problems):
        click.echo(line, err=True)
    if text is None or any(problem.severity == "error" for problem in problems):
        return 2
    click.echo(text)
    return 0


def _base(suite: Suite, asked: Asked, problems: list[Problem]) -> Base | None:
    if asked.changed_since is None:
        return None
    from servemark.plan.changed import base_of  # noqa: PLC0415

    return base_of(suite, asked.changed_since, problems)


def _priorities(suite: Suite, asked: Asked, problems: list[Problem]) -> Priorities | None:
    if asked.priorities is None:
        return suite.priorities(problems)
    from servemark.catalog.priorities import priorities_of  # noqa: PLC0415
    from servemark.catalog.yaml_nodes import read_yaml  # noqa: PLC0415

    root, found = read_yaml(asked.priorities, str(asked.priorities))
    problems += found
    return priorities_of(root, problems)


def _buckets(suite: Suite, refs: tuple[str, str], problems: list[Problem]) -> dict[str, object]:
    from servemark.catalog.changelog import additions  # noqa: PLC0415
    from servemark.plan.reference_changelog import changelog_buckets  # noqa: PLC0415

    base, base_suite = _changelog_side(suite, refs[0], problems)
    head, _ = _changelog_side(suite, refs[1], [])
    shown = suite.layout.changelog if suite.layout is not None and suite.layout.changelog else refs[1]
    entries, found = additions(base, head, shown)
    problems += found
    return changelog_buckets(suite, entries, refs, problems, base_suite)


def _changelog_side(suite: Suite, name: str, problems: list[Problem]) -> tuple[bytes, Suite | None]:
    """One side of a change: a changelog file (also gzipped), or the suite's changelog at a git reference."""
    path = Path(name)
    if path.exists():
        import gzip  # noqa: PLC0415
        import zlib  # noqa: PLC0415

        from servemark.catalog.yaml_nodes import MAX_BYTES, read_bytes  # noqa: PLC0415

        data = read_bytes(path, name)
        if path.suffix != ".gz":
            return data, None
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                data = stream.read(MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise input_error("catalog.unreadable", path=name, reason=str(error)) from error
        if len(data) > MAX_BYTES:
            raise input_error("catalog.too_large", path=name, size=len(data), limit=MAX_BYTES)
        return data, None
    from servemark.plan.changed import base_of  # noqa: PLC0415

    base = base_of(suite, name, problems)
    changelog = suite.layout.changelog if suite.layout is not None else None
    if changelog is None:
        raise input_error("plan.no_changelog", suite=suite.name)
    return base.tree.read(changelog) or b"", base.as_suite()
