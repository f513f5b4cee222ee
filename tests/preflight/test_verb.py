"""`servemark preflight` as its user meets it: this very host, an arm, many nodes, and mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at a Linux host")


def servemark(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "servemark", "preflight", *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LANG": "C.UTF-8", "COLUMNS": "80", **env},
    )


def test_one_json_line() -> None:
    """Facts of this host, one object on one line."""
    done = servemark("--json", SLURMD_NODENAME="n07")
    assert done.returncode == 0 and done.stderr == "" and done.stdout.count("\n") == 1
    body = json.loads(done.stdout)
    assert body["node"] == "n07" and body["kind"] == "preflight" and body["arm"] is None
    topics = [finding["topic"] for finding in body["findings"]]
    assert len(topics) == len(set(topics)) >= 15


def test_an_arm_that_needs_nothing_of_the_host() -> None:
    """The shipped suite's arm runs on any Linux host."""
    done = servemark("quickstart")
    assert done.returncode == 0, done.stdout + done.stderr
    assert max(len(row) for row in done.stdout.splitlines()) <= 80


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_real_probe_through_the_verb(lang: str) -> None:
    """8 MiB in four ways; the words are in the language asked for."""
    done = servemark("--probe-memory", "8MiB", "--lang", lang)
    assert done.returncode == 0 and done.stderr == ""
    assert ("memory probe" in done.stdout) is (lang == "en") and ("内存探测" in done.stdout) is (lang == "zh")


def test_merge_through_the_verb(tmp_path: Path, line: Callable[..., str]) -> None:
    """Files after --merge, several of them; exit code 1 and the node that stands out."""
    files = [tmp_path / f"{n}.jsonl" for n in range(3)]
    for number, file in enumerate(files):
        file.write_text(line(f"n{number}", kernel={"release": "6.5.0" if number == 1 else "6.8.0"}) + "\n")
    done = servemark("--merge", *(str(file) for file in files))
    assert done.returncode == 1 and "odd one out: n1 (kernel)" in done.stdout, done
    body = json.loads(servemark("--json", "--merge", *(str(file) for file in files)).stdout)
    assert body["odd"] == {"n1": ["kernel"]} and len(body["nodes"]) == 3


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("no-such-arm",), "error [input]"),
        (("quickstart", "--role", "prefill"), "it has: aggregated"),
        (("--role", "prefill"), "no arm was given"),
        (("--probe-memory", "4G"), "not a size"),
        (("--probe-memory", "900TB"), "error [input]"),
        (("--probe-memory", "999999GiB"), "more than a probe may take"),
        (("--probe-memory", "1KiB"), "at least 8 MiB"),
        (("--merge", "/no/such/file"), "cannot be read"),
        (("--merge", "x", "--probe-store"), "--probe-store looks at this host"),
        (("quickstart", "and", "more"), "unexpected: and more"),
    ],
)
def test_mistakes_are_said_without_a_trace(args: tuple[str, ...], said: str) -> None:
    """Exit code 2 and what to do."""
    done = servemark(*args)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, done
