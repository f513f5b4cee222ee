"""CPU time of `servemark fit`: fresh processes, user + system, so that imports count.

    python benchmarks/sizing/measure.py [TARGET ...] [--rounds 7] [--json]

TARGET is an arm or a recipe; without one the shipped suite's arm is taken. The budget is 0.3 s of one core; exit code
1 when the median misses it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys

BUDGET_S = 0.3


def cpu_s(arguments: list[str]) -> float:
    """CPU seconds of one command; it must end with a verdict (0 or 1)."""
    process = subprocess.Popen(
        [sys.executable, "-m", "servemark", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, 1}:
        raise SystemExit(f"{arguments} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Measure every target and print medians and ranges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=["quickstart"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = []
    for target in asked.targets:
        for extra in ([], ["--json"], ["--explain"]):
            times = sorted(cpu_s(["fit", target, *extra]) for _ in range(asked.rounds))
            rows.append(
                {
                    "target": target,
                    "option": " ".join(extra) or "-",
                    "median_s": statistics.median(times),
                    "least_s": times[0],
                    "most_s": times[-1],
                }
            )
    if asked.json:
        print(json.dumps({"budget_s": BUDGET_S, "rows": rows}))
    else:
        for row in rows:
            print(
                f"{row['median_s']:.3f} s ({row['least_s']:.3f} to {row['most_s']:.3f})  {row['option']:9}  {row['target']}"
            )
    return int(any(float(str(row["median_s"])) > BUDGET_S for row in rows))


if __name__ == "__main__":
    sys.exit(main())
