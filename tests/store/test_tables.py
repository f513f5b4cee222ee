"""Points as tables: CSV that no spreadsheet runs and no terminal obeys; Parquet read back by pyarrow and DuckDB."""

from __future__ import annotations

import csv
import io
import runpy
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.store.database import Store
from servemark.store.found_files import Found
from servemark.store.intake import Intake, take_in
from servemark.store.points import PointFilter, StoredPoint, load_points
from servemark.store.raw_files import RawFiles
from servemark.store.tables import KEYS, csv_lines, write_parquet

ROWS = runpy.run_path(str(Path(__file__).with_name("rows_importer.py")))
line = ROWS["line"]


def stored(tmp_path: Path, data: bytes) -> list[StoredPoint]:
    """The points of these rows, through a store."""
    intake = Intake(RawFiles(tmp_path / "raw"), (ROWS["reading"](1),), ROWS["judge"])
    with Store.open(tmp_path / "store.sqlite") as store:
        take_in(store, intake, Found("a", len(data), lambda: io.BytesIO(data)))
        return list(load_points(store, PointFilter()))


@pytest.mark.parametrize(
    ("run", "shown"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        (" \t=1", "' " + " " + "=1"),
        ("\n=1", "'\\n=1"),
        ("\uff1d1", "'\uff1d1"),
        ("a\x1b[31m\u202eb\r\nc", "a\\x1b[31m\\u202eb\\x0d\\nc"),
        ("plain = fine", "plain = fine"),
    ],
)
def test_csv_text_is_only_text(tmp_path: Path, run: str, shown: str) -> None:
    """No cell begins a formula, no control character is raw, a row stays a line."""
    points = stored(tmp_path, line(4, run, date=""))
    text = "".join(csv_lines(points))
    assert len(text.splitlines()) == 2
    assert not any(ord(char) < 32 and char != "\n" for char in text)
    (row,) = csv.DictReader(io.StringIO(text))
    assert row["run"] == shown


def test_parquet_is_read_back(tmp_path: Path) -> None:
    """Equal to the store's own reading, by another program: types, values, absent as null."""
    pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra (servemark[parquet])")
    points = stored(tmp_path, line(4, "r1", date="") + line(8, "=r\u202e2", extra=1.5))
    path = tmp_path / "points.parquet"
    write_parquet(points, path)
    table = pq.read_table(path)
    assert table.column_names == [*KEYS, "extra", "tput", "ttft"]
    types = {name: str(table.schema.field(name).type) for name in ("concurrency", "current", "model", "ttft")}
    assert types == {"concurrency": "int64", "current": "int8", "model": "string", "ttft": "double"}
    first, second = table.to_pylist()
    assert (first["concurrency"], first["at_utc"], first["extra"], first["ttft"]) == (4, None, None, 0.25)
    assert (second["run"], second["extra"], second["at_utc"]) == ("=r\u202e2", 1.5, "2026-06-01")
    assert [row["point_key"] for row in (first, second)] == [one.point_key for one in points]
    write_parquet([], tmp_path / "none.parquet")
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    found = duckdb.execute("SELECT run, ttft FROM read_parquet(?) WHERE extra > 1", [str(path)]).fetchall()
    assert found == [("=r\u202e2", 0.25)]


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Says what to install; exit code 2."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ServemarkError) as caught:
        write_parquet([], tmp_path / "x.parquet")
    assert (caught.value.key, caught.value.exit_code) == ("store.no_pyarrow", 2)
