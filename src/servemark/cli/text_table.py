"""Text in columns on a terminal: wide characters take two columns, and nothing is wider than the terminal."""

from __future__ import annotations

import textwrap
import unicodedata


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
    """Lines no wider than the terminal; room is left for wide characters."""
    room = width if line.isascii() else width * len(line) // max(columns_of(line), 1)
    return textwrap.wrap(line, max(room, 20), initial_indent=indent, subsequent_indent=indent or "  ")


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
