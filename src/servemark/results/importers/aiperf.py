"""AIPerf's `profile_export_aiperf.json`, also as its agentic fork (`agentx`) writes it; `profile_export.jsonl` beside it
adds the counts by outcome.

Every metric states its own unit, which is converted (ns, us, ms, sec). What AIPerf names `inter_token_latency` is one
value a request, (last - first content) / (output tokens - 1): our TPOT. Gaps of the stream are `inter_chunk_latency`.
Percentiles interpolate linearly. Output tokens are counted with the client's tokenizer unless the server's count was
asked for. Fields: AIPerf 0.13.0 (schema 1.4), fork 1.0.12, as their own output shows them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import BinaryIO

import msgspec

from servemark.results.importers.base import Given, Importer
from servemark.results.importers.bench_serving import head_has, read_rows
from servemark.results.importers.mapping import Draft, RowError, number, part, rows_of, whole, words
from servemark.results.point import Mapped, Requests, Scenario

VERSION = 2
RAW_NAME = "profile_export.jsonl"
MAX_LINE = 8 << 20
_SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SCALES: Mapping[str, Mapping[str, float]] = {
    "time": _SECONDS,
    "tokens": {"tokens": 1.0, "token": 1.0},
    "rate": {"tokens/sec": 1.0, "requests/sec": 1.0, "tokens/s": 1.0, "requests/s": 1.0},
    "users": {"requests": 1.0},
}
_SPREADS = {
    "time_to_first_token": ("ttft_s", "time"),
    "time_to_first_output_token": ("ttfo_s", "time"),
    "inter_token_latency": ("tpot_s", "time"),
    "inter_chunk_latency": ("chunk_gap_s", "time"),
    "request_latency": ("e2el_s", "time"),
    "input_sequence_length": ("input_tokens", "tokens"),
    "output_sequence_length": ("output_tokens", "tokens"),
}
_SINGLES = {
    "request_throughput": ("requests_per_s", "rate"),
    "output_token_throughput": ("output_tokens_per_s", "rate"),
    "input_token_throughput": ("input_tokens_per_s", "rate"),
    "total_token_throughput": ("total_tokens_per_s", "rate"),
    "effective_concurrency": ("achieved_concurrency", "users"),
    "benchmark_duration": ("window_s", "time"),
    "total_isl": ("input_tokens_total", "tokens"),
    "total_osl": ("output_tokens_total", "tokens"),
}


def _detect(given: Given) -> float:
    if head_has(given, "aiperf_version"):
        return 0.95
    return (
        0.7 if head_has(given, "time_to_first_token", "input_config", "request_throughput", "unit") else 0.0
    )


def _scale(unit: object, kind: str, at: str) -> float:
    scale = _SCALES[kind].get(str(unit))
    if scale is None:
        raise RowError("results.import_unknown_unit", field=at, unit=str(unit)[:40])
    return scale


def _figures(draft: Draft, row: Mapping[str, object]) -> None:
    for name, (metric, kind) in _SPREADS.items():
        stats = part(row, name)
        if stats:
            draft.spread(metric, stats, f"/{name}", _scale(stats.get("unit"), kind, f"/{name}/unit"))
    for name, (metric, kind) in _SINGLES.items():
        stats = part(row, name)
        if stats:
            scale = _scale(stats.get("unit"), kind, f"/{name}/unit")
            draft.add(metric, stats.get("avg"), f"/{name}/avg", scale)


def _load(draft: Draft, row: Mapping[str, object]) -> int | None:
    """Concurrency, arrivals and lengths of the profiling phase; the requests asked for."""
    config = part(row, "input_config")
    phases = [phase for phase in rows_of(config.get("phases")) if isinstance(phase, dict)]
    phase = next((one for one in phases if one.get("kind") == "profiling"), {})
    data = next((one for one in rows_of(config.get("datasets")) if isinstance(one, dict)), {})
    loadgen = part(row, "input_config", "loadgen")  # before schema 1.4
    draft.concurrency = whole(
        phase.get("concurrency", loadgen.get("concurrency")), "/input_config/phases/concurrency"
    )
    rate = phase.get("rate", loadgen.get("request_rate"))
    synthetic = data.get("type") == "synthetic"
    fixed = synthetic and not any(part(data, "prompts", side).get("stddev") for side in ("isl", "osl"))
    at = "/input_config/datasets/prompts"
    isl, osl = (
        number(part(data, "prompts", side).get("mean"), f"{at}/{side}/mean") if fixed else None
        for side in ("isl", "osl")
    )
    pace = number(rate, "/input_config/phases/rate")
    draft.scenario = Scenario(
        "random" if synthetic else words(data.get("type")) or "unknown",
        isl=None if isl is None else int(isl),
        osl=None if osl is None else int(osl),
        dataset=words(data.get("name")) if not synthetic else None,
        arrivals=f"{words(phase.get('type')) or 'rate'}:{pace:g}" if pace else None,
    )
    models = rows_of(part(config, "models").get("items"))
    first = models[0] if models else (rows_of(part(config, "endpoint").get("model_names")) or [None])[0]
    draft.model = words(first.get("name")) if isinstance(first, dict) else words(first)
    return whole(phase.get("requests", loadgen.get("request_count")), "/input_config/phases/requests")


def _outcomes(draft: Draft, row: Mapping[str, object], planned: int | None) -> None:
    """`request_count` is the ok ones; failures are in `error_summary`, or one a record in the raw file beside it."""
    ok = whole(part(row, "request_count").get("avg"), "/request_count/avg")
    failed = sum(
        whole(one.get("count"), "/error_summary/count") or 0
        for one in rows_of(row.get("error_summary"))
        if isinstance(one, dict)
    )
    raw = draft.given.siblings.get(RAW_NAME)
    cancelled = None
    if raw is not None:
        with raw.open() as stream:
            counted, damaged = count_records(stream)
        draft.notes.append(
            f"{RAW_NAME}: {counted['ok']} ok, {counted['error']} failed, {counted['cancelled']} cancelled, "
            f"{counted['warmup']} of warm-up" + (f", {damaged} lines not read" if damaged else "")
        )
        draft.observed["raw_records"] = dict(counted)
        cancelled = counted["cancelled"]
        if ok is not None and counted["ok"] != ok:
            draft.notes.append(f"the summary counts {ok} ok requests, the raw records {counted['ok']}")
    draft.requests = Requests(planned=planned, ok=ok, error=failed, cancelled=cancelled)


class _About(msgspec.Struct):
    """The part of a record that says how it ended."""

    benchmark_phase: str | None = None
    was_cancelled: bool | None = None


class _Record(msgspec.Struct):
    """One line of the raw file; everything else in it is passed over."""

    metadata: _About
    error: object = None


def count_records(stream: BinaryIO) -> tuple[Counter[str], int]:
    """Profiling records of a raw file by outcome, warm-up apart, and lines that are no record. Bounded by a line."""
    counted: Counter[str] = Counter({"ok": 0, "error": 0, "cancelled": 0, "warmup": 0})
    damaged = 0
    decode = msgspec.json.Decoder(_Record).decode
    while line := stream.readline(MAX_LINE):
        if not line.strip():
            continue
        try:
            record = decode(line)
        except (msgspec.DecodeError, RecursionError):
            damaged += 1
            continue
        if record.metadata.benchmark_phase != "profiling":
            counted["warmup"] += 1
        elif record.metadata.was_cancelled:
            counted["cancelled"] += 1
        else:
            counted["error" if record.error else "ok"] += 1
    return counted, damaged


def _span_s(row: Mapping[str, object]) -> float | None:
    """Seconds from start to end, local moments without a zone: what AIPerf's rates are over. `benchmark_duration` is
    shorter, from the first request's start to the last one's end; it serves where the moments are absent."""
    try:
        begin, end = (datetime.fromisoformat(str(row.get(name))) for name in ("start_time", "end_time"))
        return number((end - begin).total_seconds(), "/end_time")
    except (ValueError, TypeError):
        stats = part(row, "benchmark_duration")
        at = "/benchmark_duration"
        found = number(stats.get("avg"), f"{at}/avg")
        return None if found is None else found * _scale(stats.get("unit"), "time", f"{at}/unit")


def _fill(draft: Draft, row: dict[str, object]) -> None:
    if not isinstance(row.get("request_latency"), dict) and not isinstance(row.get("request_count"), dict):
        raise RowError("results.import_wrong_shape", missing="request_latency, request_count")
    version = words(row.get("aiperf_version"))
    fork = version is not None and not version.startswith("0.")
    tool = "agentx" if fork else "aiperf"
    draft.definition = f"{tool}-{'.'.join(version.split('.')[:2])}" if version else tool
    planned = _load(draft, row)
    _figures(draft, row)
    _outcomes(draft, row, planned)
    draft.duration_s = _span_s(row)
    draft.run = words(row.get("benchmark_id")) or words(part(row, "run_info").get("benchmark_id"))
    draft.complete = not row.get("was_cancelled") and row.get("is_complete", True) is not False
    zoned = [words(row.get(name)) for name in ("start_time", "end_time")]
    draft.started_utc, draft.finished_utc = (text[:10] if text else None for text in zoned)
    about = part(row, "metadata")
    if about.get("scenario"):
        draft.scenario = Scenario(
            "agentic-coding", dataset=draft.scenario.dataset, rules=words(about["scenario"])
        )
        draft.declared["submission_valid"] = about.get("submission_valid") is True
        reasons = [str(one)[:200] for one in rows_of(about.get("submission_invalid_reasons"))[:20]]
        draft.declared["submission_invalid_reasons"] = reasons
    draft.client.update({"harness": tool, "harness_version": version})


def _read(given: Given) -> Iterator[Mapped]:
    return read_rows(given, _fill, lambda: Draft(given, 0, IMPORTER.id, VERSION, "aiperf"), frozenset())


IMPORTER = Importer("aiperf", VERSION, "AIPerf and AgentX", _detect, _read)


def _detect_raw(given: Given) -> float:
    return 0.9 if head_has(given, "benchmark_phase", "x_request_id") else 0.0


def _read_raw(given: Given) -> Iterator[Mapped]:
    with given.open() as stream:
        counted, damaged = count_records(stream)
    values: dict[str, object] = {"records": sum(counted.values()), "damaged": damaged}
    yield Mapped(0, "unmapped", None, None, "results.import_records", values)


RAW_IMPORTER = Importer("aiperf-records", VERSION, "AIPerf per-request records", _detect_raw, _read_raw)
