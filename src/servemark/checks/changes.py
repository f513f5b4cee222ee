"""A changelog as bytes and as entries: its lines, the span of each entry, what a head adds to a base.

Nothing here edits; `changelog_edit` does. Spans are line numbers from 0; an entry's span ends before the blank
lines that follow it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from servemark.catalog.changelog import ChangelogEntry, entries_of
from servemark.catalog.nodes import Node, Position, Problem
from servemark.catalog.yaml_nodes import parse_yaml

FIRST = b"- config-keys:"
_CANONICAL = re.compile(r"(https?://[^/\s]+/[^/\s]+/[^/\s]+/(?:-/)?(?:pull|pulls|merge_requests)/)(\d+)\Z")
PLACEHOLDER = "XXX"


def link_prefix(links: list[str]) -> str | None:
    """What the links of a changelog have before the number of the pull request: the commonest one."""
    found = Counter(match.group(1) for link in links if (match := _CANONICAL.match(link)))
    return found.most_common(1)[0][0] if found else None


@dataclass
class Change:
    """One changelog, with the one that it grew from where that is known.

    `pr` is the address of the pull request that adds, None where it is not known. `on_main` asks for finished
    links. `arms` are the keys that entries may name, None where they are not known.
    """

    shown: str
    head: bytes
    base: bytes | None = None
    pr: str | None = None
    on_main: bool = False
    arms: frozenset[str] | None = None
    problems: list[Problem] = field(default_factory=list)

    def at(self, line: int, column: int = 1) -> Position:
        """A place of the head; lines count from 0 here and from 1 there."""
        return Position(self.shown, line + 1, column)

    @cached_property
    def lines(self) -> list[bytes]:
        """The head's lines without their ends."""
        return self.head.split(b"\n")

    @cached_property
    def tree(self) -> Node:
        """The head as YAML; what is wrong with it goes to `problems`."""
        root, found = parse_yaml(self.head, self.shown)
        self.problems = list(found)
        return root

    @cached_property
    def entries(self) -> tuple[ChangelogEntry, ...]:
        """The head's sound entries."""
        root = self.tree
        return entries_of(root, self.problems)

    @cached_property
    def base_entries(self) -> list[object]:
        """The base's entries as plain values."""
        if self.base is None:
            return []
        root, _ = parse_yaml(self.base, self.shown)
        return [item.plain() for item in root.items or ()]

    @cached_property
    def head_plain(self) -> list[object]:
        """The head's entries as plain values."""
        return [item.plain() for item in self.tree.items or ()]

    @cached_property
    def starts(self) -> list[int]:
        """Lines on which an entry begins."""
        return [number for number, line in enumerate(self.lines) if line.startswith(FIRST)]

    @cached_property
    def prefix(self) -> str | None:
        """What links of this suite begin with."""
        return link_prefix([entry.pr_link for entry in self.entries])

    def canonical(self, link: str) -> bool:
        """Whether a link is a finished one of this suite."""
        found = _CANONICAL.match(link)
        return bool(found) and (self.prefix is None or (found is not None and found.group(1) == self.prefix))

    def placeholder(self, link: str) -> bool:
        """Whether a link is the placeholder, alone or as the number of a link."""
        return (
            link == PLACEHOLDER
            or (self.prefix is not None and link == f"{self.prefix}{PLACEHOLDER}")
            or bool(self.prefix is None and re.fullmatch(r"https?://[^\s]+/pull/XXX", link))
        )

    @cached_property
    def appended(self) -> bool:
        """Whether the head begins with the base, byte for byte."""
        return self.base is not None and self.head.startswith(self.base)

    @cached_property
    def inserted(self) -> int | None:
        """Number of entries before additions that stand in the midst of history; None for additions at the end."""
        old, new = self.base_entries, self.head_plain
        more = len(new) - len(old)
        first = next((n for n, (one, two) in enumerate(zip(old, new, strict=False)) if one != two), None)
        if more <= 0 or first is None or new[first + more :] != old[first:]:
            return None
        return first

    @cached_property
    def first_new(self) -> int:
        """Number of entries that are history. Without a base, the entries after the last finished link are
        taken for new."""
        if self.inserted is not None:
            return self.inserted
        if self.base is not None:
            return min(len(self.base_entries), len(self.head_plain))
        count = len(self.entries)
        while count and not self.canonical(self.entries[count - 1].pr_link):
            count -= 1
        return count

    @cached_property
    def new_entries(self) -> tuple[ChangelogEntry, ...]:
        """The entries that are new (or taken for it)."""
        if self.base is None:
            return self.entries[self.first_new :]
        items = self.tree.items or []
        first = items[self.first_new].line if self.first_new < len(items) else None
        more = len(self.head_plain) - len(self.base_entries)
        after = items[self.first_new + more].line if self.inserted is not None else None
        found = tuple(e for e in self.entries if first is not None and e.at.line >= first)
        return tuple(e for e in found if after is None or e.at.line < after)

    @cached_property
    def changed_history(self) -> list[tuple[int, object, object]]:
        """(index, before, after) of history entries whose values differ."""
        if self.inserted is not None:
            return []
        pairs = zip(self.base_entries, self.head_plain, strict=False)
        return [(i, old, new) for i, (old, new) in enumerate(pairs) if old != new]

    @cached_property
    def corrections(self) -> list[tuple[int, str, str]]:
        """(index, old link, new link) of history entries of which only the link differs."""
        found = []
        for index, old, new in self.changed_history:
            if isinstance(old, dict) and isinstance(new, dict):
                rest = [{k: v for k, v in one.items() if k != "pr-link"} for one in (old, new)]
                if rest[0] == rest[1]:
                    found.append((index, str(old.get("pr-link")), str(new.get("pr-link"))))
        return found

    def entry_line(self, index: int) -> int:
        """Line (from 0) of the head's entry number `index`."""
        items = self.tree.items or []
        return items[index].line - 1 if index < len(items) else max(len(self.lines) - 1, 0)
