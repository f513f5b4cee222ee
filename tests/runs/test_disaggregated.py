"""One prefill and one decode worker through a real store, launched by the command line; then everything that can die, dies.

Faults are real signals, files, mounts and sockets. After each, no process, port, work folder or store is left.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.runs.conftest import WORK
from tests.runs.test_faults import measured, mounted, results, states

pytestmark = pytest.mark.engine
Start = Callable[..., "subprocess.Popen[str]"]
pytest.importorskip("mooncake.store", reason="the extra `store` is not installed")

MASTER = """
pd:
  image: pypi#xllamacpp:2026.10.11549
  model: HuggingFaceTB/SmolLM2-135M-Instruct
  model-prefix: smollm2
  runner: cluster:local
  precision: q4_1
  framework: llamacpp
  router: { name: servemark-pd, version: "1" }
  kv-p2p-transfer: mooncake
  multinode: true
  disagg: true
  scenarios:
    agentic-coding:
    - search-space:
      - spec-decoding: none
        kv-offloading: none
        conc-list: [1, 2]
        prefill: {num-worker: 1, tp: 1, ep: 1, dp-attn: false, additional-settings: ["CONFIG_FILE=recipes/pd.yaml"]}
        decode: {num-worker: 1, tp: 1, ep: 1, dp-attn: false}
"""
RECIPE = """
schema: 2
name: pd
model: {path: "embedded:smollm2-135m-instruct-q4_1", container: "pypi#xllamacpp:2026.10.11549", precision: q4_1}
engine: {type: llamacpp}
health_check: {max_attempts: 60, interval_seconds: 1}
services:
- name: mooncake-master
  type: mooncake-master
  args: [--default_kv_lease_ttl=500MASTER_ARG]
  options: {store_config: {global_segment_size: 256MB, local_buffer_size: 128MB, protocol: tcp}}
frontend: {type: servemark-pd}
roles:
  prefill: &role {workers: 1, gpus: 0, args: {ctx-size: 4096, parallel: 2, threads: 1, cache-ram: 0WORKER_ARG}}
  decode: *role
benchmark:
  type: servemark
  workload: work.yaml
  cache_state: marked
  warmup_requests: 1
  evals: []
  idle_timeout_s: IDLE
"""


def make(
    folder: Path, *, sessions: int = 2, out: int = 8, idle_s: float = 30, master: str = "", worker: str = ""
) -> Path:
    """Write the suite; options are what the tests vary."""
    (folder / "recipes").mkdir(parents=True)
    (folder / "suite.yaml").write_text("name: suite\nmasters: [master.yaml]\nrecipe-roots: [recipes]\n")
    (folder / "master.yaml").write_text(MASTER)
    recipe = RECIPE.replace("IDLE", str(idle_s)).replace("MASTER_ARG", master).replace("WORKER_ARG", worker)
    (folder / "recipes" / "pd.yaml").write_text(recipe)
    (folder / "work.yaml").write_text(WORK.replace("SESSIONS", str(sessions)).replace("OUT", str(out)))
    return folder


def run(start: Start, suite: Path, home: Path, *more: str, point: str = "@1") -> subprocess.Popen[str]:
    """`servemark run SUITE:pd…`."""
    return start("run", f"{suite}:pd{point}", "--home", str(home), "--no-report", *more)


def pid_of(home: Path, step: str) -> int:
    """The program of a step: the child of the guard whose command line names the step's log. 0 while there is none."""
    log = {"router": "engine.live.log"}.get(step, f"{step}.log")
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                if any(str(home) in w and w.endswith(f"/{log}") for w in words) and any(
                    "guard.py" in w for w in words
                ):
                    children = Path(f"/proc/{folder.name}/task/{folder.name}/children").read_text().split()
                    return int(children[0]) if children else 0
            except OSError:
                continue
    return 0


def listening(pid: int) -> set[str]:
    """Addresses that a process listens on, as `ss` shows them."""
    shown = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    return {line.split()[3].rpartition(":")[0] for line in shown.splitlines() if f"pid={pid}," in line}


def clean(home: Path, none_left: Callable[[str], None]) -> None:
    """Nothing of this home's runs is left: no process, no work folder, no growing log."""
    none_left(str(home))
    for run_folder in (home / "runs").glob("*"):
        assert not (run_folder / "work").exists()
        assert not (run_folder / "logs" / "steps.live").exists() or not (run_folder / "failure.json").exists()


def test_whole_line(start: Start, tmp_path: Path, none_left: Callable[[str], None]) -> None:
    """Two points: every request went through the store, and the row says what moved and what it took."""
    home = tmp_path / "home"
    process = run(start, make(tmp_path / "suite"), home, point="")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert set(states(home).values()) == {"complete"} and len(results(home)) == 2
    for path in results(home):
        row = json.loads(path.read_text())
        store = row["observed"]["store"]
        assert row["counts"]["ok"] == row["counts"]["planned"] == 4
        assert store["store_put_count"] == store["store_get_count"] == 4  # one of each a request
        assert store["store_put_bytes"] == store["store_get_bytes"] > 4 * 1_000_000
        assert store["store_setup_s"] > 0 and store["store_put_seconds"] > 0
        assert set(store["ranks"]) == {"prefill-0", "decode-0"}
        assert all(rank["page_bytes"] >= 4096 for rank in store["ranks"].values())
        assert set(row["observed"]["engine"]["details"]["workers"]) == {"prefill-0", "decode-0"}
        assert {"allocate", "services", "workers", "router"} <= set(row["phases_s"])
        assert "logs/steps/decode-0.log" in row["files"]
        # The second turns' prefixes are in the prefill worker's slots: some tokens cached, not nearly all of them.
        assert 0.1 < row["cache"]["usage"] < 0.9
    clean(home, none_left)


FAULTS = [
    ("prefill-0", signal.SIGKILL, "engine"),
    ("decode-0", signal.SIGSEGV, "engine"),
    ("mooncake-master", signal.SIGKILL, "service"),
    ("router", signal.SIGKILL, "launch"),
]


@pytest.mark.parametrize(("step", "number", "layer"), FAULTS)
def test_a_step_dies(  # noqa: PLR0917 - fixtures
    start: Start,
    tmp_path: Path,
    wait_for: Callable[..., None],
    none_left: Callable[[str], None],
    step: str,
    number: int,
    layer: str,
) -> None:
    """In the middle of the replay: the run ends at once, and says which instance it was and of which layer."""
    home = tmp_path / "home"
    process = run(start, make(tmp_path / "suite", sessions=40, out=24), home)
    wait_for(lambda: measured(home) >= 3)
    os.kill(pid_of(home, step), number)
    began = time.monotonic()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and time.monotonic() - began < 10
    assert (
        f"[{layer}]" in err and step in err and signal.Signals(number).name in err and "Traceback" not in err
    )
    assert not results(home) and set(states(home).values()) == {"failed"}
    failure = json.loads(next((home / "runs").glob("*/failure.json")).read_text())
    assert Path(failure["values"]["log"]).is_file()  # the log that the message names is there
    clean(home, none_left)


@pytest.mark.parametrize("step", ["decode-0", "prefill-0"])
def test_a_worker_hangs(
    start: Start, tmp_path: Path, wait_for: Callable[..., None], none_left: Callable[[str], None], step: str
) -> None:
    """Stopped by SIGSTOP: after the idle time-out the message names the one that does not answer."""
    home = tmp_path / "home"
    process = run(start, make(tmp_path / "suite", sessions=40, out=24, idle_s=3), home)
    wait_for(lambda: measured(home) >= 3)
    os.kill(pid_of(home, step), signal.SIGSTOP)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "[engine]" in err and step in err and "hangs" in err
    assert set(states(home).values()) == {"failed"}
    clean(home, none_left)


def test_port_taken(start: Start, tmp_path: Path, none_left: Callable[[str], None]) -> None:
    """The router's port is another's: said before anything is started."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = run(start, make(tmp_path / "suite"), tmp_path / "home", "--port", str(port))
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and str(port) in err and "[launch]" in err and "Traceback" not in err
    clean(tmp_path / "home", none_left)


def test_wrong_arguments(start: Start, tmp_path: Path, none_left: Callable[[str], None]) -> None:
    """Of a worker: found before the start, with line and column. Of the store's master: by what it says itself."""
    process = run(start, make(tmp_path / "one", worker=", paralel: 2"), tmp_path / "home")
    _, err = process.communicate(timeout=30)
    assert (
        process.returncode == 2 and "paralel" in err and "did you mean parallel" in err and "pd.yaml:" in err
    )
    process = run(start, make(tmp_path / "two", master=", --default_kv_lease_tll=1"), tmp_path / "home")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 1 and "[service]" in err and "mooncake-master" in err
    assert "default_kv_lease_tll" in err and "correct the argument" in err
    clean(tmp_path / "home", none_left)


def test_disk_full(start: Start, tmp_path: Path, none_left: Callable[[str], None]) -> None:
    """The disk of home fills up with slot files: one message that names disk and layer, nothing left."""
    disk = tmp_path / "disk"
    if not mounted(disk, "-o", "size=1m"):
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        process = run(start, make(tmp_path / "suite"), disk / "home")
        _, err = process.communicate(timeout=90)
        assert process.returncode == 1 and "Traceback" not in err
        assert "no space left" in err or ("prefill-0" in err and "disk" in err)
        assert not results(disk / "home")
        none_left(str(disk))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_the_launcher_is_ended(  # noqa: PLR0917 - fixtures
    start: Start,
    tmp_path: Path,
    wait_for: Callable[..., None],
    none_left: Callable[[str], None],
    number: int,
    code: int,
) -> None:
    """Ctrl-C, SIGTERM, and kill -9, which it cannot answer: all steps, ports and the work folder are gone all the same."""
    home = tmp_path / "home"
    process = run(start, make(tmp_path / "suite", sessions=40, out=24), home)
    wait_for(lambda: measured(home) >= 2)
    pids = [pid_of(home, step) for step in ("mooncake-master", "prefill-0", "decode-0", "router")]
    assert all(pids)
    bound = [listening(pid) for pid in pids]
    assert (
        bound[0] == bound[3] == {"127.0.0.1"}
    )  # the store's master and the router: nothing beyond this host
    # Mooncake's transfer engine (0.3.13) binds its handshake and its data port to every interface, whatever it is told.
    assert bound[1] == bound[2] == {"127.0.0.1", "0.0.0.0", "*"}  # noqa: S104
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code and "Traceback" not in err
    assert set(states(home).values()) == {"died" if number == signal.SIGKILL else "interrupted"}
    none_left(str(home))
    deadline = time.monotonic() + 10
    while list((home / "runs").glob("*/work/*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not list((home / "runs").glob("*/work/*"))
