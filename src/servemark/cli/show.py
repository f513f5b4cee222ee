"""`servemark show RUN [METRIC [--why]]`: one run, one figure, or where a figure comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.home import Home
from servemark.base.messages import current_language, text
from servemark.cli.options import Verb, common

if TYPE_CHECKING:
    from servemark.runs.folder import RunInfo


@click.command(cls=Verb)
@click.argument("run")
@click.argument("metric", required=False)
@click.option("--why", is_flag=True, help="cli.show.option.why")
@common
def show(run: str, metric: str | None, why: bool, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from servemark.base.errors import input_error  # noqa: PLC0415 - --help imports no room
    from servemark.cli.run_list import reason, run_json  # noqa: PLC0415

    if why and metric is None:
        raise input_error("cli.show.why_what")
    runs = Home.resolve(home).runs
    if run != "latest" and not (runs / run).exists():
        from servemark.cli.point_view import show_point  # noqa: PLC0415

        code = show_point(Home.resolve(home), run, metric, why=why, as_json=as_json)
        if code is not None:
            return code
    line, info = _found(Home.resolve(home), run, metric)
    if info is None:
        return _whole(line, as_json)
    if not info.state.has_result:
        if as_json:
            click.echo(json.dumps(run_json(info), ensure_ascii=False))
        else:
            state = text(f"runs.state.{info.state}")
            click.echo(text("cli.show.no_result", None, run=info.run_id, state=state))
            if reason(info):
                click.echo(reason(info))
            click.echo(text("cli.show.folder", None, folder=info.path))
        return 1
    if metric is None:
        return _whole([info.path], as_json)
    if _on_point_alone(metric):
        from servemark.cli.point_view import show_point  # noqa: PLC0415

        code = show_point(Home.resolve(home), _row_name(info), metric, why=why, as_json=as_json)
        if code is not None:
            return code
    return _why(info, metric, as_json) if why else _figure(info, metric, as_json)


def _found(home: Home, name: str, metric: str | None) -> tuple[list[Path], RunInfo | None]:
    """The folders of a line that is asked for as a whole, or one run. Raises ServemarkError that says where was looked."""
    from servemark.base.errors import ServemarkError, input_error  # noqa: PLC0415
    from servemark.runs.folder import find_line, find_run  # noqa: PLC0415

    try:
        if metric is None and name != "latest" and not (home.runs / name).exists():
            line_id, folders = find_line(home.runs, name)
            if line_id == name or len(folders) > 1:
                return folders, None
        return [], find_run(home.runs, name)
    except ServemarkError as error:
        if error.key not in {"runs.no_such_run", "runs.none_yet"} or not home.store.exists():
            raise
        raise input_error("cli.show.nothing", name=name, home=home.root) from error


def _on_point_alone(metric: str) -> bool:
    """Whether a figure of a run stands on its point only: what power samples gave."""
    from servemark.metrics.registry import METRICS, Kind  # noqa: PLC0415

    known = METRICS.get(metric.partition(".")[0])
    return known is not None and known.kind is Kind.TELEMETRY


def _row_name(info: RunInfo) -> str:
    """The name of the run's point in the store: SHA256:ROW of its result."""
    from servemark.base.files import sha256_file  # noqa: PLC0415

    return f"{sha256_file(info.path / 'result.json')}:0"


def _whole(folders: list[Path], as_json: bool) -> int:
    """One run, or all runs of a line; exit code 1 when one of them has no result."""
    from servemark.results.serialize import read_result, signed_json  # noqa: PLC0415
    from servemark.runs.folder import inspect  # noqa: PLC0415

    sound = [folder for folder in folders if inspect(folder).state.has_result]
    code = 0 if len(sound) == len(folders) else 1
    if as_json:
        for folder in sound:
            click.echo(json.dumps(signed_json(read_result(folder / "result.json")), ensure_ascii=False))
        return code
    from rich.console import Console  # noqa: PLC0415 - drawing only

    from servemark.analysis.report_data import build_report_data  # noqa: PLC0415
    from servemark.cli.line_view import print_line, print_point  # noqa: PLC0415

    console = Console()
    data = build_report_data(folders, current_language())
    print_line(console, data)
    for point in data.points if len(folders) == 1 else ():
        print_point(console, data, point)
    for folder in folders:
        console.print(text("cli.show.folder", None, folder=folder), style="dim", soft_wrap=True)
    return code


def _figure(info: RunInfo, metric: str, as_json: bool) -> int:
    from servemark.analysis.format import display  # noqa: PLC0415
    from servemark.metrics.derive import read  # noqa: PLC0415
    from servemark.results.serialize import read_result, row_to_json  # noqa: PLC0415

    reading = read(row_to_json(read_result(info.path / "result.json")), metric)
    unit = str(reading.address.metric.unit)
    if as_json:
        why_absent = text(reading.reason) if reading.reason else None
        body = {"run_id": info.run_id, "metric": metric, "value": reading.value, "unit": unit}
        click.echo(json.dumps({**body, "absent_because": why_absent}, ensure_ascii=False))
    elif reading.value is None:
        click.echo(text("cli.show.absent", None, why=text(reading.reason or "metrics.absent.always")))
    else:
        click.echo(display(reading.address.metric.unit, [reading.value]).text(reading.value))
    return 0 if reading.value is not None else 1


def _why(info: RunInfo, metric: str, as_json: bool) -> int:
    from servemark.cli.why_view import why_json, why_lines  # noqa: PLC0415
    from servemark.results.serialize import read_result  # noqa: PLC0415
    from servemark.results.why import explain  # noqa: PLC0415

    row = read_result(Path(info.path) / "result.json")
    found = explain(info.path, row, metric)
    if as_json:
        click.echo(json.dumps(why_json(found), ensure_ascii=False))
    else:
        for line in why_lines(found):
            click.echo(line)
        click.echo(text("cli.show.folder", None, folder=info.path))
    return 0 if found.value is not None else 1
