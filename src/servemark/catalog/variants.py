"""Recipe files with variants: `base:` with `override_NAME` and `zip_override_NAME[i]` blocks, merged as
trees.

A mapping is merged key by key, a null deletes, anything else replaces. In a zip block a list is one value
for each variant and `[i]` chooses it; other values hold for all. Values keep the positions of the block
they come from.
"""

from __future__ import annotations

import re

from servemark.catalog.fields import nearest
from servemark.catalog.nodes import Node, Problem

_PLAIN, _ZIP = "override_", "zip_override_"
_SELECTOR = re.compile(r"((?:zip_)?override_[^\[\]]+)(?:\[(\d{1,4})\])?\Z")
MAX_VARIANTS = 1000


def has_variants(root: Node) -> bool:
    """Whether a recipe's tree is a base with overrides."""
    return root.entries is not None and "base" in root.entries


def variant_names(root: Node) -> tuple[str, ...]:
    """All variants in file order: `override_NAME`, `zip_override_NAME[0]`, ..."""
    found: list[str] = []
    for name, node in (root.entries or {}).items():
        if name.startswith(_ZIP):
            found += [f"{name}[{index}]" for index in range(_length(node, name, []) or 0)]
        elif name.startswith(_PLAIN):
            found.append(name)
    return tuple(found)


def resolve_variant(root: Node, selector: str | None, problems: list[Problem]) -> Node | None:
    """The merged tree of one variant; None with problems when it cannot be had.

    Without a selector the base alone is meant when the file has no overrides, else a variant must be named.
    """
    entries = root.entries or {}
    for name in entries:
        if name != "base" and not name.startswith((_PLAIN, _ZIP)):
            near = nearest(name, ("base", _PLAIN, _ZIP))
            values: dict[str, object] = {"field": name[:200], "what": "recipe with variants", "near": near}
            key = "catalog.unknown_field_near" if near else "catalog.unknown_field"
            problems.append(Problem(root.key_at(name), key, values))
    base = entries["base"]
    if base.entries is None:
        problems.append(Problem(base.at, "catalog.not_mapping", {"what": "base", "kind": base.kind}))
        return None
    names = variant_names(root)
    if selector is None:
        if names:
            problems.append(Problem(root.at, "catalog.variant_missing", {"names": _shown(names)}))
            return None
        return base
    found = _SELECTOR.match(selector)
    block = entries.get(found.group(1)) if found else None
    if found is None or block is None:
        values = {"variant": selector[:200], "names": _shown(names)}
        problems.append(Problem(root.at, "catalog.no_variant", values))
        return None
    return _apply(base, block, found.group(1), found.group(2), problems)


def _shown(names: tuple[str, ...]) -> str:
    return ", ".join(names[:12]) + (", …" if len(names) > 12 else "")


def _apply(base: Node, block: Node, name: str, index: str | None, problems: list[Problem]) -> Node | None:
    if block.entries is None:
        problems.append(Problem(block.at, "catalog.not_mapping", {"what": name, "kind": block.kind}))
        return None
    if not name.startswith(_ZIP):
        if index is None:
            return _merged(base, block)
        problems.append(Problem(block.at, "catalog.index_without_zip", {"name": name}))
        return None
    length = _length(block, name, problems)
    chosen = int(index or 0)
    if length is not None and ((index is None and length != 1) or chosen >= length):
        problems.append(Problem(block.at, "catalog.zip_index", {"name": name, "count": length}))
        length = None
    return None if length is None else _merged(base, _picked(block, chosen))


def _length(block: Node, name: str, problems: list[Problem]) -> int | None:
    """How many variants a zip block has: the length of all its lists, 1 without lists."""
    lengths: dict[int, Node] = {}
    for _, node in _leaves(block):
        if node.items is not None:
            lengths.setdefault(len(node.items), node)
    if len(lengths) > 1:
        (first, _), (second, other) = list(lengths.items())[:2]
        values: dict[str, object] = {"name": name, "first": first, "second": second}
        problems.append(Problem(other.at, "catalog.zip_lengths", values))
        return None
    found = next(iter(lengths), 1)
    if not 0 < found <= MAX_VARIANTS:
        problems.append(Problem(block.at, "catalog.zip_index", {"name": name, "count": found}))
        return None
    return found


def _leaves(node: Node) -> list[tuple[str, Node]]:
    """Lists and scalars below a mapping, not those inside lists."""
    found: list[tuple[str, Node]] = []
    for key, inner in (node.entries or {}).items():
        found += _leaves(inner) if inner.entries is not None else [(key, inner)]
    return found


def _picked(node: Node, index: int) -> Node:
    """The block with every list leaf replaced by its element."""
    if node.items is not None:
        return node.items[index]
    if node.entries is None:
        return node
    copy = Node(node.file, node.line, node.column)
    copy.entries = {key: _picked(inner, index) for key, inner in node.entries.items()}
    copy.keys = node.keys
    return copy


def _merged(base: Node, over: Node) -> Node:
    if base.entries is None or over.entries is None:
        return over
    merged = Node(base.file, base.line, base.column)
    merged.entries = dict(base.entries)
    merged.keys = dict(base.keys or {})
    for key, value in over.entries.items():
        if value.kind == "null":
            merged.entries.pop(key, None)
            merged.keys.pop(key, None)
            continue
        below = merged.entries.get(key)
        merged.entries[key] = _merged(below, value) if below is not None else value
        merged.keys[key] = (over.keys or {})[key]
    return merged
