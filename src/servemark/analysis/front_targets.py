"""Target reads of a front view: overall and by series, with the sentence that says them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from servemark.analysis.format import SPACE, Display, group
from servemark.analysis.front_types import FrontView, TargetView
from servemark.analysis.labels import display_of
from servemark.analysis.targets import Placed, TargetRead, target_read
from servemark.base.messages import text
from servemark.metrics.address import parse
from servemark.metrics.registry import Better


def target_view(view: FrontView, target: float | None, lang: str | None = None) -> TargetView | None:
    """The read at `target` (in the unit of x), or at a round value amid the main group's front when nobody asked; None
    where neither is there to be read."""
    rows, series = view.rows, view.series
    chosen = target is not None
    at = target if target is not None else amid([rows[row].x for row in view.groups[0].on] if rows else [])
    if at is None:
        return None
    of_row = [view.lines[row.line].series for row in rows]
    main = [row for row, place in enumerate(of_row) if series[place].group == 0 and series[place].official]
    overall = _read(view, main, at)
    own: dict[int, list[int]] = {}
    for row, place in enumerate(of_row):
        own.setdefault(place, []).append(row)
    alike = [place for place, each in enumerate(series) if each.path and each.group == 0]
    reads = tuple((place, _read(view, own[place], at)) for place in alike)
    return TargetView(at, chosen, target_sentence(view, overall, lang, chosen=chosen), overall, reads)


def _read(view: FrontView, wanted: Sequence[int], at: float) -> TargetRead:
    rows = [(number, view.rows[number]) for number in wanted]
    placed = [Placed(number, row.x, row.y, row.line, number, row.reason is None) for number, row in rows]
    return target_read(placed, Better(view.x.better), Better(view.y.better), at)


def amid(values: Sequence[float | None]) -> float | None:
    """A round value amid these: the geometric mean of the ends (their mean where one is not above 0), to as few
    digits as leave it between them."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high = min(known), max(known)
    middle = math.sqrt(low * high) if low > 0 else (low + high) / 2
    tries = (float(f"{middle:.{digits}g}") for digits in (1, 2, 3, 6))
    return next((value for value in tries if low <= value <= high), low)


def row_name(view: FrontView, row: int, lang: str | None = None) -> str:
    """`gb200 · trtllm (TP8 EP8, concurrency 64)`: which configuration, at which load."""
    line = view.lines[view.rows[row].line]
    said = [line.label]
    if view.rows[row].concurrency is not None:
        said.append(_load(view, row, lang))
    series = view.series[line.series].label
    return text(
        "front.row",
        lang,
        series=series,
        configuration=reduce(lambda a, b: text("front.and", lang, first=a, second=b), said),
    )


def target_sentence(
    view: FrontView, read: TargetRead, lang: str | None = None, *, chosen: bool = True
) -> str:
    """The read in words: what was measured, what one line lets expect, or that nothing reaches it. A target that was
    `chosen` is written as it was asked for, another with no more digits than any figure."""
    x, y = parse(view.x.address), parse(view.y.address)
    shown_x = display_of(x, [read.target, read.x])
    asked = _asked(shown_x, read.target)
    if not chosen:
        asked = min(asked, shown_x.text(read.target), key=len)
    values: dict[str, object] = {"target": asked, "metric": view.x.label}
    if read.floor is None and read.nearest is None:
        return text("front.target.nothing", lang, **values)
    if read.floor is None:
        near = view.rows[read.nearest or 0].x
        point = row_name(view, read.nearest or 0, lang)
        return text(
            "front.target.not_reached", lang, **values, x=display_of(x, [near]).text(near), point=point
        )
    given = {"y": display_of(y, [read.y]).text(read.y), "x": shown_x.text(read.x)}
    said = text("front.target.floor", lang, **values, **given, point=row_name(view, read.floor, lang))
    if read.estimate is not None:
        low, high = (_load(view, row, lang) for row in (read.estimate.low, read.estimate.high))
        line = view.lines[view.rows[read.estimate.low].line]
        name = f"{view.series[line.series].label} · {line.label}"
        value = display_of(y, [read.estimate.y]).text(read.estimate.y)
        more = text("front.target.estimate", lang, y=value, low=low, high=high, line=name)
    elif read.below_measured:
        more = text("front.target.below", lang, **values)
    else:
        return said
    return text("front.sentences", lang, first=said, second=more)


def _load(view: FrontView, row: int, lang: str | None) -> str:
    load = view.rows[row].concurrency
    return view.rows[row].ref if load is None else text("analysis.label.point", lang, concurrency=load)


def _asked(shown: Display, target: float) -> str:
    """A target as it was asked for: 50 tok/s/user and not 50.0."""
    number = group(f"{target * shown.factor:.6f}".rstrip("0").rstrip("."))
    return f"{number}{SPACE}{shown.unit}" if shown.unit else number
