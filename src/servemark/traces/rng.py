"""A small random generator whose output never depends on the Python version, the platform or PYTHONHASHSEED.

SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014), seeded from
the SHA-256 of its key, so that every stream that is asked for by name is independent of all others: adding a
session to a workload changes no earlier one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from servemark.base.canonical import content_hash

_T = TypeVar("_T")
_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


class SplitMix:
    """One stream. `key` is any JSON value (list, text, number); equal keys give equal streams."""

    __slots__ = ("_state",)

    def __init__(self, key: object) -> None:
        self._state = int(content_hash(key, 16), 16)

    def u64(self) -> int:
        """The next 64 random bits."""
        self._state = (self._state + _GAMMA) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def uniform(self) -> float:
        """A multiple of 2^-53 in [0, 1)."""
        return (self.u64() >> 11) / (1 << 53)

    def integer(self, low: int, high: int) -> int:
        """An integer in low..high, both included; multiply-and-shift, bias below (high-low+1) / 2^64."""
        if high < low:
            raise ValueError(f"no integer in {low}..{high}")
        return low + ((self.u64() * (high - low + 1)) >> 64)

    def normal(self) -> float:
        """Approximately standard normal: the sum of twelve uniforms less six (mean 0, variance 1, within ±6).

        Only additions, so every machine computes the same bits; the far tails would be clipped anyway.
        """
        return sum(self.uniform() for _ in range(12)) - 6.0

    def lognormal(self, median: float, sigma: float) -> float:
        """median * e^(sigma * normal)."""
        return median * math.exp(sigma * self.normal())

    def choice(self, items: Sequence[_T]) -> _T:
        """One of the items, all equally likely."""
        return items[self.integer(0, len(items) - 1)]

    def sample(self, items: Sequence[_T], count: int) -> list[_T]:
        """`count` different items in random order."""
        pool = list(items)
        if count > len(pool):
            raise ValueError(f"cannot take {count} of {len(pool)}")
        for i in range(count):
            j = self.integer(i, len(pool) - 1)
            pool[i], pool[j] = pool[j], pool[i]
        return pool[:count]
