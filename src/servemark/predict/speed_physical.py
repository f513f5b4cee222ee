"""The physical form of one deployment, fitted to its own points: what a simulation of its steps is driven by.

With a handful of points several forms fit equally well; then each coefficient is drawn to what the form over all points has,
scaled to this deployment, by a small weight (`fit.PRIOR_WEIGHT`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from servemark.predict.fit import PhysicalFit, relative_nnls, tpot_terms, ttft_terms
from servemark.predict.speed_points import FitPoint
from servemark.predict.speed_types import ConfigFacts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def decoding_batch(point: FitPoint) -> float:
    """Streams that decode in a stream's steps, on average, itself included: of the other C - 1 sessions each decodes for the
    share of its time that Little's law gives, seconds a token / seconds that the closed loop gives each token (C / output
    tokens a second). A session that thinks and a request that waits for its first token decode nothing. Where no
    throughput was measured the requests are taken to follow each other without a pause."""
    tpot, service = point.means.get("tpot", point.values["tpot"]), point.values.get("service")
    if service is None:
        ttft = point.means.get("ttft", point.values.get("ttft", 0.0))
        service = tpot + ttft / point.osl
    return 1.0 + (point.concurrency - 1) * min(1.0, tpot / service)


def physical_fit(
    points: Sequence[FitPoint], config: ConfigFacts, prior: Mapping[str, tuple[float, ...]]
) -> PhysicalFit:
    """Fits `points` (at least one, all with TPOT), their means where they have them: only means add up to a step's work.
    `prior` has coefficients by `tpot` and `ttft` of the form over all points, in any scale. The acceptance length is the
    configuration's where it is known and otherwise 1: steps are then those of one accepted token."""
    batch = np.asarray([decoding_batch(point) for point in points])
    isl = np.asarray([float(point.isl) for point in points])
    osl = np.asarray([float(point.osl) for point in points])
    tpot = np.asarray([point.means.get("tpot", point.values["tpot"]) for point in points])
    terms = tpot_terms(batch, isl, osl, config.experts, config.top_k)
    terms[:, -1] = (
        (batch - 1.0) * isl / osl
    )  # a stream's steps carry the prompts of the others, its own was before
    found, weights = relative_nnls(terms, tpot, _scaled(prior.get("tpot"), terms, tpot))
    timed = [place for place, point in enumerate(points) if "ttft" in point.values]
    first: tuple[float, ...] | None = None
    if timed:
        at = np.asarray(timed, dtype=np.intp)
        ttft = np.asarray([p.means.get("ttft", p.values["ttft"]) for p in (points[place] for place in timed)])
        waits = ttft_terms(batch[at], isl[at])
        fitted, _ = relative_nnls(waits, ttft, _scaled(prior.get("ttft"), waits, ttft))
        first = tuple(map(float, fitted))
    errors = np.abs(terms @ found / tpot - 1.0)
    return PhysicalFit(
        tpot=tuple(map(float, found)),
        ttft=first,
        experts=config.experts,
        top_k=config.top_k,
        acceptance=config.acceptance or 1.0,
        points=len(points),
        median_error=float(np.median(errors[weights > 0])),
    )


def _scaled(prior: tuple[float, ...] | None, terms: Floats, values: Floats) -> Floats | None:
    """The prior at this deployment's level: its median ratio to the points."""
    if prior is None:
        return None
    form = terms @ np.asarray(prior)
    if not np.all(form > 0):
        return None
    return np.asarray(prior) * float(np.exp(np.median(np.log(values / form))))
