"""Every format by its content, by hand; and files that are no trace: each ends in one error with its place."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.traces.open import TraceOptions, detect, open_workload
from servemark.traces.random_lengths import RandomLengths, parse_spec, random_workload

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def written(path: Path, text: str) -> Path:
    """The file, written."""
    path.write_text(text, encoding="utf-8")
    return path


def test_azure(tmp_path: Path) -> None:
    """Rows in order of time, counted from the first; seven digits of a second, and a zone in the 2024 files."""
    found = open_workload(
        written(
            tmp_path / "a.csv",
            AZURE + "2023-11-16 18:17:04.5000000,30,4\n2023-11-16 18:17:03.9799600,4808,10\n"
            "2023-11-16 18:17:05.000000+00:00,7,1\n",
        )
    )
    assert found.source["kind"] == "azure"
    assert [s.start_s for s in found.sessions] == [0.0, 0.52004, 1.02004]
    assert [s.turns[0].input_tokens for s in found.sessions] == [4808, 30, 7]
    assert [s.turns[0].output_tokens for s in found.sessions] == [10, 4, 1]
    assert [s.id for s in found.sessions] == ["r0000003", "r0000002", "r0000004"]


def test_burstgpt(tmp_path: Path) -> None:
    """Failed rows are left out and counted; the newer files have two columns more."""
    old = (
        BURST
        + "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,0,0,0,API log\n118,GPT-4,417,276,693,API log\n"
    )
    found = open_workload(written(tmp_path / "b.csv", old))
    assert (found.source["kind"], found.source["failed_rows_left_out"]) == ("burstgpt", 1)
    assert [(s.start_s, s.turns[0].input_tokens) for s in found.sessions] == [(0.0, 472), (113.0, 417)]
    new = (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\r\n"
        '1.5,"a,b",2.0,GPT-4,10,20,30,Conversation log\r\n'
    )
    newer = open_workload(written(tmp_path / "c.csv", new)).sessions[0]
    assert (newer.turns[0].input_tokens, newer.turns[0].output_tokens) == (10, 20)


def test_sharegpt(tmp_path: Path) -> None:
    """Two replies make two turns; what nobody answered is left out; one id may stand twice."""
    talk = [
        {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"},
        {"from": "human", "value": "c\u4e2d"}, {"from": "gpt", "value": "d"}, {"from": "human", "value": "e"},
    ]  # fmt: skip
    data = [
        {"id": "x", "conversations": talk},
        {"id": "x", "conversations": talk[:2]},
        {"id": "y", "conversations": []},
    ]
    found = open_workload(written(tmp_path / "s.json", json.dumps(data)))
    assert [s.id for s in found.sessions] == ["x", "x#2"]
    assert found.source["conversations_without_reply"] == 1
    second = found.sessions[0].turns[1]
    assert [json.loads(m.raw or b"") for m in second.messages] == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c\u4e2d"},
    ]
    assert (second.input_tokens, second.output_tokens) == (None, None)
    lines = open_workload(written(tmp_path / "s.jsonl", "\n".join(map(json.dumps, data))))
    assert [s.turns for s in lines.sessions] == [s.turns for s in found.sessions]


def test_messages(tmp_path: Path) -> None:
    """Appended turns, tools, tool calls kept as they stand, tokens that are not sent, a single request."""
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {}}],
    }
    lines = [
        {
            "id": "s", "start_s": 1.5, "tools": [{"type": "function"}],
            "turns": [
                {"messages": [{"role": "user", "content": "hi", "tokens": 3}], "output_tokens": 9},
                {"append": [call, {"role": "tool", "content": "x"}], "think_s": 2, "at_s": 7},
            ],
            "children": [
                {"id": "c", "after_turn": 0, "delay_s": 0.5, "joins_turn": 1,
                 "turns": [{"messages": [{"role": "user", "segments": [["a", 5], ["b", 6]]}]}]},
            ],
        },
        {"messages": [{"role": "user", "content": "alone"}], "output_tokens": 4},
    ]  # fmt: skip
    found = open_workload(written(tmp_path / "m.jsonl", "\n".join(map(json.dumps, lines))))
    first, second = found.sessions
    assert (found.requests, first.id, second.id) == (4, "s", "line2")
    assert first.turns[0].messages[0].raw == b'{"role":"user","content":"hi"}'
    assert (first.turns[0].input_tokens, first.turns[1].input_tokens) == (3, None)
    assert json.loads(first.turns[1].messages[1].raw or b"") == call
    assert json.loads(first.turns[0].tools or b"") == [{"type": "function"}]
    child = first.children[0]
    assert (child.turns[0].input_tokens, child.joins_turn, child.delay_s) == (11, 1, 0.5)
    assert second.turns[0].output_tokens == 4


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('{"turns":[{"messages":[{"role":"user"}]}],"children":[{"id":"c","after_turn":0,"joins_turn":0,'
         '"turns":[{"messages":[{"role":"user"}]}]}]}', "traces.child_join"),
        ('{"turns":[{"messages":[{"role":"user"}]}],"children":[{"id":"c","after_turn":3,'
         '"turns":[{"messages":[{"role":"user"}]}]}]}', "traces.child_after"),
        ('{"turns":[{"messages":[{"role":"user"}]}],"children":[{"id":"c","after_turn":0,'
         '"turns":[{"messages":[{"role":"user"}]}]},{"id":"c","after_turn":0,'
         '"turns":[{"messages":[{"role":"user"}]}]}]}', "traces.child_twice"),
        ('{"turns":[{"messages":[{"role":"robot"}]}]}', "traces.messages_role"),
        ('{"turns":[{"messages":[]}]}', "traces.messages_empty"),
        ('{"turns":[{}]}', "traces.messages_one_of"),
        ('{"turns":[{"append":[{"role":"user"}],"messages":[{"role":"user"}]}]}', "traces.messages_one_of"),
        ('{"turns":[{"messages":[{"role":"user"}]}],"messages":[]}', "traces.messages_one_of"),
        ('{"messages":[{"role":"user"}],"tools":{}}', "traces.messages_tools"),
        ('{"messages":[{"role":"user"}],"temperature":1}', "traces.messages_wrong"),
        ('{"messages":[{"role":"user","segments":[["a",1e18]]}]}', "traces.messages_wrong"),
        ('{"messages":[{"role":"user","segments":[["a",-1]]}]}', "traces.messages_wrong"),
        ('{"messages":[{"role":"user"}],"output_tokens":NaN}', "traces.bad_json"),
        ('{"messages":[{"role":"user","content":"\ud800"}]}', "traces.bad_json"),
    ],
)  # fmt: skip
def test_bad_messages(tmp_path: Path, line: str, key: str) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(line.encode("utf-8", "surrogatepass") + b"\n")
    with pytest.raises(ServemarkError) as caught:
        _ = list(open_workload(path, TraceOptions(format="messages")).sessions)
    assert caught.value.key == key
    assert (caught.value.where or "").startswith(f"{path}:1")


def test_random_lengths() -> None:
    """vLLM's rule: 1000 +- 20 %; SGLang's: 200 to 1000. The same seed gives the same workload."""
    for spec, low, high in (
        ("random:isl=1000,osl=100,ratio=0.2,requests=400", 800, 1200),
        ("random:isl=1000,osl=100,ratio=0.2,rule=sglang,requests=400", 200, 1000),
        ("random:isl=1000,osl=100,requests=50", 1000, 1000),
    ):
        found = open_workload(spec)
        lengths = [s.turns[0].input_tokens or 0 for s in found.sessions]
        assert low <= min(lengths) <= max(lengths) <= high
        assert max(lengths) - min(lengths) >= (high - low) * 0.9
        assert found.id == open_workload(spec).id
    shared = random_workload(RandomLengths(10, 5, 3, prefix_tokens=7))
    assert {s.turns[0].messages[0].segments[0] for s in shared.sessions} == {
        shared.sessions[0].turns[0].messages[0].segments[0]
    }
    assert parse_spec("random:isl=5,osl=6").bounds(5) == (5, 5)


@pytest.mark.parametrize(
    "spec",
    [
        "random:", "random:isl=5", "random:isl=5,osl=x", "random:isl=5,osl=6,isl=7", "random:isl=5,osl=6,what=1",
        "random:isl=-5,osl=6", "random:isl=5,osl=6,ratio=1", "random:isl=5,osl=6,ratio=nan", "random:isl=5,osl=6,rule=x",
        "random:isl=1000000000000000000,osl=6", "random:isl=5,osl=6,requests=99999999999",
        "random:isl=5,osl=6,ratio=0,rule=sglang",
    ],
)  # fmt: skip
def test_bad_specs(spec: str) -> None:
    with pytest.raises(ServemarkError) as caught:
        open_workload(spec)
    assert caught.value.exit_code == 2


def test_no_trace_at_all(tmp_path: Path) -> None:
    """Each kind of thing that a path may name."""
    empty = written(tmp_path / "empty.jsonl", "\n \n")
    other = written(tmp_path / "notes.txt", "hello there")
    binary = tmp_path / "x.bin"
    binary.write_bytes(b"\x7fELF\0\0\0" * 100)
    latin = tmp_path / "l.csv"
    latin.write_bytes(AZURE.encode() + b"2023-11-16 18:17:04,30,4\xe9\n")
    utf16 = tmp_path / "u.jsonl"
    utf16.write_bytes('{"messages":[{"role":"user"}]}\n'.encode("utf-16"))
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(os.urandom(5000))[:-40])
    cut_json = written(tmp_path / "cut.json", '{"id":"s","block_size":64,"requests":[{"t":0,')
    folder = tmp_path / "others"
    folder.mkdir()
    written(folder / "a.txt", "x")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    fifo = tmp_path / "fifo.jsonl"
    os.mkfifo(fifo)
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    written(
        mixed / "a.json",
        '{"id":"s","block_size":64,"hash_id_scope":"local","requests":[{"t":0,"type":"n","in":1,"out":1,"hash_ids":[]}]}',
    )
    written(mixed / "package.json", '{"name":"x"}')
    (mixed / "sub").symlink_to(mixed, target_is_directory=True)
    wrong: list[tuple[Path, str]] = [
        (empty, "traces.empty_file"), (other, "traces.unknown_format"), (binary, "traces.unknown_format"),
        (latin, "traces.not_utf8"), (utf16, "traces.unknown_format"), (cut, "traces.bad_gzip"),
        (cut_json, "traces.bad_json"), (folder, "traces.empty_folder"), (loop, "traces.cannot_read"),
        (fifo, "traces.not_a_file"), (tmp_path / "none", "traces.no_such_file"), (Path("a\0b"), "traces.no_such_file"),
        (mixed, "traces.weka_wrong"), (Path("/dev/zero"), "traces.not_a_file"),
    ]  # fmt: skip
    torn = tmp_path / "torn.csv"
    torn.write_bytes(AZURE.replace(",", ",\r", 1).encode())
    wrong.append((torn, "traces.csv_quotes"))
    for path, key in wrong:
        with pytest.raises(ServemarkError) as caught:
            open_workload(path)
        assert (path, caught.value.key, caught.value.exit_code) == (path, key, 2)


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ("2023-11-16 18:17:04,30", "traces.csv_cells"),
        ("2023-11-16 18:17:04,30,-4", "traces.csv_number"),
        ("2023-11-16 18:17:04,1e18,4", "traces.csv_number"),
        ("2023-11-16 18:17:04,1000000000000000000,4", "traces.row_out_of_range"),
        ("2023-11-16 18:17:04,NaN,4", "traces.csv_number"),
        ("2023-13-99 18:17:04,3,4", "traces.csv_number"),
        ("2023-11-16 18:17:04,0,4", "traces.row_out_of_range"),
        ('"2023-11-16 18:17:04,3,4', "traces.csv_quotes"),
        ("2023-11-16 18:17:04,3\r5,4", "traces.csv_quotes"),
        ("x" * 70_000, "traces.line_too_long"),
    ],
)
def test_bad_rows(tmp_path: Path, row: str, key: str) -> None:
    path = written(tmp_path / "a.csv", AZURE + "2023-11-16 18:17:03,30,4\n" + row + "\n")
    with pytest.raises(ServemarkError) as caught:
        open_workload(path)
    assert (caught.value.key, caught.value.where) == (key, f"{path}:3")


def test_formats_are_told_by_content_not_by_name(tmp_path: Path) -> None:
    found = {
        "azure": AZURE + "2023-11-16 18:17:03,30,4\n",
        "burstgpt": BURST,
        "mooncake": '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0]}\n',
        "sharegpt": '[{"conversations": []}]',
        "messages": '{"messages": []}\n',
        "weka": '{\n "id": "s",\n "requests": []\n}',
    }
    for kind, text in found.items():
        assert detect(written(tmp_path / "data.txt", text)) == kind
    recipe = written(tmp_path / "r.yaml", "seed: 1\nsessions: 2\n")
    assert detect(recipe) == "recipe"


def test_the_shipped_recipe_opens() -> None:
    """The quickstart's recipe, by the same door."""
    root = Path(__file__).resolve().parents[2] / "suites" / "quickstart"
    recipe = next(p for p in sorted(root.rglob("*.yaml")) if "system_tokens" in p.read_text(encoding="utf-8"))
    assert len(open_workload(recipe, TraceOptions(sessions=2)).sessions) == 2
