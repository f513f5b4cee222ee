"""Writing imports: one file is one transaction, so a killed importer leaves all of it or nothing.

Rows are mapped, encoded and judged before the write lock is taken (`staging`), so that a large file keeps neither a reader
nor a running sweep waiting longer than its inserts take.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice

from servemark.base.canonical import canonical_json
from servemark.base.collector import uncollected
from servemark.results.point import Point
from servemark.store.database import Store
from servemark.store.import_types import Judge, Kept, ReasonCount, RowStatus, SourceFile
from servemark.store.lines import settle
from servemark.store.point_codec import Encoded
from servemark.store.points import PointFilter, StoredPoint, load_points
from servemark.store.staging import MAX_TOGETHER, Staged, Staging, told

IMPORT_BUSY_S = 600
"""An importer waits so long for another one; a reader never waits."""
CACHE_KIB = 32 * 1024
"""Pages of the file that an import may hold in memory: keys are hashes, so rows touch index pages everywhere."""

KEYS_TOGETHER = 500
"""Keys in one question; SQLite takes 999 everywhere."""


def find_source(store: Store, sha256: str) -> SourceFile | None:
    """An imported file by the SHA-256 of its bytes."""
    found = store.query("SELECT * FROM import_source WHERE sha256 = ?", (sha256,))
    return _source(store, found[0]) if found else None


def sources(store: Store) -> list[SourceFile]:
    """Every imported file, in the order in which they came."""
    return [_source(store, row) for row in store.query("SELECT * FROM import_source ORDER BY id")]


def _source(store: Store, row: tuple[object, ...]) -> SourceFile:
    number, sha256, name, size, added, importer, version, hints, gates = row
    beside = store.query(
        "SELECT name, sha256 FROM import_sibling WHERE source_id = ? ORDER BY name", (number,)
    )
    return SourceFile(
        str(sha256),
        str(name),
        int(str(size)),
        str(importer),
        int(str(version)),
        json.loads(str(hints)),
        tuple((str(one), str(other)) for one, other in beside),
        str(gates),
        str(added),
    )


def keep_source(
    store: Store, source: SourceFile, staged: Staging, judge: Judge, *, again: bool = False
) -> Kept:
    """Put one file and all its rows into the store, or nothing.

    A file that is here already stays as it is (`same`), unless it is to be mapped `again`: then its rows are replaced
    within the same transaction. Raises ServemarkError (layer store) as `Store` does.
    """
    with store.writing():
        store.connection.execute(f"PRAGMA busy_timeout = {IMPORT_BUSY_S * 1000}")
        store.connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        return put_file(store, source, staged, judge, again=again)


def put_file(store: Store, source: SourceFile, staged: Staging, judge: Judge, *, again: bool = False) -> Kept:
    """As `keep_source`, within the caller's transaction."""
    db = store.connection
    held = db.execute("SELECT id FROM import_source WHERE sha256 = ?", (source.sha256,)).fetchone()
    if held is not None and not again:
        return Kept("same", *_tally(db, int(held[0])))
    touch(db)
    before = _contents(db, int(held[0])) if held is not None else {}
    (last_line,) = db.execute("SELECT coalesce(max(id), 0) FROM result_line").fetchone()
    number = put_source(db, source, int(held[0]) if held is not None else None)
    for chunk in staged:
        put_rows(db, number, chunk)
    _judge_again(store, staged, judge, number, last_line)
    settle(db)
    tally = _tally(db, number)
    if held is None:
        return Kept("added", *tally)
    return Kept("again", *tally, changed=_changed(before, _contents(db, number)))


def touch(db: sqlite3.Connection) -> None:
    """An empty list of touched lines, which `put_source` and `put_rows` fill and `lines.settle` works off."""
    db.execute("CREATE TEMP TABLE IF NOT EXISTS touched (line_id INTEGER PRIMARY KEY)")
    db.execute("DELETE FROM touched")


def drop_rows(db: sqlite3.Connection, source_id: int) -> None:
    """Take a file's rows and points out; the lines they stood in are noted as touched."""
    db.execute(
        """
        INSERT OR IGNORE INTO touched SELECT line_id FROM result_point WHERE id IN
        (SELECT id FROM import_row WHERE source_id = ?)
        """,
        (source_id,),
    )
    mine = "(SELECT id FROM import_row WHERE source_id = ?)"
    db.execute(f"DELETE FROM gate_finding WHERE point_id IN {mine}", (source_id,))  # noqa: S608 - fixed text
    db.execute(f"DELETE FROM prediction WHERE point_id IN {mine}", (source_id,))  # noqa: S608
    db.execute(f"DELETE FROM result_point WHERE id IN {mine}", (source_id,))  # noqa: S608
    db.execute("DELETE FROM import_row WHERE source_id = ?", (source_id,))
    db.execute("DELETE FROM import_sibling WHERE source_id = ?", (source_id,))


def drop_points(db: sqlite3.Connection, ids: list[int]) -> None:
    """Take single points out and leave their rows; the lines they stood in are noted as touched."""
    some = [(number,) for number in ids]
    db.executemany("INSERT OR IGNORE INTO touched SELECT line_id FROM result_point WHERE id = ?", some)
    db.executemany("DELETE FROM gate_finding WHERE point_id = ?", some)
    db.executemany("DELETE FROM prediction WHERE point_id = ?", some)
    db.executemany("DELETE FROM result_point WHERE id = ?", some)


def put_source(db: sqlite3.Connection, source: SourceFile, held: int | None) -> int:
    """Write a file's row, or write it anew without its old rows; returns its number."""
    values = (
        source.name,
        source.importer,
        source.mapping_version,
        canonical_json(source.hints),
        source.gates,
    )
    if held is not None:
        drop_rows(db, held)
        db.execute(
            "UPDATE import_source SET name = ?, importer = ?, mapping_version = ?, hints = ?, gates = ? WHERE id = ?",
            (*values, held),
        )
        number = held
    else:
        added = source.added_utc or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        cursor = db.execute(
            """
            INSERT INTO import_source (name, importer, mapping_version, hints, gates, sha256, bytes, added_utc)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING id
            """,
            (*values, source.sha256, source.bytes, added),
        )
        number = int(cursor.fetchone()[0])
    db.executemany(
        "INSERT INTO import_sibling VALUES (?, ?, ?)", [(number, *each) for each in source.siblings]
    )
    return number


def put_rows(db: sqlite3.Connection, source_id: int, rows: list[Staged]) -> None:
    """Write rows and their points, and note the lines that they stand in as touched."""
    (last,) = db.execute("SELECT coalesce(max(id), 0) FROM import_row").fetchone()
    ids = range(last + 1, last + 1 + len(rows))
    db.executemany(
        "INSERT INTO import_row VALUES (?, ?, ?, ?, ?, ?)",
        [
            (i, source_id, row.ordinal, row.status, row.reason, row.values)
            for i, row in zip(ids, rows, strict=True)
        ],
    )
    points = [(i, row, row.point) for i, row in zip(ids, rows, strict=True) if row.point is not None]
    lines = _lines(db, [point for _, _, point in points])
    shapes = _shapes(db, [point for _, _, point in points])
    db.executemany(
        "INSERT INTO result_point VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?)",
        [
            (
                i,
                one.point_key,
                lines[one.line_key],
                one.concurrency,
                one.attempt,
                one.at_utc,
                one.status,
                str(row.verdict),
                one.content,
                shapes[one.shape_sha256],
                one.figures,
                one.stated,
                one.rest,
            )
            for i, row, one in points
        ],
    )
    findings = [(i, *finding) for i, row, _ in points for finding in row.findings]
    db.executemany("INSERT INTO gate_finding VALUES (?, ?, ?, ?)", findings)
    foretold = [(i, *each) for i, row, _ in points for each in row.foretold]
    db.executemany(f"INSERT INTO prediction VALUES ({', '.join('?' * 12)})", foretold)  # noqa: S608 - question marks
    db.executemany("INSERT OR IGNORE INTO touched VALUES (?)", [(number,) for number in set(lines.values())])


def _lines(db: sqlite3.Connection, points: Iterable[Encoded]) -> dict[str, int]:
    """Ids of the lines of points, which are made where they are not there yet."""
    firsts = {one.line_key: one for one in points}
    lines = _ids(db, "SELECT line_key, id FROM result_line WHERE line_key", firsts)
    new = {key: one for key, one in firsts.items() if key not in lines}
    configs = _configs(db, {one.config_key: one for one in new.values()})
    made = dict(zip(new, _next_ids(db, "SELECT coalesce(max(id), 0) FROM result_line"), strict=False))
    db.executemany(
        "INSERT INTO result_line VALUES (?, ?, ?, ?, ?, '', 0, 0, 0)",
        [(made[key], key, configs[one.config_key], one.source, one.run) for key, one in new.items()],
    )
    return lines | made


def _configs(db: sqlite3.Connection, some: dict[str, Encoded]) -> dict[str, int]:
    """Ids of configurations by their keys, which are made where they are not there yet."""
    held = _ids(db, "SELECT config_key, id FROM result_config WHERE config_key", some)
    new = [key for key in some if key not in held]
    made = dict(zip(new, _next_ids(db, "SELECT coalesce(max(id), 0) FROM result_config"), strict=False))
    db.executemany(
        "INSERT INTO result_config VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(made[key], key, *some[key].facets, zlib.compress(some[key].config, 6)) for key in new],
    )
    return held | made


def _shapes(db: sqlite3.Connection, points: Iterable[Encoded]) -> dict[str, int]:
    """Ids of the shapes of points by their SHA-256; shapes are made where they are not there yet."""
    some = {one.shape_sha256: one.shape for one in points}
    held = _ids(db, "SELECT sha256, id FROM figure_shape WHERE sha256", some)
    new = [sha256 for sha256 in some if sha256 not in held]
    made = dict(zip(new, _next_ids(db, "SELECT coalesce(max(id), 0) FROM figure_shape"), strict=False))
    db.executemany(
        "INSERT INTO figure_shape VALUES (?, ?, ?)", [(made[sha256], sha256, some[sha256]) for sha256 in new]
    )
    return held | made


def _ids(db: sqlite3.Connection, ask: str, keys: Iterable[str]) -> dict[str, int]:
    """Ids of those keys that are there, asked for many at once: `ask` ends before the IN."""
    found: dict[str, int] = {}
    waiting = iter(keys)
    while some := list(islice(waiting, KEYS_TOGETHER)):
        found.update(db.execute(f"{ask} IN ({','.join('?' * len(some))})", some).fetchall())
    return found


def _next_ids(db: sqlite3.Connection, ask: str) -> Iterator[int]:
    """The ids that SQLite itself would give to new rows, by the largest one (`ask`)."""
    return itertools.count(db.execute(ask).fetchone()[0] + 1)


def _judge_again(store: Store, staged: Staging, judge: Judge, number: int, last_line: int) -> None:
    """Judge whole runs of which other files, or other batches of this one, hold a part: what a gate says of a point
    depends on the points around it. `last_line` is the largest id of a line that was here before."""
    db = store.connection
    before = _runs_before(db, staged, last_line)
    for (source, run), batches in staged.runs.items():
        if batches < 2 and (source, run) not in before:
            continue
        ask = """
            SELECT count(*), coalesce(sum(r.source_id <> ?), 0) FROM result_line l
            JOIN result_point p ON p.line_id = l.id JOIN import_row r ON r.id = p.id WHERE l.source = ? AND l.run = ?
        """
        points, elsewhere = db.execute(ask, (number, source, run)).fetchone()
        if batches > 1 or elsewhere:
            for group in _together(store, source, run, points):
                with uncollected():
                    write_verdicts(db, [(one.id, one.point()) for one in group], judge)


def _runs_before(db: sqlite3.Connection, staged: Staging, last_line: int) -> set[tuple[str, str]]:
    """(source, run) of the file's runs that had a line here already."""
    if not last_line:
        return set()
    db.execute("CREATE TEMP TABLE IF NOT EXISTS run_here (source TEXT, run TEXT)")
    db.execute("DELETE FROM run_here")
    db.executemany("INSERT INTO run_here VALUES (?, ?)", staged.runs)
    ask = """
        SELECT source, run FROM run_here h WHERE EXISTS
        (SELECT 1 FROM result_line l WHERE l.source = h.source AND l.run = h.run AND l.id <= ?)
    """
    return set(db.execute(ask, (last_line,)).fetchall())


def _together(store: Store, source: str, run: str, points: int) -> Iterator[list[StoredPoint]]:
    """Points of one run in groups that are judged at once: all, or of a long run whole lines, because what gates see
    around a point is its line. A line that is longer still is cut between points, never between tries of one."""
    if points <= MAX_TOGETHER:
        yield list(load_points(store, PointFilter(source=source, run=run, superseded=True)))
        return
    ask = "SELECT line_key FROM result_line WHERE source = ? AND run = ? ORDER BY line_key"
    group: list[StoredPoint] = []
    for (line_key,) in store.query(ask, (source, run)):
        line = list(load_points(store, PointFilter(line_key=str(line_key), superseded=True)))
        line.sort(key=lambda one: one.point_key)
        if group and len(group) + len(line) > MAX_TOGETHER:
            yield group
            group = []
        while len(line) > MAX_TOGETHER:
            end = MAX_TOGETHER
            while end < len(line) and line[end].point_key == line[end - 1].point_key:
                end += 1
            yield line[:end]
            line = line[end:]
        group += line
    if group:
        yield group


def write_verdicts(db: sqlite3.Connection, points: list[tuple[int, Point]], judge: Judge) -> int:
    """Judge points among each other and write what was said; returns how many verdicts are others now."""
    judged = judge([point for _, point in points])
    verdicts, findings = [], []
    for (number, _), (found, verdict) in zip(points, judged, strict=True):
        verdicts.append((str(verdict), number, str(verdict)))
        findings += [(number, *each) for each in told(found)]
    cursor = db.executemany("UPDATE result_point SET verdict = ? WHERE id = ? AND verdict <> ?", verdicts)
    db.executemany("DELETE FROM gate_finding WHERE point_id = ?", [(number,) for number, _ in points])
    db.executemany("INSERT INTO gate_finding VALUES (?, ?, ?, ?)", findings)
    return max(0, cursor.rowcount)


def _tally(
    db: sqlite3.Connection, source_id: int
) -> tuple[dict[RowStatus, int], tuple[ReasonCount, ...], dict[str, int]]:
    rows: dict[RowStatus, int] = {}
    reasons = []
    ask = """
        SELECT status, reason, reason_values, count(*) FROM import_row WHERE source_id = ?
        GROUP BY status, reason, reason_values ORDER BY count(*) DESC, status, reason, reason_values
    """
    for status, reason, values, count in db.execute(ask, (source_id,)):
        rows[status] = rows.get(status, 0) + count
        if status != "mapped":
            reasons.append(ReasonCount(status, reason, json.loads(values), count))
    ask = """
        SELECT p.verdict, count(*) FROM import_row r JOIN result_point p ON p.id = r.id
        WHERE r.source_id = ? AND r.status <> 'superseded' GROUP BY p.verdict
    """
    return rows, tuple(reasons), dict(db.execute(ask, (source_id,)).fetchall())


def _contents(db: sqlite3.Connection, source_id: int) -> dict[int, tuple[object, ...]]:
    """ordinal -> what is said of the row: its point's content, verdict, status and reason."""
    ask = """
        SELECT r.ordinal, p.content, p.verdict, r.status, r.reason
        FROM import_row r LEFT JOIN result_point p ON p.id = r.id WHERE r.source_id = ?
    """
    return {ordinal: tuple(said) for ordinal, *said in db.execute(ask, (source_id,))}


def _changed(before: dict[int, tuple[object, ...]], after: dict[int, tuple[object, ...]]) -> dict[str, int]:
    return {
        "added": len(after.keys() - before.keys()),
        "removed": len(before.keys() - after.keys()),
        "altered": sum(before[each] != after[each] for each in before.keys() & after.keys()),
    }
