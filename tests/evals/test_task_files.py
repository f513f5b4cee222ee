"""Task files: what is read is asked and judged as written; what is wrong is told with file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.evals.registry import find_task
from servemark.evals.task_files import MAX_TOLD, read_task
from servemark.evals.tasks import Reply

HEAD = """\
servemark_task: 1
id: capitals
version: "3"
description: anything
items: items.jsonl
system: Be short.
examples:
  - {user: Capital of Italy?, assistant: Rome}
max_tokens: 12
stop: ["\\n"]
"""


def write(folder: Path, items: list[object] | str, more: str = "", head: str = HEAD) -> Path:
    """A head and its items; returns the head."""
    text = items if isinstance(items, str) else "".join(json.dumps(each) + "\n" for each in items)
    (folder / "items.jsonl").write_text(text, encoding="utf-8")
    path = folder / "task.yaml"
    path.write_text(head + more, encoding="utf-8")
    return path


def one(**more: object) -> dict[str, object]:
    return {"id": "a", "question": "Capital of Norway?", "expected": "Oslo", **more}


def refused(path: Path) -> ServemarkError:
    """The error of reading it, told in both languages."""
    with pytest.raises(ServemarkError) as caught:
        read_task(path)
    assert caught.value.exit_code == 2
    assert caught.value.what("zh") != caught.value.what("en")
    return caught.value


def test_a_whole_task(tmp_path: Path) -> None:
    path = write(tmp_path, [one(), one(id=7, kind="big", question="Capital of Peru?", expected="Lima")])
    task = find_task(str(path))
    assert (task.id, task.max_tokens, task.stop) == ("capitals", 12, ("\n",))
    assert [item.id for item in task.items] == ["a", "7"]
    assert [m[0] for m in task.prompt(task.items[0]).messages] == ["system", "user", "assistant", "user"]
    assert task.judge(task.items[0], Reply("oslo.\nbla", "stop")).correct


def test_the_version_is_of_the_content(tmp_path: Path) -> None:
    """Another description or place of the file is the same task; another answer, example or judge is not."""
    version = read_task(write(tmp_path, [one()])).version
    assert version.startswith("3-")
    other = tmp_path / "b"
    other.mkdir()
    assert read_task(write(other, [one()], head=HEAD.replace("anything", "else"))).version == version
    assert read_task(write(tmp_path, [one(expected="oslo")])).version != version
    assert read_task(write(tmp_path, [one()], head=HEAD.replace("Rome", "rome"))).version != version
    assert read_task(write(tmp_path, [one()], "judge: {type: needle}\n")).version != version


def test_every_judge_is_reached(tmp_path: Path) -> None:
    """Reply and item that only this judge calls right."""
    call = {"name": "f", "arguments": {"x": 1}}
    tools = "tools: [{type: function, function: {name: f, parameters: {type: object, properties: {x: {type: integer}}}}}]\n"
    cases: list[tuple[str, dict[str, object], Reply]] = [
        ("judge: {type: last_line}\n", one(), Reply("Hm.\nOslo")),
        ("judge: {type: needle}\n", one(), Reply("It is Oslo, I think")),
        ("judge: {type: numeric, absolute: 0.5}\n", one(expected=3), Reply("3.4")),
        ("judge: {type: choice}\n", one(expected="B", choices=["Rome", "Oslo"]), Reply("B")),
        ("judge: {type: regex, pattern: 'is (\\w+)'}\n", one(), Reply("It is Oslo")),
        ("judge: {type: json_schema, schema: {type: array}}\n", one(expected=[1]), Reply("[1]")),
        (f"judge: {{type: tool_call}}\n{tools}", one(expected=call), Reply("", None, (("f", '{"x": 1}'),))),
    ]
    for more, item, reply in cases:
        task = read_task(write(tmp_path, [item], more))
        assert task.judge(task.items[0], reply).correct, more
    assert (
        "\nA) Rome\nB) Oslo"
        in read_task(
            write(tmp_path, [one(expected="B", choices=["Rome", "Oslo"])], "judge: {type: choice}\n")
        )
        .items[0]
        .question
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"id": "a", "question": "q", "expected": "x"', "JSON"),
        ('{"id": "a", "question": "q", "expected": NaN}', "JSON"),
        ('{"id": "a", "question": "q", "expected": 1e999}', "JSON"),
        ("[]", "JSON"),
        ('{"question": "q", "expected": "x"}', "id"),
        ('{"id": "", "question": "q", "expected": "x"}', "id"),
        ('{"id": "a", "expected": "x"}', "question"),
        ('{"id": "a", "question": "q"}', "expected"),
        ('{"id": "a", "question": "q", "expected": null}', "expected"),
        ('{"id": "a", "question": "q", "expected": "x", "answr": 1}', "? answr"),
        ('{"id": "a", "question": "q", "expected": "x", "turns": "t"}', "turns"),
        ('{"id": "first", "question": "q", "expected": "x"}', "items.jsonl:1"),
        ("\ufeff{", "JSON"),
        ("[" * 50_000, "JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    good = json.dumps({"id": "first", "question": "q", "expected": "x"})
    error = refused(write(tmp_path, f"{good}\n\n{line}\n"))
    assert error.key == "evals.bad_items"
    assert "items.jsonl:3: " in error.what("en")
    assert said in error.what("en")


def test_many_bad_lines_are_counted_up_to_ten(tmp_path: Path) -> None:
    error = refused(write(tmp_path, "{\n" * 500))
    assert error.values["count"] == MAX_TOLD
    (tmp_path / "items.jsonl").write_bytes(b'{"id": "\xff"}\n')
    assert "UTF-8" in refused(tmp_path / "task.yaml").what("en")


@pytest.mark.parametrize(
    ("more", "item"),
    [
        ("judge: {type: numeric}\n", one(expected="many")),
        ("judge: {type: numeric}\n", one(expected="inf")),
        ("judge: {type: choice}\n", one(expected="C", choices=["a", "b"])),
        ("judge: {type: choice}\n", one(expected="A", choices=["a"])),
        ("judge: {type: json_schema, schema: {type: array}}\n", one(expected={"a": 1})),
    ],
)
def test_an_item_that_its_judge_cannot_use(tmp_path: Path, more: str, item: dict[str, object]) -> None:
    assert refused(write(tmp_path, [item], more)).key == "evals.bad_items"


@pytest.mark.parametrize(
    ("head", "key"),
    [
        (HEAD + "judge: {type: numeric, absolute: -1}\n", "evals.bad_tolerance"),
        (HEAD + "judge: {type: numeric, relative: .nan}\n", "catalog.out_of_range"),
        (HEAD + "judge: {type: regex, pattern: '('}\n", "evals.bad_pattern"),
        (HEAD + "judge: {type: json_schema, schema: {pattern: a}}\n", "evals.bad_schema"),
        (HEAD + "judge: {type: json_schema}\n", "evals.bad_schema"),
        (HEAD + "judge: {type: tool_call}\n", "evals.no_tools"),
        (HEAD + "tools: [{function: {}}]\n", "evals.bad_tool"),
        (HEAD.replace("servemark_task: 1", "servemark_task: 9"), "evals.task_schema"),
        (HEAD.replace("items.jsonl", "no.jsonl"), "evals.cannot_read_items"),
        (HEAD.replace("items.jsonl", "."), "evals.items_file"),
        (HEAD + "judge: {type: jury}\n", "catalog."),
        (HEAD + "juge: exact\n", "catalog."),
        (HEAD.replace("id: capitals", ""), "catalog."),
        ("a: [", "catalog."),
        ("", "catalog."),
        ("3", "catalog."),
    ],
)
def test_a_bad_head(tmp_path: Path, head: str, key: str) -> None:
    error = refused(write(tmp_path, [one()], head=head))
    assert error.key.startswith(key), error.what("en")


def test_no_items(tmp_path: Path) -> None:
    assert refused(write(tmp_path, "\n\n")).key == "evals.task_empty"
    assert refused(tmp_path / "none.yaml").exit_code == 2


@pytest.mark.parametrize("name", ["../items.jsonl", "/etc/passwd", "link.jsonl"])
def test_items_outside_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    """A task file from elsewhere must not send another file of this machine to a server."""
    folder = tmp_path / "inner"
    folder.mkdir()
    (tmp_path / "items.jsonl").write_text(json.dumps(one()) + "\n", encoding="utf-8")
    (folder / "link.jsonl").symlink_to(tmp_path / "items.jsonl")
    head = HEAD.replace("items: items.jsonl", f"items: {json.dumps(name)}")
    assert refused(write(folder, [one()], head=head)).key == "evals.items_outside"


@pytest.mark.parametrize(
    "parameters", ["{properties: {a: {minimum: .nan}}}", "{default: .inf}", "{enum: [-.inf]}"]
)
def test_schemas_that_no_json_can_say(tmp_path: Path, parameters: str) -> None:
    tools = f"tools: [{{type: function, function: {{name: f, parameters: {parameters}}}}}]\n"
    assert refused(write(tmp_path, [one()], tools)).key == "evals.bad_schema"
    judge = f"judge: {{type: json_schema, schema: {parameters}}}\n"
    assert refused(write(tmp_path, [one()], judge)).key == "evals.bad_schema"


@pytest.mark.parametrize(
    "line",
    [
        '{"id":"a\\ud800","question":"q","expected":"1"}',
        '{"id":"a","question":"q","expected":"1","turns":["\\udc00"]}',
        '{"id":"a","id":"b","question":"q","expected":"1"}',
    ],
)
def test_half_characters_and_members_named_twice(tmp_path: Path, line: str) -> None:
    assert refused(write(tmp_path, line + "\n")).key == "evals.bad_items"
