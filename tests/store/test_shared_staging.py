"""A file that two processes stage leaves the very store that one process leaves, whatever becomes of the other one."""

from __future__ import annotations

import io
import json
import operator
import runpy
import sqlite3
from pathlib import Path

import pytest

from servemark.results.gates.registry import gates_version, judge_all
from servemark.results.importers.registry import importers
from servemark.store import shared_staging
from servemark.store.database import Store
from servemark.store.found_files import Found
from servemark.store.intake import FileReport, Intake, take_in
from servemark.store.raw_files import RawFiles
from servemark.store.staging import SpilledRows, Staging

MAKE = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "import_rows.py"


def a_list(n: int) -> bytes:
    """Rows of the published shape, 60 of each run; some of them damaged, and some of no known model."""
    rows = runpy.run_path(str(MAKE))["make"](n)
    for place in range(7, n, 50):
        rows[place]["model"] = "unheard-of"
    texts = [json.dumps(row) for row in rows]
    texts[3] = texts[-2] = '{"conc": NaN}'
    return ("[" + ",\n".join(texts) + "]").encode()


def imported(home: Path, data: bytes) -> tuple[FileReport, list[tuple[object, ...]], list[str]]:
    """(what is told, every row of every table, files left under raw)."""
    with Store.open(home / "store.sqlite") as store:
        intake = Intake(RawFiles(home / "raw"), importers(), judge_all, gates_version())
        report = take_in(store, intake, Found("list.json", len(data), lambda: io.BytesIO(data)))
    db = sqlite3.connect(home / "store.sqlite")
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'migration' ORDER BY name"
    tables = [name for (name,) in db.execute(names).fetchall()]
    rows = [
        (name, *(each for each in row if each != added))
        for name in tables
        for (added,) in [db.execute("SELECT added_utc FROM import_source").fetchone()]
        for row in db.execute(f"SELECT * FROM {name} ORDER BY 1, 2")  # noqa: S608 - the table's own name
    ]
    db.close()
    return report, rows, sorted(each.name for each in (home / "raw").rglob("*") if each.is_file())


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes any file large enough; rows that came from the other process."""
    found: list[int] = []
    take = Staging.take_spilled

    def noted(self: Staging, file: io.BufferedReader, rows: SpilledRows) -> None:
        found.append(rows.rows)
        take(self, file, rows)

    monkeypatch.setattr(Staging, "take_spilled", noted)
    monkeypatch.setattr(shared_staging, "_cores", lambda: 2)
    monkeypatch.setattr(shared_staging, "SHARED_BYTES", 1)
    return found


@pytest.mark.parametrize(
    "data", [a_list(400), a_list(400)[:-300], b"[" + b" " * 1000 + b"]"], ids=["sound", "cut", "none"]
)
def test_two_are_as_one(
    data: bytes, taken: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against one process alone: a sound file, one that ends within a row, one without rows."""
    shared = imported(tmp_path / "two", data)
    assert (0 < sum(taken) < 300) == (data[-1:] == b"]" and len(data) > 2000)
    monkeypatch.setattr(shared_staging, "SHARED_BYTES", 2**60)
    alone = imported(tmp_path / "one", data)
    assert shared[0].kept == alone[0].kept
    assert shared[1:] == alone[1:]


def test_the_other_process_fails(taken: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies at once: this one takes all rows, and no file is left."""
    monkeypatch.setattr(shared_staging, "_stage_rest", operator.add)
    data = a_list(200)
    report, _, files = imported(tmp_path, data)
    assert taken == []
    assert report.kept is not None
    assert sum(report.kept.rows.values()) == 200
    assert len(files) == 1
