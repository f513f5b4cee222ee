"""From planned points to predictions: what was measured nearest, the speed model's figures, and how long a point will run.

A forecaster holds the usable points of a store (complete, not quarantined, no accuracy runs) and the models fitted to them.
Points of random weights inform nothing of a model's own, nor the reverse: lengths, fits, residuals and kin are apart.
What it answers with: the nearest measured configuration and every difference to it; figures with class and interval; or the
message key of why nothing can be said.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from servemark.analysis.comparable import stated_weights, weights_of
from servemark.analysis.measured import Measured, of_stored
from servemark.base.canonical import content_hash
from servemark.base.home import Home
from servemark.predict.fit_points import WHOLE, dataset_lengths, fit_point, fit_points, lengths_of, told
from servemark.predict.matching import Match, is_version, known_configurations, matches, model_name
from servemark.predict.planned import PlannedPoint
from servemark.predict.score_pool import (
    POOLED,
    ScorePool,
    has_fit,
    pool_path,
    read_pool,
    usable_count,
    write_pool,
)
from servemark.predict.speed import SpeedModel
from servemark.predict.speed_points import choose
from servemark.predict.speed_types import (
    E2EL,
    OUTPUT_PER_GPU,
    TPOT,
    ConfigFacts,
    Predictions,
    Why,
    facts_of,
    facts_of_point,
)
from servemark.predict.types import Predicted, StepTimes
from servemark.store.database import Store
from servemark.store.points import PointFilter, load_points
from servemark.store.predictions import plain_figures

OnFit = Callable[[int, int, int], None]
"""Told (parts done, parts in all, points) while residuals of a store are made."""
QUICK = 300
"""Points of a store whose residuals are made while somebody waits for something else."""
WHY_METRICS = (OUTPUT_PER_GPU, TPOT)
"""Figures whose working is shown."""


@dataclass(frozen=True, slots=True)
class Hours:
    """How long a point replays, in seconds: stated by the suite (`low` = `high`), or out of a predicted end-to-end time."""

    value: float
    low: float
    high: float
    predicted: bool


@dataclass(frozen=True, slots=True)
class Forecast:
    """What can be said of one planned point. `nearest` is None where nothing of its model was measured; `measured` are
    measurements of this very configuration and load, the newest last; `cannot` is the message key of why there are no
    figures."""

    planned: PlannedPoint
    nearest: Match | None
    predictions: Predictions | None
    measured: tuple[Measured, ...]
    cannot: str | None = None

    def figure(self, address: str) -> Predicted | None:
        """One metric's prediction; None where there is none."""
        return None if self.predictions is None else self.predictions.figures.get(address)

    @property
    def other_version(self) -> bool:
        """Whether its figures rest on another image, version or recipe than it will run with: what that changes is in no
        interval."""
        near = self.nearest
        return near is not None and any(is_version(each.part) for each in near.differs)

    def duration(self) -> Hours | None:
        """Seconds of its replay, warm-up included; None where it can only be assumed."""
        stated = self.planned.stated_duration_s
        if stated is not None:
            return Hours(stated, stated, stated, predicted=False)
        found = self.figure(E2EL)
        requests = self._requests_each()
        if (
            found is None
            or found.value is None
            or found.low is None
            or found.high is None
            or requests is None
        ):
            return None
        return Hours(found.value * requests, found.low * requests, found.high * requests, predicted=True)

    def _requests_each(self) -> float | None:
        """Requests that each of the concurrent sessions sends one after another."""
        scenario = self.planned.identity.scenario
        if scenario.isl is not None and scenario.osl is not None:
            return float(sum(self.planned.rounds))
        counts = [p.requests_ok for p in (self.nearest.points if self.nearest else ()) if p.requests_ok]
        if self.nearest is None or self.nearest.level not in ("exact", "version") or not counts:
            return None
        return statistics.median(counts) / max(1, self.planned.concurrency)


def _fitted(points: Sequence[Measured], on_fit: OnFit | None) -> SpeedModel:
    """A model of these points, with the residuals of all its classes made."""
    model = SpeedModel.fit(fit_points(points))
    if on_fit is not None:
        for done, total in model.score_parts():
            on_fit(done, total, len(model.points))
    return model


class Forecaster:
    """See the module. Fitting is put off until the first point asks for it."""

    def __init__(
        self,
        points: Sequence[Measured],
        pools: Mapping[str, ScorePool] | None = None,
        unmade: Iterable[str] = (),
    ) -> None:
        """`pools` are residuals of a whole store by weights; without them those of the points themselves are made. `unmade`
        are weights whose residuals of the whole store nobody has made yet."""
        self._points = points
        self._unmade = frozenset(unmade)
        self._pools = dict(pools or {})
        self._configs = known_configurations(points)
        self._models: dict[tuple[str, str], SpeedModel] = {}
        self._of: dict[str, list[Measured]] = defaultdict(list)
        for point in points:
            self._of[weights_of(point)].append(point)
        self._lengths = {weights: dataset_lengths(some) for weights, some in self._of.items()}
        self._near: dict[tuple[str, object, str], tuple[Match, ...]] = {}

    @classmethod
    def of_store(
        cls,
        store: Store,
        models: Iterable[str],
        home: Home,
        *,
        wait: bool = True,
        on_fit: OnFit | None = None,
    ) -> Forecaster:
        """Over the store's usable points of these models, with intervals from the residuals of all models. Those are read
        from the home's cache, or made and kept there where they are missing or out of date; without `wait` only in a store
        of at most `QUICK` points, else whatever is kept is taken. `on_fit` is told of each part of that work."""
        points = usable_points(store, models)
        if not points:
            return cls(points)
        count, pools = usable_count(store), dict[str, ScorePool]()
        unmade = []
        every: list[Measured] | None = None
        for weights in sorted({weights_of(point) for point in points}.intersection(POOLED)):
            pool = read_pool(pool_path(home, weights))
            kept = pool is not None and pool.fresh(count) and has_fit(home, pool)
            if not kept and (wait or count <= QUICK):
                every = usable_points(store) if every is None else every
                some = [point for point in every if weights_of(point) == weights]
                pool = write_pool(home, _fitted(some, on_fit), count, weights)
            if pool is None:
                unmade.append(weights)
            else:
                pools[weights] = pool
        return cls(points, pools, unmade)

    @property
    def points(self) -> Sequence[Measured]:
        """What it rests on."""
        return self._points

    @property
    def fit_id(self) -> str:
        """Names what figures rest on: the calibration files that give the intervals (one for each kind of weights), and
        the points."""
        points = content_hash(sorted(point.ref for point in self._points), 16)
        return "/".join((*(self._pools[weights].fit for weights in sorted(self._pools)), points))

    def apart(self, planned: PlannedPoint) -> int:
        """How many of its points inform nothing of this one, since their weights are others."""
        return len(self._points) - len(self.of_weights(planned))

    def of_weights(self, planned: PlannedPoint) -> Sequence[Measured]:
        """Its points of the planned one's weights."""
        return self._of.get(stated_weights(planned.identity), ())

    def model(self, planned: PlannedPoint, nearest: Match | None) -> SpeedModel:
        """The speed model for a planned point, made when first asked for: of the points of its weights on the same hardware
        where its configuration was measured, which is a tenth of the work and whose curves bend alike; else of all of its
        weights."""
        weights = stated_weights(planned.identity)
        own = "" if nearest is None or nearest.level == "kin" else nearest.identity.hardware
        if (weights, own) not in self._models:
            some = [p for p in self.of_weights(planned) if own in ("", p.identity.hardware)]
            pool = self._pools.get(weights)
            scores = None if pool is None else pool.scores
            self._models[weights, own] = SpeedModel(choose(fit_points(some)), None, scores)
        return self._models[weights, own]

    def matches(self, planned: PlannedPoint) -> tuple[Match, ...]:
        """Measured configurations, the nearest first; looked up once for a line."""
        key = (planned.line, planned.identity.scenario, stated_weights(planned.identity))
        if key not in self._near:
            self._near[key] = tuple(matches(planned.identity, self._configs))
        return self._near[key]

    def forecast(self, planned: PlannedPoint, *, bands: bool = True) -> Forecast:
        """What can be said of a planned point. Without `bands` nothing is asked of the model for a configuration of which
        nothing was measured, which is most of a large plan."""
        near = self.matches(planned)
        if not self.of_weights(planned):  # nothing of the model: nothing to fit
            return Forecast(planned, None, None, (), "predict.use.nothing")
        nearest = near[0] if near else None
        here = tuple(
            sorted(
                (
                    point
                    for match in near
                    if match.level in ("exact", "version")
                    for point in match.points
                    if point.concurrency == planned.concurrency
                ),
                key=lambda point: point.at_utc,
            )
        )
        if not bands and (nearest is None or nearest.level == "kin"):
            return Forecast(planned, nearest, None, here, "predict.use.nothing")
        known = self._lengths[stated_weights(planned.identity)]
        lengths = lengths_of(planned.identity.scenario, known)
        if lengths is None:
            return Forecast(planned, nearest, None, here, "predict.use.no_lengths")
        made = self.model(planned, nearest).predict(_facts(planned, nearest), planned.concurrency, *lengths)
        figures = told(made.figures, planned.gpus)
        if stated_weights(planned.identity) in self._unmade:
            figures = {name: _unmade(figure) for name, figure in figures.items()}
        found = replace(made, figures=figures)
        return Forecast(planned, nearest, found, here, None if found.figures else "predict.use.nothing")

    def step_times(self, forecast: Forecast) -> StepTimes | str:
        """Step times of the point's configuration, or the message key of why there are none."""
        if forecast.nearest is None or forecast.nearest.level == "kin":
            return "predict.use.nothing"
        model = self.model(forecast.planned, forecast.nearest)
        return model.step_times(_facts(forecast.planned, forecast.nearest))

    def why(self, forecast: Forecast, metrics: Sequence[str] = WHY_METRICS) -> list[Why]:
        """What the figures of a forecast rest on, for each of these metrics that it has."""
        found = forecast.predictions
        if found is None:
            return []
        from servemark.predict.speed_why import why  # noqa: PLC0415 - asked for rarely

        config = _facts(forecast.planned, forecast.nearest)
        model = self.model(forecast.planned, forecast.nearest)
        told_as = {metric: metric if metric in found.figures else WHOLE.get(metric, "") for metric in metrics}
        return [
            replace(why(model, config, found.concurrency, found.isl, found.osl, metric=metric), metric=name)
            for metric, name in told_as.items()
            if name in found.figures
        ]


def _unmade(figure: Predicted) -> Predicted:
    """A figure without an interval, where not the store lacks residuals but nobody has made them."""
    unmade = figure.reason == "predict.fit.few_residuals"
    return replace(figure, reason="predict.use.unmade_residuals") if unmade else figure


def _facts(planned: PlannedPoint, nearest: Match | None) -> ConfigFacts:
    """The configuration as the fit knows it: that of the nearest measured one where it is the same but for version or
    lengths, else the planned one's own."""
    if nearest is None or nearest.level == "kin":
        return facts_of(planned.identity, planned.gpus or 1)
    return facts_of_point(fit_point(newest(nearest.points), {}))


def newest(points: Sequence[Measured]) -> Measured:
    """The point that began last."""
    return max(points, key=lambda point: (point.at_utc, point.ref))


def usable_points(store: Store, models: Iterable[str] | None = None) -> list[Measured]:
    """Current, complete, unquarantined points of these models under any of their names (of all models without any), accuracy
    runs left out."""
    if models is None:
        return _loaded(store, PointFilter(quarantined=False))
    wanted = {model_name(model) for model in models}
    named = [str(name) for (name,) in store.query("SELECT DISTINCT model FROM result_config")]
    names = tuple(name for name in named if model_name(name) in wanted)
    if not names:
        return []
    return _loaded(store, PointFilter(model=names, quarantined=False))


def _loaded(store: Store, wanted: PointFilter) -> list[Measured]:
    found = (of_stored(one) for one in load_points(store, wanted))
    return [point for point in found if point.status == "complete" and point.identity.scenario.type != "eval"]


def metrics_of(forecasts: Iterable[Forecast]) -> tuple[str, ...]:
    """Addresses that any of the forecasts has, in the model's order."""
    found: dict[str, None] = {}
    for each in forecasts:
        if each.predictions is not None:
            found.update(dict.fromkeys(each.predictions.figures))
    return tuple(found)


def plain(forecast: Forecast, fit: str, made_utc: str) -> Mapping[str, object]:
    """A forecast as a manifest keeps it (`store.predictions`), with what it rests on."""
    figures = () if forecast.predictions is None else tuple(forecast.predictions.figures.values())
    return {
        "schema": 1,
        "made_utc": made_utc,
        "fit": fit,
        "nearest": None
        if forecast.nearest is None
        else {"config_key": forecast.nearest.config_key, "level": forecast.nearest.level},
        "figures": plain_figures(figures),
    }
