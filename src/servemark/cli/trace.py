"""`servemark trace make|show|convert|simulate`: seeded traces, figures, other formats, a cache played."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from servemark.base.messages import text
from servemark.cli.options import Finite, SubVerb, SubVerbGroup, common, language
from servemark.cli.trace_simulate import simulate

if TYPE_CHECKING:
    from servemark.traces.open import TraceFormat, TraceOptions

FORMATS = ("weka", "mooncake", "azure", "burstgpt", "sharegpt", "messages", "recipe")


class Sub(SubVerb):
    """A verb of this group."""

    prefix = "trace"


@click.group(cls=SubVerbGroup, name="trace", context_settings={"help_option_names": ["-h", "--help"]})
@language
def trace() -> None:
    """Texts come from the catalogue."""


@trace.command(cls=Sub, name="make")
@click.argument("out", metavar="OUT")
@click.option("--sessions", type=click.IntRange(1, 100_000), default=8, help="cli.trace.sessions")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="cli.trace.seed")
@click.option("--scale", type=Finite(0.001, 10), default=1.0, help="cli.trace.scale")
@click.option("--think-scale", type=Finite(0, 1000), default=1.0, help="cli.trace.think_scale")
@click.option(
    "--max-context", type=click.IntRange(100_000, 4_000_000), default=256_000, help="cli.trace.max_context"
)
@click.option("--to", "to", type=click.Choice(["weka", "messages"]), default="weka", help="cli.trace.to")
@click.option("--force", is_flag=True, help="cli.trace.force")
@common
def make(  # noqa: PLR0917 - options of one verb
    out: str,
    sessions: int,
    seed: int,
    scale: float,
    think_scale: float,
    max_context: int,
    to: str,
    force: bool,
    home: str | None,
    as_json: bool,
) -> int:
    """Text comes from the catalogue."""
    from servemark.traces.agentic_tree import TreeRecipe  # noqa: PLC0415 - --help imports no room
    from servemark.traces.write import write_made  # noqa: PLC0415

    recipe = TreeRecipe(sessions, seed, scale, think_scale, max_context)
    done = write_made(recipe, Path(out), to, force=force)
    if as_json:
        click.echo(json.dumps({"path": out, "sessions": done.sessions, "requests": done.requests,
                               "bytes": done.size, "sha256": done.sha256, "recipe": recipe.to_mapping()}))  # fmt: skip
    else:
        click.echo(
            text("traces.made", None, path=out, sessions=done.sessions, requests=done.requests,
                 size=f"{done.size / 1e6:.1f}", sha256=done.sha256[:16])
        )  # fmt: skip
    return 0


@trace.command(cls=Sub, name="show")
@click.argument("path", metavar="TRACE")
@click.option("--format", "form", type=click.Choice(FORMATS), help="cli.trace.format")
@click.option("--sessions", type=click.IntRange(1), help="cli.trace.first")
@click.option("--link", is_flag=True, help="cli.trace.link")
@click.option("--no-plots", is_flag=True, help="cli.trace.no_plots")
@common
def show(  # noqa: PLR0917 - options of one verb
    path: str,
    form: str | None,
    sessions: int | None,
    link: bool,
    no_plots: bool,
    home: str | None,
    as_json: bool,
) -> int:
    """Text comes from the catalogue."""
    from servemark.cli.trace_view import stats_lines  # noqa: PLC0415 - --help imports no room
    from servemark.traces.open import open_workload  # noqa: PLC0415
    from servemark.traces.stats import trace_stats  # noqa: PLC0415

    workload = open_workload(path, _options(form, sessions, link))
    stats = trace_stats(workload)
    if as_json:
        found = {"id": workload.id, **stats.to_json(), "source": workload.source}
        click.echo(json.dumps(found, ensure_ascii=False, allow_nan=False))
        return 0
    width = min(shutil.get_terminal_size((80, 24)).columns, 100)
    for line in stats_lines(stats, workload.source, width, plots=not no_plots, colour=_colour()):
        click.echo(line)
    return 0


@trace.command(cls=Sub, name="convert")
@click.argument("source", metavar="IN")
@click.argument("out", metavar="OUT")
@click.option(
    "--to", "to", type=click.Choice(["weka", "mooncake", "messages"]), required=True, help="cli.trace.to"
)
@click.option("--format", "form", type=click.Choice(FORMATS), help="cli.trace.format")
@click.option("--sessions", type=click.IntRange(1), help="cli.trace.first")
@click.option("--link", is_flag=True, help="cli.trace.link")
@click.option("--force", is_flag=True, help="cli.trace.force")
@common
def convert(  # noqa: PLR0917 - options of one verb
    source: str,
    out: str,
    to: str,
    form: str | None,
    sessions: int | None,
    link: bool,
    force: bool,
    home: str | None,
    as_json: bool,
) -> int:
    """Text comes from the catalogue."""
    from servemark.traces.open import open_workload  # noqa: PLC0415 - --help imports no room
    from servemark.traces.write import convert_workload  # noqa: PLC0415

    workload = open_workload(source, _options(form, sessions, link))
    done = convert_workload(workload, Path(out), to, force=force)
    if as_json:
        click.echo(json.dumps({"path": out, "sessions": done.sessions, "requests": done.requests,
                               "bytes": done.size, "sha256": done.sha256, "lost": list(done.lost)}))  # fmt: skip
        return 0
    click.echo(
        text("traces.made", None, path=out, sessions=done.sessions, requests=done.requests,
             size=f"{done.size / 1e6:.1f}", sha256=done.sha256[:16])
    )  # fmt: skip
    for lost in done.lost:
        click.echo(text(f"traces.lost.{lost}"))
    return 0


trace.add_command(simulate)


def _options(form: str | None, sessions: int | None, link: bool) -> TraceOptions:
    from servemark.traces.open import TraceOptions  # noqa: PLC0415

    return TraceOptions(cast("TraceFormat | None", form), sessions, link=link)


def _colour() -> bool:
    import os  # noqa: PLC0415

    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
