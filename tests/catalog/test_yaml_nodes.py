"""The YAML reader: positions, YAML 1.1 scalars, merges, and every kind of bad input with a place and no
trace.

Expected values of scalars are PyYAML's own, read in the same test; positions are counted by hand.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from servemark.base.errors import ServemarkError
from servemark.catalog.nodes import Node, Problem, errors_of
from servemark.catalog.yaml_nodes import MAX_BYTES, parse_yaml, read_yaml, resolve_scalar


def parse(text: str | bytes) -> tuple[Node, list[Problem]]:
    """Parse a text under the name `f`."""
    return parse_yaml(text.encode() if isinstance(text, str) else text, "f")


def only(problems: list[Problem]) -> tuple[str, str]:
    """(position, key) of the one problem."""
    assert len(problems) == 1, problems
    return str(problems[0].at), problems[0].key


def node(root: Node, *path: str | int) -> Node:
    """Walk down by keys and indexes."""
    for part in path:
        children: list[Node] | dict[str, Node] | None = root.items if isinstance(part, int) else root.entries
        assert children is not None
        root = children[part]  # type: ignore[index]
    return root


def test_every_scalar_keeps_its_position() -> None:
    """Lines and columns from 1, keys apart from values, block and flow style."""
    root, problems = parse("a: 1\nb:\n  - x\n  - {c: 2, d: [3]}\n")
    assert not problems
    assert str(node(root, "a").at) == "f:1:4"
    assert str(node(root, "b", 0).at) == "f:3:5"
    assert str(node(root, "b", 1, "d", 0).at) == "f:4:16"
    assert str(node(root, "b", 1).key_at("d")) == "f:4:12"


def test_positions_go_through_anchors_aliases_and_merges() -> None:
    """An aliased value stands where it is written; the mapping's own key wins over a merged one."""
    root, problems = parse(
        "x: &x {a: 1, b: 2}\ny: *x\nz:\n  b: 3\n  <<: *x\nw: {<<: [{a: 7}, {a: 8, c: 9}]}\n"
    )
    assert not problems
    assert str(node(root, "y", "a").at) == "f:1:11"
    assert root.plain() == yaml.safe_load(
        "x: &x {a: 1, b: 2}\ny: *x\nz:\n  b: 3\n  <<: *x\nw: {a: 7, c: 9}\n"
    )
    assert str(node(root, "z", "a").at) == "f:1:11" and str(node(root, "z").key_at("a")) == "f:1:8"
    assert str(node(root, "z", "b").at) == "f:4:6"


@pytest.mark.parametrize(
    "text",
    [
        "3_977_095",
        "12:00:00",
        "8:00:00",
        "04:00:00",
        "yes",
        "No",
        "on",
        "OFF",
        "~",
        "null",
        "0x1F",
        "0b101",
        "017",
        "08",
        "1e3",
        "1.5e+3",
        ".inf",
        "-.inf",
        "1_0.5",
        "+7",
        "-0",
        "190.5",
        "1:30.5",
        "0",
        "00",
        "=",
        "y",
        "n",
        "1.",
        ".5",
        "-.5e-3",
        "_1",
        "1_",
        "0x_",
        "9:99",
        "12e03",
        "nul",
        "NULL",
        "True",
        "tRue",
        "-",
        ".",
    ],
)
def test_scalars_are_those_of_yaml_1_1(text: str) -> None:
    """As PyYAML's own resolver and constructor read them."""
    try:
        expected = yaml.safe_load(f"[{text} ]" if text != "-" else "['-']")[0]
    except (yaml.YAMLError, ValueError):
        expected = text
    found = resolve_scalar(text)
    assert (type(found), found) == (type(expected), expected)


def test_a_date_stays_text() -> None:
    """The one difference: a version such as 2026-08-11 must not change its spelling."""
    assert parse("v: 2026-08-11\n")[0].plain() == {"v": "2026-08-11"}


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=12)
        | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=4)
        | st.dictionaries(st.text(min_size=1, max_size=6), inner, max_size=4),
        max_leaves=20,
    )
)  # fmt: skip
def test_what_pyyaml_writes_is_read_back(value: object) -> None:
    """Any tree, dumped by PyYAML in block or flow style, is the same tree again."""
    for flow in (True, False):
        text = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)
        root, problems = parse(text)
        assert not errors_of(problems)
        assert root.plain() == yaml.safe_load(text)


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=300)
    | st.text(alphabet="{}[]:-?!&*#|>'\"%@`, \n\tab<1.~", max_size=120).map(str.encode)
)
def test_any_bytes_end_in_a_tree_and_problems(data: bytes) -> None:
    """No exception, every problem has a place and a text in both languages."""
    _, problems = parse(data)
    for problem in problems:
        assert problem.at.line >= 1 and problem.at.column >= 1
        assert problem.error().what("en") and problem.error().what("zh")


BAD = {
    "duplicate key": ("a: 1\nb: 2\na: 3\n", "f:3:1", "catalog.duplicate_key"),
    "duplicate in flow": ("{a: 1, a: 2}\n", "f:1:8", "catalog.duplicate_key"),
    "tab": ("a:\n\tb: 1\n", "f:2:1", "catalog.tab"),
    "bom": (b"\xef\xbb\xbfa: 1\n", "f:1:1", "catalog.bom"),
    "crlf": (b"a: 1\r\nb: 2\r\n", "f:1:5", "catalog.carriage_return"),
    "not utf-8": (b"a: 1\nb: \xc3\x28\n", "f:2:4", "catalog.not_utf8"),
    "nul": (b"a: 1\nb: \0\n", "f:2:4", "catalog.not_yaml"),
    "unclosed quote": ("a: 'x\n", "f:2:1", "catalog.not_yaml"),
    "unknown alias": ("a: *nope\n", "f:1:4", "catalog.unknown_alias"),
    "two documents": ("a: 1\n---\nb: 2\n", "f:2:1", "catalog.many_documents"),
    "python tag": ("a: !!python/object/apply:os.system [x]\n", "f:1:4", "catalog.unknown_tag"),
    "false tag": ("a: !!int x\n", "f:1:4", "catalog.unknown_tag"),
    "list as key": ("? [a]\n: 1\n", "f:1:3", "catalog.key_not_text"),
    "merge of a scalar": ("a: {<<: 3}\n", "f:1:5", "catalog.bad_merge"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_has_a_place(name: str) -> None:
    """One problem, where a person would point."""
    text, where, key = BAD[name]
    assert isinstance(text, (str, bytes))
    assert only(parse(text)[1]) == (where, key)


def test_all_problems_of_a_file_in_one_run() -> None:
    """A syntax error costs its own top-level block; what stands in the others is still read and reported."""
    text = "a: {x: 1\nb: 2\nc:\n  d: 1\n  d: 2\ne: [1, 2\nf: ok\nc: 3\n"
    root, problems = parse(text)
    keys = [(p.at.line, p.key) for p in errors_of(problems)]
    assert [key for _, key in keys].count("catalog.not_yaml") == 2
    assert (5, "catalog.duplicate_key") in keys and (8, "catalog.duplicate_key") in keys
    assert node(root, "f").scalar == "ok" and root.partial


def test_several_bad_bytes_are_all_reported() -> None:
    """Each line with a byte that is no UTF-8, and the YAML around them."""
    _, problems = parse(b"a: \xff\nb: 1\nc: \xfe\nb: 2\n")
    assert [(str(p.at), p.key) for p in problems] == [
        ("f:1:4", "catalog.not_utf8"),
        ("f:3:4", "catalog.not_utf8"),
        ("f:4:1", "catalog.duplicate_key"),
    ]


def bomb(levels: int) -> str:
    """Ten aliases a level: 10^levels values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (bomb(12), "catalog.alias_bomb"),
        ("[" * 100_000, "catalog.too_deep"),
        ("{a: " * 100_000, "catalog.too_deep"),
        ("- " * 100_000, "catalog.too_deep"),
        ("a: &x {b: *x}\n", "catalog.unknown_alias"),
        ("\n".join(f"{' ' * i}k{i}:" for i in range(3000)), "catalog.too_deep"),
        ("- \n" * 600_000, "catalog.too_many_values"),
        ("x: " + "9" * 1_000_000 + "\n", None),
        ("x: " + "1:" * 100_000 + "1\n", None),
        ("!" * 500_000, "catalog.unknown_tag"),
        ("? " * 50_000, "catalog.too_deep"),
        ("'" * 99_999, "catalog.not_yaml"),
    ],
    ids=["bomb", "brackets", "braces", "dashes", "self", "indents", "many", "digits", "colons", "tags", "keys", "quotes"],
)  # fmt: skip
def test_hostile_text_is_refused_quickly(text: str, key: str | None) -> None:
    """Depth, aliases and numbers of values are bounded; no case takes two seconds."""
    began = time.process_time()
    _, problems = parse(text)
    assert time.process_time() - began < 2
    assert key is None or key in {problem.key for problem in problems}
    assert all(len(problem.error().what()) < 1000 for problem in problems)


def test_huge_file_folder_pipe_and_missing_file(tmp_path: Path) -> None:
    """Each is one clear error; a named pipe does not block."""
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as stream:
        stream.truncate(50_000_000)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    cases = {
        "huge.yaml": "catalog.too_large",
        ".": "catalog.is_folder",
        "pipe": "catalog.not_regular",
        "none.yaml": "catalog.missing_file",
        "loop": "catalog.unreadable",
    }
    assert MAX_BYTES < 50_000_000
    for name, key in cases.items():
        with pytest.raises(ServemarkError) as caught:
            read_yaml(tmp_path / name, name)
        assert caught.value.key == key and caught.value.where == f"{name}:1:1" and caught.value.exit_code == 2
