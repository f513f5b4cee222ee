"""The host's launcher: steps with logs and folders of their own, secrets that stay hidden, and an end that is an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.launch.allocation import AllocationRequest, NodeGroup, StepRequest
from servemark.launch.failure import relevant_lines
from servemark.launch.local_allocation import HostLauncher, LocalAllocation
from servemark.launch.process import ExitStatus
from servemark.launch.secret_env import load_secrets, redact, redact_bytes

CANARY = "canary-5f1c9e77aa"


def allocate(limit_s: int = 600, run_id: str = "run-a") -> LocalAllocation:
    """This host, said to have no GPU."""
    return HostLauncher(gpus=0).allocate(AllocationRequest(run_id, (NodeGroup("all", 1),), limit_s, 1.0))


def request(
    allocation: LocalAllocation,
    folder: Path,
    code: str,
    name: str = "s",
    *,
    env: dict[str, str] | None = None,
    secret_env: dict[str, str] | None = None,
    grace_s: float = 5.0,
) -> StepRequest:
    """A step that runs a line of Python."""
    return StepRequest(
        name,
        allocation.nodes[0],
        (sys.executable, "-c", code),
        folder / f"{name}.log",
        folder / "work" / name,
        env=env or {},
        secret_env=secret_env or {},
        grace_s=grace_s,
    )


def test_a_step_from_start_to_end(tmp_path: Path) -> None:
    """Log, environment, working folder; the status it ended with; the folder goes with it, the log stays."""
    allocation = allocate()
    step = allocation.start(
        request(
            allocation,
            tmp_path,
            "import os; print(os.environ['A'], os.getcwd()); open('f','w'); exit(3)",
            env={"A": "b c"},
        )
    )
    assert step.wait(20) == ExitStatus(exit_code=3)
    assert step.log_tail().split("\n")[0] == f"b c {tmp_path / 'work' / 's'}"
    allocation.release()
    allocation.release()
    assert not (tmp_path / "work" / "s").exists() and step.log_path.exists()


def test_release_ends_all_and_nothing_is_left(tmp_path: Path) -> None:
    """Children that flee and ignore SIGTERM included."""
    allocation = allocate(run_id="run-left")
    code = (
        "import signal, subprocess, time; signal.signal(15, signal.SIG_IGN);"
        "subprocess.Popen(['sleep', '60'], start_new_session=True); time.sleep(60)"
    )
    for name in ("a", "b"):
        allocation.start(request(allocation, tmp_path, code, name, grace_s=0.2))
    assert len(HostLauncher(gpus=0).leftovers("run-left")) >= 2
    allocation.release()
    assert HostLauncher(gpus=0).leftovers("run-left") == []
    with pytest.raises(ServemarkError) as caught:
        allocation.start(request(allocation, tmp_path, "pass", "late"))
    assert caught.value.key == "launch.allocation_gone"


def test_what_can_never_be_given() -> None:
    """More nodes or GPUs than this machine has: layer input, at once."""
    for group, key in (
        (NodeGroup("all", 2), "launch.local_nodes"),
        (NodeGroup("all", 1, gpus=1), "launch.local_gpus"),
    ):
        with pytest.raises(ServemarkError) as caught:
            HostLauncher(gpus=0).allocate(AllocationRequest("r", (group,), 60, 1.0))
        assert caught.value.key == key and caught.value.layer is Layer.INPUT
    with pytest.raises(ServemarkError) as caught:
        HostLauncher(gpus=0).allocate(
            AllocationRequest("r", (NodeGroup("all", 1),), 60, 1.0), cancelled=lambda: True
        )
    assert caught.value.layer is Layer.INTERRUPT


def test_the_time_limit_ends_it(tmp_path: Path) -> None:
    """After its time the allocation is lost, and its step with it."""
    allocation = allocate(limit_s=1)
    step = allocation.start(request(allocation, tmp_path, "import time; time.sleep(60)"))
    assert allocation.lost() is None
    assert step.wait(20) == ExitStatus(signal=signal.SIGTERM)
    assert "1 s" in str(allocation.lost())
    allocation.release()


def test_ports_are_never_handed_out_twice() -> None:
    """Forty of them in two calls."""
    allocation = allocate()
    node = allocation.nodes[0]
    assert len({*allocation.free_ports(node, 20), *allocation.free_ports(node, 20)}) == 40
    allocation.release()


def test_kill_9_of_the_launcher_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    """The guard sees its launcher go, ends the step and takes the working folder away."""
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[2]); from pathlib import Path\n"
        "from tests.launch.test_local_allocation import allocate, request\n"
        "a = allocate(run_id='run-k9')\n"
        'a.start(request(a, Path(sys.argv[1]), \'import time; open("f", "w"); time.sleep(60)\'))\n'
        "print('up', flush=True); time.sleep(60)"
    )
    root = str(Path(__file__).resolve().parents[2])
    launcher = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), root], stdout=subprocess.PIPE)
    assert launcher.stdout is not None and launcher.stdout.readline() == b"up\n"
    assert HostLauncher(gpus=0).leftovers("run-k9")
    launcher.kill()
    launcher.communicate()
    deadline = time.monotonic() + 15
    while (
        HostLauncher(gpus=0).leftovers("run-k9") or (tmp_path / "work" / "s").exists()
    ) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert HostLauncher(gpus=0).leftovers("run-k9") == [] and not (tmp_path / "work" / "s").exists()


def test_a_secret_reaches_the_step_and_nothing_else(tmp_path: Path) -> None:
    """The canary is in the step's environment; in no description, no representation, no error line, no kept log."""
    file = tmp_path / "secrets"
    file.write_text(f"# mine\nCANARY_TOKEN={CANARY}\n")
    file.chmod(0o600)
    secrets = load_secrets(["CANARY_TOKEN"], file, {})
    allocation = allocate()
    code = "import os; print('error: token', os.environ['CANARY_TOKEN'])"
    asked = request(allocation, tmp_path, code, secret_env=secrets)
    step = allocation.start(asked)
    assert step.wait(20) == ExitStatus(exit_code=0)
    assert CANARY in step.log_tail()  # what a program itself writes …
    shown = [*HostLauncher(gpus=0).describe(asked), repr(asked), *relevant_lines(step.log_tail())]
    shown += [
        redact(step.log_tail()),
        redact_bytes(step.log_path.read_bytes()).decode(),
    ]  # … is blanked where it is kept
    assert "CANARY_TOKEN=***" in shown and all(CANARY not in text for text in shown)
    allocation.release()


@pytest.mark.parametrize(
    ("content", "mode", "key"),
    [
        (f"A={CANARY}\n", 0o644, "launch.secrets_open"),
        (f"no line {CANARY}\n", 0o600, "launch.secrets_line"),
        ("B=x\n", 0o600, "launch.secret_missing"),
    ],
)
def test_bad_secrets(tmp_path: Path, content: str, mode: int, key: str) -> None:
    """A file that others may read, a broken line, a name that is nowhere: said without the value."""
    file = tmp_path / "secrets"
    file.write_text(content)
    os.chmod(file, mode)  # noqa: PTH101 - the mode is the point
    with pytest.raises(ServemarkError) as caught:
        load_secrets(["A"], file, {})
    assert caught.value.key == key and CANARY not in str(caught.value) + str(caught.value.next_step("en"))
