"""What every gate says of published rows: how many pass, warn, are quarantined or skipped, and the rows behind it.

Usage: python benchmarks/results/gate_table.py [--rows] FILE…      (rows as the public API of the reference project gives)
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the small mapping that the tests use

from tests.results.published import point_of

from servemark.results.gates.base import Severity
from servemark.results.gates.registry import GATES, judge_all
from servemark.results.gates.words import sentence
from servemark.results.point import Point

COLUMNS = (Severity.OK, Severity.WARNING, Severity.QUARANTINE, Severity.SKIPPED)
MANY = 60
"""Gates that object to more rows than this are counted, not listed."""


def name(point: Point) -> str:
    """A row in one line."""
    identity, scenario = point.identity, point.identity.scenario
    lengths = f"{scenario.isl}/{scenario.osl}"
    return f"{identity.hardware} {identity.engine} {identity.precision.reported} {lengths} c{identity.concurrency}"


def table(points: list[Point], rows: bool) -> None:
    """Print the table, and with `rows` what was objected to."""
    judged = judge_all(points)
    seen = Counter((each.gate, each.severity) for findings, _ in judged for each in findings)
    print(f"{'gate':20}" + "".join(f"{column.value:>12}" for column in COLUMNS))
    for gate in GATES:
        print(f"{gate.id:20}" + "".join(f"{seen[gate.id, column]:12}" for column in COLUMNS))
    verdicts = Counter(verdict.value for _, verdict in judged)
    print("verdicts: " + ", ".join(f"{verdict} {n}" for verdict, n in sorted(verdicts.items())))
    if not rows:
        return
    for point, (findings, _) in zip(points, judged, strict=True):
        for each in findings:
            objects = each.severity in (Severity.WARNING, Severity.QUARANTINE)
            if objects and seen[each.gate, each.severity] <= MANY:
                print(f"{name(point)} {point.execution.started_utc} {each.severity.value}: {sentence(each)}")


def main() -> None:
    """A table a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--rows", action="store_true", help="list the rows that a gate objects to")
    chosen = parser.parse_args()
    for path in chosen.files:
        rows = json.loads(path.read_text(encoding="utf-8"))
        print(f"{path.name}: {len(rows)} rows")
        table([point_of(row) for row in rows], chosen.rows)


if __name__ == "__main__":
    main()
