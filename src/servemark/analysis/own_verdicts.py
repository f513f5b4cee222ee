"""What gates say of run folders' own rows, without a store: a quarantined run must be told where its figures are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from servemark.results.gates.base import GateFinding, Severity
from servemark.results.gates.registry import judge_all
from servemark.results.importers.own import point_of
from servemark.results.row import ResultRow


def quarantines(
    rows: Sequence[ResultRow], expected: Mapping[str, object] | None = None
) -> dict[str, tuple[GateFinding, ...]]:
    """Run id -> the findings that quarantine it; runs that no gate quarantines are left out. The rows are judged among
    each other, as in a store. `expected`: run id -> what its manifest wrote down before the run."""
    told = expected or {}
    points = []
    for row in rows:
        beforehand = told.get(row.run_id)
        points.append(point_of(row, expected=beforehand if isinstance(beforehand, dict) else None))
    found = {}
    for row, (findings, _) in zip(rows, judge_all(points), strict=True):
        bad = tuple(each for each in findings if each.severity is Severity.QUARANTINE)
        if bad:
            found[row.run_id] = bad
    return found
