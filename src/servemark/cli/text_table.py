"""Text in columns on a terminal: wide characters take two columns, and nothing is wider than the terminal."""

from __future__ import annotations

import re
import unicodedata

_CLOSING = "\u3001\u3002\uff0c\uff1b\uff1a\uff09\u300d\u201d\uff01\uff1f"
_PIECE = re.compile(rf"\s+|[\u2e80-\uffef][{_CLOSING}]*|[^\s\u2e80-\uffef]+[{_CLOSING}]*")
"""A space, a wide letter or a word, with the closing punctuation that must not begin a line."""


def table(heads: list[str], rows: list[list[str]], width: int, flexible: int = 0) -> list[str]:
    """Columns two spaces apart, numbers to the right; the flexible one gives way when the terminal is
    narrow."""
    columns = list(zip(heads, *rows, strict=True))
    widths = [max(columns_of(cell) for cell in column) for column in columns]
    over = sum(widths) + 2 * (len(widths) - 1) - width
    if over > 0:
        widths[flexible] = max(12, widths[flexible] - over)
    lines = []
    for row in [heads, ["─" * w for w in widths], *rows]:
        cells = [
            padded(shortened(cell, widths[i]), widths[i], left=i == flexible) for i, cell in enumerate(row)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def wrapped(line: str, width: int, indent: str) -> list[str]:
    """Lines no wider than the terminal. A break comes at a space or beside a wide letter, never before closing
    punctuation; a piece that is wider than the terminal is cut."""
    lines: list[str] = []
    current = indent
    for piece in _PIECE.findall(line):
        if columns_of(current + piece.rstrip()) > width and current.strip():
            lines.append(current.rstrip())
            current = (indent or "  ") + piece.lstrip()
        else:
            current += piece
        while columns_of(current.rstrip()) > max(width, 20):
            cut = _fitting(current, max(width, 20))
            lines.append(current[:cut])
            current = (indent or "  ") + current[cut:]
    return [*lines, current.rstrip()] if current.strip() else lines


def _fitting(text: str, width: int) -> int:
    """Letters of `text` that fill at most `width` columns; at least one."""
    used = 0
    for count, letter in enumerate(text):
        used += columns_of(letter)
        if used > width:
            return max(1, count)
    return len(text)


def columns_of(cell: str) -> int:
    """Columns that a text takes on a terminal: wide characters take two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in cell)


def padded(cell: str, width: int, *, left: bool) -> str:
    """The text with spaces up to `width`; `left` puts the text to the left."""
    space = " " * max(0, width - columns_of(cell))
    return cell + space if left else space + cell


def shortened(cell: str, width: int) -> str:
    """The text, with its middle left out when it is too wide: ends of names tell them apart."""
    if columns_of(cell) <= width:
        return cell
    head = (width - 1) // 2
    tail = width - 1 - head
    return f"{cell[:head]}…{cell[-tail:]}"


def shortened_end(line: str, columns: int) -> str:
    """The line with its end left out when it is too wide: of a reason the first words count."""
    if columns_of(line) <= columns:
        return line
    kept = ""
    for letter in line:
        if columns_of(kept + letter) > columns - 1:
            break
        kept += letter
    return kept.rstrip() + "…"
