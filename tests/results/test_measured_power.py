"""Energy on a point, from GPU metrics beside its file or named by the user: through the command line, by hand."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from servemark.base.errors import ServemarkError
from servemark.cli.main import run_cli
from servemark.results.measured_power import parse_roles, parse_window

BEGIN = 1_780_000_000  # 2026-05-28T20:26:40Z
SAID = ("--set", "hardware=h200", "--set", "engine=vllm")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("SERVEMARK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def result(folder: Path, *, timed: bool = True, name: str = "result.json", **more: object) -> Path:
    """A vLLM result over 100 s: 10 requests, 3,000 prompt and 1,000 output tokens."""
    row: dict[str, object] = {
        "date": "20260528-202640", "backend": "vllm", "model_id": "org/model", "num_prompts": 10, "max_concurrency": 2,
        "completed": 10, "failed": 0, "duration": 100.0, "total_input_tokens": 3000, "total_output_tokens": 1000,
        "request_throughput": 0.1, "output_throughput": 10.0, "total_token_throughput": 40.0, "request_rate": "inf",
        "mean_ttft_ms": 5.0, "median_ttft_ms": 5.0,
    }  # fmt: skip
    if timed:
        row |= {"benchmark_start_time_unix": BEGIN, "benchmark_end_time_unix": BEGIN + 100}
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(row | more))
    return path


def gpu_csv(
    path: Path, watts: dict[int, float], *, seconds: range = range(-2, 103), left_out: range = range(0)
) -> Path:
    """As nvidia-smi writes it: one line a second and GPU, a clock without a zone."""
    lines = ["timestamp, index, uuid, power.draw [W]"]
    for second in seconds:
        if second in left_out:
            continue
        moment = BEGIN + second
        clock = f"2026/05/28 {20 + (1600 + second) // 3600}:{(1600 + second) // 60 % 60:02}:{(1600 + second) % 60:02}.000"
        assert moment > 0
        lines += [f"{clock}, {gpu}, GPU-{path.stem}-{gpu}, {power:.2f} W" for gpu, power in watts.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def told(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str]:
    """(exit code, stdout)."""
    code = run_cli([str(each) for each in argv])
    return code, capsys.readouterr().out


def the_point(capsys: pytest.CaptureFixture[str], path: Path) -> dict[str, Any]:
    """The point of a file's first row."""
    _, out = told(capsys, "show", f"{hashlib.sha256(path.read_bytes()).hexdigest()}:0", "--json")
    found = json.loads(out)["point"]
    assert isinstance(found, dict)
    return found


def figures(capsys: pytest.CaptureFixture[str], path: Path) -> dict[str, float]:
    """Figures of power of a file's first row."""
    held = the_point(capsys, path)["figures"]
    assert isinstance(held, dict)
    return {
        name: each["value"]
        for name, each in held.items()
        if any(word in name for word in ("power", "_j", "joules"))
    }


def test_a_csv_beside_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2 GPUs at 300 and 500 W for 100 s: 80,000 J; / 4,000 tokens = 20 J, / 1,000 = 80 J, / 10 requests = 8,000 J."""
    path = result(tmp_path / "job")
    gpu_csv(tmp_path / "job" / "gpu_metrics.csv", {0: 300, 1: 500})
    code, out = told(capsys, "import", path, *SAID, "--set", "gpus=2")
    assert (code, "power samples beside the file: 1" in out) == (0, True), out
    found = figures(capsys, path)
    assert found == pytest.approx({
        "gpus_energy_j": 80_000, "gpu_power_w.mean": 400, "gpus_power_w.mean": 800, "joules_per_total_token": 20,
        "joules_per_input_token": 80_000 / 3000, "joules_per_output_token": 80, "joules_per_request": 8000,
    })  # fmt: skip
    point = the_point(capsys, path)
    assert point["gpus_telemetry"] == 2
    assert point["observed"]["power"] == {
        "window_s": 100.0, "first_s": -2.0, "last_s": 102.0, "longest_gap_s": 1.0, "devices": 2,
    }  # fmt: skip


def test_why_leads_to_the_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """File, SHA-256 and formula with numbers; changed samples are told; the same after mapping again."""
    path = result(tmp_path / "job")
    csv = gpu_csv(tmp_path / "job" / "gpu_metrics.csv", {0: 300, 1: 500})
    told(capsys, "import", tmp_path / "job", *SAID, "--set", "gpus=2")
    name = f"{hashlib.sha256(path.read_bytes()).hexdigest()}:0"
    sha256 = hashlib.sha256(csv.read_bytes()).hexdigest()
    code, out = told(capsys, "show", name, "joules_per_output_token", "--why")
    assert code == 0
    for said in (
        "gpu_metrics.csv",
        sha256,
        "80000 J / 1000 output tokens",
        "2026-05-28T20:26:40.000Z",
        "no zone",
    ):
        assert said in out, (said, out)
    assert "[power_coverage]" in out
    before = figures(capsys, path)
    told(capsys, "import", "--remap")
    assert figures(capsys, path) == before
    code, out = told(capsys, "show", name, "gpus_energy_j", "--why", "--json")
    (beside,) = json.loads(out)["from"]
    assert (code, beside["sha256"], beside["raw_state"]) == (0, sha256, "ok")
    Path(beside["raw"]).write_bytes(b"x")
    assert told(capsys, "show", name, "gpus_energy_j", "--why")[0] == 1


REFUSED = {
    "begins late": (range(1, 103), range(0), 2, "results.power_uncovered"),
    "ends early": (range(-2, 99), range(0), 2, "results.power_uncovered"),
    "gap": (range(-2, 103), range(40, 48), 2, "results.power_gap"),
    "six GPUs missing": (range(-2, 103), range(0), 8, "results.power_devices"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_absent_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    """No figure, a note on the point, the reason on import."""
    seconds, left_out, gpus, key = REFUSED[case]
    path = result(tmp_path / "job")
    gpu_csv(tmp_path / "job" / "gpu.csv", {0: 300, 1: 500}, seconds=seconds, left_out=left_out)
    code, out = told(capsys, "import", path, *SAID, "--set", f"gpus={gpus}", "--json")
    (refused,) = json.loads(out)["power"]["refused"]
    assert (code, refused["key"], refused["points"]) == (0, key, 1)
    assert figures(capsys, path) == {}
    assert any(note.startswith("no energy: ") for note in the_point(capsys, path)["notes"])
    _, out = told(capsys, "import", path, *SAID, "--set", f"gpus={gpus}", "--set", "precision=fp8")
    assert "points without energy: 1; " in out


def test_the_gate_has_its_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """10 s of 100 s without samples: refused (above 5 s), and the gate on coverage warns with the gap."""
    path = result(tmp_path / "job")
    gpu_csv(tmp_path / "job" / "gpu.csv", {0: 300, 1: 500}, left_out=range(41, 50))
    told(capsys, "import", path, *SAID, "--set", "gpus=2")
    _, out = told(capsys, "show", f"{hashlib.sha256(path.read_bytes()).hexdigest()}:0", "--json")
    (found,) = [each for each in json.loads(out)["findings"] if each["gate"] == "power_coverage"]
    assert (found["severity"], found["values"]["gap_s"]) == ("warning", 10.0)


def test_flags_for_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A result without moments, samples elsewhere: 4 GPUs prefill at 100 W, 4 decode at 200 W, 100 s: 40 kJ / 3,000 input,
    80 kJ / 1,000 output tokens."""
    path = result(tmp_path / "job", timed=False)
    csv = gpu_csv(tmp_path / "samples.csv", {n: 100 if n < 4 else 200 for n in range(8)})
    code, out = told(capsys, "import", path, *SAID, "--set", "gpus=8", "--power", csv)
    assert "does not say when" in out
    assert figures(capsys, path) == {}
    window = "2026/05/28 20:26:40,2026/05/28 20:28:20"
    rest = ("--power", csv, "--window", window, "--gpu-roles", "0-3=prefill,4-7=decode")
    code, out = told(capsys, "import", path, *SAID, "--set", "gpus=8", *rest)
    assert (code, "power samples beside the file: 1" in out) == (0, True), out
    found = figures(capsys, path)
    assert found["prefill_joules_per_input_token"] == pytest.approx(40_000 / 3000)
    assert found["decode_joules_per_output_token"] == pytest.approx(80)
    assert found["decode_gpu_power_w.mean"] == pytest.approx(200)
    assert found["prefill_gpus_energy_j"] == pytest.approx(40_000)
    told(capsys, "import", "--remap")
    assert figures(capsys, path) == pytest.approx(found)
    gpu_csv(csv, dict.fromkeys(range(8), 100.0))  # other samples under the same name
    told(capsys, "import", path, *SAID, "--set", "gpus=8", *rest)
    assert figures(capsys, path)["decode_gpu_power_w.mean"] == pytest.approx(100)


def test_several_hosts_and_a_role_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """GPU 0 of two hosts are two GPUs; idle GPUs of the host are left out by naming those that count."""
    path = result(tmp_path / "job")
    one, two = gpu_csv(tmp_path / "a.csv", {0: 100, 1: 100}), gpu_csv(tmp_path / "b.csv", {0: 200, 1: 60})
    rest = ("--power", one, "--power", two, "--gpu-roles", "a.csv=prefill,b.csv:0=decode")
    code, out = told(capsys, "import", path, *SAID, "--set", "gpus=3", *rest)
    assert (code, "power samples beside the file: 1" in out) == (0, True), out
    found = figures(capsys, path)
    assert found["gpus_energy_j"] == pytest.approx(40_000)
    assert found["decode_gpus_energy_j"] == pytest.approx(20_000)


def test_in_a_zip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As artifacts of a workflow lie in one."""
    path = result(tmp_path / "job")
    csv = gpu_csv(tmp_path / "job" / "gpu_metrics.csv", {0: 300, 1: 500})
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        for each in (path, csv):
            archive.write(each, f"job/{each.name}")
    told(capsys, "import", tmp_path / "job.zip", *SAID, "--set", "gpus=2")
    assert figures(capsys, path)["gpus_energy_j"] == pytest.approx(80_000)


def test_another_window_gives_no_energy_per_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """50 s of power against tokens of 100 s: energy and power stand, J/token does not."""
    path = result(tmp_path / "job", timed=False)
    csv = gpu_csv(tmp_path / "samples.csv", {0: 300, 1: 500})
    told(
        capsys, "import", path, *SAID, "--set", "gpus=2", "--power", csv, "--window", f"{BEGIN},{BEGIN + 50}"
    )
    assert figures(capsys, path) == pytest.approx(
        {"gpus_energy_j": 40_000, "gpu_power_w.mean": 400, "gpus_power_w.mean": 800}
    )


def test_bad_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and nothing kept."""
    path = result(tmp_path / "job")
    csv = gpu_csv(tmp_path / "samples.csv", {0: 300})
    for flags in (
        ("--power", path),
        ("--power", tmp_path / "nothing.csv"),
        ("--power", csv, "--power", csv),
        ("--window", "1,2,3"),
        ("--window", "2,1"),
        ("--gpu-roles", "0-3=fast"),
    ):
        assert run_cli(["import", str(path), *map(str, flags)]) == 2, flags
    assert (
        run_cli(["import", str(tmp_path / "job"), "--power", str(csv), "--window", f"{BEGIN},{BEGIN + 9}"])
        == 2
    )
    assert not (tmp_path / "home").exists()
    capsys.readouterr()
    for said in ("0-3", "=decode", ""):
        with pytest.raises(ServemarkError):
            parse_roles(said)
    for said in ("nan,inf", "1e400,2", ",", "2026-01-01T00:00:00Z"):
        with pytest.raises(ServemarkError):
            parse_window(said)


@pytest.mark.parametrize("roles", ["0-9=prefill", "7=decode", "GPU-x=decode", "0=prefill,0-1=decode"])
def test_roles_of_gpus_that_are_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], roles: str
) -> None:
    """Said, and no figure."""
    path = result(tmp_path / "job")
    csv = gpu_csv(tmp_path / "samples.csv", {0: 300, 1: 500})
    _, out = told(capsys, "import", path, *SAID, "--power", csv, "--gpu-roles", roles)
    assert "points without energy: 1" in out
    assert figures(capsys, path) == {}
