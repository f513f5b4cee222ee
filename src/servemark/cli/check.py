"""`servemark check`: everything in a suite that contradicts something else in it."""

from __future__ import annotations

import gc
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.cli.options import Verb, common

if TYPE_CHECKING:
    from servemark.checks.check import Report, Wishes
    from servemark.checks.places import Places

FORMATS = ("text", "json", "sarif", "github", "junit", "markdown")
MAX_WIDTH = 140
_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan", "place": "blue", "caret": "green"}


@dataclass(frozen=True, slots=True)
class Asked:
    """How a report is shown and what decides the exit code."""

    form: str
    notes: bool
    strict: bool
    bilingual: bool
    baseline: Path | None


def _names(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part for one in value for part in one.split(",") if part)


@click.command(cls=Verb, name="check")
@click.argument("suite", required=False, default=".")
@click.option("--arm", multiple=True, metavar="KEY,...", callback=_names, help="cli.check.arm")
@click.option("--select", multiple=True, metavar="CODE,...", callback=_names, help="cli.check.select")
@click.option("--ignore", multiple=True, metavar="CODE,...", callback=_names, help="cli.check.ignore")
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", help="cli.check.format")
@click.option("--notes", is_flag=True, help="cli.check.notes")
@click.option("--strict", is_flag=True, help="cli.check.strict")
@click.option("--bilingual", is_flag=True, help="cli.check.bilingual")
@click.option("--baseline", type=click.Path(path_type=Path), metavar="FILE", help="cli.check.baseline")
@click.option(
    "--write-baseline", type=click.Path(path_type=Path), metavar="FILE", help="cli.check.write_baseline"
)
@click.option("--changed-since", metavar="GITREF", help="cli.check.changed_since")
@click.option("--fix", is_flag=True, help="cli.check.fix")
@click.option("--diff", is_flag=True, help="cli.check.diff")
@click.option("--unsafe", is_flag=True, help="cli.check.unsafe")
@click.option("--watch", is_flag=True, help="cli.check.watch")
@common
def check(suite: str, home: str | None, as_json: bool, **options: object) -> int:
    """Check and report; texts come from the catalogue."""
    del home  # nothing is kept
    gc.disable()  # a short process whose trees are all in use until its end
    from servemark.checks.check import Wishes  # noqa: PLC0415 - help needs no rule

    def names(option: str) -> tuple[str, ...]:
        value = options[option]
        return value if isinstance(value, tuple) else ()

    def path(option: str) -> Path | None:
        value = options[option]
        return value if isinstance(value, Path) else None

    wishes = Wishes(names("arm"), names("select"), names("ignore"))
    asked = Asked(
        form="json" if as_json else str(options["form"]),
        notes=bool(options["notes"]),
        strict=bool(options["strict"]),
        bilingual=bool(options["bilingual"]),
        baseline=path("baseline"),
    )
    since = options["changed_since"]
    if options["watch"]:
        return _watch(suite, wishes, asked)
    report = _report(suite, wishes, since if isinstance(since, str) else None)
    out = path("write_baseline")
    if out is not None:
        return _write_baseline(out, report)
    if options["fix"] or options["diff"]:
        return _fix(report, asked, diff=bool(options["diff"]), unsafe=bool(options["unsafe"]))
    code = show(report, asked)
    gc.freeze()  # nothing is searched for cycles at exit
    return code


def _report(suite: str, wishes: Wishes, since: str | None) -> Report:
    from servemark.catalog.suite import read_suite  # noqa: PLC0415
    from servemark.checks.check import check_read  # noqa: PLC0415

    found, problems = read_suite(suite)
    if since is not None:
        from servemark.plan.changed import base_of  # noqa: PLC0415 - only here is git asked

        base = base_of(found, since, problems)
        changed = {
            arm.key
            for arm in found.arms.values()
            if any(base.why(arm, entry) is not None for entry in arm.entries)
        }
        wishes = replace(wishes, only=frozenset(changed))
    return check_read(found, problems, wishes)


def show(report: Report, asked: Asked) -> int:
    """Print a report; gives the exit code."""
    from servemark.checks.places import Places  # noqa: PLC0415

    places = Places.of(report.suite)
    known = 0
    if asked.baseline is not None:
        from servemark.checks.suppress import new_since  # noqa: PLC0415

        left, known = new_since(asked.baseline, report.findings)
        report = replace(report, findings=tuple(left))
    if asked.form == "text":
        _text(report, places, asked, known)
    else:
        _machine(report, places, asked)
    if report.read_failed:
        return 2
    failed = report.count("error") or (asked.strict and report.count("warning"))
    return 1 if failed else 0


def _text(report: Report, places: Places, asked: Asked, known: int) -> None:
    from servemark.checks.text_view import report_lines  # noqa: PLC0415

    width = min(shutil.get_terminal_size((100, 24)).columns, MAX_WIDTH)

    def paint(said: str, role: str) -> str:
        if role == "faint":
            return click.style(said, dim=True)
        return click.style(said, fg=_COLOURS.get(role), bold=role in {"error", "warning", "caret"})

    for line in report_lines(report, places, width, paint, notes=asked.notes, known=known):
        click.echo(line)


def _machine(report: Report, places: Places, asked: Asked) -> None:
    from servemark import __version__  # noqa: PLC0415
    from servemark.checks import machine_view as machine  # noqa: PLC0415

    findings = report.findings
    if asked.form == "sarif":
        click.echo(machine.sarif(findings, places, __version__))
    elif asked.form == "junit":
        click.echo(machine.junit(findings, places))
    else:
        lines = {
            "json": lambda: machine.json_lines(findings, places),
            "github": lambda: machine.github(
                [f for f in findings if asked.notes or f.severity != "note"], places
            ),
            "markdown": lambda: machine.review(findings, places, bilingual=asked.bilingual),
        }[asked.form]()
        for line in lines:
            click.echo(line)


def _write_baseline(path: Path, report: Report) -> int:
    from servemark.base.messages import text  # noqa: PLC0415
    from servemark.checks.suppress import write_baseline  # noqa: PLC0415

    count = write_baseline(path, report.findings)
    click.echo(text("cli.check.baseline_written", None, count=count, path=str(path)))
    return 0


def _fix(report: Report, asked: Asked, *, diff: bool, unsafe: bool) -> int:
    from servemark.base.messages import text  # noqa: PLC0415
    from servemark.checks.fixes import edits_for  # noqa: PLC0415
    from servemark.checks.places import Places  # noqa: PLC0415

    edited, skipped = edits_for(report.findings, Places.of(report.suite), unsafe=unsafe)
    for one in edited:
        if diff:
            for line in one.diff():
                click.echo(_for_terminal(line) if sys.stdout.isatty() else _exact(line))
        else:
            one.write()
            click.echo(text("cli.check.fixed", None, count=one.count, file=one.shown))
    if skipped:
        click.echo(text("cli.check.skipped", None, count=skipped), err=True)
    if not edited:
        click.echo(text("cli.check.nothing_to_fix"), err=True)
    if diff:
        return 1 if edited else 0
    return show(_report(str(report.suite.root), _all(), None), asked)


def _exact(line: str) -> bytes:
    """A line of a diff in the bytes of its file, so that `patch` can take it."""
    return line.encode("utf-8", "surrogateescape")


def _for_terminal(line: str) -> str:
    """The same where it cannot steer a terminal."""
    return "".join(c if c.isprintable() else "�" for c in line)


def _all() -> Wishes:
    from servemark.checks.check import Wishes  # noqa: PLC0415

    return Wishes()


def _watch(suite: str, wishes: Wishes, asked: Asked) -> int:
    """Check again whenever a file of the suite changes, until Ctrl-C."""
    from servemark.base.messages import text  # noqa: PLC0415
    from servemark.checks.watch import Watcher  # noqa: PLC0415

    watcher = Watcher(suite, wishes)
    code = 0
    try:
        while True:
            start = time.perf_counter()
            report = watcher.check()
            code = show(report, asked)
            taken = (time.perf_counter() - start) * 1000
            click.echo(text("cli.check.watching", None, ms=f"{taken:.0f}"), err=True)
            sys.stdout.flush()
            watcher.wait()
    except KeyboardInterrupt:
        return code
