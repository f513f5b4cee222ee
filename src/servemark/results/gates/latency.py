"""Gates on latencies against each other: order of percentiles, parts and wholes, gaps and tokens."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from servemark.metrics.registry import METRICS
from servemark.results.gates.base import Context, Gate, GateFinding, Severity
from servemark.results.gates.columns import Columns, every, usable_column
from servemark.results.gates.read import FIXED, length_share, passed, percent, plain, short, skips, usable
from servemark.results.point import Point

if TYPE_CHECKING:
    from servemark.results.gates.base import Said

GRAIN = 1e-3
"""Share by which two figures may be out of order: tools print three or more digits, some round each figure alone."""
SUM_WARNING = 0.05
SUM_QUARANTINE = 0.25
ITL_TOLERANCE = 0.25
STATED_RATES = "stated_interactivity"
"""Key of `observed` under which a mapping may keep the interactivity percentiles of its source (`{"p90": 61.9}`):
evidence of the direction that the source means, never a figure."""


@lru_cache(maxsize=1024)
def _steps(addresses: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Pairs of neighbouring percentiles, the one that may not be larger first; rows of one source share them. A metric
    that the registry does not know is left out: which way is better is not known."""
    ladders: dict[str, list[tuple[float, str]]] = {}
    for address in addresses:
        metric, _, statistic = address.partition(".")
        level = statistic[1:].replace(".", "", 1)
        if metric in METRICS and statistic.startswith("p") and level.isascii() and level.isdigit():
            ladders.setdefault(metric, []).append((float(statistic[1:]), address))
    found: list[tuple[str, str]] = []
    for metric, ladder in sorted(ladders.items()):
        names = [address for _, address in sorted(ladder, reverse=METRICS[metric].better == "higher")]
        found += pairwise(names)
    return tuple(found)


_ORDER_SKIP = skips("percentiles", "one_percentile")[0]
_ORDER_OK = passed("percentiles")


def percentiles(point: Point, _context: Context) -> GateFinding:
    """A higher percentile of a latency is never lower; of a rate, which says what q % of requests reach or beat, never
    higher. Out of order: columns were mixed, or figures of two runs."""
    figures = point.figures
    steps = _steps(tuple(figures))
    if not steps:
        return _ORDER_SKIP
    for low, high in steps:
        small, large = figures[low].value, figures[high].value
        if large < small and small - large > GRAIN * abs(small):
            one, other = low.partition(".")[2], high.partition(".")[2]
            values: dict[str, object] = {
                "metric": low.partition(".")[0],
                "one": one,
                "one_value": short(small),
                "other": other,
                "other_value": short(large),
            }
            return GateFinding("percentiles", Severity.QUARANTINE, values)
    return _ORDER_OK


def _order_columns(columns: Columns) -> Said:
    steps = _steps(columns.addresses)
    if not steps:
        return _ORDER_SKIP, True
    small = columns.some([low for low, _ in steps])
    large = columns.some([high for _, high in steps])
    return _ORDER_OK, every((large >= small) | (small - large <= GRAIN * abs(small)))


_DIRECTION_SKIP = skips("rate_direction", "no_stated_rates")[0]
_DIRECTION_OK = passed("rate_direction")


def rate_direction(point: Point, _context: Context) -> GateFinding:
    """Which tail the source's interactivity percentiles mean: falling with the percentile, the slow one (what q % of
    requests reach or beat); rising, the fast one. One name stood for both in published data."""
    stated = point.observed.get(STATED_RATES)
    if not isinstance(stated, dict):
        return _DIRECTION_SKIP
    ladder = []
    for name, value in stated.items():
        number = plain(value)
        level = "50" if name in ("median", "p50") else str(name)[1:] if str(name).startswith("p") else ""
        if number is not None and level.replace(".", "", 1).isascii() and level.replace(".", "", 1).isdigit():
            ladder.append((float(level), number))
    tpot = point.value("tpot_s.p90")
    if tpot is not None and usable(tpot) and not any(level == 50 for level, _ in ladder):
        # Without a median, 1 / TPOT at the same percentile is what the slow tail would be.
        ladder = [(50.0, 1 / tpot), *((level, rate) for level, rate in ladder if level == 90)]
    if len(ladder) < 2:
        return _DIRECTION_SKIP
    ladder.sort()
    (low, low_rate), (high, high_rate) = ladder[0], ladder[-1]
    if high_rate <= low_rate * (1 + GRAIN):
        return _DIRECTION_OK
    values: dict[str, object] = {
        "one": f"p{low:g}",
        "one_value": short(low_rate),
        "other": f"p{high:g}",
        "other_value": short(high_rate),
    }
    return GateFinding("rate_direction", Severity.WARNING, values)


_BOTH = tuple(
    (f"ttft_s.{q}", f"e2el_s.{q}", q) for q in ("mean", "p50", "p75", "p90", "p95", "p99", "p99.9", "max")
)
_TTFT_SKIP = skips("ttft_e2el", "no_ttft_and_e2el")[0]
_TTFT_OK = passed("ttft_e2el")


def ttft_e2el(point: Point, _context: Context) -> GateFinding:
    """TTFT <= E2EL at every statistic: it holds for each request, so it holds for the mean and for each percentile."""
    figures, seen = point.figures, False
    for first, whole, statistic in _BOTH:
        one = figures.get(first)
        if one is None:
            continue
        other = figures.get(whole)
        if other is None:
            continue
        seen = True
        if one.value > other.value * (1 + GRAIN):
            values: dict[str, object] = {
                "statistic": statistic,
                "ttft_s": short(one.value),
                "e2el_s": short(other.value),
            }
            return GateFinding("ttft_e2el", Severity.QUARANTINE, values)
    return _TTFT_OK if seen else _TTFT_SKIP


def _ttft_columns(columns: Columns) -> Said:
    both = [(columns.of(first), columns.of(whole)) for first, whole, _ in _BOTH]
    known = [(one, other) for one, other in both if one is not None and other is not None]
    if not known:
        return _TTFT_SKIP, True
    late = known[0][0] > known[0][1] * (1 + GRAIN)
    for one, other in known[1:]:
        late |= one > other * (1 + GRAIN)
    return _TTFT_OK, ~late


_SUM_LENGTHS, _SUM_MEANS = skips("latency_sum", "not_fixed_lengths", "no_mean_latencies")
_SUM_OK = passed("latency_sum")


def latency_sum(point: Point, _context: Context) -> GateFinding:
    """Mean E2EL = mean TTFT + mean TPOT x (mean OSL - 1), for fixed lengths. For lengths that vary with the latency a
    mean of products is no product of means, so traces are skipped."""
    scenario, figures = point.identity.scenario, point.figures
    if scenario.type not in FIXED or scenario.osl is None:
        return _SUM_LENGTHS
    first, token, whole = (
        figures.get("ttft_s.mean"),
        figures.get("tpot_s.mean"),
        figures.get("e2el_s.mean"),
    )
    if first is None or token is None or whole is None or not usable(whole.value):
        return _SUM_MEANS
    measured = figures.get("output_tokens.mean")
    if measured is not None:
        least = most = measured.value
    else:
        least_share, most_share = length_share(point)
        least, most = least_share * scenario.osl, most_share * scenario.osl
    low = (first.value + token.value * max(least - 1, 0)) / whole.value
    high = (first.value + token.value * max(most - 1, 0)) / whole.value
    ratio = low if low > 1 else high if high < 1 else 1.0
    if not abs(ratio - 1) > SUM_WARNING:
        return _SUM_OK
    values: dict[str, object] = {
        "ttft_s": short(first.value),
        "tpot_s": short(token.value),
        "osl": short(least if ratio > 1 else most),
        "sum_s": short(ratio * whole.value),
        "e2el_s": short(whole.value),
        "tolerance_percent": percent(SUM_WARNING),
        "limit_percent": percent(SUM_QUARANTINE),
    }
    severity = Severity.QUARANTINE if abs(ratio - 1) > SUM_QUARANTINE else Severity.WARNING
    return GateFinding("latency_sum", severity, values)


def _sum_columns(columns: Columns) -> Said:
    first, token, whole = (columns.of(f"{name}.mean") for name in ("ttft_s", "tpot_s", "e2el_s"))
    fixed = columns.framed(_has_fixed_reply) == 1
    if first is None or token is None or whole is None:
        return (_SUM_MEANS, True) if fixed.all() else (_SUM_LENGTHS, ~fixed)
    least = most = columns.of("output_tokens.mean")
    if least is None or most is None:
        least = columns.framed(lambda point: length_share(point)[0] * (point.identity.scenario.osl or 0))
        most = columns.framed(lambda point: length_share(point)[1] * (point.identity.scenario.osl or 0))
    low = (first + token * (least - 1).clip(0)) / whole
    high = (first + token * (most - 1).clip(0)) / whole
    near = ((low <= 1) | (abs(low - 1) <= SUM_WARNING)) & ((high >= 1) | (abs(high - 1) <= SUM_WARNING))
    return _SUM_OK, fixed & usable_column(whole) & near


def _has_fixed_reply(point: Point) -> bool:
    scenario = point.identity.scenario
    return scenario.type in FIXED and scenario.osl is not None


_GAPS = (("p50", "itl_s.p50", "tpot_s.p50"), ("mean", "itl_s.mean", "tpot_s.mean"))
_ITL_SKIP = skips("itl_tpot", "no_itl_and_tpot")[0]
_ITL_OK = passed("itl_tpot")


def itl_tpot(point: Point, _context: Context) -> GateFinding:
    """ITL against TPOT. They differ where a chunk carries several tokens (speculative decoding, bundled streaming):
    such an ITL is a gap between chunks, and only TPOT is time per token."""
    figures = point.figures
    for statistic, gap_address, token_address in _GAPS:
        gap, token = figures.get(gap_address), figures.get(token_address)
        if gap is None or token is None or not usable(token.value):
            continue
        ratio = gap.value / token.value
        if abs(ratio - 1) <= ITL_TOLERANCE:
            return _ITL_OK
        values: dict[str, object] = {
            "statistic": statistic,
            "itl_ms": short(1e3 * gap.value),
            "tpot_ms": short(1e3 * token.value),
            "ratio": short(ratio),
            "tolerance_percent": percent(ITL_TOLERANCE),
        }
        return GateFinding("itl_tpot", Severity.WARNING, values)
    return _ITL_SKIP


def _itl_columns(columns: Columns) -> Said:
    for _, gap_address, token_address in _GAPS:
        gap, token = columns.of(gap_address), columns.of(token_address)
        if gap is not None and token is not None:
            return _ITL_OK, usable_column(token) & (abs(gap / token - 1) <= ITL_TOLERANCE)
    return _ITL_SKIP, True


GATES = (
    Gate("percentiles", 1, percentiles, GRAIN, "rounding of printed figures", columns=_order_columns),
    Gate(
        "rate_direction",
        1,
        rate_direction,
        GRAIN,
        "rounding of printed figures",
        idle=("observed", _DIRECTION_SKIP),
    ),
    Gate("ttft_e2el", 1, ttft_e2el, GRAIN, "rounding of printed figures", columns=_ttft_columns),
    Gate(
        "latency_sum",
        1,
        latency_sum,
        SUM_WARNING,
        "twice the largest residual (2.2 %) of 435 published rows",
        columns=_sum_columns,
    ),
    Gate(
        "itl_tpot",
        1,
        itl_tpot,
        ITL_TOLERANCE,
        "one token a chunk gives a ratio near 1, two give 2",
        columns=_itl_columns,
    ),
)
"""The family in the order of its tables."""
