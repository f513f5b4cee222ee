"""The speed of a deployment at a load that nobody measured: a figure with its class and its interval, or why there is none.

Within a measured curve the figure is interpolated along a bend learnt from like curves (`speed_bend`); elsewhere it is what
the physical form and the parts of hardware, engine, deployment and build say (`speed_level`). Intervals are those that held
the stated share of held-out figures of the same class (`speed_scores`, `conformal`). A class that rests on no point of the
configuration has a band and a rank, never a figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from servemark.analysis.measured import Measured
from servemark.base.errors import input_error
from servemark.predict.conformal import conformal_quantile
from servemark.predict.fit import PhysicalFit
from servemark.predict.kriging import Ground
from servemark.predict.speed_bend import KNOT_NOISE, BendModel, Knot, beyond, knots_of, shape_of, slope
from servemark.predict.speed_curve import Notes, Standing, believed_knots, queue_note, standing
from servemark.predict.speed_level import NOISE, LevelModel, LevelState, Place, level_ground, spread_points
from servemark.predict.speed_physical import physical_fit
from servemark.predict.speed_points import QUANTITIES, Chosen, FitPoint, Quantity, choose, curves_of
from servemark.predict.speed_scores import (
    SCORE_CLASSES,
    WHOLE_DEPLOYMENTS,
    Held,
    ScoreClass,
    both,
    extrapolated,
    held_by,
    interpolated,
    level_residuals,
    middle_load,
    other_build,
    spread_between,
    spread_beyond,
)
from servemark.predict.speed_types import (
    E2EL,
    INTERACTIVITY,
    LEVEL,
    OUTPUT_PER_GPU,
    TOTAL_PER_GPU,
    TPOT,
    TTFT,
    ConfigFacts,
    Predictions,
)
from servemark.predict.types import Predicted, PredictionClass

MODEL_VERSION = 2
"""Raised when the same points would give other figures."""
LEAST_REACH = 0.005
"""No interval is narrower than what repeats of one load differ by."""
MOST_CONCURRENCY, MOST_LENGTH = 10_000_000, 100_000_000


@dataclass(frozen=True, slots=True)
class Question:
    """One load of one configuration."""

    config: ConfigFacts
    concurrency: int
    isl: int
    osl: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """A quantity in seconds before its interval. `spread` is what scores of `scored` are multiplied by."""

    quantity: Quantity
    klass: PredictionClass
    value: float
    spread: float
    scored: ScoreClass
    notes: Notes = ()


@dataclass(frozen=True, slots=True)
class Ranked:
    """A configuration's place among others by a metric, 1 the best, and the band that its figure lies in (None where the
    model does not know even that)."""

    config: ConfigFacts
    place: int
    of: int
    klass: PredictionClass
    low: float | None
    high: float | None


class SpeedModel:
    """See the module. Parts that a question does not need are not made."""

    def __init__(
        self,
        chosen: Chosen,
        states: Mapping[Quantity, LevelState] | None = None,
        scores: Mapping[tuple[Quantity, ScoreClass], tuple[Held, ...]] | None = None,
        bend_noise: Mapping[Quantity, Sequence[float]] | None = None,
    ) -> None:
        """Use `fit` or `calibration.read_calibration`."""
        self.points = chosen.points
        self.left_out = chosen.left_out
        self.curves = curves_of(chosen.points)
        self._own: dict[str, list[FitPoint]] = {}
        for point in chosen.points:
            self._own.setdefault(point.facts.key, []).append(point)
        self._models = {point.facts.model for point in chosen.points}
        self._kinds = {(p.facts.hardware, p.facts.engine) for p in chosen.points}
        self._states = dict(states or {})
        self._bend_noise = dict(bend_noise or {})
        self._beliefs: dict[Quantity, dict[str, float]] = {}
        self._bends: dict[Quantity, BendModel] = {}
        self._levels: dict[Quantity, LevelModel | None] = {}
        self._scores = dict(scores or {})
        self._reaches: dict[tuple[Quantity, ScoreClass], float | None] = {}

    @classmethod
    def fit(cls, points: Iterable[Measured]) -> SpeedModel:
        """The model of all points that gates let pass. Never raises for what points hold: what no fit may use is counted in
        `left_out`."""
        return cls(choose(points))

    @classmethod
    def of_chosen(cls, points: Sequence[FitPoint]) -> SpeedModel:
        """The model of points that have been chosen already, the newest first."""
        return cls(Chosen(tuple(points)))

    def predict(self, config: ConfigFacts, concurrency: int, isl: int, osl: int) -> Predictions:
        """All metrics of one configuration at one load. Raises ServemarkError (exit code 2) for a load that cannot be."""
        asked = question(config, concurrency, isl, osl)
        stands = self.standing(asked)
        made = {quantity: self.estimate(quantity, asked, stands) for quantity in QUANTITIES}
        gpus = config.gpus or next((p.gpus for p in (*stands.curve, *stands.own) if p.gpus), None)
        total = concurrency * (isl + osl) / (osl * gpus) if gpus else None
        share = _output_share(stands, asked)
        scales: dict[str, tuple[Quantity, float | None, bool]] = {
            TOTAL_PER_GPU: ("service", total, True),
            OUTPUT_PER_GPU: ("service", total and total * share, True),
            TPOT: ("tpot", 1.0, False),
            INTERACTIVITY: ("tpot", 1.0, True),
            TTFT: ("ttft", 1.0, False),
            E2EL: ("e2el", float(osl), False),
        }
        figures = {
            metric: self._figure(metric, stands.klass, made[quantity], scale, inverse)
            for metric, (quantity, scale, inverse) in scales.items()
        }
        notes = list(stands.notes)
        for each in made.values():
            notes += [] if isinstance(each, str) else [note for note in each.notes if note not in notes]
        measured = any(point.concurrency == concurrency for point in stands.curve)
        return Predictions(config, concurrency, isl, osl, stands.klass, figures, tuple(notes), measured)

    def rank(
        self,
        configs: Sequence[ConfigFacts],
        concurrency: int,
        isl: int,
        osl: int,
        metric: str = TOTAL_PER_GPU,
    ) -> list[Ranked]:
        """Configurations by a metric, the best first, those of which nothing can be said last. Only the order and the bands
        are stated: configurations of class none have no figure."""
        found = []
        for config in configs:
            figures = self.predict(config, concurrency, isl, osl)
            one = figures[metric]
            known = one.low is not None and one.high is not None
            middle = math.log(one.low * one.high) if one.low and one.high else 0.0
            better = middle if metric in {TPOT, TTFT, E2EL} else -middle
            found.append((not known, better, config, figures.klass, one))
        found.sort(key=lambda each: each[:2])
        return [
            Ranked(config, place, len(found), klass, one.low, one.high)
            for place, (_, _, config, klass, one) in enumerate(found, 1)
        ]

    def step_times(
        self, config: ConfigFacts, isl: int | None = None, osl: int | None = None
    ) -> PhysicalFit | str:
        """Step and prefill times of a deployment by the physical form, fitted to its own points (those at the asked lengths
        where there are some); otherwise the message key of the reason."""
        own: Sequence[FitPoint] = self._own.get(config.key, ())
        if not own:
            return (
                "predict.fit.unknown_model"
                if config.model not in self._models
                else "predict.fit.no_points_here"
            )
        if isl and osl:
            stands = standing(own, config, own[0].concurrency, isl, osl)
            own = [p for p in own if (p.facts.build or f"run:{p.run}") == stands.build] or own
        prior = {
            q: tuple(map(float, level.coefficients)) for q in ("tpot", "ttft") if (level := self.level(q))
        }
        return physical_fit(own, config, prior)

    def standing(self, asked: Question) -> Standing:
        """Which points speak for it."""
        own = self._own.get(asked.config.key, ())
        return standing(own, asked.config, asked.concurrency, asked.isl, asked.osl)

    def standing_without(self, asked: Question, ref: str) -> Standing:
        """As if one point had never been measured."""
        own = [point for point in self._own.get(asked.config.key, ()) if point.ref != ref]
        return standing(own, asked.config, asked.concurrency, asked.isl, asked.osl)

    def estimate(
        self, quantity: Quantity, asked: Question, stands: Standing, left_out: str | None = None
    ) -> Estimate | str:
        """A quantity, or the message key of the reason why nothing can be said. With `left_out` bends are those without the
        point of this ref (which `stands` lacks as well)."""
        if not self.points:
            return "predict.fit.no_points"
        if not stands.own and asked.config.model not in self._models:
            return "predict.fit.unknown_model"
        notes: Notes = ()
        if stands.klass == "interpolated":
            knots, notes = believed_knots(stands.curve, quantity, self.belief(quantity))
            below = [knot for knot in knots if knot.concurrency <= asked.concurrency]
            above = [knot for knot in knots if knot.concurrency >= asked.concurrency]
            if below and above:
                return self._between(quantity, asked, stands, (below[-1], above[0]), notes, left_out)
        return self._elsewhere(quantity, asked, stands, notes)

    def bend(self, quantity: Quantity) -> BendModel:
        """Bends of a quantity, made when first asked for."""
        if quantity not in self._bends:
            self._bends[quantity] = BendModel(
                list(self.curves.values()), quantity, self._bend_noise.get(quantity)
            )
        return self._bends[quantity]

    def level(self, quantity: Quantity) -> LevelModel | None:
        """Levels of a quantity, made when first asked for; None where no point has it."""
        if quantity not in self._levels:
            some = self._level_points(quantity)
            alike = len(some) == len(self._ground[0]) and some == self._ground[0]
            ground = self._ground[1] if alike else None
            state = self._states.get(quantity)
            self._levels[quantity] = LevelModel(some, quantity, ground, state) if some else None
        return self._levels[quantity]

    def belief(self, quantity: Quantity) -> Mapping[str, float]:
        """How far each point is believed, by ref: below 1 where it contradicts all that is alike."""
        if quantity not in self._beliefs:
            state = self._states.get(quantity)
            if state is not None:
                refs = [point.ref for point in self._level_points(quantity)]
                noise: Sequence[float] = state.noise
            else:
                model = self.level(quantity)
                refs = [point.ref for point in model.points] if model else []
                noise = list(map(float, model.kriging.noise)) if model else []
            beliefs = [(NOISE[quantity] / each) ** 2 for each in noise]
            self._beliefs[quantity] = dict(zip(refs, beliefs, strict=False))
        return self._beliefs[quantity]

    def _level_points(self, quantity: Quantity) -> list[FitPoint]:
        return spread_points([point for point in self.points if quantity in point.values])

    @cached_property
    def _ground(self) -> tuple[list[FitPoint], Ground]:
        """The points that have all quantities (most do) and their covariance, made once."""
        some = spread_points([point for point in self.points if "tpot" in point.values])
        return some, level_ground(some)

    def score_parts(self) -> Iterator[tuple[int, int]]:
        """Make all held-out residuals part by part: (parts done, parts in all), first (0, all)."""
        parts = [(quantity, name) for quantity in QUANTITIES for name in SCORE_CLASSES]
        for done, (quantity, name) in enumerate(parts):
            yield done, len(parts)
            self.held(quantity, name)
        yield len(parts), len(parts)

    @property
    def scores(self) -> dict[tuple[Quantity, ScoreClass], tuple[Held, ...]]:
        """All held-out residuals, made where nobody asked for them yet."""
        for quantity in QUANTITIES:
            for name in SCORE_CLASSES:
                self.held(quantity, name)
        return dict(self._scores)

    def held(self, quantity: Quantity, name: ScoreClass) -> tuple[Held, ...]:
        """Held-out residuals of one class, made when first asked for."""
        if (quantity, name) not in self._scores:
            self._score(quantity, name)
        return self._scores.get((quantity, name), ())

    def _reach(self, quantity: Quantity, name: ScoreClass) -> float | None:
        """How many stated spreads an interval of a class reaches; None with too few residuals."""
        if (quantity, name) not in self._reaches:
            held = self.held(quantity, name)
            scores = [abs(each.off) / each.spread for each in held]
            groups = [each.group for each in held] if name in WHOLE_DEPLOYMENTS else None
            self._reaches[quantity, name] = conformal_quantile(scores, LEVEL, groups)
        return self._reaches[quantity, name]

    def _score(self, quantity: Quantity, name: ScoreClass) -> None:
        curves, bends = list(self.curves.values()), self._bends_of(quantity)
        some: Sequence[Held] = ()
        if name == "interpolated":
            some = interpolated(curves, quantity, bends)
        elif name == "other_build":
            some = other_build(curves, quantity, bends)
        elif (model := self.level(quantity)) is not None:
            if name == "extrapolated_concurrency":
                some = extrapolated(curves, quantity, bends, model)
            else:
                some = level_residuals(model, name)
        self._scores[quantity, name] = tuple(some)

    def _bends_of(self, quantity: Quantity) -> BendModel | None:
        """None for TTFT, whose curves bend in no way that is learnt."""
        return None if quantity == "ttft" else self.bend(quantity)

    def _between(  # noqa: PLR0917
        self,
        quantity: Quantity,
        asked: Question,
        stands: Standing,
        knots: tuple[Knot, Knot],
        notes: Notes,
        left_out: str | None,
    ) -> Estimate:
        at, shape, bends = asked.concurrency, shape_of(asked.isl, asked.osl), self._bends_of(quantity)
        low, high = knots
        value = held_by(low, high, at, quantity, bends, asked.config, shape, left_out)
        if low.concurrency < high.concurrency:
            notes = (*notes, *queue_note(low, high, quantity))
        if not stands.exact:
            return Estimate(quantity, "interpolated", value, 1.0, "other_build", notes)
        spread = 1.0 if bends is None else KNOT_NOISE
        if bends is not None and low.concurrency < high.concurrency:
            bend, doubt = bends.guess(asked.config, shape, at)
            spread = spread_between(slope(low, at, high, bend, quantity), doubt)
        return Estimate(quantity, "interpolated", value, spread, "interpolated", notes)

    def _elsewhere(
        self, quantity: Quantity, asked: Question, stands: Standing, notes: Notes
    ) -> Estimate | str:
        model = self.level(quantity)
        if model is None:
            return "predict.fit.no_values"
        value, spread = model.guess(place_asked(asked, stands))
        knots = knots_of(stands.curve, quantity)
        if stands.klass == "extrapolated_concurrency" and stands.exact and len(knots) > 1:
            edge = knots[-1] if asked.concurrency > knots[-1].concurrency else knots[0]
            bends = self._bends_of(quantity)
            if bends is not None and edge is knots[-1]:
                at = middle_load(edge, asked.concurrency)
                bend, _ = bends.guess(asked.config, shape_of(asked.isl, asked.osl), at)
                value = both(value, beyond(knots[-2], edge, asked.concurrency, bend, quantity))
            spread = spread_beyond(edge, asked.concurrency)
            return Estimate(quantity, stands.klass, value, spread, "extrapolated_concurrency", notes)
        return Estimate(quantity, stands.klass, value, spread, self._scored_as(asked, stands), notes)

    def _scored_as(self, asked: Question, stands: Standing) -> ScoreClass:
        """Which held-out figures a level resembles."""
        if stands.klass == "none":
            kind = asked.config.hardware, asked.config.engine
            return "none_deployment" if kind in self._kinds else "none_hardware"
        if stands.klass == "other_shape":
            return "other_shape_anchored" if stands.curve else "other_shape"
        along = stands.curve and all(point.concurrency != asked.concurrency for point in stands.curve)
        return "one_anchor_load" if along else "one_anchor"

    def _figure(
        self, metric: str, klass: PredictionClass, made: Estimate | str, scale: float | None, inverse: bool
    ) -> Predicted:
        if isinstance(made, str) or scale is None:
            silent = isinstance(made, str) and not (scale is None and made == "predict.fit.no_values")
            reason = made if silent and isinstance(made, str) else "predict.fit.no_gpus"
            return Predicted(metric, klass, None, None, None, LEVEL, 0, reason)
        held = self.held(made.quantity, made.scored)
        reach = self._reach(made.quantity, made.scored)
        value = scale / made.value if inverse else scale * made.value
        low = high = None
        if reach is not None:
            factor = math.exp(min(max(reach * made.spread, LEAST_REACH), 50.0))
            low, high = value / factor, value * factor
        if klass == "none":
            reason = "predict.fit.none" if reach is not None else "predict.fit.none_unknown"
            return Predicted(metric, klass, None, low, high, LEVEL, len(held), reason)
        return Predicted(
            metric,
            klass,
            value,
            low,
            high,
            LEVEL,
            len(held),
            None if reach is not None else "predict.fit.few_residuals",
        )


def question(config: ConfigFacts, concurrency: int, isl: int, osl: int) -> Question:
    """The question, or a ServemarkError (exit code 2) for a load that cannot be."""
    for name, number, most in (
        ("concurrency", concurrency, MOST_CONCURRENCY),
        ("isl", isl, MOST_LENGTH),
        ("osl", osl, MOST_LENGTH),
    ):
        if not 1 <= number <= most:
            raise input_error("predict.fit.bad_load", name=name, given=number, most=most)
    return Question(config, concurrency, isl, osl)


def place_asked(asked: Question, stands: Standing) -> Place:
    """Where the level model is asked: on the chosen build, and on its curve where there is one."""
    config = asked.config
    curve = f"{config.key}/{stands.build}/{asked.isl}/{asked.osl}"
    gpus = config.gpus or next((p.gpus for p in stands.own if p.gpus), None)
    return Place(config, stands.build, curve, asked.concurrency, asked.isl, asked.osl, gpus)


def _output_share(stands: Standing, asked: Question) -> float:
    """Output tokens over all tokens: as measured at the nearest load of the curve, else as asked."""
    near = [point for point in stands.curve if point.output_share]
    if not near:
        return asked.osl / (asked.isl + asked.osl)
    nearest = min(near, key=lambda p: abs(math.log(p.concurrency / asked.concurrency)))
    return nearest.output_share or asked.osl / (asked.isl + asked.osl)
