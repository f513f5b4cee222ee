"""How much a figure varies when nothing was changed: from repeats, on a log scale, never from silence.

Repeats are points of one source with equal configuration at equal load. Where the image or the recipe is stated, or the
repeats lie in one run (`RUN#k`), their spread about their mean is noise: variances are pooled over groups with their
degrees of freedom, s² = Σ (n-1) s_g² / Σ (n-1). Where different runs state neither image nor recipe, some of the steps
between them are real changes; noise is then the middle of the steps between neighbours in time,
s = median(|step| / √2) / 0.6745 (the moving range of an individuals chart, with the median for its mean), with 0.37
degrees of freedom a step (the efficiency of such a median: Rousseeuw and Croux 1993). Few degrees of freedom are paid
for with Student's t wherever a spread becomes a band or a verdict.

A spread is asked for in this order: the point's own repeats, steadied by those of its scenario (`PRIOR_DF`); those of its
scenario type in its source; those of its scenario type in any source; an assumption, marked as one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import fmean, median
from typing import Literal

from servemark.analysis.format import significant
from servemark.analysis.measured import Measured
from servemark.analysis.student import t_quantile
from servemark.base.messages import text
from servemark.metrics.address import Address, parse
from servemark.metrics.registry import Better, Unit

Basis = Literal["own", "scenario", "any_source", "assumed"]
Method = Literal["spread", "steps", "assumed"]

LEVEL = 0.95
"""Share of repeats that a band holds."""
OWN_DF = 2.0
"""Degrees of freedom from which a point's own repeats are heard: three repeats in one group."""
ALONE_DF = 4.0
"""Degrees of freedom from which they may stand alone, where nothing else is known: five repeats."""
OWN_STEPS = 4
PRIOR_DF = 6.0
"""Degrees of freedom that the scenario's repeats lend to a point's own, so that three that agree by chance do not promise
that there is no noise: s² = (d s² + d0 s0²) / (d + d0), the moderated variance of Smyth (2004) with a fixed d0, kept
small since groups differ widely."""
POOLED_DF = 3.0
POOLED_STEPS = 10
STEP_DF = 0.37
"""Degrees of freedom that one step gives (module's docstring)."""
NORMAL_MIDDLE = 0.6745
"""Half of all normal values lie within this many standard deviations."""
LEAST = 0.0005
"""No spread is taken for less: figures are rounded when they are written down."""
ASSUMED: Mapping[str, float] = {"fixed-seq-len": 0.03, "random": 0.03}
"""Relative standard deviation that is assumed of a scenario type without repeats. Groups of fixed-length repeats vary by
0.1-3 %: the upper end is taken."""
ASSUMED_ELSE = 0.15
"""Of agentic, trace and unknown workloads: agentic points with equal keys vary by 15 % (the median) over days."""
_COUNTED = {Unit.COUNT, Unit.REQUESTS, Unit.SESSIONS, Unit.GPUS, Unit.SHARE}
"""Units of counts and shares, whose error is that of counting: they have no relative spread."""


@dataclass(frozen=True, slots=True)
class Noise:
    """`rel_sd`: standard deviation of the natural logarithm, which is the relative one where it is small. `repeats` and
    `groups` that it comes from; `df` its degrees of freedom (infinite for an assumption); `lowest` and `highest` what
    single groups show where several were pooled."""

    rel_sd: float
    repeats: int
    groups: int
    df: float
    basis: Basis
    method: Method
    scenario: str
    lowest: float | None = None
    highest: float | None = None
    steadied: bool = False
    """Whether the scenario's repeats were weighed in with the point's own (PRIOR_DF)."""

    def half_width(self, level: float = LEVEL) -> float:
        """Half the width of a band of one measurement, as a difference of logarithms."""
        return t_quantile(1 - level, self.df) * self.rel_sd

    def text(self, lang: str | None = None) -> str:
        """Where it comes from, in a sentence."""
        shown: dict[str, object] = {
            "percent": significant(100 * self.rel_sd, 2),
            "repeats": self.repeats,
            "groups": self.groups,
            "scenario": self.scenario,
        }
        key = "own_steadied" if self.steadied else self.basis
        said = text(f"noise.basis.{key}", lang, **shown)
        if self.method == "steps":
            said = text("noise.steps", lang, said=said)
        if self.lowest is not None and self.highest is not None and self.groups > 1:
            low, high = significant(100 * self.lowest, 2), significant(100 * self.highest, 2)
            said = text("noise.range", lang, said=said, lowest=low, highest=high)
        return said


@dataclass(frozen=True, slots=True)
class _Group:
    """Repeats of one configuration at one load: within each set only noise, between neighbouring sets steps."""

    sets: tuple[tuple[Measured, ...], ...]


@dataclass(frozen=True, slots=True)
class NoiseModel:
    """Answers for any point and figure; made by `noise_model`. Spreads are worked out when first asked for."""

    _own: Mapping[Hashable, Sequence[_Group]]
    _by_source: Mapping[Hashable, Sequence[_Group]]
    _by_scenario: Mapping[Hashable, Sequence[_Group]]
    assumed: Mapping[str, float] = field(default_factory=lambda: ASSUMED)
    assumed_else: float = ASSUMED_ELSE
    _known: dict[Hashable, Noise | None] = field(default_factory=dict)
    _known_factors: dict[Hashable, tuple[float, float] | None] = field(default_factory=dict)
    """Of models without what each configuration shows alone."""

    def pooled(self) -> NoiseModel:
        """The same without what each configuration shows alone: one spread for all points of a source and scenario, which a
        few repeats of many configurations give better than many of one."""
        return replace(self, _own={}, _known={}, _known_factors={})

    def relative_sd(self, point: Measured, address: Address | str) -> Noise | None:
        """The spread of repeats of `point` in the figure `address`; None for figures that have none (counts, shares,
        scores, properties of the workload)."""
        chosen = parse(address) if isinstance(address, str) else address
        if not has_noise(chosen):
            return None
        kind, name = point.identity.scenario.type, str(chosen)
        places: tuple[tuple[Basis, Mapping[Hashable, Sequence[_Group]], Hashable], ...] = (
            ("own", self._own, (point.source, point.point_key)),
            ("scenario", self._by_source, (point.source, kind)),
            ("any_source", self._by_scenario, kind),
        )
        own: Noise | None = None
        for basis, where, key in places:
            if key not in where:
                continue
            if (basis, key, name) not in self._known:
                self._known[basis, key, name] = _pooled(where[key], chosen, basis, kind)
            found = self._known[basis, key, name]
            if found is None:
                continue
            if basis == "own":
                own = found
            else:
                return found if own is None else _steadied(own, found)
        if own is not None and own.df >= ALONE_DF:
            return own
        rel_sd = self.assumed.get(kind, self.assumed_else)
        return Noise(rel_sd, 0, 0, math.inf, "assumed", "assumed", kind)

    def band(self, point: Measured, address: Address | str, value: float) -> tuple[float, float] | None:
        """Where the figure's true value lies with 95 % confidence, from this one measurement; None where the figure has
        no noise or `value` is not positive."""
        if not value > 0 or not math.isfinite(value):
            return None
        key = (point.source, point.identity.scenario.type, str(address))
        if self._own:  # a spread of this point's own
            factors = self._factors(point, address)
        elif key in self._known_factors:
            factors = self._known_factors[key]
        else:
            factors = self._known_factors[key] = self._factors(point, address)
        return None if factors is None else (value * factors[0], value * factors[1])

    def _factors(self, point: Measured, address: Address | str) -> tuple[float, float] | None:
        """What a value is to be multiplied with for the ends of its band."""
        noise = self.relative_sd(point, address)
        if noise is None:
            return None
        half = min(noise.half_width(), math.log(1e6))
        return math.exp(-half), math.exp(half)

    def apart(self, *sides: Sequence[Measured]) -> NoiseModel:
        """The model for comparing these sides: their points are repeats within their side alone, however often the same
        configuration stands on another, and they count once."""
        mine = {point.ref for side in sides for point in side}
        known = (
            point
            for groups in self._by_source.values()
            for group in groups
            for some in group.sets
            for point in some
        )
        return noise_model((point for point in known if point.ref not in mine), *sides)


def has_noise(address: Address) -> bool:
    """Whether repeats of a figure differ by a factor: latencies and rates, not counts, shares, scores or the workload's
    own properties."""
    metric = address.metric
    return (
        metric.better is not Better.NEITHER
        and metric.unit not in _COUNTED
        and address.statistic not in {"n", "std"}
    )


def noise_model(points: Iterable[Measured], *more: Iterable[Measured]) -> NoiseModel:
    """The noise that repeats among `points` show. Each further argument is a set of its own: points of one configuration
    in different sets are not held for repeats of each other (two sides that are compared)."""
    own: dict[Hashable, list[_Group]] = defaultdict(list)
    by_source: dict[Hashable, list[_Group]] = defaultdict(list)
    by_scenario: dict[Hashable, list[_Group]] = defaultdict(list)
    for some in (points, *more):
        places: dict[tuple[str, str], list[Measured]] = defaultdict(list)
        for point in some:
            if point.status == "complete" and point.verdict != "quarantined" and point.current:
                places[point.source, point.point_key].append(point)
        for place, found in places.items():
            group = _group(found) if len(found) > 1 else None
            if group is not None:
                kind = found[0].identity.scenario.type
                own[place].append(group)
                by_source[place[0], kind].append(group)
                by_scenario[kind].append(group)
    return NoiseModel(dict(own), dict(by_source), dict(by_scenario))


def _group(found: Sequence[Measured]) -> _Group | None:
    """Points of one key as repeats; None where they are one measurement, copied."""
    unlike: dict[Hashable, Measured] = {}
    for point in found:
        unlike.setdefault(frozenset(point.figures.items()), point)
    some = sorted(unlike.values(), key=lambda each: (each.at_utc, each.run, each.attempt, each.ref))
    if len(some) < 2:
        return None
    identity = some[0].identity
    if identity.image is not None or identity.recipe_fingerprint is not None:
        return _Group((tuple(some),))
    runs: dict[str, list[Measured]] = {}
    for point in some:
        runs.setdefault(point.run.partition("#")[0], []).append(point)
    return _Group(tuple(tuple(each) for each in runs.values()))


def _steadied(own: Noise, of_scenario: Noise) -> Noise:
    """A point's own spread with the scenario's weighed in; as it is where the scenario's repeats are its own."""
    if of_scenario.repeats <= own.repeats:
        return own if own.df >= ALONE_DF else of_scenario
    lent = min(PRIOR_DF, of_scenario.df)
    df = own.df + lent
    squares = own.df * own.rel_sd**2 + lent * of_scenario.rel_sd**2
    return replace(own, rel_sd=math.sqrt(squares / df), df=df, steadied=True)


def _pooled(groups: Sequence[_Group], address: Address, basis: Basis, kind: str) -> Noise | None:
    """The spread about means and the steps between runs, whichever is larger of those that rest on enough."""
    found = [_spread(groups, address, basis, kind), _steps(groups, address, basis, kind)]
    known = [each for each in found if each is not None]
    return max(known, key=lambda each: each.rel_sd, default=None)


def _spread(groups: Sequence[_Group], address: Address, basis: Basis, kind: str) -> Noise | None:
    squares, df, repeats = 0.0, 0, 0
    each_sd: list[float] = []
    for one in (some for group in groups for some in group.sets):
        logs = _logs(one, address)
        if len(logs) < 2:
            continue
        mean = fmean(logs)
        within = math.fsum((value - mean) ** 2 for value in logs)
        squares, df, repeats = squares + within, df + len(logs) - 1, repeats + len(logs)
        each_sd.append(math.sqrt(within / (len(logs) - 1)))
    if df < (OWN_DF if basis == "own" else POOLED_DF):
        return None
    sd = max(LEAST, math.sqrt(squares / df))
    return Noise(sd, repeats, len(each_sd), float(df), basis, "spread", kind, min(each_sd), max(each_sd))


def _steps(groups: Sequence[_Group], address: Address, basis: Basis, kind: str) -> Noise | None:
    steps: list[float] = []
    repeats = used = 0
    for group in groups:
        means = [fmean(logs) for some in group.sets if (logs := _logs(some, address))]
        if len(means) < 2:
            continue
        steps += [abs(after - before) / math.sqrt(2) for before, after in pairwise(means)]
        repeats, used = repeats + len(means), used + 1
    if len(steps) < (OWN_STEPS if basis == "own" else POOLED_STEPS):
        return None
    sd = max(LEAST, median(steps) / NORMAL_MIDDLE)
    return Noise(sd, repeats, used, max(1.0, STEP_DF * len(steps)), basis, "steps", kind)


def _logs(some: Iterable[Measured], address: Address) -> list[float]:
    """Natural logarithms of the figures that are there and positive."""
    values = (point.value(address) for point in some)
    return [math.log(value) for value in values if value is not None and value > 0 and math.isfinite(value)]
