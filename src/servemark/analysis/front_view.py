"""Fronts of a selection: overall, by series and by line, from measured points that may be compared, on two chosen axes.

Order of the points given does not matter. Nothing is dropped: a point that no front may hold keeps its row and its reason.
A row that two files hold is shown once, and that is said.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from servemark.analysis.axes import AxisInfo, axis, axis_info, first_axes
from servemark.analysis.comparable import Comparable, difference
from servemark.analysis.configurations import series_label, topology_label
from servemark.analysis.costs import is_cost
from servemark.analysis.eligible import Doubt
from servemark.analysis.front import Candidate, Front, front
from servemark.analysis.front_findings import badges_of, findings_of, notes_of
from servemark.analysis.front_points import FrontPoints, front_points
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
from servemark.analysis.workload_names import named, workload_names
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

    place: int
    """In `FrontPoints.offered`."""
    point: Measured
    group: int
    key: SeriesKey
    parts: dict[str, str]
    x: float | None
    y: float | None
    doubt: Doubt | None
    warning: Doubt | None
    counts: bool
    """Whether it may stand on a front of its group."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Both axes and their ways."""

    x: Address
    y: Address

    def front(self, spots: Iterable[tuple[int, Spot]]) -> Front:
        """The front of these spots, by their row; those with a doubt are on none."""
        offered = [Candidate(str(row), spot.x, spot.y) for row, spot in spots if spot.doubt is None]
        return front(offered, self.x.metric.better, self.y.metric.better)


def front_view(
    points: Sequence[Measured] | FrontPoints, options: FrontOptions, lang: str | None = None
) -> FrontView:
    """The view. Points that were made ready (`front_points`) bring the accuracy results and the overlay with them; those of
    `options` are not read then. Raises ServemarkError (exit code 2) for an axis that is no metric or has no better way."""
    ready = (
        points if isinstance(points, FrontPoints) else front_points(points, options.evals, options.overlay)
    )
    axes = _axes(ready, options)
    placed, kinds = _placed(ready, axes, options)
    view = _assembled(_ordered(placed, kinds, axes), axes, ready, options, lang)
    if not ready.copies:
        return view
    return replace(view, notes=(*view.notes, text("front.note.copies", lang, points=ready.copies)))


def _axes(ready: FrontPoints, options: FrontOptions) -> Axes:
    """Those asked for, else the usual ones."""
    if options.x and options.y:
        return Axes(axis(options.x), axis(options.y))
    x, y = first_axes(lambda address: ready.speeds(address, options.card))
    return Axes(axis(options.x) if options.x else x, axis(options.y) if options.y else y)


def _placed(ready: FrontPoints, axes: Axes, options: FrontOptions) -> tuple[list[Spot], list[Comparable]]:
    """Every point with its values, its group and its doubt; the groups, the one with the most points first."""
    x, y = ready.column(axes.x, options.card), ready.column(axes.y, options.card)
    whole: dict[tuple[int, tuple[str, ...], tuple[str, ...]], Comparable] = {}
    found: list[tuple[Comparable, Doubt | None]] = []
    for place, (kind, doubt) in enumerate(zip(ready.kinds, ready.doubts, strict=True)):
        for address, column in ((axes.x, x), (axes.y, y)):
            if doubt is None and column.values[place] is None:
                doubt = Doubt(_ABSENT, (("metric", str(address)),), absent=column.absent[place])  # noqa: PLW2901
        if x.known(place) and y.known(place):
            made = (id(kind), x.made_of[place], y.made_of[place])
            if made not in whole:
                whole[made] = replace(kind, definitions=tuple(sorted({*made[1], *made[2]})))
            kind = whole[made]  # noqa: PLW2901
        found.append((kind, doubt))
    groups = _groups(found)
    spots = []
    for place, point in enumerate(ready.offered):
        (kind, doubt), parts = found[place], ready.parts[place]
        key = (groups[kind], point.official, tuple(parts.values()))
        values = x.values[place], y.values[place]
        counts = doubt is None and point.official
        spots.append(Spot(place, point, key[0], key, parts, *values, doubt, ready.warnings[place], counts))
    kinds = sorted({place: kind for kind, place in reversed(groups.items())}.items())
    return spots, [kind for _, kind in kinds]


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


@dataclass(frozen=True, slots=True)
class _Order:
    """Rows by series, run, line and load; series by what they hold of their group's front."""

    kinds: tuple[Comparable, ...]
    """Of the groups, by their place."""
    rows: tuple[Spot, ...]
    keys: tuple[SeriesKey, ...]
    series: tuple[int, ...]
    """One a row: its place in `keys`."""

    def numbered(self) -> list[tuple[int, Spot]]:
        """(row, spot) of all rows."""
        return list(enumerate(self.rows))


def _ordered(placed: Sequence[Spot], kinds: Sequence[Comparable], axes: Axes) -> _Order:
    held: Counter[SeriesKey] = Counter()
    counted: Counter[SeriesKey] = Counter()
    wide: dict[SeriesKey, float] = defaultdict(float)
    by_group: dict[int, list[Spot]] = defaultdict(list)
    for spot in placed:
        counted[spot.key] += spot.counts
        if spot.counts:
            by_group[spot.group].append(spot)
    for some in by_group.values():
        on = [some[int(candidate.id)] for candidate in axes.front(enumerate(some)).on]
        held.update(spot.key for spot in on)
        # Along x, and of points that stand on each other always the same one first.
        held_at = sorted(((s.key, s.x or 0.0) for s in on), key=lambda held: (held[1], held[0]))
        for key, low, high in stretches(held_at, axes.x.metric.better):
            wide[key] += high - low
    keys = sorted(counted, key=lambda k: (k[0], not k[1], -wide[k], -held[k], -counted[k], k[2]))
    place = {key: number for number, key in enumerate(keys)}
    rows = sorted(placed, key=lambda spot: _row_order(spot, place[spot.key]))
    return _Order(tuple(kinds), tuple(rows), tuple(keys), tuple(place[spot.key] for spot in rows))


def _row_order(spot: Spot, series: int) -> tuple[object, ...]:
    p = spot.point
    load = -1 if p.concurrency is None else p.concurrency
    return series, p.at_utc, p.run, p.line_key, load, p.attempt, p.ref


def _assembled(
    order: _Order, axes: Axes, ready: FrontPoints, options: FrontOptions, lang: str | None
) -> FrontView:
    workloads = workload_names(spot.point.identity for spot in order.rows)
    groups, states = _group_views(order, axes, workloads, lang)
    lines, line_of = _lines(order, lang)
    texts = _Texts(lang)
    more, values = _columns(order.rows, axes, ready, options, lang)
    x_bands = _bands(options.noise, axes.x, [(spot.point, spot.x) for spot in order.rows])
    y_bands = _bands(options.noise, axes.y, [(spot.point, spot.y) for spot in order.rows])
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
            x_bands[row],
            y_bands[row],
            spot.point.official,
        )
        for row, spot in enumerate(order.rows)
    )
    view = FrontView(
        selection=options.selection,
        workloads=workloads,
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
    return replace(
        view,
        findings=findings_of(view, lang),
        notes=notes_of(view, points, ready, lang),
        badges=badges_of(points, lang),
    )


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


def _bands(
    noise: NoiseBands | None, address: Address, measured: Sequence[tuple[Measured, float | None]]
) -> list[tuple[float, float] | None]:
    name = str(address)
    if noise is None:
        return [None] * len(measured)
    return [None if value is None else noise.band(point, name, value) for point, value in measured]


def _group_views(
    order: _Order, axes: Axes, workloads: Mapping[str, str], lang: str | None
) -> tuple[tuple[GroupView, ...], dict[int, RowState]]:
    """Each group's own front of its official points, and the state of every row."""
    states: dict[int, RowState] = {}
    views = []
    for number, kind in enumerate(order.kinds):
        some = [(row, spot) for row, spot in order.numbered() if spot.group == number]
        result = axes.front((row, spot) for row, spot in some if spot.point.official)
        on = {int(candidate.id) for candidate in result.on}
        unofficial = {row for row, spot in some if not spot.point.official}
        beyond = {int(each.id) for each in axes.front(some).on} & unofficial if unofficial else set()
        for row, spot in some:
            states[row] = _state(spot, row in on, row in beyond)
        views.append(
            GroupView(
                named(difference(kind, list(order.kinds), lang), workloads),
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
    parts = [some[0][1].parts for some in members]
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
    rows: Sequence[Spot], axes: Axes, ready: FrontPoints, options: FrontOptions, lang: str | None
) -> tuple[tuple[AxisInfo, ...], dict[str, tuple[float | None, ...]]]:
    """Further columns of the table: those asked for, else the usual ones that any point has."""
    asked = options.extra is not None
    names = options.extra if options.extra is not None else EXTRA
    infos, values = [], {}
    for address in dict.fromkeys(parse(name) for name in names):
        if address in (axes.x, axes.y):
            continue
        read = ready.column(address, options.card).values
        column = tuple(read[spot.place] for spot in rows)
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
