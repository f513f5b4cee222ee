"""`servemark prune`: raw bytes that nothing names and superseded attempts go; run folders stay."""

from __future__ import annotations

import json
import re

import click

from servemark.base.home import Home
from servemark.base.messages import text
from servemark.cli.options import Verb, common


@click.command(cls=Verb)
@click.option("--keep", type=click.IntRange(0, 1_000_000), metavar="N", help="cli.prune.option.keep")
@click.option("--older-than", metavar="DATE", help="cli.prune.option.older_than")
@click.option("--dry-run", is_flag=True, help="cli.prune.option.dry_run")
@common
def prune(keep: int | None, older_than: str | None, dry_run: bool, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from dataclasses import asdict  # noqa: PLC0415 - --help imports no room

    from servemark.base.errors import input_error  # noqa: PLC0415
    from servemark.store.database import Store  # noqa: PLC0415
    from servemark.store.prune import prune as take_away  # noqa: PLC0415
    from servemark.store.raw_files import RawFiles  # noqa: PLC0415

    if older_than is not None and not re.fullmatch(r"\d{4}-\d{2}-\d{2}(T[\d:.]+Z)?", older_than):
        raise input_error("cli.prune.bad_date", date=older_than)
    where = Home.resolve(home)
    if not where.store.exists():
        raise input_error("cli.import.nothing_kept", home=where.root)
    with Store.open(where.store, read_only=dry_run) as store:
        gone = take_away(store, RawFiles(where.raw), keep=keep, older_than=older_than, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps({**asdict(gone), "dry_run": dry_run}))
    else:
        click.echo(text("cli.prune.would" if dry_run else "cli.prune.done", None, **asdict(gone)))
    return 0
