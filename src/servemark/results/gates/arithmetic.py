"""Gates on sums and rates: what a closed loop must give, one denominator, totals against rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servemark.results.gates.base import Context, Gate, GateFinding, Severity
from servemark.results.gates.columns import Columns, usable_column
from servemark.results.gates.read import (
    ACHIEVED,
    FIXED,
    IN_FLIGHT,
    INPUT_PER_GPU,
    OUTPUT_PER_GPU,
    TOTAL,
    TOTAL_PER_GPU,
    distance,
    gpus,
    implied_total,
    is_closed,
    is_disaggregated,
    passed,
    percent,
    short,
    skips,
    stated_tokens,
    usable,
)
from servemark.results.gates.topology import recover_split, stated_split_holds
from servemark.results.point import Point

if TYPE_CHECKING:
    from servemark.results.gates.base import Said

CLOSED_LOOP_WARNING = 0.10
"""Three times the p90 residual (3.4 %) of published fixed-length rows; ramp and tail of a run stay below it."""
CLOSED_LOOP_FACTOR = 1.5
"""Above every published row with short runs (1.28), below the least wrong GPU count (2)."""
MEDIAN_WARNING_FACTOR = 1.5
MEDIAN_FACTOR = 3.0
"""The same limits where only the median latency is known: a published row is off by 1.14 with its mean and 1.77 with
its median, and no sound one by more than 2.2."""
DENOMINATOR_TOLERANCE = 0.01
TOTALS_TOLERANCE = 0.05

_MEAN_LIMITS = (1 + CLOSED_LOOP_WARNING, CLOSED_LOOP_FACTOR)
_MEDIAN_LIMITS = (MEDIAN_WARNING_FACTOR, MEDIAN_FACTOR)
_LOOP_SKIPS = skips(
    "closed_loop", "no_total_rate", "open_loop", "think_time", "no_lengths_or_latency", "no_gpus"
)
_LOOP_OK = passed("closed_loop")
_NO_TOTAL, _OPEN, _THINK, _NO_LENGTHS, _NO_GPUS = _LOOP_SKIPS


def closed_loop(point: Point, _context: Context) -> GateFinding:  # noqa: PLR0911 - each skip says why
    """Little's law: total tokens/s = requests in flight x tokens of a request / mean E2EL.

    In a closed loop without think time every lane holds one request at all times, so a throughput that is far off
    contradicts the latency, the concurrency, the lengths or the GPU count of the same row. With only a median latency
    the limits are wider: the median of a skewed distribution is far below its mean. A disaggregated row that lost its
    split is judged with the recovered one.
    """
    whole, per_gpu = point.value(TOTAL), point.value(TOTAL_PER_GPU)
    rate = whole if whole is not None else per_gpu
    if rate is None or not usable(rate):
        return _NO_TOTAL
    implied = implied_total(point)
    if implied is None:
        scenario = point.identity.scenario
        if scenario.arrivals is not None:
            return _OPEN
        return _NO_LENGTHS if scenario.type in FIXED else _THINK
    count = 1 if whole is not None else gpus(point)
    if not count or count < 0:
        return _NO_GPUS
    least, most, latency, exact = implied
    warning, limit = _MEAN_LIMITS if exact else _MEDIAN_LIMITS
    ratio = distance(rate, least / count, most / count)
    if 1 / warning <= ratio <= warning:
        return _LOOP_OK
    recovered = None
    if whole is None and is_disaggregated(point) and not stated_split_holds(point):
        recovered = recover_split(point)
    if recovered is not None:
        count = recovered.prefill + recovered.decode
        ratio = distance(rate, least / count, most / count)
        if 1 / warning <= ratio <= warning:
            return _LOOP_OK
    values: dict[str, object] = {
        "stated": short(rate),
        "implied": short(ratio * rate),
        "ratio": short(ratio),
        "latency_s": short(latency),
        "gpus": count,
        "warning_factor": warning,
        "factor": limit,
    }
    severity = Severity.WARNING if 1 / limit < ratio < limit else Severity.QUARANTINE
    return GateFinding("closed_loop", severity, values)


def _loop_columns(columns: Columns) -> Said:
    whole, mean = columns.of(TOTAL), columns.of("e2el_s.mean")
    rate = whole if whole is not None else columns.of(TOTAL_PER_GPU)
    latency = mean if mean is not None else columns.of("e2el_s.p50")
    if rate is None or latency is None:
        return _NO_TOTAL, rate is None
    lanes = columns.of(IN_FLIGHT)
    if lanes is None:
        closed, achieved = columns.framed(lambda point: 1 if is_closed(point) else None), columns.of(ACHIEVED)
        lanes = closed * (columns.framed(_lanes) if achieved is None else achieved)
    read, written = columns.of("input_tokens.mean"), columns.of("output_tokens.mean")
    if read is not None and written is not None:
        least = most = read + written
    else:
        least, most = (
            columns.framed(lambda point: _span(point)[0]),
            columns.framed(lambda point: _span(point)[1]),
        )
    per_token = lanes / latency
    if whole is None:
        count = columns.framed(gpus)
        low, high = per_token * least / count, per_token * most / count
    else:
        low, high = per_token * least, per_token * most
    warning = (_MEAN_LIMITS if mean is not None else _MEDIAN_LIMITS)[0]
    # `distance` in columns: low <= high, so at most one of the two is outside.
    near = ((rate >= low) | (low / rate <= warning)) & ((rate <= high) | (1 / warning <= high / rate))
    known = usable_column(latency) & usable_column(lanes) & usable_column(low) & usable_column(high)
    return _LOOP_OK, known & usable_column(rate) & usable_column(least) & near


def _lanes(point: Point) -> int | None:
    return point.identity.concurrency


def _span(point: Point) -> tuple[float | None, float | None]:
    return stated_tokens(point) or (None, None)


_ONE_NO_FIGURES = skips("one_denominator", "no_three_rates")[0]
_ONE_OK = passed("one_denominator")


def one_denominator(point: Point, _context: Context) -> GateFinding:
    """Input + output = total per GPU: only then are the three divided by the same GPUs. It holds to the last digit in
    published aggregated rows; figures of one role have names of their own and are not looked at here."""
    figures = point.figures
    read, written = figures.get(INPUT_PER_GPU), figures.get(OUTPUT_PER_GPU)
    total = figures.get(TOTAL_PER_GPU)
    if read is None or written is None or total is None or not usable(total.value):
        return _ONE_NO_FIGURES
    ratio = (read.value + written.value) / total.value
    if abs(ratio - 1) <= DENOMINATOR_TOLERANCE:
        return _ONE_OK
    values: dict[str, object] = {
        "input": short(read.value),
        "output": short(written.value),
        "sum": short(read.value + written.value),
        "total": short(total.value),
        "tolerance_percent": percent(DENOMINATOR_TOLERANCE),
    }
    return GateFinding("one_denominator", Severity.QUARANTINE, values)


def _one_columns(columns: Columns) -> Said:
    read, written, total = (columns.of(each) for each in (INPUT_PER_GPU, OUTPUT_PER_GPU, TOTAL_PER_GPU))
    if read is None or written is None or total is None:
        return _ONE_NO_FIGURES, True
    return _ONE_OK, usable_column(total) & (abs((read + written) / total - 1) <= DENOMINATOR_TOLERANCE)


_SUM_SKIP = skips("totals_rates", "no_totals_or_duration")[0]
_SUM_OK = passed("totals_rates")
_PAIRS = (
    ("output_tokens_per_s", "output_tokens_total"),
    ("input_tokens_per_s", "input_tokens_total"),
)
_RATES = frozenset({"output_tokens_per_s", "input_tokens_per_s", "requests_per_s"})


def totals_rates(point: Point, _context: Context) -> GateFinding:
    """Rate x duration = total, for tokens and requests: a rate over another window than the stated one, or tokens of
    warm-up in the total, shows here."""
    duration, figures = point.duration_s, point.figures
    if duration is None or not usable(duration):
        return _SUM_SKIP
    if not _RATES & figures.keys():
        return _SUM_SKIP
    pairs = [(rate, point.value(rate), point.value(total)) for rate, total in _PAIRS]
    pairs.append(("requests_per_s", point.value("requests_per_s"), point.requests.ok))
    seen = False
    for name, rate, total in pairs:
        if rate is None or total is None or not usable(rate) or not usable(total):
            continue
        seen = True
        if abs(rate * duration / total - 1) > TOTALS_TOLERANCE:
            values: dict[str, object] = {
                "rate": name,
                "per_s": short(rate),
                "duration_s": short(duration),
                "product": short(rate * duration),
                "total": short(total),
                "tolerance_percent": percent(TOTALS_TOLERANCE),
            }
            return GateFinding("totals_rates", Severity.WARNING, values)
    return _SUM_OK if seen else _SUM_SKIP


GATES = (
    Gate(
        "closed_loop",
        1,
        closed_loop,
        CLOSED_LOOP_WARNING,
        "Little's law; three times the p90 residual of published fixed-length rows",
        columns=_loop_columns,
    ),
    Gate(
        "one_denominator",
        1,
        one_denominator,
        DENOMINATOR_TOLERANCE,
        "rounding to three digits; published rows are exact",
        columns=_one_columns,
    ),
    Gate(
        "totals_rates",
        1,
        totals_rates,
        TOTALS_TOLERANCE,
        "a window and a wall clock that differ by the ramp",
        idle=("duration", _SUM_SKIP),
    ),
)
"""The family in the order of its tables."""
