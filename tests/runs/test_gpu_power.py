"""GPU power sampled while a replay runs, with a stand-in `nvidia-smi` that prints what the real one (580.159) prints."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.cli.replay_servers import Verb, good, serving, wait_until

from servemark.cli.main import run_cli
from servemark.runs.gpu_power import FIELDS, NAME, GpuPowerSampler, clock_facts

SMI = """#!{python}
import datetime, os, sys, time
argv = sys.argv[1:]
fields = argv[0].removeprefix("--query-gpu=")
open({log!r}, "a").write(str(os.getpid()) + " " + os.environ.get("TZ", "-") + " " + fields + chr(10))
{first}
print("timestamp, index, uuid, power.draw [W]", flush=True)
while True:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
    for gpu in range(2):
        print(f"{{now}}, {{gpu}}, GPU-{{gpu}}-made, {{150.0 * (gpu + 1):.2f}} W", flush=True)
    time.sleep(int(argv[-1]) / 1000)
"""
BROKEN = (
    'print("NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.")\nsys.exit(9)'
)


def stand_in(folder: Path, first: str = "") -> Path:
    """The program in a folder of its own for PATH; notes its process, zone and fields in `log`."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    program = bin_folder / "nvidia-smi"
    program.write_text(SMI.format(python=sys.executable, log=str(folder / "log"), first=first))
    program.chmod(0o755)
    return bin_folder


def alive(log: Path) -> list[int]:
    """Processes that the log names and that still run."""
    found = []
    for line in log.read_text().splitlines():
        try:
            os.kill(int(line.split()[0]), 0)
            found.append(int(line.split()[0]))
        except ProcessLookupError:
            continue
    return found


@pytest.fixture
def verb(tmp_path: Path) -> Verb:
    """The verb with a home of its own."""
    return Verb(tmp_path / "home")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_run_gets_energy(
    verb: Verb, tmp_path: Path, capsys: pytest.CaptureFixture[str], processes: str
) -> None:
    """150 and 300 W throughout: 225 W a GPU, 450 W x window in all; the zone is UTC whatever this host's is."""
    path = f"{stand_in(tmp_path)}:{os.environ['PATH']}"
    work = "random:isl=20,osl=10,requests=12"
    with serving(good(0.02)) as server:
        flags = ("--url", server.url, "--gpus", "2", "--concurrency", "2", "--processes", processes, work)
        code, out, err = verb.run(*flags, PATH=path, TZ="Asia/Shanghai")
    assert (code, err) == (0, ""), (out, err)
    said = (tmp_path / "log").read_text().splitlines()
    assert [line.split()[1] for line in said] == ["UTC"]
    assert alive(tmp_path / "log") == []
    (folder,) = verb.folders
    assert NAME in verb.row["files"]
    window = verb.row["window_s"]
    told = {}
    for metric in ("gpu_power_w.mean", "gpus_energy_j", "joules_per_output_token"):
        assert run_cli(["show", folder.name, metric, "--why", "--json", "--home", str(verb.home)]) == 0
        told[metric] = json.loads(capsys.readouterr().out)
    assert told["gpu_power_w.mean"]["value"] == pytest.approx(225)
    assert told["gpus_energy_j"]["value"] == pytest.approx(450 * window, rel=1e-3)
    assert told["joules_per_output_token"]["value"] == pytest.approx(450 * window / 120, rel=1e-3)
    assert told["gpus_energy_j"]["from"][0]["file"] == NAME


@pytest.mark.parametrize(
    "first", [BROKEN, "sys.exit(0)", "time.sleep(60)"], ids=["no driver", "nothing", "silent"]
)
def test_an_nvidia_smi_that_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """No file, no process left, no error: a run without energy is a run."""
    monkeypatch.setenv("PATH", str(stand_in(tmp_path, first)))
    monkeypatch.setattr("servemark.runs.gpu_power.FIRST_S", 0.5)
    with GpuPowerSampler(tmp_path / NAME, 2):
        pass
    assert not (tmp_path / NAME).exists()
    assert alive(tmp_path / "log") == []


def test_nothing_is_sampled_where_no_gpu_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine on the CPU of a host with GPUs: their idle power is not its."""
    monkeypatch.setenv("PATH", str(stand_in(tmp_path)))
    for gpus in (0, None):
        with GpuPowerSampler(tmp_path / NAME, gpus):
            pass
    assert not (tmp_path / "log").exists()


def test_it_ends_with_a_run_that_is_killed(verb: Verb, tmp_path: Path) -> None:
    """kill -9 of the run: its next line has no reader."""
    path = f"{stand_in(tmp_path)}:{os.environ['PATH']}"
    with serving(good(0.5)) as server:
        verb.start("--url", server.url, "--gpus", "2", "random:isl=20,osl=50,requests=4", PATH=path)
        wait_until(lambda: len(verb.folders) == 1 and (verb.folders[0] / NAME).exists())
        verb.signal(signal.SIGKILL)
        wait_until(lambda: alive(tmp_path / "log") == [])
        verb.end()


def test_an_old_driver_is_asked_for_power_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses fields that it does not know, and with them the whole question; the GPUs asked for are named."""
    refusal = (
        'if "clocks_event_reasons" in fields: print("Field is not a valid field to query."); sys.exit(2)'
    )
    monkeypatch.setenv("PATH", f"{stand_in(tmp_path, refusal)}:{os.environ['PATH']}")
    with GpuPowerSampler(tmp_path / NAME, 2, (0, 1)):
        pass
    asked = [line.split()[2] for line in (tmp_path / "log").read_text().splitlines()]
    assert len(asked) == 2 and asked[0].startswith(FIELDS + ",") and asked[1] == FIELDS
    assert (tmp_path / NAME).read_text().startswith("timestamp")


def test_clocks_of_the_window(tmp_path: Path) -> None:
    """Two of three samples lie in it: means of 1,500 and 1,800 MHz; 0x5 is idle (0x1) and the power cap (0x4)."""
    heads = (
        "timestamp, index, power.draw [W], clocks.current.sm [MHz], clocks.current.memory [MHz], temperature.gpu, "
        "clocks_event_reasons.active"
    )
    lines = [
        "1970/01/01 00:00:09.000, 0, 90.00 W, 345 MHz, 3201 MHz, 30, 0x0000000000000001",
        "1970/01/01 00:00:11.000, 0, 500.00 W, 1500 MHz, 3201 MHz, 50, 0x0000000000000005",
        "1970/01/01 00:00:12.000, 0, 400.00 W, 1800 MHz, [N/A], 52, 0x0000000000000000",
    ]
    (tmp_path / NAME).write_text("\n".join([heads, *lines, "cut off in the mid"]))
    window: dict[str, object] = {"measured_window": {"begin_s": 10.0, "end_s": 13.0}}
    assert clock_facts(tmp_path / NAME, window) == {
        "gpu_clocks": {
            "0": {
                "sm_mhz": {"mean": 1650.0, "min": 1500, "max": 1800},
                "memory_mhz": {"mean": 3201.0, "min": 3201, "max": 3201},
                "celsius": {"mean": 51.0, "min": 50, "max": 52},
                "reasons": 4,
                "samples_with_reasons": 1,
                "samples": 2,
            }
        }
    }
    assert clock_facts(tmp_path / "none", window) == {} and clock_facts(tmp_path / NAME, {}) == {}
