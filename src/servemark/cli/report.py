"""`servemark report [RUN]`: write a line's page again."""

from __future__ import annotations

import json
from pathlib import Path

import click

from servemark.base.home import Home
from servemark.base.messages import current_language, text
from servemark.cli.options import Verb, common


@click.command(cls=Verb)
@click.argument("run", default="latest")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="cli.report.option.out")
@common
def report(run: str, out: Path | None, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from servemark.analysis.report_data import build_report_data  # noqa: PLC0415 - --help imports no room
    from servemark.base.files import make_folder  # noqa: PLC0415
    from servemark.report.page import write_report  # noqa: PLC0415
    from servemark.runs.folder import find_line  # noqa: PLC0415

    where = Home.resolve(home)
    line_id, folders = find_line(where.runs, run)
    lang = current_language()
    path = (out or where.reports / f"{line_id}.html").resolve()
    make_folder(path.parent)
    write_report(build_report_data(folders, lang, samples=20), path, lang)
    if as_json:
        body = {"report": str(path), "bytes": path.stat().st_size, "line_id": line_id}
        click.echo(json.dumps(body, ensure_ascii=False))
    else:
        click.echo(text("cli.report.written", None, page=path, kib=round(path.stat().st_size / 1024)))
    return 0
