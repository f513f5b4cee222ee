"""What was foretold of a point beside what it measured, and how past predictions have held: by class and by month.

Coverage is the share of measured figures that lay within their interval. It is judged against the level that the intervals
promised by the 95 % band of a binomial (normal approximation with continuity correction) of as many draws as there are
points, not figures, since the figures of one point are right or wrong together; below `JUDGED_FROM` points not at all.
Errors are |predicted - measured| / measured.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from servemark.analysis.figure_words import label_of, unit_of
from servemark.analysis.format import ABSENT, display, significant
from servemark.base.messages import find_text, text
from servemark.store.database import Store
from servemark.store.predictions import CLASSES, Foretold, Recorded, predictions_of, record

JUDGED_FROM = 30
"""With fewer points coverage is not judged."""
MAX_MONTHS = 24
_Z = 1.96
"""Of a normal distribution: 95 % lie within."""
FIRST = (
    "output_tokens_per_s_per_gpu",
    "total_tokens_per_s_per_gpu",
    "output_tokens_per_s",
    "interactivity.p50",
    "tpot_s.p50",
    "ttft_s.p50",
    "e2el_s.p50",
)
"""The order in which figures are told; others after them by name."""


@dataclass(frozen=True, slots=True)
class ForetoldView:
    """One figure. Texts are finished; `inside` None where either is missing. `reason` says why nothing was foretold."""

    address: str
    label: str
    predicted: str
    interval: str
    measured: str
    error: str
    inside: bool | None
    klass: str
    class_text: str
    residuals: int
    reason: str


@dataclass(frozen=True, slots=True)
class RecordRow:
    """Past figures of one class or month. `judged`: `held`, `narrow` (fewer lay within than promised), `wide`, or `few`."""

    name: str
    label: str
    figures: int
    points: int
    coverage: str
    promised: str
    median_error: str
    judged: str
    judged_text: str


@dataclass(frozen=True, slots=True)
class PredictionView:
    """All of it. `words` sums the point up in a sentence; `record` is by class, `months` the same over time, of all points
    of the model in this store."""

    made_utc: str
    words: str
    rows: tuple[ForetoldView, ...]
    record: tuple[RecordRow, ...]
    months: tuple[RecordRow, ...]
    record_words: str


def prediction_view(
    store: Store, point_id: int, model: str, lang: str | None = None
) -> PredictionView | None:
    """What was foretold of a point; None where nothing was."""
    found = predictions_of(store, point_id)
    if not found:
        return None
    past = list(record(store, model))
    ordered = sorted(
        found, key=lambda one: (FIRST.index(one.metric) if one.metric in FIRST else len(FIRST), one.metric)
    )
    return PredictionView(
        made_utc=found[0].made_utc,
        words=_words(found, lang),
        rows=tuple(_row(one, lang) for one in ordered),
        record=by_class(past, lang),
        months=by_month(past, lang),
        record_words=_record_words(past, model, lang),
    )


def _words(found: Sequence[Foretold], lang: str | None) -> str:
    known = [one.inside for one in found if one.inside is not None]
    if not known:
        return text("predict.use.page.nothing_to_compare", lang)
    return text("predict.use.page.inside", lang, inside=sum(known), of=len(known))


def _row(one: Foretold, lang: str | None) -> ForetoldView:
    shown = display(unit_of(one.metric), (one.value, one.low, one.high, one.measured))
    ends = one.low is not None and one.high is not None
    reason = find_text(one.reason, lang) if one.reason is not None and one.value is None else None
    return ForetoldView(
        address=one.metric,
        label=label_of(one.metric, lang),
        predicted=shown.text(one.value),
        interval=f"{shown.number(one.low)} … {shown.number(one.high)}" if ends else ABSENT,
        measured=shown.text(one.measured),
        error=ABSENT if one.error is None else f"{100 * one.error:+.1f} %",
        inside=one.inside,
        klass=one.klass,
        class_text=text(f"predict.use.class.{one.klass}", lang),
        residuals=one.residuals,
        reason=reason or "",
    )


def by_class(past: Iterable[Recorded], lang: str | None = None) -> tuple[RecordRow, ...]:
    """One row a class that occurs, the nearest class first."""
    groups: dict[str, list[Recorded]] = defaultdict(list)
    for one in past:
        groups[one.foretold.klass].append(one)
    return tuple(
        _record_row(klass, text(f"predict.use.class.{klass}", lang), groups[klass], lang)
        for klass in CLASSES
        if klass in groups
    )


def by_month(past: Iterable[Recorded], lang: str | None = None) -> tuple[RecordRow, ...]:
    """One row a month of runs, the newest last; a point without a date is in none."""
    groups: dict[str, list[Recorded]] = defaultdict(list)
    for one in past:
        if one.at_utc:
            groups[one.at_utc[:7]].append(one)
    return tuple(_record_row(month, month, groups[month], lang) for month in sorted(groups)[-MAX_MONTHS:])


def _record_row(name: str, label: str, some: Sequence[Recorded], lang: str | None) -> RecordRow:
    inside = [one.foretold.inside for one in some if one.foretold.inside is not None]
    errors = [abs(one.foretold.error) for one in some if one.foretold.error is not None]
    level = statistics.fmean(one.foretold.level for one in some)
    points = len({one.point_id for one in some})
    verdict = judged(sum(inside), len(inside), points, level)
    return RecordRow(
        name=name,
        label=label,
        figures=len(some),
        points=points,
        coverage=ABSENT if not inside else f"{100 * sum(inside) / len(inside):.0f} %",
        promised=f"{100 * level:.0f} %",
        median_error=ABSENT if not errors else f"{significant(100 * statistics.median(errors))} %",
        judged=verdict,
        judged_text=text(f"predict.use.page.judged.{verdict}", lang, least=JUDGED_FROM),
    )


def judged(inside: int, figures: int, points: int, level: float) -> str:
    """`few`, `narrow`, `wide` or `held`: whether `inside` of `figures` (of so many points) agrees with `level`."""
    if points < JUDGED_FROM or not figures:
        return "few"
    off = inside / figures - level
    band = _Z * math.sqrt(level * (1 - level) / points) + 0.5 / points
    return "held" if abs(off) <= band else "wide" if off > 0 else "narrow"


def _record_words(past: Sequence[Recorded], model: str, lang: str | None) -> str:
    if not past:
        return text("predict.use.page.no_record", lang, model=model)
    points = len({one.point_id for one in past})
    return text("predict.use.page.record", lang, figures=len(past), points=points, model=model)
