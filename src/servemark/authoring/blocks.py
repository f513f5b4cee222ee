"""A page as data: headings, lines, bullets and tables of plain text, shown as markdown or as one HTML file.

Every text may come from a branch that nobody has reviewed yet: nothing in it becomes markup, a link or a mention.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from servemark.base.printable import one_line

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~!&$])")
_MENTION = re.compile(r"@(?=\w)")
_ADDRESS = re.compile(r"(?i)\b(https?|ftp)://|\bwww\.")
_BLOCK = re.compile(r"(?:[-+=]|\d+[.)])(?=\s|[-+=]|$)")
MAX_CELL = 400
"""Characters of one text that are shown; the rest is cut."""
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;background:#fff}"
    "table{border-collapse:collapse;display:block;overflow-x:auto}th,td{border:1px solid #8a8a8a;padding:.25rem .6rem;"
    "text-align:left;vertical-align:top;overflow-wrap:anywhere}th{background:#f1f1f1}"
    "@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}th{background:#262626}}"
)


@dataclass(frozen=True, slots=True)
class Heading:
    """A title; `level` 1 is the page's."""

    level: int
    said: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One sentence or more."""

    said: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list. `boxes` gives each item's tick box: True ticked, False open, None none."""

    said: tuple[str, ...]
    boxes: tuple[bool | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below a head; every row has as many cells as the head."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


Block = Heading | Paragraph | Bullets | Table


def shortened(said: str, most: int = MAX_CELL) -> str:
    """The text on one line, cut after `most` characters."""
    flat = one_line(said)
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


def markdown_text(said: str) -> str:
    """One line in which nothing is markup, nobody is called and no address becomes a link."""
    safe = _SPECIAL.sub(r"\\\1", shortened(said))
    safe = _MENTION.sub("@<!-- -->", safe)
    safe = _ADDRESS.sub(lambda found: f"{found.group(0)[:-1]}<!-- -->{found.group(0)[-1]}", safe)
    return f"\\{safe}" if _BLOCK.match(safe) and not safe[:1].isdigit() else safe


def markdown_lines(blocks: Iterable[Block]) -> list[str]:
    """The page in GitHub's markdown."""
    lines: list[str] = []
    for block in blocks:
        lines += [*([""] if lines else []), *_markdown(block)]
    return lines


def _markdown(block: Block) -> list[str]:
    if isinstance(block, Heading):
        return [f"{'#' * block.level} {markdown_text(block.said)}"]
    if isinstance(block, Paragraph):
        return [markdown_text(block.said)]
    if isinstance(block, Bullets):
        boxes = block.boxes or (None,) * len(block.said)
        marks = {True: "[x] ", False: "[ ] ", None: ""}
        return [f"- {marks[box]}{markdown_text(one)}" for one, box in zip(block.said, boxes, strict=True)]
    return [_row(block.head), _rule(block.head), *(_row(row) for row in block.rows)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(markdown_text(cell) for cell in cells) + " |"


def _rule(cells: Sequence[str]) -> str:
    return "|" + "|".join(" --- " for _ in cells) + "|"


def html_page(parts: Sequence[tuple[str, Sequence[Block]]]) -> str:
    """One HTML file without a script and without a request: (language, blocks) of each half, below each other."""
    first = parts[0][1][0] if parts and parts[0][1] else None
    title = escape(shortened(first.said)) if isinstance(first, Heading) else "servemark"
    body = "\n".join(
        f'<section lang="{escape(lang)}">\n' + "\n".join(_html(block) for block in blocks) + "\n</section>"
        for lang, blocks in parts
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        f'<!doctype html>\n<html lang="{escape(parts[0][0] if parts else "en")}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{escape(shortened(block.said))}</h{block.level}>"
    if isinstance(block, Paragraph):
        return f"<p>{escape(shortened(block.said))}</p>"
    if isinstance(block, Bullets):
        boxes = block.boxes or (None,) * len(block.said)
        marks = {True: "☑ ", False: "☐ ", None: ""}
        items = (
            f"<li>{marks[box]}{escape(shortened(one))}</li>"
            for one, box in zip(block.said, boxes, strict=True)
        )
        return "<ul>\n" + "\n".join(items) + "\n</ul>"
    head = "".join(f'<th scope="col">{escape(shortened(cell))}</th>' for cell in block.head)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(shortened(cell))}</td>" for cell in row) + "</tr>"
        for row in block.rows
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
