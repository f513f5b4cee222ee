"""When an open loop sends: intended send times in seconds from its start, never falling, made without looking
at any reply."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from servemark.base.errors import ServemarkError, input_error
from servemark.traces.rng import SplitMix

ArrivalKind = Literal["constant", "poisson", "ramp", "trace"]
MAX_RATE: Final = 1e6
_FORMS: Final = "constant:RATE poisson:RATE ramp:FROM-TO trace[:SPEED]"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """One law of arrivals. Rates are requests per second. `speed` divides recorded distances (trace).

    constant: the n-th request (from 0) at n / rate. poisson: exponential distances of mean 1 / rate, drawn by
    `seed`. ramp: the rate goes evenly from `rate` to `end_rate` over the loop's duration D, so that the n-th
    request is sent when n = rate t + (end_rate - rate) t^2 / 2D.
    """

    kind: ArrivalKind
    rate: float = 0.0
    end_rate: float = 0.0
    speed: float = 1.0
    seed: int = 42

    def __str__(self) -> str:
        if self.kind == "trace":
            return f"trace:{self.speed:g}"
        return (
            f"ramp:{self.rate:g}-{self.end_rate:g}" if self.kind == "ramp" else f"{self.kind}:{self.rate:g}"
        )

    def times(self, duration_s: float | None) -> Iterator[float]:
        """Intended sends; without an end for constant and poisson. Not for `trace`, whose times are the
        workload's. Raises ServemarkError for a ramp without a duration."""
        if self.kind == "ramp":
            if duration_s is None:
                raise input_error("replay.open_endless")
            return self._ramp(duration_s)
        return self._poisson() if self.kind == "poisson" else self._constant()

    def _constant(self) -> Iterator[float]:
        number = 0
        while True:
            yield number / self.rate
            number += 1

    def _poisson(self) -> Iterator[float]:
        draw = SplitMix(["poisson", self.seed])
        at_s = 0.0
        while True:
            at_s -= math.log(1.0 - draw.uniform()) / self.rate
            yield at_s

    def _ramp(self, duration_s: float) -> Iterator[float]:
        slope = (self.end_rate - self.rate) / duration_s
        number = 0
        while True:
            if slope == 0:
                at_s = number / self.rate
            else:
                under = self.rate * self.rate + 2 * slope * number
                if under < 0:  # the rate has come down to nothing before so many requests
                    return
                at_s = (math.sqrt(under) - self.rate) / slope
            if at_s > duration_s:
                return
            yield at_s
            number += 1


def parse_arrivals(spec: str, seed: int = 42) -> Arrivals:
    """`constant:RATE`, `poisson:RATE`, `ramp:FROM-TO` or `trace[:SPEED]`. Raises ServemarkError (exit code
    2)."""
    kind, _, rest = spec.partition(":")
    if kind == "trace":
        return Arrivals("trace", speed=_rate(spec, rest or "1", above=True), seed=seed)
    if kind in ("constant", "poisson"):
        made: ArrivalKind = "constant" if kind == "constant" else "poisson"
        return Arrivals(made, _rate(spec, rest, above=True), seed=seed)
    if kind == "ramp":
        first, dash, last = rest.partition("-")
        if dash:
            low, high = _rate(spec, first, above=False), _rate(spec, last, above=False)
            if max(low, high) > 0:
                return Arrivals("ramp", low, high, seed=seed)
    raise _unreadable(spec, _FORMS)


def _rate(spec: str, text: str, *, above: bool) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _unreadable(spec, repr(text[:40])) from None
    if not 0 <= value <= MAX_RATE or (above and value == 0):
        raise _unreadable(spec, f"0 < {value:g} <= {MAX_RATE:g}")
    return value


def _unreadable(spec: str, reason: str) -> ServemarkError:
    return input_error("replay.bad_arrivals", spec=spec[:60], reason=reason)
