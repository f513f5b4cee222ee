"""Who holds a front where: along x, the stretches in which a series has the best measured point."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

from servemark.metrics.registry import Better

K = TypeVar("K")


def stretches(on: Sequence[tuple[K, float]], x_better: Better) -> list[tuple[K, float, float]]:
    """(holder, from, to), ascending in x, of a front's points (holder, x) in that order. A target between two points is
    reached only by the one that is better in x, so the stretch is that one's; neighbouring stretches of one holder are
    one, and a point that is alone at the easy end has a stretch without width. Empty for an empty front."""
    if not on:
        return []
    higher = x_better is Better.HIGHER
    easiest = on[0] if higher else on[-1]
    ends = [(easiest[0], easiest[1], easiest[1])]
    between = [(there[0] if higher else here[0], here[1], there[1]) for here, there in pairwise(on)]
    merged: list[tuple[K, float, float]] = []
    for holder, low, high in [*ends, *between] if higher else [*between, *ends]:
        if merged and merged[-1][0] == holder:
            merged[-1] = (holder, merged[-1][1], high)
        else:
            merged.append((holder, low, high))
    return merged
