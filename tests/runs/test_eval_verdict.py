"""Verdicts of evals that are kept: folders made here, from the command line and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servemark.base.home import Home
from servemark.cli.main import run_cli
from servemark.evals.io import write_evals
from servemark.evals.runner import Ended, TaskOutcome
from servemark.evals.samples import SampleRecord, write_samples
from servemark.evals.statistics import score_of, statistics_of
from servemark.runs.eval_verdict import VERDICT, verdicts

LIMITS = "default:\n  sums: 0.50\nmodels:\n  owl:\n    sums: 0.70\n"


def kept(folder: Path, right: set[int], n: int = 100, missing: int = 0) -> Path:
    """An eval of `n` items at concurrency 4 of which `right` are right and the last `missing` have no sample."""
    folder.mkdir(parents=True)
    samples = [
        SampleRecord(
            f"i{i}", "k", f"q{i}", "x", "r", "x" if i in right else "y", i in right, "ok", None, "stop", 1.0, 1, 1, 0,
            task="sums", version="1", concurrency=4,
        )
        for i in range(n - missing)
    ]  # fmt: skip
    write_samples(folder / "samples.jsonl", samples)
    found = statistics_of(n, samples)
    score = score_of("sums", "1", found, 1.0, 4)
    ended: Ended = "complete" if not missing else "stopped"
    write_evals(folder / "evals.json", [TaskOutcome(score, found, (), (), ended)])
    return folder


def test_passed_failed_and_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reference 80 right, here 71 of them: b = 9, c = 0, p = 2/2^9 = 0.0039; 71 % is over 70 % and within its interval."""
    reference = kept(tmp_path / "plain", set(range(80)))
    here = kept(tmp_path / "risky", set(range(71)))
    limits = tmp_path / "limits.yaml"
    limits.write_text(LIMITS)
    ask = [
        "eval",
        "--of",
        str(here),
        "--thresholds",
        str(limits),
        "--threshold-model",
        "owl",
        "--home",
        str(tmp_path),
    ]
    assert run_cli([*ask, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (judged,) = found["judged"]
    assert (judged["outcome"], judged["passed"], judged["threshold"], judged["close"]) == (
        "passed",
        True,
        0.7,
        True,
    )
    assert judged["where"] == f"{limits}:5:11"
    assert run_cli([*ask, "--against", str(reference)]) == 1
    said = capsys.readouterr().out
    assert "ANSWERS WORSE" in said
    assert "p = 0.0039" in said
    stored = json.loads((here / VERDICT).read_text())
    assert (stored["against"][0]["b"], stored["against"][0]["c"]) == (9, 0)
    assert run_cli([*ask, "--against", str(reference), "--lang", "zh"]) == 1
    assert "答得更差" in capsys.readouterr().out


def test_incomplete_fails_without_any_threshold(tmp_path: Path) -> None:
    folder = kept(tmp_path / "short", set(range(90)), missing=3)
    found = verdicts(str(folder), Home(tmp_path), thresholds=None, model="", against=None)
    assert [each.outcome for each in found.judged] == ["incomplete"]
    assert found.failed


def test_the_samples_of_an_unfinished_eval_are_enough_for_a_comparison(tmp_path: Path) -> None:
    here = kept(tmp_path / "here", {1, 2})
    other = kept(tmp_path / "other", {1, 2})
    (other / "evals.json").unlink()
    found = verdicts(str(here), Home(tmp_path), thresholds=None, model="", against=str(other))
    assert (found.against[0].n, found.against[0].finding) == (100, "no_difference")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--of", "nothing-here"],
        ["--of", "x", "--url", "http://127.0.0.1:1"],
        [
            "--url",
            "http://127.0.0.1:1",
            "--task",
            "basics",
            "--model",
            "m",
            "--determinism",
            "--concurrency",
            "1,4",
        ],
    ],
)
def test_bad_use(tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["eval", *arguments, "--home", str(tmp_path)]) == 2
    assert capsys.readouterr().err
