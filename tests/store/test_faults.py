"""Files that are damaged, locked, foreign or out of space: one clear message, and what was there is
unharmed."""

from __future__ import annotations

import os
import random
import runpy
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.base.messages import LANGUAGES
from servemark.store import faults
from servemark.store.database import Store
from servemark.store.rebuild import ingest_run

MADE = runpy.run_path(str(Path(__file__).parents[1] / "results" / "make_run.py"))
NOBODY = 65534


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One line of three runs, never changed."""
    made: list[Path] = MADE["make_line"](tmp_path_factory.mktemp("runs"))
    return made


def filled(path: Path, folders: list[Path]) -> None:
    """A store with rows, closed so that everything is in the main file."""
    with Store.open(path) as store:
        for folder in folders:
            ingest_run(store, folder)


def told(error: ServemarkError, path: Path) -> str:
    """The key, after making sure that both languages name the file and the way out."""
    assert error.layer is Layer.STORE
    for lang in LANGUAGES:
        assert str(path) in error.what(lang)
        assert error.next_step(lang)
    return error.key


@pytest.mark.parametrize(
    "content", [b"hello, I am no database " * 400, b"\x00" * 5000, b"SQLite format 3\x00"]
)
def test_not_a_database(tmp_path: Path, content: bytes) -> None:
    """Another kind of file is refused and not touched."""
    path = tmp_path / "store.sqlite"
    path.write_bytes(content)
    for read_only in (False, True):
        with pytest.raises(ServemarkError) as caught:
            Store.open(path, read_only=read_only)
        assert told(caught.value, path) in ("store.not_a_database", "store.damaged")
    assert path.read_bytes() == content


def test_damage_anywhere_is_a_message_never_a_trace(tmp_path: Path, folders: list[Path]) -> None:
    """Pages overwritten with noise, at many places: a ServemarkError or a right answer, nothing else."""
    whole = tmp_path / "whole.sqlite"
    filled(whole, folders)
    data, rng, seen = whole.read_bytes(), random.Random(7), set()
    for round_number in range(40):
        path = tmp_path / f"{round_number}.sqlite"
        hurt = bytearray(data)
        at = rng.randrange(100, len(hurt) - 512)
        hurt[at : at + 512] = rng.randbytes(512)
        path.write_bytes(hurt)
        try:
            with Store.open(path) as store:
                store.rows()
                store.lines()
                ingest_run(store, folders[0])
                assert store.check() != [] or store.rows()
        except ServemarkError as error:
            seen.add(error.key)
            assert error.layer in (Layer.STORE, Layer.RESULTS)
            assert error.next_step("en")
    assert "store.damaged" in seen


def test_truncated(tmp_path: Path, folders: list[Path]) -> None:
    """Half a file."""
    path = tmp_path / "store.sqlite"
    filled(path, folders)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ServemarkError) as caught, Store.open(path) as store:
        store.rows()
    assert told(caught.value, path) == "store.damaged"


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    """A directory, and a path below a file."""
    path = tmp_path / "store.sqlite"
    path.mkdir()
    with pytest.raises(ServemarkError) as caught:
        Store.open(path)
    assert told(caught.value, path) == "store.not_a_database"
    (tmp_path / "file").touch()
    with pytest.raises(ServemarkError) as caught:
        Store.open(tmp_path / "file" / "store.sqlite")
    assert caught.value.layer is Layer.HOME


def test_locked_for_too_long(tmp_path: Path, folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another connection holds the write lock: readers go on, a writer is told after the time-out."""
    path = tmp_path / "store.sqlite"
    filled(path, folders[:1])
    monkeypatch.setattr("servemark.store.database.BUSY_TIMEOUT_S", 0.2)
    monkeypatch.setattr(faults, "BUSY_TIMEOUT_S", 0.2)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        with Store.open(path) as store:
            assert len(store.rows()) == 1
            with pytest.raises(ServemarkError) as caught:
                ingest_run(store, folders[1])
        assert told(caught.value, path) == "store.locked"
        assert "0.2" in caught.value.what("en")
    finally:
        holder.close()


WRITE = """
import os, resource, sys
from pathlib import Path
from servemark.base.errors import ServemarkError
from servemark.store.database import Store
from servemark.store.rebuild import ingest_run
from servemark.base.messages import catalogue
from servemark.results.serialize import read_result
from servemark.store.migrate import shipped
path, folder, limit, user = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
data = (folder / "result.json").read_bytes()
read_result(folder), shipped(), [catalogue("en", room) for room in ("store", "base")]  # load while we may
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
if user:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    with Store.open(path, read_only=True) as store:
        print(len(store.rows()), end=" ")
try:
    with Store.open(path) as store:
        print(store.ingest(data, folder))
except ServemarkError as error:
    print(error.key)
"""


def child(path: Path, folder: Path, *, file_limit: int = 0, user: int = 0) -> str:
    """Run WRITE in a process of its own, which may become another user once all is loaded; what it
    printed."""
    argv = [sys.executable, "-c", WRITE, str(path), str(folder), str(file_limit), str(user)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert not done.stderr, done.stderr
    return done.stdout.strip()


def test_no_room_left(tmp_path: Path, folders: list[Path]) -> None:
    """A file size limit stands for a full disk: the row is not in, the store is as it was."""
    path = tmp_path / "store.sqlite"
    filled(path, folders[:1])
    size = path.stat().st_size
    assert child(path, folders[1], file_limit=4096) in ("store.disk_full", "store.io_failed")
    with Store.open(path) as store:
        assert store.check() == []
        assert len(store.rows()) == 1
        assert ingest_run(store, folders[1]) == "added"
    assert path.stat().st_size >= size


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_file_that_may_not_be_written(folders: list[Path]) -> None:
    """As a user without rights: reading works although WAL has no place there, writing is refused clearly."""
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        path = home / "store.sqlite"
        filled(path, folders[:1])
        home.chmod(0o755)
        path.chmod(0o644)
        assert child(path, folders[1], user=NOBODY) in ("1 store.read_only", "1 store.cannot_open")
