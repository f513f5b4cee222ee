"""Linking rows into sessions and turning them into prompts: small cases by hand, and the published trace."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.traces.chains import link_chains, mooncake_workload, select_sessions
from servemark.traces.mooncake import MooncakeRow, read_mooncake
from servemark.traces.theory import theoretical_hit
from servemark.traces.types import Workload

TRACE = (
    Path(__file__).resolve().parents[3] / "shared" / "data" / "traces" / "mooncake_conversation_trace.jsonl"
)


def row(line: int, *ids: int, last: int = 512, at_ms: float = 0, output: int = 10) -> MooncakeRow:
    """A row whose last block holds `last` tokens."""
    return MooncakeRow(line, at_ms, (len(ids) - 1) * 512 + last, output, ids)


def lines(chains: list[tuple[MooncakeRow, ...]]) -> list[list[int]]:
    """Line numbers of each chain."""
    return [[r.line for r in chain] for chain in chains]


def write(path: Path, rows: list[MooncakeRow]) -> Path:
    """The rows as a trace file."""
    with path.open("w") as stream:
        for r in rows:
            fields = {"timestamp": r.timestamp_ms, "input_length": r.input_length}
            stream.write(
                json.dumps({**fields, "output_length": r.output_length, "hash_ids": r.hash_ids}) + "\n"
            )
    return path


def test_a_row_joins_the_chain_with_the_longest_shared_prefix() -> None:
    rows = [
        row(1, 0, 1, 2),
        row(2, 0, 5),  # shares one block only: not enough
        row(3, 0, 1, 9),  # shares two with line 1
        row(4, 0, 5, 6, 7),  # shares two with line 2
        row(5, 0, 1, 9, 8),  # shares three with line 3, which is of line 1's chain
        row(6, 4),
        row(7, 4),  # equal, but one block
        row(8, 0, 5, 6, 7),  # equal to line 4
    ]
    assert lines(link_chains(rows)) == [[1, 3, 5], [2, 4, 8], [6], [7]]
    assert lines(link_chains(rows, 1)) == [[1, 2, 3, 4, 5, 8], [6, 7]]
    assert lines(link_chains(rows, 3)) == [[1], [2], [3, 5], [4, 8], [6], [7]]


def test_a_prefix_is_of_the_leading_blocks_only() -> None:
    """Equal blocks elsewhere share no prefix."""
    assert lines(link_chains([row(1, 7, 1, 2), row(2, 8, 1, 2)])) == [[1], [2]]


def test_selection_by_length_and_order() -> None:
    ids = [(1, 1), (2, 2), (2, 2), (3, 3), (3, 3), (3, 3)]
    chains = link_chains([row(i, *found) for i, found in enumerate(ids)])
    assert lines(select_sessions(chains, 1, 2, 3)) == [[1, 2]]
    assert lines(select_sessions(chains, 2, 2, 3)) == [[1, 2], [3, 4, 5]]
    with pytest.raises(ServemarkError, match="has 2 sessions of 2 to 3 linked requests, fewer than the 3"):
        select_sessions(chains, 3, 2, 3)
    for bad in ((0, 1, 2), (1, 0, 2), (1, 3, 2)):
        with pytest.raises(ServemarkError) as caught:
            select_sessions(chains, *bad)
        assert caught.value.key == "traces.bad_selection"


def test_blocks_become_segments(tmp_path: Path) -> None:
    """By hand: 1,100 tokens in blocks of 512, 512, 76; scaled by 0.05 the borders are 25.6 -> 26, 51.2 -> 51,
    and the end 55; the second row ends in block 2 with 300 of its tokens -> 1,324 * 0.05 = 66.2 -> 66."""
    path = write(
        tmp_path / "t.jsonl",
        [row(1, 0, 1, 2, last=76, at_ms=1000), row(2, 0, 1, 2, last=300, at_ms=91_000, output=0)],
    )

    def shape(scale: float) -> list[list[tuple[str, list[tuple[str, int]]]]]:
        workload = mooncake_workload(path, sessions=1, scale_lengths=scale, min_turns=2, max_turns=2)
        return [
            [(m.role, [(s.id, s.tokens) for s in m.segments]) for m in t.messages]
            for t in workload.sessions[0].turns
        ]

    a, b, c = "mooncake/0", "mooncake/1", "mooncake/2"
    assert shape(1) == [
        [("system", [(a, 512)]), ("user", [(b, 512), (c, 76)])],
        [("system", [(a, 512)]), ("user", [(b, 512), (c, 300)])],
    ]
    assert shape(0.05) == [
        [("system", [(a, 26)]), ("user", [(b, 25), (c, 4)])],
        [("system", [(a, 26)]), ("user", [(b, 25), (c, 15)])],
    ]
    assert shape(0.00001) == [[("user", [(a, 1)])], [("user", [(a, 1)])]]


def test_think_times_and_outputs(tmp_path: Path) -> None:
    """Gaps of 90 s, -5 s and 2 s: capped at 60, clamped to 0, and scaled by a tenth."""
    times = (1000, 91_000, 86_000, 88_000)
    rows = [row(i + 1, 0, 1, at_ms=at, output=7 * i) for i, at in enumerate(times)]
    path = write(tmp_path / "t.jsonl", rows)
    workload = mooncake_workload(path, sessions=1, scale_lengths=0.5, think_scale=0.1, think_cap_s=60)
    turns = workload.sessions[0].turns
    assert [t.think_s for t in turns] == [0, 6.0, 0, 0.2]
    assert [t.output_tokens for t in turns] == [1, 4, 7, 10]  # 0 -> at least 1; 3.5 -> even 4; 10.5 -> 10


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("scale_lengths", 0.0),
        ("scale_lengths", -1.0),
        ("scale_lengths", math.nan),
        ("scale_lengths", 1e9),
        ("think_scale", -0.1),
        ("think_cap_s", math.inf),
    ],
)
def test_options_out_of_range(tmp_path: Path, option: str, value: float) -> None:
    with pytest.raises(ServemarkError) as caught:
        mooncake_workload(tmp_path / "none", **{"sessions": 1, option: value})  # type: ignore[arg-type]
    assert caught.value.key == "traces.option_out_of_range"
    assert option in caught.value.what("zh")


def test_scaled_prompts_are_bounded(tmp_path: Path) -> None:
    """300 blocks of 512 tokens, a hundred times as long, are 15,360,000; 10,000,000 are allowed."""
    ids = tuple(range(300))
    path = write(tmp_path / "t.jsonl", [row(1, *ids), row(2, *ids)])
    with pytest.raises(ServemarkError) as caught:
        mooncake_workload(path, sessions=1, scale_lengths=100, min_turns=2, max_turns=2)
    assert caught.value.key == "traces.prompt_too_long"
    assert caught.value.where == f"{path}:1"


def test_a_file_name_that_is_no_text(tmp_path: Path) -> None:
    path = write(tmp_path / "t\udcff.jsonl", [row(1, 0, 1), row(2, 0, 1)])
    workload = mooncake_workload(path, sessions=1, min_turns=2, max_turns=2)
    assert json.dumps(workload.source, ensure_ascii=False).encode()


def longest(workload: Workload) -> int:
    """Input tokens of the longest prompt."""
    return max(t.input_tokens or 0 for s in workload.sessions for t in s.turns)


@pytest.mark.corpus
def test_the_published_trace() -> None:
    """Figures that were worked out from the trace with another program: 12,031 rows, 38 requests in the first
    eight chains of 4 to 6, longest prompt 31,573 tokens, 0.6312384 of all blocks and 0.6421 of all tokens
    shared."""
    if not TRACE.is_file():
        pytest.skip("the published Mooncake trace is not here")
    began = time.process_time()
    rows = read_mooncake(TRACE)
    chains = link_chains(rows)
    spent = time.process_time() - began
    assert len(rows) == 12_031
    assert len(chains) == 7_373
    assert spent < 0.5
    assert [c[0].line for c in select_sessions(chains, 8)] == [4, 19, 25, 41, 44, 46, 63, 73]
    workload = mooncake_workload(TRACE, sessions=8)
    assert workload.requests == 38
    assert longest(workload) == 31_573
    hit = theoretical_hit(workload)
    assert hit.blocks == pytest.approx(0.6312384, abs=1e-6)
    assert hit.tokens == pytest.approx(0.6421, abs=5e-5)
    small = mooncake_workload(TRACE, sessions=8, scale_lengths=0.05)
    assert longest(small) == 1579  # round(31,573 * 0.05)
    scaled = theoretical_hit(small).tokens
    assert scaled == pytest.approx(0.6421, abs=5e-4)
    assert small.id != workload.id
