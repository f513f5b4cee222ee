"""Many nodes into one table: the odd one out is named, and lines that are none of ours are refused by place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.preflight.merge import Merged, merge_nodes, read_nodes

MakeLine = Callable[..., str]


def merged(tmp_path: Path, *lines: str) -> Merged:
    """Write the lines to a file, read and merge them."""
    file = tmp_path / "nodes.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return merge_nodes(read_nodes([file])[0])


def test_the_odd_node_is_named_with_its_facts(tmp_path: Path, line: MakeLine) -> None:
    """n3 has another kernel, fewer huge pages and populates ten times slower; n4 varies within what is usual."""
    odd = merged(
        tmp_path,
        line("n1"),
        line("n2"),
        line(
            "n3",
            kernel={"release": "6.5.0"},
            huge_pages={"2048kB": {"total": 9, "free": 9}},
            probe={"s": 2.0},
        ),
        line("n4", memory={"available_bytes": int(2.9 * 2**40)}, probe={"s": 0.25}),
    ).odd
    assert odd == {"n3": ("kernel", "huge_total", "huge_free", "probe_thp")}


def test_two_nodes_that_differ_have_no_majority(tmp_path: Path, line: MakeLine) -> None:
    """Nobody is called odd; both are shown."""
    both = merged(tmp_path, line("n1"), line("n2", thp={"enabled": "never"}))
    assert both.odd == {}
    (row,) = [row for row in both.rows if row.fact == "thp_enabled"]
    assert row.common is None and row.odd == {"n1": "madvise", "n2": "never"}


def test_a_fact_that_one_node_lacks_is_odd(tmp_path: Path, line: MakeLine) -> None:
    """Absent is absent, not equal to what the others have."""
    odd = merged(tmp_path, line("n1"), line("n2"), line("n3", memory={"total_bytes": None})).odd
    assert odd == {"n3": ("memory_total",)}


def test_gpu_memory_in_use_on_one_node(tmp_path: Path, line: MakeLine) -> None:
    """8 x 600 MiB are the driver's own; 60 GiB on one GPU is somebody's process."""
    used = [60 << 30, *[600 << 20] * 7]
    assert merged(tmp_path, line("n1"), line("n2"), line("n3", gpus={"used_bytes": used})).odd == {
        "n3": ("gpu_used",)
    }


def test_small_differences_of_gpu_memory_are_the_drivers(tmp_path: Path, line: MakeLine) -> None:
    """0.8 GiB against 2.3 GiB over eight GPUs: three times as much, but less than 2 GiB more."""
    low: dict[str, object] = {"used_bytes": [100 << 20] * 8}
    some: dict[str, object] = {"used_bytes": [300 << 20] * 8}
    assert merged(tmp_path, line("n1", gpus=low), line("n2", gpus=low), line("n3", gpus=some)).odd == {}
    odd = merged(tmp_path, line("n1", gpus=low), line("n2", gpus=low), line("n3")).odd
    assert odd == {"n3": ("gpu_used",)}  # 0.8 against 4.7 GiB


def test_one_node_and_equal_nodes(tmp_path: Path, line: MakeLine) -> None:
    """Nothing stands out."""
    assert merged(tmp_path, line("n1")).odd == {}
    assert merged(tmp_path, *(line(f"n{i}") for i in range(16))).odd == {}


def test_the_newest_line_of_a_node_counts(tmp_path: Path, line: MakeLine) -> None:
    """Whatever the order in the files; and it is said."""
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text(line("n1", taken_at=9.0, kernel={"release": "new"}))
    second.write_text(line("n1", taken_at=3.0, kernel={"release": "old"}) + "\n" + line("n2"))
    nodes, notes = read_nodes([first, second])
    assert [node.name for node in nodes] == ["n1", "n2"] and nodes[0].facts["kernel"]["release"] == "new"
    assert [note.key for note in notes] == ["preflight.merge_twice"]


@pytest.mark.parametrize(
    "bad",
    [
        "not json",
        "[1]",
        "{}",
        "[" * 100_000,
        '{"kind": "preflight", "schema": 2}',
        '{"kind": "preflight", "schema": 1, "node": "", "taken_at": 1, "findings": []}',
        '{"kind": "preflight", "schema": 1, "node": "n", "taken_at": true, "findings": []}',
        '{"kind": "preflight", "schema": 1, "node": "n", "taken_at": 1, "findings": [3]}',
    ],
)
def test_a_line_that_is_not_ours_is_refused_with_its_place(tmp_path: Path, line: MakeLine, bad: str) -> None:
    """file:line, exit code 2."""
    file = tmp_path / "nodes.jsonl"
    file.write_text(line("n1") + "\n" + bad + "\n", encoding="utf-8")
    with pytest.raises(ServemarkError) as caught:
        read_nodes([file])
    assert caught.value.key == "preflight.merge_bad_line" and caught.value.where == f"{file}:2"


def test_lines_that_a_shared_stream_mixed_are_refused(tmp_path: Path, line: MakeLine) -> None:
    """As `srun` without a file a node does with long lines: never half a table."""
    first, second = line("n1"), line("n2")
    file = tmp_path / "nodes.jsonl"
    file.write_text(first[:100] + second[:100] + first[100:] + "\n" + second[100:] + "\n")
    with pytest.raises(ServemarkError) as caught:
        read_nodes([file])
    assert "node-%N.jsonl" in (caught.value.next_step("en") or "")


def test_no_nodes_no_file_and_two_arms(tmp_path: Path, line: MakeLine) -> None:
    """Each has its own words."""
    empty, two = tmp_path / "empty", tmp_path / "two"
    empty.write_text("\n")
    two.write_text(line("n1") + "\n" + line("n2", arm="b"))
    for files, key in (
        ([empty], "merge_empty"),
        ([tmp_path / "none"], "merge_unreadable"),
        ([tmp_path], "merge_unreadable"),
        ([two], "merge_arms"),
        ([], "merge_none"),
    ):
        with pytest.raises(ServemarkError) as caught:
            read_nodes(files)
        assert caught.value.key == f"preflight.{key}"


def test_wrong_types_inside_facts_do_no_harm(tmp_path: Path, line: MakeLine) -> None:
    """Lists for numbers, texts for objects: shown or left out, never a trace."""
    strange = merged(
        tmp_path,
        line(
            "n1",
            memory={"total_bytes": [1]},
            huge_pages={"2048kB": "many"},
            gpus={"names": 3, "used_bytes": "x"},
        ),
        line("n2"),
        line("n3"),
    )
    assert "n1" in strange.odd and json.dumps(strange.plain(), allow_nan=False)
