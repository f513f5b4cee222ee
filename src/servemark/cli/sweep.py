"""`servemark sweep start|status|pause|resume|cancel|retry|list`: many runs that survive whatever happens to this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.errors import input_error
from servemark.base.home import Home
from servemark.base.messages import text
from servemark.cli.clusters import clusters_file, clusters_option, named_cluster
from servemark.cli.options import Finite, SubVerbGroup, Verb, common, language

if TYPE_CHECKING:
    from servemark.catalog.cluster_launch import LaunchCluster
    from servemark.runs.sweep_control import Control
    from servemark.runs.sweep_plan import SweepOptions
    from servemark.runs.sweep_scheduler import SweepEnd

_MANY = 4
"""Units at once where a batch system queues them; one on this machine, where runs would disturb each other."""


class SweepVerb(Verb):
    """A verb below `sweep`: its texts stand under `cli.sweep_<verb>`."""

    group = "sweep"


@click.group(cls=SubVerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@language
def sweep() -> None:
    """Text comes from the catalogue."""


@sweep.command("start", cls=SweepVerb)
@click.argument("selectors", nargs=-1, metavar="[SELECTOR]...")
@click.option("--suite", metavar="SUITE", help="cli.sweep.suite")
@click.option("--plan", type=click.Path(path_type=Path), metavar="FILE", help="cli.sweep.plan")
@click.option("--changed-since", metavar="GITREF", help="cli.sweep.changed_since")
@click.option("--max-parallel", type=click.IntRange(1, 1_000), metavar="N", help="cli.sweep.max_parallel")
@click.option("--fail-fast/--keep-going", default=False, help="cli.sweep.fail_fast")
@click.option("--canary", is_flag=True, help="cli.sweep.canary")
@click.option("--canary-point", metavar="SELECTOR", help="cli.sweep.canary_point")
@click.option("--by-point", is_flag=True, help="cli.sweep.by_point")
@click.option("--priority", type=click.IntRange(-1_000_000, 1_000_000), default=0, help="cli.sweep.priority")
@click.option("--max-attempts", type=click.IntRange(1, 100), default=3, help="cli.sweep.max_attempts")
@click.option("--backoff", type=Finite(0, 3600), default=10.0, metavar="S", help="cli.sweep.backoff")
@click.option("--cluster", "clusters", multiple=True, metavar="[RUNNER=]NAME", help="cli.sweep.cluster")
@clusters_option
@click.option("--no-evals", is_flag=True, help="cli.run.option.no_evals")
@click.option("--secret", "secrets", multiple=True, metavar="NAME", help="cli.run.option.secret")
@click.option(
    "--secrets-file", type=click.Path(path_type=Path), metavar="FILE", help="cli.run.option.secrets_file"
)
@click.option("--rehearse", is_flag=True, help="cli.sweep.rehearse")
@click.option("--detach", is_flag=True, help="cli.sweep.detach")
@common
def start(home: str | None, as_json: bool, detach: bool, **options: object) -> int:
    """Text comes from the catalogue."""
    from servemark.runs.sweep_control import Control, create  # noqa: PLC0415 - --help imports no room

    where = Home.resolve(home)
    asked, clusters = _asked(options, home)
    if asked.plan is not None and asked.suite is None and not asked.selectors:
        _tell_suite(Path(asked.plan))
    made = create(where, asked)
    control = Control(where, made.sweep_id, clusters)
    if not as_json:
        click.echo(text("cli.sweep.frozen", None, sweep=made.sweep_id), err=True)
    if detach:
        return _detached(control, as_json=as_json)
    return _finish(control, _watched(control, "resume"), as_json=as_json)


def _tell_suite(plan: Path) -> None:
    """The folder that the sweep will run from, since the plan's file chose it and nobody on the command line."""
    from servemark.base.printable import one_line  # noqa: PLC0415 - --help imports no room
    from servemark.runs.sweep_prune import read_pruned_plan  # noqa: PLC0415

    folder = read_pruned_plan(plan).suite_folder()
    if folder is not None:
        click.echo(
            text("cli.sweep.plan_suite", None, folder=one_line(folder), path=one_line(str(plan))), err=True
        )


def _asked(options: dict[str, object], home: str | None) -> tuple[SweepOptions, dict[str, LaunchCluster]]:
    """The options as they are frozen, and the clusters that they name."""
    from servemark.launch.secret_env import load_secrets  # noqa: PLC0415 - --help imports no room
    from servemark.runs.site import HERE  # noqa: PLC0415
    from servemark.runs.sweep_plan import SweepOptions  # noqa: PLC0415

    file = options["file"]
    path = file if isinstance(file, Path) else None
    default, by_runner, found = None, {}, {}
    for named in _texts(options["clusters"]):
        runner, equals, name = named.rpartition("=")
        if name == HERE and not clusters_file(path, home).is_file():
            continue  # this machine, as without the option
        cluster = named_cluster(name, path, home)
        found[cluster.name] = cluster
        if equals:
            by_runner[runner] = cluster.name
        elif default is not None:
            raise input_error("cli.sweep.two_clusters", first=default, second=cluster.name)
        else:
            default = cluster.name
    secrets, secrets_file = _texts(options["secrets"]), options["secrets_file"]
    kept = secrets_file.absolute() if isinstance(secrets_file, Path) else None
    load_secrets(secrets, kept)  # what is missing is said now, not by every run
    arguments = [f"--secret={name}" for name in secrets]
    arguments += [f"--secrets-file={kept}"] if kept is not None else []
    arguments += ["--no-evals"] if options["no_evals"] else []
    parallel = options["max_parallel"] or (_MANY if any(c.launcher == "slurm" for c in found.values()) else 1)
    asked = SweepOptions(
        selectors=_texts(options["selectors"]),
        max_parallel=int(str(parallel)),
        arguments=tuple(arguments),
        cluster=default,
        clusters=by_runner,
        clusters_file=str(clusters_file(path, home).absolute()) if found else None,
        plan=str(options["plan"].absolute()) if isinstance(options["plan"], Path) else None,
        backoff_s=float(str(options["backoff"])),
        **{name: options[name] for name in _PLAIN},  # type: ignore[arg-type]  # click has checked them
    )
    return asked, found


_PLAIN = (
    "suite",
    "changed_since",
    "fail_fast",
    "canary",
    "canary_point",
    "by_point",
    "priority",
    "max_attempts",
    "rehearse",
)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(each) for each in value) if isinstance(value, tuple) else ()


@sweep.command("status", cls=SweepVerb)
@click.argument("name", required=False, default="latest", metavar="[SWEEP]")
@click.option("--all", "every", is_flag=True, help="cli.sweep.all")
@click.option("--watch", is_flag=True, help="cli.sweep.watch")
@common
def status(name: str, every: bool, watch: bool, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from servemark.cli.sweep_view import print_status, watch_status  # noqa: PLC0415
    from servemark.runs.sweep_control import find  # noqa: PLC0415
    from servemark.runs.sweep_status import read_status, status_json  # noqa: PLC0415

    where = Home.resolve(home)
    found = find(where, name)
    if watch and not as_json:
        watch_status(where, found, every=every)
        return 0
    now = read_status(where, found)
    if as_json:
        click.echo(json.dumps(status_json(now, where), ensure_ascii=False))
    else:
        print_status(now, every=every)
    return 0


@sweep.command("list", cls=SweepVerb)
@common
def list_sweeps(home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from servemark.cli.sweep_view import print_list  # noqa: PLC0415
    from servemark.runs.sweep_status import read_status, status_json  # noqa: PLC0415
    from servemark.store.sweeps import SweepStore  # noqa: PLC0415

    where = Home.resolve(home)
    store = SweepStore.read(where.sweeps)
    if store is None:
        if not as_json:
            click.echo(text("cli.sweep.none", None, home=where.root))
        return 0
    with store:
        found = [read_status(where, one, store) for one in store.sweeps()]
    if not as_json:
        print_list(found)
        return 0
    for one in found:
        body = status_json(one, where)
        click.echo(json.dumps({k: v for k, v in body.items() if k not in ("points", "attempts")}))
    return 0


@sweep.command("pause", cls=SweepVerb)
@click.argument("name", metavar="SWEEP")
@common
def pause(name: str, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    control = _control(name, home)
    going_on = control.pause()
    return _told(control, "cli.sweep.pausing" if going_on else "cli.sweep.paused", as_json=as_json)


@sweep.command("resume", cls=SweepVerb)
@click.argument("name", required=False, default="latest", metavar="[SWEEP]")
@click.option("--detach", is_flag=True, help="cli.sweep.detach")
@common
def resume(name: str, detach: bool, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    control = _control(name, home)
    if detach:
        return _detached(control, as_json=as_json)
    end = _watched(control, "resume")
    return (
        _told(control, "cli.sweep.resumed", as_json=as_json)
        if end is None
        else _finish(control, end, as_json=as_json)
    )


@sweep.command("cancel", cls=SweepVerb)
@click.argument("name", metavar="SWEEP")
@common
def cancel(name: str, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    control = _control(name, home)
    end = _watched(control, "cancel")
    return _told(control, "cli.sweep.cancelled" if end else "cli.sweep.cancelling", as_json=as_json)


@sweep.command("retry", cls=SweepVerb)
@click.argument("name", metavar="SWEEP")
@click.argument("points", nargs=-1, metavar="[POINT]...")
@click.option("--failed", is_flag=True, help="cli.sweep.failed")
@click.option("--detach", is_flag=True, help="cli.sweep.detach")
@common
def retry(  # noqa: PLR0917 - click passes by name
    name: str, points: tuple[str, ...], failed: bool, detach: bool, home: str | None, as_json: bool
) -> int:
    """Text comes from the catalogue."""
    from servemark.runs.sweep_control import chosen_points  # noqa: PLC0415 - --help imports no room
    from servemark.runs.sweep_status import read_status  # noqa: PLC0415

    if not points and not failed:
        raise input_error("cli.sweep.retry_what")
    control = _control(name, home)
    now = read_status(control.home, control.row())
    numbers = chosen_points(now.points, points, failed=failed)
    if not numbers:
        click.echo(text("cli.sweep.none_failed"), err=True)
        return 0
    if detach:
        control.retry_later(numbers)
        return _detached(control, as_json=as_json)
    end = _watched(control, "retry", numbers)
    return (
        _told(control, "cli.sweep.retrying", as_json=as_json)
        if end is None
        else _finish(control, end, as_json=as_json)
    )


def _control(name: str, home: str | None) -> Control:
    """The sweep of that name, with the clusters that it was started with."""
    from servemark.runs.sweep_control import Control, find  # noqa: PLC0415 - --help imports no room
    from servemark.runs.sweep_plan import SweepOptions  # noqa: PLC0415

    where = Home.resolve(home)
    found = find(where, name)
    options = SweepOptions.of(found.options)
    names = {one for one in (options.cluster, *options.clusters.values()) if one is not None}
    file = Path(options.clusters_file) if options.clusters_file is not None else None
    return Control(where, found.sweep_id, {one: named_cluster(one, file, home) for one in names})


def _watched(control: Control, what: str, numbers: list[int] | None = None) -> SweepEnd | None:
    """Work on the sweep with a live view on stderr when that is a terminal."""
    from servemark.cli.sweep_view import live_view  # noqa: PLC0415

    with live_view(control.home, control.row()) as changed:
        if what == "cancel":
            return control.cancel(changed)
        return control.resume(changed) if numbers is None else control.retry(numbers, changed)


def _finish(control: Control, end: SweepEnd | None, *, as_json: bool) -> int:
    from servemark.cli.sweep_view import next_step, print_status  # noqa: PLC0415
    from servemark.runs.sweep_status import read_status, status_json  # noqa: PLC0415
    from servemark.store.sweep_rows import SweepState  # noqa: PLC0415

    now = read_status(control.home, control.row())
    if as_json:
        click.echo(json.dumps(status_json(now, control.home), ensure_ascii=False))
    else:
        print_status(now)
        step = next_step(now)
        if step:
            click.echo(step)
    if end is None or end.state is SweepState.DONE:
        return 0
    return end.signal_code or 1


def _told(control: Control, key: str, *, as_json: bool) -> int:
    """What was done to the sweep, in one line."""
    if as_json:
        from servemark.runs.sweep_status import read_status, status_json  # noqa: PLC0415

        now = read_status(control.home, control.row())
        click.echo(json.dumps(status_json(now, control.home), ensure_ascii=False))
    else:
        click.echo(text(key, None, sweep=control.sweep_id))
    return 0


def _detached(control: Control, *, as_json: bool) -> int:
    pid = control.detach()
    if as_json:
        click.echo(json.dumps({"sweep_id": control.sweep_id, "pid": pid, "log": str(control.log)}))
    else:
        click.echo(text("cli.sweep.detached", None, sweep=control.sweep_id, pid=pid, log=control.log))
    return 0
