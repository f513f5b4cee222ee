"""The front's pairs of axes, from `AxisChoice` to drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from servemark.analysis.format import ABSENT
from servemark.analysis.front import Candidate
from servemark.analysis.report_types import AxisChoice, PointView, ReportData
from servemark.analysis.staircase import staircase
from servemark.metrics.registry import Better
from servemark.report.charts.front import FrontAxis, FrontMark, FrontView, front_chart
from servemark.report.scale import Scale, from_zero
from servemark.report.views import AxisWords, Choice, FrontPart
from servemark.report.words import Words, anchor, capital, listed

MAX_CHOICES = 6
"""Pairs of axes that the style sheet can switch between."""
MANY = 4
"""Marks above which a label is the bare concurrency: the longer words would collide on a phone."""


@dataclass(frozen=True, slots=True)
class _Ground:
    """What every choice of axes needs: points by run id with their place in the table, and the words."""

    data: ReportData
    points: Mapping[str, tuple[int, PointView]]
    t: Words

    def excluded(self, axis: AxisChoice) -> tuple[str, ...]:
        """Why points are not on this choice of axes."""
        return tuple(
            self.t(
                "report.front.excluded.item",
                point=capital(self.points[run][1].label) if run in self.points else run,
                reason=reason,
            )
            for run, reason in axis.excluded
        )

    def placed(self, axis: AxisChoice) -> list[Candidate]:
        """The points to draw, in the table's order."""
        known = [c for c in (*axis.front.on, *axis.front.dominated) if c.id in self.points]
        return sorted(known, key=lambda candidate: self.points[candidate.id][0])


def front_part(data: ReportData, t: Words) -> FrontPart:
    """Every pair of axes on which at least one point stands; where there is none, the reason."""
    ground = _Ground(data, {point.run_id: (index, point) for index, point in enumerate(data.points)}, t)
    drawable = [axis for axis in data.axes if ground.placed(axis)][:MAX_CHOICES]
    lost = [] if drawable else [reason for axis in data.axes[:1] for reason in ground.excluded(axis)]
    return FrontPart(
        choices=tuple(_choice(axis, ground) for axis in drawable),
        empty=" ".join((t("report.front.empty"), *lost)),
        has_dominated=any(axis.front.dominated for axis in drawable),
    )


def _choice(axis: AxisChoice, ground: _Ground) -> Choice:
    placed = ground.placed(axis)
    x_scale = from_zero(max((c.x or 0.0) * axis.x_factor for c in placed))
    y_scale = from_zero(max((c.y or 0.0) * axis.y_factor for c in placed))
    marks = tuple(_mark(candidate, axis, ground, len(placed) > MANY) for candidate in placed)
    view = FrontView(
        x=FrontAxis(axis.x_better, x_scale),
        y=FrontAxis(axis.y_better, y_scale),
        path=_path(axis, x_scale, y_scale),
        marks=marks,
        summary=_summary(axis, marks, ground.t),
    )
    x_good = _good(axis.x_better, axis.x_better_text, "→←")
    y_good = _good(axis.y_better, axis.y_better_text, "↑↓")
    return Choice(
        name=axis.x_label,
        chart=front_chart(view),
        x=AxisWords(axis.x_label, axis.x_unit, x_good, anchor(axis.x)),
        y=AxisWords(axis.y_label, axis.y_unit, y_good, anchor(axis.y)),
        excluded=ground.excluded(axis),
    )


def _good(better: Better, words: str, arrows: str) -> str:
    """The direction with an arrow that points the good way: behind the words for right or up, else before."""
    return f"{words} {arrows[0]}" if better is Better.HIGHER else f"{arrows[1]} {words}"


def _path(axis: AxisChoice, x: Scale, y: Scale) -> tuple[tuple[float, float], ...]:
    """The staircase out to the edges of the drawing, in shown units."""
    low = (x.low / axis.x_factor, y.low / axis.y_factor)
    high = (x.high / axis.x_factor, y.high / axis.y_factor)
    return tuple((a * axis.x_factor, b * axis.y_factor) for a, b in staircase(axis.front, (low, high)))


def _mark(candidate: Candidate, axis: AxisChoice, ground: _Ground, short: bool) -> FrontMark:
    t = ground.t
    on_front = candidate in axis.front.on
    index, point = ground.points[candidate.id]
    cells = [
        f"{column.label}: {cell.text}"
        for column, cell in zip(ground.data.columns, point.cells, strict=True)
        if cell.value is not None
    ]
    place = t("report.mark.on") if on_front else t("report.mark.dominated")
    return FrontMark(
        row=f"row-{index}",
        label=point.load if short or point.concurrency is None else t("report.mark", n=point.load),
        x=(candidate.x or 0.0) * axis.x_factor,
        y=(candidate.y or 0.0) * axis.y_factor,
        on_front=on_front,
        aria=";\n".join((f"{capital(point.label)} ({place})", *cells)),
    )


def _summary(axis: AxisChoice, marks: Sequence[FrontMark], t: Words) -> str:
    """The chart's text alternative: axes, directions, and which points stand where."""
    on = listed(t, (mark.label for mark in marks if mark.on_front))
    out = listed(t, (mark.label for mark in marks if not mark.on_front))
    return t(
        "report.front.summary",
        y=axis.y_label,
        x=axis.x_label,
        y_better=axis.y_better_text,
        x_better=axis.x_better_text,
        on=on or ABSENT,
        out=out or ABSENT,
    )
