"""Non-negative least squares on relative error, and the physical form of a deployment's speed that it fits.

    TPOT = a + m * (1 - (1 - k/E)^B) + B * (b + c*ctx + p*ISL/OSL)        seconds, ctx = ISL + OSL/2 tokens
    TTFT = t0 + ISL * (p1 + p2*B) + t1*B                                 seconds

B is the concurrency, E the routed experts and k of them a token's own. `a` is overhead with the weights that every step
reads, `m` the weights of all experts (a step reads the share that its tokens reach), `c` reading KV, `p` the prefill that
each decode step carries for the prompts that arrive meanwhile. No part can be negative: a negative one would buy a better
fit with a figure that means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

TPOT_TERMS = ("a", "m", "b", "c", "p")
TTFT_TERMS = ("t0", "p1", "p2", "t1")
PRIOR_WEIGHT = 0.05
"""What a prior of a term counts beside a point: enough to choose between forms that fit equally well, never more."""
HUBER = 1.5
"""Robust standard deviations from which a point loses weight."""
LEAST_SCALE = 0.005
"""Relative errors below this are noise of a repeat: nothing within it is called an outlier."""
_ROUNDS = 12
_TOLERANCE = 1e-10
_MAD_TO_SD = 1.4826


def nnls(a: Floats, b: Floats) -> Floats:
    """x >= 0 with the least |a x - b| (Lawson and Hanson 1974, chapter 23: an active set).

    `a` is (rows, terms), `b` (rows,). Columns of nothing but 0 get 0.
    """
    terms = a.shape[1]
    size = np.sqrt((a * a).sum(axis=0))
    size[size == 0] = 1.0
    scaled = a / size
    x = np.zeros(terms)
    passive = np.zeros(terms, dtype=bool)
    tolerance = _TOLERANCE * (1.0 + float(np.abs(b).max(initial=0.0)))
    for _ in range(3 * terms + 10):
        gradient = scaled.T @ (b - scaled @ x)
        gradient[passive] = -np.inf
        if gradient.max(initial=-np.inf) <= tolerance:
            break
        passive[int(np.argmax(gradient))] = True
        x = _inner(scaled, b, x, passive)
    return np.asarray(x / size)


def _inner(a: Floats, b: Floats, x: Floats, passive: NDArray[np.bool_]) -> Floats:
    """Least squares over the passive terms, stepping back to the border as often as one of them turns negative."""
    while passive.any():
        trial = np.zeros_like(x)
        trial[passive] = np.linalg.lstsq(a[:, passive], b, rcond=None)[0]
        if trial[passive].min() > 0:
            return trial
        leaving = passive & (trial <= 0)
        gap = x[leaving] - trial[leaving]
        step = float(np.min(np.where(gap > 0, x[leaving] / np.where(gap > 0, gap, 1.0), 0.0)))
        x = x + step * (trial - x)
        passive &= x > 1e-14
        x[~passive] = 0.0
    return np.zeros_like(x)


def relative_nnls(a: Floats, y: Floats, prior: Floats | None = None) -> tuple[Floats, Floats]:
    """(x, weights) with x >= 0 and the least Huber loss of (a x - y) / y.

    `prior` are values that terms are drawn to, each by `PRIOR_WEIGHT` of a point's weight, relative to itself; a term whose
    prior is 0 is not drawn. `weights` (0..1] say how far each point was believed. `y` must be positive.
    """
    rows = a / y[:, None]
    ones = np.ones(len(y))
    weights = ones.copy()
    extra, target = _prior_rows(a.shape[1], prior)
    x = np.zeros(a.shape[1])
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)
        x = nnls(np.vstack([rows * root[:, None], extra]), np.concatenate([root, target]))
        errors = np.abs(rows @ x - 1.0)
        scale = max(_MAD_TO_SD * float(np.median(errors)), LEAST_SCALE)
        renewed = np.minimum(1.0, HUBER * scale / np.maximum(errors, 1e-300))
        if np.allclose(renewed, weights, atol=1e-3):
            break
        weights = renewed
    return x, weights


def _prior_rows(terms: int, prior: Floats | None) -> tuple[Floats, Floats]:
    """Rows that say `x / prior = 1`."""
    if prior is None:
        return np.zeros((0, terms)), np.zeros(0)
    known = np.flatnonzero(prior > 0)
    rows = np.zeros((len(known), terms))
    rows[np.arange(len(known)), known] = PRIOR_WEIGHT / prior[known]
    return rows, np.full(len(known), PRIOR_WEIGHT)


def coverage(batch: Floats, experts: int | None, top_k: int | None) -> Floats:
    """Share of a model's routed experts that `batch` tokens reach if each draws its own: 1 - (1 - k/E)^batch; 0 for a dense
    model and where E and k are not known."""
    if not experts or not top_k or top_k >= experts:
        return np.zeros_like(batch)
    return np.asarray(1.0 - (1.0 - top_k / experts) ** batch)


def tpot_terms(batch: Floats, isl: Floats, osl: Floats, experts: int | None, top_k: int | None) -> Floats:
    """(points, 5): what each of `TPOT_TERMS` is multiplied by."""
    context = isl + osl / 2
    share = coverage(batch, experts, top_k)
    return np.stack([np.ones_like(batch), share, batch, batch * context, batch * isl / osl], axis=1)


def ttft_terms(batch: Floats, isl: Floats) -> Floats:
    """(points, 4): what each of `TTFT_TERMS` is multiplied by."""
    return np.stack([np.ones_like(batch), isl, isl * batch, batch], axis=1)


@dataclass(frozen=True, slots=True)
class PhysicalFit:
    """Coefficients of one deployment in seconds: `tpot` by `TPOT_TERMS`, `ttft` by `TTFT_TERMS` (None without any measured
    TTFT). Implements `StepTimes`. `acceptance` is the acceptance length: tokens that a stream gains in a step."""

    tpot: tuple[float, ...]
    ttft: tuple[float, ...] | None
    experts: int | None
    top_k: int | None
    acceptance: float
    points: int
    median_error: float
    """Median relative error of TPOT over the points that it was fitted to: not a forecast's error."""

    def step_s(self, decoding: int, context_tokens: float, prefill_tokens: float) -> float:
        """See `StepTimes`; `prefill_tokens` stands where B * ISL/OSL stands in the form: prompt tokens a step carries. These
        coefficients were fitted to (B - 1) * ISL/OSL, since a stream's own prompt is none of its steps'."""
        a, m, b, c, p = self.tpot
        batch = np.asarray([float(decoding)])
        reach = float(coverage(batch, self.experts, self.top_k)[0])
        once = a + m * reach + decoding * (b + c * context_tokens) + p * prefill_tokens
        return once * self.acceptance

    def prefill_s(self, new_tokens: int, cached_tokens: int, decoding: int) -> float:
        """See `StepTimes`: cached tokens cost nothing here, since no published row tells what they cost."""
        t0, p1, p2, t1 = self.ttft or (0.0, self.tpot[4], 0.0, 0.0)
        return t0 + new_tokens * (p1 + p2 * decoding) + t1 * decoding

    def tokens_per_step(self) -> float:
        """See `StepTimes`."""
        return self.acceptance
