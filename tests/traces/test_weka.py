"""Weka sessions: trees, joins, gaps and prompts by hand; bad sessions with their place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from servemark.base.errors import ServemarkError
from servemark.traces.open import TraceOptions, open_workload
from servemark.traces.types import Session


def row(t: float, tokens: int, out: int, ids: list[int], **more: object) -> dict[str, Any]:
    """A request of 1 s."""
    return {
        "t": t,
        "type": "s",
        "model": "m",
        "in": tokens,
        "out": out,
        "hash_ids": ids,
        "api_time": 1.0,
        **more,
    }


def group(t: float, agent: str, rows: list[dict[str, Any]], **more: object) -> dict[str, Any]:
    """A sub-agent marker."""
    return {
        "t": t, "type": "subagent", "agent_id": agent, "subagent_type": "x", "duration_ms": None,
        "total_tokens": None, "tool_use_count": None, "status": "completed", "models": ["m"], "requests": rows, **more,
    }  # fmt: skip


def session(rows: list[dict[str, Any]], **more: object) -> dict[str, Any]:
    """A session of 64-token blocks."""
    return {"id": "s", "models": ["m"], "block_size": 64, "hash_id_scope": "local", "requests": rows, **more}


def read(path: Path, found: dict[str, Any], options: TraceOptions | None = None) -> Session:
    """Write one session and read it back."""
    path = path / "s.json"
    path.write_text(json.dumps(found), encoding="utf-8")
    return open_workload(path, options).sessions[0]


def shape(found: Session, number: int) -> list[tuple[str, int]]:
    """(role, tokens) of a prompt's messages."""
    return [(m.role, m.tokens or 0) for m in found.turns[number].messages]


def test_prompts_grow_and_are_cut_where_the_trace_cuts_them(tmp_path: Path) -> None:
    """Blocks of 64. Turn 2 adds 3 blocks, its reply fills one (70 // 64). Turn 3 drops back to 2 blocks and adds
    one; the tail of 10 tokens belongs to nobody else."""
    found = read(
        tmp_path,
        session(
            [
                row(0, 256, 70, [1, 2, 3, 4]),
                row(5, 448, 10, [1, 2, 3, 4, 5, 6, 7], think_time=2.5),
                row(9, 202, 10, [1, 2, 8]),
            ],
            tool_tokens=30,
            system_tokens=50,
            totals={"in": 906},
        ),
    )
    assert shape(found, 0) == [("system", 128), ("user", 128)]
    assert shape(found, 1) == [("system", 128), ("user", 128), ("assistant", 64), ("user", 128)]
    assert shape(found, 2) == [("system", 128), ("user", 74)]
    assert [t.input_tokens for t in found.turns] == [256, 448, 202]
    assert [t.think_s for t in found.turns] == [0.0, 2.5, 3.0]
    assert [t.at_s for t in found.turns] == [0, 5, 9]
    first, second = list(found.turns[0].messages), list(found.turns[1].messages)
    assert second[:2] == first
    tail = found.turns[2].messages[1].segments[-1]
    assert (tail.tokens, tail.id) == (10, "weka/s/main/tail2")


def test_sub_agents_join_the_first_turn_after_their_end(tmp_path: Path) -> None:
    """A runs 2..4 beside main turn 0 (0..1) and joins turn 1 at t=10: 10 - max(1, 4) = 6 s of thinking. B runs
    over turn 1 and joins turn 2. C ends after the last turn: nothing waits for it."""
    found = read(
        tmp_path,
        session(
            [
                row(0, 64, 5, [1]),
                group(2, "a", [row(2, 64, 5, [9]), row(3, 128, 5, [9, 10], think_time=0.25)]),
                group(2, "b", [row(2.5, 64, 5, [11], api_time=10)]),
                row(10, 128, 5, [1, 2], think_time=9.0),
                row(20, 192, 5, [1, 2, 3]),
                group(30, "c", [row(30, 64, 5, [12], api_time=100)]),
            ]
        ),
    )
    a, b, c = found.children
    assert (a.after_turn, a.joins_turn, a.delay_s, len(a.turns)) == (0, 1, 1.0, 2)
    assert (b.after_turn, b.joins_turn, b.delay_s) == (0, 2, 1.5)
    assert (c.after_turn, c.joins_turn, c.delay_s) == (2, None, 9.0)
    assert a.turns[1].think_s == 0.25
    assert found.turns[1].think_s == 6.0
    assert found.turns[2].think_s == 20 - 12.5
    assert found.requests == 7


def test_overlapping_rows_of_a_group_are_streams_of_their_own(tmp_path: Path) -> None:
    """Rows 0 and 1 overlap; row 2 goes on from row 1, whose front it shares. Times count from the marker."""
    found = read(
        tmp_path,
        session(
            [
                row(0, 64, 5, [1]),
                group(100, "a", [row(0, 64, 1, [5]), row(0.5, 64, 1, [6]), row(2, 128, 1, [6, 7])]),
            ]
        ),
    )
    assert [(c.id, len(c.turns), c.delay_s) for c in found.children] == [("a", 1, 99.0), ("a.2", 2, 99.5)]
    assert found.children[1].turns[1].think_s == 0.5


def test_nested_and_repeated_sub_agents(tmp_path: Path) -> None:
    inner = group(3, "deep", [row(3, 64, 1, [7])])
    found = read(
        tmp_path,
        session(
            [
                row(0, 64, 5, [1]),
                group(2, "a", [row(2, 64, 1, [5], api_time=0.5), inner, row(9, 128, 1, [5, 6])]),
                group(12, "a", [row(12, 64, 1, [8])]),
            ]
        ),
    )
    assert [c.id for c in found.descendants()] == ["a", "deep", "a#2"]
    deep = found.children[0].children[0]
    assert (deep.after_turn, deep.joins_turn, deep.delay_s) == (0, 1, 0.5)


def test_lengths_and_gaps_are_scaled(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        session([row(0, 200, 10, [1, 2, 3]), row(50, 256, 4, [1, 2, 3, 4])]),
        TraceOptions(scale_lengths=0.5, think_scale=0.1, think_cap_s=20),
    )  # fmt: skip
    assert [t.input_tokens for t in found.turns] == [100, 128]
    assert [sum(m.tokens or 0 for m in t.messages) for t in found.turns] == [100, 128]
    assert [t.output_tokens for t in found.turns] == [5, 2]
    assert found.turns[1].think_s == 2.0


def test_a_folder_and_its_lines_are_the_same_sessions(tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    made = [session([row(0, 64 * (i + 1), 5, list(range(i + 1)))], id=f"s{i}") for i in range(3)]
    for one in made:
        (folder / f"{one['id']}.json").write_text(json.dumps(one), encoding="utf-8")
    (folder / "README.md").write_text("not a trace", encoding="utf-8")
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    text = "\n".join(map(json.dumps, made)) + "\n"
    (tmp_path / "lines.jsonl").write_text(text, encoding="utf-8")
    (tmp_path / "lines.json").write_text(text, encoding="utf-8")
    (tmp_path / "bom.jsonl").write_text("\ufeff" + text, encoding="utf-8")
    with gzip.open(tmp_path / "packed.jsonl.gz", "wb") as stream:
        stream.write(text.encode())
    found = [
        open_workload(p)
        for p in (
            folder,
            *(tmp_path / f for f in ("lines.jsonl", "lines.json", "bom.jsonl", "packed.jsonl.gz")),
        )
    ]
    for workload in found:
        assert [s.id for s in workload.sessions] == ["s0", "s1", "s2"]
        assert [s.turns[0].input_tokens for s in workload.sessions] == [64, 128, 192]
        assert workload.requests == 3
    assert [s.id for s in open_workload(folder, TraceOptions(sessions=2)).sessions[1:]] == ["s1"]


BAD: list[tuple[str, object, str, str]] = [
    ("unknown key", session([row(0, 64, 1, [1])], surprise=1), "traces.weka_wrong", "surprise"),
    ("unknown row key", session([row(0, 64, 1, [1], extra=2)]), "traces.weka_wrong", "extra"),
    ("global ids", session([row(0, 64, 1, [1])], hash_id_scope="global"), "traces.weka_wrong", "hash_id_scope"),
    ("absurd tokens", session([row(0, 10**18, 1, [1])]), "traces.weka_wrong", "in"),
    ("negative", session([row(0, 64, -1, [1])]), "traces.weka_wrong", "out"),
    ("negative time", session([row(-1, 64, 1, [1])]), "traces.weka_wrong", "t"),
    ("too many blocks", session([row(0, 64, 1, [1, 2])]), "traces.weka_blocks", "2"),
    ("no tokens", session([row(0, 0, 1, [])]), "traces.weka_blocks", "0"),
    ("system too large", session([row(0, 64, 1, [1])], tool_tokens=65), "traces.weka_system", "2"),
    ("only sub-agents", session([group(0, "a", [row(0, 64, 1, [1])])]), "traces.weka_no_main", "s"),
    ("no blocks", session([{"t": 0, "type": "n", "in": 5, "out": 1}]), "traces.weka_missing", "hash_ids"),
    ("no length", session([{"t": 0, "type": "n", "out": 1}]), "traces.weka_missing", "in"),
    ("no requests", session([]), "traces.weka_wrong", "requests"),
    ("no id", session([row(0, 64, 1, [1])], id=""), "traces.weka_wrong", "id"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "key", "said"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_sessions(tmp_path: Path, found: dict[str, Any], key: str, said: str) -> None:
    with pytest.raises(ServemarkError) as caught:
        read(tmp_path, found)
    assert caught.value.key == key
    assert (caught.value.where or "").startswith(str(tmp_path / "s.json"))
    assert said in str(caught.value)


def test_too_deep_is_refused(tmp_path: Path) -> None:
    rows = [row(1, 64, 1, [1])]
    for depth in range(30):
        rows = [row(1, 64, 1, [1]), group(1, f"a{depth}", rows)]
    with pytest.raises(ServemarkError) as caught:
        read(tmp_path, session(rows))
    assert caught.value.key == "traces.weka_deep"
    nest = '{"t":1,"type":"subagent","agent_id":"a","requests":['
    deep = (
        '{"id":"s","block_size":64,"hash_id_scope":"local","requests":['
        + nest * 50_000
        + "]}" * 50_000
        + "]}"
    )
    (tmp_path / "s.json").write_text(deep, encoding="utf-8")
    with pytest.raises(ServemarkError) as caught:
        _ = open_workload(tmp_path / "s.json", TraceOptions(format="weka")).sessions[0]
    assert caught.value.key == "traces.bad_json"


def test_the_same_session_twice_names_both_places(tmp_path: Path) -> None:
    line = json.dumps(session([row(0, 64, 1, [1])])) + "\n"
    path = tmp_path / "t.jsonl"
    path.write_text(line + "\n" + line, encoding="utf-8")
    with pytest.raises(ServemarkError) as caught:
        open_workload(path)
    assert (caught.value.key, caught.value.where) == ("traces.duplicate_session", f"{path}:3")
    assert f"{path}:1" in str(caught.value)


def test_a_file_that_shrinks_while_it_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(session([row(0, 64, 1, [1])])) + "\n", encoding="utf-8")
    workload = open_workload(path)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(ServemarkError) as caught:
        _ = workload.sessions[0]
    assert caught.value.key == "traces.file_changed"
