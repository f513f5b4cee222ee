"""Task files: a YAML head that says how to ask and judge, and a JSONL file of items, one JSON object a line.

The head: `servemark_task: 1`, `id`, `version`, `items` (a file beside the head), and optionally `system`, `examples` (a
list of `user` and `assistant`), `max_tokens` (256), `stop` (none), `judge` (a mapping with `type`), `tools` (a list as the
chat API takes it). An item: `id`, `question`, `expected`, and optionally `kind`, `choices`, `turns`. Everything is checked
before anything is sent; what is wrong is told with file and line, up to `MAX_TOLD` at once.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from servemark.base.canonical import canonical_json
from servemark.base.errors import input_error
from servemark.base.printable import one_line
from servemark.catalog.fields import Fields
from servemark.catalog.nodes import Node, Problem, errors_of, problems_error
from servemark.catalog.yaml_nodes import read_yaml
from servemark.evals.bounded_regex import BoundedRegex, RegexError
from servemark.evals.json_values import fits, parse_json, schema_faults
from servemark.evals.judges import (
    LETTERS,
    choice,
    json_schema,
    last_line,
    needle,
    number_of,
    numeric,
    regex,
    tool_call,
)
from servemark.evals.tasks import ChatMessage, EvalItem, EvalTask, Judge, exact

SCHEMA: Final = 1
MAX_ITEMS: Final = 1_000_000
MAX_LINE: Final = 8_000_000
"""Characters of one item: a prompt of about two million tokens."""
MAX_FILE: Final = 4_000_000_000
MAX_NAME: Final = 200
MAX_TOLD: Final = 10
_JUDGES: Final = (
    "exact", "last_line", "numeric", "choice", "regex", "json_schema", "tool_call", "needle",
)  # fmt: skip
_ITEM_FIELDS: Final = frozenset({"id", "kind", "question", "expected", "choices", "turns"})

Checked = Callable[[EvalItem], str | None]
"""What is wrong with an item for the task's judge, or None."""


class _ItemError(ValueError):
    """An item that is none; its text says why."""


def read_task(path: Path) -> EvalTask:
    """The task of a head file. Its version is that of the head and a hash of everything that the score depends on, so that
    a changed file is another task. Raises ServemarkError (exit 2) with file and line for whatever is wrong."""
    shown = str(path)
    root, problems = read_yaml(path, shown)
    _stop_at(problems)
    head = Fields(root, problems, "task")
    schema = head.integer("servemark_task", minimum=1, required=True)
    if schema is not None and schema != SCHEMA:
        head.problem(head.at("servemark_task"), "evals.task_schema", found=schema, known=SCHEMA)
    name, version = head.text("id", required=True), head.text("version", required=True)
    items_name = head.text("items", required=True)
    system, max_tokens = head.text("system"), head.integer("max_tokens", minimum=1, below=1 << 31) or 256
    stop, preamble = head.texts("stop"), _preamble(head, system)
    tools = _tools(head)
    judge, check = _judge(head, tools)
    head.text("description")
    head.no_others()
    _stop_at(problems)
    if not name or not version or not items_name or len(name) > MAX_NAME or len(version) > MAX_NAME:
        raise input_error("evals.task_names", where=shown, limit=MAX_NAME)
    items = tuple(_items(_beside(path, items_name), check))
    if not items:
        raise input_error("evals.task_empty", where=str(path.parent / items_name))
    task = EvalTask(name, version, preamble, items, max_tokens, stop, judge, tools, calls=judge is tool_call)
    return EvalTask(
        name, f"{version}-{_hash(task, root)}", preamble, items, max_tokens, stop, judge, tools, task.calls
    )


def _beside(head: Path, name: str) -> Path:
    """The items file of a head: in its folder or below. A head from elsewhere must not send other files of this machine
    to a server. Raises ServemarkError (exit 2)."""
    items = head.parent / name
    try:
        inside = items.resolve().is_relative_to(head.parent.resolve())
    except (OSError, ValueError, RuntimeError):  # a loop of links, a zero byte
        inside = False
    if not inside:
        raise input_error("evals.items_outside", where=str(head), items=name[:MAX_NAME])
    return items


def _stop_at(problems: list[Problem]) -> None:
    wrong = errors_of(problems)
    if wrong:
        raise problems_error(wrong)


def _hash(task: EvalTask, root: Node) -> str:
    """Eight hex digits over the head's values and every item; the file's name and its layout do not count."""
    digest = hashlib.sha256(canonical_json(_without_words(root.plain())).encode())
    for item in task.items:
        fields = [item.id, item.kind, item.question, item.expected, list(item.turns), list(item.choices)]
        digest.update(canonical_json(fields).encode())
    return digest.hexdigest()[:8]


def _without_words(plain: object) -> object:
    if not isinstance(plain, dict):
        return None
    return {str(k): v for k, v in plain.items() if k not in {"description", "items", "version"}}


def _preamble(head: Fields, system: str | None) -> tuple[ChatMessage, ...]:
    found: list[ChatMessage] = [] if system is None else [("system", system)]
    for node in head.items("examples"):
        example = Fields(node, head.problems, "example")
        user, assistant = example.text("user", required=True), example.text("assistant", required=True)
        example.no_others()
        found += [("user", user or ""), ("assistant", assistant or "")]
    return tuple(found)


def _tools(head: Fields) -> bytes | None:
    """The tools as JSON; each must be a function with a name and a schema that is understood."""
    nodes = head.items("tools")
    for node in nodes:
        plain = node.plain()
        function = plain.get("function") if isinstance(plain, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            head.problem(node.at, "evals.bad_tool", reason="function.name")
            continue
        fault = next(schema_faults(function.get("parameters", True)), None) or _no_json(plain)
        if fault is not None:
            head.problem(node.at, "evals.bad_schema", reason=fault[:200])
    return json.dumps([node.plain() for node in nodes]).encode() if nodes else None


def _no_json(plain: object) -> str | None:
    """Why a value of YAML is none of JSON: NaN, an infinity; None where it is one."""
    try:
        canonical_json(plain).encode()
    except (ValueError, TypeError, RecursionError) as error:
        return str(error)
    return None


def _judge(head: Fields, tools: bytes | None) -> tuple[Judge, Checked]:
    """The judge of the head and what it needs of every item."""
    fields = head.mapping("judge", "judge")
    if fields is None:
        return exact, _needs_answer
    kind = fields.choice("type", _JUDGES, required=True) or "exact"
    made: tuple[Judge, Checked] = (exact, _needs_answer)
    if kind == "numeric":
        made = _numeric(fields)
    elif kind == "regex":
        made = _regex(fields)
    elif kind == "json_schema":
        made = _schema(fields)
    elif kind == "tool_call":
        if tools is None:
            fields.problem(fields.at("type"), "evals.no_tools")
        made = (tool_call, _call_check(tools))
    elif kind == "choice":
        made = (choice, _needs_choice)
    elif kind != "exact":
        made = ({"last_line": last_line, "needle": needle}[kind], _needs_answer)
    fields.no_others()
    return made


def _numeric(fields: Fields) -> tuple[Judge, Checked]:
    found = []
    for name in ("absolute", "relative"):
        value = fields.number(name) or 0.0
        if not 0 <= value < float("inf"):
            fields.problem(fields.at(name), "evals.bad_tolerance", field=name, value=value)
            value = 0.0
        found.append(value)
    return numeric(*found), _needs_number


def _regex(fields: Fields) -> tuple[Judge, Checked]:
    try:
        return regex(BoundedRegex(fields.text("pattern", required=True) or "")), _needs_nothing
    except RegexError as error:
        fields.problem(fields.at("pattern"), "evals.bad_pattern", reason=str(error))
        return exact, _needs_nothing


def _schema(fields: Fields) -> tuple[Judge, Checked]:
    node = fields.get("schema")
    plain = node.plain() if node is not None else None
    if not isinstance(plain, dict):
        fields.problem(fields.node.at, "evals.bad_schema", reason="schema")
        return exact, _needs_nothing
    fault = next(schema_faults(plain), None) or _no_json(plain)
    if fault is not None:
        fields.problem(fields.at("schema"), "evals.bad_schema", reason=fault[:200])
    return json_schema(plain), _needs_value(plain)


def _needs_nothing(_: EvalItem) -> str | None:
    return None


def _needs_answer(item: EvalItem) -> str | None:
    return None if item.expected.strip() else "expected"


def _needs_number(item: EvalItem) -> str | None:
    return None if number_of(item.expected) is not None else f"expected: {item.expected[:40]}"


def _needs_choice(item: EvalItem) -> str | None:
    if not 2 <= len(item.choices) <= len(LETTERS):
        return f"choices: 2..{len(LETTERS)}"
    return None if item.expected in LETTERS[: len(item.choices)] else f"expected: {item.expected[:40]}"


def _needs_value(schema: dict[object, object]) -> Checked:
    def check(item: EvalItem) -> str | None:
        if not item.expected:
            return None
        there, value = parse_json(item.expected)
        return None if there and fits(schema, value) else "expected"

    return check


def _call_check(tools: bytes | None) -> Checked:
    """The expected call names a tool on offer, with arguments that keep to its schema."""
    listed = json.loads(tools) if tools else []
    known = {
        each["function"]["name"]: each["function"].get("parameters", True)
        for each in listed
        if isinstance(each.get("function"), dict) and isinstance(each["function"].get("name"), str)
    }

    def check(item: EvalItem) -> str | None:
        _, call = parse_json(item.expected)
        if not isinstance(call, dict) or set(call) != {"name", "arguments"} or call["name"] not in known:
            return "expected"
        return None if fits(known[call["name"]], call["arguments"]) else "expected.arguments"

    return check


def _items(path: Path, check: Checked) -> Iterator[EvalItem]:
    """Each item of the file. All faults of all lines, up to `MAX_TOLD`, are told together."""
    faults: list[str] = []
    seen: dict[str, int] = {}
    for number, line in _lines(path):
        try:
            item = _item(line)
            if item.id in seen:
                raise _ItemError(f"id {item.id[:60]!r}: {path.name}:{seen[item.id]}")
            seen[item.id] = number
            wrong = check(item)
            if wrong is not None:
                raise _ItemError(wrong)
        except _ItemError as error:
            faults.append(f"{one_line(str(path))}:{number}: {one_line(str(error))}")
            if len(faults) == MAX_TOLD:
                break
            continue
        if len(seen) > MAX_ITEMS:
            raise input_error("evals.too_many_items", where=str(path), limit=MAX_ITEMS)
        if not faults:
            yield item
    if faults:
        raise input_error(
            "evals.bad_items", count=len(faults), lines="\n".join(f"  {each}" for each in faults)
        )


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line) of each line that is not blank."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE:
            raise input_error("evals.items_file", where=str(path), limit=MAX_FILE)
        with path.open("rb") as stream:
            number = 0
            while line := stream.readline(MAX_LINE + 1):
                number += 1
                if len(line) > MAX_LINE:
                    raise input_error("evals.long_line", where=f"{path}:{number}", limit=MAX_LINE)
                if line.strip():
                    yield number, line
    except OSError as error:
        reason = error.strerror or str(error)
        raise input_error("evals.cannot_read_items", where=str(path), reason=reason) from None


def _item(line: bytes) -> EvalItem:
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _ItemError(f"UTF-8: {error.reason}") from None
    there, value = parse_json(text, MAX_LINE, unique=True)
    if not there or not isinstance(value, dict):
        raise _ItemError("JSON")
    if _no_json(value) is not None:
        raise _ItemError("UTF-8: surrogate")
    others = sorted(str(name)[:40] for name in value.keys() - _ITEM_FIELDS)
    if others:
        raise _ItemError(f"? {', '.join(others[:5])}")
    name, question, kind = value.get("id"), value.get("question"), value.get("kind", "item")
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    for field, said in (("id", name), ("question", question), ("kind", kind)):
        if not isinstance(said, str) or not said.strip():
            raise _ItemError(field)
    if len(str(name)) > MAX_NAME or len(str(kind)) > MAX_NAME:
        raise _ItemError(f"id, kind > {MAX_NAME}")
    turns, choices = _texts(value, "turns"), _texts(value, "choices")
    asked = str(question)
    if choices:
        asked += "".join(f"\n{letter}) {words}" for letter, words in zip(LETTERS, choices, strict=False))
    return EvalItem(str(name), str(kind), asked, _expected(value.get("expected", "")), turns, choices)


def _texts(value: dict[object, object], field: str) -> tuple[str, ...]:
    found = value.get(field, [])
    if not isinstance(found, list) or not all(isinstance(each, str) and each.strip() for each in found):
        raise _ItemError(field)
    return tuple(found)


def _expected(value: object) -> str:
    """A text as it is; numbers, objects and lists as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        raise _ItemError("expected")
    try:
        return canonical_json(value)
    except (ValueError, RecursionError):
        raise _ItemError("expected") from None
