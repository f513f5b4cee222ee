"""`servemark run SELECTOR`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.errors import input_error
from servemark.base.home import Home
from servemark.base.messages import text
from servemark.cli.clusters import clusters_file, clusters_option
from servemark.cli.options import Finite, Verb, common

if TYPE_CHECKING:
    from servemark.runs.line import LineOutcome


def line_id_option(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An id made by a sweep; it names folders, so its letters are few."""
    if value is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}", value):
        raise input_error("cli.run.bad_line_id", id=value[:160])
    return value


@click.command(cls=Verb)
@click.argument("selector")
@click.option("--trace", metavar="TRACE", help="cli.run.option.trace")
@click.option("--sessions", type=click.IntRange(1, 100_000), help="cli.run.option.sessions")
@click.option(
    "--scale-lengths",
    type=Finite(0, 100, min_open=True),
    metavar="F",
    help="cli.run.option.scale_lengths",
)
@click.option(
    "--scale-think",
    type=Finite(0, 100),
    default=None,
    metavar="F",
    help="cli.run.option.scale_think",
)
@click.option(
    "--cache-bust", type=click.Choice(["none", "session", "request"]), help="cli.run.option.cache_bust"
)
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="cli.run.option.port")
@click.option("--no-evals", is_flag=True, help="cli.run.option.no_evals")
@click.option("--no-report", is_flag=True, help="cli.run.option.no_report")
@click.option("--dry-run", is_flag=True, help="cli.run.option.dry_run")
@click.option("--script", is_flag=True, help="cli.run.option.script")
@click.option("--render", type=click.Choice(["kubernetes"]), help="cli.run.option.render")
@click.option("--namespace", metavar="NAME", help="cli.run.option.namespace")
@click.option("--secret", "secrets", multiple=True, metavar="NAME", help="cli.run.option.secret")
@click.option(
    "--secrets-file", type=click.Path(path_type=Path), metavar="FILE", help="cli.run.option.secrets_file"
)
@click.option("--line-id", callback=line_id_option, hidden=True)
@click.option("--cluster", metavar="NAME", help="cli.run.option.cluster")
@click.option("--no-preflight", is_flag=True, help="cli.run.option.no_preflight")
@clusters_option
@common
def run(  # noqa: PLR0917 - one parameter an option
    selector: str,
    trace: str | None,
    sessions: int | None,
    scale_lengths: float | None,
    scale_think: float | None,
    cache_bust: str | None,
    port: int | None,
    no_evals: bool,
    no_report: bool,
    dry_run: bool,
    script: bool,
    render: str | None,
    namespace: str | None,
    secrets: tuple[str, ...],
    secrets_file: Path | None,
    line_id: str | None,
    cluster: str | None,
    no_preflight: bool,
    file: Path | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Text comes from the catalogue."""
    from servemark.cli import run_job  # noqa: PLC0415 - --help must not import the client
    from servemark.launch.secret_env import load_secrets, remember_environment  # noqa: PLC0415
    from servemark.runs.request import RunOptions, prepare  # noqa: PLC0415

    if trace is None and (sessions is not None or scale_lengths is not None):
        raise input_error("cli.run.only_with_trace")
    remember_environment()
    if script or render is not None:
        at = (cluster, clusters_file(file, home), file is not None)
        shown = run_job.script_text(selector, port, secrets, at) if script else None
        click.echo(shown or run_job.kubernetes_text(selector, namespace, secrets), nl=False)
        return 0
    options = RunOptions(
        secret_env={} if dry_run or script else load_secrets(secrets, secrets_file),
        trace=trace,
        sessions=sessions,
        scale_lengths=1.0 if scale_lengths is None else scale_lengths,
        scale_think=scale_think,
        cache_bust=cache_bust,  # type: ignore[arg-type]  # click has checked it
        port=port,
        evals=not no_evals,
        cluster=cluster,
        clusters_file=clusters_file(file, home),
        clusters_asked=file is not None,
        preflight=not no_preflight,
        command=("servemark", *sys.argv[1:]),
    )
    request = prepare(selector, options)
    where = Home.resolve(home)
    if dry_run:
        run_job.check(request)
        click.echo(run_job.dry_run_json(request) if as_json else run_job.dry_run_text(request))
        return 0
    return _told(run_job.watch(request, where, line_id), where, page=not no_report, as_json=as_json)


def _told(outcome: LineOutcome, where: Home, *, page: bool, as_json: bool) -> int:
    """Say what became of the line; the exit code."""
    from servemark.cli import run_job  # noqa: PLC0415 - --help must not import the client

    if outcome.store_error is not None:
        click.echo(text("runs.not_stored", None, reason=outcome.store_error.what()), err=True)
    written = run_job.make_report(outcome, where) if page and outcome.done else None
    if as_json:
        run_job.print_rows(outcome)
    else:
        run_job.print_outcome(outcome, written)
    if outcome.error is not None:
        raise outcome.error
    if not as_json and not outcome.done:
        click.echo(text("cli.run.nothing"), err=True)
    return 0 if outcome.complete else 1
