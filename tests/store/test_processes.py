"""Several real processes at one file: importers at once, a reader beside them, and kill -9 at any moment."""

from __future__ import annotations

import os
import random
import runpy
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from servemark.results.serialize import encode_result, read_result
from servemark.store.database import Store

MADE = runpy.run_path(str(Path(__file__).parents[1] / "results" / "make_run.py"))

IMPORT = """
import sys
from pathlib import Path
from servemark.store.database import Store
store, folder = Path(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
tally = []
with Store.open(store) as opened:
    for path in sorted(folder.glob("*.json")):
        tally.append(opened.ingest(path.read_bytes(), path))
print(" ".join(sorted(set(tally))), len(tally))
"""


def write_rows(tmp_path: Path, count: int) -> Path:
    """A folder of `count` different rows, one file each, every fourth run a second content of the one
    before."""
    row = read_result(MADE["make_point"](tmp_path / "run", 1, sessions=2, turns=2))
    folder = tmp_path / "rows"
    folder.mkdir()
    for i in range(count):
        number = i - 1 if i % 4 == 3 else i
        odd = replace(row, run_id=f"r{number:04d}", line_id=f"l{number % 7}", stalls=i)
        (folder / f"{i:04d}.json").write_bytes(encode_result(odd))
    return folder


def start(store: Path, folder: Path) -> subprocess.Popen[str]:
    """An importer that waits for a line on its standard input."""
    argv = [sys.executable, "-c", IMPORT, str(store), str(folder)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def go(process: subprocess.Popen[str]) -> None:
    """Let it begin."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def test_two_importers_of_a_new_store_at_once(tmp_path: Path) -> None:
    """Both create, migrate and fill the same file: both succeed, every run is there once."""
    folder, path = write_rows(tmp_path, 40), tmp_path / "store.sqlite"
    both = [start(path, folder), start(path, folder)]
    for process in both:
        go(process)
    for process in both:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert out.split()[-1] == "40"
    with Store.open(path) as store:
        counts = store.counts()
        assert (counts.runs, counts.source_files, counts.superseded) == (30, 40, 10)
        assert store.check() == []
        # Of two contents that finished alike the one given last counts, and files are read by name.
        assert {row.stalls for row in store.rows()} == {i for i in range(40) if i % 4 != 2}


def test_a_reader_beside_an_importer_sees_whole_rows(tmp_path: Path) -> None:
    """While rows come in, each look sees a state that was committed, never fewer than the look before."""
    folder, path = write_rows(tmp_path, 40), tmp_path / "store.sqlite"
    Store.open(path).close()
    process = start(path, folder)
    seen = [0]
    with Store.open(path, read_only=True) as reader:
        go(process)
        while process.poll() is None:
            counts = reader.counts()
            assert counts.runs >= seen[-1]
            assert counts.runs + counts.superseded == counts.source_files
            seen.append(counts.runs)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_kill_at_any_moment_leaves_a_sound_file(tmp_path: Path) -> None:
    """kill -9 during import, again and again: the file opens, is sound, and the import can be finished."""
    folder, path, rng = write_rows(tmp_path, 200), tmp_path / "store.sqlite", random.Random(3)
    unfinished = 0
    for _ in range(5):
        process = start(path, folder)
        go(process)
        time.sleep(rng.uniform(0.0, 0.06))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        unfinished += process.returncode == -signal.SIGKILL
        with Store.open(path) as store:
            assert store.check() == []
            counts = store.counts()
            assert counts.runs + counts.superseded == counts.source_files
            assert len(store.rows()) == counts.runs
    assert unfinished
    last = start(path, folder)
    go(last)
    out, _ = last.communicate(timeout=60)
    assert out.split()[-1] == "200"
    with Store.open(path) as store:
        assert store.counts().runs == 150
        assert store.check() == []
