"""`servemark export`: the whole store of imports as a backup, or chosen points as JSON, CSV or Parquet."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.home import Home
from servemark.cli.options import Verb, language

if TYPE_CHECKING:
    from servemark.store.points import StoredPoint


@click.command(cls=Verb)
@click.option("--parquet", "kind", flag_value="parquet", help="cli.export.option.parquet")
@click.option("--json", "kind", flag_value="json", default=True, help="cli.export.option.json")
@click.option("--csv", "kind", flag_value="csv", help="cli.export.option.csv")
@click.option("-o", "--output", metavar="FILE", help="cli.export.option.output")
@click.option("--model", help="cli.export.option.model")
@click.option("--hardware", help="cli.export.option.hardware")
@click.option("--engine", help="cli.export.option.engine")
@click.option("--precision", help="cli.export.option.precision")
@click.option("--scenario", help="cli.export.option.scenario")
@click.option("--source", help="cli.export.option.source")
@click.option("--run", help="cli.export.option.run")
@click.option("--latest", is_flag=True, help="cli.export.option.latest")
@click.option("--valid", is_flag=True, help="cli.export.option.valid")
@click.option("--home", metavar="DIR", help="cli.option.home")
@language
def export(
    kind: str, output: str | None, latest: bool, valid: bool, home: str | None, **chosen: str | None
) -> int:
    """Text comes from the catalogue."""
    from servemark.base.errors import input_error  # noqa: PLC0415 - --help imports no room
    from servemark.store.backup import write_backup  # noqa: PLC0415
    from servemark.store.database import Store  # noqa: PLC0415
    from servemark.store.points import PointFilter, load_points  # noqa: PLC0415
    from servemark.store.raw_files import RawFiles  # noqa: PLC0415
    from servemark.store.tables import csv_lines, write_parquet  # noqa: PLC0415

    kind = kind if kind in ("parquet", "csv") else "json"
    if kind == "parquet" and output is None:
        raise input_error("cli.export.parquet_where")
    where = Home.resolve(home)
    with Store.open(where.store, read_only=True) as store:
        filtered = latest or valid or any(chosen.values())
        wanted = PointFilter(**chosen, latest=latest, quarantined=not valid, superseded=not filtered)  # type: ignore[arg-type]
        if kind == "json" and not filtered:
            _write(write_backup(store, RawFiles(where.raw)), output)
        elif kind == "json":
            _write(_points(load_points(store, wanted)), output)
        elif kind == "csv":
            _write(csv_lines(list(load_points(store, wanted))), output)
        else:
            points = list(load_points(store, wanted))
            with _under_its_name(Path(output or "")) as temporary:
                write_parquet(points, temporary)
    return 0


def _points(found: Iterable[StoredPoint]) -> Iterator[str]:
    import json  # noqa: PLC0415

    from servemark.results.importers.points_file import HEADER  # noqa: PLC0415
    from servemark.results.point import POINT_SCHEMA, point_json  # noqa: PLC0415

    yield json.dumps({HEADER: 1, "schema": POINT_SCHEMA}) + "\n"
    for one in found:
        yield point_json(one.point()) + "\n"


def _write(lines: Iterable[str], output: str | None) -> None:
    """To stdout, or to a file that appears under its name only when whole."""
    if output is None:
        for line in lines:
            sys.stdout.write(line)
        return
    from servemark.base.files import disk_error  # noqa: PLC0415

    with _under_its_name(Path(output)) as temporary:
        try:
            with temporary.open("w", encoding="utf-8", newline="") as stream:
                stream.writelines(lines)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise disk_error(error, output) from error


@contextlib.contextmanager
def _under_its_name(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, which takes its name when all went well and goes otherwise."""
    from servemark.base.files import disk_error  # noqa: PLC0415

    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise disk_error(error, path) from error
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise disk_error(error, path) from error
    finally:
        temporary.unlink(missing_ok=True)
