"""What there is, what came last and what is wrong with it, before anything is chosen. What changed for real is a history's
matter (`history`), what failed on the way a matter of `reliability`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from servemark.analysis.eligible import EVAL, LowEval, low_evals
from servemark.analysis.format import group, significant
from servemark.analysis.measured import of_stored
from servemark.base.messages import text
from servemark.results.gates.words import title
from servemark.store.database import Store
from servemark.store.overview import (
    Held,
    held_configurations,
    imported_runs,
    left_out,
    quarantined,
    store_state,
)
from servemark.store.points import PointFilter, load_points
from servemark.store.reasons import reason_text

MAX_RUNS = 25
MAX_REASONS = 40
MAX_STARTS = 24
MAX_EVALS = 5_000
"""The newest accuracy results that low ones are looked for among."""


@dataclass(frozen=True, slots=True)
class StartView:
    """One model and scenario that a front can be drawn of: points, kinds of hardware and the newest date of the latest
    lines."""

    model: str
    scenario: str
    points: int
    hardware: tuple[str, ...]
    newest: str | None


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
    """Most first, newest first, worst first. `findings` say it in words."""

    store: StoreView
    findings: tuple[str, ...]
    starts: tuple[StartView, ...]
    runs: tuple[RunOverview, ...]
    gates: tuple[GateCount, ...]
    left_out: tuple[RowCount, ...]
    accuracy: tuple[LowAccuracy, ...]


def overview_view(store: Store, lang: str | None = None) -> OverviewView:
    """The view of a whole store; a second or less at 10^5 points."""
    points, newest, version = store_state(store)
    held = held_configurations(store)
    runs = tuple(
        RunOverview(r.source, r.run, r.at_utc or None, r.models, r.lines, r.points, r.usable)
        for r in reversed(imported_runs(store, None, MAX_RUNS))
    )
    gates = tuple(GateCount(gate, title(gate, lang), how, n) for gate, how, n in quarantined(store))
    rows = tuple(RowCount(r.status, reason_text(r.reason, r.values, lang), r.rows) for r in left_out(store))
    accuracy = _accuracy(store, held, lang)
    bad = sum(gate.points for gate in gates if gate.severity == "quarantine")
    lost = sum(row.rows for row in rows)
    return OverviewView(
        StoreView(points, newest, version),
        _findings(held, newest, (points, bad, lost, len(accuracy)), lang),
        _starts(held),
        runs,
        gates[:MAX_REASONS],
        rows[:MAX_REASONS],
        accuracy[:MAX_REASONS],
    )


def _starts(held: Sequence[Held]) -> tuple[StartView, ...]:
    some: dict[tuple[str, str], list[Held]] = defaultdict(list)
    for each in held:
        if each.scenario.partition(":")[0] != EVAL:
            some[each.model, each.scenario].append(each)
    found = [
        StartView(
            model,
            scenario,
            sum(each.points for each in group_),
            tuple(sorted({each.hardware for each in group_})),
            max((each.date[:10] for each in group_), default="") or None,
        )
        for (model, scenario), group_ in some.items()
    ]
    return tuple(sorted(found, key=lambda s: (-s.points, s.model, s.scenario))[:MAX_STARTS])


def _accuracy(store: Store, held: Sequence[Held], lang: str | None) -> tuple[LowAccuracy, ...]:
    """One a point: the score that is farthest below."""
    scenarios = sorted({each.scenario for each in held if each.scenario.partition(":")[0] == EVAL})
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


def _findings(
    held: Sequence[Held], newest: str | None, counts: tuple[int, int, int, int], lang: str | None
) -> tuple[str, ...]:
    """`counts`: points, quarantined ones, rows without a point, low accuracy results."""
    points, bad, lost, low = counts
    if not points and not lost:
        return (text("front.overview.empty", lang),)
    models, hardware = len({each.model for each in held}), len({each.hardware for each in held})
    values: dict[str, object] = {"points": group(str(points)), "models": models, "hardware": hardware}
    found = [text("front.overview.held", lang, **values, newest=(newest or "—")[:10])]
    if bad or lost or low:
        found.append(text("front.overview.broken", lang, bad=bad, lost=lost, low=low))
    return tuple(found)
