"""What vLLM's and SGLang's serving benchmarks share: one flat object a run, statistics named in the key.

Both compute percentiles with linear interpolation over the ok requests and the population standard deviation; TPOT is
(latency - TTFT) / (output tokens - 1).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from servemark.results.importers.base import Given
from servemark.results.importers.json_values import json_objects
from servemark.results.importers.mapping import (
    STATISTICS,
    Draft,
    RowError,
    number,
    rows_of,
    utc,
    whole,
    words,
)
from servemark.results.point import Mapped, Requests, Scenario

DROPPED = frozenset((b"itls", b"generated_texts", b"start_times", b"cached_tokens_details"))
"""Per-token and per-text lists: thousands of times the size of the figures, and no figure is made of them."""
MAX_METADATA = 50
_STATISTIC = re.compile(r"(mean|median|std|p[0-9.]+)_(ttft|tpot|itl|e2el|e2e_latency)(_ms)?")
_DATE = re.compile(r"(20[0-9]{2})(0[1-9]|1[0-2])([0-2][0-9]|3[01])-")
_METRICS = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "itl_s", "e2el": "e2el_s", "e2e_latency": "e2el_s"}
ENGINES = {"vllm": "vllm", "sglang": "sglang", "sglang-native": "sglang", "sglang-oai": "sglang",
           "sglang-oai-chat": "sglang", "trt": "tensorrt-llm", "tensorrt-llm": "tensorrt-llm"}  # fmt: skip
"""The client's `--backend` where it names an engine; `openai` and the like name a protocol only."""


@lru_cache(maxsize=512)
def _named(key: str) -> tuple[str | None, float] | None:
    """Address and scale of a key; no address for a statistic that none names, None for a key of another kind."""
    match = _STATISTIC.fullmatch(key)
    if match is None:
        return None
    statistic, metric, milliseconds = match.groups()
    ours = STATISTICS.get(statistic)
    return f"{_METRICS[metric]}.{ours}" if ours else None, 1e-3 if milliseconds else 1.0


def latencies(draft: Draft, row: Mapping[str, object]) -> None:
    """Every `STAT_METRIC` (seconds) and `STAT_METRIC_ms` (milliseconds) of the row as a figure in seconds.

    The unit is the key's own definition: `_ms` for milliseconds, none for seconds. Raises RowError where both stand.
    """
    left_out = []
    units: set[float] = set()
    for key, value in row.items():
        named = _named(key)
        if named is None:
            continue
        address, scale = named
        if address is None:
            left_out.append(key)
            continue
        units.add(scale)
        if address in draft.figures and key.startswith("median_"):
            continue  # p50 stands already
        draft.add(address, value, f"/{key}", scale, "ms / 1000" if scale != 1.0 else None)
    if len(units) > 1:
        raise RowError("results.import_two_units")
    if left_out:
        draft.notes.append("kept in the raw row only: " + ", ".join(sorted(left_out)[:20]))


def totals(draft: Draft, row: Mapping[str, object], rates: Mapping[str, str]) -> None:
    """Counts, tokens, rates and the load's own facts, which both tools name alike. `rates`: key -> metric."""
    planned, ok = whole(row.get("num_prompts"), "/num_prompts"), whole(row.get("completed"), "/completed")
    failed = whole(row.get("failed"), "/failed")
    errors = [error for error in rows_of(row.get("errors")) if error]
    if failed is None and isinstance(row.get("errors"), list):
        failed = len(errors)
    draft.requests = Requests(planned=planned, ok=ok, error=failed)
    draft.complete = planned is None or ok is None or ok + (failed or 0) >= planned
    draft.duration_s = number(row.get("duration"), "/duration")
    draft.add("window_s", row.get("duration"), "/duration")
    for key, metric in rates.items():
        draft.add(metric, row.get(key), f"/{key}")
    for side in ("input", "output"):
        key = f"total_{side}_tokens"
        total = number(row.get(key), f"/{key}")
        draft.add(f"{side}_tokens_total", row.get(key), f"/{key}")
        if total is not None and ok:
            draft.add(f"{side}_tokens.mean", total / ok, f"/{key}", how=f"{total:.0f} / {ok} ok requests")
            draft.extra[f"mean_{side}_tokens"] = round(total / ok)
    if isinstance(row.get("ttfts"), list):
        draft.add("ttft_s.n", sum(bool(one) for one in rows_of(row["ttfts"])), "/ttfts", how="values above 0")
    draft.concurrency = whole(row.get("max_concurrency"), "/max_concurrency")
    arrivals(draft, row)


def arrivals(draft: Draft, row: Mapping[str, object]) -> None:
    """`request_rate` `inf` with a cap on concurrency is a closed loop; a number is an open one. Both is both."""
    rate = row.get("request_rate")
    kind = words(row.get("dataset_name")) or "unknown"
    scenario = Scenario("random" if kind in ("random", "random-ids") else kind)
    if rate in (None, "inf", "Infinity", float("inf")):
        if draft.concurrency is None:
            draft.extra["arrivals"] = "all at once"
    elif rate != "trace":
        value = number(rate, "/request_rate")
        shape = number(row.get("burstiness"), "/burstiness")
        named = "poisson" if shape in (None, 1.0) else f"gamma-{shape:g}"
        scenario = Scenario(scenario.type, arrivals=f"{named}:{value:g}")
    else:
        scenario = Scenario("trace", arrivals="trace")
    draft.scenario = scenario


def metadata(draft: Draft, row: Mapping[str, object], known: frozenset[str]) -> None:
    """What else the row says (`--metadata KEY=VALUE` stands beside the figures): small values, as declared."""
    other = {
        key[:80]: value[:300] if isinstance(value, str) else value
        for key, value in row.items()
        if key not in known
        and _named(key) is None
        and isinstance(value, str | int | float)
        and (not isinstance(value, float) or math.isfinite(value))
    }
    if other:
        draft.declared["metadata"] = dict(list(other.items())[:MAX_METADATA])


def dated(text: object) -> str | None:
    """`20260213-135636` in the client's local time, whose zone is not said: the date alone."""
    match = _DATE.match(text) if isinstance(text, str) else None
    return "-".join(match.groups()) if match else None


def span(draft: Draft, row: Mapping[str, object]) -> None:
    """When it ran, where the row says it as seconds since 1970; else the date."""
    draft.started_utc = utc(number(row.get("benchmark_start_time_unix"), "/benchmark_start_time_unix"))
    draft.finished_utc = utc(number(row.get("benchmark_end_time_unix"), "/benchmark_end_time_unix"))
    draft.started_utc = draft.started_utc or dated(row.get("date"))


def read_rows(given: Given, fill: Callable[[Draft, dict[str, object]], None], empty: Callable[[], Draft],
              drop: frozenset[bytes] = DROPPED) -> Iterator[Mapped]:  # fmt: skip
    """Every object of the file through `fill`; a row that is wrong becomes `invalid` and the next one goes on."""
    for ordinal, (data, value) in enumerate(json_objects(given, drop)):
        draft = empty()
        draft.ordinal, draft.raw = ordinal, data
        try:
            fill(draft, value)
            yield draft.mapped()
        except RowError as error:
            yield draft.failed(error)


def head_has(given: Given, *names: str) -> bool:
    """All of these keys stand in the head."""
    return all(json.dumps(name).encode() in given.head for name in names)
