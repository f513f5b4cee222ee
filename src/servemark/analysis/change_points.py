"""Change points of a series by e-divisive with permutations (Matteson and James 2014, arXiv:1306.4933).

The statistic between two neighbouring stretches X (n values) and Y (m values) is

    Q = 2/(n+m) * sum |x - y| - 2m/((n+m)(n-1)) * sum_{i<k} |x_i - x_k| - 2n/((n+m)(m-1)) * sum_{j<k} |y_j - y_k|

(exponent 1; a stretch of one value has no inner term). The division with the largest Q of all stretches is the candidate;
it stands when it is larger than in nearly all series whose values were shuffled within today's stretches, and the search
goes on within its two sides. No distribution is assumed, only that values between two changes are exchangeable, so a
slow drift is reported as steps. Division is not bound to reach the end of its stretch, as in the paper.

The p-value of a candidate is (1 + shuffles at least as extreme) / (1 + shuffles); shuffling ends early once it cannot be
small any more. Everything is deterministic: the shuffles come from a fixed seed. Plain Python, at most 200 values.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MAX_VALUES = 200
MIN_SIDE = 2
"""One value alone is no state that something changed to: a second measurement must agree with it."""
MAX_P_VALUE = 0.02
"""On noise alone, one series in fifty fires. It takes nine values or more to get below it."""
SHUFFLES = 999
SEED = 20140801
_WORK = 6_000_000
"""Pairs of values that one test may look at; longer series are shuffled less often, but never less than 199 times."""


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change before the value at `index`. `before` and `after` are the medians of the stretches on both sides,
    `magnitude` = after / before - 1 (None where before is 0), `q` the statistic when it was found."""

    index: int
    p_value: float
    q: float
    before: float
    after: float

    @property
    def magnitude(self) -> float | None:
        """Relative change of the medians."""
        return self.after / self.before - 1 if self.before else None


@dataclass(frozen=True, slots=True)
class _Candidate:
    index: int
    q: float


def change_points(
    values: Sequence[float],
    *,
    max_p_value: float = MAX_P_VALUE,
    min_side: int = MIN_SIDE,
    shuffles: int = SHUFFLES,
    seed: int = SEED,
) -> list[ChangePoint]:
    """The change points of a series in time order, by index. Raises ValueError for more than 200 values, or for one that
    is not finite."""
    if len(values) > MAX_VALUES:
        raise ValueError(f"{len(values)} values, at most {MAX_VALUES}")
    if not all(math.isfinite(value) for value in values):
        raise ValueError("a value is not finite")
    distances = [[abs(a - b) for b in values] for a in values]
    chance = random.Random(seed)  # noqa: S311 - shuffles, no secrets
    found: list[tuple[int, float, float]] = []
    while True:
        edges = [0, *sorted(index for index, *_ in found), len(values)]
        stretches = list(pairwise(edges))
        order = list(range(len(values)))
        best = best_division(distances, order, stretches, min_side)
        if best is None or not best.q > 0:
            break
        p_value = _p_value(
            distances,
            stretches,
            best.q,
            min_side=min_side,
            max_p_value=max_p_value,
            shuffles=shuffles,
            chance=chance,
        )
        if p_value > max_p_value:
            break
        found.append((best.index, p_value, best.q))
    return _with_medians(values, sorted(found))


def _with_medians(values: Sequence[float], found: list[tuple[int, float, float]]) -> list[ChangePoint]:
    edges = [0, *(index for index, *_ in found), len(values)]
    medians = [statistics.median(values[a:b]) for a, b in pairwise(edges) if b > a]
    return [
        ChangePoint(index, p_value, q, medians[place], medians[place + 1])
        for place, (index, p_value, q) in enumerate(found)
    ]


def _p_value(
    distances: list[list[float]],
    stretches: list[tuple[int, int]],
    observed: float,
    *,
    min_side: int,
    max_p_value: float,
    shuffles: int,
    chance: random.Random,
) -> float:
    pairs = sum((end - start) ** 2 / 2 for start, end in stretches)
    tries = max(199, min(shuffles, int(_WORK / max(pairs, 1)))) if shuffles > 199 else shuffles
    limit = observed * (1 - 1e-9)
    extreme = 0
    for done in range(1, tries + 1):
        order: list[int] = []
        for start, end in stretches:
            part = list(range(start, end))
            chance.shuffle(part)
            order += part
        shuffled = best_division(distances, order, stretches, min_side)
        extreme += shuffled is not None and shuffled.q >= limit
        if (1 + extreme) / (1 + tries) > max_p_value:
            return (1 + extreme) / (1 + done)
    return (1 + extreme) / (1 + tries)


def best_division(
    distances: list[list[float]], order: list[int], stretches: list[tuple[int, int]], min_side: int = 1
) -> _Candidate | None:
    """The division with the largest Q of the values in `order`: its index, and Q. None where no stretch is long
    enough."""
    best: _Candidate | None = None
    for start, end in stretches:
        if end - start >= 2 * min_side:
            found = _best_of(distances, order[start:end], min_side)
            if best is None or found.q > best.q:
                best = _Candidate(found.index + start, found.q)
    return best


def _best_of(distances: list[list[float]], order: list[int], min_side: int) -> _Candidate:
    """The best (division, end) of one stretch. `inner[a]` is the sum of distances among the values a..end-1."""
    size = len(order)
    inner = [0.0] * (size + 1)
    left = [0.0] * (size + 1)
    best_q, best_at = -math.inf, min_side
    for last in range(size):
        row = distances[order[last]]
        column = 0.0
        for first in range(last - 1, -1, -1):
            column += row[order[first]]
            inner[first] += column
        end = last + 1
        left[end] = inner[0]
        for cut in range(min_side, end - min_side + 1):
            right = end - cut
            inside_left, inside_right = left[cut], inner[cut]
            q = left[end] - inside_left - inside_right
            if cut > 1:
                q -= right * inside_left / (cut - 1)
            if right > 1:
                q -= cut * inside_right / (right - 1)
            q *= 2 / end
            if q > best_q:
                best_q, best_at = q, cut
    return _Candidate(best_at, best_q)
