"""Prefix cache and accuracy: a card for each point, a card for each task."""

from __future__ import annotations

from servemark.analysis.report_types import EvalPanel, PointView, ReportData, Share
from servemark.report.charts.bars import score_bar, share_bar
from servemark.report.views import BarLine, Card
from servemark.report.words import Words, capital, listed


def cache_cards(data: ReportData, t: Words) -> tuple[tuple[Card, ...], tuple[str, ...]]:
    """A card for each point, and the sentences that hold for all of them alike."""
    panels = [point.cache for point in data.points]
    states = {panel.state for panel in panels}
    common = tuple(states) if len(states) == 1 else ()
    defined = {column.address.partition(".")[0] for column in data.definitions}
    cards = tuple(
        Card(
            title=capital(point.label),
            small="",
            bars=tuple(_share(share, defined, t) for share in point.cache.entries),
            notes=((point.cache.verdict,) if common else (point.cache.state, point.cache.verdict)),
            tone={True: "good", False: "warn", None: ""}[point.cache.agrees],
        )
        for point in data.points
    )
    return cards, common


_FILLS = {"cache_hit_theoretical": "fill-a", "cache_hit_theoretical_blocks": "fill-a"}


def _share(share: Share, defined: set[str], t: Words) -> BarLine:
    return BarLine(
        label=share.label,
        anchor=f"def-{share.id}" if share.id in defined else "",
        chart=share_bar(share.value, _FILLS.get(share.id, "fill-b")),
        value=share.text,
        note=t("report.absent", reason=share.absent_because) if share.absent_because else "",
    )


def cache_meanings(data: ReportData) -> tuple[tuple[str, str], ...]:
    """(label, what it means) of every share that the cards show, once."""
    return tuple(dict.fromkeys((e.label, e.meaning) for point in data.points for e in point.cache.entries))


def accuracy_cards(data: ReportData, t: Words) -> tuple[Card, ...]:
    """A card for each task with one score a point, all on the same track from 0 to 100 %."""
    tasks: dict[tuple[str, str], list[tuple[PointView, EvalPanel]]] = {}
    for point in data.points:
        for panel in point.evals:
            tasks.setdefault((panel.task, panel.version), []).append((point, panel))
    return tuple(_task(task, version, scored, t) for (task, version), scored in tasks.items())


def _task(task: str, version: str, scored: list[tuple[PointView, EvalPanel]], t: Words) -> Card:
    bars = tuple(
        BarLine(
            capital(point.label),
            "",
            share_bar(None, "") if panel.absent_because is not None else score_bar(panel.score, panel.stderr),
            panel.text,
        )
        for point, panel in scored
    )
    return Card(task, t("report.accuracy.version", version=version), bars, _gaps(scored, t))


def _gaps(scored: list[tuple[PointView, EvalPanel]], t: Words) -> tuple[str, ...]:
    """What keeps a score from being whole, points that lack the same said together."""
    same: dict[str, list[str]] = {}
    for point, panel in scored:
        lacks = []
        if panel.unanswered:
            lacks.append(t("report.accuracy.unanswered", n=panel.unanswered))
        if panel.truncated:
            lacks.append(t("report.accuracy.truncated", n=panel.truncated))
        if lacks:
            same.setdefault(listed(t, lacks), []).append(point.load)
    return tuple(
        t(
            "report.accuracy.gaps",
            points=capital(t("report.where", n=listed(t, points))),
            lacks=lacks,
        )
        for lacks, points in same.items()
    )
