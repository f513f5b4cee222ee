"""Kriging over points that belong to groups: what a point of a known hardware, engine, deployment, ... most likely is.

A value is a sum of unknown parts, one for each group that a point belongs to (its hardware, its engine, its
deployment, its own curve), and each part may be a constant and a smooth function of the coordinates. All parts are
normal with stated standard deviations, so the best guess of a new point and its spread are linear algebra (a Gaussian
process with additive kernel, as in Rasmussen and Williams 2006, chapters 2 and 5.4.2). Points that contradict their
neighbours are given more noise, not dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Whole = NDArray[np.intp]

OUTLIER = 2.5
"""Standard deviations of a left-out residual from which a point's noise grows, with the fourth power."""
_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Part:
    """What members of one group share: `constant` and `varying` are standard deviations of the value; `lengths` how far,
    in each coordinate, the varying part stays alike. `group` "" is all points."""

    group: str
    constant: float
    varying: float = 0.0
    lengths: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Sites:
    """Where values lie: `coordinates` (points, dimensions) and, by group, each point's membership."""

    coordinates: Floats
    members: Mapping[str, Sequence[str]]

    def __len__(self) -> int:
        return len(self.coordinates)


def covariance(parts: Sequence[Part], one: Sites, other: Sites) -> Floats:
    """(points of one, points of other): covariance of values."""
    total = np.zeros((len(one), len(other)))
    smooth: dict[tuple[float, ...], Floats] = {}
    for part in parts:
        alike = _alike(one, other, part.group)
        total += part.constant**2 * alike
        if not part.varying:
            continue
        if part.lengths not in smooth:
            gap = np.zeros_like(total)
            for place, length in enumerate(part.lengths):
                left, right = one.coordinates[:, place] / length, other.coordinates[:, place] / length
                gap += (left[:, None] - right[None, :]) ** 2
            smooth[part.lengths] = np.exp(-0.5 * gap)
        total += part.varying**2 * smooth[part.lengths] * alike
    return total


def _alike(one: Sites, other: Sites, group: str) -> Floats:
    if not group:
        return np.ones((len(one), len(other)))
    codes: dict[str, int] = {}
    left = np.asarray([codes.setdefault(name, len(codes)) for name in one.members[group]], dtype=np.intp)
    right = np.asarray([codes.setdefault(name, len(codes)) for name in other.members[group]], dtype=np.intp)
    return np.asarray((left[:, None] == right[None, :]).astype(np.float64))


class Kriging:
    """Values at sites, ready to be asked. `noise` (points,) are the standard deviations after doubt; `belief` is the
    share of its first weight that each point kept."""

    def __init__(  # noqa: PLR0917
        self,
        parts: Sequence[Part],
        sites: Sites,
        values: Floats,
        noise: Floats,
        mean: float,
        base: Floats | None = None,
        known: Floats | None = None,
    ) -> None:
        """Fits at once: time grows with the cube of the points. `mean` is what a point far from all others has; `base` the
        sites' own covariance where the caller has it already; `known` the noise after doubt of an earlier fit."""
        self.parts = tuple(parts)
        self.sites = sites
        self.mean = mean
        self._values = values - mean
        self._variance = sum(part.constant**2 + part.varying**2 for part in parts)
        if base is None:
            base = covariance(parts, sites, sites)
        self.noise = noise.copy() if known is None else known
        for again in range(_ROUNDS + 1):
            self._inverse = _inverse(base, self.noise)
            self._solved = self._inverse @ self._values
            if again == _ROUNDS or known is not None or not len(values):
                break
            diagonal = np.diag(self._inverse)
            far = np.abs(self._solved / diagonal) * np.sqrt(diagonal) / OUTLIER
            self.noise = noise * np.maximum(1.0, far) ** 2
        self.belief = (noise / self.noise) ** 2

    def guess(self, sites: Sites) -> tuple[Floats, Floats]:
        """(values, standard deviations) at new sites, noise of a measurement left out."""
        cross = covariance(self.parts, sites, self.sites)
        spread = self._variance - np.einsum("ij,jk,ik->i", cross, self._inverse, cross, optimize=True)
        return self.mean + cross @ self._solved, np.sqrt(np.maximum(spread, 1e-12))

    def residuals(self) -> Floats:
        """(points,): value - guess without that point."""
        return np.asarray(self._solved / np.diag(self._inverse))

    def shares(self, site: Sites) -> Floats:
        """(points,): what a unit change of each value would change the guess at one site."""
        return np.asarray((covariance(self.parts, site, self.sites) @ self._inverse)[0])

    def left_out(self, block: Whole) -> tuple[Floats, Floats]:
        """(value - guess without the block, standard deviation of the guess) of each point of a block that is left out as a
        whole (Rasmussen and Williams 2006, equation 5.12, for several points)."""
        inner = np.linalg.inv(self._inverse[np.ix_(block, block)])
        residual = inner @ self._solved[block]
        spread = np.diag(inner) - self.noise[block] ** 2
        return residual, np.sqrt(np.maximum(spread, 1e-12))


def _inverse(base: Floats, noise: Floats) -> Floats:
    return np.asarray(np.linalg.inv(base + np.diag(noise**2)))
