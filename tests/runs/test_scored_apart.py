"""A line whose master forces acceptance, on the real engine: measured under it, scored without it, in one run."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from servemark.evals.samples import SAMPLES_NAME

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
Suite = Callable[..., Path]
Start = Callable[..., "subprocess.Popen[str]"]
MODEL = "embedded:smollm2-135m-instruct-q4_1"


def forcing(suite: Path) -> Path:
    """The tiny suite with a draft model, a forced length of 2.5 in its master, and a task."""
    for name, old, new in (
        ("master.yaml", "spec-decoding: none", "spec-decoding: draft_model"),
        (
            "master.yaml",
            '"CONFIG_FILE=recipes/tiny.yaml"',
            '"CONFIG_FILE=recipes/tiny.yaml", "SYNTHETIC_ACCEPTANCE=true", "SYNTHETIC_ACCEPTANCE_LENGTH=2.5"',
        ),
        (
            "recipes/tiny.yaml",
            "cache-ram: 0",
            f'cache-ram: 0, spec-type: draft-simple, spec-draft-n-max: 3, spec-draft-model: "{MODEL}"',
        ),
        ("recipes/tiny.yaml", "evals: []", "evals: ['arithmetic:items=5']"),
    ):
        text = (suite / name).read_text()
        assert old in text, old
        (suite / name).write_text(text.replace(old, new))
    return suite


def test_points_are_forced_and_their_evals_are_not(make_suite: Suite, start: Start, tmp_path: Path) -> None:
    """Two points, one more start for both of their evals; each row says what it was measured and scored on.

    A model as its own draft gives 3.5 to 4 tokens a step when drafts are verified, so 2.5 is told from it even over the
    few steps here; and the engine shows its settings.
    """
    suite, home = forcing(make_suite(out=24)), tmp_path / "home"
    process = start("run", f"{suite}:tiny", "--home", str(home), "--no-report", "--json")
    out, err = process.communicate(timeout=580)
    assert process.returncode == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["concurrency"] for row in rows] == [1, 2]
    for row in rows:
        assert row["declared"]["speculation"]["acceptance"] == "forced"
        assert row["declared"]["acceptance_length"] == 2.5
        assert row["declared"]["engine_args"]["spec-synth-len"] == 2.5
        ran, scored = row["observed"]["engine"], row["observed"]["eval_deployment"]
        assert ran["details"]["started_with"]["speculative.synth_len"] == 2.5
        assert scored["engine"]["details"]["started_with"].get("speculative.synth_len", -1) in {-1, 0}
        assert scored["acceptance"] == "real"
        assert scored["fingerprint"] == row["declared"]["eval_deployment"]["fingerprint"]
        assert scored["fingerprint"] != row["identity"]["deployment"]
        assert [score["n"] for score in row["evals"]] == [5]
        assert 1.5 < 1 + row["speculation"]["accepted"] / row["speculation"]["steps"] < 3.3
        run = home / "runs" / row["run_id"]
        assert len((run / SAMPLES_NAME).read_text().splitlines()) == 5
        records = [json.loads(line) for line in (run / "requests.jsonl").read_text().splitlines()]
        ends = [one["end_s"] for one in records if one["phase"] == "measured"]
        begins = [one["start_s"] for one in records if one["phase"] == "eval"]
        assert min(begins) > max(ends)
    with sqlite3.connect(home / "store.sqlite") as store:
        gates = {gate for (gate,) in store.execute("SELECT gate FROM gate_finding")}
    assert "forced_acceptance" in gates and "eval_synthetic" not in gates
    check = start("runs", "--home", str(home), "--json")
    assert "complete" in check.communicate(timeout=60)[0]
