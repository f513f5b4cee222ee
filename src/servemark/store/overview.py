"""Counts over imports that verbs print: runs, reasons, sizes. Read-only questions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from servemark.results.point import PointIdentity
from servemark.store.database import Store
from servemark.store.import_types import ReasonCount
from servemark.store.raw_files import RawFiles


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """One run of a source: its lines, its points that count, how many of them are usable, and its newest date."""

    source: str
    run: str
    at_utc: str
    models: str
    lines: int
    points: int
    usable: int


def imported_runs(store: Store, source: str | None, limit: int) -> list[ImportedRun]:
    """Runs that were imported, the newest last."""
    ask = """
        SELECT l.source, l.run, max(l.date), group_concat(DISTINCT c.model), count(*), sum(l.points), sum(l.usable)
        FROM result_line l JOIN result_config c ON c.id = l.config_id WHERE ? IS NULL OR l.source = ?
        GROUP BY l.source, l.run ORDER BY max(l.date) DESC, l.source DESC, l.run DESC LIMIT ?
    """
    return [ImportedRun(*row) for row in reversed(store.query(ask, (source, source, limit)))]


def quarantined(store: Store) -> list[tuple[str, str, int]]:
    """(gate, severity, points that count) of everything that gates found fault with, the most frequent first."""
    ask = """
        SELECT g.gate, g.severity, count(*) FROM gate_finding g JOIN result_point p ON p.id = g.point_id
        WHERE p.current = 1 GROUP BY g.gate, g.severity ORDER BY g.severity, count(*) DESC, g.gate
    """
    return [(str(gate), str(severity), int(count)) for gate, severity, count in store.query(ask)]


def left_out(store: Store) -> list[ReasonCount]:
    """Rows without a point, by status, reason and values, the most frequent first."""
    ask = """
        SELECT status, reason, reason_values, count(*) FROM import_row WHERE status IN ('unmapped', 'invalid')
        GROUP BY status, reason, reason_values ORDER BY count(*) DESC, status, reason, reason_values
    """
    return [
        ReasonCount(status, str(reason), json.loads(values), int(count))
        for status, reason, values, count in store.query(ask)
    ]


def wanted_blobs(store: Store) -> dict[str, str]:
    """SHA-256 -> name of every file whose bytes must be there."""
    ask = "SELECT sha256, name FROM import_source UNION ALL SELECT sha256, name FROM import_sibling"
    return {str(sha256): str(name) for sha256, name in store.query(ask)}


def orphans(store: Store, raw: RawFiles) -> list[str]:
    """SHA-256 of blobs that no imported file names: an importer was killed, or is at work now."""
    wanted = wanted_blobs(store)
    return [sha256 for sha256, _ in raw.all() if sha256 not in wanted]


def without_evals(store: Store) -> tuple[int, int]:
    """(complete points that count, how many of them carry no accuracy result). Only where evals of any point of the
    same source are known at all; a source that never reports them says nothing."""
    from servemark.store.points import PointFilter, load_points  # noqa: PLC0415 - decoding, only for this question

    tally: dict[str, list[int]] = {}
    for one in load_points(store, PointFilter()):
        if one.status == "complete":
            counts = tally.setdefault(one.source, [0, 0])
            counts[0] += 1
            counts[1] += not one.has_evals()
    some = [counts for counts in tally.values() if counts[1] < counts[0]]
    return sum(counts[0] for counts in some), sum(counts[1] for counts in some)


class Held(NamedTuple):
    """One configuration of one source in its latest line: what filters ask of it, and its points that count."""

    model: str
    hardware: str
    engine: str
    precision: str
    scenario: str
    source: str
    run: str
    date: str
    points: int
    packed_config: bytes

    @property
    def identity(self) -> PointIdentity:
        """Decoded; without a concurrency."""
        from servemark.store.points import identity_of  # noqa: PLC0415 - decoding, only for this question

        return identity_of(self.packed_config)


def held_configurations(store: Store, *, latest: bool = True) -> list[Held]:
    """Every configuration's latest line, or all of its lines."""
    ask = """
        SELECT c.model, c.hardware, c.engine, c.precision, c.scenario, l.source, l.run, l.date, l.points, c.identity
        FROM result_line l JOIN result_config c ON c.id = l.config_id WHERE l.latest >= ?
    """
    return [Held._make(row) for row in store.query(ask, (int(latest),))]


def scenarios_of(store: Store, model: str | None = None) -> list[str]:
    """Scenarios of a model or of all, sorted."""
    ask = "SELECT DISTINCT scenario FROM result_config WHERE ? IS NULL OR model = ? ORDER BY scenario"
    return [str(row[0]) for row in store.query(ask, (model, model))]


def stated_shapes(store: Store) -> list[tuple[str, ...]]:
    """Addresses of the figures of every shape of point that the store holds."""
    from servemark.store.point_codec import decode_shape  # noqa: PLC0415 - decoding, only for this question

    shapes = (decode_shape(row[0]) for row in store.query("SELECT shape FROM figure_shape", ()))
    return list(dict.fromkeys(tuple(name for name, *_ in shape) for shape in shapes))


def store_state(store: Store) -> tuple[int, str | None, str]:
    """(points that count, newest date, a word that changes when an import, a prune or a new mapping changes anything)."""
    points, newest = store.query("SELECT sum(points), max(date) FROM result_line", ())[0]
    files = store.query(
        "SELECT count(*), coalesce(max(id), 0), coalesce(sum(mapping_version), 0) FROM import_source", ()
    )[0]
    rows = store.query("SELECT coalesce(max(id), 0) FROM import_row", ())[0]
    return int(points or 0), newest or None, "-".join(str(each) for each in (*files, *rows, points or 0))
