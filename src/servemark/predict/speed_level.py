"""How fast a configuration is where its own curve does not say: the physical form over all points, and the part by which
hardware, engine, deployment, build and curve depart from it, kriged in logarithms.

One measured point of a configuration scales what its kind would do (one anchor); points at other lengths do the same with
what the physical form and like deployments say of lengths (other shape).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from servemark.predict.fit import relative_nnls, tpot_terms, ttft_terms
from servemark.predict.kriging import Ground, Kriging, Part, Sites
from servemark.predict.speed_bend import groups_of
from servemark.predict.speed_points import FitPoint, Quantity
from servemark.predict.speed_types import ConfigFacts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Whole = NDArray[np.intp]

_ANY = 1e9
_WIDE = (3.0, 4.0, 4.0, _ANY)
_NEAR = (2.5, 4.0, 4.0, _ANY)
PARTS = (
    Part("", 0.7, 0.4, _WIDE),
    Part("model", 0.5),
    Part("hardware", 0.4),
    Part("engine", 0.2, 0.15, _WIDE),
    Part("hardware_engine", 0.3, 0.2, _WIDE),
    Part("speculation", 0.3, 0.2, _WIDE),
    Part("disaggregated", 0.3, 0.3, _WIDE),
    Part("family", 0.0, 0.2, (_ANY, _ANY, _ANY, 1.0)),
    Part("family", 0.0, 0.2, (2.5, 4.0, 4.0, 1.0)),
    Part("deployment", 0.2, 0.15, _NEAR),
    Part("build", 0.1, 0.05, _WIDE),
    Part("deployment_build", 0.1, 0.05, _NEAR),
    Part("curve", 0.1, 0.03, (2.0, 4.0, 4.0, _ANY)),
)
"""Standard deviations of ln(value). Coordinates: ln of concurrency, ISL, OSL and GPUs. Stated, not fitted."""
NOISE: dict[Quantity, float] = {"tpot": 0.02, "service": 0.02, "e2el": 0.02, "ttft": 0.06}
"""Of one measurement, in ln: above what repeats within days show, since builds change unnamed."""
MOST_POINTS = 1200
"""The fit's time grows with the cube; beyond it the newest points of each deployment are taken in turn."""
_SCALES = 6


@dataclass(frozen=True, slots=True)
class Place:
    """A point or a question: a configuration at a load and lengths. `curve` as in `FitPoint`."""

    facts: ConfigFacts
    build: str
    curve: str
    concurrency: int
    isl: int
    osl: int
    gpus: int | None


def place_of(point: FitPoint) -> Place:
    """Of a measured point."""
    build = point.facts.build or f"run:{point.run}"
    return Place(
        point.facts,
        build,
        point.curve,
        point.concurrency,
        point.isl,
        point.osl,
        point.gpus or point.facts.gpus,
    )


def sites_of(places: Sequence[Place]) -> Sites:
    """Coordinates and groups."""
    numbers = [(p.concurrency, p.isl, p.osl, p.gpus or 1) for p in places]
    names: dict[str, list[str]] = {part.group: [] for part in PARTS if part.group}
    for place in places:
        known = groups_of(place.facts)
        known |= {
            "build": place.build,
            "deployment_build": f"{place.facts.key}/{place.build}",
            "curve": place.curve,
        }
        for name, members in names.items():
            members.append(known[name])
    return Sites(np.log(np.asarray(numbers, dtype=np.float64).reshape(-1, 4)), names)


def terms_of(quantity: Quantity, places: Sequence[Place]) -> Floats:
    """(places, terms) of the physical form; `service` and `e2el` have that of TPOT, being seconds of an output token."""
    load, isl, osl = (
        np.asarray([getattr(p, n) for p in places], dtype=np.float64) for n in ("concurrency", "isl", "osl")
    )
    if quantity == "ttft":
        return ttft_terms(load, isl)
    found = np.zeros((len(places), 5))
    kinds: dict[tuple[int | None, int | None], list[int]] = {}
    for place, each in enumerate(places):
        kinds.setdefault((each.facts.experts, each.facts.top_k), []).append(place)
    for (experts, top_k), rows in kinds.items():
        at = np.asarray(rows, dtype=np.intp)
        found[at] = tpot_terms(load[at], isl[at], osl[at], experts, top_k)
    return found


def spread_points(points: Sequence[FitPoint], most: int = MOST_POINTS) -> list[FitPoint]:
    """At most so many: the newest of every deployment first, then their next newest, and so on. `points` newest first."""
    if len(points) <= most:
        return list(points)
    turn: dict[str, int] = {}
    order = []
    for place, point in enumerate(points):
        turn[point.facts.key] = turn.get(point.facts.key, -1) + 1
        order.append((turn[point.facts.key], place))
    return [points[place] for _, place in sorted(order)[:most]]


@dataclass(frozen=True, slots=True)
class LevelState:
    """The coefficients of the physical form and each point's noise after doubt (ln)."""

    coefficients: tuple[float, ...]
    noise: tuple[float, ...]


class LevelModel:
    """One quantity over all points. `coefficients` are those of the physical form, each kind scaled to its own median."""

    def __init__(
        self,
        points: Sequence[FitPoint],
        quantity: Quantity,
        ground: Ground | None = None,
        known: LevelState | None = None,
    ) -> None:
        """`points` all have the quantity; `ground` is their covariance, `known` an earlier fit's state, if there is one."""
        self.quantity = quantity
        self.points = list(points)
        self.places = [place_of(point) for point in points]
        values = np.asarray([point.values[quantity] for point in points])
        terms = terms_of(quantity, self.places)
        if known is None:
            kinds = [groups_of(place.facts)["family"] for place in self.places]
            self.coefficients = _pooled(terms, values, kinds)
        else:
            self.coefficients = np.asarray(known.coefficients)
        logs = np.log(values / self._form(terms))
        noise = np.full(len(points), NOISE[quantity])
        middle = float(np.median(logs)) if len(points) else 0.0
        believed = None if known is None else np.asarray(known.noise)
        ground = ground or Ground(PARTS, sites_of(self.places))
        self.kriging = Kriging(PARTS, ground, logs, noise, middle, believed)

    def state(self) -> LevelState:
        """What a later session needs to have the same model without searching for it."""
        return LevelState(tuple(map(float, self.coefficients)), tuple(map(float, self.kriging.noise)))

    def _form(self, terms: Floats) -> Floats:
        return np.maximum(terms @ self.coefficients, 1e-12)

    def guess(self, place: Place, without: Whole | None = None) -> tuple[float, float]:
        """(value, standard deviation of its ln) at a place, with some points left out."""
        sites = sites_of([place])
        logs, spread = self.kriging.guess(sites, without)
        form = self._form(terms_of(self.quantity, [place]))
        return float(form[0] * np.exp(np.clip(logs[0], -30, 30))), float(spread[0])


def level_ground(points: Sequence[FitPoint]) -> Ground:
    """Covariance of points: the same for all quantities that all of them have."""
    return Ground(PARTS, sites_of([place_of(point) for point in points]))


def _pooled(terms: Floats, values: Floats, kinds: Sequence[str]) -> Floats:
    """Coefficients of the form with one scale for each kind, found in turn."""
    if not len(values):
        return np.ones(terms.shape[1])
    codes = {name: place for place, name in enumerate(dict.fromkeys(kinds))}
    member = np.asarray([codes[name] for name in kinds], dtype=np.intp)
    scale = np.asarray([float(np.exp(np.median(np.log(values[member == k])))) for k in range(len(codes))])
    found = np.zeros(terms.shape[1])
    for _ in range(_SCALES):
        found, _weights = relative_nnls(terms * scale[member][:, None], values)
        form = np.maximum(terms @ found, 1e-12)
        scale = np.asarray(
            [float(np.exp(np.median(np.log(values / form)[member == k]))) for k in range(len(codes))]
        )
    return found
