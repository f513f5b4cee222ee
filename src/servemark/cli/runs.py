"""`servemark runs`: what every run folder says of itself."""

from __future__ import annotations

import json

import click

from servemark.base.home import Home
from servemark.base.messages import text
from servemark.cli.options import Verb, common


@click.command(cls=Verb)
@click.option("--state", help="cli.runs.option.state", metavar="STATE")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=40, help="cli.runs.option.limit")
@common
def runs(state: str | None, limit: int, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from servemark.base.errors import input_error  # noqa: PLC0415 - --help imports no room
    from servemark.cli.run_list import print_runs, run_json  # noqa: PLC0415
    from servemark.runs.folder import RunState, list_runs  # noqa: PLC0415

    if state is not None and state not in set(RunState):
        raise input_error("cli.runs.bad_state", state=state, states=", ".join(RunState))
    where = Home.resolve(home)
    found = [info for info in list_runs(where.runs) if state is None or info.state == state]
    if as_json:
        for info in found[-limit:]:
            click.echo(json.dumps(run_json(info), ensure_ascii=False))
        return 0
    if not found:
        click.echo(text("cli.runs.none", None, home=where.root))
        return 0
    print_runs(found, limit)
    return 0
