"""The whole store of imports as one JSON-lines file, raw bytes included, and back: the restored store is equal.

Lines: a header; for each imported file its raw bytes in parts, itself, and its rows; an end line with counts, so that a
truncated backup is told from a whole one. Points keep their verdicts and findings: nothing is mapped or judged again.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import msgspec

from servemark.base.errors import Layer, ServemarkError
from servemark.results.gates.base import Verdict
from servemark.results.point import Point, point_json
from servemark.store.database import Store
from servemark.store.import_types import SourceFile
from servemark.store.imports import put_rows, put_source, sources, touch
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
_CHUNK = 2_000

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


def restore(store: Store, raw: RawFiles, opened: Opened, name: str) -> dict[str, int]:
    """Take a backup in: raw bytes first, then all files and rows as one transaction; files that are here already stay.

    Returns counts: `added`, `same` (files), `rows`. Raises ServemarkError (layer results) for a damaged or truncated
    backup, (layer store) as `Store` does; the store is then as it was.
    """
    try:
        _restore_raw(raw, opened, name)
        with store.writing():
            touch(store.connection)
            tally = _restore_rows(store, raw, opened, name)
            settle(store.connection)
        return tally
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
        raise _bad(name, str(error)[:200]) from error


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


def _restore_rows(store: Store, raw: RawFiles, opened: Opened, name: str) -> dict[str, int]:
    tally = {"added": 0, "same": 0, "rows": 0}
    encoder, number, chunk = Encoder(), None, list[Staged]()
    seen = {"sources": 0, "rows": 0}
    with opened() as stream:
        for line in _lines(stream, name):
            if "source" in line or "end" in line:
                if number is not None and "raw" not in line:
                    put_rows(store.connection, number, chunk)
                    chunk = []
                if "source" not in line:
                    if "raw" not in line and line["end"] != seen:
                        raise ValueError(f"{seen} are here, but its end line says {line['end']}")
                    continue
                seen["sources"] += 1
                source = msgspec.convert(line["source"], SourceFile)
                if not raw.has(source.sha256):
                    raise ValueError(f"the bytes of {source.sha256} are missing")
                here = store.query("SELECT 1 FROM import_source WHERE sha256 = ?", (source.sha256,))
                number = None if here else put_source(store.connection, source, None)
                tally["same" if here else "added"] += 1
            elif "row" in line:
                seen["rows"] += 1
                if number is None:
                    continue
                chunk.append(_staged(line["row"], encoder))
                tally["rows"] += 1
                if len(chunk) >= _CHUNK:
                    put_rows(store.connection, number, chunk)
                    chunk = []
    return tally


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
