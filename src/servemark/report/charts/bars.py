"""Small level charts: shares side by side, scores with their error, phases end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from servemark.report import svg


def share_bar(value: float | None, cls: str) -> Markup:
    """A share 0..1 as a level bar on its track; an empty dashed track when it is not known. Its words stand
    beside it, so that readers of the screen are not told twice."""
    parts = [
        svg.el("rect", width="100%", height=10, rx=2, class_="track" if value is not None else "track none")
    ]
    if value is not None:
        shown = min(max(value, 0.0), 1.0)
        parts.append(svg.el("rect", width=svg.pct(shown), height=10, rx=2, class_=cls))
    return svg.plot(10, None, *parts, cls="bar")


def score_bar(score: float, stderr: float) -> Markup:
    """A score 0..1 as a dot with plus and minus one standard error, on a track from 0 to 1; its words stand
    beside it."""
    low, high = max(0.0, score - stderr), min(1.0, score + stderr)
    return svg.plot(
        18,
        None,
        svg.el("rect", width="100%", y=8, height=2, class_="track"),
        svg.rect(low, high - low, 5, 8, "band"),
        svg.vline(low, 3, 15, "whisker"),
        svg.vline(high, 3, 15, "whisker"),
        svg.at(score, 9, svg.el("circle", r=5, class_="dot")),
        cls="bar score",
    )


@dataclass(frozen=True, slots=True)
class PhasePart:
    """A phase's place within the whole (shares 0..1) and its words."""

    start: float
    end: float
    tip: str
    slot: int


def phase_bar(parts: Sequence[PhasePart], words: str) -> Markup:
    """Phases end to end; `slot` picks the tone and pattern that the legend repeats."""
    drawn = [
        svg.el(
            "rect",
            svg.el("title", part.tip),
            x=svg.pct(part.start),
            width=svg.pct(part.end - part.start),
            height=22,
            class_=f"ph{part.slot}",
        )
        for part in parts
        if part.end > part.start
    ]
    return svg.plot(22, words, *drawn, cls="phases", role="img")
