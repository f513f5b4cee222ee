"""Reading the project's Markdown: pages, headings, code blocks, links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^```(\S*)\n(.*?)^```", re.S | re.M)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block. `note` is the HTML comment on the line before it, or empty."""

    language: str
    body: str
    note: str


def blocks(page: str) -> list[Block]:
    """All fenced blocks in order."""
    found = []
    for match in _FENCE.finditer(page):
        before = page[: match.start()].rstrip("\n").rpartition("\n")[2]
        note = before if before.startswith("<!--") else ""
        found.append(Block(match[1], match[2], note))
    return found


def prose(page: str) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page)


def heading_levels(page: str) -> list[int]:
    """1 for `#`, 2 for `##`, in order."""
    return [len(marks) for marks in re.findall(r"^(#+) ", prose(page), re.M)]


def headings(page: str) -> list[str]:
    """Texts of all headings."""
    return re.findall(r"^#+ (.*)$", prose(page), re.M)


def links(page: str) -> list[str]:
    """Targets of inline links; none of inline code."""
    return re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(page)))


def anchor(heading: str) -> str:
    """As GitHub makes one: lower case, punctuation gone, spaces to hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def english_pages() -> list[str]:
    """Paths below docs/ of the pages that exist in both languages; decisions are in English alone."""
    return sorted(
        path.relative_to(DOCS).as_posix()
        for path in DOCS.rglob("*.md")
        if path.relative_to(DOCS).parts[0] not in {"zh", "decisions"}
    )
