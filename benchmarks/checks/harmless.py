"""Edits that change no fact: the same suite written otherwise must give the same findings.

    python benchmarks/checks/harmless.py SUITE [--count 200] [--seed 1]

Each edit is drawn from a kind and a file. Where the values must stay equal, the file is read before and after and an edit
that is not equal is drawn again; the others are equal for the program that reads the value. Prints every new finding.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from servemark.catalog.nodes import Node, errors_of
from servemark.catalog.suite import read_suite
from servemark.catalog.yaml_nodes import parse_yaml
from servemark.checks.check import Wishes, check_suite
from servemark.checks.model import Finding
from servemark.checks.watch import Watcher

Edit = Callable[[str, Node, random.Random], str | None]
"""(text, its tree, chance) -> the text written otherwise; None where there is nothing of the kind."""
UNORDERED = {"search-space", "additional-settings", "conc-list", "fixed-seq-len", "agentic-coding"}
_SIZE = re.compile(r"(_size: [\"']?)(\d+)GB([\"']?)$", re.MULTILINE)


def comment(text: str, root: Node, chance: random.Random) -> str:
    """A remark or a blank line somewhere, or a remark behind a value."""
    lines = text.split("\n")
    at = chance.randrange(len(lines))
    if chance.random() < 0.3 and re.search(r"[\w\"'}\]]$", lines[at]):
        lines[at] += "  # why"
    else:
        lines.insert(at, chance.choice(("# a remark", "", "      # a remark")))
    return "\n".join(lines)


def _blocks(root: Node, text: str, kinds: str, chance: random.Random) -> tuple[int, int, int] | None:
    """First lines of three neighbours in a block mapping or list whose order has no meaning."""
    lines, found = text.split("\n"), []
    for path, node in root.walk():
        if kinds == "keys" and node.entries is not None and node.keys is not None:
            places = list(node.keys.values())
            starts = [line - 1 for line, column in places if not lines[line - 1][: column - 1].strip()]
        elif kinds == "items" and node.items is not None and path and path[-1] in UNORDERED:
            starts = [item.line - 1 for item in node.items if lines[item.line - 1].lstrip().startswith("- ")]
        else:
            continue
        rising = all(one < other for one, other in pairwise(starts))
        if rising and len(starts) >= 3:
            found += list(zip(starts, starts[1:], starts[2:], strict=False))
    return chance.choice(found) if found else None


def swap_keys(text: str, root: Node, chance: random.Random) -> str | None:
    """Two neighbours of a mapping change places."""
    return _swapped(text, _blocks(root, text, "keys", chance))


def swap_items(text: str, root: Node, chance: random.Random) -> str | None:
    """Two neighbours of a list without an order change places."""
    return _swapped(text, _blocks(root, text, "items", chance))


def _swapped(text: str, places: tuple[int, int, int] | None) -> str | None:
    if places is None:
        return None
    lines, (one, two, three) = text.split("\n"), places
    return "\n".join([*lines[:one], *lines[two:three], *lines[one:two], *lines[three:]])


def reversed_list(text: str, root: Node, chance: random.Random) -> str | None:
    """A flow list without an order is written from its end."""
    places = list(re.finditer(r"(conc-list: \[)([\d, ]+)(\])", text))
    if not places:
        return None
    one = chance.choice(places)
    items = ", ".join(reversed([item.strip() for item in one.group(2).split(",")]))
    return text[: one.start(2)] + items + text[one.end(2) :]


def quotes(text: str, root: Node, chance: random.Random) -> str | None:
    """A plain text gets quotes, a quoted one loses or changes them."""
    places = list(
        re.finditer(
            r"^(\s*(?:- )?[\w.-]+: )([^\s\[{&*|>#'\"][^#\n]*?|\"[^\"\n\\]*\"|'[^'\n]*')$", text, re.MULTILINE
        )
    )
    if not places:
        return None
    one = chance.choice(places)
    value = one.group(2)
    bare = value.strip("\"'")
    new = chance.choice([w for w in (bare, f'"{bare}"', f"'{bare}'") if w != value])
    return text[: one.start(2)] + new + text[one.end(2) :]


def flow_to_block(text: str, root: Node, chance: random.Random) -> str | None:
    """A mapping in braces is written as lines, its texts in double quotes."""
    lines, found = text.split("\n"), []
    for _, node in root.walk():
        for name, inner in (node.entries or {}).items():
            line = lines[inner.line - 1]
            key = (node.keys or {}).get(name, (0, 0))
            alone = inner.entries and key[0] == inner.line and line.rstrip().endswith("}")
            if alone and line[inner.column - 1 :].startswith("{") and not line[: key[1] - 1].strip():
                found.append((inner, key[1] - 1))
    if not found:
        return None
    inner, indent = chance.choice(found)
    lines[inner.line - 1] = lines[inner.line - 1][: inner.column - 1].rstrip()
    said = [
        f"{' ' * (indent + 2)}{name}: {json.dumps(v.plain())}" for name, v in (inner.entries or {}).items()
    ]
    return "\n".join([*lines[: inner.line], *said, *lines[inner.line :]])


def spelled(text: str, root: Node, chance: random.Random) -> str | None:
    """The same switch or number in another YAML 1.1 spelling."""
    forms: dict[str, tuple[str, ...]] = {
        "true": ("True", "yes", "on", "TRUE"),
        "false": ("False", "no", "off"),
    }
    places = list(re.finditer(r"(?<=: )(true|false|\d{4,}|0\.\d+)(?=\s*(?:,|\}|$))", text, re.MULTILINE))
    if not places:
        return None
    one = chance.choice(places)
    value = one.group(1)
    other = forms.get(value) or ((f"{value}0",) if "." in value else (f"{int(value):_}", f"+{value}"))
    return text[: one.start()] + chance.choice(other) + text[one.end() :]


def json_again(text: str, root: Node, chance: random.Random) -> str | None:
    """JSON in an argument with other spaces and another order of its keys."""
    places = list(re.finditer(r"'(\{\".*\})'", text))
    if not places:
        return None
    one = chance.choice(places)
    try:
        value = json.loads(one.group(1))
    except ValueError:
        return None
    return text[: one.start(1)] + json.dumps(dict(reversed(value.items()))) + text[one.end(1) :]


def argument_names(text: str, root: Node, chance: random.Random) -> str | None:
    """An engine argument or a field of the master with underscores for hyphens: both readers take both. Not in a file of
    variants, which are merged by the names as they are written."""
    if root.entries is not None and "base" in root.entries:
        return None
    places = list(re.finditer(r"^\s+(?:- )?([a-z]+(?:-[a-z]+)+)(?=: )", text, re.MULTILINE))
    if not places:
        return None
    one = chance.choice(places)
    return text[: one.start(1)] + one.group(1).replace("-", "_") + text[one.end(1) :]


def sizes(text: str, root: Node, chance: random.Random) -> str | None:
    """A store's size in another unit: its reader takes 1 GB for 1,024 MB."""
    places = list(_SIZE.finditer(text))
    if not places:
        return None
    one = chance.choice(places)
    new = chance.choice((f"{int(one.group(2)) * 1024}MB", f"{one.group(2)}gb"))
    return text[: one.start(2)] + new + text[one.end(2) + 2 :]


SAME_VALUES: dict[str, Edit] = {
    "comment": comment, "key order": swap_keys, "quotes": quotes, "block style": flow_to_block, "spelling": spelled,
}  # fmt: skip
SAME_MEANING: dict[str, Edit] = {
    "item order": swap_items, "list order": reversed_list, "JSON": json_again, "names": argument_names, "sizes": sizes,
}  # fmt: skip


def edited(text: str, kind: str, chance: random.Random) -> str | None:
    """The text after one edit of a kind; None when it has none or it would change a value."""
    root, problems = parse_yaml(text.encode(), "")
    edit = SAME_VALUES.get(kind) or SAME_MEANING[kind]
    new = edit(text, root, chance)
    if new is None or new == text:
        return None
    after, more = parse_yaml(new.encode(), "")
    if len(errors_of(more)) > len(errors_of(problems)):
        return None
    return None if kind in SAME_VALUES and after.plain() != root.plain() else new


def told(findings: tuple[Finding, ...]) -> Counter[tuple[object, ...]]:
    """Findings of any weight, whatever their lines."""
    return Counter(
        (f.code, f.severity, f.key, f.arm, re.sub(r":\d+:\d+", "", repr(sorted(f.values.items()))))
        for f in findings
    )


def run(where: Path, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """(edits made by kind, what they gave that was not there before)."""
    chance = random.Random(seed)
    made: Counter[str] = Counter()
    false: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / where.name
        shutil.copytree(where, copy, copy_function=shutil.copyfile)
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        suite, _ = read_suite(copy)
        files = [copy / master for master in suite.masters]
        files += [path for path in suite.recipe_files() for _ in range(2)] + [
            copy / master for master in suite.masters
        ] * 40
        watcher = Watcher(copy, Wishes())
        before = told(check_suite(copy).findings)
        watcher.check()
        kinds = [*SAME_VALUES, *SAME_MEANING]
        for number in range(count * 40):
            if made.total() >= count:
                break
            path, kind = chance.choice(files), kinds[number % len(kinds)]
            text = path.read_text(encoding="utf-8")
            new = edited(text, kind, chance)
            if new is None:
                continue
            made[kind] += 1
            path.write_text(new, encoding="utf-8")
            more = told(watcher.check().findings) - before
            if kind == "sizes":  # a message repeats a size as it is written
                more = Counter(name[:4] for name in more.elements()) - Counter(
                    name[:4] for name in before.elements()
                )
            path.write_text(text, encoding="utf-8")
            if more:
                changed = [a for a, b in zip(new.split("\n"), text.split("\n"), strict=False) if a != b][:1]
                false.append(f"{kind}: {path.relative_to(copy)}: {changed}: {list(more)[:2]}")
    return made, false


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    made, false = run(asked.suite, asked.count, asked.seed)
    sys.stdout.write("".join(f"{kind:<12} {number:>4}\n" for kind, number in sorted(made.items())))
    sys.stdout.write("".join(f"new: {line}\n" for line in false))
    sys.stdout.write(f"{made.total()} edits, {len(false)} with a new finding\n")
    return 1 if false else 0


if __name__ == "__main__":
    sys.exit(main())
