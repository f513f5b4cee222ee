"""A file that two processes stage leaves the very store that one process leaves, whatever becomes of the other one."""

from __future__ import annotations

import io
import json
import os
import runpy
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servemark.results.gates.registry import gates_version, judge_all
from servemark.results.importers.registry import importers
from servemark.store import staging_process
from servemark.store.database import Store
from servemark.store.found_files import Found
from servemark.store.intake import FileReport, Intake, take_in
from servemark.store.raw_files import RawFiles
from servemark.store.staging import Staged
from servemark.store.staging_process import SecondProcess

MAKE = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "import_rows.py"
IMPORT = """
import io, sys
from pathlib import Path
from servemark.results.gates.registry import gates_version, judge_all
from servemark.results.importers.registry import importers
from servemark.store import staging_process
from servemark.store.database import Store
from servemark.store.found_files import Found
from servemark.store.intake import Intake, take_in
from servemark.store.raw_files import RawFiles
home, data = Path(sys.argv[1]), Path(sys.argv[2]).read_bytes()
staging_process.SHARED_BYTES, staging_process._cores = 1, lambda: 2
put = staging_process.SecondProcess.chunks
def chunks(self, runs):
    for chunk in put(self, runs):
        print(self._child.pid, flush=True)
        sys.stdin.readline()
        yield chunk
staging_process.SecondProcess.chunks = chunks
with Store.open(home / "store.sqlite") as store:
    intake = Intake(RawFiles(home / "raw"), importers(), judge_all, gates_version())
    take_in(store, intake, Found("list.json", len(data), lambda: io.BytesIO(data)))
"""
"""Imports a file, and waits with the lock held and the first rows inserted."""

Tables = list[tuple[object, ...]]


def a_list(n: int) -> bytes:
    """Rows of the published shape, 60 of each run; some of them damaged, and some of no known model."""
    rows = runpy.run_path(str(MAKE))["make"](n)
    for place in range(7, n, 50):
        rows[place]["model"] = "unheard-of"
    texts = [json.dumps(row) for row in rows]
    texts[3] = texts[-2] = '{"conc": NaN}'
    return ("[" + ",\n".join(texts) + "]").encode()


def tables(home: Path) -> Tables:
    """Every row of every table, without when it came."""
    db = sqlite3.connect(home / "store.sqlite")
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'migration' ORDER BY name"
    times = {row[0] for row in db.execute("SELECT added_utc FROM import_source")}
    found = [
        (name, *(each for each in row if each not in times))
        for (name,) in db.execute(names).fetchall()
        for row in db.execute(f"SELECT * FROM {name} ORDER BY 1, 2")  # noqa: S608 - the table's own name
    ]
    db.close()
    return found


def imported(home: Path, data: bytes) -> tuple[FileReport, Tables, list[str]]:
    """(what is told, every row of every table, files left under raw)."""
    with Store.open(home / "store.sqlite") as store:
        intake = Intake(RawFiles(home / "raw"), importers(), judge_all, gates_version())
        report = take_in(store, intake, Found("list.json", len(data), lambda: io.BytesIO(data)))
    return report, tables(home), sorted(each.name for each in (home / "raw").rglob("*") if each.is_file())


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes any file large enough; rows that came from the other process."""
    found: list[int] = []
    chunks = SecondProcess.chunks

    def noted(self: SecondProcess, runs: dict[tuple[str, str], int]) -> Iterator[list[Staged]]:
        for chunk in chunks(self, runs):
            found.append(len(chunk))
            yield chunk

    monkeypatch.setattr(SecondProcess, "chunks", noted)
    monkeypatch.setattr(staging_process, "_cores", lambda: 2)
    monkeypatch.setattr(staging_process, "SHARED_BYTES", 1)
    return found


def alone(home: Path, data: bytes, patch: pytest.MonkeyPatch) -> tuple[FileReport, Tables, list[str]]:
    """By one process, as on a machine of one core."""
    patch.setattr(staging_process, "_cores", lambda: 1)
    return imported(home, data)


@pytest.mark.parametrize(
    ("data", "shared"),
    [
        (a_list(400), True),
        (a_list(400)[:-300], False),
        (b"[" + b" " * 1000 + b"]", False),
        (json.dumps([{"hardware": "h", "date": "d", "n_success": 1, "total": 2}] * 50).encode(), False),
    ],
    ids=["sound", "cut", "none", "no results"],
)
def test_two_are_as_one(
    data: bytes, shared: bool, taken: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against one process alone: a sound file, one that ends within a row, one without rows, one that holds no results."""
    two = imported(tmp_path / "two", data)
    assert (250 < sum(taken) < 350) == shared
    one = alone(tmp_path / "one", data, monkeypatch)
    assert two[0].kept == one[0].kept
    assert two[1:] == one[1:]


def test_a_verdict_does_not_depend_on_the_cores(
    taken: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows told again under another run: of the very first ones, which are judged in another part, and of the last ones,
    which are judged beside them. On one core and on two the second kind alone is recognised, four
    rows and their four twins."""
    rows = json.loads(a_list(400).replace(b"NaN", b"1"))
    again = [
        {**row, "run_url": "https://example.org/actions/runs/99"} for row in (*rows[20:24], *rows[380:384])
    ]
    data = json.dumps(rows + again).encode()
    two = imported(tmp_path / "two", data)
    one = alone(tmp_path / "one", data, monkeypatch)
    assert sum(taken) > 250
    assert two[1:] == one[1:]
    assert len([row for row in one[1] if row[0] == "gate_finding" and row[2] == "duplicate"]) == 8


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_other_process_is_lost(
    how: signal.Signals, taken: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed, or stands still, before it has handed over a row: one process does all."""
    stage = SecondProcess.stage

    def lost(self: SecondProcess, *args: Any, **named: Any) -> None:  # noqa: ANN401 - passed on
        os.kill(self._child.pid, how)
        stage(self, *args, **named)

    monkeypatch.setattr(SecondProcess, "stage", lost)
    monkeypatch.setattr(staging_process, "STALLED_S", 1.0)
    data = a_list(200)
    two = imported(tmp_path / "two", data)
    assert taken == []
    one = alone(tmp_path / "one", data, monkeypatch)
    assert two[0].kept == one[0].kept
    assert two[1:] == one[1:]


def test_it_is_lost_while_rows_are_inserted(
    taken: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is locked and some of its rows are in: they are taken back, and one process does all."""
    chunks = SecondProcess.chunks

    def cut(self: SecondProcess, runs: dict[tuple[str, str], int]) -> Iterator[list[Staged]]:
        yield next(chunks(self, runs))
        self._child.kill()
        while True:
            self._hear()  # to the end of what it had said

    monkeypatch.setattr(SecondProcess, "chunks", cut)
    monkeypatch.setattr(staging_process, "TOGETHER", 60)
    data = a_list(400)
    two = imported(tmp_path / "two", data)
    assert 0 < sum(taken) < 250
    one = alone(tmp_path / "one", data, monkeypatch)
    assert two[0].kept == one[0].kept
    assert two[1:] == one[1:]


def test_it_never_starts(taken: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies at once: this process takes all rows, and no file is left."""
    monkeypatch.setattr(staging_process, "_START", "raise SystemExit(3)")
    report, _, files = imported(tmp_path, a_list(200))
    assert taken == []
    assert report.kept is not None
    assert sum(report.kept.rows.values()) == 200
    assert len(files) == 1


def test_the_importer_is_killed(tmp_path: Path) -> None:
    """kill -9 while rows are inserted: the store holds none of them, the other process ends, and a second import of the
    same file is whole."""
    data = a_list(300)
    (tmp_path / "list.json").write_bytes(data)
    argv = [sys.executable, "-c", IMPORT, str(tmp_path), str(tmp_path / "list.json")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        other = int(process.stdout.readline())
        process.kill()
    assert not [row for row in tables(tmp_path) if row[0] == "import_row"]
    until = time.monotonic() + 20
    while _runs(other) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _runs(other)
    report, *_ = imported(tmp_path, data)
    assert report.kept is not None
    assert sum(report.kept.rows.values()) == 300
    assert sorted(each.suffix for each in (tmp_path / "raw").rglob("*") if each.is_file()) == [".gz"]


def _runs(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
