"""The value of an address from a row, when it is asked for. A row is any mapping shaped like `result.json`.

Rates are made here from latencies, counts and the window; nothing derived is ever stored or trusted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from servemark.metrics.address import Address, parse
from servemark.metrics.registry import FLIPPED, IMPORTED_STATISTICS, METRICS, Kind, Metric, Need

Row = Mapping[str, object]

TIMES = "\u00d7"


@dataclass(frozen=True, slots=True)
class Operand:
    """One stored figure that a value is made from: its dotted field in the row, and what stands there."""

    field: str
    value: float | None


@dataclass(frozen=True, slots=True)
class Reading:
    """A value in its metric's unit, or None with the message key of the reason. `operands` are what it was
    made of, `substituted` the formula with their numbers (empty when the figure is stored as it is)."""

    address: Address
    value: float | None
    reason: str | None
    operands: tuple[Operand, ...]
    substituted: str


def field_value(row: Row, dotted: str) -> float | None:
    """The number at a dotted path; None for anything missing, not a number, or not finite."""
    here: object = row
    for part in dotted.split("."):
        if not isinstance(here, Mapping):
            return None
        here = here.get(part)
    if isinstance(here, bool) or not isinstance(here, int | float):
        return None
    try:
        return here if math.isfinite(here) else None
    except OverflowError:  # a whole number beyond any double
        return None


def _plain(value: float | None) -> str:
    """A number for a written-out formula: at most nine significant digits, no exponent for everyday sizes."""
    if value is None:
        return "—"
    return str(value) if isinstance(value, int) else f"{value:.9g}"


def _sum(operands: Sequence[Operand]) -> float | None:
    values = [operand.value for operand in operands]
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _group(operands: Sequence[Operand]) -> str:
    text = " + ".join(_plain(operand.value) for operand in operands)
    return f"({text})" if len(operands) > 1 else text


def _ratio(row: Row, address: Address) -> Reading:
    """Evaluate a derived metric's `Ratio`; absent as soon as one part is absent or the divisor is not above
    zero."""
    metric = address.metric
    ratio = metric.ratio
    if ratio is None:
        raise ValueError(f"{metric.id} is derived but has no ratio")
    statistic = address.statistic or ""
    statistic = FLIPPED.get(statistic, statistic)

    def read(names: tuple[str, ...]) -> list[Operand]:
        places = [name.replace("{q}", statistic) for name in names]
        return [Operand(place, field_value(row, place)) for place in places]

    over, under, per = read(ratio.over), read(ratio.under), read(ratio.per)
    operands = (*over, *under, *per)
    top = _sum(over) if over else 1.0
    bottom = _sum(under)
    for operand in per:
        bottom = None if bottom is None or operand.value is None else bottom * operand.value
    if top is None or bottom is None or bottom <= 0:
        return Reading(address, None, _reason(row, metric), operands, "")
    written = " ÷ ".join(
        [_group(over) if over else "1", _group(under), *(_plain(each.value) for each in per)]
    )
    if ratio.scale != 1.0:
        written += f" {TIMES} {_plain(ratio.scale)}"
    return Reading(address, top / bottom * ratio.scale, None, operands, written)


def _reason(row: Row, metric: Metric) -> str:
    """Message key that says why this row has no such value: the first missing need, from the plainest on."""
    gpus = metric.ratio is not None and "gpus_deployed" in metric.ratio.per
    if gpus and not field_value(row, "gpus_deployed"):
        return "metrics.absent.gpus"
    if field_value(row, "counts.ok") == 0 and metric.need is not Need.ALWAYS:
        return "metrics.absent.no_ok_request"
    parts = metric.ratio.over if metric.ratio else ()
    if metric.need in (Need.WINDOW, Need.GPUS) and any(
        name.startswith("tokens.") and field_value(row, name) is None for name in parts
    ):
        return "metrics.absent.usage"
    need = Need.WINDOW if metric.need is Need.GPUS else metric.need
    return f"metrics.absent.{need.value}"


def _tasks(row: Row) -> list[Mapping[str, object]]:
    scores = row.get("evals")
    if not isinstance(scores, Sequence) or isinstance(scores, str):
        return []
    return [score for score in scores if isinstance(score, Mapping)]


def _task_score(row: Row, address: Address) -> Reading:
    """An accuracy task's score by name; without a name only where the row has exactly one task."""
    found = [
        (index, score)
        for index, score in enumerate(_tasks(row))
        if address.task is None or score.get("task") == address.task
    ]
    if len(found) != 1:
        reason = "metrics.absent.several_tasks" if len(found) > 1 else "metrics.absent.eval"
        return Reading(address, None, reason, (), "")
    index, score = found[0]
    operands = tuple(
        Operand(f"evals.{index}.{name}", field_value(score, name)) for name in ("correct", "n", "score")
    )
    value = operands[2].value
    n, unanswered = operands[1].value, field_value(score, "unanswered")
    if n is not None and unanswered is not None and unanswered >= n:
        return Reading(address, None, "metrics.absent.no_answer", (), "")
    written = f"{_plain(operands[0].value)} ÷ {_plain(operands[1].value)}"
    if value is None:
        return Reading(address, None, "metrics.absent.eval", (), "")
    return Reading(address, value, None, operands, written)


def read(row: Row, address: Address | str) -> Reading:
    """The figure that `address` names in `row`, with its making, or the reason why it is absent.

    Raises ServemarkError (exit code 2) for text that is no address.
    """
    chosen = parse(address) if isinstance(address, str) else address
    metric = chosen.metric
    if metric.kind is Kind.TELEMETRY or chosen.statistic in IMPORTED_STATISTICS:
        lacks = metric.need.value if metric.kind is Kind.TELEMETRY else "imported"
        return Reading(chosen, None, f"metrics.absent.{lacks}", (), "")
    if metric.kind is Kind.DERIVED:
        return _ratio(row, chosen)
    if metric.kind is Kind.TASK:
        return _task_score(row, chosen)
    field = f"{metric.field}.{chosen.statistic}" if chosen.statistic else metric.field
    value = field_value(row, field)
    if value is not None:
        return Reading(chosen, value, None, (Operand(field, value),), "")
    if chosen.statistic == "std" and field_value(row, f"{metric.field}.n") == 1:
        return Reading(chosen, None, "metrics.absent.one_value", (), "")
    return Reading(chosen, None, _reason(row, metric), (), "")


def value_of(row: Row, address: Address | str) -> float | None:
    """The figure alone; None when absent."""
    return read(row, address).value


def latency_behind(metric: Metric) -> Metric:
    """The latency that a rate is the inverse of, or the metric itself."""
    return METRICS[metric.inverse_of] if metric.inverse_of else metric
