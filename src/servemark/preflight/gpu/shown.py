"""GPU figures in words: decimal units, three figures."""

from __future__ import annotations

from servemark.preflight.finding import Saying, say
from servemark.preflight.gpu.lines import Figure

STEPS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def figure_name(name: str) -> Saying:
    """What a figure is called."""
    return say(f"preflight.gpu.figure.{name}")


def probe_name(probe: str) -> Saying:
    """What a probe is called."""
    return say(f"preflight.gpu.probe.{probe}")


def rate(figure: Figure, value: float | None = None) -> str:
    """A figure's value, or another one in its unit: `4.27 TB/s`, `782 TFLOP/s`, `12.3 us`."""
    number = figure.value if value is None else value
    if figure.name.endswith("_latency_s"):
        return f"{number * 1e6:.3g} us"
    return quantity(number, "FLOP/s" if "flop" in figure.name else "B/s")


def quantity(value: float, unit: str) -> str:
    """`4.27 TB/s`."""
    for step, letter in STEPS:
        if value >= step:
            return f"{value / step:.3g} {letter}{unit}"
    return f"{value:.3g} {unit}"


def difference(ratio: float | None) -> str:
    """How much is missing to 1: `27 %`."""
    return share(1 - (ratio or 0.0))


def share(value: float) -> str:
    """`5 %`."""
    return f"{value * 100:.0f} %"
