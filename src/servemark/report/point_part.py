"""What is inside one point: histograms, the request timeline, judged answers."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from servemark.analysis.format import Display, display, group, one
from servemark.analysis.histogram import Histogram as Counted
from servemark.analysis.report_types import EvalPanel, PointView, ReportData
from servemark.analysis.timeline import Bar as Measured
from servemark.base.messages import find_text
from servemark.report.charts.histogram import Histogram, histogram
from servemark.report.charts.timeline import Bar, Timeline, timeline
from servemark.report.scale import Scale, between, logarithmic
from servemark.report.views import HistogramPart, PointPart, SampleItem, SampleList
from servemark.report.words import Words, anchor, capital, clip, listed

HEADLINES = (
    "output_tokens_per_s_per_gpu",
    "output_tokens_per_s",
    "interactivity.p50",
    "ttft_s.p90",
    "tpot_s.p50",
)
"""Figures beside a closed point, the first four that it has."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a point is drawn: bars of its timeline, samples of a task, characters of a text."""

    bars: int
    samples: int
    chars: int


LIMITS = (Limits(240, 20, 300), Limits(240, 12, 120), Limits(240, 6, 80), Limits(120, 6, 80))
"""From generous to tight. More than 240 bars could not be told apart at any size of page."""


def point_part(index: int, point: PointView, data: ReportData, limits: Limits, t: Words) -> PointPart:
    """One fold."""
    named = {column.address: column.label for column in data.columns}
    by_address = {cell.address: cell for cell in point.cells}
    known = [by_address[a] for a in HEADLINES if a in by_address and by_address[a].value is not None]
    drawing, notes = _timeline(point, limits.bars, t)
    return PointPart(
        id=f"in-{index}",
        title=capital(point.label),
        figures=tuple((named[cell.address], cell.text) for cell in known[:4]),
        histograms=tuple(_histogram(each, data.lang, t) for each in point.histograms),
        timeline=drawing,
        timeline_notes=notes,
        samples=tuple(_samples(panel, limits, t) for panel in point.evals if panel.samples),
    )


def _histogram(counted: Counted, lang: str, t: Words) -> HistogramPart:
    shown = display(counted.unit, counted.edges)
    title = find_text(f"metrics.{counted.metric}.label", lang) or counted.metric
    marks = [(name, value) for name, value in _percentiles(counted) if value is not None]
    figures = tuple((name, shown.text(value)) for name, value in marks)
    said = listed(t, (f"{name} {value}" for name, value in figures))
    chart = histogram(
        Histogram(
            edges=counted.edges,
            counts=counted.counts,
            tips=[
                t("report.hist.bar", count=count, low=shown.number(low), high=shown.text(high))
                for low, high, count in zip(counted.edges, counted.edges[1:], counted.counts, strict=False)
            ],
            marks=marks,
            axis=_axis(counted, shown),
            factor=shown.factor,
            unit=f"\u202f{shown.unit}" if shown.unit else "",
            summary=t("report.hist.summary", metric=title, n=group(str(counted.n)), figures=said),
        )
    )
    notes = []
    if counted.above:
        notes.append(t("report.hist.above", n=counted.above, max=one(counted.max, counted.unit)))
    if counted.log:
        notes.append(t("report.hist.log"))
    if counted.at_or_below_zero:
        notes.append(t("report.hist.zero", n=counted.at_or_below_zero))
    return HistogramPart(title, anchor(counted.metric), group(str(counted.n)), figures, chart, tuple(notes))


def _percentiles(counted: Counted) -> tuple[tuple[str, float | None], ...]:
    return (("p50", counted.p50), ("p90", counted.p90), ("p99", counted.p99))


def _axis(counted: Counted, shown: Display) -> Scale:
    """From the first edge to the last, in the shown unit; some room around when all values are equal."""
    low, high = counted.edges[0] * shown.factor, counted.edges[-1] * shown.factor
    if high <= low:
        room = abs(low) * 0.1 or 1.0
        return between(low - room, high + room)
    return logarithmic(low, high) if counted.log else between(low, high)


def _timeline(point: PointView, most: int, t: Words) -> tuple[Markup | None, tuple[str, ...]]:
    lanes = point.timeline.lanes
    notes = []
    if point.timeline.never_started:
        notes.append(t("report.timeline.never", n=point.timeline.never_started))
    if not lanes:
        return None, (*notes, t("report.timeline.none"))
    order = sorted(
        (bar.start_s, number, place) for number, lane in enumerate(lanes) for place, bar in enumerate(lane)
    )
    kept = set(order[:most])
    drawn = [
        (number, [bar for place, bar in enumerate(lane) if (bar.start_s, number, place) in kept])
        for number, lane in enumerate(lanes)
    ]
    rows = [(number, bars) for number, bars in drawn if bars]
    left_out = len(order) - len(kept) + point.timeline.left_out
    if left_out:
        notes.append(t("report.timeline.left_out", drawn=len(kept), left_out=left_out))
    span = max(bar.end_s for _, bars in rows for bar in bars)
    chart = Timeline(
        bars=[_bar(bar, row, t) for row, (_, bars) in enumerate(rows) for bar in bars],
        lane_names=[t("report.timeline.lane", n=number + 1) for number, _ in rows],
        axis=between(0.0, span or 1.0, wanted=5),
        unit="\u202fs",
        summary=t("report.timeline.summary", n=len(kept), lanes=len(rows), span=one(span, "s")),
    )
    return timeline(chart), tuple(notes)


def _bar(bar: Measured, lane: int, t: Words) -> Bar:
    failed = bar.outcome != "ok"
    lines = [
        t(
            "report.bar.who",
            session=clip(bar.session, 40),
            turn=bar.turn,
            outcome=t(f"report.outcome.{bar.outcome}"),
        ),
    ]
    if failed:
        lines.append(t("report.bar.sent", at=one(bar.start_s, "s")))
    if bar.ttft_s is not None and bar.e2el_s is not None:
        lines.append(t("report.bar.took", ttft=one(bar.ttft_s, "s"), e2el=one(bar.e2el_s, "s")))
    if bar.input_tokens is not None and bar.output_tokens is not None:
        lines.append(t("report.bar.tokens", input=bar.input_tokens, output=bar.output_tokens))
    return Bar(lane, bar.start_s, bar.first_content_s, bar.end_s, failed, ";\n".join(lines))


def _samples(panel: EvalPanel, limits: Limits, t: Words) -> SampleList:
    items = tuple(
        SampleItem(
            right=sample.correct,
            word=t("report.sample.right") if sample.correct else t("report.sample.wrong"),
            prompt=clip(sample.prompt, limits.chars),
            reply=None if sample.reply is None else clip(sample.reply, limits.chars),
            expected=clip(sample.expected, limits.chars),
        )
        for sample in panel.samples[: limits.samples]
    )
    note = t("report.sample.note", shown=len(items), total=panel.samples_total, text=panel.text)
    return SampleList(panel.task, note, items)
