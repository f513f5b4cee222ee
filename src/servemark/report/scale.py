"""Axes: where a value lies between two ends, and round numbers to write beside the axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

from servemark.analysis.format import group


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from `low` to `high` (low < high; above 0 when `log`) with round ticks, in any unit."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def share(self, value: float) -> float:
        """Where `value` lies: 0 at `low`, 1 at `high`. On a logarithmic axis 0 and below lie at 0."""
        if not self.log:
            return (value - self.low) / (self.high - self.low)
        if value <= 0:
            return 0.0
        return math.log(value / self.low) / math.log(self.high / self.low)


def tick_text(tick: float) -> str:
    """A round number without the dust of binary fractions: 0.30000000000000004 -> `0.3`."""
    return group(f"{tick + 0.0:.10g}")


def nice_step(span: float, wanted: int) -> float:
    """The smallest of 1, 2, 2.5, 5 x 10^k that cuts `span` (> 0) into at most `wanted` parts."""
    raw = span / max(wanted, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    for factor in (1.0, 2.0, 2.5, 5.0):
        if factor * power >= raw * (1 - 1e-9):
            return factor * power
    return 10.0 * power


def from_zero(highest: float, wanted: int = 5, headroom: float = 0.1) -> Scale:
    """An axis that starts at zero and leaves room above the highest value (>= 0)."""
    return between(0.0, highest * (1 + headroom) if highest > 0 else 1.0, wanted)


def between(low: float, high: float, wanted: int = 4) -> Scale:
    """An axis whose ends are exactly `low` and `high`; ticks are the round numbers inside."""
    step = nice_step(high - low, wanted)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Scale(low, high, tuple(step * i for i in range(first, last + 1)))


def logarithmic(low: float, high: float, wanted: int = 5) -> Scale:
    """An axis with equal room for equal factors (0 < low < high): ticks 1, 2, 5 x 10^k or fewer."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1, 2, 5), (1, 3), (1,)):
        ticks = [f * 10.0**k for k in range(first, last + 1) for f in factors]
        inside = tuple(t for t in ticks if low * (1 - 1e-9) <= t <= high * (1 + 1e-9))
        if len(inside) <= wanted:
            break
    thinned = inside[:: math.ceil(len(inside) / wanted)] if len(inside) > wanted else inside
    return Scale(low, high, thinned, log=True)
