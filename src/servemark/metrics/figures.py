"""The value of an address from stated figures, as points carry them (`ttft_s.p90` -> seconds), with its making.

Rates are made of latencies here as in `metrics.derive`: a stated interactivity is never taken, since tools mean different
ends of the distribution by its p90. A per-GPU figure and its total give each other where the GPUs deployed are known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from servemark.base.messages import text
from servemark.metrics.address import Address, parse
from servemark.metrics.registry import FLIPPED, Kind

UNSTATED = "metrics.absent.statistic"
"""The source states the metric, but not this percentile of it."""
PER_GPU = "_per_gpu"
SMALLEST, LARGEST = 1e-60, 1e60
"""Sizes that a figure other than 0 can have. No measurement is near them, and all that is made of figures within (a product
or a ratio of several, a width, a sum) is finite and not 0."""
TOTALS = {"total_tokens": ("input_tokens", "output_tokens")}


@dataclass(frozen=True, slots=True)
class FigureReading:
    """A value in its metric's unit, or None with the message key of the reason. `made_of` are the stated figures (address,
    value) that it was made of, one entry equal to itself where it is stated; `formula` is written with their numbers."""

    address: Address
    value: float | None
    reason: str | None = None
    made_of: tuple[tuple[str, float], ...] = ()
    formula: str = ""

    def why(self, lang: str | None = None) -> str | None:
        """Why it is absent, in words; None for a value that is there."""
        return text(self.reason, lang) if self.reason else None


def read_figure(
    figures: Mapping[str, float], address: Address | str, gpus_deployed: int | None = None
) -> FigureReading:
    """The figure that `address` names. Raises ServemarkError (exit code 2) for text that is no address."""
    found = _read(figures, address, gpus_deployed)
    if found.value is None or (
        _plausible(found.value) and all(_plausible(each) for _, each in found.made_of)
    ):
        return found
    return FigureReading(found.address, None, "metrics.absent.magnitude", found.made_of)


def _plausible(value: float) -> bool:
    """Whether a value can be one of a measurement; `nan` is none."""
    return value == 0 or SMALLEST <= abs(value) <= LARGEST


def _read(figures: Mapping[str, float], address: Address | str, gpus_deployed: int | None) -> FigureReading:
    chosen = parse(address) if isinstance(address, str) else address
    metric = chosen.metric
    if metric.kind is Kind.COST:  # another's rate card is not ours: a stated cost is never taken
        return FigureReading(chosen, None, f"metrics.absent.{metric.need.value}")
    if metric.inverse_of is not None:
        return _inverse(figures, chosen, metric.inverse_of)
    name = str(chosen)
    if metric.kind is Kind.TASK and chosen.task is None:
        found = [each for each in figures if each.startswith(f"{metric.id}.")]
        if len(found) != 1:
            reason = "metrics.absent.several_tasks" if found else "metrics.absent.eval"
            return FigureReading(chosen, None, reason)
        name = found[0]
    if name == "gpus_deployed" and gpus_deployed is not None:
        return FigureReading(chosen, float(gpus_deployed), None, ((name, float(gpus_deployed)),))
    stated = figures.get(name)
    if stated is not None:
        return FigureReading(chosen, stated, None, ((name, stated),))
    return _made(figures, chosen, gpus_deployed)


def figure_value(
    figures: Mapping[str, float], address: Address | str, gpus_deployed: int | None = None
) -> float | None:
    """The figure alone; None when absent."""
    return read_figure(figures, address, gpus_deployed).value


def _inverse(figures: Mapping[str, float], address: Address, latency: str) -> FigureReading:
    """What q % of requests reach or beat: one over the q-th percentile of the latency."""
    statistic = FLIPPED.get(address.statistic or "", address.statistic)
    name = f"{latency}.{statistic}"
    value = figures.get(name)
    if value is None and _states_any(figures, latency):
        return FigureReading(address, None, UNSTATED)
    if value is None or not value > 0:
        return FigureReading(address, None, f"metrics.absent.{address.metric.need.value}")
    return FigureReading(address, 1 / value, None, ((name, value),), f"1 ÷ {value:.9g}")


def _states_any(figures: Mapping[str, float], metric: str) -> bool:
    """Whether any statistic of a metric is stated: then what is missing was not left out of the measurement."""
    return any(name.startswith(f"{metric}.") for name in figures)


def _made(figures: Mapping[str, float], address: Address, gpus: int | None) -> FigureReading:
    """A rate out of its total or its per-GPU form, or a sum of input and output."""
    name = str(address)
    reason = f"metrics.absent.{address.metric.need.value}"
    if address.statistic is not None and _states_any(figures, address.metric.id):
        reason = UNSTATED
    if name.endswith(PER_GPU):
        total = _whole(figures, name.removesuffix(PER_GPU))
        if total is None:  # with the GPUs known, it is the rate that nobody recorded
            return FigureReading(address, None, "metrics.absent.always" if gpus else reason)
        if not gpus:
            return FigureReading(address, None, "metrics.absent.gpus")
        value, parts, formula = total
        return FigureReading(
            address, value / gpus, None, (*parts, ("gpus_deployed", float(gpus))), f"{formula} ÷ {gpus}"
        )
    each = _whole(figures, f"{name}{PER_GPU}") if name.endswith("_per_s") and gpus else None
    if each is not None and gpus:
        value, parts, formula = each
        made = (*parts, ("gpus_deployed", float(gpus)))
        return FigureReading(address, value * gpus, None, made, f"{formula} \u00d7 {gpus}")
    total = _whole(figures, name)
    if total is not None:
        value, parts, formula = total
        return FigureReading(address, value, None, parts, formula)
    return FigureReading(address, None, reason)


_Made = tuple[float, tuple[tuple[str, float], ...], str]


def _whole(figures: Mapping[str, float], name: str) -> _Made | None:
    """A stated figure, the sum of its input and output, or a count of the window over its length."""
    stated = figures.get(name)
    if stated is not None:
        return stated, ((name, stated),), f"{stated:.9g}"
    for total, parts in TOTALS.items():
        if name.startswith(f"{total}_per_s"):
            names = [name.replace(total, part, 1) for part in parts]
            values = [figures.get(each) for each in names]
            if all(value is not None for value in values):
                known = [value for value in values if value is not None]
                return (
                    sum(known),
                    tuple(zip(names, known, strict=True)),
                    "(" + " + ".join(f"{v:.9g}" for v in known) + ")",
                )
    if name.endswith("_per_s") and (window := figures.get("window_s")):
        count = figures.get(f"{name.removesuffix('_per_s')}_total")
        if count is not None and math.isfinite(window) and window > 0:
            made = ((f"{name.removesuffix('_per_s')}_total", count), ("window_s", window))
            return count / window, made, f"{count:.9g} ÷ {window:.9g}"
    return None
