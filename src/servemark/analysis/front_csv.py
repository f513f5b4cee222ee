"""A front view as CSV: one line a point, every column, with its unit in its name; safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io

from servemark.analysis.columnar import flat_rows
from servemark.analysis.front_types import FrontView
from servemark.store.tables import cell


def front_csv(view: FrontView, line_end: str = "\n") -> str:
    """Header and rows, each ended by `line_end`; absent values are empty cells. Empty without a row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=line_end)
    rows = flat_rows(view)
    if rows:
        writer.writerow([cell(head) for head in rows[0]])
        writer.writerows([cell(value) for value in row.values()] for row in rows)
    return out.getvalue()
