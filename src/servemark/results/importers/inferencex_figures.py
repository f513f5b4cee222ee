"""Keys of InferenceX rows -> metric addresses, by the definition of the format: latencies are seconds, rates tokens/s.

Keys are planned once for each set of keys and then only looked up. `*_intvty` is never taken: in one format its p90 is
the fast tail and in another the slow one, and 1 / latency gives it at reading time.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from servemark.results.figures import Figure, Figures, FigureShape, number_of, with_more
from servemark.results.importers.inferencex_names import Problem

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
POOL = {
    "tput_per_gpu": "total_tokens_per_s_per_gpu",
    "input_tput_per_gpu": "input_tokens_per_s_per_gpu",
    "output_tput_per_gpu": "output_tokens_per_s_per_gpu",
}
POOL_POWERS = {key: key for key in ("joules_per_input_token", "joules_per_output_token")}
"""Of one pool of GPUs; with prefill and decode roles their denominator depends on the row: `inferencex_gpus`, `energy`."""
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
_NAMED_POOL = {**_NAMED, **POOL, **POOL_POWERS}
_POWER_KEYS = frozenset({*POWERS, *POOL_POWERS})
INTERACTIVITY_NOTE = "interactivity as stated was left out: it is derived from the latencies"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to take of rows with one set of keys: (key, address, definition, place)."""

    take: tuple[tuple[str, str, str, str], ...]
    notes: tuple[str, ...]
    power: bool
    seen: tuple[str, ...]
    expected: bool
    shape: FigureShape | None
    """Of a row that has a number at each key; None where two keys name one address."""
    numbers: Callable[[Mapping[str, object]], tuple[object, ...]]
    """The values at the keys of `take`."""


@lru_cache(maxsize=512)
def plan(keys: tuple[str, ...], place: str, latency: str, pool: bool) -> Plan:
    """The plan for rows with these keys at the JSON pointer `place`; `latency` is the definition of their latencies,
    `pool` says that all their per-GPU figures are over one pool of GPUs."""
    named = _NAMED_POOL if pool else _NAMED
    take = []
    rates = False
    for key in keys:
        at = f"{place}/{key}"
        if key in named:
            take.append((key, named[key], POWER if key in _POWER_KEYS else latency, at))
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
    seen = tuple(key for key in SEEN if key in keys)
    notes = (INTERACTIVITY_NOTE,) if rates else ()
    power = not _POWER_KEYS.isdisjoint(keys)
    rows = [(address, definition, at) for _, address, definition, at in take]
    single = len({address for address, _, _ in rows}) == len(rows) > 1
    return Plan(
        tuple(take), notes, power, seen, "mean_output_tokens_expected" in keys,
        FigureShape(rows) if single else None, itemgetter(*[key for key, *_ in take]) if take else tuple,
    )  # fmt: skip


_MOST = sys.float_info.max


class FieldError(Exception):
    """A figure that cannot be one: message key and values as for a `Problem`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.reason)
        self.problem = problem


def number(value: object, key: str) -> float | None:
    """A number that is not negative and that a float can hold; None for null. Raises FieldError for anything else."""
    if value is None:
        return None
    if value.__class__ is not float and value.__class__ is not int:
        raise FieldError(
            Problem("results.import_not_a_number", {"field": key, "value": repr(value)[:60]}, True)
        )
    found: float = value
    if 0 <= found <= _MOST:
        return found
    if found > 0:
        raise FieldError(Problem("results.import_not_finite", {"field": key, "value": str(value)[:60]}, True))
    raise FieldError(Problem("results.import_negative", {"field": key, "value": found}, True))


def take(row: Mapping[str, object], what: Plan, power_valid: bool = True) -> Mapping[str, Figure]:
    """The planned figures of one row; those of power only where the row does not call them invalid."""
    if what.shape is not None and (power_valid or not what.power):
        values = what.numbers(row)
        if set(map(type, values)) == _FLOATS and min(values) >= 0:  # type: ignore[type-var,operator]
            return Figures(what.shape, values)  # type: ignore[arg-type]
    figures: dict[str, Figure] = {}
    for key, address, definition, at in what.take:
        found = number(row[key], key)
        if found is not None:
            figures[address] = Figure(float(found), definition, at)
    if what.power and not power_valid:
        return {address: figure for address, figure in figures.items() if figure.definition != POWER}
    return figures


_FLOATS = {float}


def energy(
    row: Mapping[str, object], place: str, figures: Mapping[str, Figure]
) -> tuple[Mapping[str, Figure], tuple[str, ...]]:
    """The figures with joules per input and output token of a row with roles, under the id of what they are over; a note
    where that cannot be told. Where power was read by role, the energy of prefill GPUs was divided by input tokens and
    that of decode GPUs by output tokens: power of a role / its tokens per GPU then gives the figure.
    """
    notes: tuple[str, ...] = ()
    found: dict[str, Figure] = {}
    for kind, role in (("input", "prefill"), ("output", "decode")):
        key = f"joules_per_{kind}_token"
        value = number(row.get(key), key)
        if value is None:
            continue
        if _is_of(value, figures, f"{role}_gpu_power_w.mean", f"{kind}_tokens_per_s_per_{role}_gpu"):
            found[f"{role}_{key}"] = Figure(float(value), POWER, f"{place}/{key}")
        elif _is_of(value, figures, "gpu_power_w.mean", f"{kind}_tokens_per_s_per_gpu"):
            found[key] = Figure(float(value), POWER, f"{place}/{key}")
        else:
            notes = (f"{key} was left out: it is not known over which GPUs it is",)
    return with_more(figures, found), notes


def _is_of(joules: float, figures: Mapping[str, Figure], power: str, rate: str) -> bool:
    """Whether joules per token are mean power of a GPU / tokens per GPU of the same GPUs."""
    watts, tokens = number_of(figures, power), number_of(figures, rate)
    return watts is not None and tokens is not None and abs(joules * tokens - watts) <= 0.02 * watts
