"""The whole store of imports as one JSON-lines file, raw bytes included, and back: the restored store is equal.

Lines: a header; for each imported file its raw bytes in parts, itself, and its rows; an end line with counts, so that a
truncated backup is told from a whole one. What a backup says of points is not believed: they are mapped and judged again
from the raw bytes, whose hashes are checked, and compared with what it says.
"""

from __future__ import annotations

import base64
import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

import msgspec

from servemark.base.errors import Layer, ServemarkError
from servemark.results.gates.base import Verdict
from servemark.results.point import Point, point_json
from servemark.store.database import Store
from servemark.store.import_types import SourceFile
from servemark.store.imports import drop_points, find_source, sources, touch
from servemark.store.intake import FileReport, Intake, among_runs, map_kept
from servemark.store.lines import settle
from servemark.store.migrate import newest
from servemark.store.point_codec import Encoder, NotStorable
from servemark.store.points import PointFilter, findings_of, load_points
from servemark.store.raw_files import RawFiles
from servemark.store.staging import Staged, plain

HEADER = "servemark_export"
VERSION = 1
PART = 3 * 2**18
"""Raw bytes in one line; a multiple of three, so that parts of base64 join."""
MAX_LINE = 16 * 2**20

Opened = Callable[[], BinaryIO]


def is_backup(head: bytes) -> bool:
    """Whether a file's beginning is that of a backup."""
    return head[:100].lstrip().startswith(b'{"' + HEADER.encode() + b'"')


def write_backup(store: Store, raw: RawFiles) -> Iterator[str]:
    """Lines of a backup, each ending in a newline. Raises ServemarkError where raw bytes are missing or changed."""
    yield _line({HEADER: VERSION, "schema": newest()})
    rows, done = 0, set()
    for source in sources(store):
        for sha256 in (source.sha256, *(sha for _, sha in source.siblings)):
            if sha256 not in done:
                done.add(sha256)
                with raw.open(sha256) as stream:
                    while part := stream.read(PART):
                        yield _line({"raw": sha256, "part": base64.b64encode(part).decode("ascii")})
                yield _line({"raw": sha256, "end": True})
        yield _line({"source": msgspec.to_builtins(source)})
        for line in _rows(store, source.sha256):
            rows += 1
            yield line
    yield _line({"end": {"sources": len(sources(store)), "rows": rows}})


def _rows(store: Store, sha256: str) -> Iterator[str]:
    wanted = PointFilter(file=sha256, superseded=True)
    points = {one.ordinal: one for one in load_points(store, wanted)}
    ask = """
        SELECT r.ordinal, r.status, r.reason, r.reason_values FROM import_row r
        JOIN import_source s ON s.id = r.source_id WHERE s.sha256 = ? ORDER BY r.ordinal
    """
    for ordinal, status, reason, values in store.query(ask, (sha256,)):
        row: dict[str, Any] = {"ordinal": ordinal}
        one = points.get(ordinal)
        if one is None:
            row |= {"status": status, "reason": reason, "values": json.loads(values)}
        else:
            found = findings_of(store, one.id)
            row |= {
                "point": json.loads(point_json(one.point())),
                "verdict": one.verdict,
                "findings": [[each.gate, str(each.severity), each.values] for each in found],
            }
        yield _line({"row": row})


@dataclass(frozen=True, slots=True)
class Restored:
    """What came of a backup: files added and files that were here, rows of the added ones; rows that are not what the
    backup says, `remapped` where mapping or gates have another version now, `altered` where they have not: then the
    backup was changed, or made by a changed program."""

    added: int
    same: int
    rows: int
    remapped: int
    altered: int


def restore(store: Store, intake: Intake, opened: Opened, name: str) -> Restored:
    """Take a backup in: raw bytes first, then all files as one transaction, mapped and judged again; files that are here
    already stay.

    Raises ServemarkError (layer results) for a damaged or truncated backup, (layer store) as `Store` does; the store is
    then as it was.
    """
    try:
        _restore_raw(intake.raw, opened, name)
        with store.writing():
            reports, tally = _restore_files(store, intake, opened, name)
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
        raise _bad(name, str(error)[:200]) from error
    for report in reports:
        among_runs(store, intake, report)
    return tally


def _restore_raw(raw: RawFiles, opened: Opened, name: str) -> None:
    with opened() as stream:
        lines = _lines(stream, name)
        header = next(lines, {})
        if header.get(HEADER) != VERSION or int(header.get("schema", 0)) > newest():
            raise ServemarkError(
                "store.backup_newer",
                Layer.RESULTS,
                exit_code=2,
                path=name,
                found=header.get("schema"),
                known=newest(),
            )
        ended = False
        for line in lines:
            ended = "end" in line and "raw" not in line
            if "raw" in line:
                raw.keep(cast("BinaryIO", io.BufferedReader(_Parts(line, lines))), str(line["raw"]))
        if not ended:
            raise _bad(name, "no end line")


class _Parts(io.RawIOBase):
    """The bytes of one raw file from its lines."""

    def __init__(self, first: dict[str, Any], lines: Iterator[dict[str, Any]]) -> None:
        self._line: dict[str, Any] | None = first
        self._lines = lines
        self._left = b""

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - as io has it
        """The next bytes."""
        while not self._left and self._line is not None:
            if self._line.get("end"):
                self._line = None
                break
            self._left = base64.b64decode(self._line["part"], validate=True)
            self._line = next(self._lines, None)
            if self._line is not None and "raw" not in self._line:
                raise ValueError("raw bytes without an end")
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def _restore_files(
    store: Store, intake: Intake, opened: Opened, name: str
) -> tuple[list[FileReport], Restored]:
    db = store.connection
    alone = store.query("SELECT count(*) FROM import_source") == [(0,)]
    db.execute(_EXPECTED)
    db.execute("DELETE FROM temp.expected")
    files, rows, same = _expected(store, intake.raw, opened, name)
    reports = []
    for source in files:
        report = map_kept(store, intake, source)
        if report.error is not None:
            raise report.error
        reports.append(report)
    _drop_pruned(db)
    counts = {True: 0, False: 0}
    by_sha = {source.sha256: source for source in files}
    for sha256, differing in _differing(db, alone):
        now = find_source(store, sha256)
        was = by_sha[sha256]
        alike = now is not None and (was.importer, was.mapping_version, was.gates) == (
            now.importer, now.mapping_version, now.gates,
        )  # fmt: skip
        counts[alike] += differing
    return reports, Restored(len(files), same, rows, counts[False], counts[True])


_EXPECTED = """
    CREATE TEMP TABLE IF NOT EXISTS expected (
        sha256 TEXT, ordinal INTEGER, content BLOB, verdict TEXT, status TEXT, reason TEXT, reason_values TEXT,
        PRIMARY KEY (sha256, ordinal)) WITHOUT ROWID
"""


def _expected(store: Store, raw: RawFiles, opened: Opened, name: str) -> tuple[list[SourceFile], int, int]:
    """Every file that is not here yet, with what the backup says of its rows in `expected`; how many rows that are, and
    how many files are here. Raises ValueError where its counts or its bytes are not whole."""
    files: list[SourceFile] = []
    encoder, taken, rows, same = Encoder(), False, 0, 0
    seen = {"sources": 0, "rows": 0}
    put = "INSERT INTO temp.expected VALUES (?, ?, ?, ?, ?, ?, ?)"
    with opened() as stream:
        for line in _lines(stream, name):
            if "source" in line:
                seen["sources"] += 1
                source = msgspec.convert(line["source"], SourceFile)
                lost = [
                    sha for sha in (source.sha256, *(sha for _, sha in source.siblings)) if not raw.has(sha)
                ]
                if lost:
                    raise ValueError(f"the bytes of {lost[0]} are missing")
                taken = find_source(store, source.sha256) is None
                same += not taken
                files += [source] if taken else []
            elif "row" in line:
                seen["rows"] += 1
                one = _staged(line["row"], encoder)
                if not taken:
                    continue
                rows += 1
                said = (one.point.content if one.point else None, str(one.verdict) if one.point else None)
                store.connection.execute(
                    put, (files[-1].sha256, one.ordinal, *said, one.status, one.reason, one.values)
                )
            elif "end" in line and "raw" not in line and line["end"] != seen:
                raise ValueError(f"{seen} are here, but its end line says {line['end']}")
    return files, rows, same


_JOINED = """
    FROM temp.expected e LEFT JOIN import_source s ON s.sha256 = e.sha256
    LEFT JOIN import_row r ON r.source_id = s.id AND r.ordinal = e.ordinal LEFT JOIN result_point p ON p.id = r.id
"""


def _drop_pruned(db: sqlite3.Connection) -> None:
    """Superseded attempts that were pruned stay pruned."""
    ask = f"SELECT p.id {_JOINED} WHERE e.content IS NULL AND e.status = 'superseded' AND p.current = 0"
    ids = [int(number) for (number,) in db.execute(ask)]
    touch(db)
    drop_points(db, ids)
    settle(db)


def _differing(db: sqlite3.Connection, alone: bool) -> list[tuple[str, int]]:
    """(SHA-256, rows that are not what the backup says). Verdicts are compared where nothing else was in the store, for
    other files of a run may change them."""
    ask = f"""
        SELECT e.sha256, count(*) {_JOINED} WHERE CASE
            WHEN e.content IS NOT NULL THEN p.content IS NOT e.content OR (? AND p.verdict IS NOT e.verdict)
            WHEN e.status = 'superseded' THEN r.status IS NOT 'superseded'
            ELSE r.status IS NOT e.status OR r.reason IS NOT e.reason OR r.reason_values IS NOT e.reason_values END
        GROUP BY e.sha256
    """
    found = {str(sha256): int(count) for sha256, count in db.execute(ask, (alone,))}
    more = """
        SELECT s.sha256, count(*) FROM import_source s JOIN import_row r ON r.source_id = s.id
        WHERE s.sha256 IN (SELECT sha256 FROM temp.expected) AND NOT EXISTS (
            SELECT 1 FROM temp.expected e WHERE e.sha256 = s.sha256 AND e.ordinal = r.ordinal) GROUP BY s.sha256
    """
    for sha256, count in db.execute(more):
        found[str(sha256)] = found.get(str(sha256), 0) + int(count)
    return sorted(found.items())


def _staged(row: dict[str, Any], encoder: Encoder) -> Staged:
    ordinal = int(row["ordinal"])
    if "point" not in row:
        return Staged(
            ordinal, row["status"], str(row["reason"]), plain(row["values"]), None, Verdict.VALID, ()
        )
    findings = tuple((str(gate), str(severity), plain(values)) for gate, severity, values in row["findings"])
    try:
        point = encoder.encode(msgspec.convert(row["point"], Point))
    except NotStorable as error:
        raise ValueError(str(error)) from error
    return Staged(ordinal, "mapped", "", "{}", point, Verdict(row["verdict"]), findings)


def _lines(stream: BinaryIO, name: str) -> Iterator[dict[str, Any]]:
    while line := stream.readline(MAX_LINE):
        if not line.endswith(b"\n"):
            raise _bad(name, "line")
        yield msgspec.json.decode(line, type=dict[str, Any])


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def _bad(name: str, reason: str) -> ServemarkError:
    return ServemarkError("store.backup_damaged", Layer.RESULTS, exit_code=2, path=name, reason=reason)
