"""GuideLLM's JSON report: one file, a point for each of its benchmarks.

Two of its names mean something else than ours. Its `time_per_output_token_ms` is (last token - request start) / output
tokens, so it holds the TTFT: our latency per token. Its `inter_token_latency_ms` is (last - first token) / (output
tokens - 1) of a request: our TPOT, but each request weighs as many times as it has tokens. Percentiles are nearest rank.
Latencies are of successful requests; rates are its own `mean` over the measured window.
Its rates rest on a list of events and differ from count / duration.
Fields: GuideLLM 0.8.1 (report version 2), as its own output shows them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from servemark.results.importers.base import Given, Importer
from servemark.results.importers.bench_serving import head_has
from servemark.results.importers.json_values import json_values, parse_object
from servemark.results.importers.mapping import Draft, RowError, number, part, rows_of, utc, whole, words
from servemark.results.point import Mapped, Requests, Scenario

VERSION = 2
DROPPED = frozenset((b"requests", b"generative_requests"))
"""Every request with its text; the lists under `benchmarks[]`."""
MAX_BENCHMARKS = 10_000
_SPREADS = {
    "time_to_first_token_ms": ("ttft_s", 1e-3, None),
    "time_to_first_output_token_ms": ("ttfo_s", 1e-3, None),
    "time_per_output_token_ms": (
        "e2el_per_token_s",
        1e-3,
        "ms / 1000; token-weighted, the first token included",
    ),
    "inter_token_latency_ms": ("tpot_s", 1e-3, "ms / 1000; token-weighted"),
    "request_latency": ("e2el_s", 1.0, None),
    "prompt_token_count": ("input_tokens", 1.0, None),
    "output_token_count": ("output_tokens", 1.0, None),
}
_RATES = {
    "requests_per_second": "requests_per_s",
    "prompt_tokens_per_second": "input_tokens_per_s",
    "output_tokens_per_second": "output_tokens_per_s",
    "tokens_per_second": "total_tokens_per_s",
    "request_concurrency": "achieved_concurrency",
}


def _detect(given: Given) -> float:
    if head_has(given, "guidellm_version"):
        return 0.95
    return 0.6 if head_has(given, "benchmarks", "inter_token_latency_ms") else 0.0


def _figures(draft: Draft, metrics: Mapping[str, object]) -> None:
    for name, (metric, scale, how) in _SPREADS.items():
        stats = part(metrics, name, "successful")
        if not stats or not whole(stats.get("count"), f"/metrics/{name}/successful/count"):
            continue  # GuideLLM writes zeros for what has no value
        at = f"/metrics/{name}/successful"
        draft.spread(metric, stats, at, scale)
        draft.spread(metric, part(stats, "percentiles"), f"{at}/percentiles", scale)
        for address, figure in list(draft.figures.items()):
            if how and address.startswith(f"{metric}.") and not address.endswith(".n"):
                draft.add(address, figure.stated, figure.at, scale, how)
    for name, metric in _RATES.items():
        draft.add(metric, part(metrics, name, "successful").get("mean"), f"/metrics/{name}/successful/mean")
    for name, side in (("prompt_token_count", "input"), ("output_token_count", "output")):
        stats = part(metrics, name, "successful")
        draft.add(f"{side}_tokens_total", stats.get("total_sum"), f"/metrics/{name}/successful/total_sum")


def _load(draft: Draft, config: Mapping[str, object], spec: Mapping[str, object]) -> int | None:
    """Model, concurrency or arrivals, lengths; the requests asked for."""
    strategy = part(config, "strategy")
    kind = words(strategy.get("type_")) or "unknown"
    draft.model = words(part(config, "backend").get("model")) or words(part(spec, "backend").get("model"))
    if kind in ("concurrent", "synchronous"):
        streams = 1 if kind == "synchronous" else strategy.get("streams")
        draft.concurrency = whole(streams, "/config/strategy/streams")
    rate = number(strategy.get("rate"), "/config/strategy/rate")
    data = next((one for one in rows_of(spec.get("data")) if isinstance(one, dict)), {})
    synthetic = data.get("kind") == "synthetic_text"
    isl, osl = (
        whole(data.get(key), f"/config/spec/data/{key}")
        if synthetic and not data.get(f"{key}_stdev")
        else None
        for key in ("prompt_tokens", "output_tokens")
    )
    draft.scenario = Scenario(
        "random" if synthetic else words(data.get("kind")) or "unknown", isl=isl, osl=osl,
        arrivals=kind if draft.concurrency is None and not rate else f"{kind}:{rate:g}" if rate else None,
    )  # fmt: skip
    asked = part(config, "constraints", "max_requests", "args")
    return whole(asked.get("count"), "/config/constraints/max_requests/args/count")


def _fill(draft: Draft, one: dict[str, object], spec: Mapping[str, object]) -> None:
    metrics, config = part(one, "metrics"), part(one, "config")
    counts = part(metrics, "request_totals")
    if not counts or "request_latency" not in metrics:
        raise RowError(
            "results.import_wrong_shape", missing="metrics.request_totals, metrics.request_latency"
        )
    planned = _load(draft, config, spec)
    ok, failed, cut = (whole(counts.get(name), f"/metrics/request_totals/{name}")
                       for name in ("successful", "errored", "incomplete"))  # fmt: skip
    draft.requests = Requests(planned=planned, ok=ok, error=failed, incomplete=cut)
    _figures(draft, metrics)
    draft.duration_s = number(one.get("duration"), "/duration")
    draft.add("window_s", one.get("duration"), "/duration")
    draft.started_utc = utc(number(one.get("start_time"), "/start_time"))
    draft.finished_utc = utc(number(one.get("end_time"), "/end_time"))
    draft.run = words(config.get("run_id"))
    draft.notes.append(
        "its TPOT holds the TTFT and is mapped to e2el_per_token_s; its ITL is one value a request, weighted by tokens, "
        "and is mapped to tpot_s"
    )
    for warning in rows_of(one.get("warnings"))[:10]:
        draft.notes.append("GuideLLM warns: " + str(part(warning).get("message") or "")[:300])


def _read(given: Given) -> Iterator[Mapped]:
    ordinal = 0
    with given.open() as stream:
        for data in json_values(stream, given.name, DROPPED):
            report = parse_object(data, given.name)
            version = words(part(report, "metadata").get("guidellm_version"))
            spec = part(report, "config", "spec")
            benchmarks = rows_of(report.get("benchmarks"))[:MAX_BENCHMARKS]
            definition = f"guidellm-{'.'.join(version.split('.')[:2])}" if version else "guidellm"
            for one in benchmarks:
                draft = Draft(given, ordinal, IMPORTER.id, VERSION, definition)
                draft.raw = json.dumps(one, separators=(",", ":")).encode()
                draft.client["harness_version"] = version
                ordinal += 1
                try:
                    _fill(draft, part(one), spec)
                    yield draft.mapped()
                except RowError as error:
                    yield draft.failed(error)
            if not benchmarks:
                draft = Draft(given, ordinal, IMPORTER.id, VERSION, definition, data)
                ordinal += 1
                yield draft.failed(RowError("results.import_wrong_shape", missing="benchmarks"))


IMPORTER = Importer("guidellm", VERSION, "GuideLLM report", _detect, _read)
