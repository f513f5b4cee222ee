"""GPU probes as processes: real ones on a driver library made here, and ones that hang, die, lie or say nothing.

There is no GPU where these run: `stand_ins/fake_cuda.c` answers the driver's calls with host memory, and
`stand_ins/pynvml.py` stands for NVML. torch's part runs on the CPU where an environment with torch is found.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from servemark.cli.preflight import preflight
from servemark.preflight.gpu import findings
from servemark.preflight.gpu.lines import Figure, Line, Pinned, Told, Trouble
from servemark.preflight.gpu.run import Measured, cpus_near, measure
from servemark.preflight.gpu.team import Job, Team, child_command

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at a Linux host")
STAND_INS = Path(__file__).parent / "stand_ins"
SRC = Path(__file__).resolve().parents[2] / "src"
MIB = 1 << 20
SMALL: dict[str, dict[str, object]] = {
    "memory": {"bytes": 64 * MIB},
    "host_copy": {"bytes": 4 * MIB},
    "peer": {"bytes": 4 * MIB},
    "ipc": {"bytes": 4 * MIB},
    "pin": {"sizes": [8 * MIB]},
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a `libcuda.so.1`."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the driver's stand-in")
    folder = tmp_path_factory.mktemp("driver")
    source, target = STAND_INS / "fake_cuda.c", folder / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", target, source], check=True)
    return folder


@pytest.fixture
def gpus(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Two GPUs and NVML."""
    memory = tmp_path / "device-memory"
    memory.mkdir()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("FAKE_CUDA_DIR", str(memory))
    monkeypatch.setenv("FAKE_CUDA_COUNT", "2")
    monkeypatch.setenv("PYTHONPATH", f"{SRC}{os.pathsep}{STAND_INS}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return monkeypatch


def ran(job: Job, folder: Path, command: Callable[[str], list[str]] = child_command) -> list[Line]:
    """One job's lines."""
    lines: list[Line] = []
    team = Team(job, folder, command)
    team.run(time.monotonic() + 90, lines.append)
    assert all(rank.process.poll() is not None for rank in team.ranks), "a process was left behind"
    return lines


def script(body: str) -> Callable[[str], list[str]]:
    """A probe that does what a test wants."""
    return lambda probe: [sys.executable, "-c", body]


READY = 'import os,sys,time,json\nprint(\'{"kind": "ready"}\', flush=True)\nsys.stdin.readline()\n'
GOOD = 'print(json.dumps({"kind":"figure","name":"memory_copy_bytes_per_s","value":4e12,"gpus":[0]}), flush=True)\n'


@pytest.mark.parametrize(
    ("body", "reason", "figures"),
    [
        (READY + "time.sleep(60)", "hang", 0),
        (READY + GOOD + "time.sleep(60)", "hang", 1),
        (READY + "os.abort()", "crash", 0),
        (READY + GOOD + "os.kill(os.getpid(), 9)", "crash", 1),
        (READY + "sys.stderr.write('out of luck'); sys.exit(3)", "exit", 0),
        (READY + 'print(\'{"kind": "done"}\')', "silent", 0),
        (READY + "print('Hello from a library')", "garbage", 0),
        (READY + GOOD.replace("4e12", "float('nan')") + 'print(\'{"kind": "done"}\')', "garbage", 0),
        (READY + GOOD.replace('"gpus":[0]', '"gpus":[7]'), "garbage", 0),
        (READY + "os.write(1, b'x' * 200000); time.sleep(60)", "garbage", 0),
        (READY + "while True: os.write(1, b'{}\\n' * 1000)", "garbage", 0),
        ("raise SystemExit(4)", "exit", 0),
        ("import os; os.close(1); import time; time.sleep(60)", "silent", 0),
    ],
)
def test_a_bad_probe_is_told_and_ended(tmp_path: Path, body: str, reason: str, figures: int) -> None:
    """Its reason; figures that came before are kept; it is gone afterwards, and soon."""
    begun = time.monotonic()
    lines = ran(Job("memory", (0,), 1.5 if reason == "hang" else 30.0), tmp_path, script(body))
    assert [line.reason for line in lines if isinstance(line, Trouble)] == [reason], lines
    assert sum(isinstance(line, Figure) for line in lines) == figures
    assert time.monotonic() - begun < 25


def test_what_a_dying_probe_said_is_told(tmp_path: Path) -> None:
    """The end of its stderr, printable and on one line."""
    body = READY + "sys.stderr.write('first\\n\\x1b[31mout of \\tluck'); sys.exit(3)"
    (line,) = ran(Job("memory", (0,), 5.0), tmp_path, script(body))
    assert isinstance(line, Trouble) and line.detail == "3 [31mout of luck"


def test_ranks_do_not_wait_for_a_dead_one(tmp_path: Path) -> None:
    """The second dies: the first, which would wait a minute, is ended within seconds."""
    body = READY.replace("sys.stdin.readline()", "job=json.loads(sys.stdin.readline())")
    begun = time.monotonic()
    lines = ran(
        Job("nccl", (0, 1), 60.0, ranks=2),
        tmp_path,
        script(body + "os.abort() if job['rank'] else time.sleep(99)"),
    )
    assert [line.reason for line in lines if isinstance(line, Trouble)] == ["crash"]
    assert time.monotonic() - begun < 20


def test_ranks_do_not_wait_for_one_that_gave_up(tmp_path: Path) -> None:
    """The second says why it cannot: the first's waiting is not told as a second trouble."""
    body = READY.replace("sys.stdin.readline()", "job=json.loads(sys.stdin.readline())") + (
        "if job['rank'] == 0: time.sleep(99)\n"
        'print(json.dumps({"kind": "unmeasured", "reason": "cuda_error", "detail": "IPC", "gpus": [0, 1]}))\n'
        'print(\'{"kind": "done"}\')'
    )
    begun = time.monotonic()
    lines = ran(Job("ipc", (0, 1), 60.0, ranks=2), tmp_path, script(body))
    assert [(line.reason, line.detail) for line in lines if isinstance(line, Trouble)] == [
        ("cuda_error", "IPC")
    ]
    assert time.monotonic() - begun < 20


def all_of(measured: Measured, kind: type[Line]) -> list[Line]:
    """Lines of one kind."""
    return [line for line in measured.lines if isinstance(line, kind)]


def test_a_whole_run(gpus: pytest.MonkeyPatch) -> None:
    """Two GPUs: every figure that needs no torch, pinning in each page kind, NVML's indices, watch and events."""
    gpus.setenv("FAKE_NVML", json.dumps({"xids": [79], "reasons": 0x40}))
    lines: list[Line] = []
    measured = measure(lines.append, options=SMALL)
    names = {(line.name, line.gpus) for line in measured.lines if isinstance(line, Figure)}
    for gpu in (0, 1):
        assert ("memory_copy_bytes_per_s", (gpu,)) in names and (
            "pageable_to_host_bytes_per_s",
            (gpu,),
        ) in names
    assert {("peer_copy_bytes_per_s", (0, 1)), ("peer_copy_bytes_per_s", (1, 0))} <= names
    assert any(name == "ipc_copy_bytes_per_s" for name, _ in names)
    pages = {line.pages: line for line in measured.lines if isinstance(line, Pinned)}
    assert set(pages) == {"4k", "thp", "hugetlb"} and pages["4k"].populate_s is not None
    assert {line.reason for line in measured.lines if isinstance(line, Trouble)} <= {"no_torch", "hugepages"}
    # NVML numbers the other way round: CUDA's device 0 is NVML's GPU 1.
    assert [(one.index, one.visible) for one in measured.devices] == [(1, "0"), (0, "1")]
    assert measured.watch is not None
    seen = {one["index"]: one for one in measured.watch["devices"]}  # type: ignore[attr-defined]
    assert seen[0]["xids"] == [79] and seen[1]["xids"] == [] and seen[0]["throttled"]["hw_thermal"] > 0
    assert measured.nvml is not None and measured.nvml["driver"] == "580.159.04"
    assert sum(isinstance(line, Told) for line in lines) == 3 and len(lines) == len(measured.lines) + 3


@pytest.mark.parametrize(
    ("fault", "outcome", "reason"),
    [
        ("flip", "wrong", "data"),
        ("ecc", "unmeasured", "cuda_error"),
        ("hang", "unmeasured", "hang"),
        ("crash", "unmeasured", "crash"),
    ],
)
def test_a_wounded_gpu(
    gpus: pytest.MonkeyPatch, tmp_path: Path, fault: str, outcome: str, reason: str
) -> None:
    """A flipped bit, an ECC error, a call that never comes back, a driver that takes the process down."""
    gpus.setenv("FAKE_CUDA_FAULT", fault)
    lines = ran(Job("memory", (0,), 3.0 if fault == "hang" else 60.0, "0", options=SMALL["memory"]), tmp_path)
    troubles = [line for line in lines if isinstance(line, Trouble)]
    assert [(one.outcome, one.reason) for one in troubles] == [(outcome, reason)], lines


def test_nothing_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No driver, no NVML: two reasons, no GPU, no exception."""
    monkeypatch.setenv("PYTHONPATH", str(SRC))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    measured = measure()
    if measured.devices:
        pytest.skip("this host has a GPU")
    assert {line.probe for line in measured.lines if isinstance(line, Trouble)} == {"cuda", "nvml"}


@pytest.mark.parametrize("fake", [{"fails": True}, {"hangs": True}])
def test_nvml_that_fails_or_hangs(gpus: pytest.MonkeyPatch, tmp_path: Path, fake: dict[str, bool]) -> None:
    """A wounded driver stops NVML; that is its own probe's matter."""
    gpus.setenv("FAKE_NVML", json.dumps(fake))
    (line,) = ran(Job("nvml", (), 1.5 if "hangs" in fake else 30.0), tmp_path)
    assert isinstance(line, Trouble) and line.reason == ("hang" if "hangs" in fake else "no_nvml")


def test_time_that_is_up(gpus: pytest.MonkeyPatch) -> None:
    """With a fifth of a second for everything, it ends soon and every probe that did not run says why."""
    begun = time.monotonic()
    measured = measure(total_s=0.2, options=SMALL)
    assert time.monotonic() - begun < 30
    reasons = {line.reason for line in all_of(measured, Trouble) if isinstance(line, Trouble)}
    assert "late" in reasons and reasons <= {"late", "no_torch", "crash", "exit", "hang"}


def test_a_pin_that_does_not_fit(gpus: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A petabyte is left out with its reason, and the smaller size before it is there."""
    lines = ran(Job("pin", (0,), 20.0, "0", options={"sizes": [2 * MIB, 1 << 45]}), tmp_path)
    rows = [line for line in lines if isinstance(line, Pinned)]
    assert [row.reason for row in rows[3:]] == ["host_memory"] * 3
    assert rows[0].reason is None and rows[0].register_s is not None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_broken_off(gpus: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals) -> None:
    """Ended in the midst of pinning: no process stays, reserved pages are given back; only kill -9 leaves the folder."""
    gpus.setenv("TMPDIR", str(tmp_path))
    gpus.setenv("FAKE_CUDA_COUNT", "1")
    options = {**SMALL, "pin": {"sizes": [128 * MIB] * 50}}
    code = f"from servemark.preflight.gpu.run import measure; measure(print, options={options!r})"
    before = pool()
    run = subprocess.Popen(
        [sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    assert any("Pinned" in line for line in run.stdout)
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    run.send_signal(number)
    run.communicate(timeout=30)
    end = time.monotonic() + 10
    while any(alive(child) for child in children) and time.monotonic() < end:
        time.sleep(0.05)
    assert children and not any(alive(child) for child in children)
    assert pool() == before
    assert len(list(tmp_path.glob("servemark-gpu-*"))) == (number == signal.SIGKILL)


def pool() -> str:
    """Huge pages of the host."""
    try:
        return Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").read_text()
    except OSError:
        return ""


def alive(process: str) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_cpus_of_an_address_that_is_none() -> None:
    """A device's address is the driver's word: a strange one finds no file."""
    assert cpus_near("../../../etc") == () and cpus_near("\0") == ()


def servemark(*args: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "servemark", "preflight", *args], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_verb(gpus: pytest.MonkeyPatch, tmp_path: Path, lang: str) -> None:
    """Findings at the end, lines in the file; host memory is far below an H200's, so the GPU is slow: a warning."""
    gpus.setenv("FAKE_CUDA_COUNT", "1")
    gpus.setenv("FAKE_NVML", json.dumps({"count": 1}))
    gpus.setattr(findings, "measure", partial(measure, options=SMALL))  # the shipped sizes are a real host's
    file = tmp_path / "lines.jsonl"
    done = CliRunner().invoke(preflight, ["--gpu", "--gpu-lines", str(file), "--json", "--lang", lang])
    assert done.exception is None or isinstance(done.exception, SystemExit), done
    body = json.loads(done.stdout)["findings"]
    found = [one["topic"] for one in body if one["topic"].startswith("gpu_")]
    assert found == ["gpu_links", "gpu_pinning", "gpu_probe"]
    (one,) = [one for one in body if one["topic"] == "gpu"]
    assert one["facts"]["state"] == "slow" and one["verdict"] == "warn"
    kinds = {json.loads(line)["kind"] for line in file.read_text().splitlines()}
    assert {"figure", "unmeasured", "facts", "pinned"} <= kinds


def test_lines_never_cost_the_measurement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A full disk is a warning and all findings are told; a pipe that nobody reads is refused at once."""
    monkeypatch.setenv("PYTHONPATH", str(SRC))
    done = servemark("--gpu", "--json", "--gpu-lines", "/dev/full")
    assert done.returncode in {0, 1} and "can no longer be written" in done.stderr
    assert json.loads(done.stdout)["kind"] == "preflight"
    os.mkfifo(tmp_path / "pipe")
    done = servemark("--gpu", "--gpu-lines", str(tmp_path / "pipe"))
    assert done.returncode == 2 and "cannot be written" in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--gpu-lines", "x"), "--gpu was not given"),
        (("--gpu", "--gpu-lines", "/no/such/folder/x"), "cannot be written"),
        (("--gpu", "--merge", "x"), "--gpu looks at this host"),
    ],
)
def test_mistakes(args: tuple[str, ...], said: str) -> None:
    """Exit code 2 and what is wrong."""
    done = servemark(*args)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, done


TORCH = Path(os.environ.get("SERVEMARK_VLLM_CPU") or SRC.parent / ".venv-vllm") / "bin" / "python"


@pytest.mark.engine_vllm
@pytest.mark.skipif(not TORCH.exists(), reason=f"no torch: {TORCH} (tools/vllm-cpu/install.py)")
@pytest.mark.parametrize(
    ("job", "names"),
    [
        (
            Job("bf16", (0,), 60.0, options={"device": "cpu", "side": 128, "sustained_s": 0.1}),
            {"bf16_flop_per_s", "bf16_sustained_flop_per_s"},
        ),
        (Job("fp8", (0,), 60.0, options={"device": "cpu", "side": 32}), {"fp8_flop_per_s"}),
        (
            Job("nccl", (3, 5), 60.0, ranks=2, options={"device": "cpu", "bytes": MIB}),
            {"nccl_all_reduce_bus_bytes_per_s", "nccl_all_reduce_latency_s", "nccl_exchange_bytes_per_s"},
        ),
    ],
)
def test_torch_on_the_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: Job, names: set[str]) -> None:
    """The same code on the CPU and with gloo: figures come, products and sums are right."""
    monkeypatch.setenv("PYTHONPATH", str(SRC))
    lines = ran(job, tmp_path, lambda name: [str(TORCH), *child_command(name)[1:]])
    assert {line.name for line in lines if isinstance(line, Figure)} == names, lines
    assert not [line for line in lines if isinstance(line, Trouble)]
