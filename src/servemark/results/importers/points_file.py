"""Points as servemark exports them (`export --json` with filters): one header line, then one point a line."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec

from servemark.base.errors import Layer, ServemarkError
from servemark.results.importers.base import Given, Importer
from servemark.results.point import POINT_SCHEMA, Mapped, Point

HEADER = "servemark_points"
MAX_LINE = 8 * 2**20


def _detect(given: Given) -> float:
    first = given.head.split(b"\n", 1)[0]
    if HEADER.encode() not in first[:200]:
        return 0.0
    found = json.loads(first)
    return 1.0 if isinstance(found, dict) and HEADER in found else 0.0


def _read(given: Given) -> Iterator[Mapped]:
    with given.open() as stream:
        header = json.loads(stream.readline(MAX_LINE))
        if header.get(HEADER) != 1 or header.get("schema") != POINT_SCHEMA:
            raise ServemarkError(
                "results.import_newer_points",
                Layer.RESULTS,
                exit_code=2,
                path=given.name,
                found=str(header.get("schema")),
                known=POINT_SCHEMA,
            )
        for ordinal, line in enumerate(iter(lambda: stream.readline(MAX_LINE), b"")):
            try:
                point = msgspec.json.decode(line, type=Point)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                reason: dict[str, object] = {"reason": str(error)[:200]}
                yield Mapped(ordinal, "invalid", None, line[:2000], "store.row.not_storable", reason)
                continue
            yield Mapped(ordinal, "mapped", point, line)


POINTS_FILE = Importer("servemark-points", 1, "servemark points (export --json)", _detect, _read)
