"""A harness as a child: a stand-in program that writes what it should, fails, or never ends; and the real one."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.base.home import Home
from servemark.replay.harness import HarnessJob
from servemark.replay.profiles import find_profile
from servemark.replay.stop import StopSignal
from servemark.replay.target import Target
from servemark.runs.harness_run import find_program, run_harness
from servemark.traces.random_lengths import parse_spec

SCRIPT = """#!/bin/sh
if [ "$1" = --version ]; then echo 9.8.7; exit; fi
for last; do :; done
DO
"""
WRITES = 'echo \'{"request_count": {"avg": 3}}\' > "$last/profile_export_aiperf.json"; echo "offline=$HF_HUB_OFFLINE"'


def job() -> HarnessJob:
    """Fixed lengths."""
    return HarnessJob(
        "aiperf", Target("http://127.0.0.1:1", "m"), find_profile("plain"), 1, None, None, None, Path("/tok"), {},
        parse_spec("random:isl=10,osl=5,requests=3"), None,
    )  # fmt: skip


def program(folder: Path, does: str) -> Path:
    """A stand-in under the harness's name."""
    path = folder / "aiperf"
    path.write_text(SCRIPT.replace("DO", does))
    path.chmod(0o755)
    return path


def test_all_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = program(tmp_path, WRITES)
    result = run_harness(job(), None, None, path, Home(tmp_path / "home"), StopSignal())
    assert result.summary is not None
    assert (result.summary.ok, result.version) == (3, "9.8.7")
    kept = json.loads((result.folder / "harness.json").read_text())
    assert kept["argv"][0] == str(path)
    assert set(kept["files"]) == {"artifacts/profile_export_aiperf.json", "harness.log"}
    assert (result.folder / "harness.log").read_text() == "offline=\n"


def test_one_that_fails_says_why(tmp_path: Path) -> None:
    path = program(tmp_path, "echo 'Reason: no such model'; exit 3")
    with pytest.raises(ServemarkError) as caught:
        run_harness(job(), None, None, path, Home(tmp_path / "home"), StopSignal())
    assert "no such model" in caught.value.what()


def test_one_that_never_ends_is_stopped(tmp_path: Path) -> None:
    stop = StopSignal()
    threading.Timer(1.0, lambda: stop.request("now", "interrupt")).start()
    with pytest.raises(ServemarkError):
        run_harness(job(), None, None, program(tmp_path, "sleep 100"), Home(tmp_path / "home"), stop)


def test_a_missing_program(tmp_path: Path) -> None:
    with pytest.raises(ServemarkError) as caught:
        find_program("aiperf", tmp_path)
    assert "aiperf" in caught.value.what()


def test_the_real_one(tmp_path: Path) -> None:
    """AIPerf on the fake server in C, which sends the first token after 50 ms: all requests answered, TTFT above it."""
    aiperf, cc = shutil.which("aiperf"), shutil.which("cc")
    if aiperf is None or cc is None:
        pytest.skip("aiperf or a C compiler is not on PATH")
    tokenizers = pytest.importorskip("tokenizers", reason="the extra `tokenizer` is not installed")
    source = Path(__file__).resolve().parents[2] / "benchmarks" / "replay" / "fakesse" / "fakesse.c"
    subprocess.run(
        [cc, "-O2", "-o", str(tmp_path / "fakesse"), str(source), "-lm"], check=True, capture_output=True
    )
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, show_progress=False, initial_alphabet=alphabet)
    made.train_from_iterator(["some words of a text"], trainer)
    made.decoder = tokenizers.decoders.ByteLevel()
    (tmp_path / "tok").mkdir()
    made.save(str(tmp_path / "tok" / "tokenizer.json"))
    (tmp_path / "tok" / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [str(tmp_path / "fakesse"), "--port", str(port), "--ttft-ms", "50", "--tokens", "5"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        asked = replace(job(), target=Target(f"http://127.0.0.1:{port}", "fake"), tokenizer=tmp_path / "tok")
        result = run_harness(asked, None, None, Path(aiperf), Home(tmp_path / "home"), StopSignal())
    finally:
        server.kill()
        server.wait()
    assert result.summary is not None
    assert (result.summary.ok, result.summary.errors, result.summary.complete) == (3, 0, True)
    assert result.summary.latencies["ttft_s"]["p50"] >= 0.05
    assert result.version[0].isdigit()
