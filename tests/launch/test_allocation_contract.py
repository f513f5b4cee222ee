"""The contract of launch/allocation.py as kept by this host: steps, logs, ports, release, and the launcher's death."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.launch.allocation import AllocationRequest, Container, NodeGroup, StepRequest
from servemark.launch.local_allocation import HostLauncher, LocalAllocation
from servemark.launch.process import ExitStatus

if TYPE_CHECKING:
    from tests.launch.conftest import Strays

PY = (sys.executable, "-I", "-S", "-c")
SLEEP = "import time; print('up', flush=True); time.sleep(600)"
FORKS = (
    "import os, signal, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)\n"
    "print('up', flush=True); time.sleep(600)\n"
)
LAUNCHER = """
import sys, time
from pathlib import Path
from servemark.launch.allocation import AllocationRequest, NodeGroup, StepRequest
from servemark.launch.local_allocation import HostLauncher
root = Path(sys.argv[1])
allocation = HostLauncher(0).allocate(AllocationRequest('dead-run', (NodeGroup('all', 1),), 600, 1.0))
for number in range(3):
    allocation.start(StepRequest(
        name=f's{number}', node=allocation.nodes[0], argv=tuple(sys.argv[2:]), log_path=root / f's{number}.log',
        work_dir=root / 'work' / f's{number}',
    ))
print('started', flush=True)
time.sleep(600)
"""


def wanted(run_id: str = "run-1", nodes: int = 1, gpus: int = 0, limit_s: int = 600) -> AllocationRequest:
    """One group of nodes."""
    return AllocationRequest(run_id, (NodeGroup("all", nodes, gpus),), limit_s, 1.0)


@pytest.fixture
def allocation(strays: Strays) -> Iterator[LocalAllocation]:
    """This host, released at the end of the test."""
    found = HostLauncher(0).allocate(wanted())
    yield found
    found.release()


def step(allocation: LocalAllocation, root: Path, name: str, code: str, **env: str) -> StepRequest:
    """Python code as a step."""
    return StepRequest(
        name=name,
        node=allocation.nodes[0],
        argv=(*PY, code),
        log_path=root / "logs" / f"{name}.log",
        work_dir=root / "work" / name,
        env=env,
        grace_s=0.2,
    )


def await_text(path: Path, text: str, budget_s: float = 10.0) -> None:
    """Until a file holds a text."""
    deadline = time.monotonic() + budget_s
    while not (path.exists() and text in path.read_text(encoding="utf-8", errors="replace")):
        assert time.monotonic() < deadline, f"{text!r} is not in {path}"
        time.sleep(0.01)


def test_a_shell_sees_nothing(allocation: LocalAllocation, tmp_path: Path) -> None:
    """argv reaches the program word by word: what a shell would expand, split or run stays text."""
    words = ("$HOME", "a b", "; touch pwned", "`id`", "*", "", "é\n")
    code = "import sys; print(ascii(sys.argv[1:]))"
    request = StepRequest(
        "echo",
        allocation.nodes[0],
        (*PY, code, *words),
        tmp_path / "echo.log",
        tmp_path / "work",
        grace_s=0.2,
    )
    assert allocation.start(request).wait(10.0) == ExitStatus(exit_code=0)
    assert (tmp_path / "echo.log").read_text().strip() == ascii(list(words))


def test_log_is_one_file_in_order_and_outlives_the_step(allocation: LocalAllocation, tmp_path: Path) -> None:
    """Both streams in the order of arrival; the working folder goes with the step, the log stays."""
    code = (
        "import sys\n"
        "for n in range(50):\n"
        "    stream = sys.stderr if n % 2 else sys.stdout\n"
        "    print(n, file=stream, flush=True)\n"
    )
    started = allocation.start(step(allocation, tmp_path, "count", code))
    assert started.wait(10.0) == ExitStatus(exit_code=0)
    started.stop()
    assert (tmp_path / "logs" / "count.log").read_text().split() == [str(n) for n in range(50)]
    assert started.log_head(4) == "0\n1\n" and started.log_tail(3) == "49\n"
    assert started.log_size() == 50 * 3 - 10  # ten one-digit lines, forty two-digit ones
    allocation.release()
    assert (tmp_path / "logs" / "count.log").exists() and not (tmp_path / "work" / "count").exists()


def test_a_folder_that_was_there_stays(allocation: LocalAllocation, tmp_path: Path) -> None:
    """Only a working folder that the launcher made is removed: a user's own is not its to delete."""
    (tmp_path / "work" / "mine").mkdir(parents=True)
    (tmp_path / "work" / "mine" / "kept").write_text("x")
    started = allocation.start(step(allocation, tmp_path, "mine", "open('new', 'w').close()"))
    assert started.wait(10.0) == ExitStatus(exit_code=0)
    allocation.release()
    assert (tmp_path / "work" / "mine" / "kept").read_text() == "x"


def test_ports_are_free_and_never_twice(allocation: LocalAllocation) -> None:
    """A thousand ports over many calls: all different, and each can be bound on the node's address."""
    node = allocation.nodes[0]
    ports = [port for _ in range(100) for port in allocation.free_ports(node, 10)]
    assert len(set(ports)) == 1000
    for port in ports[::50]:
        with socket.socket() as probe:
            probe.bind((node.address, port))
    assert node.address == "127.0.0.1"


def test_release_ends_everything_and_may_come_twice(
    allocation: LocalAllocation, tmp_path: Path, strays: Strays
) -> None:
    """A step whose child has left its session and ignores SIGTERM is gone too; a second release does nothing."""
    steps = [allocation.start(step(allocation, tmp_path, f"f{n}", FORKS)) for n in range(3)]
    for one in steps:
        await_text(one.log_path, "up")
    assert len(HostLauncher(0).leftovers("run-1")) == 9  # three steps, a guard and a child of each
    allocation.release()
    assert strays.none_left() and HostLauncher(0).leftovers("run-1") == []
    assert all(one.poll() is not None for one in steps)
    allocation.release()
    with pytest.raises(ServemarkError) as refused:
        allocation.start(step(allocation, tmp_path, "late", SLEEP))
    assert refused.value.layer is Layer.ALLOCATION
    assert list((tmp_path / "work").iterdir()) == []


def test_stop_may_come_twice_and_from_another_order(allocation: LocalAllocation, tmp_path: Path) -> None:
    """One status for all callers; a stopped step does not disturb the others."""
    first = allocation.start(step(allocation, tmp_path, "one", SLEEP))
    second = allocation.start(step(allocation, tmp_path, "two", SLEEP))
    await_text(first.log_path, "up")
    assert first.stop() == first.stop() == ExitStatus(signal=signal.SIGTERM)
    assert second.poll() is None
    assert second.cpu_seconds() is not None and (second.rss_bytes() or 0) > 1_000_000


@pytest.mark.parametrize("code", [SLEEP, FORKS], ids=["plain", "forks"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_nothing_outlives_the_launcher(
    tmp_path: Path, strays: Strays, code: str, number: signal.Signals
) -> None:
    """The launcher dies at once, without a word: no process of three steps is left, nor a working folder; logs stay."""
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(tmp_path), *PY, code], stdout=subprocess.PIPE, env={**os.environ}
    )
    assert process.stdout is not None
    with process, process.stdout:
        assert process.stdout.readline() == b"started\n"
        for n in range(3):
            await_text(tmp_path / f"s{n}.log", "up")
        process.send_signal(number)
        process.wait(10)
    assert strays.none_left()
    deadline = time.monotonic() + 10
    while any((tmp_path / "work").iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list((tmp_path / "work").iterdir()) == []
    assert sorted(path.name for path in tmp_path.glob("*.log")) == ["s0.log", "s1.log", "s2.log"]


def test_time_limit_ends_the_allocation(tmp_path: Path, strays: Strays) -> None:
    """Steps end by the limit, and the allocation says why it is lost."""
    allocation = HostLauncher(0).allocate(wanted(limit_s=1))
    started = allocation.start(step(allocation, tmp_path, "long", SLEEP))
    assert allocation.lost() is None
    assert started.wait(10.0) is not None
    assert "1 s" in (allocation.lost() or "")
    allocation.release()
    assert strays.none_left()


@pytest.mark.parametrize(
    ("nodes", "gpus", "key"),
    [(2, 0, "launch.local_nodes"), (1, 3, "launch.local_gpus")],
    ids=["nodes", "gpus"],
)
def test_what_this_host_can_never_give(nodes: int, gpus: int, key: str) -> None:
    """Refused at once as bad input, not waited for."""
    with pytest.raises(ServemarkError) as refused:
        HostLauncher(2).allocate(wanted(nodes=nodes, gpus=gpus))
    assert (refused.value.key, refused.value.layer) == (key, Layer.INPUT)


def test_cancelled_before_it_began() -> None:
    """A signal during allocation is not a failure of the allocation."""
    with pytest.raises(ServemarkError) as refused:
        HostLauncher(0).allocate(wanted(), cancelled=lambda: True)
    assert refused.value.layer is Layer.INTERRUPT


def test_an_image_needs_another_launcher(allocation: LocalAllocation, tmp_path: Path) -> None:
    """A step in a container is refused rather than run outside it."""
    plain = step(allocation, tmp_path, "boxed", SLEEP)
    boxed = StepRequest(
        plain.name,
        plain.node,
        plain.argv,
        plain.log_path,
        plain.work_dir,
        container=Container(Path("/x.sqsh")),
    )
    with pytest.raises(ServemarkError) as refused:
        allocation.start(boxed)
    assert refused.value.layer is Layer.INPUT and not plain.work_dir.exists()


def test_a_secret_reaches_the_step_and_nothing_else(allocation: LocalAllocation, tmp_path: Path) -> None:
    """The program has it; what is shown of the step, and how the request prints, has its name at most."""
    canary = "canary-5d1f0a"
    plain = step(
        allocation, tmp_path, "secret", "import os; print(len(os.environ['HF_TOKEN']))", PLAIN="seen"
    )
    request = StepRequest(
        plain.name, plain.node, plain.argv, plain.log_path, plain.work_dir, plain.env, {"HF_TOKEN": canary}
    )
    assert allocation.start(request).wait(10.0) == ExitStatus(exit_code=0)
    assert plain.log_path.read_text() == f"{len(canary)}\n"
    shown = HostLauncher(0).describe(request)
    assert canary not in repr(request) + " ".join(shown)
    assert shown[:3] == ["env", "PLAIN=seen", "HF_TOKEN=***"]


def test_a_program_that_is_not_there(allocation: LocalAllocation, tmp_path: Path) -> None:
    """Said by its name; no working folder is left of the attempt."""
    plain = step(allocation, tmp_path, "none", "")
    request = StepRequest("none", plain.node, ("/no/such/program",), plain.log_path, plain.work_dir)
    with pytest.raises(ServemarkError) as refused:
        allocation.start(request)
    assert refused.value.key == "launch.program_missing" and "/no/such/program" in refused.value.what()
    allocation.release()
    assert not plain.work_dir.exists()
