"""The sweeps' file: transitions are whole or not there, and a bad file is told from a good one in both languages."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.base.messages import LANGUAGES
from servemark.store.database import Store
from servemark.store.sweep_rows import (
    AttemptEnd,
    AttemptState,
    PointState,
    SweepAttempt,
    SweepPoint,
    SweepRow,
    SweepState,
)
from servemark.store.sweeps import FILE, SweepStore

NOBODY = 65534
NOW = "2026-01-01T00:00:00Z"


def sweep(name: str = "s1") -> SweepRow:
    """One with an option and an input."""
    return SweepRow(
        name,
        NOW,
        None,
        SweepState.RUNNING,
        3,
        {"canary": True},
        {"/a.yaml": {"sha256": "0" * 64, "bytes": 7}},
    )


def point(number: int, state: PointState = PointState.WAITING) -> SweepPoint:
    """The n-th point, alone in its unit."""
    return SweepPoint(
        number, number, f"p{number}", f"s{number}", f"a/t@{number}", "/suite", "a", "t", number, "local", 8, False,
        "r.yaml", "f" * 16, state, 0, 3,
    )  # fmt: skip


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    """A sweep, its points, an attempt from intent to end, with a failure in another script."""
    failure: dict[str, object] = {"layer": "engine", "key": "runs.bug", "values": {"problem": "内存不足"}}
    with SweepStore.open(tmp_path) as store:
        store.create(sweep(), [point(1), point(2)])
        begun = SweepAttempt(1, 1, "line-1", AttemptState.RUNNING, NOW, numbers=(1,))
        store.begin("s1", [begun], [point(1, PointState.RUNNING)])
        assert store.attempts("s1", AttemptState.RUNNING) == [begun]
        store.note_jobs("s1", 1, ("17", "18"))
        failed = point(1, PointState.FAILED)
        failed.failure = failure
        store.end(
            "s1", [AttemptEnd(1, AttemptState.FAILED, NOW, 2.5, "exit 1", (failed,), {1: (None, failure)})]
        )
    with SweepStore.open(tmp_path) as store:
        assert store.sweeps() == [sweep()]
        assert store.points("s1") == [failed, point(2)]
        assert store.attempts("s1") == [
            SweepAttempt(1, 1, "line-1", AttemptState.FAILED, NOW, NOW, 2.5, "exit 1", ("17", "18"), (1,))
        ]
        assert store.counts("s1")[PointState.FAILED] == 1


def test_a_transition_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """The second of two points breaks a rule of the schema: the sweep and the first point are not there either."""
    with SweepStore.open(tmp_path) as store:
        twin = point(2)
        twin.point_id = "p1"
        with pytest.raises(ServemarkError) as caught:
            store.create(sweep(), [point(1), twin])
        assert caught.value.key == "store.sweeps.no_row"
        assert store.sweeps() == []
        assert store.points("s1") == []


def test_an_older_number_of_the_same_attempt_is_refused(tmp_path: Path) -> None:
    """Two processes that both believe to be the writer cannot both begin attempt 1."""
    begun = SweepAttempt(1, 1, "line-1", AttemptState.RUNNING, NOW, numbers=(1,))
    with SweepStore.open(tmp_path) as store, SweepStore.open(tmp_path) as other:
        store.create(sweep(), [point(1)])
        store.begin("s1", [begun], [])
        with pytest.raises(ServemarkError):
            other.begin("s1", [begun], [])


def test_requests_and_the_version_that_tells_of_them(tmp_path: Path) -> None:
    """Another connection's request changes the version; our own answer does not bring it back."""
    with SweepStore.open(tmp_path) as store, SweepStore.open(tmp_path) as other:
        store.create(sweep(), [point(1)])
        before = store.version()
        other.ask("s1", "retry", [1], NOW)
        assert store.version() != before
        asked = store.open_requests("s1")
        assert [(one.kind, one.number) for one in asked] == [("retry", 1)]
        store.change("s1", [], state=SweepState.PAUSED, answered=([asked[0].id], NOW))
        assert store.open_requests("s1") == []
        assert store.sweeps()[0].state is SweepState.PAUSED


def test_the_queue_is_ordered_by_priority_then_time(tmp_path: Path) -> None:
    """A second wish does not move a sweep back."""
    with SweepStore.open(tmp_path) as store:
        for name, priority in (("s1", 0), ("s2", 0), ("s3", 9)):
            row = SweepRow(name, NOW, None, SweepState.RUNNING, priority, {}, {})
            store.create(row, [])
            store.want(row, "b300", {"s1": 5.0, "s2": 1.0, "s3": 9.0}[name])
        store.want(SweepRow("s2", NOW, None, SweepState.RUNNING, 0, {}, {}), "b300", 99.0)
        assert [name for name, _, _ in store.queue("b300")] == ["s3", "s2", "s1"]
        store.unwant("s3")
        assert [name for name, _, _ in store.queue("b300")] == ["s2", "s1"]


def told(error: ServemarkError, path: Path) -> str:
    """The key, after making sure that both languages name the file and say what to do, never `delete it`."""
    assert error.layer is Layer.STORE
    for lang in LANGUAGES:
        assert str(path) in error.what(lang)
        step = error.next_step(lang)
        assert step is not None
        assert "built again" not in step
    return error.key


@pytest.mark.parametrize(
    "content", [b"hello, I am no database " * 400, b"\x00" * 5000, b"SQLite format 3\x00" + b"\xff" * 4000]
)
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    """It is refused, for reading and for writing, and not touched."""
    path = tmp_path / FILE
    path.write_bytes(content)
    for opened in (SweepStore.open, SweepStore.read):
        with pytest.raises(ServemarkError) as caught:
            opened(tmp_path)
        assert told(caught.value, path) in ("store.sweeps.not_a_database", "store.sweeps.damaged")
    assert path.read_bytes() == content


def test_damaged_pages(tmp_path: Path) -> None:
    """Bytes in the middle are overwritten: reading says so instead of inventing states."""
    with SweepStore.open(tmp_path) as store:
        store.create(sweep(), [point(number) for number in range(1, 400)])
    path = tmp_path / FILE
    data = bytearray(path.read_bytes())
    data[4096 * 3 :] = b"\xa5" * (len(data) - 4096 * 3)
    path.write_bytes(data)
    with pytest.raises(ServemarkError) as caught, SweepStore.open(tmp_path) as store:
        store.points("s1")
    assert told(caught.value, path) == "store.sweeps.damaged"


def test_a_newer_file_a_strange_one_and_the_store_itself(tmp_path: Path) -> None:
    """None of them is changed."""
    with SweepStore.open(tmp_path):
        pass
    path = tmp_path / FILE
    with sqlite3.connect(path) as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()
    for opened in (SweepStore.open, SweepStore.read):
        with pytest.raises(ServemarkError) as caught:
            opened(tmp_path)
        assert told(caught.value, path) == "store.sweeps.newer_schema"
    path.unlink()
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE mine (x)")
    raw.close()
    with pytest.raises(ServemarkError) as caught:
        SweepStore.open(tmp_path)
    assert told(caught.value, path) == "store.sweeps.foreign"
    path.unlink()
    with Store.open(path):
        pass
    with pytest.raises(ServemarkError) as caught:
        SweepStore.open(tmp_path)
    # The store has more migrations than this file: it is a later file, or one that was changed.
    assert told(caught.value, path) in {"store.sweeps.migration_changed", "store.sweeps.newer_schema"}


def test_no_file_is_no_sweep(tmp_path: Path) -> None:
    """Reading makes nothing."""
    assert SweepStore.read(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


CODE = """
import os, resource, sys
from pathlib import Path
from servemark.base.errors import ServemarkError
from servemark.store.sweeps import SweepStore
sys.path.insert(0, {here!r})
os.setuid({uid})
try:
    with SweepStore.open(Path({folder!r})) as store:
        store.ask("s1", "pause", [None] * 5000, "x" * 100)
except ServemarkError as error:
    print(error.key)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="takes another user's rights")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    """Another user may read the states and is told why it cannot write them."""
    with SweepStore.open(tmp_path) as store:
        store.create(sweep(), [point(1)])
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(0o755)
    code = CODE.format(here="", uid=NOBODY, folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() in ("store.sweeps.read_only", "store.cannot_open"), done.stderr


def test_a_full_disk(tmp_path: Path) -> None:
    """A limit on file size stands for a full disk (SQLite reports both as FULL or an I/O error): what was kept stays."""
    with SweepStore.open(tmp_path) as store:
        store.create(sweep(), [point(1)])
    code = CODE.format(here="", uid=os.getuid(), folder=str(tmp_path)).replace(
        "try:", "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\ntry:", 1,
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() in ("store.sweeps.disk_full", "store.sweeps.io_failed"), done.stderr
    with SweepStore.open(tmp_path) as store:
        assert store.points("s1") == [point(1)]
        assert store.open_requests("s1") == []
