"""What a store holds, to choose from: models and their scenarios, the values of every filter, the metrics that can be axes,
and where to begin. Counts are of points that count, in the latest lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from servemark.analysis.axes import X_FIRST, Y_FIRST, AxisInfo, available, axis_info
from servemark.analysis.eligible import EVAL
from servemark.analysis.selection import Selection
from servemark.analysis.workload_names import named, workload_names
from servemark.results.point import PointIdentity
from servemark.store.database import Store
from servemark.store.overview import Held, held_configurations, stated_shapes, store_state

OWN_FACETS = ("hardware", "engine", "precision", "speculation", "disaggregated", "offload", "source", "run")
"""Filters beside model and scenario."""
MAX_RUNS = 200
"""The newest runs are offered; older ones are found by their id."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a filter, and the points that have it."""

    id: str
    label: str
    points: int


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model with its scenarios, those with the most points first; accuracy results are scenarios of their own."""

    id: str
    points: int
    scenarios: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where to begin: the model and scenario with the most points, the precision most of them have, and two axes."""

    model: str | None
    scenario: str | None
    precision: str | None
    x: str
    y: str


@dataclass(frozen=True, slots=True)
class StoreState:
    """How much there is, the newest date, and a word that changes whenever what can be read changes."""

    points: int
    newest: str | None
    version: str


@dataclass(frozen=True, slots=True)
class FacetsView:
    """See the module."""

    models: tuple[ModelChoice, ...]
    facets: Mapping[str, tuple[Choice, ...]]
    metrics: tuple[AxisInfo, ...]
    default: Beginning
    store: StoreState


def facets(
    store: Store, lang: str | None = None, *, chosen: Selection | None = None, costs: bool = False
) -> FacetsView:
    """Everything that can be chosen. With a selection the filters hold only what its model and scenario have, and the
    beginning is one within all of it; models and their scenarios are all listed, whatever is chosen. `costs`: whether a
    rate card is at hand."""
    asked = chosen or Selection()
    held = held_configurations(store)
    near = [each for each in held if _fits(each, asked, ("model", "scenario"))]
    every = held if asked.latest else held_configurations(store, latest=False)
    within = [each for each in every if _fits(each, asked, ("model", "scenario", *OWN_FACETS))]
    points, newest, version = store_state(store)
    addresses = available(stated_shapes(store), costs=costs)
    names = {str(address) for address in addresses}
    return FacetsView(
        _models(held, workload_names(each.identity for each in held)),
        _facets(near),
        tuple(axis_info(address, lang) for address in addresses),
        _beginning(within, names),
        StoreState(points, newest, version),
    )


def _fits(each: Held, asked: Selection, names: Sequence[str]) -> bool:
    wanted = {name: values for name in names if (values := getattr(asked, name))}
    if not wanted:
        return True
    has = {"model": each.model, "scenario": each.scenario, **dict(_values(each))}
    return all(has[name] in values for name, values in wanted.items())


def columnar_facets(view: FacetsView) -> dict[str, object]:
    """Plain JSON values of the view."""
    from msgspec import to_builtins  # noqa: PLC0415 - a help text needs none

    plain: dict[str, object] = to_builtins(view)
    return plain


def _models(held: Sequence[Held], names: Mapping[str, str]) -> tuple[ModelChoice, ...]:
    by_model: dict[str, Counter[str]] = {}
    for each in held:
        by_model.setdefault(each.model, Counter())[each.scenario] += each.points
    found = [
        ModelChoice(model, sum(scenarios.values()), _choices(scenarios, last=f"{EVAL}:", names=names))
        for model, scenarios in by_model.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.points, each.id)))


def _choices(
    counted: Mapping[str, int], last: str = "\0", names: Mapping[str, str] = MappingProxyType({})
) -> tuple[Choice, ...]:
    """The most frequent first; those that begin with `last` after all others. `names` stand for data sets in labels."""
    ordered = sorted(counted.items(), key=lambda e: (e[0].startswith(last), -e[1], e[0]))
    return tuple(Choice(value, named(value, names), count) for value, count in ordered)


def _facets(held: Sequence[Held]) -> dict[str, tuple[Choice, ...]]:
    counted: dict[str, Counter[str]] = {name: Counter() for name in OWN_FACETS}
    newest: dict[str, str] = {}
    for each in held:
        for name, value in _values(each):
            counted[name][value] += each.points
        newest[each.run] = max(newest.get(each.run, ""), each.date)
    found = {name: _choices(values) for name, values in counted.items() if name != "run"}
    runs = sorted(counted["run"].items(), key=lambda e: (newest[e[0]], e[0]), reverse=True)[:MAX_RUNS]
    found["run"] = tuple(Choice(run, f"{newest[run][:10]} {run}".strip(), count) for run, count in runs)
    return found


def _values(each: Held) -> Iterable[tuple[str, str]]:
    identity: PointIdentity = each.identity
    speculation, split = identity.speculation, identity.disaggregated
    return (
        ("hardware", each.hardware),
        ("engine", each.engine),
        ("precision", each.precision or "unknown"),
        ("speculation", "none" if speculation is None else speculation.method),
        ("disaggregated", "unknown" if split is None else "yes" if split else "no"),
        ("offload", "no" if identity.offload is None else "yes"),
        ("source", each.source),
        ("run", each.run),
    )


def _beginning(held: Sequence[Held], names: set[str]) -> Beginning:
    speeds = [each for each in held if not each.scenario.startswith(f"{EVAL}:")] or list(held)
    pairs: Counter[tuple[str, str]] = Counter()
    for each in speeds:
        pairs[each.model, each.scenario] += each.points
    x = next((name for name in X_FIRST if name in names), X_FIRST[0])
    y = next((name for name in Y_FIRST if name in names), Y_FIRST[0])
    if not pairs:
        return Beginning(None, None, None, x, y)
    (model, scenario), _ = max(pairs.items(), key=lambda e: (e[1], e[0]))
    precisions: Counter[str] = Counter()
    for each in speeds:
        if (each.model, each.scenario) == (model, scenario):
            precisions[each.precision or "unknown"] += each.points
    precision = max(precisions.items(), key=lambda e: (e[1], e[0]))[0]
    return Beginning(model, scenario, precision, x, y)
