"""`engine install` and `engine list`: exact commands, idempotence, and failures with their output."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.base.messages import text
from servemark.launch import install
from servemark.launch.install import REQUIREMENTS, engine_install, engine_list, install_argv

ROOT = Path(__file__).resolve().parents[2]
PINS = REQUIREMENTS["llamacpp-embedded"]


def test_pins_lie_within_the_extra() -> None:
    """pyproject's extra `local` names the same packages, and its lower bounds are the versions tested
    here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = project["optional-dependencies"]["local"]
    assert {pin.replace("==", ">=") for pin in PINS} == {entry.split(",")[0] for entry in extra}


def test_argv_with_pip_and_with_uv() -> None:
    """No dependencies, wheels only, into this interpreter."""
    tail = ("--no-deps", "--only-binary", ":all:", *PINS)
    argv = install_argv(PINS, pip=True)
    assert argv[:4] == (sys.executable, "-m", "pip", "install")
    assert argv[-5:] == tail
    argv = install_argv(PINS, pip=False, uv="/opt/uv")
    assert argv[:5] == ("/opt/uv", "pip", "install", "--python", sys.executable)
    assert argv[-5:] == tail


def test_uv_beside_the_interpreter_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`pip install uv` puts it into the environment's bin, which need not be on the PATH; none there: what
    to do."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ServemarkError) as caught:
        install_argv(PINS, pip=False)
    assert caught.value.key == "launch.no_installer"
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\n")
    uv.chmod(0o755)
    assert install_argv(PINS, pip=False)[0] == str(uv)


def fail_if_run(_argv: Sequence[str]) -> tuple[int, str]:
    """A runner that must not run."""
    raise AssertionError("something was installed")


def test_already_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs and nothing is claimed; both names of the engine work."""
    monkeypatch.setattr(install, "_satisfied", lambda _requirement: True)
    for name in ("llamacpp", "llamacpp-embedded"):
        assert [(step.requirement, step.status) for step in engine_install(name, run=fail_if_run)] == [
            (pin, "already") for pin in PINS
        ]


def test_only_what_is_missing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner sees the one missing package; on_start saw the command before."""
    present = {PINS[0]}
    monkeypatch.setattr(install, "_satisfied", present.__contains__)
    ran: list[Sequence[str]] = []
    shown: list[Sequence[str]] = []

    def run(argv: Sequence[str]) -> tuple[int, str]:
        assert shown == [argv]
        ran.append(argv)
        present.add(PINS[1])
        return 0, "ok"

    steps = engine_install(run=run, on_start=shown.append)
    assert [(step.requirement, step.status) for step in steps] == [
        (PINS[0], "already"),
        (PINS[1], "installed"),
    ]
    assert len(ran) == 1
    assert PINS[0] not in ran[0]
    assert ran[0][-1] == PINS[1]
    assert [step.status for step in engine_install(run=fail_if_run)] == ["already", "already"]


@pytest.mark.parametrize("code", [1, 0])
def test_failed_installation(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """An exit code, or success that installed nothing: layer install, with the end of the output, made
    printable."""
    monkeypatch.setattr(install, "_satisfied", lambda _requirement: False)
    output = "\n".join(f"line {n}" for n in range(100)) + "\n\x1b[31mERROR: no matching distribution\x1b[0m"
    with pytest.raises(ServemarkError) as caught:
        engine_install(run=lambda _argv: (code, output))
    assert caught.value.key == "launch.install_failed"
    assert caught.value.layer is Layer.INSTALL
    assert "no matching distribution" in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert "line 50" not in str(caught.value)


def test_real_command_that_fails() -> None:
    """The default runner with a real process: exit code and output of both streams; a missing program is
    126."""
    code = "import sys; print('out'); sys.stderr.write('err'); sys.exit(5)"
    status, output = install._run([sys.executable, "-c", code])
    assert status == 5
    assert "out" in output and "err" in output
    assert install._run(["/no/such/program"])[0] == 126


def test_unknown_engine() -> None:
    """Bad use."""
    with pytest.raises(ServemarkError) as caught:
        engine_install("vlmm")
    assert caught.value.key == "launch.engine_unknown"


def test_list() -> None:
    """One line an engine; its note exists in both languages; sizes and versions only where they are known."""
    for status in engine_list():
        assert text(status.note_key, "en") != text(status.note_key, "zh")
        if status.installed:
            assert status.version is not None
            assert (status.size_bytes or 0) > 98_362_432
            assert status.model is not None and Path(status.model).is_file()
        else:
            assert status.model is None or status.version is None or status.size_bytes is None
