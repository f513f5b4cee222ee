"""Byte-safe edits of YAML: a block of a file is copied, values in it are set; every other byte stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from servemark.base.errors import ServemarkError, input_error
from servemark.catalog.fields import nearest
from servemark.catalog.nodes import Node, Position, errors_of, problems_error
from servemark.catalog.yaml_nodes import parse_yaml
from servemark.checks.fixes import Edit, applied
from servemark.checks.places import token_length

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")
_PLAIN = re.compile(r"[A-Za-z0-9/][A-Za-z0-9_./:@+-]*\Z")
MAX_NAMED = 12


@dataclass(frozen=True, slots=True)
class Setting:
    """`KEY=VALUE`: a key's dotted path, or the end of it; with `*.` in front every place that it fits."""

    key: str
    value: str


def setting_of(said: str) -> Setting:
    """ServemarkError (exit 2) where it is no `KEY=VALUE`."""
    key, equals, value = said.partition("=")
    if not equals or not key.strip("*."):
        raise input_error("authoring.new.bad_set", said=said[:120])
    if "\n" in value or "\r" in value or "\0" in value:
        raise input_error("authoring.new.bad_value", name=key[:80])
    return Setting(key, value)


def copied_block(data: bytes, shown: str, key: str, name: str) -> tuple[bytes, bytes, int]:
    """(file with the mapping `key` of its top level copied under `name` right behind it, the copy, its first line from 1).

    ServemarkError (exit 2): a name that is no plain key or is taken, or a file in which the copy would change anything
    else (an anchor within the block, a flow mapping)."""
    if not _KEY.match(name):
        raise input_error("authoring.new.bad_name", name=name[:120])
    root = _sound(data, shown)
    entries = root.entries or {}
    if name in entries:
        raise input_error("authoring.new.taken", name=name, where=str(root.key_at(name)))
    at = root.key_at(key)
    lines = data.splitlines(keepends=True)
    spelled = re.match(rb"(['\"]?)" + re.escape(key.encode()) + rb"\1[ ]*:", lines[at.line - 1])
    if at.column != 1 or spelled is None:
        raise input_error("authoring.new.no_block", where=str(at), name=key)
    later = [root.key_at(other).line for other in entries if root.key_at(other).line > at.line]
    end = min(later, default=len(lines) + 1) - 1
    while end > at.line and (not lines[end - 1].strip() or lines[end - 1].startswith((b"#", b"---", b"..."))):
        end -= 1
    newline = b"\r\n" if lines[at.line - 1].endswith(b"\r\n") else b"\n"
    block = list(lines[at.line - 1 : end])
    block[0] = name.encode() + b":" + block[0][spelled.end() :]
    if not block[-1].endswith(b"\n"):
        block[-1] += newline
    before = b"".join(lines[:end])
    gap = newline if end < len(lines) and not lines[end].strip() else b""
    start = before if before.endswith(b"\n") else before + newline
    result = start + gap + b"".join(block) + b"".join(lines[end:])
    after = _sound(result, shown)
    if {k: n.plain() for k, n in (after.entries or {}).items() if k != name} != root.plain():
        raise input_error("authoring.new.not_safe", where=str(at), name=key)
    return result, b"".join(block), end + (1 if gap else 0) + 1


def with_settings(data: bytes, shown: str, within: str | None, settings: Sequence[Setting]) -> bytes:
    """The file with values set below one key of its top level (None: anywhere). Each must be there already.

    ServemarkError (exit 2): no such key, several of them, a value of another kind, or an edit that changes more."""
    for one in settings:
        data = _set(data, shown, within, one)
    return data


def _set(data: bytes, shown: str, within: str | None, one: Setting) -> bytes:
    root = _sound(data, shown)
    top = root if within is None else (root.entries or {})[within]
    places = _places(top)
    everywhere = one.key.startswith("*.")
    wanted = tuple(one.key.removeprefix("*.").split("."))
    found = [(path, node) for path, node in places if path == wanted]
    found = found or [(path, node) for path, node in places if path[-len(wanted) :] == wanted]
    where = within or shown
    if not found:
        names = sorted({".".join(path) for path, _ in places})
        raise _no_key(one.key, wanted[-1], {path[-1] for path, _ in places}, where, len(names))
    if len(found) > 1 and not everywhere:
        listed = ", ".join(".".join(path) for path, _ in found[:MAX_NAMED])
        raise input_error(
            "authoring.new.many_keys", name=one.key[:80], within=where, count=len(found), keys=listed
        )
    lines = data.splitlines(keepends=True)
    mappings = {path: node for path, node in top.walk() if node.entries is not None}
    edits = {}
    for path, node in found:
        parent = mappings.get(path[:-1])
        merged = parent is not None and parent.key_at(path[-1]).line < parent.line
        edit = (
            _override(lines, parent, node, path[-1], one)
            if merged and parent
            else _edit(lines, node, path, one)
        )
        edits[edit.start] = edit
    result = applied(data, [edit for _, edit in sorted(edits.items())])
    try:
        after = _sound(result, shown)
    except ServemarkError:  # for one, an alias whose anchor went
        raise input_error("authoring.new.not_safe", where=str(found[0][1].at), name=one.key[:80]) from None
    changed = sum(
        (a.kind, a.scalar) != (b.kind, b.scalar)
        for (_, a), (_, b) in zip(_leaves(root), _leaves(after), strict=False)
    )
    lists = any(node.items is not None for _, node in found)
    if not lists and (len(_leaves(root)) != len(_leaves(after)) or changed > len(found)):
        raise input_error("authoring.new.not_safe", where=str(found[0][1].at), name=one.key[:80])
    return result


def _no_key(key: str, last: str, ends: set[str], where: str, count: int) -> ServemarkError:
    """The nearest key where one is alike, else those that hold the same word, else all of them."""
    near = nearest(last, ends)
    if near is not None:
        return input_error("authoring.new.no_key", name=key[:80], within=where, near=near, count=count)
    listed = sorted(end for end in ends if last[:4].lower() in end.lower()) or sorted(ends)
    keys = ", ".join(listed[:MAX_NAMED]) + (", …" if len(listed) > MAX_NAMED else "")
    return input_error("authoring.new.no_such_key", name=key[:80], within=where, keys=keys, count=count)


def _override(lines: list[bytes], parent: Node, node: Node, name: str, one: Setting) -> Edit:
    """A line of its own in a mapping that merges the value from an anchor: the anchored mapping stays as it is."""
    first = lines[parent.line - 1]
    indent = first[: parent.column - 1]
    if indent.strip() or first[parent.column - 1 : parent.column] in {b"{", b"&"}:
        raise input_error("authoring.new.not_safe", where=str(parent.at), name=one.key[:80])
    newline = "\r\n" if first.endswith(b"\r\n") else "\n"
    said = f"{_scalar(name, 'text', parent.at, one.key)}: {_scalar(one.value, node.kind, node.at, one.key)}{newline}"
    start = sum(len(each) for each in lines[: parent.line - 1])
    return Edit(start, start, indent + said.encode())


def _leaves(root: Node) -> list[tuple[tuple[str, ...], Node]]:
    return [(path, node) for path, node in root.walk() if node.entries is None and node.items is None]


def _places(top: Node) -> list[tuple[tuple[str, ...], Node]]:
    """Scalars and flat lists by their path; a `KEY=VALUE` text of a list by its KEY instead of its number."""
    found = []
    for path, node in top.walk():
        if not path or node.entries is not None:
            continue
        if node.items is not None:
            if all(item.entries is None and item.items is None for item in node.items):
                found.append((path, node))
            continue
        said = node.scalar if isinstance(node.scalar, str) else ""
        name, equals, _ = said.partition("=")
        if equals and path[-1].isdigit():
            found.append(((*path[:-1], name), node))
        else:
            found.append((path, node))
    return found


def _edit(lines: list[bytes], node: Node, path: tuple[str, ...], one: Setting) -> Edit:
    line = lines[node.line - 1].decode("utf-8")
    start = node.column - 1
    flow = False
    if node.items is not None:
        end = line.find("]", start)
        if line[start : start + 1] != "[" or end < 0 or "[" in line[start + 1 : end]:
            raise input_error("authoring.new.list", where=str(node.at), name=one.key[:80])
        length = end + 1 - start
        parts = [part.strip() for part in one.value.strip("[]").split(",") if part.strip()]
        kinds = {item.kind for item in node.items}
        kind = kinds.pop() if len(kinds) == 1 else "text"
        said = "[" + ", ".join(_scalar(part, kind, node.at, one.key) for part in parts) + "]"
    else:
        before = line[:start]
        flow = before.count("{") + before.count("[") > before.count("}") + before.count("]")
        length = token_length(line.rstrip("\r\n"), start)
        inner = node.scalar if isinstance(node.scalar, str) else ""
        keyed = path[-1] != "" and inner.startswith(f"{path[-1]}=")
        value = f"{path[-1]}={one.value}" if keyed else one.value
        said = _scalar(value, node.kind, node.at, one.key)
        if flow and any(sign in said for sign in ",[]{}") and not said.startswith('"'):
            said = json.dumps(value, ensure_ascii=False)
    offset = sum(len(each) for each in lines[: node.line - 1])
    first = offset + len(line[:start].encode())
    return Edit(first, first + len(line[start : start + length].encode()), said.encode())


def _scalar(value: str, kind: str, at: Position, key: str) -> str:
    """A value as YAML of the kind that stands there. ServemarkError (exit 2) for another kind."""
    root, problems = parse_yaml(f"v: {value}\n".encode(), "value")
    made = (root.entries or {}).get("v") if not errors_of(problems) else None
    now = made.kind if made is not None else "text"
    if kind in {"text", "null"}:
        if kind == "text" and now == "text" and _PLAIN.match(value):
            return value
        return (
            value
            if kind == "null" and now in {"integer", "number", "boolean"}
            else json.dumps(value, ensure_ascii=False)
        )
    if now != kind and not (kind == "number" and now == "integer"):
        raise input_error("authoring.new.kind", where=str(at), name=key[:80], value=value[:80], kind=kind)
    return value.strip()


def _sound(data: bytes, shown: str) -> Node:
    root, problems = parse_yaml(data, shown)
    wrong = errors_of(problems)
    if wrong:
        raise problems_error(wrong)
    return root
