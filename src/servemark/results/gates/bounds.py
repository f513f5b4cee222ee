"""Gates on single values: finite, positive, possible, and no zero that stands for "absent"."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from servemark.metrics.registry import METRICS
from servemark.results.gates.base import Context, Gate, GateFinding, Severity
from servemark.results.gates.columns import Columns, every, within
from servemark.results.gates.read import OUTPUT_PER_GPU, POWER_PER_GPU, TOTAL_PER_GPU, passed, short, skips
from servemark.results.point import Point

if TYPE_CHECKING:
    from servemark.results.gates.base import Said

FASTEST_TPOT_S = 1e-4
"""10,000 tok/s/user: thirty times the fastest published single user on GPUs."""
MOST_TOTAL_PER_GPU = 1e6
"""Fifty times the highest published row (18,321 tok/s/GPU), which leaves room for cached prompts."""
MOST_OUTPUT_PER_GPU = 1e5
LEAST_POWER_W = 5.0
MOST_POWER_W = 5000.0
"""Mean power of one GPU: below an idle card, above twice the largest board."""
LONGEST_LATENCY_S = 7 * 86_400.0
_LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2el_s")
_INF = math.inf
_FREE_SIGN = frozenset({"send_lateness_s"})
"""Metrics that may be below zero: a send may be early."""

_FINITE_SKIP = skips("finite", "no_figures")[0]
_FINITE_OK = passed("finite")


def finite(point: Point, _context: Context) -> GateFinding:
    """Every figure is a finite number that is not below zero. No latency, rate, count, share or energy can be."""
    if not point.figures:
        return _FINITE_SKIP
    for address, figure in point.figures.items():
        if not 0 <= figure.value < _INF and not _is_sound(address, figure.value):
            bad = min(each for each, one in point.figures.items() if not _is_sound(each, one.value))
            values: dict[str, object] = {"figure": bad, "value": repr(point.figures[bad].value)}
            return GateFinding("finite", Severity.QUARANTINE, values)
    return _FINITE_OK


def _is_sound(address: str, value: float) -> bool:
    return 0 <= value < _INF or (math.isfinite(value) and address.partition(".")[0] in _FREE_SIGN)


def _finite_columns(columns: Columns) -> Said:
    if not columns.addresses:
        return _FINITE_SKIP, True
    return _FINITE_OK, every((columns.table >= 0) & (columns.table < _INF))


_BY_ADDRESS = {TOTAL_PER_GPU: (0.0, MOST_TOTAL_PER_GPU), OUTPUT_PER_GPU: (0.0, MOST_OUTPUT_PER_GPU)}
_BY_METRIC = {
    POWER_PER_GPU.partition(".")[0]: (LEAST_POWER_W, MOST_POWER_W),
    **dict.fromkeys(_LATENCIES, (0.0, LONGEST_LATENCY_S)),
    **{metric.id: (0.0, 1.0) for metric in METRICS.values() if metric.unit == "share"},
}


def _limits(address: str) -> tuple[float, float] | None:
    """(least, most) that a figure may be; None for one without a bound of its own."""
    metric, _, statistic = address.partition(".")
    if statistic in ("std", "n"):
        return None
    if metric == "tpot_s" and statistic != "min":
        return FASTEST_TPOT_S, LONGEST_LATENCY_S
    return _BY_ADDRESS.get(address) or _BY_METRIC.get(metric)


@lru_cache(maxsize=1024)
def _bounded(addresses: tuple[str, ...]) -> tuple[tuple[str, float, float], ...]:
    """(address, least, most) of those with bounds; rows of one source have the same addresses."""
    found = ((address, _limits(address)) for address in sorted(addresses))
    return tuple((address, *limits) for address, limits in found if limits is not None)


_POSSIBLE_SKIP = skips("possible", "no_figures")[0]
_POSSIBLE_OK = passed("possible")


def possible(point: Point, _context: Context) -> GateFinding:
    """Figures within what hardware and definitions allow: a unit slip (ms for s, a total for a per-GPU figure, percent
    for a share) lands outside. A zero is left to `zero_latency`."""
    if not point.figures:
        return _POSSIBLE_SKIP
    figures = point.figures
    for address, least, most in _bounded(tuple(figures)):
        value = figures[address].value
        if not least <= value <= most and value != 0:
            values: dict[str, object] = {
                "figure": address,
                "value": short(value),
                "least": least,
                "most": most,
            }
            return GateFinding("possible", Severity.QUARANTINE, values)
    return _POSSIBLE_OK


def _possible_columns(columns: Columns) -> Said:
    if not columns.addresses:
        return _POSSIBLE_SKIP, True
    fits = within(columns.table[:, 0], -_INF, _INF)
    for address, least, most in _bounded(columns.addresses):
        column = columns.some((address,))[:, 0]
        fits &= within(column, least, most) | (column == 0)
    return _POSSIBLE_OK, fits


_NEVER_ZERO = frozenset(
    f"{name}.{statistic}"
    for name in _LATENCIES
    for statistic in ("mean", "p50", "p75", "p90", "p95", "p99", "p99.9", "max")
) | {"total_tokens_per_s", TOTAL_PER_GPU, OUTPUT_PER_GPU, "output_tokens_per_s"}
_ZERO_SKIP = skips("zero_latency", "no_figures")[0]
_ZERO_OK = passed("zero_latency")


def zero_latency(point: Point, _context: Context) -> GateFinding:
    """No latency and no throughput is exactly 0: such a figure is an absent one that somebody wrote as 0, and it would
    be drawn as the best of all."""
    figures = point.figures
    if not figures:
        return _ZERO_SKIP
    for address, figure in figures.items():
        if figure.value == 0 and address in _NEVER_ZERO:
            zeros = sorted(each for each in _NEVER_ZERO & figures.keys() if figures[each].value == 0)
            shown = {"figures": ", ".join(zeros[:5]), "n": len(zeros)}
            return GateFinding("zero_latency", Severity.QUARANTINE, dict(shown))
    return _ZERO_OK


def _zero_columns(columns: Columns) -> Said:
    if not columns.addresses:
        return _ZERO_SKIP, True
    return _ZERO_OK, every(columns.some(sorted(_NEVER_ZERO)) != 0)


_ABSENT_SKIP = skips("no_latency", "no_total_rate")[0]
_ABSENT_OK = passed("no_latency")
_RATES = frozenset({"total_tokens_per_s", "output_tokens_per_s", TOTAL_PER_GPU, OUTPUT_PER_GPU})


def no_latency(point: Point, _context: Context) -> GateFinding:
    """At least one of TTFT, TPOT and E2EL is stated. Without any the point has no place on a latency axis; it is not
    drawn there, least of all at 0."""
    figures = point.figures
    for name in ("tpot_s", "e2el_s", "ttft_s"):
        if f"{name}.p50" in figures or f"{name}.mean" in figures or f"{name}.p90" in figures:
            return _ABSENT_OK
    if any(address.partition(".")[0] in _LATENCIES for address in figures):
        return _ABSENT_OK
    if not _RATES & figures.keys():
        return _ABSENT_SKIP  # an eval alone has no place on such an axis anyway
    return GateFinding("no_latency", Severity.WARNING, {"n": len(figures)})


def _absent_columns(columns: Columns) -> Said:
    said = no_latency(columns.points[0], Context())  # the addresses alone decide
    return said, said.severity is not Severity.WARNING


GATES = (
    Gate("finite", 1, finite, 0.0, "definitions of the metrics", columns=_finite_columns),
    Gate(
        "possible",
        1,
        possible,
        FASTEST_TPOT_S,
        "thirty to fifty times the best published rows",
        columns=_possible_columns,
    ),
    Gate("zero_latency", 1, zero_latency, 0.0, "definitions of the metrics", columns=_zero_columns),
    Gate("no_latency", 1, no_latency, None, "definitions of the metrics", columns=_absent_columns),
)
"""The family in the order of its tables."""
