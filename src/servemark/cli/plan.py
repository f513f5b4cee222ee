"""`servemark plan`: what a suite asks to be run, in which order and why."""

from __future__ import annotations

import gc
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.errors import input_error
from servemark.cli.options import Verb, common

if TYPE_CHECKING:
    from servemark.catalog.nodes import Problem
    from servemark.catalog.priorities import Priorities
    from servemark.catalog.suite import Suite
    from servemark.plan.changed import Base
    from servemark.plan.reference_evals import EvalMode
    from servemark.plan.selection import Selection


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
@click.option("--format", "form", type=click.Choice(["servemark", "reference"]), help="plan.option.format")
@common
def plan(suite: str, home: str | None, as_json: bool, **options: object) -> int:
    """Read a suite and print its plan."""
    del home  # nothing is written
    gc.disable()  # a short process whose trees are all in use until its end
    selection = _selection(options)
    asked = _asked(options, as_json=as_json)
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
    summary = summarize(made)
    if asked.output == "json":
        body = {
            "suite": suite.name,
            "summary": summary.plain(),
            "points": [row.plain() for row in made.rows],
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
        for line in diagnostics_lines(problems):
            click.echo(line, err=True)
    return _exit_code(problems, reading_failed=reading_failed)


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
