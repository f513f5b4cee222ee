"""The importer of InferenceX results: public API rows, aggregates of every version, evaluations; and what has no rows.

A list may mix versions: each row is read by its own shape. Reliability, availability, submission and workflow lists are
recognised and kept, with the reason that they hold no results.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from servemark.base.errors import ServemarkError
from servemark.results.errors import bad_file
from servemark.results.importers.base import Given, Importer
from servemark.results.importers.inferencex_map import ID, VERSION, map_row
from servemark.results.importers.inferencex_names import Problem
from servemark.results.importers.json_rows import (
    RowError,
    decode_row,
    first_byte,
    list_elements,
    numbered_elements,
    read_object,
)
from servemark.results.point import Mapped

_ROW_KEYS: tuple[frozenset[bytes], ...] = tuple(
    frozenset(keys.split())
    for keys in (
        b"hardware framework metrics conc spec_method num_prefill_gpu",
        b"hw framework conc precision",
    )
)
_OTHER_KEYS: dict[str, frozenset[str]] = {
    "reliability": frozenset({"hardware", "date", "n_success", "total"}),
    "availability": frozenset({"model", "hardware", "framework", "precision", "spec_method", "date"}),
    "submissions": frozenset({"summary", "volume"}),
    "workflow-info": frozenset({"runs", "changelogs", "configs"}),
}
"""Keys by which the files of the same source are told that hold no results."""
_KEY = re.compile(rb'"([A-Za-z_0-9.]{1,40})"\s*:')
_LOOK_BYTES = 64 * 1024


def detect(given: Given) -> float:
    """How sure it is, by the keys at the beginning of the file."""
    first = first_byte(given)
    if first not in {b"[", b"{"}:
        return 0.0
    keys = set(_KEY.findall(given.head[:_LOOK_BYTES]))
    if any(wanted <= keys for wanted in _ROW_KEYS):
        return 0.95
    names = {key.decode() for key in keys}
    for kind, wanted in _OTHER_KEYS.items():
        if wanted <= names and (first == b"{") == (kind in {"submissions", "workflow-info"}):
            return 0.8
    return 0.0


def read(given: Given) -> Iterator[Mapped]:
    """Every row in order. Raises ServemarkError (layer results) for a file that is damaged as a whole."""
    if first_byte(given) == b"{":
        yield from _read_object(given)
        return
    number = -1
    for number, raw in numbered_elements(given):
        try:
            row = decode_row(raw)
        except RowError as error:
            yield Mapped(number, "invalid", None, raw, error.reason, error.values)
            continue
        if number == 0 and (kind := _kind(row)) is not None:
            yield _no_rows(kind)
            return
        yield _mapped(row, number, raw, given)
    if number < 0 and given.part is None:
        yield _no_rows("empty list")


def in_parts(given: Given) -> bool:
    """Whether the file is a list whose first row is one of results: what `read` decides for the whole file is decided."""
    if first_byte(given) != b"[":
        return False
    try:
        first = decode_row(next(list_elements(given)))
    except (StopIteration, RowError, ServemarkError):
        return False
    return _kind(first) is None


def _mapped(row: dict[str, Any], number: int, raw: bytes | None, given: Given) -> Mapped:
    if (kind := _kind(row)) is not None:
        return Mapped(number, "unmapped", None, raw, "results.import_no_result_rows", {"kind": kind})
    found = map_row(row, given.hints, given.name)
    if isinstance(found, Problem):
        return Mapped(
            number, "invalid" if found.invalid else "unmapped", None, raw, found.reason, found.values
        )
    return Mapped(number, "mapped", found, raw)


def _kind(row: dict[str, Any]) -> str | None:
    """Which file without results a row is of; None for a row of results."""
    if "metrics" in row or "hw" in row or "conc" in row:
        return None
    return next((kind for kind, wanted in _OTHER_KEYS.items() if wanted <= row.keys()), None)


def _no_rows(kind: str) -> Mapped:
    return Mapped(0, "unmapped", None, None, "results.import_no_result_rows", {"kind": kind})


def _read_object(given: Given) -> Iterator[Mapped]:
    """One aggregate, or an answer that holds lists of rows."""
    data = read_object(given)
    try:
        body = decode_row(data)
    except RowError as error:
        if error.reason == "results.import_bad_row":
            raise bad_file("import_not_json", given.name, reason=str(error.values.get("problem"))) from error
        yield Mapped(0, "invalid", None, None, error.reason, error.values)
        return
    if (kind := _kind(body)) is not None:
        yield _no_rows(kind)
        return
    lists = [body[name] for name in ("benchmarks", "evaluations") if isinstance(body.get(name), list)]
    if not lists:
        yield _mapped(body, 0, None, given)
        return
    number = 0
    for rows in lists:
        for row in rows:
            if isinstance(row, dict):
                yield _mapped(row, number, _again(row), given)
            else:
                yield Mapped(number, "invalid", None, _again(row), "results.import_not_object")
            number += 1


def _again(row: object) -> bytes:
    """A row of an answer as its own JSON."""
    import msgspec  # noqa: PLC0415 - only for answers that wrap their lists

    return msgspec.json.encode(row)


IMPORTER = Importer(ID, VERSION, "InferenceX results", detect, read, in_parts)
