"""A canary secret through everything that a run shows and keeps: it reaches the steps and is found nowhere else.

A service beside the real engine prints the secret as careless programs do, on both streams and in its last words.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from servemark.launch import secret_env
from servemark.runs.folder import LIVE_LOG, RunFolder

Start = Callable[..., "subprocess.Popen[str]"]
Suite = Callable[..., Path]
CANARY = "canary-71f0c2d9e4"
LEAK = (
    "import os,sys,time; t=os.environ['HF_TOKEN']; assert len(t)==17; print('token', t, flush=True); "
    "print('error: denied for', t, file=sys.stderr, flush=True); time.sleep(AFTER); sys.exit(1)"
)


def leaky(suite: Path, after_s: float) -> Path:
    """The suite with a service that prints the secret and ends after so many seconds."""
    recipe = suite / "recipes" / "tiny.yaml"
    code = LEAK.replace("AFTER", str(after_s))
    service = f"""
services:
- name: leaky
  type: command
  options: {{command: ["{sys.executable}", "-I", "-c", "{code}"]}}
"""
    recipe.write_text(recipe.read_text() + service)
    return suite


def found_in(home: Path) -> list[str]:
    """Files below a home that hold the canary."""
    return [str(path) for path in home.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]


def run(start: Start, suite: Path, home: Path, *more: str) -> subprocess.Popen[str]:
    """`servemark run` with the secret in its environment, asked for by name."""
    return start(
        "run", f"{suite}:tiny@1", "--home", str(home), "--secret", "HF_TOKEN", *more, HF_TOKEN=CANARY
    )


@pytest.mark.engine
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_a_run_that_succeeds(make_suite: Suite, start: Start, tmp_path: Path, more: tuple[str, ...]) -> None:
    """Row, records, logs, report, store and both streams: the log has its line, the secret is blanked in it."""
    home = tmp_path / "home"
    out, err = (process := run(start, leaky(make_suite(), 600), home, *more)).communicate(timeout=90)
    assert process.returncode == 0, err
    assert CANARY not in out + err and found_in(home) == []
    log = next((home / "runs").glob("*/logs/steps/leaky.log")).read_text()
    assert log == "token ***\nerror: denied for ***\n"


@pytest.mark.engine
def test_a_run_that_fails_by_the_leaking_step(make_suite: Suite, start: Start, tmp_path: Path) -> None:
    """Its last words are the message: shown and kept without the secret."""
    home = tmp_path / "home"
    process = run(start, leaky(make_suite(sessions=40, out=24), 3), home)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 1 and "[service]" in err and "error: denied for ***" in err
    assert CANARY not in out + err and found_in(home) == []


@pytest.mark.engine
def test_dry_run_and_script(make_suite: Suite, start: Start, tmp_path: Path) -> None:
    """What is shown without starting anything has the secret's name at most."""
    suite = leaky(make_suite(), 600)
    for more in (("--dry-run",), ("--dry-run", "--json"), ("--script",)):
        process = run(start, suite, tmp_path / "home", *more)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert CANARY not in out + err
    assert not (tmp_path / "home").exists()


@pytest.mark.engine
def test_killed_before_anything_could_be_blanked(
    make_suite: Suite, start: Start, tmp_path: Path, wait_for: Callable[..., None]
) -> None:
    """After kill -9 a growing log is as the program wrote it: nobody but its owner may read it."""
    home = tmp_path / "home"
    process = run(start, leaky(make_suite(sessions=40, out=24), 600), home)
    wait_for(lambda: found_in(home))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    time.sleep(0.5)
    for path in found_in(home):
        assert Path(path).stat().st_mode & 0o077 == 0, path


def test_the_growing_log_is_blanked_when_it_settles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when there is no point to settle it for: a run that failed before its first."""
    monkeypatch.setattr(secret_env, "_known", {CANARY})
    folder = RunFolder.create(tmp_path / "runs" / "r", {"run_id": "r"})
    folder.file(LIVE_LOG).parent.mkdir(parents=True, exist_ok=True)
    folder.file(LIVE_LOG).write_text(f"E {CANARY} refused\n")
    folder.drop_live_log()
    assert folder.file("logs/engine.log").read_text() == "E *** refused\n"
    assert not folder.file(LIVE_LOG).exists()
    folder.close()


def test_a_short_value_blanks_nothing() -> None:
    """A secret of a few letters would blank half of a log and say little: it is not remembered."""
    secret_env.remember(["abc"])
    assert secret_env.redact("abc") == "abc"
