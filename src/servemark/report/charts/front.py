"""The front: a staircase of measured points, never a curve through them.

The shaded area is what the measured points attain: every place in it is at least matched by one of them on
both axes. Which corner is the good one follows from each axis's direction, nowhere from the metric's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from servemark.metrics.registry import Better
from servemark.report import svg
from servemark.report.charts.placing import Box, place
from servemark.report.scale import Scale, tick_text

HEIGHT = 360.0
_NARROW = 270.0
"""Plot width on a 360 px phone: labels that do not collide there collide nowhere wider."""


@dataclass(frozen=True, slots=True)
class FrontAxis:
    """One axis: which way is better, and where values lie."""

    better: Better
    scale: Scale


@dataclass(frozen=True, slots=True)
class FrontMark:
    """One measured point. `row` names the table row it belongs to; `aria` reads that row aloud."""

    row: str
    label: str
    x: float
    y: float
    on_front: bool
    aria: str


@dataclass(frozen=True, slots=True)
class FrontView:
    """Everything one choice of axes shows; `summary` is the chart's text alternative."""

    x: FrontAxis
    y: FrontAxis
    path: tuple[tuple[float, float], ...]
    """Vertices of the staircase, in the axes' units, from edge to edge of the drawing."""
    marks: tuple[FrontMark, ...]
    summary: str


def front_chart(view: FrontView) -> Markup:
    """Draw one view. The marks come last and in the order given, so that Tab walks them in that order."""
    return svg.plot(
        HEIGHT,
        view.summary,
        _attained(view),
        _grid(view),
        _edges(view),
        _marks(view),
        cls="front",
    )


def _x(view: FrontView, mark: FrontMark) -> float:
    return view.x.scale.share(mark.x)


def _y(view: FrontView, mark: FrontMark) -> float:
    return HEIGHT * (1 - view.y.scale.share(mark.y))


def _grid(view: FrontView) -> Markup:
    parts: list[Markup] = []
    for tick in view.y.scale.ticks:
        y = HEIGHT * (1 - view.y.scale.share(tick))
        parts.append(svg.hline(y, "grid"))
        parts.append(svg.text(-10, y + 4, tick_text(tick), "tick", "end"))
    for tick in view.x.scale.ticks:
        x = view.x.scale.share(tick)
        parts.append(svg.vline(x, HEIGHT, HEIGHT + 5, "axis"))
        parts.append(
            svg.text(svg.pct(x), HEIGHT + 20, tick_text(tick), "tick", "end" if x > 0.95 else "middle")
        )
    parts.append(svg.hline(HEIGHT, "axis"))
    return svg.el("g", *parts, aria_hidden="true")


def _attained(view: FrontView) -> Markup:
    """Nested solid rectangles from the worst corner to each front point.

    Solid and nested, because rectangles side by side would show seams where a screen rounds their edges.
    """
    worst_x = 0.0 if view.x.better is Better.HIGHER else 1.0
    worst_y = HEIGHT if view.y.better is Better.HIGHER else 0.0
    areas: list[Markup] = []
    for mark in view.marks:
        if mark.on_front:
            x, y = _x(view, mark), _y(view, mark)
            left, top = min(worst_x, x), min(worst_y, y)
            areas.append(svg.rect(left, abs(x - worst_x), top, abs(worst_y - y), "attained"))
    return svg.el("g", *areas, aria_hidden="true")


def _edges(view: FrontView) -> Markup:
    """The staircase, corner by corner."""
    corners = [(view.x.scale.share(x), HEIGHT * (1 - view.y.scale.share(y))) for x, y in view.path]
    edges = [
        svg.el("line", x1=svg.pct(a[0]), y1=a[1], x2=svg.pct(b[0]), y2=b[1], class_="edge")
        for a, b in pairwise(corners)
        if a != b
    ]
    return svg.el("g", *edges, aria_hidden="true")


def _marks(view: FrontView) -> Markup:
    boxes = [Box(_x(view, m) * _NARROW, _y(view, m), _label_width(m.label)) for m in view.marks]
    right_first = view.x.better is Better.HIGHER
    spots = place(boxes, _NARROW, HEIGHT, right_first=right_first, up_first=view.y.better is Better.HIGHER)
    parts = []
    for mark, spot in zip(view.marks, spots, strict=True):
        shape = (
            svg.el("circle", r=6.5, class_="dot")
            if mark.on_front
            else svg.el("path", d="M0-7 7 0 0 7-7 0Z", class_="dot out")
        )
        parts.append(
            svg.at(
                _x(view, mark),
                _y(view, mark),
                svg.el("circle", r=20, class_="hit"),
                svg.el("circle", r=12, class_="halo"),
                shape,
                svg.text(spot.dx, spot.dy, mark.label, "mark-label", spot.anchor),
                class_="mark" if mark.on_front else "mark dominated",
                tabindex="0",
                role="img",
                aria_label=mark.aria,
                data_row=mark.row,
            )
        )
    return svg.join(parts)


def _label_width(label: str) -> float:
    return sum(13.0 if ord(c) > 0x2E7F else 8.4 for c in label)
