"""`servemark runs`: what every run folder says of itself."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from servemark.base.home import Home
from servemark.base.messages import text
from servemark.cli.options import Verb, common

if TYPE_CHECKING:
    from servemark.store.overview import ImportedRun

OWN = "servemark"


@click.command(cls=Verb)
@click.option("--state", help="cli.runs.option.state", metavar="STATE")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=40, help="cli.runs.option.limit")
@click.option("--source", help="cli.runs.option.source", metavar="ID")
@common
def runs(state: str | None, limit: int, source: str | None, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from servemark.base.errors import input_error  # noqa: PLC0415 - --help imports no room
    from servemark.cli.run_list import judged, print_imported, print_runs, run_json  # noqa: PLC0415
    from servemark.runs.folder import RunState, list_runs  # noqa: PLC0415

    if state is not None and state not in set(RunState):
        raise input_error("cli.runs.bad_state", state=state, states=", ".join(RunState))
    where = Home.resolve(home)
    mine = source in (None, OWN)
    found = [info for info in list_runs(where.runs) if mine and (state is None or info.state == state)]
    listed = _imported(where, source, limit) if state is None else []
    code = 1 if listed is None else 0  # what could not be read was said; the folders are listed all the same
    imported = listed or []
    here = {
        info.run_id.rpartition("-")[0] for info in found
    }  # a run of ours is in its folder and in the store
    imported = [one for one in imported if one.source != OWN or one.run not in here]
    if as_json:
        bad = judged(found[-limit:])[1]
        for info in found[-limit:]:
            click.echo(json.dumps(run_json(info, bad.get(info.run_id, ())), ensure_ascii=False))
        for one in imported:
            click.echo(json.dumps(asdict(one), ensure_ascii=False))
        return code
    if imported:
        print_imported(imported)
    if not found and (imported or not mine):
        if not imported:
            click.echo(text("cli.runs.none_of", None, source=source))
        return code
    if not found:
        click.echo(text("cli.runs.none", None, home=where.root))
        return code
    print_runs(found, limit)
    return code


def _imported(where: Home, source: str | None, limit: int) -> list[ImportedRun] | None:
    """Runs of other tools, and of other machines' servemark, from the store; none without a store, None for a store that
    cannot be read, which is said."""
    if not where.store.exists():
        return []
    from servemark.base.errors import ServemarkError  # noqa: PLC0415
    from servemark.store.database import Store  # noqa: PLC0415
    from servemark.store.overview import imported_runs  # noqa: PLC0415

    try:
        with Store.open(where.store, read_only=True) as store:
            return imported_runs(store, source, limit)
    except ServemarkError as error:  # the folders are the truth: a store that fails does not hide them
        if error.key == "store.older_schema":
            return []
        click.echo(error.what(), err=True)
        return None
