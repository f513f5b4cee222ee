"""A histogram with its percentiles marked: where most requests lie and how far the tail reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from servemark.report import svg
from servemark.report.scale import Scale, tick_text

HEIGHT = 104.0
_LABEL_ROOM = 0.13
"""Share of the width that a percentile's label needs on a phone."""
_THINNEST = 0.05
"""Share of the width that a bar of no width gets, as when all values are equal."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bars over `edges` (n + 1 ascending values) and `counts` (n); `marks` are (name, value) percentiles.

    Edges and marks are in the stored unit, `axis` in the shown one: shown = stored x `factor`. `tips` word
    each bar, `summary` the whole chart.
    """

    edges: Sequence[float]
    counts: Sequence[int]
    tips: Sequence[str]
    marks: Sequence[tuple[str, float]]
    axis: Scale
    factor: float
    unit: str
    summary: str

    def share(self, stored: float) -> float:
        """Where a stored value lies on the axis, 0..1."""
        return self.axis.share(stored * self.factor)


def histogram(chart: Histogram) -> Markup:
    """Draw it. A bar that holds anything is at least 2 px high: one slow request must not vanish."""
    return svg.plot(
        HEIGHT, chart.summary, _bars(chart), _axis(chart), _percentiles(chart), cls="hist", role="img"
    )


def _bars(chart: Histogram) -> Markup:
    highest = max(chart.counts, default=0) or 1
    parts: list[Markup] = []
    for low, high, count, tip in zip(chart.edges, chart.edges[1:], chart.counts, chart.tips, strict=False):
        if not count:
            continue
        tall = max(2.0, count / highest * (HEIGHT - 8))
        x, right = chart.share(low), chart.share(high)
        if right <= x:
            x, right = x - _THINNEST / 2, x + _THINNEST / 2
        parts.append(
            svg.el(
                "rect",
                svg.el("title", tip),
                x=svg.pct(x),
                width=svg.pct(right - x),
                height=tall,
            )
        )
    # Upside down, so that bars grow from the axis and none has to say where it begins.
    return svg.el("g", *parts, class_="bars", transform=f"translate(0 {svg.num(HEIGHT)}) scale(1 -1)")


def _axis(chart: Histogram) -> Markup:
    parts = [svg.hline(HEIGHT, "axis")]
    for tick in chart.axis.ticks:
        share = chart.axis.share(tick)
        parts.append(svg.vline(share, HEIGHT, HEIGHT + 4, "axis"))
        parts.append(
            svg.text(svg.pct(share), HEIGHT + 17, f"{tick_text(tick)}{chart.unit}", "tick", svg.inward(share))
        )
    return svg.el("g", *parts)


def _percentiles(chart: Histogram) -> Markup:
    parts: list[Markup] = []
    for place, (_, value) in enumerate(chart.marks):
        if chart.share(value) <= 1:
            parts.append(svg.vline(chart.share(value), -4, HEIGHT, f"pm pm{place}"))
    for names, share in _merged(chart):
        parts.append(svg.text(svg.pct(share), -9, names, "pm-label", svg.inward(share)))
    return svg.el("g", *parts)


def _merged(chart: Histogram) -> list[tuple[str, float]]:
    """(label, share of the width). Percentiles nearer than a label's width share one label, written at the
    last of them; one beyond the axis is written at its end with an arrow."""
    groups: list[tuple[str, float]] = []
    for name, value in chart.marks:
        share = chart.share(value)
        words, share = (f"{name} →", 1.0) if share > 1 else (name, share)
        if groups and share - groups[-1][1] < _LABEL_ROOM:
            groups[-1] = (f"{groups[-1][0]} · {words}", share)
        else:
            groups.append((words, share))
    return groups
