"""A run folder's state comes from its files and its lock, whatever condition it is in."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.runs.folder import RunFolder, RunState, find_line, find_run, inspect, list_runs
from servemark.runs.interrupts import Interrupts
from servemark.runs.measure import Measured


def make_run() -> ModuleType:
    """The maker of sound run folders of the results' tests."""
    path = Path(__file__).resolve().parents[1] / "results" / "make_run.py"
    spec = importlib.util.spec_from_file_location("make_run", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_states_of_one_folder(tmp_path: Path) -> None:
    """Running while the lock is held, died when it was dropped without a word, failed once a reason is kept."""
    path = tmp_path / "runs" / "r1"
    folder = RunFolder.create(path, {"run_id": "r1"})
    assert inspect(path).state is RunState.RUNNING
    folder.close()
    assert inspect(path).state is RunState.DIED
    folder.fail(ServemarkError("runs.bug", Layer.RESULTS, problem="x"), "2026-01-01T00:00:00Z")
    assert inspect(path).state is RunState.FAILED
    (path / "failure.json").unlink()
    folder.fail(ServemarkError("runs.interrupted", Layer.INTERRUPT, signal="SIGINT"), "2026-01-01T00:00:00Z")
    assert inspect(path).state is RunState.INTERRUPTED


def test_same_id_twice(tmp_path: Path) -> None:
    """A folder is never shared by two runs."""
    RunFolder.create(tmp_path / "r", {"run_id": "r"}).close()
    with pytest.raises(ServemarkError) as caught:
        RunFolder.create(tmp_path / "r", {"run_id": "r"})
    assert caught.value.layer is Layer.HOME
    assert json.loads((tmp_path / "r" / "manifest.json").read_text())["run_id"] == "r"


@pytest.mark.parametrize("name", ["requests.jsonl", "manifest.json", "result.json"])
def test_one_changed_byte_is_damage(tmp_path: Path, name: str) -> None:
    """A run whose evidence was changed afterwards is not complete any more."""
    run = make_run().make_line(tmp_path / "runs")[0]
    assert inspect(run).state is RunState.COMPLETE
    data = bytearray((run / name).read_bytes())
    data[len(data) // 2] ^= 1
    (run / name).write_bytes(bytes(data))
    assert inspect(run).state is RunState.DAMAGED


def test_odd_folders_raise_nothing(tmp_path: Path) -> None:
    """Empty files, folders in place of files, deep nesting, an empty folder: a state, not a trace."""
    for number, content in enumerate([b"", b"[" * 100_000, b"\xff\xfe", b"[1]"]):
        run = tmp_path / f"r{number}"
        run.mkdir()
        (run / "manifest.json").write_bytes(content)
        assert inspect(run).state is RunState.DAMAGED
    (tmp_path / "r9").mkdir()
    (tmp_path / "r9" / "manifest.json").mkdir()
    assert inspect(tmp_path / "r9").state is RunState.DAMAGED
    assert len(list_runs(tmp_path)) == 5


def test_hostile_folders(tmp_path: Path) -> None:
    """A pipe, a loop of links, a line id that leads elsewhere, a lost manifest: damaged, at once, and still listed."""
    names = ["pipe", "loop", "path", "lost"]
    for name in names:
        RunFolder.create(tmp_path / name, {"run_id": name, "line_id": "l"}).close()
    (tmp_path / "pipe" / "manifest.json").unlink()
    os.mkfifo(tmp_path / "pipe" / "manifest.json")
    (tmp_path / "loop" / "manifest.json").unlink()
    (tmp_path / "loop" / "manifest.json").symlink_to("manifest.json")
    (tmp_path / "path" / "manifest.json").write_text('{"line_id": "../../x"}')
    (tmp_path / "lost" / "manifest.json").unlink()
    assert {info.run_id: info.state for info in list_runs(tmp_path)} == dict.fromkeys(names, RunState.DAMAGED)


def test_room_is_kept_for_the_reason(tmp_path: Path) -> None:
    """The reserve is there while a run lives and gone once it failed."""
    folder = RunFolder.create(tmp_path / "r", {"run_id": "r"})
    assert (tmp_path / "r" / ".reserve").stat().st_size >= 4096
    folder.fail(ServemarkError("runs.bug", Layer.RESULTS, problem="x"), "2026-01-01T00:00:00Z")
    folder.close()
    assert not (tmp_path / "r" / ".reserve").exists() and (tmp_path / "r" / "failure.json").exists()


def test_finding_runs_and_lines(tmp_path: Path) -> None:
    """By id, unique ending, `latest`; the line of a run holds its sisters in order of concurrency."""
    made = make_run().make_line(tmp_path)
    assert find_run(tmp_path, made[0].name).path == made[0]
    assert find_run(tmp_path, "latest").path == sorted(made)[-1]
    assert find_run(tmp_path, made[1].name[-3:]).path == made[1]
    line_id, folders = find_line(tmp_path, made[1].name)
    assert line_id and folders == sorted(made, key=lambda p: int(p.name.rpartition("-c")[2]))
    with pytest.raises(ServemarkError, match="fits"):
        find_run(tmp_path, made[0].name[:8])
    with pytest.raises(ServemarkError, match="no run"):
        find_run(tmp_path, "zzz")


def test_interrupts_count_and_restore() -> None:
    """Handlers are put back; a second signal is counted."""
    import os
    import signal

    before = signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.requested and interrupts.count == 2
        assert interrupts.error().exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(("wall", "jump"), [(10.0, None), (10.9, None), (3610.0, 3600.0), (-3590.0, -3600.0)])
def test_clock_jump(wall: float, jump: float | None) -> None:
    """Ten monotonic seconds: a wall clock that moved by an hour more or less is told, a second's drift is not."""
    measured = Measured(wall_start=0.0, wall_end=wall, mono_start=5.0, mono_end=15.0)
    assert measured.clock_jump_s == jump


def test_list_of_a_missing_home(tmp_path: Path) -> None:
    """No runs is no error."""
    assert list_runs(tmp_path / "none") == []
    shutil.rmtree(tmp_path)
