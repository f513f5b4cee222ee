"""`replay --ramp`: when the lanes of a closed loop start."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.replay_servers import Verb, good, serving


@pytest.mark.parametrize(("ramp", "least_s"), [("0", 0.0), ("0.9", 0.85)])
def test_lanes_start_as_asked(tmp_path: Path, ramp: str, least_s: float) -> None:
    """Four lanes, requests of 1.5 s and more: all at once, or the last 0.9 s after the first. The row keeps what was
    asked, and so does what it may be compared with."""
    verb = Verb(tmp_path)
    with serving(good(0.05)) as server:
        work = ("--concurrency", "4", "random:isl=20,osl=30,requests=4")
        code, out, err = verb.run("--url", server.url, "--processes", "1", "--ramp", ramp, *work)
    assert code == 0, (out, err)
    measured = [record for record in verb.records if record["phase"] == "measured"]
    starts = sorted(record["start_s"] for record in measured)
    assert least_s <= starts[-1] - starts[0] and starts[-1] < min(record["end_s"] for record in measured)
    assert verb.row["replayed"]["options"]["ramp_s"] == float(ramp)
    assert verb.row["identity"]["scenario"]["ramp_s"] == float(ramp)
