"""`servemark fit`: does an arm or a recipe fit its GPUs and its hosts, with every figure's formula."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.cli.options import Verb, common

if TYPE_CHECKING:
    from servemark.sizing.fit_target import Wishes


@click.command(cls=Verb, name="fit")
@click.argument("target", metavar="ARM|RECIPE")
@click.option("--cluster", metavar="LABEL", help="sizing.option.cluster")
@click.option("--gpu", metavar="NAME", help="sizing.option.gpu")
@click.option("--model", metavar="NAME", help="sizing.option.model")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="sizing.option.config")
@click.option("--precision", metavar="NAME", help="sizing.option.precision")
@click.option("--context", type=int, metavar="TOKENS", help="sizing.option.context")
@click.option("--reserve", metavar="GIB", help="sizing.option.reserve")
@click.option("--role", metavar="NAME", help="sizing.option.role")
@click.option("--from-log", type=click.Path(path_type=Path), metavar="FILE", help="sizing.option.from_log")
@click.option("--details", "-v", is_flag=True, help="sizing.option.details")
@click.option("--explain", is_flag=True, help="sizing.option.explain")
@common
def fit(target: str, home: str | None, as_json: bool, details: bool, explain: bool, **options: object) -> int:
    """Work the memory out and print it; exit 0 fits, 1 does not fit or cannot be said."""
    del home  # nothing is written
    gc.disable()  # a short process whose trees are all in use until its end
    from servemark.cli.fit_view import report_lines, report_plain  # noqa: PLC0415
    from servemark.sizing.fit import fit as work_out  # noqa: PLC0415
    from servemark.sizing.fit_target import asked_of  # noqa: PLC0415 - help needs no room

    report = work_out(asked_of(target, _wishes(options)))
    if as_json:
        click.echo(json.dumps(report_plain(report), ensure_ascii=False, allow_nan=False))
    else:
        for line in report_lines(report, explain=explain, details=details):
            click.echo(line)
    gc.freeze()  # nothing is searched for cycles at exit
    return 0 if report.verdict.kind == "fits" else 1


def _wishes(options: dict[str, object]) -> Wishes:
    from servemark.sizing.fit_target import Wishes  # noqa: PLC0415

    def text(name: str) -> str | None:
        value = options[name]
        return value if isinstance(value, str) else None

    def path(name: str) -> Path | None:
        value = options[name]
        return value if isinstance(value, Path) else None

    context = options["context"]
    return Wishes(
        cluster=text("cluster"),
        gpu=text("gpu"),
        model=text("model"),
        config=path("config"),
        precision=text("precision"),
        context=context if isinstance(context, int) else None,
        reserve=text("reserve"),
        role=text("role"),
        log=path("from_log"),
    )
