"""Points of one line: the only points that may be joined, and the order in which they are.

A line is one configuration in one go, differing in concurrency alone (an open loop, which has none, comes
first). Points of different lines are never joined, and a second run of the same concurrency in one line
replaces the first, which stays listed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from servemark.results.row import ResultRow


@dataclass(frozen=True, slots=True)
class Line:
    """Rows of one line by ascending concurrency, one each; `replaced` holds earlier runs of the same
    point."""

    line_id: str
    rows: tuple[ResultRow, ...]
    replaced: tuple[ResultRow, ...]


def _rank(row: ResultRow) -> tuple[bool, str, str]:
    """Later wins, but a partial run never replaces a complete one."""
    return (row.status == "complete", row.started_utc, row.run_id)


def lines(rows: Iterable[ResultRow]) -> tuple[Line, ...]:
    """Rows grouped by line, lines in the order of their first start. The order of the input does not
    matter."""
    by_line: dict[str, list[ResultRow]] = {}
    for row in rows:
        by_line.setdefault(row.line_id, []).append(row)
    found = [_line(line_id, members) for line_id, members in by_line.items()]
    return tuple(sorted(found, key=lambda each: (each.rows[0].started_utc, each.line_id)))


def _line(line_id: str, members: list[ResultRow]) -> Line:
    chosen: dict[tuple[int, str], ResultRow] = {}
    for row in sorted(members, key=_rank):
        chosen[row.concurrency or 0, row.point_id] = row
    kept = {row.run_id for row in chosen.values()}
    rows = tuple(chosen[key] for key in sorted(chosen))
    replaced = tuple(sorted((row for row in members if row.run_id not in kept), key=_rank))
    return Line(line_id, rows, replaced)
