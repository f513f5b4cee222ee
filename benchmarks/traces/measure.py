"""Time and memory until a trace of session files is ready, and until every session has been read once.

    python benchmarks/traces/measure.py FOLDER [--rounds 3] [--json]
    python benchmarks/traces/measure.py --make 2000 --json

FOLDER holds weka sessions; `--make N` writes N sessions of 40 turns that grow from 20,000 to 100,000 tokens first.
Ready: `open_workload` has returned in a fresh process (imports counted) and the first prompt's messages are made.
The budget for 2,000 such sessions is 3 s and 100 MiB; exit code 1 when the median misses it. Beside it, as a peer:
`json.loads` of every file, one at a time, nothing kept.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BUDGET_S = 3.0
BUDGET_MIB = 100.0
READY = """
import resource, sys, time
from servemark.traces.open import open_workload
w = open_workload(sys.argv[1])
first = sum(m.tokens or 0 for m in w.sessions[0].turns[0].messages)
assert first > 0
"""
ALL = (
    READY
    + """
largest = max(max(t.input_tokens or 0 for t in s.turns) for s in w.sessions)
"""
)
THEORY = (
    READY
    + """
from servemark.traces.theory import theoretical_hit
assert 0.9 < (theoretical_hit(w, "session").tokens or 0) < 1
"""
)
PEER = """
import json, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    json.loads(path.read_bytes())
"""


def measured(code: str, folder: Path) -> tuple[float, float]:
    """(seconds of wall clock, MiB at the peak) of a fresh process."""
    start = os.times().elapsed
    with subprocess.Popen([sys.executable, "-c", code, str(folder)]) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the measured process ended with {process.returncode}")
    return os.times().elapsed - start, usage.ru_maxrss / 1024


def make(folder: Path, sessions: int) -> None:
    """Sessions of 40 growing turns, all block ids in every turn."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(sessions):
        rows = []
        for turn in range(40):
            tokens = 20_000 + 80_000 * turn // 39
            rows.append(
                {"t": 10.0 * turn, "type": "s", "model": "m", "in": tokens, "out": 200, "api_time": 5.0,
                 "think_time": 5.0, "hash_ids": list(range(tokens // 64))}
            )  # fmt: skip
        session = {
            "id": f"s{number}",
            "models": ["m"],
            "block_size": 64,
            "hash_id_scope": "local",
            "requests": rows,
        }
        (folder / f"s{number:05d}.json").write_text(
            json.dumps(session, separators=(",", ":")), encoding="utf-8"
        )


def main() -> int:
    """Print the table; exit code as above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--make", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch) / "sessions"
        if options.make:
            make(folder, options.make)
        found: dict[str, dict[str, float]] = {}
        for name, code in (("ready", READY), ("all read", ALL), ("hit", THEORY), ("json.loads", PEER)):
            values = [measured(code, folder) for _ in range(options.rounds)]
            found[name] = {
                "s": statistics.median(v[0] for v in values),
                "mib": statistics.median(v[1] for v in values),
            }
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:12} {value['s']:7.2f} s {value['mib']:7.1f} MiB")
    return int(found["ready"]["s"] > BUDGET_S or found["ready"]["mib"] > BUDGET_MIB)


if __name__ == "__main__":
    raise SystemExit(main())
