"""YAML text -> a tree of nodes that keep file, line and column; YAML 1.1 scalars, merge keys, no surprises.

The tree is built from libyaml's events without recursion, so that depth, aliases and size can be bounded:
YAML from a suite is untrusted. Duplicate keys are problems, never "last one wins".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from servemark.base.errors import ServemarkError, input_error

MAX_BYTES = 50_000_000
MAX_DEPTH = 100
MAX_ALIASED_NODES = 1_000_000
"""Nodes that a document may stand for once its aliases are followed (a bomb has billions)."""

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]+|(?:0|[1-9][0-9_]*)(?::[0-5]?[0-9])*)\Z")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|\.(?:inf|Inf|INF))\Z|\.(?:nan|NaN|NAN)\Z"
)
_TRUE = frozenset(["yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE = frozenset(["no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_NULL = frozenset(("", "~", "null", "Null", "NULL"))

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Position:
    """Where something stands; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(slots=True)
class Node:
    """A scalar, a sequence or a mapping, and where it begins. A mapping keeps its keys' positions too."""

    at: Position
    scalar: Scalar = None
    items: list[Node] | None = None
    entries: dict[str, Node] | None = None
    key_at: dict[str, Position] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """`mapping`, `list`, or the scalar's YAML type name."""
        if self.entries is not None:
            return "mapping"
        if self.items is not None:
            return "list"
        names: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "text"}
        return names.get(type(self.scalar), "null")

    def plain(self) -> object:
        """Dicts, lists and scalars without positions."""
        if self.entries is not None:
            return {key: node.plain() for key, node in self.entries.items()}
        if self.items is not None:
            return [node.plain() for node in self.items]
        return self.scalar


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a file; `key` names a message. Position first, as compilers print it."""

    at: Position
    key: str
    values: dict[str, object]

    def error(self) -> ServemarkError:
        """The same as an exception."""
        return input_error(self.key, where=str(self.at), **self.values)


def resolve_scalar(value: str) -> Scalar:
    """A plain scalar by YAML 1.1: `3_977_095` is an integer, `12:00:00` is 43200, `yes` is true."""
    if value in _NULL:
        return None
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    first = value[0]
    if first.isdigit() or first in "+-.":
        if _INT.match(value):
            return _integer(value)
        if _FLOAT.match(value):
            return _number(value)
    return value


def _integer(value: str) -> int:
    digits = value.replace("_", "").lstrip("+-")
    sign = -1 if value.startswith("-") else 1
    if digits.startswith("0b"):
        return sign * int(digits[2:] or "0", 2)
    if digits.startswith("0x"):
        return sign * int(digits[2:] or "0", 16)
    if ":" in digits:
        total = 0
        for part in digits.split(":"):
            total = total * 60 + int(part)
        return sign * total
    if len(digits) > 1 and digits.startswith("0"):
        return sign * int(digits, 8)
    return sign * int(digits)


def _number(value: str) -> float:
    body = value.replace("_", "").lower().lstrip("+-")
    sign = -1.0 if value.startswith("-") else 1.0
    if body == ".inf":
        return sign * float("inf")
    if body == ".nan":
        return float("nan")
    if ":" in body:
        total = 0.0
        for part in body.split(":"):
            total = total * 60 + float(part)
        return sign * total
    return sign * float(body)


def read_yaml(path: Path, shown: str) -> tuple[Node, list[Problem]]:
    """Read one document from a file. `shown` is the file's name in positions.

    Raises ServemarkError (exit 2) when the file cannot be read or is no YAML at all; problems that leave a
    usable tree (duplicate keys) are returned.
    """
    if path.is_dir():
        raise input_error("catalog.is_folder", path=shown)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise input_error("catalog.too_large", path=shown, size=size, limit=MAX_BYTES)
        data = path.read_bytes()
    except FileNotFoundError:
        raise input_error("catalog.missing_file", path=shown) from None
    except OSError as error:
        raise input_error("catalog.unreadable", path=shown, reason=error.strerror or str(error)) from error
    return parse_yaml(data, shown)


def parse_yaml(data: bytes, shown: str) -> tuple[Node, list[Problem]]:
    """As `read_yaml`, from bytes."""
    try:
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise input_error("catalog.not_utf8", where=f"{shown}:{line}:1", byte=error.start) from error
    try:
        return _Builder(shown).build(source)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{shown}:{mark.line + 1}:{mark.column + 1}" if mark else shown
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        raise input_error("catalog.not_yaml", where=where, reason=reason) from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise input_error("catalog.not_yaml", where=shown, reason=str(error)) from error


@dataclass(slots=True)
class _Open:
    """A collection that is still being read."""

    node: Node
    key: Node | None = None
    merges: list[Node] = field(default_factory=list)
    anchor: str | None = None


class _Builder:
    """Turns one document's events into nodes; bounded in depth and in what aliases expand to."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.problems: list[Problem] = []
        self.anchors: dict[str, Node] = {}
        self.sizes: dict[int, int] = {}
        self.stack: list[_Open] = []
        self.root: Node | None = None

    def build(self, source: str) -> tuple[Node, list[Problem]]:
        documents = 0
        for event in self._events(source):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise input_error("catalog.many_documents", where=str(self._at(event)))
            elif isinstance(event, yaml.ScalarEvent):
                self._place(self._scalar(event), event.anchor, 1)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                self._open(event)
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                self._close()
        if self.root is None:
            self.root = Node(Position(self.shown, 1, 1))
        return self.root, self.problems

    def _events(self, source: str) -> Iterator[yaml.Event]:
        loader = _Loader(source)
        try:
            while loader.check_event():
                yield loader.get_event()
        finally:
            loader.dispose()

    def _at(self, event: yaml.Event) -> Position:
        mark = event.start_mark
        if mark is None:  # libyaml always gives one; the type stubs do not say so
            return Position(self.shown, 1, 1)
        return Position(self.shown, mark.line + 1, mark.column + 1)

    def _scalar(self, event: yaml.ScalarEvent) -> Node:
        if event.implicit[0] and not event.tag:
            return Node(self._at(event), resolve_scalar(event.value))
        return Node(self._at(event), event.value)

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise input_error("catalog.too_deep", where=str(self._at(event)), limit=MAX_DEPTH)
        node = Node(self._at(event))
        if isinstance(event, yaml.MappingStartEvent):
            node.entries = {}
        else:
            node.items = []
        self.stack.append(_Open(node, anchor=event.anchor))

    def _close(self) -> None:
        opened = self.stack.pop()
        entries = opened.node.entries
        for merged in opened.merges:  # keys written in the mapping itself win; earlier merges win over later
            for key, value in (merged.entries or {}).items():
                if entries is not None and key not in entries:
                    entries[key] = value
                    opened.node.key_at[key] = merged.key_at[key]
        children = list(entries.values()) if entries is not None else opened.node.items or []
        size = 1 + sum(self.sizes.get(id(child), 1) for child in children)
        self.sizes[id(opened.node)] = size
        self._place(opened.node, opened.anchor, size)

    def _alias(self, event: yaml.AliasEvent) -> None:
        node = self.anchors.get(str(event.anchor))
        if node is None:
            raise input_error("catalog.unknown_alias", where=str(self._at(event)), name=event.anchor)
        self._place(node, None, self.sizes.get(id(node), 1))

    def _place(self, node: Node, anchor: str | None, size: int) -> None:
        if anchor:
            self.anchors[anchor] = node
        if size > MAX_ALIASED_NODES:
            raise input_error("catalog.alias_bomb", where=str(node.at), limit=MAX_ALIASED_NODES)
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        if parent.node.items is not None:
            parent.node.items.append(node)
        elif parent.key is None:
            parent.key = node
        else:
            self._entry(parent, parent.key, node)
            parent.key = None

    def _entry(self, parent: _Open, key: Node, value: Node) -> None:
        entries = parent.node.entries
        if entries is None:
            raise RuntimeError("a key outside a mapping")
        if key.scalar == "<<" and key.entries is None and key.items is None:
            merged = value.items if value.items is not None else [value]
            if any(m.entries is None for m in merged):
                raise input_error("catalog.bad_merge", where=str(key.at))
            parent.merges.extend(merged)
            return
        if key.entries is not None or key.items is not None:
            raise input_error("catalog.key_not_text", where=str(key.at))
        name = key.scalar if isinstance(key.scalar, str) else _key_text(key.scalar)
        if name in entries:
            first = parent.node.key_at[name]
            self.problems.append(Problem(key.at, "catalog.duplicate_key", {"key": name, "line": first.line}))
            return
        entries[name] = value
        parent.node.key_at[name] = key.at


def _key_text(value: Scalar) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)
