"""`servemark import FILE|FOLDER|ZIP|-`: results of any tool into the store."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.home import Home
from servemark.base.messages import text
from servemark.cli.options import Verb, common

if TYPE_CHECKING:
    from servemark.store.backup import Opened
    from servemark.store.database import Store
    from servemark.store.found_files import Found
    from servemark.store.intake import FileReport, Intake


@click.command("import", cls=Verb)
@click.argument("files", nargs=-1)
@click.option("--set", "said", multiple=True, metavar="KEY=VALUE", help="cli.import.option.set")
@click.option("--power", multiple=True, metavar="CSV", help="cli.import.option.power")
@click.option("--window", metavar="START,END", help="cli.import.option.window")
@click.option("--gpu-roles", metavar="0-3=ROLE,…", help="cli.import.option.gpu_roles")
@click.option("--format", "format_id", metavar="ID", help="cli.import.option.format")
@click.option("--dry-run", is_flag=True, help="cli.import.option.dry_run")
@click.option("--remap", is_flag=True, help="cli.import.option.remap")
@common
def import_files(  # noqa: PLR0917 - click names them
    files: tuple[str, ...],
    said: tuple[str, ...],
    power: tuple[str, ...],
    window: str | None,
    gpu_roles: str | None,
    format_id: str | None,
    dry_run: bool,
    remap: bool,
    home: str | None,
    as_json: bool,
) -> int:
    """Text comes from the catalogue."""
    from servemark.base.errors import input_error  # noqa: PLC0415 - --help imports no room
    from servemark.store.database import Store  # noqa: PLC0415

    if remap == bool(files) or (remap and (said or power or window or gpu_roles or format_id or dry_run)):
        raise input_error("cli.import.what")
    where = Home.resolve(home)
    flags = {"window": window, "gpu_roles": gpu_roles}
    said += tuple(f"{name}={value}" for name, value in flags.items() if value is not None)
    intake = _intake(where, said, format_id, power)
    if "window" in intake.hints and (len(files) != 1 or not _one_result(files[0])):
        raise input_error("cli.import.window_one_file")
    if dry_run:
        return _all(None, intake, files, as_json)
    if remap and not where.store.exists():
        raise input_error("cli.import.nothing_kept", home=where.root)
    with Store.open(where.store) as store:
        if not remap:
            return _all(store, intake, files, as_json)
        from servemark.store.intake import map_again  # noqa: PLC0415

        code = 0
        for report in map_again(store, intake):
            code = max(code, _tell(report, as_json))
        return code


def _intake(where: Home, said: tuple[str, ...], format_id: str | None, power: tuple[str, ...]) -> Intake:
    from servemark.base.errors import input_error  # noqa: PLC0415
    from servemark.results.gates.registry import gates_version, judge_all  # noqa: PLC0415
    from servemark.results.importers.base import HINTS  # noqa: PLC0415
    from servemark.results.importers.points_file import POINTS_FILE  # noqa: PLC0415
    from servemark.results.importers.registry import importers  # noqa: PLC0415
    from servemark.results.measured_power import parse_roles, parse_window  # noqa: PLC0415
    from servemark.store.intake import Intake  # noqa: PLC0415
    from servemark.store.raw_files import RawFiles  # noqa: PLC0415

    known = (*importers(), POINTS_FILE)
    if format_id is not None and format_id not in {each.id for each in known}:
        ids = ", ".join(sorted(each.id for each in known))
        raise input_error("cli.import.no_format", format=format_id, formats=ids)
    hints = {}
    for each in said:
        key, equals, value = each.partition("=")
        if not equals or not key.strip():
            raise input_error("cli.import.bad_set", given=each)
        if key.strip() not in HINTS:
            raise input_error("cli.import.unknown_set", name=key.strip()[:60], known=", ".join(HINTS))
        hints[key.strip()] = value.strip()
    for name, check in (("window", parse_window), ("gpu_roles", parse_roles)):
        if name in hints:
            check(hints[name])
    return Intake(
        RawFiles(where.raw), known, judge_all, gates_version(), hints, format_id, _power_files(power)
    )


def _one_result(argument: str) -> bool:
    """Whether an argument is one file: a window is that of one result, never of all in a folder or a zip."""
    import zipfile  # noqa: PLC0415

    return argument == "-" or not (Path(argument).is_dir() or zipfile.is_zipfile(argument))


def _power_files(paths: tuple[str, ...]) -> dict[str, Found]:
    """GPU metrics that the user names, by their last name. Raises ServemarkError for one that is no file, or no GPU
    metrics: a typing error must not look like a result without power."""
    import io  # noqa: PLC0415

    from servemark.base.errors import input_error  # noqa: PLC0415
    from servemark.results.importers.base import HEAD_BYTES, Given  # noqa: PLC0415
    from servemark.results.importers.gpu_csv import detect  # noqa: PLC0415
    from servemark.results.measured_power import BETWEEN  # noqa: PLC0415
    from servemark.store.found_files import Refused, find  # noqa: PLC0415

    files: dict[str, Found] = {}
    for path in paths:
        for found in find(path, Path(path), io.BytesIO()) if path != "-" else ():
            if isinstance(found, Refused):
                raise found.error
            with found.open() as stream:
                head = stream.read(HEAD_BYTES)
            if not detect(Given(found.name, found.size, head, found.open)):
                raise input_error("cli.import.no_gpu_metrics", path=found.name)
            name = Path(found.name).name.replace(BETWEEN, "+")
            if name in files:
                raise input_error("cli.import.power_same_name", name=name)
            files[name] = found
        if not files:
            raise input_error("cli.import.no_gpu_metrics", path=path)
    return files


def _all(store: Store | None, intake: Intake, files: tuple[str, ...], as_json: bool) -> int:
    from servemark.store.backup import is_backup  # noqa: PLC0415
    from servemark.store.found_files import Refused, damaged, find  # noqa: PLC0415
    from servemark.store.intake import FileReport, take_in  # noqa: PLC0415

    code, seen = 0, 0
    for argument in files:
        for found in find(argument, intake.raw.folder, sys.stdin.buffer):
            seen += 1
            if isinstance(found, Refused):
                report = FileReport(found.name, "", "", None, found.error)
                code = max(code, _tell(report, as_json))
                continue
            try:
                with found.open() as stream:
                    backup = is_backup(stream.read(100))
            except OSError as error:
                report = FileReport(found.name, "", "", None, damaged(found.name, error))
                code = max(code, _tell(report, as_json))
                continue
            if backup:
                code = max(code, _restore(store, intake, found.name, found.open, as_json))
            else:
                code = max(code, _tell(take_in(store, intake, found), as_json, dry=store is None))
    if not seen:
        click.echo(text("cli.import.empty"), err=True)
        return 1
    return code


def _restore(store: Store | None, intake: Intake, name: str, opened: Opened, as_json: bool) -> int:
    from servemark.store.backup import restore  # noqa: PLC0415

    if store is None:
        click.echo(text("cli.import.backup_dry", None, name=name))
        return 0
    tally = restore(store, intake, opened, name)
    if as_json:
        body = {"file": name, "format": "servemark-export", **asdict(tally)}
        click.echo(json.dumps(body, ensure_ascii=False))
        return 1 if tally.altered else 0
    counts = {"added": tally.added, "same": tally.same, "rows": tally.rows}
    click.echo(text("cli.import.restored", None, name=name, **counts))
    for kind, rows in (("remapped", tally.remapped), ("altered", tally.altered)):
        if rows:
            click.echo("  " + text(f"cli.import.restored_{kind}", None, rows=rows))
    return 1 if tally.altered else 0


def _tell(report: FileReport, as_json: bool, *, dry: bool = False) -> int:
    """One file's line; 0 when every row is a point, else 1."""
    from servemark.cli.import_view import report_json, report_lines  # noqa: PLC0415

    if as_json:
        click.echo(json.dumps(report_json(report), ensure_ascii=False))
    else:
        for line in report_lines(report, dry=dry):
            click.echo(line)
    return 0 if report.whole else 1
