"""Fronts of a selection: overall, by series and by line, from measured points that may be compared, on two chosen axes.

Order of the points given does not matter. Nothing is dropped: a point that no front may hold keeps its row and its reason.
A row that two files hold is shown once, and that is said.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from servemark.analysis.axes import AxisInfo, axis, axis_info, default_axes, reader
from servemark.analysis.comparable import Comparable, comparable, difference, length_classes
from servemark.analysis.configurations import series_label, series_parts, topology_label
from servemark.analysis.costs import is_cost
from servemark.analysis.eligible import (
    EVAL,
    Doubt,
    eligibility,
    low_evals,
    same_run_and_configuration,
    without_copies,
)
from servemark.analysis.front import Candidate, Front, front
from servemark.analysis.front_findings import findings_of, notes_of
from servemark.analysis.front_targets import target_view
from servemark.analysis.front_types import (
    FrontOptions,
    FrontRow,
    FrontView,
    GroupView,
    LeftOut,
    LineOfSeries,
    NoiseBands,
    RowState,
    SeriesView,
)
from servemark.analysis.measured import Measured
from servemark.analysis.staircase import staircase
from servemark.analysis.stretches import stretches
from servemark.base.messages import text
from servemark.metrics.address import Address, parse

SHOWN = 5
"""Series drawn at first."""
EXTRA = ("gpus_deployed", "ttft_s.p50", "ttft_s.p90")
"""Further columns of the table, where points have them."""

SeriesKey = tuple[int, bool, tuple[str, ...]]
_ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Spot:
    """One point with what this view found out about it."""

    point: Measured
    group: int
    x: float | None
    y: float | None
    doubt: Doubt | None
    warning: Doubt | None

    @property
    def counts(self) -> bool:
        """Whether it may stand on a front of its group."""
        return self.doubt is None and self.point.official


@dataclass(frozen=True, slots=True)
class Axes:
    """Both axes and their ways."""

    x: Address
    y: Address

    def front(self, spots: Iterable[tuple[int, Spot]]) -> Front:
        """The front of these spots, by their row."""
        offered = (
            Candidate(str(row), spot.x, spot.y, None if spot.doubt is None else spot.doubt.kind)
            for row, spot in spots
        )
        return front(offered, self.x.metric.better, self.y.metric.better)


def front_view(points: Sequence[Measured], options: FrontOptions, lang: str | None = None) -> FrontView:
    """The view. Raises ServemarkError (exit code 2) for an axis that is no metric or has no better way."""
    official = {point.ref: point for point in without_copies(points)}
    overlay = {p.ref: p for p in options.overlay if p.ref not in official}
    offered = [*official.values(), *overlay.values()]
    speeds = [p for p in offered if p.identity.scenario.type != EVAL]
    x_default, y_default = default_axes(speeds, reader(options.card))
    axes = Axes(axis(options.x) if options.x else x_default, axis(options.y) if options.y else y_default)
    placed, kinds = _placed(offered, axes, options)
    view = _assembled(_ordered(placed, axes), kinds, axes, options, lang)
    copies = len({point.ref for point in points}) - len(official)
    if not copies:
        return view
    return replace(view, notes=(*view.notes, text("front.note.copies", lang, points=copies)))


def _placed(
    offered: Sequence[Measured], axes: Axes, options: FrontOptions
) -> tuple[list[Spot], list[Comparable]]:
    """Every point with its values, its group and its doubt; the groups, the one with the most points first."""
    doubts = eligibility(offered, options.evals)
    read, lengths = reader(options.card), length_classes(offered)
    low: dict[object, Doubt] = {}
    for each in low_evals([*{p.ref: p for p in (*options.evals, *offered) if p.evals}.values()]):
        low.setdefault(same_run_and_configuration(each.point), each.doubt())
    found: list[tuple[Measured, Comparable, tuple[float | None, float | None], Doubt | None]] = []
    for point in offered:
        readings = (read(point, axes.x), read(point, axes.y))
        values = tuple(_finite(reading.value) for reading in readings)
        doubt = doubts[point.ref]
        for address, reading, value in zip((axes.x, axes.y), readings, values, strict=True):
            if value is None and doubt is None:
                doubt = Doubt(_ABSENT, (("metric", str(address)),), absent=reading)
        found.append((point, comparable(point, readings, lengths), (values[0], values[1]), doubt))
    groups = _groups([(kind, doubt) for _, kind, _, doubt in found])
    spots = [
        Spot(p, groups[kind], *values, doubt, low.get(same_run_and_configuration(p)) if low else None)
        for p, kind, values, doubt in found
    ]
    kinds = sorted({place: kind for kind, place in reversed(groups.items())}.items())
    return spots, [kind for _, kind in kinds]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _groups(found: Sequence[tuple[Comparable, Doubt | None]]) -> dict[Comparable, int]:
    """Place of each kind, by the points that may stand on its front; a kind without definitions (its points lack a figure)
    joins the first that is otherwise alike."""
    sizes: Counter[Comparable] = Counter()
    every: dict[Comparable, int] = {}
    for kind, doubt in found:
        every[kind] = every.get(kind, 0) + 1
        sizes[kind] += doubt is None
    ordered = sorted(every, key=lambda kind: (not kind.definitions, -sizes[kind], -every[kind], str(kind)))
    places: dict[Comparable, int] = {}
    alike: dict[tuple[str, ...], int] = {}
    number = 0
    for kind in ordered:
        rest = kind.without_definitions()
        if not kind.definitions and rest in alike:
            places[kind] = alike[rest]
            continue
        places[kind] = number
        alike.setdefault(rest, number)
        number += 1
    return places


def _key(spot: Spot) -> SeriesKey:
    parts = series_parts(spot.point)
    return spot.group, spot.point.official, tuple(parts.values())


@dataclass(frozen=True, slots=True)
class _Order:
    """Rows by series, run, line and load; series by what they hold of their group's front."""

    rows: tuple[Spot, ...]
    keys: tuple[SeriesKey, ...]
    series: tuple[int, ...]
    """One a row: its place in `keys`."""

    def numbered(self) -> list[tuple[int, Spot]]:
        """(row, spot) of all rows."""
        return list(enumerate(self.rows))


def _ordered(placed: Sequence[Spot], axes: Axes) -> _Order:
    held: Counter[SeriesKey] = Counter()
    counted: Counter[SeriesKey] = Counter()
    wide: dict[SeriesKey, float] = defaultdict(float)
    by_group: dict[int, list[Spot]] = defaultdict(list)
    for spot in placed:
        counted[_key(spot)] += spot.counts
        if spot.counts:
            by_group[spot.group].append(spot)
    for some in by_group.values():
        on = [some[int(candidate.id)] for candidate in axes.front(enumerate(some)).on]
        held.update(_key(spot) for spot in on)
        for key, low, high in stretches([(_key(s), s.x or 0.0) for s in on], axes.x.metric.better):
            wide[key] += high - low
    keys = sorted(counted, key=lambda k: (k[0], not k[1], -wide[k], -held[k], -counted[k], k[2]))
    place = {key: number for number, key in enumerate(keys)}
    rows = sorted(placed, key=lambda spot: _row_order(spot, place[_key(spot)]))
    return _Order(tuple(rows), tuple(keys), tuple(place[_key(spot)] for spot in rows))


def _row_order(spot: Spot, series: int) -> tuple[object, ...]:
    p = spot.point
    load = -1 if p.concurrency is None else p.concurrency
    return series, p.at_utc, p.run, p.line_key, load, p.attempt, p.ref


def _assembled(
    order: _Order, kinds: Sequence[Comparable], axes: Axes, options: FrontOptions, lang: str | None
) -> FrontView:
    groups, states = _group_views(order, kinds, axes, lang)
    lines, line_of = _lines(order, lang)
    texts = _Texts(lang)
    more, values = _columns(order.rows, axes, options, lang)
    rows = tuple(
        FrontRow(
            spot.point.ref,
            spot.point.point_key,
            line_of[row],
            spot.point.concurrency,
            states[row],
            None if spot.doubt is None else texts.place(spot.doubt),
            None if spot.warning is None else texts.place(spot.warning),
            spot.x,
            spot.y,
            _band(options.noise, spot.point, axes.x, spot.x),
            _band(options.noise, spot.point, axes.y, spot.y),
            spot.point.official,
        )
        for row, spot in enumerate(order.rows)
    )
    view = FrontView(
        selection=options.selection,
        x=axis_info(axes.x, lang),
        y=axis_info(axes.y, lang),
        groups=groups,
        series=_series_views(order, axes, lang),
        lines=lines,
        rows=rows,
        more=more,
        values=values,
        reasons=texts.said,
        left_out=_left_out(order.rows, lang),
        target=None,
        findings=(),
        notes=(),
        card=_edition(options, (axes.x, axes.y, *(parse(each.address) for each in more))),
    )
    view = replace(view, target=target_view(view, options.target, lang))
    points = [spot.point for spot in order.rows]
    return replace(view, findings=findings_of(view, lang), notes=notes_of(view, points, options, lang))


def _edition(options: FrontOptions, addresses: Iterable[Address]) -> str | None:
    return options.card.edition if options.card is not None and any(map(is_cost, addresses)) else None


class _Texts:
    """Sentences, each once."""

    def __init__(self, lang: str | None) -> None:
        self.lang = lang
        self._places: dict[str, int] = {}

    @property
    def said(self) -> tuple[str, ...]:
        """In the order of their places."""
        return tuple(self._places)

    def place(self, doubt: Doubt) -> int:
        """Where this doubt's sentence stands."""
        return self._places.setdefault(doubt.sentence(self.lang), len(self._places))


def _band(
    noise: NoiseBands | None, point: Measured, address: Address, value: float | None
) -> tuple[float, float] | None:
    return None if noise is None or value is None else noise.band(point, str(address), value)


def _group_views(
    order: _Order, kinds: Sequence[Comparable], axes: Axes, lang: str | None
) -> tuple[tuple[GroupView, ...], dict[int, RowState]]:
    """Each group's own front of its official points, and the state of every row."""
    states: dict[int, RowState] = {}
    views = []
    for number, kind in enumerate(kinds):
        some = [(row, spot) for row, spot in order.numbered() if spot.group == number]
        result = axes.front((row, spot) for row, spot in some if spot.point.official)
        on = {int(candidate.id) for candidate in result.on}
        unofficial = {row for row, spot in some if not spot.point.official}
        beyond = {int(candidate.id) for candidate in axes.front(some).on} & unofficial
        for row, spot in some:
            states[row] = _state(spot, row in on, row in beyond)
        views.append(
            GroupView(
                difference(kind, list(kinds), lang),
                len(some),
                tuple(int(candidate.id) for candidate in result.on),
                staircase(result),
            )
        )
    return tuple(views), states


def _state(spot: Spot, on: bool, beyond: bool) -> RowState:
    if spot.doubt is not None:
        return "absent" if spot.doubt.kind == _ABSENT else "excluded"
    return "on" if on else "beyond" if beyond else "dominated"


def _lines(order: _Order, lang: str | None) -> tuple[tuple[LineOfSeries, ...], dict[int, int]]:
    """Lines in the order of their rows; a line is of one run, one configuration and one series."""
    members: dict[tuple[int, str], list[int]] = {}
    for row, spot in order.numbered():
        members.setdefault((order.series[row], spot.point.line_key), []).append(row)
    lines, line_of = [], {}
    for place, ((series, key), rows) in enumerate(members.items()):
        point = order.rows[rows[0]].point
        arrivals = point.identity.scenario.arrivals
        said = topology_label(point.identity, lang)
        said = f"{said} · {arrivals}" if arrivals else said
        line_of.update(dict.fromkeys(rows, place))
        lines.append(LineOfSeries(key, series, said, point.run, point.source, point.at_utc[:10], tuple(rows)))
    return tuple(lines), line_of


def _series_views(order: _Order, axes: Axes, lang: str | None) -> tuple[SeriesView, ...]:
    """Every series with the staircase of its own points; the first few of the main group are shown at first."""
    members: list[list[tuple[int, Spot]]] = [[] for _ in order.keys]
    for row, spot in order.numbered():
        members[order.series[row]].append((row, spot))
    parts = [series_parts(some[0][1].point) for some in members]
    drawn = [any(spot.doubt is None for _, spot in some) for some in members]
    able = [key for key, some in zip(order.keys, drawn, strict=True) if some and key[0] == 0]
    shown = sorted(able, key=lambda key: key[1])[:SHOWN]  # an overlay first: somebody asked for it
    found = []
    for key, some, each in zip(order.keys, members, parts, strict=True):
        group, official, _ = key
        name = ".".join((*each.values(), *([str(group)] if group else [])))
        found.append(
            SeriesView(
                id=name if official else f"overlay.{name}",
                label=series_label(each, parts, lang),
                parts=each,
                group=group,
                shown=key in shown,
                official=official,
                points=len(some),
                path=staircase(axes.front(some)),
            )
        )
    return tuple(found)


def _columns(
    rows: Sequence[Spot], axes: Axes, options: FrontOptions, lang: str | None
) -> tuple[tuple[AxisInfo, ...], dict[str, tuple[float | None, ...]]]:
    """Further columns of the table: those asked for, else the usual ones that any point has."""
    asked = options.extra is not None
    names = options.extra if options.extra is not None else EXTRA
    read = reader(options.card)
    infos, values = [], {}
    for address in dict.fromkeys(parse(name) for name in names):
        if address in (axes.x, axes.y):
            continue
        column = tuple(_finite(read(spot.point, address).value) for spot in rows)
        if asked or any(value is not None for value in column):
            infos.append(axis_info(address, lang))
            values[str(address)] = column
    return tuple(infos), values


def _left_out(rows: Sequence[Spot], lang: str | None) -> tuple[LeftOut, ...]:
    """Points that no front holds, by reason, the most frequent first."""
    counted = Counter(spot.doubt.short(lang) for spot in rows if spot.doubt is not None)
    return tuple(
        LeftOut(reason, count) for reason, count in sorted(counted.items(), key=lambda e: (-e[1], e[0]))
    )
