"""`vllm bench serve --save-result` (JSON, milliseconds under `_ms` keys), and the same rows re-written in seconds.

A file holds one result or an array of them. TPOT is per request, (latency - TTFT) / (output tokens - 1); ITL is the gap
between chunks of the stream, whatever tokens they hold; percentiles interpolate linearly.
Fields: vLLM 0.32, `vllm/benchmarks/serve.py`, as its own output shows them.
"""

from __future__ import annotations

from collections.abc import Iterator

from servemark.results.importers.base import Given, Importer
from servemark.results.importers.bench_serving import (
    ENGINES,
    head_has,
    latencies,
    metadata,
    read_rows,
    span,
    totals,
)
from servemark.results.importers.mapping import Draft, RowError, repeats, words
from servemark.results.point import Mapped

VERSION = 3
DEFINITION = "vllm-bench"
_RATES = {
    "request_throughput": "requests_per_s",
    "input_throughput": "input_tokens_per_s",
    "output_throughput": "output_tokens_per_s",
    "total_token_throughput": "total_tokens_per_s",
}
_KNOWN = frozenset((
    *_RATES, "date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate",
    "burstiness", "max_concurrency", "duration", "completed", "failed", "total_input_tokens", "total_output_tokens",
    "benchmark_start_time_unix", "benchmark_end_time_unix", "best_of", "good_completed", "request_goodput",
    "request_goodput:", "dataset_name",
))  # fmt: skip


def _detect(given: Given) -> float:
    if head_has(given, "total_output_tokens_retokenized"):
        return 0.0  # SGLang's
    return (
        0.9
        if head_has(given, "model_id", "num_prompts", "request_throughput", "total_output_tokens")
        else 0.0
    )


def _fill(draft: Draft, row: dict[str, object]) -> None:
    if "request_throughput" not in row or "completed" not in row:
        raise RowError("results.import_wrong_shape", missing="request_throughput, completed")
    draft.model = words(row.get("model_id"))
    backend = words(row.get("backend"))
    draft.engine = ENGINES.get(backend or "")
    if draft.engine and not draft.given.hints.get("engine"):
        draft.notes.append(f"engine from the client's backend option {backend!r}")
    latencies(draft, row)
    totals(draft, row, _RATES)
    span(draft, row)
    rates = [draft.figures.get(name) for name in ("input_tokens_per_s", "output_tokens_per_s")]
    if "total_tokens_per_s" not in draft.figures and rates[0] and rates[1]:
        draft.add("total_tokens_per_s", rates[0].value + rates[1].value, "/output_throughput",
                  how="input_throughput + output_throughput")  # fmt: skip
    draft.client["tokenizer"] = words(row.get("tokenizer_id"))
    metadata(draft, row, _KNOWN)


def _read(given: Given) -> Iterator[Mapped]:
    return repeats(read_rows(given, _fill, lambda: Draft(given, 0, IMPORTER.id, VERSION, DEFINITION)))


IMPORTER = Importer("vllm-bench", VERSION, "vLLM bench serve", _detect, _read)
