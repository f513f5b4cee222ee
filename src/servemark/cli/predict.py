"""`servemark predict ARM`: what an arm will measure, with interval and class; or why it cannot be said."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from servemark.base.errors import input_error
from servemark.base.home import Home
from servemark.base.messages import text
from servemark.cli.options import Verb, common

if TYPE_CHECKING:
    from servemark.predict.arm import ArmForecast

MAX_CONCURRENCY = 1_000_000
MAX_POINTS = 64
"""Concurrencies of one question."""


def _concurrencies(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[int, ...]:
    """Repeated options and comma-separated numbers alike."""
    found: dict[int, None] = {}
    for part in (part.strip() for one in value for part in one.split(",")):
        if not (part.isascii() and part.isdigit() and len(part) < 8 and 1 <= int(part) <= MAX_CONCURRENCY):
            raise input_error("predict.use.bad_concurrency", part=part[:40], limit=MAX_CONCURRENCY)
        found[int(part)] = None
    if len(found) > MAX_POINTS:
        raise input_error("predict.use.many_points", count=len(found), limit=MAX_POINTS)
    return tuple(sorted(found))


@click.command(cls=Verb, name="predict")
@click.argument("arm", metavar="ARM")
@click.option(
    "--at", multiple=True, metavar="CONC,...", callback=_concurrencies, help="predict.use.option.at"
)
@click.option("--why", is_flag=True, help="predict.use.option.why")
@click.option("--simulate", is_flag=True, help="predict.use.option.simulate")
@click.option("--what-if", "what_if", multiple=True, metavar="KEY=VALUE", help="predict.use.option.what_if")
@click.option("--profile", metavar="NAME", help="predict.use.option.profile")
@common
def predict(  # noqa: PLR0917 - one parameter an option
    arm: str,
    at: tuple[int, ...],
    why: bool,
    simulate: bool,
    what_if: tuple[str, ...],
    profile: str | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Text comes from the catalogue."""
    from servemark.catalog.selector import parse_selector  # noqa: PLC0415 - --help imports no room
    from servemark.cli.fit_progress import FitProgress  # noqa: PLC0415
    from servemark.cli.predict_view import lines, plain  # noqa: PLC0415
    from servemark.predict.arm import forecast_arm  # noqa: PLC0415
    from servemark.runs.request import suite_workload  # noqa: PLC0415
    from servemark.runs.scenario import planned_scenario  # noqa: PLC0415

    selector = parse_selector(arm)
    if at and selector.concurrencies is not None:
        raise input_error("predict.use.twice_at", selector=arm[:200])
    replayed = bool(simulate or what_if or profile)
    if replayed and sys.stderr.isatty():
        click.echo(text("predict.use.simulating"), err=True)
    found: ArmForecast = forecast_arm(
        selector,
        Home.resolve(home),
        at or selector.concurrencies or (),
        scenario_of=planned_scenario,
        workload_of=suite_workload if replayed else None,
        what_if=what_if,
        profile=profile,
        on_fit=FitProgress(),
    )
    if as_json:
        click.echo(json.dumps(plain(found, why=why), ensure_ascii=False, allow_nan=False))
    else:
        for line in lines(found, why=why):
            click.echo(line)
    return 0 if found.says_anything else 1
