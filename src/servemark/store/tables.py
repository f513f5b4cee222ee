"""Points as a flat table: for CSV, Parquet, and whoever computes with them elsewhere. Absent is an empty cell."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError
from servemark.base.printable import one_line
from servemark.store.points import StoredPoint

KEYS = (
    "point_key",
    "config_key",
    "line_key",
    "source",
    "run",
    "attempt",
    "at_utc",
    "model",
    "hardware",
    "engine",
    "precision",
    "scenario",
    "concurrency",
    "status",
    "verdict",
    "current",
    "latest",
    "file",
    "ordinal",
)
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Also their full-width forms, which some spreadsheets take alike."""


def columns(points: Sequence[StoredPoint]) -> list[str]:
    """Keys, then every figure's address that any of the points has."""
    found: dict[str, None] = {}
    for shape in {id(each): each for each in (one.addresses() for one in points)}.values():
        found.update(dict.fromkeys(shape))
    return [*KEYS, *sorted(found)]


def rows(points: Iterable[StoredPoint], names: Sequence[str]) -> Iterator[list[object]]:
    """One list a point in the order of `names`; None where it has no such figure."""
    for one in points:
        yield [getattr(one, name) if name in KEYS else one.value(name) for name in names]


def csv_lines(points: Sequence[StoredPoint]) -> Iterator[str]:
    """CSV with a header, for spreadsheets: text that one would run as a formula begins with an apostrophe, and what steers
    a terminal or breaks a line is written out (`\\x1b`, `\\n`). JSON and Parquet hold the text as it is."""
    names = columns(points)
    head: list[list[object]] = [list(names)]
    for row in itertools.chain(head, rows(points, names)):
        held = io.StringIO()
        csv.writer(held, lineterminator="\n").writerow([_cell(each) for each in row])
        yield held.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    return one_line(f"'{value}" if value.lstrip().startswith(_FORMULA) else value)


def write_parquet(points: Sequence[StoredPoint], path: Path) -> None:
    """One Parquet file; what is absent is null, in text columns too.

    Raises ServemarkError (layer install) without pyarrow, (layer home) when the disk refuses."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional extra
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError as error:
        raise ServemarkError("store.no_pyarrow", Layer.INSTALL, exit_code=2) from error
    names = columns(points)
    table = {
        name: [
            (None if (key := getattr(one, name)) == "" else key) if name in KEYS else one.value(name)
            for one in points
        ]
        for name in names
    }
    kinds = {"concurrency": pa.int64(), "attempt": pa.int64(), "ordinal": pa.int64()}
    kinds |= {"current": pa.int8(), "latest": pa.int8()}
    schema = pa.schema(
        [(name, kinds.get(name, pa.string() if name in KEYS else pa.float64())) for name in names]
    )
    pq.write_table(pa.table(table, schema=schema), path)
