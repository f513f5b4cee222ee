"""Reading points: by configuration, run, source, verdict; the latest lines; one point with all that was said of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from servemark.results.gates.base import GateFinding, Severity
from servemark.results.point import Point, PointIdentity, Status
from servemark.store.database import Store
from servemark.store.point_codec import (
    Beside,
    Shape,
    decode_beside,
    decode_figures,
    decode_identity,
    decode_point,
    decode_shape,
    decode_values,
    has_evals,
)

Wanted = str | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class PointFilter:
    """Which points are wanted; None asks for nothing, several values for any of them. Superseded and quarantined ones only
    when asked for."""

    model: Wanted = None
    hardware: Wanted = None
    engine: Wanted = None
    precision: Wanted = None
    scenario: Wanted = None
    source: Wanted = None
    run: Wanted = None
    line_key: str | None = None
    point_key: str | None = None
    config_key: str | None = None
    file: str | None = None
    """SHA-256 of the imported file."""
    since: str | None = None
    until: str | None = None
    """ISO dates, both included; a point without a date is never within them."""
    latest: bool = False
    superseded: bool = False
    quarantined: bool = True
    unusable: bool = False
    """Only quarantined points of lines that hold no usable point, which `latest` never finds."""
    limit: int | None = None
    """The newest so many."""


class StoredPoint(NamedTuple):
    """One point as it lies in the store; `point` and `value` decode it when they are asked. A named tuple, because
    thousands are made for one page and a frozen dataclass of this width takes ten times as long. `current` and `latest`
    are 0 or 1, as they lie there."""

    id: int
    point_key: str
    line_key: str
    config_key: str
    model: str
    hardware: str
    engine: str
    precision: str
    scenario: str
    source: str
    run: str
    concurrency: int | None
    attempt: int
    at_utc: str
    status: Status
    verdict: str
    current: int
    latest: int
    file: str
    ordinal: int
    mapping_version: int
    packed_config: bytes
    packed_shape: bytes
    packed_figures: bytes
    packed_stated: bytes
    packed_rest: bytes

    def identity(self) -> PointIdentity:
        """Decoded."""
        return _identity(self.packed_config, self.concurrency)

    def point(self) -> Point:
        """The whole point, equal to the one that the importer made."""
        return decode_point(
            self.identity(),
            _shape_of(self.packed_shape),
            self.packed_figures,
            self.packed_stated,
            self.packed_rest,
            source=self.source,
            mapping_version=self.mapping_version,
            status=self.status,
        )

    def addresses(self) -> tuple[str, ...]:
        """Addresses of the stated figures, in the point's order; the same object for points of one shape."""
        return _names(self.packed_shape)

    def figures(self) -> dict[str, float]:
        """Stated figures by address, without their places in the raw row."""
        return decode_figures(_names(self.packed_shape), self.packed_figures)

    def definitions(self) -> Mapping[str, str]:
        """Definition id of each figure by address; the same object for points of one shape."""
        return _definitions(self.packed_shape)

    def beside(self) -> Beside:
        """What a comparison asks of a point beside its figures."""
        return decode_beside(self.packed_rest)

    def has_evals(self) -> bool:
        """Whether it carries an accuracy result."""
        return has_evals(self.packed_rest)

    def value(self, address: str) -> float | None:
        """One stated figure; None when it is absent. Decodes no other part of the point."""
        place = _places(self.packed_shape).get(address)
        return None if place is None else decode_values(self.packed_figures)[place]


@lru_cache(maxsize=8192)
def _identity(packed: bytes, concurrency: int | None) -> PointIdentity:
    """Loads of one configuration share its decoded parts."""
    if concurrency is None:
        return decode_identity(packed, None)
    return replace(_identity(packed, None), concurrency=concurrency)


_shape_of = lru_cache(maxsize=4096)(decode_shape)


def identity_of(packed: bytes) -> PointIdentity:
    """A configuration's identity, without a concurrency."""
    return _identity(packed, None)


@lru_cache(maxsize=4096)
def _places(data: bytes) -> dict[str, int]:
    shape: Shape = _shape_of(data)
    return {name: place for place, (name, *_) in enumerate(shape)}


@lru_cache(maxsize=4096)
def _names(data: bytes) -> tuple[str, ...]:
    return tuple(_places(data))


@lru_cache(maxsize=4096)
def _definitions(data: bytes) -> Mapping[str, str]:
    shape: Shape = _shape_of(data)
    return {name: definition for name, definition, *_ in shape}


_COLUMNS = """
    p.id, p.point_key, l.line_key, c.config_key, c.model, c.hardware, c.engine, c.precision, c.scenario,
    l.source, l.run, p.concurrency, p.attempt, p.at_utc, p.status, p.verdict, p.current, l.latest,
    s.sha256, r.ordinal, s.mapping_version, c.identity, f.shape, p.figures, p.stated, p.rest
"""
_FROM = """
    FROM result_config c CROSS JOIN result_line l ON l.config_id = c.id
    CROSS JOIN result_point p ON p.line_id = l.id JOIN import_row r ON r.id = p.id
    JOIN import_source s ON s.id = r.source_id JOIN figure_shape f ON f.id = p.shape_id
"""
_FROM_FREE = _FROM.replace("CROSS JOIN", "JOIN")
_WHERE = {
    "model": "c.model",
    "hardware": "c.hardware",
    "engine": "c.engine",
    "precision": "c.precision",
    "scenario": "c.scenario",
    "config_key": "c.config_key",
    "source": "l.source",
    "run": "l.run",
    "line_key": "l.line_key",
    "point_key": "p.point_key",
    "file": "s.sha256",
}


def load_points(store: Store, wanted: PointFilter) -> Iterator[StoredPoint]:
    """Points that match, in the order in which they came; with a limit the newest by date, oldest of them first."""
    where, values = _conditions(wanted)
    ordered = (
        "ORDER BY p.id"
        if wanted.limit is None
        else f"ORDER BY p.at_utc DESC, p.id DESC LIMIT {wanted.limit:d}"
    )
    source = _FROM if wanted.latest else _FROM_FREE
    rows = store.query(f"SELECT {_COLUMNS} {source} {where} {ordered}", values)
    for row in rows if wanted.limit is None else reversed(rows):
        yield StoredPoint._make(row)


def count_points(store: Store, wanted: PointFilter) -> int:
    """How many points `load_points` would give, its limit aside."""
    where, values = _conditions(wanted)
    ask = f"""
        SELECT count(*) FROM result_config c JOIN result_line l ON l.config_id = c.id
        JOIN result_point p ON p.line_id = l.id {"JOIN import_row r ON r.id = p.id" if wanted.file else ""}
        {"JOIN import_source s ON s.id = r.source_id" if wanted.file else ""} {where}
    """  # noqa: S608 - fixed column names and question marks alone
    return int(store.query(ask, values)[0][0])


def _conditions(wanted: PointFilter) -> tuple[str, list[str]]:
    """(WHERE clause of fixed column names and question marks, its values)."""
    terms, values = _terms(wanted)
    if wanted.latest:
        terms.append("l.latest = 1")
    if not wanted.superseded:
        terms.append("p.current = 1")
    if not wanted.quarantined:
        terms.append("p.verdict <> 'quarantined'")
    if wanted.unusable:
        terms.append("l.usable = 0 AND p.verdict = 'quarantined'")
    return (f"WHERE {' AND '.join(terms)}" if terms else ""), values


def load_repeats(store: Store, configurations: int, each: int) -> Iterator[StoredPoint]:
    """The newest `each` measurements of the `configurations` that a source has measured again most lately; complete, usable
    points alone. Of a large store that is a sample, and the same one each time."""
    ask = f"""
        WITH good AS (
            SELECT p.id, p.point_key, l.source, p.at_utc FROM result_point p JOIN result_line l ON l.id = p.line_id
            WHERE p.current = 1 AND p.status = 'complete' AND p.verdict <> 'quarantined'
        ), again AS (
            SELECT point_key, source FROM good GROUP BY point_key, source HAVING count(*) > 1
            ORDER BY max(at_utc) DESC, point_key LIMIT ?
        ), ranked AS (
            SELECT good.id, row_number() OVER (
                PARTITION BY good.point_key, good.source ORDER BY good.at_utc DESC, good.id DESC
            ) AS place FROM good JOIN again USING (point_key, source)
        )
        SELECT {_COLUMNS} {_FROM_FREE} WHERE p.id IN (SELECT id FROM ranked WHERE place <= ?) ORDER BY p.id
    """  # noqa: S608 - fixed column names alone
    for row in store.query(ask, (configurations, each)):
        yield StoredPoint._make(row)


def _terms(wanted: PointFilter) -> tuple[list[str], list[str]]:
    """SQL conditions and their values, in order."""
    terms: list[str] = []
    values: list[str] = []
    for name, column in _WHERE.items():
        asked: Wanted = getattr(wanted, name)
        if asked is None:
            continue
        some = (asked,) if isinstance(asked, str) else asked
        terms.append(f"{column} = ?" if len(some) == 1 else f"{column} IN ({','.join('?' * len(some))})")
        values += some
    if wanted.since is not None:
        terms.append("p.at_utc >= ?")
        values.append(wanted.since)
    if wanted.until is not None:  # times begin with their date, and the day itself is included
        terms.append("p.at_utc <> '' AND substr(p.at_utc, 1, 10) <= ?")
        values.append(wanted.until)
    return terms, values


def find_points(store: Store, name: str) -> list[StoredPoint]:
    """Points whose key begins with `name`, or that `FILE:ORDINAL` names (the file by the beginning of its SHA-256);
    the newest last, superseded ones only where no other matches."""
    file, colon, ordinal = name.partition(":")
    if colon and ordinal.isdecimal():
        where, values = "substr(s.sha256, 1, ?) = ? AND r.ordinal = ?", (len(file), file, int(ordinal))
    else:
        where, values = "p.point_key >= ? AND p.point_key < ?", (name, name + "g")  # type: ignore[assignment]
    ask = f"SELECT {_COLUMNS} {_FROM_FREE} WHERE {where} ORDER BY p.current, p.at_utc, p.id LIMIT 1000"
    return [StoredPoint._make(row) for row in store.query(ask, values)]


def findings_of(store: Store, point_id: int) -> list[GateFinding]:
    """What gates found fault with, the worst first."""
    ask = "SELECT gate, severity, finding_values FROM gate_finding WHERE point_id = ? ORDER BY severity, gate"
    return [
        GateFinding(str(gate), Severity(severity), json.loads(values))
        for gate, severity, values in store.query(ask, (point_id,))
    ]
