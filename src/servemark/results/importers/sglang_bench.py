"""SGLang's `bench_serving --output-file`: JSON Lines, one result a line, milliseconds under `_ms` keys.

TPOT and percentiles as in vLLM's; ITL over SGLang's native endpoint is a chunk's gap shared out
over the tokens in it; over OpenAI's endpoints it is the gap between chunks, which has a definition id of its own. The file
names no model: it is read from `server_info` where the server gave it, else it must be said.
Fields: SGLang 0.5.23, as its own output shows them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from servemark.results.importers.base import Given, Importer
from servemark.results.importers.bench_serving import (
    DROPPED,
    ENGINES,
    head_has,
    latencies,
    metadata,
    read_rows,
    totals,
)
from servemark.results.importers.mapping import Draft, RowError, number, part, repeats, whole, words
from servemark.results.point import Mapped, Scenario

VERSION = 3
DEFINITION = "sglang-bench"
_PER_TOKEN = ("sglang", "sglang-native")
_RATES = {
    "request_throughput": "requests_per_s",
    "input_throughput": "input_tokens_per_s",
    "output_throughput": "output_tokens_per_s",
    "total_throughput": "total_tokens_per_s",
}
_KNOWN = frozenset((
    *_RATES, "tag", "backend", "dataset_name", "request_rate", "max_concurrency", "duration", "completed",
    "total_input_tokens", "total_output_tokens", "random_input_len", "random_output_len", "random_range_ratio",
    "concurrency", "accept_length", "sharegpt_output_len",
))  # fmt: skip


def _detect(given: Given) -> float:
    named = head_has(given, "backend", "dataset_name", "median_e2e_latency_ms", "request_throughput")
    return 0.95 if named and head_has(given, "total_output_tokens_retokenized") else 0.6 if named else 0.0


def _fill(draft: Draft, row: dict[str, object]) -> None:
    if "request_throughput" not in row or "completed" not in row:
        raise RowError("results.import_wrong_shape", missing="request_throughput, completed")
    server = part(row, "server_info")
    draft.model = words(server.get("model_path")) or words(server.get("served_model_name"))
    draft.engine = ENGINES.get(words(row.get("backend")) or "")
    if draft.engine and not draft.given.hints.get("engine"):
        draft.notes.append(f"engine from the client's backend option {row.get('backend')!r}")
    draft.engine_version = words(server.get("version"))
    latencies(draft, row)
    if words(row.get("backend")) not in _PER_TOKEN:
        for address in [one for one in draft.figures if one.startswith("itl_s.")]:
            draft.figures[address] = msgspec.structs.replace(
                draft.figures[address], definition=f"{DEFINITION}:itl-per-chunk"
            )
    totals(draft, row, _RATES)
    if draft.scenario.type == "random":
        lengths = [whole(row.get(key), f"/{key}") for key in ("random_input_len", "random_output_len")]
        ratio = number(row.get("random_range_ratio"), "/random_range_ratio")
        draft.scenario = Scenario(
            "random", lengths[0], lengths[1], range_ratio=ratio, arrivals=draft.scenario.arrivals
        )
    draft.add("achieved_concurrency", row.get("concurrency"), "/concurrency")
    accepted = number(row.get("accept_length"), "/accept_length")
    if accepted is not None:
        draft.observed["acceptance_length"] = accepted
        draft.extra["speculation"] = "unknown"
    tag = words(row.get("tag"))
    if tag is not None:
        draft.declared["tag"] = tag
    for name in ("tp_size", "dp_size", "ep_size", "pp_size"):
        size = server.get(name)
        if isinstance(size, int) and not isinstance(size, bool):
            draft.observed[name] = size
    metadata(draft, row, _KNOWN)


def _read(given: Given) -> Iterator[Mapped]:
    return repeats(
        read_rows(given, _fill, lambda: Draft(given, 0, IMPORTER.id, VERSION, DEFINITION), DROPPED)
    )


IMPORTER = Importer("sglang-bench", VERSION, "SGLang bench_serving", _detect, _read)
