"""What a measured point costs by a rate card: dollars, provisioned energy, tokens and users a megawatt.

Every reading carries its card's edition (`NAME@DATE`), what it was made of and its formula with the numbers, so that it
can be made again from the card and the point. All formulas go by throughput per GPU over **all** GPUs deployed, X being
total, input or output tokens:

- $/M X tokens = $/GPU-hour / (X tok/s/GPU x 3600 / 10^6)
- provisioned J/X token = kW/GPU x 1000 / (X tok/s/GPU)
- X tok/s/MW = X tok/s/GPU x 1000 / (kW/GPU)
- users/MW = output tok/s/GPU / interactivity p50 x 1000 / (kW/GPU)
- $/user-hour = $/GPU-hour x interactivity p50 / (output tok/s/GPU)

They are the field's usual ones (a price spread over measured throughput; whole GPUs are not rounded). Joules that were
measured while it ran are figures of the point itself (`joules_per_output_token`) and no business of a card.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from servemark.analysis.labels import label
from servemark.analysis.measured import Measured
from servemark.analysis.rate_cards import RateCard
from servemark.base.messages import text
from servemark.metrics.address import Address, parse
from servemark.metrics.derive import TIMES
from servemark.metrics.registry import METRICS, Kind

INTERACTIVITY = "interactivity.p50"
COST_IDS = tuple(metric.id for metric in METRICS.values() if metric.kind is Kind.COST)
"""Ids of the metrics that need a rate card, in the registry's order."""

_HOURLY, _POWER = "usd_per_gpu_hour", "kw_per_gpu"


@dataclass(frozen=True, slots=True)
class CostReading:
    """A cost with its making, or the message key and values of the reason why there is none. `made_of` are (name, value)
    of the point's figures and the card's; `edition` is the card's `NAME@DATE`, `power_scope` its scope where power is
    part of the figure."""

    address: Address
    value: float | None
    edition: str | None
    reason: str | None = None
    reason_values: Mapping[str, object] = field(default_factory=dict)
    made_of: tuple[tuple[str, float], ...] = ()
    formula: str = ""
    power_scope: str | None = None

    def why(self, lang: str | None = None) -> str | None:
        """Why it is absent, in words; None for a value that is there."""
        if not self.reason:
            return None
        values = dict(self.reason_values)
        if isinstance(address := values.get("metric"), Address):
            values["metric"] = label(address, lang)
        if "why_key" in values:
            values["why"] = text(str(values["why_key"]), lang)
        return text(self.reason, lang, **values)


class _AbsentError(Exception):
    """A part is missing; `key` and `values` are the message of the reason."""

    def __init__(self, key: str, values: Mapping[str, object]) -> None:
        super().__init__(key)
        self.key = key
        self.values = values


def is_cost(address: Address | str) -> bool:
    """Whether an address is of a metric that needs a rate card."""
    chosen = parse(address) if isinstance(address, str) else address
    return chosen.metric.kind is Kind.COST


def cost_of(point: Measured, card: RateCard | None, address: Address | str) -> CostReading:
    """The cost that `address` names. Raises ServemarkError (exit code 2) for text that is no address, ValueError for an
    address that is no cost."""
    chosen = parse(address) if isinstance(address, str) else address
    if chosen.metric.kind is not Kind.COST:
        raise ValueError(f"{chosen} is no cost")
    if card is None:
        return CostReading(chosen, None, None, "analysis.cost.absent.no_card")
    try:
        return _made(point, card, chosen)
    except _AbsentError as gone:
        return CostReading(chosen, None, card.edition, gone.key, gone.values)


def cost_value(point: Measured, card: RateCard | None, address: Address | str) -> float | None:
    """The value of any address: costs by the card, all others as the point has them. None when absent."""
    chosen = parse(address) if isinstance(address, str) else address
    return cost_of(point, card, chosen).value if is_cost(chosen) else point.value(chosen)


def cost_from(
    throughput: Mapping[str, float], like: Measured, card: RateCard | None, address: Address | str
) -> CostReading:
    """The cost of an estimate: figures by address (`total_tokens_per_s_per_gpu`, `interactivity.p50`) that were
    estimated, on the GPUs of the point that it is like. A cost is always made of a throughput, never interpolated."""
    return cost_of(_with_figures(like, throughput), card, address)


def _with_figures(like: Measured, figures: Mapping[str, float]) -> Measured:
    stated = {name: value for name, value in figures.items() if name != INTERACTIVITY}
    if (speed := figures.get(INTERACTIVITY)) is not None and speed > 0:
        stated["tpot_s.p50"] = 1 / speed
    return replace(like, figures=stated)


def _made(point: Measured, card: RateCard, address: Address) -> CostReading:
    name = address.metric.id
    kind = next((each for each in ("total", "input", "output") if f"{each}_token" in name), "output")
    rate_name = f"{kind}_tokens_per_s_per_gpu"
    rate = _figure(point, rate_name)
    parts = [(rate_name, rate)]
    if "user" in name:
        speed = _figure(point, INTERACTIVITY)
        parts.append((INTERACTIVITY, speed))
        users = rate / speed
    priced = name.startswith("usd_")
    card_value, scope, written = _card_figure(point, card, _HOURLY if priced else _POWER)
    parts.append((_HOURLY if priced else _POWER, card_value))
    if name == "users_per_mw":
        value, formula = users * 1000 / card_value, f"{_n(rate)} ÷ {_n(speed)} {TIMES} 1000 ÷ {written}"
    elif name == "usd_per_user_hour":
        value, formula = card_value / users, f"{written} ÷ ({_n(rate)} ÷ {_n(speed)})"
    elif priced:
        value, formula = card_value / (rate * 3600 / 1e6), f"{written} ÷ ({_n(rate)} {TIMES} 3600 ÷ 1000000)"
    elif name.startswith("provisioned_joules"):
        value, formula = card_value * 1000 / rate, f"{written} {TIMES} 1000 ÷ {_n(rate)}"
    else:
        value, formula = rate * 1000 / card_value, f"{_n(rate)} {TIMES} 1000 ÷ {written}"
    if not math.isfinite(value):
        raise _AbsentError("analysis.cost.absent.zero", {"metric": parse(rate_name)})
    return CostReading(address, value, card.edition, None, {}, tuple(parts), formula, scope)


def _figure(point: Measured, name: str) -> float:
    """A figure above 0 of the point."""
    reading = point.reading(name)
    value = reading.value
    if value is None:
        values = {"metric": reading.address, "why_key": reading.reason or "metrics.absent.always"}
        raise _AbsentError("analysis.cost.absent.figure", values)
    if not (math.isfinite(value) and value > 0):
        raise _AbsentError("analysis.cost.absent.zero", {"metric": reading.address})
    return value


def _card_figure(point: Measured, card: RateCard, which: str) -> tuple[float, str | None, str]:
    """(value per GPU deployed, scope of a power, how it is written). Where roles run on unlike GPUs it is the mean over
    the GPUs of all roles."""
    kinds = [(role.hardware or point.identity.hardware, role.gpus) for role in point.identity.topology]
    if len({gpu for gpu, _ in kinds}) < 2:
        gpu = kinds[0][0] if kinds else point.identity.hardware
        value, scope = _one_gpu(card, gpu, which)
        return value, scope, _n(value)
    total, sums, scopes, written = 0, 0.0, set(), []
    for gpu, count in kinds:
        if not count:
            listed = ", ".join(dict.fromkeys(name for name, _ in kinds))
            raise _AbsentError("analysis.cost.absent.mixed", {"gpus": listed})
        value, scope = _one_gpu(card, gpu, which)
        total, sums = total + count, sums + count * value
        scopes.add(scope)
        written.append(f"{count} {TIMES} {_n(value)}")
    if len(scopes) > 1:
        raise _AbsentError("analysis.cost.absent.scopes", {"card": card.edition})
    return sums / total, scopes.pop(), f"(({' + '.join(written)}) ÷ {total})"


def _one_gpu(card: RateCard, gpu: str, which: str) -> tuple[float, str | None]:
    found = card.rate(gpu)
    values = {"card": card.edition, "gpu": gpu}
    if found is None:
        raise _AbsentError("analysis.cost.absent.no_gpu", values)
    if which == _HOURLY:
        if found.usd_per_gpu_hour is None:
            raise _AbsentError("analysis.cost.absent.no_price", values)
        return found.usd_per_gpu_hour.value, None
    if found.kw_per_gpu is None:
        raise _AbsentError("analysis.cost.absent.no_power", values)
    return found.kw_per_gpu.value, found.power_scope


def _n(value: float) -> str:
    return f"{value:.9g}"
