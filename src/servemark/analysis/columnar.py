"""A front view as columns: what a page and other programs read. Small, because names stand once and numbers have few
digits; complete, because every row is there with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from servemark.analysis.axes import AxisInfo
from servemark.analysis.front_types import FrontRow, FrontView, TargetView
from servemark.analysis.selection import LISTS, Selection
from servemark.analysis.staircase import Vertex
from servemark.analysis.targets import TargetRead

DIGITS = (5, 9, 17)
"""Significant digits of a number: so many, and more only where rounding once more for a reader could go another way."""
SMALL = 100
"""Below it a whole count is shown without a fraction and any other with one: 73 GPUs, 73.0 tokens on average."""
LINE_ID = 8
"""Letters of a line key in `lines`: a selection takes beginnings (`line=`), and 435 points stay below 25 KB."""


def columnar(view: FrontView) -> dict[str, object]:
    """Plain JSON values. Indices: `line` into `lines`, `series` into `series`, `reason` and `warning` into `reasons`,
    `points`, `on`, `floor`, `nearest`, `low` and `high` into the columns. `front` is that of the first of `fronts`. Point
    keys are left out: a `ref` names the point, and `flat_rows` has them."""
    fronts = [
        {"label": each.label, "points": each.points, "on": list(each.on), "path": _path(each.path)}
        for each in view.groups
    ]
    return {
        "selection": _selection(view.selection),
        "x": asdict(view.x),
        "y": asdict(view.y),
        "series": [
            {
                "id": each.id,
                "label": each.label,
                "parts": dict(each.parts),
                "group": each.group,
                "shown": each.shown,
                "official": each.official,
                "points": each.points,
                "path": _path(each.path),
            }
            for each in view.series
        ],
        "lines": [
            {
                "id": each.id[:LINE_ID],
                "series": each.series,
                "label": each.label,
                "run": each.run,
                "source": each.source,
                "date": each.date,
                "points": list(each.points),
            }
            for each in view.lines
        ],
        "columns": _columns(view.rows),
        "more": [asdict(each) for each in view.more],
        "values": {address: _numbers(values) for address, values in view.values.items()},
        "reasons": list(view.reasons),
        "left_out": [asdict(each) for each in view.left_out],
        "front": {"on": fronts[0]["on"], "path": fronts[0]["path"]} if fronts else {"on": [], "path": []},
        "fronts": fronts,
        "findings": list(view.findings),
        "target": _target(view.target),
        "notes": list(view.notes),
        "badges": list(view.badges),
        "card": view.card,
    }


def _columns(rows: Sequence[FrontRow]) -> dict[str, object]:
    """One value a row in each."""
    return {
        "ref": [row.ref for row in rows],
        "line": [row.line for row in rows],
        "concurrency": [row.concurrency for row in rows],
        "state": [row.state for row in rows],
        "reason": [row.reason for row in rows],
        "warning": [row.warning for row in rows],
        "x": _numbers(row.x for row in rows),
        "y": _numbers(row.y for row in rows),
        "x_low": _numbers(row.x_band and row.x_band[0] for row in rows),
        "x_high": _numbers(row.x_band and row.x_band[1] for row in rows),
        "y_low": _numbers(row.y_band and row.y_band[0] for row in rows),
        "y_high": _numbers(row.y_band and row.y_band[1] for row in rows),
        "official": [row.official for row in rows],
    }


def flat_rows(view: FrontView) -> list[dict[str, object]]:
    """One object a row, in the rows' order, with full numbers: for CSV and JSON files."""
    found: list[dict[str, object]] = []
    for number, row in enumerate(view.rows):
        line = view.lines[row.line]
        series = view.series[line.series]
        found.append(
            {
                "ref": row.ref,
                "point_key": row.key,
                "line_key": line.id,
                "group": view.groups[series.group].label,
                **series.parts,
                "configuration": line.label,
                "concurrency": row.concurrency,
                "run": line.run,
                "source": line.source,
                "date": line.date or None,
                "official": row.official,
                "state": row.state,
                "reason": None if row.reason is None else view.reasons[row.reason],
                "warning": None if row.warning is None else view.reasons[row.warning],
                heading(view.x): row.x,
                heading(view.y): row.y,
                **_bands("x", row.x_band),
                **_bands("y", row.y_band),
                **{heading(info): view.values[info.address][number] for info in view.more},
            }
        )
    return found


def heading(info: AxisInfo) -> str:
    """A column's name in a file: the address, with the unit where the address does not say it."""
    return info.address if info.unit in {"s", "count"} else f"{info.address} [{info.unit}]"


def _bands(name: str, band: tuple[float, float] | None) -> dict[str, float | None]:
    low, high = band if band is not None else (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


def _selection(chosen: Selection | None) -> dict[str, object]:
    """The selection's keys and values, as a query string has them."""
    if chosen is None:
        return {}
    found: dict[str, object] = {name: list(values) for name in LISTS if (values := getattr(chosen, name))}
    if chosen.since or chosen.until:
        found["date"] = f"{chosen.since or ''}..{chosen.until or ''}"
    if not chosen.latest:
        found["all"] = "yes"
    return found


def _target(view: TargetView | None) -> dict[str, object] | None:
    if view is None:
        return None
    return {
        "target": short(view.target),
        "chosen": view.chosen,
        "text": view.text,
        "overall": _read(view.overall),
        "series": [{"series": place, **_read(read)} for place, read in view.series],
    }


def _read(read: TargetRead) -> dict[str, object]:
    found: dict[str, object] = {"state": read.state}
    if read.floor is not None:
        found["floor"] = read.floor
    if read.estimate is not None:
        each = read.estimate
        found["estimate"] = {"y": short(each.y), "low": each.low, "high": each.high}
    if read.nearest is not None:
        found["nearest"] = read.nearest
    if read.below_measured:
        found["below_measured"] = True
    return found


def short(value: float | None) -> float | int | None:
    """The value as a reader's rounding may take it, in five significant digits as a rule; a whole number without a fraction.

    Who rounds twice errs where the first rounding ends on a half: 5809.49 is 5809, but 5809.5 would be 5810. A number whose
    last digit is 5 is therefore given with more digits. Whole parts are shown in full (`format.significant`) and kept."""
    if value is None:
        return None
    rounded = value
    for digits in DIGITS:
        text = f"{value:.{digits - 1}e}"
        rounded = float(text)
        cut = abs(value) >= 10**digits or (abs(value) < SMALL and rounded.is_integer() and rounded != value)
        if not cut and not text.partition("e")[0].rstrip("0").endswith("5"):
            break
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _numbers(values: Iterable[float | None]) -> list[float | int | None]:
    return [value if value is None else short(value) for value in values]


def _path(path: Iterable[Vertex]) -> list[list[float | int | None]]:
    return [[short(x), short(y)] for x, y in path]
