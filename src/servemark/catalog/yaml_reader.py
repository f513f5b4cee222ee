"""libyaml's events -> nodes: one loop, no recursion, bounded; syntax errors cost their top-level block only.

`yaml_nodes` is what other modules import; the measured reasons for libyaml's events are in
docs/decisions/how-yaml-is-read.md.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable
from typing import Any

import yaml

from servemark.catalog.nodes import MAX_PROBLEMS, Node, Position, Problem
from servemark.catalog.yaml_scalars import Scalar, resolve_scalar

MAX_DEPTH = 100
MAX_VALUES = 200_000
MAX_ALIASED_VALUES = 200_000
"""Values that a document may stand for once its aliases are followed (a bomb has billions)."""
MAX_LISTED = 20
"""Faults of one kind that are listed of one file."""

Event = Any
"""libyaml's events; the published stubs give marks that may be absent, which these never are."""
_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS: dict[str, type | tuple[type, ...]] = {
    f"{_TAG}int": int,
    f"{_TAG}float": (int, float),
    f"{_TAG}bool": bool,
    f"{_TAG}null": type(None),
}
_COLLECTION_TAGS = frozenset((f"{_TAG}map", f"{_TAG}seq", "!"))
_BLOCK_START = re.compile(rb"^[^\s#\])}].*$", re.MULTILINE)
_BOM = b"\xef\xbb\xbf"


class _StopError(Exception):
    """Reading cannot go on in this document; the problem is already noted."""


def parse(data: bytes, shown: str) -> tuple[Node, list[Problem]]:
    """One document with everything that is wrong with it."""
    problems: list[Problem] = []
    body = _check_bytes(data, shown, problems)
    if body is None:
        return _empty(shown, partial=True), problems
    broken = False
    for _ in range(MAX_LISTED):
        reader = _Reader(shown, quiet=broken)
        try:
            root = reader.build(body)
        except _StopError:
            return _empty(shown, partial=True), [*problems, *reader.problems]
        except (yaml.YAMLError, ValueError) as error:
            problem, offset = _syntax_problem(error, body, shown)
            problems.append(problem)
            broken = True
            rest = _without_block(body, offset)
            if rest is None:
                break
            body = rest
            continue
        root.partial = broken
        return root, [*problems, *reader.problems]
    return _empty(shown, partial=True), problems


def _empty(shown: str, *, partial: bool) -> Node:
    node = Node(shown, 1, 1)
    node.partial = partial
    return node


def _check_bytes(data: bytes, shown: str, problems: list[Problem]) -> bytes | None:
    """BOM and CR are warnings; bytes that are no UTF-8 are errors and are replaced, so that the rest is
    read."""
    if data.startswith(_BOM):
        problems.append(Problem(Position(shown, 1, 1), "catalog.bom", {}, "warning"))
        data = data[len(_BOM) :]
    carriage = data.find(b"\r")
    if carriage >= 0:
        at = _position(data, carriage, shown)
        problems.append(Problem(at, "catalog.carriage_return", {"count": data.count(b"\r")}, "warning"))
    start, found = 0, 0
    while True:
        try:
            data.decode("utf-8") if start == 0 else data[start:].decode("utf-8")
        except UnicodeDecodeError as error:
            found += 1
            offset = start + error.start
            problems.append(Problem(_position(data, offset, shown), "catalog.not_utf8", {"byte": offset}))
            line_end = data.find(b"\n", offset)
            if found == MAX_LISTED or data.startswith((b"\xff\xfe", b"\xfe\xff")):
                return None
            if line_end < 0:
                return data.decode("utf-8", "replace").encode("utf-8")
            start = line_end + 1
        else:
            return data.decode("utf-8", "replace").encode("utf-8") if found else data


def _position(data: bytes, offset: int, shown: str) -> Position:
    before = data.rfind(b"\n", 0, offset) + 1
    column = len(data[before:offset].decode("utf-8", "replace")) + 1
    return Position(shown, data.count(b"\n", 0, offset) + 1, column)


def _syntax_problem(error: Exception, body: bytes, shown: str) -> tuple[Problem, int]:
    """The problem and the byte offset of the line that the block to leave out begins before."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        offset = min(int(getattr(error, "position", 0) or 0), len(body))
        reason = " ".join(str(getattr(error, "reason", None) or error).split())
        return Problem(_position(body, offset, shown), "catalog.not_yaml", {"reason": reason}), offset
    opened = getattr(error, "context_mark", None)
    reason = " ".join(str(getattr(error, "problem", None) or error).split())
    at = Position(shown, mark.line + 1, mark.column + 1)
    lines = [0, *(found.end() for found in re.finditer(rb"\n", body))]
    faulty = body[lines[min(mark.line, len(lines) - 1)] :].split(b"\n", 1)[0]
    if "nesting depth" in reason:
        return Problem(at, "catalog.too_deep", {"limit": MAX_DEPTH}), len(body)
    tab = b"\t" in faulty[: mark.column + 1] and "cannot start any token" in reason
    key = "catalog.tab" if tab else "catalog.not_yaml"
    start = opened.line if opened is not None else mark.line
    return Problem(at, key, {"reason": reason}), lines[min(start, len(lines) - 1)]


def _without_block(body: bytes, offset: int) -> bytes | None:
    """The same text with the top-level block around `offset` blanked, so that all positions stay as they
    are."""
    starts = [found.start() for found in _BLOCK_START.finditer(body)]
    index = max(bisect.bisect_right(starts, offset) - 1, 0)
    if not starts:
        return None
    begin = starts[index]
    end = starts[index + 1] if index + 1 < len(starts) else len(body)
    return body[:begin] + b"\n" * body.count(b"\n", begin, end) + body[end:]


class _Open:
    """A collection that is still being read. `items` is None in a mapping; `entries` and `keys` fill."""

    __slots__ = ("anchor", "entries", "is_key", "items", "key", "keys", "merges", "node", "size", "skip")

    def __init__(self, node: Node, anchor: str | None) -> None:
        self.node = node
        self.items = node.items
        self.entries: dict[str, Node] = node.entries if node.entries is not None else {}
        self.keys: dict[str, tuple[int, int]] = node.keys if node.keys is not None else {}
        self.anchor = anchor
        self.key: tuple[str, int, int] | None = None
        self.is_key = False
        self.skip = False
        self.merges: list[Node] = []
        self.size = 1


class _Reader:
    """Turns one document's events into nodes."""

    def __init__(self, shown: str, *, quiet: bool) -> None:
        self.shown = shown
        self.quiet = quiet
        self.problems: list[Problem] = []
        self.anchors: dict[str, tuple[Node, int]] = {}
        self.stack: list[_Open] = []
        self.root: Node | None = None
        self.count = 0
        self.known: dict[str, Scalar] = {}

    def build(self, body: bytes) -> Node:
        """Read all events; raises YAMLError for broken syntax and _StopError for what must not go on."""
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(body)
        try:
            self._loop(loader.get_event)
        finally:
            loader.dispose()
        return self.root if self.root is not None else _empty(self.shown, partial=False)

    def _loop(self, next_event: Callable[[], Event]) -> None:  # noqa: PLR0912 - the hot path, written out
        shown, stack, known = self.shown, self.stack, self.known
        scalar_event = yaml.ScalarEvent
        missing: Any = object()
        count = 0
        while True:
            event: Any = next_event()
            if event.__class__ is not scalar_event:
                if self._other(event):
                    return
                continue
            mark: Any = event.start_mark
            line, column = mark.line + 1, mark.column + 1
            value, tag, plain = event.value, event.tag, event.implicit[0]
            if plain and not tag:
                resolved: Scalar = known.get(value, missing)
                if resolved is missing:
                    resolved = known[value] = resolve_scalar(value)
            else:
                resolved = value if not tag or tag == "!" else self._tagged(value, tag, event)
            top = stack[-1] if stack else None
            if top is None or event.anchor or top.skip:
                self._scalar(top, event, resolved)
                continue
            count += 1
            if count > MAX_VALUES:
                self._stop(event, "catalog.too_many_values", limit=MAX_VALUES)
            if top.items is not None:
                top.items.append(Node(shown, line, column, resolved))
                top.size += 1
            elif top.key is None:
                if resolved.__class__ is str and value != "<<" and value not in top.keys:
                    top.key = (value, line, column)
                else:
                    self._key(top, value, resolved, (line, column), plain)
            elif top.key[0] == "<<":
                self._place(top, Node(shown, line, column, resolved), None, 1)
            else:
                name = top.key[0]
                top.entries[name] = Node(shown, line, column, resolved)
                top.keys[name] = top.key[1:]
                top.key = None
                top.size += 1

    def _scalar(self, top: _Open | None, event: Event, resolved: Scalar) -> None:
        """A scalar in the less common places: a whole document, an anchor, a value to be left out."""
        mark = event.start_mark
        line, column = mark.line + 1, mark.column + 1
        if top is not None and top.key is None and top.items is None:
            self._key(top, event.value, resolved, (line, column), event.implicit[0])
            if event.anchor:
                self.anchors[event.anchor] = (Node(self.shown, line, column, resolved), 1)
        else:
            self._place(top, Node(self.shown, line, column, resolved), event.anchor, 1)

    def _other(self, event: Event) -> bool:
        """Any event but a scalar; True at the end."""
        kind = type(event)
        if kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close(self.stack.pop())
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self._open(event)
        elif kind is yaml.AliasEvent:
            self._alias(event)
        elif kind is yaml.DocumentStartEvent:
            if self.root is not None:
                self._stop(event, "catalog.many_documents")
        else:
            return event is None or kind is yaml.StreamEndEvent
        return False

    def _position(self, event: Event) -> Position:
        mark = event.start_mark
        return Position(self.shown, mark.line + 1, mark.column + 1)

    def _note(self, event: Event, key: str, **values: object) -> None:
        self.problems.append(Problem(self._position(event), key, values))

    def _stop(self, event: Event, key: str, **values: object) -> None:
        self._note(event, key, **values)
        raise _StopError

    def _tagged(self, value: str, tag: str, event: Event) -> Scalar:
        if tag == f"{_TAG}str":
            return value
        wanted = _SCALAR_TAGS.get(tag)
        resolved = resolve_scalar(value)
        if wanted is None or not isinstance(resolved, wanted):
            self._note(event, "catalog.unknown_tag", tag=tag.replace(_TAG, "!!"))
            return value
        return resolved

    def _open(self, event: Event) -> None:
        if len(self.stack) >= MAX_DEPTH:
            self._stop(event, "catalog.too_deep", limit=MAX_DEPTH)
        if event.tag and event.tag not in _COLLECTION_TAGS:
            self._note(event, "catalog.unknown_tag", tag=event.tag.replace(_TAG, "!!"))
        mark = event.start_mark
        node = Node(self.shown, mark.line + 1, mark.column + 1)
        if type(event) is yaml.MappingStartEvent:
            node.entries, node.keys = {}, {}
        else:
            node.items = []
        opened = _Open(node, event.anchor)
        top = self.stack[-1] if self.stack else None
        if top is not None and top.key is None and top.items is None:
            self._note(event, "catalog.key_not_text")
            opened.is_key = True  # it is read and thrown away, with the value that follows
        self.stack.append(opened)

    def _key(self, top: _Open, value: str, resolved: Scalar, at: tuple[int, int], implicit: bool) -> None:
        if resolved.__class__ is not str:
            value = _key_text(resolved)
        if value == "<<" and implicit:
            top.key = (value, *at)
            return
        if value in top.keys:
            here = Position(self.shown, *at)
            first = top.keys[value][0]
            self.problems.append(Problem(here, "catalog.duplicate_key", {"name": value, "line": first}))
            if len(self.problems) > MAX_PROBLEMS:
                self.problems.append(Problem(here, "catalog.not_read_further", {"limit": MAX_PROBLEMS}))
                raise _StopError
        top.key = (value, *at)

    def _close(self, opened: _Open) -> None:
        node = opened.node
        if opened.merges and node.entries is not None and node.keys is not None:
            # Keys written in the mapping itself win; earlier merges win over later ones.
            for merged in opened.merges:
                for name, value in (merged.entries or {}).items():
                    if name not in node.entries:
                        node.entries[name] = value
                        node.keys[name] = (merged.keys or {})[name]
        top = self.stack[-1] if self.stack else None
        if opened.is_key and top is not None:
            top.key, top.skip = ("", 0, 0), True
            return
        self._place(top, node, opened.anchor, opened.size)

    def _alias(self, event: Event) -> None:
        top = self.stack[-1] if self.stack else None
        found = self.anchors.get(event.anchor)
        if found is None:
            if not self.quiet:
                self._note(event, "catalog.unknown_alias", name=event.anchor)
            mark = event.start_mark
            found = (Node(self.shown, mark.line + 1, mark.column + 1), 1)
        node, size = found
        if top is not None and top.key is None and top.items is None:
            if node.entries is not None or node.items is not None:
                self._note(event, "catalog.key_not_text")
                top.key, top.skip = ("", 0, 0), True
            else:
                mark = event.start_mark
                text = node.scalar if isinstance(node.scalar, str) else _key_text(node.scalar)
                self._key(top, text, node.scalar, (mark.line + 1, mark.column + 1), False)
            return
        self._place(top, node, None, size)

    def _place(self, top: _Open | None, node: Node, anchor: str | None, size: int) -> None:
        self.count += 1
        if anchor:
            self.anchors[anchor] = (node, size)
        if self.count > MAX_VALUES or size > MAX_ALIASED_VALUES:
            bomb = size > MAX_ALIASED_VALUES
            which = "catalog.alias_bomb" if bomb else "catalog.too_many_values"
            self.problems.append(
                Problem(node.at, which, {"limit": MAX_ALIASED_VALUES if bomb else MAX_VALUES})
            )
            raise _StopError
        if top is None:
            self.root = node
            return
        top.size += size
        if top.items is not None:
            top.items.append(node)
            return
        key = top.key
        top.key = None
        if top.skip:
            top.skip = False
            return
        if key is None:
            raise RuntimeError("a value without its key")
        if key[0] == "<<":
            self._merge(top, key, node)
            return
        top.entries[key[0]] = node
        top.keys[key[0]] = key[1:]

    def _merge(self, top: _Open, key: tuple[str, int, int], node: Node) -> None:
        merged = node.items if node.items is not None else [node]
        for one in merged:
            if one.entries is not None:
                top.merges.append(one)
            elif not (self.quiet and one.kind == "null"):
                self.problems.append(Problem(Position(self.shown, key[1], key[2]), "catalog.bad_merge", {}))


def _key_text(value: Scalar) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)
