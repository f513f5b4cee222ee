"""Engine arguments in every spelling: mappings, `--flag=value` lists, one string; JSON values parsed.

Names are compared without leading dashes and with `-` for `_`; short forms stand for long ones.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from servemark.catalog.nodes import Node, Position, Problem

MAX_JSON = 200_000
_SHORT = {
    "speculative-algo": "speculative-algorithm",
    "tp": "tensor-parallel-size",
    "tp-size": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "pp-size": "pipeline-parallel-size",
    "dp": "data-parallel-size",
    "dp-size": "data-parallel-size",
    "ep": "expert-parallel-size",
    "ep-size": "expert-parallel-size",
    "moe-expert-parallel-size": "expert-parallel-size",
    "dcp": "decode-context-parallel-size",
    "dcp-size": "decode-context-parallel-size",
    "pcp": "prefill-context-parallel-size",
    "pcp-size": "prefill-context-parallel-size",
    "context-parallel-size": "prefill-context-parallel-size",
    "attn-cp-size": "prefill-context-parallel-size",
}


@lru_cache(maxsize=4096)
def canonical_name(spelled: str) -> str:
    """`--tensor_parallel_size`, `tp` and `tensor-parallel-size` are one name."""
    name = spelled.lstrip("-").replace("_", "-")
    return _SHORT.get(name, name)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its value with JSON text parsed, and how and where it is written."""

    name: str
    value: object
    spelled: str
    at: Position


def json_value(value: object) -> object:
    """A text that holds a JSON object or list, parsed; anything else as it is. ValueError for broken JSON."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text.startswith(("{", "[")) or len(text) > MAX_JSON:
        return value
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def arguments_of(node: Node | None, problems: list[Problem]) -> dict[str, Argument]:
    """Arguments by canonical name, from a mapping, a list of flags or one text of flags."""
    if node is None or node.kind == "null":
        return {}
    found: dict[str, Argument] = {}
    for spelled, raw, value in _pairs(node, problems):
        name = canonical_name(spelled)
        try:
            parsed = json_value(raw)
        except ValueError as error:
            parsed = raw
            reason = getattr(error, "msg", None) or str(error)
            values: dict[str, object] = {"name": spelled[:200], "reason": reason}
            problems.append(Problem(value.at, "catalog.bad_json", values, "warning"))
        if name in found:
            first = found[name]
            values = {"name": spelled[:200], "other": first.spelled[:200], "line": first.at.line}
            problems.append(Problem(value.at, "catalog.flag_twice", values, "warning"))
        found[name] = Argument(name, parsed, spelled, value.at)
    return found


def _pairs(node: Node, problems: list[Problem]) -> Iterable[tuple[str, object, Node]]:
    """(name as spelled, value, node with the position)."""
    if node.entries is not None:
        return [(name, value.plain(), _placed(node, name, value)) for name, value in node.entries.items()]
    if node.items is None and isinstance(node.scalar, str):
        try:
            words = shlex.split(node.scalar)
        except ValueError as error:
            problems.append(Problem(node.at, "catalog.bad_flags", {"reason": str(error)}))
            return []
        return _flags([(word, node) for word in words], problems)
    if node.items is None:
        problems.append(
            Problem(
                node.at, "catalog.wrong_type", {"field": "args", "expected": "mapping", "kind": node.kind}
            )
        )
        return []
    return _flags([(str(item.plain()), item) for item in node.items], problems)


def _placed(node: Node, name: str, value: Node) -> Node:
    """What gives an argument's position: its value, or its key where the value begins on a later line."""
    line, column = (node.keys or {}).get(name, (value.line, value.column))
    return (
        value
        if line == value.line or value.kind not in {"mapping", "list"}
        else Node(node.file, line, column)
    )


def _flags(words: list[tuple[str, Node]], problems: list[Problem]) -> list[tuple[str, object, Node]]:
    """`--a=1`, `--a 1`, `--a`, `-a 1`. A flag without a value is True."""
    found: list[tuple[str, object, Node]] = []
    for word, node in words:
        if word.startswith("-") and not _is_number(word):
            name, equals, value = word.partition("=")
            found.append((name, value if equals else True, node))
        elif found and found[-1][1] is True:
            found[-1] = (found[-1][0], word, node)
        else:
            problems.append(Problem(node.at, "catalog.stray_word", {"word": word[:200]}))
    return found


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def plain_args(node: Node | None) -> dict[str, object]:
    """Arguments as the recipe spells them, JSON left as text; flags of a list by their names."""
    if node is None or node.kind == "null":
        return {}
    return {name: value for name, value, _ in _pairs(node, [])}
