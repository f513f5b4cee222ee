"""Keys of InferenceX rows -> metric addresses, by the definition of the format: latencies are seconds, rates tokens/s.

Keys are planned once for each set of keys and then only looked up. `*_intvty` is never taken: in one format its p90 is
the fast tail and in another the slow one, and 1 / latency gives it at reading time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from servemark.results.importers.inferencex_names import Problem
from servemark.results.point import Figure

FIXED = "inferencex-fixed-seq-1"
"""Per request, percentiles interpolated linearly: TPOT = (e2el - ttft) / (output tokens - 1), ITL every gap of chunks."""
AGENTIC = "inferencex-agentic-1"
"""Per request, percentiles interpolated linearly: ITL and TPOT are both (e2el - ttft) / (output tokens - 1)."""
POWER = "inferencex-power-1"
"""GPU power alone, as the vendor's tool reports it: no host, switches or cooling."""

LATENCIES = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "itl_s", "e2el": "e2el_s"}
TOKENS = {"input_tokens": "input_tokens", "output_tokens_actual": "output_tokens"}
RATES = {
    "total_tput_tps": "total_tokens_per_s",
    "input_tput_tps": "input_tokens_per_s",
    "output_tput_tps": "output_tokens_per_s",
}
SHARES = {
    "theoretical_cache_hit_rate": "cache_hit_theoretical_blocks",
    "server_gpu_cache_hit_rate": "cache_hit_engine_gpu",
    "server_cpu_cache_hit_rate": "cache_hit_engine_cpu",
    "server_external_cache_hit_rate": "cache_hit_engine_external",
    "server_overall_cache_hit_rate": "cache_hit_engine",
}
POWERS = {
    "avg_power_w": "gpu_power_w.mean",
    "p75_power_w": "gpu_power_w.p75",
    "p90_power_w": "gpu_power_w.p90",
    "avg_total_gpu_power_w": "gpus_power_w.mean",
    "p75_total_gpu_power_w": "gpus_power_w.p75",
    "p90_total_gpu_power_w": "gpus_power_w.p90",
    "total_gpu_energy_j": "gpus_energy_j",
    "prefill_avg_power_w": "prefill_gpu_power_w.mean",
    "decode_avg_power_w": "decode_gpu_power_w.mean",
    "joules_per_successful_query": "joules_per_request",
    "joules_per_total_token": "joules_per_total_token",
}
"""`gpu_power_w` is of one GPU, `gpus_power_w` and `gpus_energy_j` of all GPUs deployed together."""
HANDLED = frozenset(
    {
        "tput_per_gpu",
        "input_tput_per_gpu",
        "output_tput_per_gpu",
        "joules_per_input_token",
        "joules_per_output_token",
    }
)
"""Figures whose denominator depends on the row: see `inferencex_gpus` and `energy`."""

SEEN = (
    "avg_util_pct",
    "avg_mem_used_mb",
    "kv_cache_pool_tokens",
    "power_invalid_reasons",
    "allocated_cpu_dram_gb",
)
"""Kept as observed, without a metric."""
_STATISTIC = re.compile(r"(mean|median|std|min|max|p\d{1,2}(?:\.\d{1,3})?)_(.+)\Z")
_NAMED = {**RATES, **SHARES, **POWERS}
INTERACTIVITY_NOTE = "interactivity as stated was left out: it is derived from the latencies"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to take of rows with one set of keys: (key, address, definition, place)."""

    take: tuple[tuple[str, str, str, str], ...]
    rates_left_out: bool
    power: bool
    seen: tuple[str, ...]


@lru_cache(maxsize=512)
def plan(keys: tuple[str, ...], place: str, latency: str) -> Plan:
    """The plan for rows with these keys at the JSON pointer `place`; `latency` is the definition of their latencies."""
    take = []
    rates = power = False
    for key in keys:
        at = f"{place}/{key}"
        if key in _NAMED:
            power |= key in POWERS
            take.append((key, _NAMED[key], POWER if key in POWERS else latency, at))
            continue
        found = _STATISTIC.match(key)
        if found is None:
            continue
        statistic, metric = found.groups()
        if metric.endswith("intvty"):
            rates = True
            continue
        name = LATENCIES.get(metric) or TOKENS.get(metric)
        if name is not None:
            take.append((key, f"{name}.{'p50' if statistic == 'median' else statistic}", latency, at))
    return Plan(tuple(take), rates, power, tuple(key for key in SEEN if key in keys))


_new = Figure.__new__
_value, _definition, _at, _stated, _how = (
    Figure.__dict__[name].__set__ for name in ("value", "definition", "at", "stated", "how")
)


def figure(value: float, definition: str, at: str) -> Figure:
    """As `Figure(value, definition, at)` in half the time: a frozen dataclass sets its fields by name, and a row has
    dozens of figures."""
    made = _new(Figure)
    _value(made, value)
    _definition(made, definition)
    _at(made, at)
    _stated(made, None)
    _how(made, None)
    return made


class FieldError(Exception):
    """A figure that cannot be one: message key and values as for a `Problem`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.reason)
        self.problem = problem


def number(value: object, key: str) -> float | None:
    """A finite number that is not negative; None for null. Raises FieldError for anything else."""
    if value is None:
        return None
    if value.__class__ is not float and value.__class__ is not int:
        raise FieldError(
            Problem("results.import_not_a_number", {"field": key, "value": repr(value)[:60]}, True)
        )
    found: float = value
    if found >= 0:
        return found
    raise FieldError(Problem("results.import_negative", {"field": key, "value": found}, True))


def take(row: Mapping[str, object], what: Plan, power_valid: bool = True) -> dict[str, Figure]:
    """The planned figures of one row; those of power only where the row does not call them invalid."""
    figures: dict[str, Figure] = {}
    for key, address, definition, at in what.take:
        value = row[key]
        if value.__class__ is float and value >= 0:
            figures[address] = figure(value, definition, at)
            continue
        found = number(value, key)
        if found is not None:
            figures[address] = figure(float(found), definition, at)
    if what.power and not power_valid:
        return {address: figure for address, figure in figures.items() if figure.definition != POWER}
    return figures


def energy(
    row: Mapping[str, object], place: str, figures: dict[str, Figure], disaggregated: bool
) -> str | None:
    """Joules per input and output token under the id of what they are over; a note where that cannot be told.

    Aggregated rows divide the energy of all GPUs. Disaggregated ones divide that of prefill GPUs by input and that of
    decode GPUs by output where power was read by role: power of a role / its tokens per GPU then gives the figure.
    """
    note = None
    for kind, role in (("input", "prefill"), ("output", "decode")):
        key = f"joules_per_{kind}_token"
        value = number(row.get(key), key)
        if value is None:
            continue
        address = key
        if disaggregated:
            rate = figures.get(f"{kind}_tokens_per_s_per_{role}_gpu")
            power = figures.get(f"{role}_gpu_power_w.mean")
            if (
                rate is not None
                and power is not None
                and abs(value * rate.value - power.value) <= 0.02 * power.value
            ):
                address = f"{role}_{key}"
            elif not _whole(value, figures, kind):
                note = f"{key} was left out: it is not known over which GPUs it is"
                continue
        figures[address] = Figure(float(value), POWER, f"{place}/{key}")
    return note


def _whole(value: float, figures: Mapping[str, Figure], kind: str) -> bool:
    """Whether joules per token are those of all GPUs: mean power of a GPU / tokens per GPU."""
    power, rate = figures.get("gpu_power_w.mean"), figures.get(f"{kind}_tokens_per_s_per_gpu")
    return (
        power is not None and rate is not None and abs(value * rate.value - power.value) <= 0.02 * power.value
    )
