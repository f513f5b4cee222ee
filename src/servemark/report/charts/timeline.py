"""The request timeline: one row a lane, one bar a request, waiting told from streaming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from servemark.report import svg
from servemark.report.scale import Scale, tick_text

_SIZES: Sequence[tuple[float, str, float]] = (
    (8, "roomy", 26.0),
    (24, "close", 18.0),
    (100, "thin", 7.0),
    (float("inf"), "hair", 3.0),
)
"""(most lanes, style that gives bars their place and thickness, row height in px). The thickness is said once
in the style sheet and not with every bar, which would be the largest part of the page."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One request, seconds on the axis of the chart. `first` is None when no content came."""

    lane: int
    start: float
    first: float | None
    end: float
    failed: bool
    tip: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bars over `lanes` rows; `lane_names` are written at the left, one a row."""

    bars: Sequence[Bar]
    lane_names: Sequence[str]
    axis: Scale
    unit: str
    summary: str


def timeline(chart: Timeline) -> Markup:
    """Draw it. Bars are focusable one at a time: the first takes part in Tab, arrow keys walk the rest."""
    size, pitch = next((name, px) for most, name, px in _SIZES if len(chart.lane_names) <= most)
    height = pitch * len(chart.lane_names)
    return svg.plot(
        height,
        chart.summary,
        _frame(chart, pitch, height),
        *[_lane(chart, lane, pitch) for lane in range(len(chart.lane_names))],
        cls=f"lanes {size}",
    )


def _frame(chart: Timeline, pitch: float, height: float) -> Markup:
    parts: list[Markup] = []
    for tick in chart.axis.ticks:
        share = chart.axis.share(tick)
        parts.append(svg.vline(share, 0, height + 4, "grid"))
        parts.append(
            svg.text(svg.pct(share), height + 19, tick_text(tick) + chart.unit, "tick", svg.inward(share))
        )
    if pitch >= 12:
        for lane, name in enumerate(chart.lane_names):
            parts.append(svg.text(-10, pitch * (lane + 0.5) + 4, name, "tick", "end"))
    parts.append(svg.hline(height, "axis"))
    return svg.el("g", *parts, aria_hidden="true")


def _lane(chart: Timeline, lane: int, pitch: float) -> Markup:
    bars = [_bar(chart, bar, pitch) for bar in chart.bars if bar.lane == lane]
    return svg.el("svg", *bars, y=pitch * lane, height=pitch, overflow="visible")


def _bar(chart: Timeline, bar: Bar, pitch: float) -> Markup:
    start, end = chart.axis.share(bar.start), chart.axis.share(bar.end)
    first = end if bar.first is None else chart.axis.share(bar.first)
    parts = [svg.el("title", bar.tip)]
    if first > start:
        parts.append(svg.el("rect", x=svg.pct(start), width=svg.pct(first - start), class_="w"))
    if end > first:
        parts.append(svg.el("rect", x=svg.pct(first), width=svg.pct(end - first), class_="s"))
    if bar.failed:
        parts.append(svg.at(end, pitch / 2, svg.el("path", d="M-4-4 4 4M4-4-4 4", class_="x")))
    return svg.el("g", *parts, class_="f" if bar.failed else None)
