"""The store on real SQLite files: what goes in comes out, nothing twice, and the newest content counts."""

from __future__ import annotations

import runpy
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.results.row import ResultRow
from servemark.results.serialize import encode_result, read_result
from servemark.store.database import RowFilter, Store
from servemark.store.rebuild import ingest_run, ingest_runs

MADE = runpy.run_path(str(Path(__file__).parents[1] / "results" / "make_run.py"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One line of three runs, never changed."""
    made: list[Path] = MADE["make_line"](tmp_path_factory.mktemp("runs"))
    return made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    with Store.open(tmp_path / "store.sqlite") as opened:
        yield opened


def put(store: Store, row: ResultRow, **changed: Any) -> str:  # noqa: ANN401 - any field
    """Ingest a changed copy of a row."""
    return store.ingest(encode_result(replace(row, **changed)), "somewhere/result.json")


def test_rows_come_out_as_they_went_in(store: Store, folders: list[Path]) -> None:
    """Equal values, in the order of start; a second time changes nothing."""
    assert [ingest_run(store, folder) for folder in folders] == ["added"] * 3
    before = store.counts()
    assert [ingest_run(store, folder) for folder in folders] == ["same"] * 3
    assert store.counts() == before
    assert store.rows() == [read_result(folder) for folder in folders]
    assert (before.runs, before.lines, before.points, before.source_files, before.superseded) == (
        3,
        1,
        3,
        3,
        0,
    )
    assert store.check() == []


def test_filters(store: Store, folders: list[Path]) -> None:
    """Each field narrows; several together narrow further; a hostile value is a value."""
    rows = [read_result(folder) for folder in folders]
    for folder in folders:
        ingest_run(store, folder)
    put(store, rows[0], run_id="other-c1", line_id="other", suite="s2", arm="a2", status="partial")
    assert [r.run_id for r in store.rows(RowFilter(suite="s2"))] == ["other-c1"]
    assert [r.concurrency for r in store.rows(RowFilter(line_id=rows[0].line_id))] == [1, 2, 4]
    assert [r.run_id for r in store.rows(RowFilter(point_id=rows[0].point_id, status="complete"))] == [
        rows[0].run_id
    ]
    assert len(store.rows(RowFilter(series_id=rows[0].series_id))) == 2
    assert [r.concurrency for r in store.rows(RowFilter(arm=rows[0].arm, limit=2))] == [2, 4]
    assert store.rows(RowFilter(run_id="' OR 1=1 --")) == []


def test_later_content_of_a_run_supersedes_and_both_are_kept(store: Store, folders: list[Path]) -> None:
    """The one that finished later counts, whichever is read first; reading either again changes nothing."""
    row = read_result(folders[0])
    later, earlier = "2026-12-01T00:00:00Z", "2026-11-01T00:00:00Z"
    assert put(store, row) == "added"
    assert put(store, row, finished_utc=later, stalls=7) == "superseded"
    assert put(store, row, finished_utc=earlier, stalls=9) == "superseded"
    for again in ({}, {"finished_utc": later, "stalls": 7}, {"finished_utc": earlier, "stalls": 9}):
        assert put(store, row, **again) == "same"
    (kept,) = store.rows()
    assert (kept.finished_utc, kept.stalls) == (later, 7)
    counts = store.counts()
    assert (counts.runs, counts.superseded) == (1, 2)
    assert store.check() == []


def test_latest_line_is_the_newest_with_a_whole_point(store: Store, folders: list[Path]) -> None:
    """A newer line that holds only partial runs is listed, but it is not the latest one to compare with."""
    row = read_result(folders[0])
    assert store.latest_line(row.suite, row.arm) is None
    put(store, row, run_id="a-c1", line_id="a", started_utc="2026-01-01T00:00:00Z")
    put(store, row, run_id="b-c1", line_id="b", started_utc="2026-02-01T00:00:00Z")
    put(store, row, run_id="c-c1", line_id="c", started_utc="2026-03-01T00:00:00Z", status="partial")
    assert store.latest_line(row.suite, row.arm) == "b"
    assert store.latest_line(row.suite, "another") is None
    assert [(line.line_id, line.runs, line.complete) for line in store.lines()] == [
        ("a", 1, 1),
        ("b", 1, 1),
        ("c", 1, 0),
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"concurrency": 0},
        {"concurrency": 2**70},
    ],
)
def test_values_that_no_store_can_hold_are_refused_whole(
    store: Store, folders: list[Path], changed: dict[str, Any]
) -> None:
    """Nothing of such a row stays, and the store goes on working."""
    row = read_result(folders[0])
    with pytest.raises(ServemarkError) as caught:
        put(store, row, **changed)
    assert caught.value.layer in (Layer.STORE, Layer.RESULTS)
    assert store.counts().source_files == 0
    assert put(store, row) == "added"


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"schema":1}', b"\x00" * 100])
def test_bytes_that_are_no_row_are_refused(store: Store, data: bytes) -> None:
    """Layer results, and nothing is kept."""
    with pytest.raises(ServemarkError) as caught:
        store.ingest(data, "x/result.json")
    assert caught.value.layer is Layer.RESULTS
    assert store.counts().source_files == 0


def test_a_deleted_store_is_built_again(tmp_path: Path, folders: list[Path]) -> None:
    """The folders are the truth: the same rows come back; folders without a result and damaged ones are
    told."""
    runs = folders[0].parent
    path = tmp_path / "store.sqlite"
    with Store.open(path) as store:
        ingest_runs(store, runs)
        rows = store.rows()
    for left in tmp_path.iterdir():
        left.unlink()
    with Store.open(path) as store:
        report = ingest_runs(store, runs)
        assert store.rows() == rows
        assert (report.added, report.same, report.superseded, report.refused) == (3, 0, 0, ())
        assert ingest_runs(store, runs).same == 3
        assert ingest_runs(store, tmp_path / "nowhere").added == 0


def test_rebuild_tells_what_it_left_out(store: Store, tmp_path: Path) -> None:
    """One whole, one failed, one whose evidence was changed."""
    runs = tmp_path / "runs"
    MADE["make_point"](runs, 1)
    MADE["make_failed"](runs, 2)
    bad = MADE["make_point"](runs, 4)
    (bad / "evals.json").write_text("{}")
    report = ingest_runs(store, runs)
    assert (report.added, report.without_result) == (1, 1)
    ((folder, error),) = report.refused
    assert folder == bad
    assert error.key == "results.file_changed"


def test_reading_only(tmp_path: Path, folders: list[Path]) -> None:
    """A reader sees everything, writes nothing, and does not create a file."""
    path = tmp_path / "store.sqlite"
    with pytest.raises(ServemarkError) as caught:
        Store.open(path, read_only=True)
    assert caught.value.key == "store.missing"
    assert not path.exists()
    with Store.open(path) as writer, Store.open(path, read_only=True) as reader:
        ingest_run(writer, folders[0])
        assert len(reader.rows()) == 1
        with pytest.raises(ServemarkError) as caught:
            ingest_run(reader, folders[1])
        assert caught.value.key == "store.read_only"


def test_odd_paths(tmp_path: Path, folders: list[Path]) -> None:
    """Characters that mean something in a URI are part of a name here."""
    path = tmp_path / "a b?mode=ro#x%20" / "store.sqlite"
    with Store.open(path) as store:
        assert ingest_run(store, folders[0]) == "added"
    assert path.is_file()


def test_the_file_is_in_wal_mode(store: Store) -> None:
    """Readers and a writer do not wait for each other."""
    db = sqlite3.connect(store.path)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()
