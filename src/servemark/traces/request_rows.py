"""Traces of single requests with times and lengths, no content: Azure and BurstGPT CSV.

Azure: TIMESTAMP,ContextTokens,GeneratedTokens with a date and time; the 2023 files have none but these columns.
BurstGPT: Timestamp (seconds), Model, Request tokens, Response tokens, Total tokens, Log Type, in newer releases
also Session ID and Elapsed time. Every row becomes a session of one turn whose text nobody shares, sent at its
recorded time. A BurstGPT row without response tokens is a request that failed when it was recorded; it is left
out and counted.
"""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import overload

from servemark.base.errors import ServemarkError, input_error
from servemark.traces.identity import source_id
from servemark.traces.trace_files import file_hash, lines, name_of
from servemark.traces.types import Message, Segment, Session, Turn, Workload

MAX_ROWS = 10_000_000
MAX_LINE_BYTES = 65_536
MAX_TOKENS = 10_000_000
AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
BURST_COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type")


class RequestRows(Sequence[Session]):
    """Single requests, packed: 24 bytes each. Session i is one turn of its own text."""

    def __init__(self, scope: str, scale: float = 1.0) -> None:
        self.scope = scope
        self.scale = scale
        self._at = array("d")
        self._inputs = array("Q")
        self._outputs = array("Q")
        self._numbers = array("Q")

    def append(self, number: int, at_s: float, inputs: int, outputs: int) -> None:
        """Add a row; `number` names it (the line in its file)."""
        self._numbers.append(number)
        self._at.append(at_s)
        self._inputs.append(inputs)
        self._outputs.append(outputs)

    def from_start(self) -> None:
        """Make times count from the first arrival, in order of arrival."""
        order = sorted(range(len(self._at)), key=self._at.__getitem__)
        first = self._at[order[0]]
        self._at = array("d", (round(self._at[i] - first, 6) for i in order))
        self._inputs = array("Q", (self._inputs[i] for i in order))
        self._outputs = array("Q", (self._outputs[i] for i in order))
        self._numbers = array("Q", (self._numbers[i] for i in order))

    def __len__(self) -> int:
        return len(self._at)

    @overload
    def __getitem__(self, index: int) -> Session: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Session]: ...
    def __getitem__(self, index: int | slice) -> Session | Sequence[Session]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = self._numbers[index]
        tokens = max(1, round(self._inputs[index] * self.scale))
        prompt = (Message("user", (Segment(f"{self.scope}/{number}", tokens),)),)
        output = max(1, round(self._outputs[index] * self.scale))
        return Session(f"r{number:07d}", (Turn(prompt, output, 0.0, 0.0),), start_s=self._at[index])


@dataclass(frozen=True, slots=True)
class _Format:
    kind: str
    columns: tuple[str, ...]
    time: str
    inputs: str
    outputs: str
    seconds: Callable[[str], float]
    skip_empty: bool


def read_azure(path: Path, limit: int | None = None, scale: float = 1.0) -> Workload:
    """The workload of an Azure trace. Raises ServemarkError with file:line for bad rows."""
    return _read(path, _AZURE, limit, scale)


def read_burstgpt(path: Path, limit: int | None = None, scale: float = 1.0) -> Workload:
    """The workload of a BurstGPT trace. Raises ServemarkError with file:line for bad rows."""
    return _read(path, _BURST, limit, scale)


def csv_kind(first_line: str) -> str | None:
    """`azure` or `burstgpt` by a file's first line; None for another."""
    names = {name.strip().strip('"') for name in first_line.split(",")}
    for form in (_AZURE, _BURST):
        if {form.time, form.inputs, form.outputs} <= names:
            return form.kind
    return None


def _read(path: Path, form: _Format, limit: int | None, scale: float) -> Workload:
    sha256 = file_hash(path)
    rows = RequestRows(f"{form.kind}/{sha256[:16]}", scale)
    left_out = 0
    where = str(path)
    source_lines = _texts(path)
    _, header = next(source_lines, (0, ""))
    names = [name.strip() for name in _cells(header, f"{where}:1", None)]
    missing = [n for n in (form.time, form.inputs, form.outputs) if n not in names]
    if missing:
        raise input_error("traces.csv_columns", where=f"{where}:1", missing=", ".join(missing))
    at = [names.index(n) for n in (form.time, form.inputs, form.outputs)]
    for number, line in source_lines:
        spot = f"{where}:{number}"
        cells = _cells(line, spot, len(names))
        inputs, outputs = (_tokens(cells[at[i]], names[at[i]], spot) for i in (1, 2))
        seconds = _time(cells[at[0]], form, spot)
        if form.skip_empty and outputs == 0:
            left_out += 1
            continue
        if inputs < 1:
            raise input_error(
                "traces.row_out_of_range", where=spot, field=form.inputs, value=0, low=1, high=MAX_TOKENS
            )
        if len(rows) >= MAX_ROWS:
            raise input_error("traces.too_many_rows", where=spot, rows=MAX_ROWS, blocks=0)
        rows.append(number, seconds, inputs, outputs)
        if limit is not None and len(rows) >= limit:
            break
    if not rows:
        raise input_error("traces.empty_file", path=where)
    rows.from_start()
    source: dict[str, object] = {
        "kind": form.kind, "file": name_of(path), "sha256": sha256, "rows": len(rows), "failed_rows_left_out": left_out,
        "scale_lengths": scale, "content_known": False,
    }  # fmt: skip
    return Workload(source_id(source), name_of(path), rows, source, len(rows))


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in lines(path, MAX_LINE_BYTES):
        try:
            yield number, line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise input_error("traces.not_utf8", where=f"{path}:{number}", byte=error.start) from None


def _cells(line: str, where: str, columns: int | None) -> list[str]:
    """The cells of a line, as many as `columns` (None: any number)."""
    try:
        cells = next(csv.reader([line], strict=True), [])
    except csv.Error as error:
        raise input_error("traces.csv_quotes", where=where, reason=str(error)) from error
    if columns is not None and len(cells) != columns:
        raise input_error("traces.csv_cells", where=where, got=len(cells), want=columns)
    return cells


def _tokens(cell: str, field: str, where: str) -> int:
    text = cell.strip()
    if not (text.isascii() and text.isdigit()):
        raise input_error("traces.csv_number", where=where, field=field, value=text[:40])
    if len(text) > 12 or int(text) > MAX_TOKENS:
        raise input_error(
            "traces.row_out_of_range", where=where, field=field, value=text[:40], low=0, high=MAX_TOKENS
        )
    return int(text)


def _time(cell: str, form: _Format, where: str) -> float:
    try:
        found = form.seconds(cell.strip())
    except (ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found) or not 0 <= found < 1e11:
        raise _bad_time(cell, form.time, where)
    return found


def _bad_time(cell: str, field: str, where: str) -> ServemarkError:
    return input_error("traces.csv_number", where=where, field=field, value=cell.strip()[:40])


def _date_seconds(cell: str) -> float:
    """Seconds since 1970 of `2023-11-16 18:17:03.9799600`, with or without a zone; UTC without."""
    plain, dot, rest = cell.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :]
    found = datetime.fromisoformat(plain + zone)
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return found.timestamp() + (float(f"0.{digits}") if dot and digits else 0.0)


_AZURE = _Format(
    "azure", AZURE_COLUMNS, "TIMESTAMP", "ContextTokens", "GeneratedTokens", _date_seconds, skip_empty=False
)
_BURST = _Format(
    "burstgpt", BURST_COLUMNS, "Timestamp", "Request tokens", "Response tokens", float, skip_empty=True
)
