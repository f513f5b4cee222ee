"""Kriging over points that belong to groups: what a point of a known hardware, engine, deployment, ... most likely is.

A value is a sum of unknown parts, one for each group that a point belongs to (its hardware, its engine, its
deployment, its own curve), and each part may be a constant and a smooth function of the coordinates. All parts are
normal with stated standard deviations, so the best guess of a new point and its spread are linear algebra (a Gaussian
process with additive kernel, as in Rasmussen and Williams 2006, chapters 2 and 5.4.2). Points that contradict their
neighbours are given more noise, not dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    _codes: dict[str, tuple[dict[str, int], Whole]] = field(default_factory=dict, compare=False)

    def coded(self, group: str) -> tuple[dict[str, int], Whole]:
        """(number of each name, each point's number), made once."""
        if group not in self._codes:
            names: dict[str, int] = {}
            numbers = [names.setdefault(name, len(names)) for name in self.members[group]]
            self._codes[group] = names, np.asarray(numbers, dtype=np.intp)
        return self._codes[group]

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
    names, right = other.coded(group)
    left = np.asarray([names.get(name, -1) for name in one.members[group]], dtype=np.intp)
    return np.asarray((left[:, None] == right[None, :]).astype(np.float64))


class Ground:
    """Covariance of sites with themselves, and its inverse for each noise: the same for all quantities measured there."""

    def __init__(self, parts: Sequence[Part], sites: Sites) -> None:
        """Time grows with the square of the sites, the first inverse with the cube."""
        self.sites = sites
        self._covariance = covariance(parts, sites, sites)
        self._inverses: dict[float, Floats] = {}

    def inverse(self, noise: float) -> Floats:
        """With the same noise at all sites."""
        if noise not in self._inverses:
            self._inverses[noise] = np.asarray(
                np.linalg.inv(self._covariance + noise**2 * np.eye(len(self.sites)))
            )
        return self._inverses[noise]

    def inverse_of(self, noise: Floats) -> Floats:
        """With each site's own noise: where most have the least, the inverse for that is corrected for the others
        (Woodbury's identity)."""
        if not len(noise):
            return np.zeros((0, 0))
        least = float(noise.min())
        raised = np.flatnonzero(noise > least)
        if least not in self._inverses or len(raised) > len(noise) // 3:
            return np.asarray(np.linalg.inv(self._covariance + np.diag(noise**2)))
        whole = self._inverses[least]
        more = np.diag(1.0 / (noise[raised] ** 2 - least**2))
        middle = np.linalg.inv(more + whole[np.ix_(raised, raised)])
        return np.asarray(whole - whole[:, raised] @ middle @ whole[raised, :])


class Kriging:
    """Values at sites, ready to be asked. `noise` (points,) are the standard deviations after doubt; `belief` is the
    share of its first weight that each point kept."""

    def __init__(  # noqa: PLR0917 - one call site of each kind
        self,
        parts: Sequence[Part],
        ground: Ground,
        values: Floats,
        noise: Floats,
        mean: float,
        known: Floats | None = None,
    ) -> None:
        """Fits at once. `mean` is what a point far from all others has; `known` the noise after doubt of an earlier fit."""
        self.parts = tuple(parts)
        self.sites = ground.sites
        self.mean = mean
        self._values = values - mean
        self._variance = sum(part.constant**2 + part.varying**2 for part in parts)
        self.noise = noise.copy() if known is None else known
        if len(noise) and known is None and float(np.ptp(noise)) == 0.0:
            ground.inverse(float(noise[0]))
        for again in range(_ROUNDS + 1):
            self._inverse = ground.inverse_of(self.noise)
            self._solved = self._inverse @ self._values
            if again == _ROUNDS or known is not None or not len(values):
                break
            diagonal = np.diag(self._inverse)
            far = np.abs(self._solved / diagonal) * np.sqrt(diagonal) / OUTLIER
            self.noise = noise * np.maximum(1.0, far) ** 2
        self.belief = (noise / self.noise) ** 2

    def guess(self, sites: Sites, without: Whole | None = None) -> tuple[Floats, Floats]:
        """(values, standard deviations) at new sites, noise of a measurement left out; as if the points `without` were not
        there (the inverse of the others is a part of the whole one's)."""
        cross = covariance(self.parts, sites, self.sites)
        weight = cross @ self._inverse
        values = self.mean + cross @ self._solved
        variance = self._variance - (weight * cross).sum(axis=1)
        if without is not None and len(without):
            some = weight[:, without]
            inner = np.linalg.inv(self._inverse[np.ix_(without, without)])
            values = values - some @ (inner @ self._solved[without])
            variance = variance + ((some @ inner) * some).sum(axis=1)
        return values, np.sqrt(np.maximum(variance, 1e-12))

    def residuals(self) -> Floats:
        """(points,): value - guess without that point."""
        return np.asarray(self._solved / np.diag(self._inverse))

    def influence(self) -> Floats:
        """(points,): what the guess at a point's own site changes by when the point is left out."""
        own = 1.0 - self.noise**2 * np.diag(self._inverse)
        return np.asarray(-own * self.residuals())

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
