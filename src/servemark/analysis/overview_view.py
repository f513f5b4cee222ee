"""What came last and what is wrong with it, before anything is chosen. What changed for real is a history's
matter (`history`), what failed on the way a matter of `reliability`."""

from __future__ import annotations

from dataclasses import dataclass

from servemark.analysis.eligible import EVAL, LowEval, low_evals
from servemark.analysis.format import significant
from servemark.analysis.measured import of_stored
from servemark.base.messages import text
from servemark.results.gates.words import title
from servemark.store.database import Store
from servemark.store.overview import imported_runs, left_out, quarantined, scenarios_of, store_state
from servemark.store.points import PointFilter, load_points
from servemark.store.reasons import reason_text

MAX_RUNS = 25
MAX_REASONS = 40
MAX_EVALS = 5_000
"""The newest accuracy results that low ones are looked for among."""


@dataclass(frozen=True, slots=True)
class RunOverview:
    """A run that came in: its points that count, and how many of them may be used."""

    source: str
    run: str
    date: str | None
    models: str
    lines: int
    points: int
    usable: int


@dataclass(frozen=True, slots=True)
class GateCount:
    """Points that one gate doubts (`warning`) or keeps off every front (`quarantine`)."""

    gate: str
    title: str
    severity: str
    points: int


@dataclass(frozen=True, slots=True)
class RowCount:
    """Rows that gave no point, by reason."""

    status: str
    reason: str
    rows: int


@dataclass(frozen=True, slots=True)
class LowAccuracy:
    """An accuracy result far below the others of its model; `ref` names it."""

    ref: str
    model: str
    run: str
    text: str


@dataclass(frozen=True, slots=True)
class StoreView:
    """Points that count, the newest date, and a word that changes with the store."""

    points: int
    newest: str | None
    version: str


@dataclass(frozen=True, slots=True)
class OverviewView:
    """Newest first, most frequent first, worst first."""

    store: StoreView
    runs: tuple[RunOverview, ...]
    gates: tuple[GateCount, ...]
    left_out: tuple[RowCount, ...]
    accuracy: tuple[LowAccuracy, ...]


def overview_view(store: Store, lang: str | None = None) -> OverviewView:
    """The view of a whole store; a second or less at 10^5 points."""
    runs = tuple(
        RunOverview(
            r.source, r.run, r.at_utc or None, r.models.replace(",", ", "), r.lines, r.points, r.usable
        )
        for r in reversed(imported_runs(store, None, MAX_RUNS))
    )
    gates = (GateCount(gate, title(gate, lang), how, n) for gate, how, n in quarantined(store)[:MAX_REASONS])
    rows = (
        RowCount(r.status, reason_text(r.reason, r.values, lang), r.rows)
        for r in left_out(store)[:MAX_REASONS]
    )
    accuracy = _accuracy(store, lang)[:MAX_REASONS]
    return OverviewView(StoreView(*store_state(store)), runs, tuple(gates), tuple(rows), accuracy)


def _accuracy(store: Store, lang: str | None) -> tuple[LowAccuracy, ...]:
    """One a point: the score that is farthest below."""
    scenarios = [each for each in scenarios_of(store) if each.partition(":")[0] == EVAL]
    if not scenarios:
        return ()
    wanted = PointFilter(scenario=tuple(scenarios), limit=MAX_EVALS)
    low: dict[str, LowEval] = {}
    for each in low_evals([of_stored(stored) for stored in load_points(store, wanted)]):
        low.setdefault(each.point.ref, each)
    return tuple(
        LowAccuracy(each.point.ref, each.point.identity.model, each.point.run, _said(each, lang))
        for each in low.values()
    )


def _said(low: LowEval, lang: str | None) -> str:
    i = low.point.identity
    return text(
        "front.overview.low_eval",
        lang,
        model=i.model,
        where=" · ".join(each for each in (i.hardware, i.engine, i.precision.family) if each),
        task=low.score.task,
        metric=low.score.metric,
        score=significant(low.score.score),
        median=significant(low.median),
        others=low.others,
        date=low.point.at_utc[:10] or "—",
    )
