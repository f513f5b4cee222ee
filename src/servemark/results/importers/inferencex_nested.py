"""The newest aggregate (`request_metrics`) as the flat keys of the older ones, each with its own place kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PLACES = {
    "ttft": "latency", "tpot": "latency", "itl": "latency", "e2el": "latency", "intvty": "latency",
    "input": "tokens", "output_actual": "tokens", "output_expected": "tokens",
}  # fmt: skip
FLAT = {
    "input": "input_tokens",
    "output_actual": "output_tokens_actual",
    "output_expected": "output_tokens_expected",
}
SERVER = {
    "gpu_cache_hit_rate": "server_gpu_cache_hit_rate",
    "cpu_cache_hit_rate": "server_cpu_cache_hit_rate",
    "external_cache_hit_rate": "server_external_cache_hit_rate",
    "overall_cache_hit_rate": "server_overall_cache_hit_rate",
}
PER_GPU = {
    "total_tput_tps": "tput_per_gpu",
    "input_tput_tps": "input_tput_per_gpu",
    "output_tput_tps": "output_tput_per_gpu",
}


def _part(value: object, *names: str) -> dict[str, Any]:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def flatten(row: dict[str, Any]) -> dict[str, Any]:
    """The row's own top-level figures with the nested ones under their flat keys."""
    flat = {key: value for key, value in row.items() if not isinstance(value, dict)}
    flat.update((key, value) for key, value, _ in _nested(row))
    return flat


def places(row: dict[str, Any]) -> dict[str, str]:
    """Flat key -> JSON pointer of the figure in a nested row."""
    return {key: place for key, _, place in _nested(row)}


def _nested(row: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """(flat key, value, JSON pointer) of every figure in a nested row."""
    for name, group in PLACES.items():
        for statistic, value in _part(row, "request_metrics", group, name).items():
            flat = "median" if statistic == "p50" else statistic
            yield f"{flat}_{FLAT.get(name, name)}", value, f"/request_metrics/{group}/{name}/{statistic}"
    rates = _part(row, "request_metrics", "throughput")
    for kind in ("total", "input", "output"):
        value = _part(rates, kind).get("tokens_per_second")
        if value is not None:
            yield f"{kind}_tput_tps", value, f"/request_metrics/throughput/{kind}/tokens_per_second"
    for name, flat in PER_GPU.items():
        value = _part(rates, "per_gpu").get(name)
        if value is not None:
            yield flat, value, f"/request_metrics/throughput/per_gpu/{name}"
    value = _part(row, "request_metrics", "cache").get("theoretical_cache_hit_rate")
    if value is not None:
        yield "theoretical_cache_hit_rate", value, "/request_metrics/cache/theoretical_cache_hit_rate"
    for name, flat in SERVER.items():
        value = _part(row, "server_metrics", "cache").get(name)
        if value is not None:
            yield flat, value, f"/server_metrics/cache/{name}"
