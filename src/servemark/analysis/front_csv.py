"""A front view as CSV: one line a point, every column, with its unit in its name; safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io

from servemark.analysis.columnar import flat_rows
from servemark.analysis.front_types import FrontView
from servemark.base.printable import one_line

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A text that begins so would be run by a spreadsheet; names come from files of others."""


def front_csv(view: FrontView) -> str:
    """Header and rows, ended by line feeds; empty cells are absent values. No rows: the header alone of what is known."""
    rows = flat_rows(view)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = list(rows[0]) if rows else ["ref", "point_key", "line_key", view.x.address, view.y.address]
    writer.writerow([cell(head) for head in heads])
    for row in rows:
        writer.writerow([cell(row[head]) for head in heads])
    return out.getvalue()


def cell(value: object) -> object:
    """A value as it may stand in a cell: numbers as they are, texts on one line and never as a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return repr(value)
    said = one_line(str(value))
    return f"'{said}" if said.startswith(_FORMULA) else said
