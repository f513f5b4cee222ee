"""A real trace on the real engine: blocks that are shared in the trace are shared in the engine's cache."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

TRACES = Path(__file__).resolve().parents[3] / "shared" / "data" / "traces"


@pytest.mark.engine
@pytest.mark.corpus
@pytest.mark.parametrize("bust", ["none", "session", "request"])
def test_engine_hit_is_the_theoretical_one(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path, bust: str
) -> None:
    """Within 3 points of the infinite cache's hit from the stated state, by usage and by the engine's counters;
    with a marker on each request that is within 3 points of zero. Two sessions, lengths x 0.03, one at a time."""
    trace = TRACES / "mooncake_conversation_trace.jsonl"
    if not trace.is_file():
        pytest.skip("the recorded traces are not on this machine")
    options = ["--trace", str(trace), "--sessions", "2", "--scale-lengths", "0.03", "--scale-think", "0"]
    home = tmp_path / "home"
    more = ["--cache-bust", bust, "--no-evals", "--no-report", "--home", str(home)]
    process = start("run", "quickstart@1", *options, *more)
    _, err = process.communicate(timeout=110)
    assert process.returncode == 0, err
    row = json.loads(next((home / "runs").glob("*/result.json")).read_text())
    cache = row["cache"]
    assert row["counts"]["ok"] == row["counts"]["planned"] == 8
    assert cache["usage"] == pytest.approx(cache["theoretical"], abs=0.03)
    assert cache["engine"] == pytest.approx(cache["usage"], abs=0.001)
    assert cache["theoretical_blocks"] is not None
    if bust == "request":
        assert cache["usage"] < 0.03
    else:
        assert cache["usage"] > 0.3
    assert row["cache_state"]["kind"] == ("cold" if bust == "none" else "marked")


@pytest.mark.engine
def test_a_slice_of_an_agentic_trace(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    """Sessions of `trace make` cut to their first requests, lengths x 0.01: every request answered, and the engine
    gives back what an infinite cache would, within 3 points."""
    made = tmp_path / "made.jsonl"
    process = start("trace", "make", str(made), "--sessions", "2", "--seed", "3", "--think-scale", "0.001")
    assert process.wait(60) == 0
    cut = tmp_path / "cut.jsonl"
    with cut.open("w") as stream:
        for line in made.read_text().splitlines():
            session = json.loads(line)
            session["requests"] = [r for r in session["requests"] if r["type"] != "subagent"][:4]
            session.pop("totals", None)
            stream.write(json.dumps(session) + "\n")
    home = tmp_path / "home"
    options = ["--trace", str(cut), "--scale-lengths", "0.01", "--scale-think", "0.001"]
    process = start("run", "quickstart@2", *options, "--no-evals", "--no-report", "--home", str(home))
    _, err = process.communicate(timeout=110)
    assert process.returncode == 0, err
    row = json.loads(next((home / "runs").glob("*/result.json")).read_text())
    assert row["workload"]["source"]["kind"] == "weka"
    assert row["counts"]["ok"] == row["counts"]["planned"] == 8
    assert row["cache"]["usage"] == pytest.approx(row["cache"]["theoretical"], abs=0.03)
    assert row["cache"]["usage"] > 0.3
