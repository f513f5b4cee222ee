"""Measured points made ready for a fit: only whole ones that gates let pass, each with the quantities that are modelled.

Quantities are seconds of one output token, so that deployments and lengths compare: `tpot` as measured, `e2el` the request's
time over its output tokens, and `service` the time that the closed loop gives each request, from the measured throughput:

    service = C * (ISL + OSL) / (total tokens/s/GPU * GPUs * OSL)            (Little's law: C = throughput * time)

`ttft` is seconds of one request. Throughput is modelled by `service` itself rather than through TTFT and TPOT: the identity
needs means of both and the share of warm-up, while a curve has its own throughput measured.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from servemark.analysis.eligible import eligibility, without_copies
from servemark.analysis.measured import Measured
from servemark.predict.speed_types import (
    E2EL,
    OUTPUT_PER_GPU,
    TOTAL_PER_GPU,
    TPOT,
    TTFT,
    ConfigFacts,
    facts_of,
)

Quantity = Literal["tpot", "service", "e2el", "ttft"]
QUANTITIES: tuple[Quantity, ...] = ("tpot", "service", "e2el", "ttft")
FASTEST_S, SLOWEST_S = 1e-7, 1e5
"""A latency outside was not measured: 0 is the mark of a client that got no tokens."""
CONTRADICTION = 1.5
"""Repeats of one load within one build that differ by more than this factor contradict each other."""


@dataclass(frozen=True, slots=True)
class FitPoint:
    """One load of one deployment. `values` by quantity; `output_share` is output tokens over all tokens as measured."""

    ref: str
    facts: ConfigFacts
    run: str
    at_utc: str
    concurrency: int
    isl: int
    osl: int
    values: dict[Quantity, float]
    gpus: int | None = None
    output_share: float | None = None
    means: dict[Quantity, float] = field(default_factory=dict)
    """`tpot` and `ttft` as means over requests, where the source states them: only means add up to a step's work."""

    @property
    def curve(self) -> str:
        """Points that may be joined: one deployment, one build (one run where the build is not known), one shape."""
        build = self.facts.build or f"run:{self.run}"
        return f"{self.facts.key}/{build}/{self.isl}/{self.osl}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Points for a fit, and by message key how many were left out."""

    points: tuple[FitPoint, ...]
    left_out: dict[str, int] = field(default_factory=dict)


def choose(measured: Iterable[Measured]) -> Chosen:
    """The points that a fit may rest on, the newest first. Never raises: what is unusable is counted with its reason."""
    offered = without_copies(measured)
    doubts = eligibility(offered)
    left: Counter[str] = Counter()
    kept = []
    for point in offered:
        doubt = doubts[point.ref]
        made = f"front.doubt.{doubt.kind}.short" if doubt is not None else fit_point(point)
        if isinstance(made, str):
            left[made] += 1
        else:
            kept.append(made)
    kept.sort(key=lambda p: (p.at_utc, p.ref), reverse=True)
    return Chosen(tuple(kept), dict(left))


def fit_point(point: Measured) -> FitPoint | str:
    """The point, or the message key of the reason why no fit may use it."""
    scenario = point.identity.scenario
    if point.verdict not in {"valid", "warnings"}:
        return "predict.fit.left.verdict"
    if not point.concurrency or point.concurrency < 1:
        return "predict.fit.left.open_loop"
    if not scenario.isl or not scenario.osl:
        return "predict.fit.left.lengths"
    values = _values(point, point.concurrency, scenario.isl, scenario.osl)
    if isinstance(values, str):
        return values
    total, output = point.value(TOTAL_PER_GPU), point.value(OUTPUT_PER_GPU)
    return FitPoint(
        ref=point.ref,
        facts=facts_of(point.identity, point.gpus_deployed),
        run=f"{point.source}/{point.run}",
        at_utc=point.at_utc,
        concurrency=point.concurrency,
        isl=scenario.isl,
        osl=scenario.osl,
        values=values,
        gpus=point.gpus_deployed,
        output_share=output / total if output and total and 0 < output < total else None,
        means=_means(point),
    )


def _means(point: Measured) -> dict[Quantity, float]:
    found: dict[Quantity, float | None] = {
        "tpot": point.value(TPOT.replace(".p50", ".mean")),
        "ttft": point.value(TTFT.replace(".p50", ".mean")),
    }
    return {name: v for name, v in found.items() if v is not None and FASTEST_S < v < SLOWEST_S}


def _values(point: Measured, concurrency: int, isl: int, osl: int) -> dict[Quantity, float] | str:
    tpot, ttft, e2el = (_either(point, name) for name in (TPOT, TTFT, E2EL))
    total = point.value(TOTAL_PER_GPU)
    offered: dict[Quantity, float | None] = {
        "tpot": tpot,
        "ttft": ttft,
        "e2el": None if e2el is None else e2el / osl,
        "service": concurrency * (isl + osl) / (total * point.gpus_deployed * osl)
        if total and total > 0 and point.gpus_deployed
        else None,
    }
    stated = {name: value for name, value in offered.items() if value is not None}
    good = {name: v for name, v in stated.items() if math.isfinite(v) and FASTEST_S < v < SLOWEST_S}
    if "tpot" not in good:
        return "predict.fit.left.zero" if "tpot" in stated else "predict.fit.left.no_tpot"
    return good


def _either(point: Measured, address: str) -> float | None:
    """The median, or the mean where a source states no median."""
    value = point.value(address)
    return point.value(address.replace(".p50", ".mean")) if value is None else value


def curves_of(points: Sequence[FitPoint]) -> dict[str, list[FitPoint]]:
    """Points by curve, those of the newest run first."""
    found: dict[str, list[FitPoint]] = defaultdict(list)
    for point in points:
        found[point.curve].append(point)
    return dict(found)
