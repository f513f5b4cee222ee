"""Reader for Mooncake traces: one JSON object a line {timestamp, input_length, output_length, hash_ids}.

`timestamp` is milliseconds since the trace began, lengths are tokens, `hash_ids` names the 512-token blocks
of the prompt (the last block may be partial): equal ids are equal text. The file may be gzip-compressed.
Trace files are untrusted: lines, rows, blocks and decompressed bytes are bounded, and a line that is not what
it should be ends the reading with its file and line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from servemark.base.errors import ServemarkError, input_error
from servemark.traces.trace_files import MAX_FILE_BYTES, lines

BLOCK_TOKENS = 512
MAX_LINE_BYTES = 4_000_000
MAX_ROWS = 2_000_000
MAX_BLOCKS = 10_000_000
MAX_TOKENS = 10_000_000
"""Of one prompt or output: ten times the longest context that anyone serves today."""
MAX_TIMESTAMP_MS = 10**15
MAX_HASH_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class MooncakeRow:
    """One request of a trace. `line` counts from 1."""

    line: int
    timestamp_ms: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


class _Raw(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


def read_mooncake(path: Path) -> list[MooncakeRow]:
    """All rows of a trace in file order; blank lines are skipped.

    Raises ServemarkError (exit code 2) for a file that is missing, unreadable, empty, cut off or too large,
    and for the first malformed line, with `file:line` in front.
    """
    rows: list[MooncakeRow] = []
    decoder = msgspec.json.Decoder(_Raw)
    blocks = 0
    for number, line in lines(path, MAX_LINE_BYTES, MAX_FILE_BYTES):
        try:
            raw = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise _diagnosis(path, number, line) from None
        count = len(raw.hash_ids)
        if not _plausible(raw) or count != -(-raw.input_length // BLOCK_TOKENS):
            raise _diagnosis(path, number, line)
        blocks += count
        if len(rows) >= MAX_ROWS or blocks > MAX_BLOCKS:
            raise input_error("traces.too_many_rows", where=str(path), rows=MAX_ROWS, blocks=MAX_BLOCKS)
        rows.append(MooncakeRow(number, raw.timestamp, raw.input_length, raw.output_length, raw.hash_ids))
    if not rows:
        raise input_error("traces.empty_file", path=str(path))
    return rows


def _plausible(raw: _Raw) -> bool:
    return (
        0 <= raw.timestamp <= MAX_TIMESTAMP_MS
        and 1 <= raw.input_length <= MAX_TOKENS
        and 0 <= raw.output_length <= MAX_TOKENS
        and bool(raw.hash_ids)
        and min(raw.hash_ids) >= 0
        and max(raw.hash_ids) <= MAX_HASH_ID
    )


_FIELDS: tuple[tuple[str, int, int, bool], ...] = (
    ("timestamp", 0, MAX_TIMESTAMP_MS, False),
    ("input_length", 1, MAX_TOKENS, True),
    ("output_length", 0, MAX_TOKENS, True),
)


def _diagnosis(path: Path, number: int, line: bytes) -> ServemarkError:
    """Why a line is not a row: the first thing that is wrong with it."""
    where = f"{path}:{number}"
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return input_error("traces.bad_json", where=where, reason=str(error)[:200])
    if not isinstance(found, dict):
        return input_error("traces.row_not_object", where=where)
    problems = _problems(where, found)
    # A row that only the typed decoder refuses (a repeated field, say) is still no row.
    return next(problems, None) or input_error("traces.row_not_object", where=where)


def _problems(where: str, row: dict[str, object]) -> Iterator[ServemarkError]:
    for name in (*(field[0] for field in _FIELDS), "hash_ids"):
        if name not in row:
            yield input_error("traces.row_missing_field", where=where, field=name)
    for name, low, high, whole in _FIELDS:
        yield from _number_problem(where, name, row[name], low, high, whole=whole)
    ids = row["hash_ids"]
    if not isinstance(ids, list):
        yield input_error("traces.row_wrong_type", where=where, field="hash_ids", expected="list")
        return
    for index, value in enumerate(ids):
        yield from _number_problem(where, f"hash_ids[{index}]", value, 0, MAX_HASH_ID, whole=True)
    tokens = row["input_length"]
    want = -(-tokens // BLOCK_TOKENS) if isinstance(tokens, int) else 0
    if len(ids) != want:
        yield input_error(
            "traces.row_wrong_blocks",
            where=where,
            got=len(ids),
            want=want,
            tokens=tokens,
            block=BLOCK_TOKENS,
        )


def _number_problem(
    where: str, field: str, value: object, low: int, high: int, *, whole: bool
) -> Iterator[ServemarkError]:
    of_kind = isinstance(value, int) if whole else isinstance(value, int | float)
    if not isinstance(value, int | float) or isinstance(value, bool) or not of_kind:
        expected = "integer" if whole else "number"
        yield input_error("traces.row_wrong_type", where=where, field=field, expected=expected)
    elif not low <= value <= high:
        yield input_error(
            "traces.row_out_of_range", where=where, field=field, value=value, low=low, high=high
        )
