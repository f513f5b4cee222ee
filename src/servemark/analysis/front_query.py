"""A front straight from a store: the selected points, the accuracy results that speak for them, and why gates quarantined
some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from servemark.analysis.eligible import EVAL
from servemark.analysis.facets import facets
from servemark.analysis.front_types import FrontOptions, FrontView
from servemark.analysis.front_view import front_view
from servemark.analysis.measured import Measured, of_stored
from servemark.analysis.selection import Selection, select, select_unusable
from servemark.store.database import Store
from servemark.store.overview import scenarios_of
from servemark.store.points import PointFilter, findings_of, load_points

MAX_NAMED = 500
"""Quarantined points whose gates are looked up one by one; the rest are called quarantined."""


def front_of(
    store: Store, chosen: Selection, options: FrontOptions | None = None, lang: str | None = None
) -> FrontView:
    """The view of a selection. `options.evals` and `options.selection` are filled in here. Raises as `front_view` does."""
    asked = options or FrontOptions()
    points = with_gates(store, _with_unusable(store, chosen))
    evals = accuracy_results(store, points)
    return front_view(points, replace(asked, evals=evals, selection=chosen), lang)


def _with_unusable(store: Store, chosen: Selection) -> list[Measured]:
    """The selected points, and those of newer runs that gates quarantined whole: they are counted with their reason."""
    points = select(store, chosen)
    if not chosen.latest:
        return points
    latest: dict[tuple[str, str], str] = {}
    for point in points:
        key = point.config_key, point.source
        latest[key] = max(latest.get(key, ""), point.at_utc)
    hidden = select_unusable(store, chosen)
    return points + [each for each in hidden if each.at_utc > latest.get((each.config_key, each.source), "")]


def accuracy_results(store: Store, points: Sequence[Measured]) -> list[Measured]:
    """Accuracy results of the models of these points, of every run."""
    found = []
    for model in sorted({point.identity.model for point in points}):
        for scenario in scenarios_of(store, model):
            if scenario.partition(":")[0] == EVAL:
                found += [
                    of_stored(each)
                    for each in load_points(store, PointFilter(model=model, scenario=scenario))
                ]
    return found


def with_gates(store: Store, points: Sequence[Measured]) -> list[Measured]:
    """The same points; quarantined ones with what their gates said."""
    wanted = [p.ref for p in points if p.verdict == "quarantined" and p.stored_id is not None][:MAX_NAMED]
    named = set(wanted)
    return [
        replace(point, findings=tuple(findings_of(store, point.stored_id)))
        if point.ref in named and point.stored_id is not None
        else point
        for point in points
    ]


def beginning(store: Store, chosen: Selection) -> Selection:
    """The selection with a model, a scenario and a precision where it names none: those with the most points among what
    it names. What it names is never changed."""
    if chosen.model and chosen.scenario:
        return chosen
    start = facets(store, chosen=chosen).default
    if start.model is None or start.scenario is None:
        return chosen
    narrowed = replace(
        chosen, model=chosen.model or (start.model,), scenario=chosen.scenario or (start.scenario,)
    )
    free = not (chosen.precision or chosen.run or chosen.line or chosen.config)
    return replace(narrowed, precision=(start.precision,)) if free and start.precision else narrowed
