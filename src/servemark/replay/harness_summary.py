"""The summary that AIPerf and its fork write, read as figures that can stand beside ours."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import input_error

MAX_BYTES = 64 * 2**20
_TO_SECONDS = {"ms": 1e-3, "sec": 1.0, "s": 1.0, "us": 1e-6, "ns": 1e-9}

LATENCIES: Mapping[str, str] = {
    "ttft_s": "time_to_first_token",
    "ttfo_s": "time_to_first_output_token",
    "tpot_s": "inter_token_latency",
    "chunk_gap_s": "inter_chunk_latency",
    "e2el_s": "request_latency",
}
"""Our metric -> theirs of the same meaning. Theirs start before connecting, and what they call inter-token latency is a
mean per request."""
FIGURES: Mapping[str, str] = {
    "output_tokens_per_s": "output_token_throughput",
    "requests_per_s": "request_throughput",
    "input_tokens": "total_isl",
    "output_tokens": "total_osl",
    "window_s": "benchmark_duration",
}


@dataclass(frozen=True, slots=True)
class HarnessSummary:
    """Seconds and plain counts; what the file does not hold is missing or None. `latencies`: metric ->
    {"p50": …, "p90": …, "p99": …}, interpolated percentiles of theirs."""

    version: str | None
    latencies: Mapping[str, Mapping[str, float]]
    figures: Mapping[str, float]
    ok: int | None
    errors: int
    complete: bool


def read_summary(path: Path) -> HarnessSummary:
    """Read `profile_export_aiperf.json`. Raises ServemarkError (exit code 2) for a file that is missing, too large or
    not one."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        found = json.loads(data) if len(data) <= MAX_BYTES else None
    except OSError as error:
        raise input_error("replay.harness_summary", path=path, reason=error.strerror or error) from None
    except (ValueError, RecursionError) as error:
        raise input_error("replay.harness_summary", path=path, reason=str(error)[:200]) from None
    if not isinstance(found, dict):
        raise input_error("replay.harness_summary", path=path, reason=type(found).__name__)
    version = found.get("aiperf_version")
    latencies = {ours: q for ours, theirs in LATENCIES.items() if (q := _percentiles(found.get(theirs)))}
    figures = {o: v for o, t in FIGURES.items() if (v := _number(found.get(t), "avg")) is not None}
    ok = _number(found.get("request_count"), "avg")
    errors = found.get("error_summary")
    counts = (
        [each.get("count") for each in errors if isinstance(each, dict)] if isinstance(errors, list) else []
    )
    return HarnessSummary(
        version=str(version)[:40] if version is not None else None,
        latencies=latencies,
        figures=figures,
        ok=None if ok is None else int(ok),
        errors=sum(n for n in counts if isinstance(n, int) and n > 0),
        complete=found.get("is_complete", True) is True and found.get("was_cancelled") is not True,
    )


def _percentiles(metric: object) -> dict[str, float]:
    if not isinstance(metric, dict):
        return {}
    scale = _TO_SECONDS.get(str(metric.get("unit")))
    if scale is None:
        return {}
    values = {q: _number(metric, q) for q in ("p50", "p90", "p99")}
    return {q: value * scale for q, value in values.items() if value is not None}


def _number(metric: object, name: str) -> float | None:
    value = metric.get(name) if isinstance(metric, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
