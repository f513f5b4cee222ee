"""`servemark review BASE..HEAD`: what a change of a suite comes to, and whether a sign-off of it counts."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.home import Home
from servemark.base.messages import LANGUAGES, current_language, set_language
from servemark.cli.options import SubVerb, SubVerbGroup, common, language

if TYPE_CHECKING:
    from servemark.authoring.results import Results
    from servemark.authoring.review import Review
    from servemark.authoring.review_view import Page
    from servemark.authoring.sign_off import Known
    from servemark.authoring.snapshot import Snapshot

_FLAGS = frozenset({"--help", "-h", "--lang"})


class PageGroup(SubVerbGroup):
    """`review BASE..HEAD` means `review page BASE..HEAD`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """With the name of the page put in where none of the verbs is named."""
        if (
            args
            and args[0] not in self.commands
            and not (args[0].partition("=")[0] in _FLAGS and not any(".." in one for one in args))
        ):
            args = ["page", *args]
        return super().parse_args(ctx, args)


class Sub(SubVerb):
    """A verb of this group."""

    prefix = "review"


@click.group(cls=PageGroup, name="review", context_settings={"help_option_names": ["-h", "--help"]})
@language
def review() -> None:
    """Texts come from the catalogue."""


def _page_language(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    del ctx, param
    if value in LANGUAGES:
        set_language(value)
    return value


_suite = click.option("--suite", default=".", metavar="DIR", help="cli.review.option.suite")
_request = click.option(
    "--request", type=click.Path(path_type=Path), metavar="FILE", help="cli.review.option.request"
)
_home = click.option("--home", metavar="DIR", help="cli.option.home")
_json = click.option("--json", "as_json", is_flag=True, help="cli.option.json")


@review.command(cls=Sub, name="page")
@click.argument("commits", metavar="BASE..HEAD")
@_suite
@_request
@click.option(
    "--lang", type=click.Choice([*LANGUAGES, "both"]), callback=_page_language, help="cli.review.option.lang"
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "html"]),
    default="markdown",
    help="cli.review.option.format",
)
@_home
@_json
def page(  # noqa: PLR0917 - options of one verb
    commits: str,
    suite: str,
    request: Path | None,
    lang: str | None,
    form: str,
    home: str | None,
    as_json: bool,
) -> int:
    """Print the page; exit 1 when an item of the checklist failed."""
    gc.disable()  # a short process whose trees are all in use until its end
    from servemark.authoring.blocks import html_page, markdown_lines  # noqa: PLC0415 - help needs no room
    from servemark.authoring.review_view import page_blocks  # noqa: PLC0415

    with _made(commits, suite, request, home) as (made, (_, head)):
        _uncommitted(head)
        languages = LANGUAGES if lang == "both" else (current_language(),)
        if as_json:
            from servemark.authoring.review_plain import page_plain  # noqa: PLC0415

            click.echo(json.dumps(page_plain(made), ensure_ascii=False, allow_nan=False))
        else:
            parts = [(one, page_blocks(made, one)) for one in languages]
            if form == "html":
                click.echo(html_page(parts), nl=False)
            else:
                click.echo("\n\n---\n\n".join("\n".join(markdown_lines(blocks)) for _, blocks in parts))
    gc.freeze()  # nothing is searched for cycles at exit
    return 1 if any(answer.state == "failed" for answer in made.answers) or made.halves else 0


def _uncommitted(head: Snapshot) -> None:
    """Say on stderr that the working tree holds more than the page, where the head is checked out."""
    from servemark.base.messages import text  # noqa: PLC0415
    from servemark.plan.gitrepo import uncommitted  # noqa: PLC0415

    count = uncommitted(head.tree.folder, head.tree.commit)
    if count:
        click.echo(text("authoring.uncommitted", None, count=count, folder=head.tree.folder), err=True)


@contextmanager
def _made(
    commits: str, suite: str, request: Path | None, home: str | None
) -> Iterator[tuple[Page, tuple[Snapshot, Snapshot]]]:
    """The page of a range, with the two commits that it was read from."""
    from servemark.authoring.checklist import answered, checklist_of  # noqa: PLC0415
    from servemark.authoring.review import reviewed  # noqa: PLC0415
    from servemark.authoring.review_view import Page  # noqa: PLC0415
    from servemark.authoring.snapshot import range_of, snapshots  # noqa: PLC0415
    from servemark.catalog.layout import suite_root  # noqa: PLC0415

    body = _text(request) if request is not None else None
    with snapshots(suite_root(suite), range_of(commits)) as (base, head):
        found = reviewed(base, head)
        results = _results(found, home)
        checklist = checklist_of(found)
        halves = None
        if body is not None:
            from servemark.authoring.request_text import half_faults  # noqa: PLC0415

            sides = [side.suite.arms for side in (base, head) if side.suite is not None]
            halves = half_faults(body, {key for arms in sides for key in arms})
        made = Page(found, results, checklist, answered(checklist, found, results), halves)
        yield made, (base, head)


def _text(path: Path) -> str:
    from servemark.authoring.request_text import MAX_BYTES  # noqa: PLC0415
    from servemark.base.errors import input_error  # noqa: PLC0415
    from servemark.catalog.yaml_nodes import read_bytes  # noqa: PLC0415

    data = read_bytes(path, str(path))
    if len(data) > MAX_BYTES:
        raise input_error("catalog.too_large", path=str(path), size=len(data), limit=MAX_BYTES)
    return data.decode("utf-8", "replace")


def _results(found: Review, home: str | None) -> Results:
    """What the home's store has of the arms in question; nothing where there is no store."""
    from servemark.authoring.results import NO_RESULTS, results_of  # noqa: PLC0415

    where = Home.resolve(home)
    if not where.store.exists():
        return NO_RESULTS
    from servemark.analysis.selection import Selection, select  # noqa: PLC0415
    from servemark.store.database import Store  # noqa: PLC0415

    with Store.open(where.store, read_only=True) as store:
        return results_of(found, select(store, Selection(source=("servemark",), latest=False)))


@review.command(cls=Sub, name="verify")
@click.argument("commits", metavar="BASE..HEAD")
@click.option(
    "--comment",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="cli.review.option.comment",
)
@click.option("--author", required=True, metavar="LOGIN", help="cli.review.option.author")
@click.option("--team", "teams", multiple=True, metavar="ORG/TEAM", help="cli.review.option.team")
@_suite
@common
def verify(  # noqa: PLR0917 - options of one verb
    commits: str,
    comment: Path,
    author: str,
    teams: tuple[str, ...],
    suite: str,
    home: str | None,
    as_json: bool,
) -> int:
    """Exit 0 when the comment counts, 1 with every reason when it does not."""
    gc.disable()  # as above
    from servemark.authoring.sign_off import objections  # noqa: PLC0415
    from servemark.base.messages import text  # noqa: PLC0415

    body = _text(comment)
    with _made(commits, suite, None, home) as (made, (base, head)):
        found = objections(body, author, teams, _known(made, base, head, home))
    if as_json:
        reasons = [{"reason": one.name, **one.values, "message": one.said()} for one in found]
        click.echo(
            json.dumps({"counts": not found, "author": author, "reasons": reasons}, ensure_ascii=False)
        )
    else:
        click.echo(
            text("authoring.sign.counts_not" if found else "authoring.sign.counts", None, author=author)
        )
        for one in found:
            click.echo(f"- {one.said()}")
    gc.freeze()
    return 1 if found else 0


def _known(made: Page, base: Snapshot, head: Snapshot, home: str | None) -> Known:
    """What a comment is held against: all files of the repository that differ, and the base's own CODEOWNERS."""
    from servemark.authoring.codeowners import PLACES, read_codeowners  # noqa: PLC0415
    from servemark.authoring.sign_off import Known  # noqa: PLC0415
    from servemark.plan.gitrepo import GitTree, changed_paths, top_of  # noqa: PLC0415
    from servemark.runs.folder import list_runs  # noqa: PLC0415

    top = top_of(base.tree.folder)
    old, new = GitTree.open(top, base.tree.commit), GitTree.open(top, head.tree.commit)
    changed = changed_paths(top, old.commit, new.commit)
    owners = next((data for place in PLACES if (data := old.read(place)) is not None), None)
    where = Home.resolve(home)
    runs = {info.run_id for info in list_runs(where.runs)}
    runs |= {point.run for one in made.results.arms for point in one.branch}
    return Known(
        made.checklist,
        made.answers,
        head.tree.commit,
        changed,
        read_codeowners(owners) if owners is not None else None,
        runs,
        new.blobs.keys(),
    )
