"""What a front says in a few plain sentences: who leads where, by how much, what is missing and why; and what a reader
must know before he believes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce

from servemark.analysis.axes import varies
from servemark.analysis.comparable import MODEL_WEIGHTS, weights_of
from servemark.analysis.configurations import SERIES_PARTS
from servemark.analysis.eligible import LowEval
from servemark.analysis.format import significant
from servemark.analysis.front_points import FrontPoints
from servemark.analysis.front_targets import row_name
from servemark.analysis.front_types import FrontView
from servemark.analysis.labels import display_of, label
from servemark.analysis.measured import Measured
from servemark.analysis.stretches import stretches
from servemark.base.messages import text
from servemark.metrics.address import parse
from servemark.metrics.registry import Better

FEW = 3
"""Stretches, reasons or results that are named; more are counted."""


def findings_of(view: FrontView, lang: str | None = None) -> tuple[str, ...]:
    """One to three sentences."""
    found = []
    if not view.rows:
        return (text("front.finding.nothing", lang),)
    on = view.groups[0].on if view.groups else ()
    if on:
        found.append(_leaders(view, on, lang))
        found += _by_how_much(view, lang)
    else:
        found.append(text("front.finding.no_front", lang, points=len(view.rows)))
    left = sum(each.points for each in view.left_out)
    if left:
        said = [
            text("front.finding.reason", lang, reason=each.reason, points=each.points)
            for each in view.left_out
        ]
        reasons = joined("front.then", said[:FEW], lang)
        found.append(text("front.finding.left_out", lang, left=left, points=len(view.rows), reasons=reasons))
    return tuple(found)


def joined(key: str, parts: Sequence[str], lang: str | None) -> str:
    """Parts in the language's own way of listing."""
    return reduce(lambda first, second: text(key, lang, first=first, second=second), parts) if parts else ""


def _leaders(view: FrontView, on: Sequence[int], lang: str | None) -> str:
    places = [(view.lines[view.rows[row].line].series, view.rows[row].x or 0.0) for row in on]
    spans = stretches(places, Better(view.x.better))
    address = parse(view.x.address)
    low, high = spans[0][1], spans[-1][2]
    shown = display_of(address, [low, high])
    ends = {"low": shown.number(low), "high": shown.text(high), "metric": label(address, lang)}
    names = [each.label for each in view.series]
    if low == high:
        point = row_name(view, on[0], lang)
        y = view.rows[on[0]].y
        return text(
            "front.finding.one_point",
            lang,
            point=point,
            x=shown.text(high),
            y=display_of(parse(view.y.address), [y]).text(y),
        )
    if len({series for series, _, _ in spans}) == 1:
        return text("front.finding.one_leader", lang, series=names[spans[0][0]], **ends)
    widths: Counter[int] = Counter()
    for series, begin, end in spans:
        widths[series] += end - begin  # type: ignore[assignment]
    total = high - low
    if len(spans) <= FEW:
        values = [
            (series, shown.number(begin), shown.number(end)) for series, begin, end in spans if end > begin
        ]
        each = [text("front.finding.stretch", lang, series=names[s], low=a, high=b) for s, a, b in values]
        said = joined("front.and", each, lang)
        return text("front.finding.stretches", lang, stretches=said, **ends)
    each = [
        text("front.finding.share", lang, series=names[series], percent=round(100 * width / total))
        for series, width in widths.most_common(FEW)
    ]
    shares = joined("front.and", each, lang)
    return text("front.finding.shares", lang, shares=shares, **ends)


def _by_how_much(view: FrontView, lang: str | None) -> list[str]:
    """The best point at the target, and how far the best of other hardware or series is from it."""
    target = view.target
    if target is None:
        return []
    if target.overall.floor is None or target.overall.y is None:
        return [target.text]
    best = target.overall
    leader = view.lines[view.rows[target.overall.floor].line].series
    y_sign = 1.0 if view.y.better == Better.HIGHER else -1.0
    others = [
        (y_sign * read.y, place, read)
        for place, read in target.series
        if read.y is not None
        and view.series[place].group == 0
        and view.series[place].official
        and place != leader
    ]
    said = [target.text]
    rivals = [each for each in others if _hardware(view, each[1]) != _hardware(view, leader)] or others
    if not rivals or best.y is None:
        return said
    _, _, second = max(rivals, key=lambda each: (each[0], -each[1]))
    if second.y is None or second.floor is None or second.y <= 0 or best.y <= 0:
        return said
    assert target.overall.floor is not None  # noqa: S101 - asked above
    ratio = best.y / second.y if y_sign > 0 else second.y / best.y
    address = parse(view.y.address)
    key = (
        "front.finding.unsure"
        if _overlap(view, target.overall.floor, second.floor)
        else "front.finding.second"
    )
    said.append(
        text(
            key if ratio > 1 else "front.finding.equal",
            lang,
            leader=view.series[leader].label,
            point=row_name(view, second.floor, lang),
            y=display_of(address, [second.y]).text(second.y),
            ratio=significant(ratio),
        )
    )
    return said


def _hardware(view: FrontView, series: int) -> str:
    return view.series[series].parts[SERIES_PARTS[0]]


def _overlap(view: FrontView, one: int, other: int) -> bool:
    """Whether noise alone may have put one above the other: their bands in y overlap."""
    a, b = view.rows[one].y_band, view.rows[other].y_band
    return a is not None and b is not None and a[0] <= b[1] and b[0] <= a[1]


def badges_of(points: Sequence[Measured], lang: str | None = None) -> tuple[str, ...]:
    """What nobody may overlook: that all points, or some, are of random weights."""
    made_up = sum(weights_of(point) != MODEL_WEIGHTS for point in points)
    if not made_up:
        return ()
    if made_up == len(points):
        return (text("front.badge.weights", lang),)
    return (text("front.badge.weights_some", lang, points=made_up, all=len(points)),)


def notes_of(
    view: FrontView, points: Sequence[Measured], ready: FrontPoints, lang: str | None = None
) -> tuple[str, ...]:
    """What must be known besides: several groups that do not compare, an axis that does not vary, unlike acceptance,
    accuracy results far below the others, unofficial points."""
    notes = []
    if len(view.groups) > 1:
        names = joined("front.then", [group.label for group in view.groups[:FEW]], lang)
        notes.append(text("front.note.groups", lang, count=len(view.groups), names=names))
    if view.card:
        notes.append(text("front.note.card", lang, card=view.card))
    for info, values in ((view.x, [r.x for r in view.rows]), (view.y, [r.y for r in view.rows])):
        known = [value for value in values if value is not None]
        if len(known) > 1 and not varies(known):
            notes.append(text("front.note.same", lang, metric=info.label))
    made_up = sum(weights_of(point) != MODEL_WEIGHTS for point in points)
    if made_up:
        notes.append(text("front.note.weights", lang, points=made_up))
    unsaid = sum(
        1
        for point, row in zip(points, view.rows, strict=True)
        if row.reason is None and (s := point.identity.speculation) is not None and not s.acceptance
    )
    if unsaid:
        notes.append(text("front.note.acceptance", lang, points=unsaid))
    notes += _accuracy(points, ready, lang)
    if ready.overlay:
        notes.append(text("front.note.overlay", lang, points=len(ready.overlay)))
    return tuple(notes)


def _accuracy(points: Sequence[Measured], ready: FrontPoints, lang: str | None) -> list[str]:
    """Accuracy results far below the others, of deployments like those that are looked at."""
    if not ready.low:
        return []
    looked_at = {_kind(point) for point in points}
    low = [each for each in ready.low if _kind(each.point) in looked_at]
    once: dict[str, LowEval] = {}
    for each in low:
        once.setdefault(each.point.ref, each)
    said = [
        text(
            "front.note.low_eval",
            lang,
            model=each.point.identity.model,
            where=" · ".join(_kind(each.point)[1:]),
            task=each.score.task,
            metric=each.score.metric,
            score=significant(each.score.score),
            median=significant(each.median),
            others=each.others,
            run=each.point.run,
        )
        for each in list(once.values())[:FEW]
    ]
    if len(once) > FEW:
        said.append(text("front.note.low_evals", lang, more=len(once) - FEW))
    return said


def _kind(point: Measured) -> tuple[str, str, str, str]:
    i = point.identity
    return i.model, i.hardware, i.engine, i.precision.family or "unknown"
