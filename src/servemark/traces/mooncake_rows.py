"""Mooncake rows as single requests at their recorded times; `chains.py` links them to sessions instead."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import overload

from servemark.traces.block_prompts import BlockPrompt, BlockRule, PackedStream
from servemark.traces.identity import source_id
from servemark.traces.mooncake import BLOCK_TOKENS, read_mooncake
from servemark.traces.trace_files import file_hash, name_of
from servemark.traces.types import Session, Turn, Workload


class MooncakeRequests(Sequence[Session]):
    """Sessions of one turn in order of arrival; block ids are shared by all rows of the file."""

    def __init__(self, path: Path, limit: int | None, scale: float) -> None:
        rows = read_mooncake(path)
        rows.sort(key=lambda row: row.timestamp_ms)
        first = rows[0].timestamp_ms
        self._scale = scale
        rows = rows[:limit]
        self._lines = array("Q", (row.line for row in rows))
        self._at = array("d", (round((row.timestamp_ms - first) / 1000, 6) for row in rows))
        self._tokens = array("Q", (row.input_length for row in rows))
        self._outputs = array("Q", (row.output_length for row in rows))
        self._ids = [array("Q", row.hash_ids) for row in rows]

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> Session: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Session]: ...
    def __getitem__(self, index: int | slice) -> Session | Sequence[Session]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        stream = PackedStream(BlockRule("mooncake", BLOCK_TOKENS, self._scale, local=False), "main", 1)
        ids = self._ids[index]
        stream.add((), ids if len(ids) else [0], self._tokens[index], None)
        output = max(1, round(self._outputs[index] * self._scale))
        turn = Turn(BlockPrompt(stream, 0), output, 0.0, 0.0)
        return Session(f"m{self._lines[index]:06d}", (turn,), start_s=self._at[index])


def mooncake_requests(path: Path, limit: int | None = None, scale: float = 1.0) -> Workload:
    """The workload of a Mooncake trace, a session a row. Raises what `read_mooncake` raises."""
    rows = MooncakeRequests(path, limit, scale)
    source: dict[str, object] = {
        "kind": "mooncake", "file": name_of(path), "sha256": file_hash(path), "rows": len(rows),
        "link_rule": "none", "block_tokens": BLOCK_TOKENS, "scale_lengths": scale,
    }  # fmt: skip
    return Workload(source_id(source), name_of(path), rows, source, len(rows))
