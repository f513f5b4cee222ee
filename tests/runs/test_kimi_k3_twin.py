"""The twin of the Kimi-K3 1P1D arm, run: two real engines, a real store, drafts from the context."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.runs.test_disaggregated import clean
from tests.runs.test_faults import results

from servemark.catalog.layout import shipped_suites

pytestmark = pytest.mark.engine
pytest.importorskip("mooncake.store", reason="the extra `store` is not installed")
Start = Callable[..., "subprocess.Popen[str]"]
ARM = "smollm2-q4-cpu-llamacpp-agentic-mooncake-disagg-1p1d-twin"


def test_twin_serves_with_speculation(start: Start, tmp_path: Path, none_left: Callable[[str], None]) -> None:
    """The shipped recipe with one session of its workload: each request goes through the store once, and the decode worker
    drafts four tokens at a time."""
    suite, home = tmp_path / "kimi", tmp_path / "home"
    shutil.copytree(shipped_suites()["kimi-k3-b300"], suite)
    work = suite / "workloads" / "agentic-small.yaml"
    work.write_text(work.read_text(encoding="utf-8").replace("sessions: 6", "sessions: 1"), encoding="utf-8")
    process = start("run", f"{suite}:{ARM}@1", "--home", str(home), "--no-report", "--no-evals")
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    (path,) = results(home)
    row = json.loads(path.read_text(encoding="utf-8"))
    store, planned = row["observed"]["store"], row["counts"]["planned"]
    assert row["counts"]["ok"] == planned >= 3
    assert store["store_put_count"] == store["store_get_count"] == planned
    log = (path.parent / "logs" / "steps" / "decode-0.log").read_text(encoding="utf-8", errors="replace")
    assert "ngram_simple" in log or "draft acceptance" in log
    clean(home, none_left)
