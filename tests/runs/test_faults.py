"""What goes wrong around a run: one clear message that names the layer, nothing left behind, and `runs` tells the truth.

The engine is the real embedded one; faults are real signals, files, mounts and sockets.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from servemark.launch.engines.embedded import packaged_model

pytestmark = pytest.mark.engine
Start = Callable[..., "subprocess.Popen[str]"]
Suite = Callable[..., Path]


def states(home: Path) -> dict[str, str]:
    """Run id -> state, as `servemark runs --json` tells."""
    done = subprocess.run(
        [sys.executable, "-m", "servemark", "runs", "--json", "--home", str(home)],
        capture_output=True,
        text=True,
        check=False,  # 1 where the store cannot be read; the folders are listed all the same
    )
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    return {row["run_id"]: row["state"] for row in map(json.loads, done.stdout.splitlines())}


def results(home: Path) -> list[Path]:
    """Every result.json below a home."""
    return sorted((home / "runs").glob("*/result.json"))


def engine_pid(home: Path) -> int | None:
    """Process id of the engine of this home's newest line, found by the line's id in its command line."""
    for run in sorted((home / "runs").glob("*")) if (home / "runs").is_dir() else ():
        line = (
            json.loads((run / "manifest.json").read_text())["line_id"]
            if (run / "manifest.json").exists()
            else ""
        )
        for folder in Path("/proc").iterdir():
            if line and folder.name.isdigit():
                try:
                    words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                except OSError:
                    continue
                if any(word.endswith("embedded_child.py") for word in words[:4]) and line in " ".join(words):
                    return int(folder.name)
    return None


def line_of(home: Path) -> str:
    """The id of the only line of a home: every process of its engine carries it in its command line."""
    manifest = next(iter((home / "runs").glob("*/manifest.json")))
    return str(json.loads(manifest.read_text())["line_id"])


def measured(home: Path) -> int:
    """Records of the first point so far."""
    found = sorted((home / "runs").glob("*-c1/requests.jsonl"))
    return sum(len(path.read_bytes().splitlines()) for path in found)


def run(
    start: Start, suite: Path, home: Path, *more: str, point: str = "@1", **env: str
) -> subprocess.Popen[str]:
    """Start `servemark run SUITE:tiny…`."""
    return start("run", f"{suite}:tiny{point}", "--home", str(home), "--no-report", *more, **env)


def test_whole_line(
    make_suite: Suite, start: Start, tmp_path: Path, none_left: Callable[[str], None]
) -> None:
    """Nothing goes wrong: both points have a result, the store holds both, no process is left, exit code 0."""
    process = run(start, make_suite(), tmp_path / "home", point="")
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert set(states(tmp_path / "home").values()) == {"complete"} and len(results(tmp_path / "home")) == 2
    assert all(line.startswith("[") for line in err.splitlines()), err  # where it is, and no complaint
    assert "conc." in out
    for result in results(tmp_path / "home"):
        row = json.loads(result.read_text())
        assert row["counts"]["ok"] == row["counts"]["planned"] == 4
        assert row["observed"]["engine"]["model_sha256"].startswith("b179c952")
        names = {p.name for p in result.parent.rglob("*") if p.is_file()}
        assert names == {
            "manifest.json", "allocation.json", "requests.jsonl", "server_metrics.jsonl",
            "engine.log", "result.json", "lock",
        }  # fmt: skip
    none_left(line_of(tmp_path / "home"))


def test_engine_not_installed(make_suite: Suite, start: Start, tmp_path: Path) -> None:
    """Without the extra, the message names the command that installs it, and no folder is made."""
    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'xllamacpp': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "from servemark.cli.main import run_cli\n"
        "sys.exit(run_cli(sys.argv[1:]))\n"
    )
    process = start("run", f"{make_suite()}:tiny@1", "--home", str(tmp_path / "home"), code=code)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "[install]" in err and "servemark engine install" in err and "Traceback" not in err
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("kind", ["missing", "truncated", "text"])
def test_bad_model_file(make_suite: Suite, start: Start, tmp_path: Path, kind: str) -> None:
    """A model that is not there, cut short, or no model at all is found before the engine starts."""
    model = tmp_path / "m.gguf"
    if kind == "truncated":
        model.write_bytes(packaged_model("smollm2-135m-instruct-q4_1").read_bytes()[:40_000_000])
    elif kind == "text":
        model.write_text("no model")
    process = run(start, make_suite(model=str(model)), tmp_path / "home")
    _, err = process.communicate(timeout=30)
    assert process.returncode in {1, 2} and "Traceback" not in err
    assert "[model]" in err and "m.gguf" in err and "tiny.yaml:" in err
    assert not (tmp_path / "home").exists()  # nothing was started, so there is no run


def test_port_taken(make_suite: Suite, start: Start, tmp_path: Path) -> None:
    """The message names the port; nothing was started."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = run(start, make_suite(), tmp_path / "home", "--port", str(port))
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and str(port) in err and "[launch]" in err and "Traceback" not in err
    assert set(states(tmp_path / "home").values()) == {"failed"}


def test_engine_dies_in_the_middle(
    make_suite: Suite,
    start: Start,
    tmp_path: Path,
    wait_for: Callable[..., None],
    none_left: Callable[[str], None],
) -> None:
    """Killed while it replays: the run ends at once as failed, by the engine's fault, not the client's."""
    home = tmp_path / "home"
    process = run(start, make_suite(sessions=40, out=24), home, point="")
    wait_for(lambda: measured(home) >= 3)
    pid = engine_pid(home)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and time.monotonic() - began < 8
    assert "[engine]" in err and "Traceback" not in err
    assert not results(home) and set(states(home).values()) == {"failed"}
    assert measured(home) >= 3  # the evidence so far is kept
    none_left(line_of(home))


def test_engine_dies_at_start(
    make_suite: Suite,
    start: Start,
    tmp_path: Path,
    wait_for: Callable[..., None],
    none_left: Callable[[str], None],
) -> None:
    """Killed before it was ready."""
    home = tmp_path / "home"
    process = run(start, make_suite(), home)
    wait_for(lambda: engine_pid(home) is not None)
    os.kill(engine_pid(home) or 0, signal.SIGKILL)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and "[engine]" in err and "Traceback" not in err
    assert set(states(home).values()) == {"failed"}
    none_left(line_of(home))


def test_engine_hangs(
    make_suite: Suite,
    start: Start,
    tmp_path: Path,
    wait_for: Callable[..., None],
    none_left: Callable[[str], None],
) -> None:
    """Stopped (SIGSTOP) in the middle: after the idle time-out the run ends and says that the engine hangs."""
    home = tmp_path / "home"
    process = run(start, make_suite(sessions=40, out=24, idle_s=2), home)
    wait_for(lambda: measured(home) >= 3)
    os.kill(engine_pid(home) or 0, signal.SIGSTOP)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "[engine]" in err and "hangs" in err
    assert not results(home) and set(states(home).values()) == {"failed"}
    none_left(line_of(home))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_signals(  # noqa: PLR0917 - fixtures
    make_suite: Suite,
    start: Start,
    tmp_path: Path,
    wait_for: Callable[..., None],
    none_left: Callable[[str], None],
    number: int,
    code: int,
) -> None:
    """Ctrl-C, SIGTERM and a closed terminal end the run in order: interrupted, records kept, nothing left."""
    home = tmp_path / "home"
    process = run(start, make_suite(sessions=40, out=24), home, point="")
    wait_for(lambda: measured(home) >= 2)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == code and "[interrupt]" in err and "Traceback" not in err
    assert not results(home) and set(states(home).values()) == {"interrupted"}
    none_left(line_of(home))


def test_killed_at_any_moment(
    make_suite: Suite, start: Start, tmp_path: Path, none_left: Callable[[str], None]
) -> None:
    """kill -9 at random moments: a run reads `died` or is whole; no engine and no port survives; the next run works."""
    home = tmp_path / "home"
    suite = make_suite()
    chance = random.Random(5)
    for _ in range(6):
        process = run(start, suite, home, point="")
        time.sleep(chance.uniform(0.1, 6.0))
        process.kill()
        process.communicate()
    known = states(home)
    assert set(known.values()) <= {"died", "complete"}
    for run_id, state in known.items():
        assert ((home / "runs" / run_id / "result.json").exists()) == (state == "complete")
        none_left(run_id.rpartition("-")[0])
    process = run(start, suite, home)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


def test_two_runs_at_once(make_suite: Suite, start: Start, tmp_path: Path) -> None:
    """Both succeed, on ports and in folders of their own, and at least one says that the host was shared."""
    home = tmp_path / "home"
    suite = make_suite(sessions=6, out=16)
    pair = [run(start, suite, home), run(start, suite, home)]
    for process in pair:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    rows = [json.loads(path.read_text()) for path in results(home)]
    assert len(rows) == 2
    assert any(w["code"] == "host_shared" for row in rows for w in row["warnings"])


def mounted(folder: Path, *options: str) -> bool:
    """Mount a small tmpfs; False where this user or sandbox may not."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)], capture_output=True, check=False
    )
    return done.returncode == 0


def test_disk_full(make_suite: Suite, start: Start, tmp_path: Path, none_left: Callable[[str], None]) -> None:
    """A disk that fills up during the run: one message, engine stopped, no result, no half-written one."""
    disk = tmp_path / "disk"
    if not mounted(disk, "-o", "size=56k"):
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        process = run(start, make_suite(sessions=40, out=24), disk / "home")
        _, err = process.communicate(timeout=90)
        assert process.returncode == 1 and "no space left" in err and "Traceback" not in err
        assert not results(disk / "home")
        assert set(states(disk / "home").values()) <= {"failed", "died"}
        none_left(str(disk))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def test_read_only_home(make_suite: Suite, start: Start, tmp_path: Path) -> None:
    """A folder that cannot be written is said before anything starts."""
    disk = tmp_path / "disk"
    if not mounted(disk, "-o", "ro,size=64k"):
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        process = run(start, make_suite(), disk / "home")
        _, err = process.communicate(timeout=30)
        assert process.returncode == 1 and "read-only" in err and "--home" in err and "Traceback" not in err
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def test_home_below_a_file(make_suite: Suite, start: Start, tmp_path: Path) -> None:
    """A path through a file is said before anything starts."""
    (tmp_path / "file").write_text("x")
    process = run(start, make_suite(), tmp_path / "file" / "home")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and "not a folder" in err and "Traceback" not in err


def test_store_that_refuses(make_suite: Suite, start: Start, tmp_path: Path) -> None:
    """A store that cannot be opened is said even off a terminal; the result in its folder is whole all the same."""
    home = tmp_path / "home"
    (home / "store.sqlite").mkdir(parents=True)
    process = run(start, make_suite(), home, "--json")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0 and "store refused" in err and "Traceback" not in err
    assert json.loads(out)["status"] == "complete" and set(states(home).values()) == {"complete"}
