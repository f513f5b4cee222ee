"""`servemark new arm`: an arm from another one, checked and shown as its reviewer will see it before it is written."""

from __future__ import annotations

import gc
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.cli.options import SubVerb, SubVerbGroup, common, language

if TYPE_CHECKING:
    from servemark.authoring.new_arm import FileEdit
    from servemark.authoring.review_view import Page
    from servemark.authoring.snapshot import Snapshot
    from servemark.catalog.suite import Suite


MAX_ERRORS = 20
"""Errors that are told again below a refused page."""
MAX_RELATED = 3
"""Other places of each."""


class Sub(SubVerb):
    """A verb of this group."""

    prefix = "new"


@click.group(cls=SubVerbGroup, name="new", context_settings={"help_option_names": ["-h", "--help"]})
@language
def new() -> None:
    """Texts come from the catalogue."""


@new.command(cls=Sub, name="arm")
@click.option("--from", "source", required=True, metavar="ARM", help="cli.new.option.from")
@click.option("--name", required=True, metavar="NEW", help="cli.new.option.name")
@click.option("--set", "said", multiple=True, metavar="KEY=VALUE", help="cli.new.option.set")
@click.option("--suite", default=".", metavar="DIR", help="cli.review.option.suite")
@click.option("--description", multiple=True, metavar="TEXT", help="cli.new.option.description")
@click.option("--request", type=click.Path(path_type=Path), metavar="FILE", help="cli.new.option.request")
@click.option("--assistance", default="", metavar="TEXT", help="cli.new.option.assistance")
@click.option("--allow-errors", is_flag=True, help="cli.new.option.allow_errors")
@click.option("--dry-run", is_flag=True, help="cli.new.option.dry_run")
@common
def arm(  # noqa: PLR0917 - options of one verb
    source: str,
    name: str,
    said: tuple[str, ...],
    suite: str,
    description: tuple[str, ...],
    request: Path | None,
    assistance: str,
    allow_errors: bool,
    dry_run: bool,
    home: str | None,
    as_json: bool,
) -> int:
    """Work the arm out, show it, write it."""
    del home  # nothing is kept there
    gc.disable()  # a short process whose trees are all in use until its end
    from servemark.authoring.insertion import setting_of  # noqa: PLC0415 - help needs no room
    from servemark.authoring.new_arm import Wanted, edits_of, staged, write_all  # noqa: PLC0415
    from servemark.authoring.request_body import request_body  # noqa: PLC0415
    from servemark.catalog.suite import read_suite  # noqa: PLC0415

    if request is not None:
        _can_be_written(request)
    found, _ = read_suite(suite)
    wanted = Wanted(source, name, tuple(setting_of(one) for one in said), description)
    edits = edits_of(found, wanted)
    with (
        tempfile.TemporaryDirectory(prefix="servemark-new-") as place,
        staged(found, edits, Path(place)) as sides,
    ):
        made = _page(*sides)
        errors = made.review.findings.count("error")
        short = sum(
            one.verdict is not None and one.verdict.kind == "does_not_fit" for one in made.review.fits
        )
        refused = bool(errors or short) and not allow_errors
        body = request_body(made, source, name, assistance, settings=wanted.settings)
        _show(made, None if refused and not as_json else body, as_json=as_json)
    if not refused and not dry_run:
        if request is not None:  # first: a text without its arm does no harm
            from servemark.base.files import write_atomic  # noqa: PLC0415

            write_atomic(request, body.encode())
        write_all(found.root, edits)
    if refused and not as_json:
        _errors(made)
    _ended(found, edits, (errors, short), request, refused=refused, dry_run=dry_run, as_json=as_json)
    gc.freeze()  # nothing is searched for cycles at exit
    return 1 if refused else 0


def _can_be_written(request: Path) -> None:
    """ServemarkError (exit 2) before anything is worked out, for a place where no file can be written."""
    from servemark.base.errors import input_error  # noqa: PLC0415

    if request.is_dir() or not os.access(request.absolute().parent, os.W_OK | os.X_OK):
        raise input_error("authoring.new.request_place", path=str(request))


def _page(base: Snapshot, head: Snapshot) -> Page:
    from servemark.authoring.checklist import answered, checklist_of  # noqa: PLC0415
    from servemark.authoring.results import NO_RESULTS  # noqa: PLC0415
    from servemark.authoring.review import reviewed  # noqa: PLC0415
    from servemark.authoring.review_view import Page  # noqa: PLC0415

    review = reviewed(base, head)
    checklist = checklist_of(review)
    return Page(review, NO_RESULTS, checklist, answered(checklist, review, NO_RESULTS))


def _show(made: Page, body: str | None, *, as_json: bool) -> None:
    """The page and the request's text; of a refused arm only the page, its errors last."""
    from servemark.authoring.blocks import markdown_lines  # noqa: PLC0415
    from servemark.authoring.review_plain import page_plain  # noqa: PLC0415
    from servemark.authoring.review_view import page_blocks  # noqa: PLC0415
    from servemark.base.messages import current_language  # noqa: PLC0415

    if as_json:
        click.echo(json.dumps({"review": page_plain(made), "request": body}, ensure_ascii=False))
        return
    for line in markdown_lines(page_blocks(made, current_language())):
        click.echo(line)
    if body is not None:
        click.echo(f"\n---\n\n{body}")


def _errors(made: Page) -> None:
    """What keeps the arm from being written, on stderr, each with what mends it."""
    click.echo("", err=True)
    for one in made.review.findings.new[:MAX_ERRORS]:
        if one.severity != "error":
            continue
        click.echo(f"{one.code} {one.at}: {one.message()}", err=True)
        for other in one.related[:MAX_RELATED]:
            click.echo(f"  {other.at}: {other.note()}", err=True)
        if step := one.next_step():
            click.echo(f"  {step}", err=True)


def _ended(
    suite: Suite,
    edits: Sequence[FileEdit],
    wrong: tuple[int, int],
    request: Path | None,
    *,
    refused: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """What became of it, on stderr: stdout is the page."""
    from servemark.base.messages import text  # noqa: PLC0415

    if as_json:
        return
    names = ", ".join(suite.shown(suite.root / edit.path) for edit in edits)
    if refused:
        click.echo(text("authoring.new.refused", None, errors=wrong[0], short=wrong[1]), err=True)
    elif dry_run:
        click.echo(text("authoring.new.dry", None, names=names), err=True)
    else:
        click.echo(text("authoring.new.written", None, names=names), err=True)
        if request is not None:
            click.echo(text("authoring.new.request", None, path=str(request)), err=True)
