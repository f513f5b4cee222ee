"""`servemark report [RUN | KEY=VALUE …]`: a line's page, or the pages of a selection as one file."""

from __future__ import annotations

import json
from pathlib import Path

import click

from servemark.base.home import Home
from servemark.base.messages import current_language, text
from servemark.cli.options import Verb, common


@click.command(cls=Verb)
@click.argument("run", nargs=-1)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="cli.report.option.out")
@common
def report(run: tuple[str, ...], out: Path | None, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from servemark.base.errors import input_error  # noqa: PLC0415 - --help imports no room

    where = Home.resolve(home)
    selected = [word for word in run if "=" in word]
    if selected and len(selected) == len(run):
        return _selection(where, selected, out, as_json)
    if selected or len(run) > 1:
        raise input_error("cli.report.one_run", words=" ".join(run)[:80])
    return _line(where, run[0] if run else "latest", out, as_json)


def _line(where: Home, run: str, out: Path | None, as_json: bool) -> int:
    """The page that `run` writes at its end, again."""
    from servemark.analysis.report_data import build_report_data  # noqa: PLC0415
    from servemark.base.files import make_folder  # noqa: PLC0415
    from servemark.report.page import write_report  # noqa: PLC0415
    from servemark.runs.folder import find_line  # noqa: PLC0415

    line_id, folders = find_line(where.runs, run)
    lang = current_language()
    path = (out or where.reports / f"{line_id}.html").resolve()
    make_folder(path.parent)
    write_report(build_report_data(folders, lang, samples=20), path, lang)
    _said(path, {"line_id": line_id}, as_json)
    return 0


def _selection(where: Home, words: list[str], out: Path | None, as_json: bool) -> int:
    """Fronts and points of a selection, as `serve` shows them."""
    from servemark.analysis.selection import parse_selection  # noqa: PLC0415
    from servemark.base.canonical import content_hash  # noqa: PLC0415
    from servemark.base.files import make_folder, write_atomic  # noqa: PLC0415
    from servemark.web.report_file import write_selection  # noqa: PLC0415

    chosen = parse_selection(words)
    written = write_selection(where, chosen, current_language())
    name = f"selection-{content_hash({'words': chosen.words()}, 8)}.html"
    path = (out or where.reports / name).resolve()
    make_folder(path.parent)
    write_atomic(path, written.page.encode("utf-8"))
    body = {"selection": chosen.words(), "points": written.points, "pages": written.pages}
    _said(path, body, as_json)
    if not as_json:
        click.echo(text("cli.report.inside", None, points=written.points, pages=written.pages))
    return 0


def _said(path: Path, more: dict[str, object], as_json: bool) -> None:
    size = path.stat().st_size
    if as_json:
        click.echo(json.dumps({"report": str(path), "bytes": size, **more}, ensure_ascii=False))
    else:
        click.echo(text("cli.report.written", None, page=path, kib=round(size / 1024)))
