"""The table of points: the chart's equal, sortable, and the same figures as CSV."""

from __future__ import annotations

import csv
import io
from itertools import groupby
from urllib.parse import quote

from servemark.analysis.report_types import Cell, Column, PointView, ReportData
from servemark.base.messages import find_text
from servemark.metrics.registry import METRICS
from servemark.report.views import Group, SortHead, Table, TableCell, TableRow
from servemark.report.words import Words, anchor, capital


def table_part(data: ReportData, t: Words) -> Table:
    """Columns of one metric stand together below the metric's name, which leads to its definition."""
    runs = [list(members) for _, members in groupby(data.columns, key=_metric)]
    return Table(
        groups=tuple(_group(members, data.lang) for members in runs),
        columns=tuple(
            SortHead(
                _statistic(column) if len(members) > 1 else "",
                t("report.table.sort", column=column.label),
                place == 0,
            )
            for members in runs
            for place, column in enumerate(members)
        ),
        rows=tuple(_row(index, point, t) for index, point in enumerate(data.points)),
        csv="data:text/csv;charset=utf-8," + quote(_csv(data), errors="replace"),
        csv_name="servemark-points.csv",
    )


def _metric(column: Column) -> str:
    """The metric of a column; each accuracy task is a metric of its own here."""
    name, _, rest = column.address.partition(".")
    return column.address if name in METRICS and not METRICS[name].has_statistics and rest else name


def _statistic(column: Column) -> str:
    return column.address.partition(".")[2]


def _group(members: list[Column], lang: str) -> Group:
    first = members[0]
    name = first.address.partition(".")[0]
    label = (find_text(f"metrics.{name}.label", lang) or name) if len(members) > 1 else first.label
    return Group(label, first.unit, anchor(first.address), len(members))


def _row(index: int, point: PointView, t: Words) -> TableRow:
    return TableRow(
        id=f"row-{index}",
        href=f"#in-{index}",
        label=capital(point.label),
        tag="" if point.status == "complete" else t(f"report.status.{point.status}"),
        sort="" if point.concurrency is None else str(point.concurrency),
        cells=tuple(_cell(cell) for cell in point.cells),
    )


def _cell(cell: Cell) -> TableCell:
    sort = "" if cell.value is None else f"{cell.value:.12g}"
    return TableCell(cell.number, sort, cell.best, cell.absent_because)


def _csv(data: ReportData) -> str:
    """Raw values in stored units under their addresses; absent is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(
        ["run_id", "concurrency", "arrivals", "status", *(column.address for column in data.columns)]
    )
    for point in data.points:
        values = ["" if cell.value is None else repr(cell.value) for cell in point.cells]
        law = "" if point.concurrency is not None else point.load
        load = ("" if point.concurrency is None else point.concurrency, _harmless(law))
        writer.writerow([_harmless(point.run_id), *load, point.status, *values])
    return out.getvalue()


def _harmless(words: str) -> str:
    """Text that a spreadsheet would take for a formula gets a quote in front."""
    return f"'{words}" if words[:1] in ("=", "+", "-", "@", "\t", "\r") else words
