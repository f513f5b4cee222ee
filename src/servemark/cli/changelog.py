"""`servemark changelog`: check, add, canonicalize and resolve a changelog, with history kept byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.errors import input_error
from servemark.cli.options import SubVerb, SubVerbGroup, common, language

if TYPE_CHECKING:
    from servemark.checks.changes import Change
    from servemark.checks.model import Finding


class Sub(SubVerb):
    """A verb of this group."""

    prefix = "changelog"


@click.group(cls=SubVerbGroup, name="changelog", context_settings={"help_option_names": ["-h", "--help"]})
@language
def changelog() -> None:
    """Texts come from the catalogue."""


_suite = click.option("--suite", default=".", metavar="SUITE", help="cli.changelog.suite")


def _file(suite: str) -> tuple[Path, str, frozenset[str]]:
    """(path, name to show, keys of the suite's arms) of a suite's changelog."""
    from servemark.catalog.suite import read_suite  # noqa: PLC0415

    found, _ = read_suite(suite)
    layout = found.layout
    if layout is None or layout.changelog is None:
        raise input_error("plan.no_changelog", suite=found.name)
    path = found.file(layout.changelog, str(layout.at))
    return path, found.shown(path), found.keys


def _read(path: Path) -> bytes:
    from servemark.catalog.yaml_nodes import read_bytes  # noqa: PLC0415

    data = read_bytes(path, str(path))
    if path.suffix != ".gz":
        return data
    import gzip  # noqa: PLC0415
    import io  # noqa: PLC0415
    import zlib  # noqa: PLC0415

    from servemark.catalog.yaml_nodes import MAX_BYTES  # noqa: PLC0415

    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise input_error("catalog.unreadable", path=str(path), reason=str(error)) from error
    if len(data) > MAX_BYTES:
        raise input_error("catalog.too_large", path=str(path), size=len(data), limit=MAX_BYTES)
    return data


def _side(name: str, suite: str) -> bytes:
    """A file, or the suite's changelog at a git reference."""
    if Path(name).exists():
        return _read(Path(name))
    from servemark.catalog.suite import read_suite  # noqa: PLC0415
    from servemark.plan.gitrepo import GitTree  # noqa: PLC0415

    found, _ = read_suite(suite)
    if found.layout is None or found.layout.changelog is None:
        raise input_error("plan.no_changelog", suite=found.name)
    return GitTree.open(found.root, name).read(found.layout.changelog) or b""


@changelog.command(cls=Sub, name="check")
@click.option("--base", metavar="REF|FILE", help="cli.changelog.base")
@click.option("--head", metavar="REF|FILE", help="cli.changelog.head")
@click.option("--pr", metavar="URL", help="cli.changelog.pr")
@click.option("--on-main", is_flag=True, help="cli.changelog.on_main")
@_suite
@common
def check(  # noqa: PLR0917 - options of one verb
    base: str | None,
    head: str | None,
    pr: str | None,
    on_main: bool,
    suite: str,
    home: str | None,
    as_json: bool,
) -> int:
    """All rules about one change."""
    del home
    from servemark.checks.changelog_edit import checked_address  # noqa: PLC0415
    from servemark.checks.changes import Change  # noqa: PLC0415
    from servemark.checks.check import check_change  # noqa: PLC0415

    files = [name is not None and Path(name).is_file() for name in (base, head)]
    arms: frozenset[str] | None = None
    if all(files) and head is not None:
        shown, data = head, _read(Path(head))
        root = Path()
    else:
        path, shown, arms = _file(suite)
        data = _side(head, suite) if head is not None else _read(path)
        root = path
    old = _side(base, suite) if base is not None else None
    pr = checked_address(pr) if pr is not None else None
    change = Change(shown, data, old, pr, on_main, arms)
    findings = check_change(change)
    _show(findings, change, root, suite, as_json=as_json)
    return 1 if any(finding.severity == "error" for finding in findings) else 0


def _show(findings: list[Finding], change: Change, path: Path, suite: str, *, as_json: bool) -> None:
    from servemark.base.messages import text  # noqa: PLC0415
    from servemark.checks.machine_view import json_lines  # noqa: PLC0415
    from servemark.checks.places import Places  # noqa: PLC0415
    from servemark.checks.text_view import finding_lines, plain  # noqa: PLC0415

    root = Path()
    if path != Path():
        from servemark.catalog.layout import suite_root  # noqa: PLC0415

        root = suite_root(suite)
    places = Places(root, change.shown.partition("/")[0] if path != Path() else None)
    if as_json:
        for line in json_lines(findings, places):
            click.echo(line)
        return
    width = min(shutil.get_terminal_size((100, 24)).columns, 140)
    for finding in findings:
        for line in finding_lines(finding, places, width, plain):
            click.echo(line)
        click.echo()
    errors = sum(finding.severity == "error" for finding in findings)
    new = len(change.new_entries)
    click.echo(text("cli.changelog.found", None, errors=errors, others=len(findings) - errors, new=new))


@changelog.command(cls=Sub, name="add")
@click.argument("keys", nargs=-1, required=True)
@click.option("--description", multiple=True, required=True, metavar="TEXT", help="cli.changelog.description")
@click.option(
    "--scenario",
    multiple=True,
    type=click.Choice(["fixed-seq-len", "agentic-coding"]),
    help="cli.changelog.scenario",
)
@click.option("--evals-only", is_flag=True, help="cli.changelog.evals_only")
@click.option("--all-evals", is_flag=True, help="cli.changelog.all_evals")
@click.option("--append-only", is_flag=True, help="cli.changelog.append_only")
@click.option("--pr", metavar="URL", help="cli.changelog.pr")
@_suite
@common
def add(keys: tuple[str, ...], suite: str, home: str | None, as_json: bool, **options: object) -> int:
    """Write one entry at the end."""
    del home
    from servemark.base.files import write_atomic  # noqa: PLC0415
    from servemark.checks.changelog_edit import added, checked_address, entry_text  # noqa: PLC0415
    from servemark.checks.changes import PLACEHOLDER, Change  # noqa: PLC0415
    from servemark.checks.check import check_change  # noqa: PLC0415

    path, shown, arms = _file(suite)
    base = _read(path)
    pr = options["pr"]
    flags = [n for n in ("evals-only", "all-evals", "append-only") if options[n.replace("-", "_")]]
    if "append-only" in flags and len(flags) > 1:
        raise input_error("catalog.append_only_evals")
    description, scenario = options["description"], options["scenario"]
    said = [str(one).strip() for one in description] if isinstance(description, tuple) else []
    if not all(said):
        raise input_error("checks.changelog.empty_description")
    entry = entry_text(
        keys,
        said,
        link=checked_address(str(pr)) if pr is not None else PLACEHOLDER,
        scenarios=scenario if isinstance(scenario, tuple) else (),
        flags=flags,
    )
    head = added(base, entry)
    change = Change(shown, head, base, str(pr) if pr is not None else None, arms=arms)
    findings = [finding for finding in check_change(change) if finding.severity == "error"]
    if findings:
        _show(findings, change, path, suite, as_json=as_json)
        return 2
    write_atomic(path, head)
    _said("cli.changelog.added", as_json, entry.decode(), file=str(path), keys=len(keys))
    return 0


@changelog.command(cls=Sub, name="canonicalize")
@click.option("--pr", required=True, metavar="URL", help="cli.changelog.pr")
@click.option("--base", metavar="REF|FILE", help="cli.changelog.base")
@click.option("--upto", metavar="REF|FILE", help="cli.changelog.upto")
@_suite
@common
def canonicalize(  # noqa: PLR0917 - options of one verb
    pr: str, base: str | None, upto: str | None, suite: str, home: str | None, as_json: bool
) -> int:
    """Replace placeholders of new entries by the address."""
    del home
    from servemark.base.files import write_atomic  # noqa: PLC0415
    from servemark.checks.changelog_edit import canonicalized  # noqa: PLC0415

    path, _, _ = _file(suite)
    data = _read(path)
    grown_from, grown_to = (_side(name, suite) if name is not None else None for name in (base, upto))
    after, count = canonicalized(data, pr, grown_from, grown_to)
    if after != data:
        write_atomic(path, after)
    _said("cli.changelog.canonicalized", as_json, None, file=str(path), count=count)
    return 0


@changelog.command(cls=Sub, name="resolve")
@click.argument("base")
@click.argument("main")
@click.argument("branch")
@click.option("--pr", metavar="URL", help="cli.changelog.pr")
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="cli.changelog.output")
@_suite
@common
def resolve(  # noqa: PLR0917 - options of one verb
    base: str,
    main: str,
    branch: str,
    pr: str | None,
    output: Path | None,
    suite: str,
    home: str | None,
    as_json: bool,
) -> int:
    """Main's bytes, then this branch's entries."""
    del home
    from servemark.base.files import write_atomic  # noqa: PLC0415
    from servemark.checks.changelog_edit import resolved  # noqa: PLC0415

    sides = [_side(name, suite) for name in (base, main, branch)]
    result, count = resolved(sides[0], sides[1], sides[2], pr)
    path = output or _file(suite)[0]
    write_atomic(path, result)
    _said("cli.changelog.resolved", as_json, None, file=str(path), count=count)
    return 0


def _said(key: str, as_json: bool, entry: str | None, **values: object) -> None:
    import json  # noqa: PLC0415

    from servemark.base.messages import text  # noqa: PLC0415

    if as_json:
        click.echo(json.dumps({**values, "entry": entry}, ensure_ascii=False))
        return
    if entry is not None:
        click.echo(entry, nl=False)
    click.echo(text(key, None, **values))
