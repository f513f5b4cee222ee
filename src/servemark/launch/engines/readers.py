"""What a running server tells of itself: identity and counters, engine by engine, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from servemark.base.errors import Layer, ServemarkError
from servemark.launch.engines.openai_probe import model_entries
from servemark.launch.engines.prometheus import parse_prometheus
from servemark.launch.engines.protocol import EngineCommand, EngineCounters, EngineIdentity
from servemark.launch.failure import known_signature
from servemark.launch.http_probe import ProbeError, fetch, fetch_json

_TIMEOUT_S = 10.0
_METRICS_BYTES = 16 << 20


class EngineReader(Protocol):
    """The part of an engine adapter that reads a server, wherever it runs."""

    name: str

    def check_installed(self) -> None:
        """Raise ServemarkError (layer install) when it cannot be started here."""

    def identity(self, base_url: str, command: EngineCommand) -> EngineIdentity:
        """Read from the running server and the files it loaded."""

    def counters(self, base_url: str) -> EngineCounters:
        """Read now. Raises ServemarkError (layer engine) when the server does not answer."""

    def failure_hint(self, log_tail: str) -> tuple[str, dict[str, object]] | None:
        """Message key and values for a known failure signature."""

    def tokenize(self, base_url: str, content: str) -> list[int]:
        """Token ids by the server's own tokenizer; ServemarkError (layer engine) when it cannot."""

    def count_prompt(self, base_url: str, messages: Sequence[Mapping[str, object]]) -> int:
        """Prompt tokens of a chat request."""


@dataclass(frozen=True, slots=True)
class Words:
    """Where one engine keeps what. Names of counters are without labels; all their label sets are added up."""

    metrics: str
    prompt: tuple[str, ...]
    cached: tuple[str, ...]
    generated: tuple[str, ...]
    version: tuple[str, ...]
    """Paths that may hold a `version`, the newest first."""
    computed: str | None = None
    """A counter of computed prompt tokens; cached ones are the rest."""


WORDS: Mapping[str, Words] = {
    "vllm": Words(
        "/metrics",
        ("vllm:prompt_tokens_total",),
        ("vllm:prefix_cache_hits_total",),
        ("vllm:generation_tokens_total",),
        ("/version",),
        'vllm:prompt_tokens_by_source_total{source="local_compute"}',
    ),
    "sglang": Words(
        "/metrics",
        ("sglang:prompt_tokens_total",),
        ("sglang:cached_tokens_total",),
        ("sglang:generation_tokens_total",),
        ("/server_info", "/get_server_info"),
    ),
    "trtllm": Words("/prometheus/metrics", (), (), (), ("/version",)),
    "llama-server": Words(
        "/metrics",
        ("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
        ("llamacpp:prompt_tokens_cached_total",),
        ("llamacpp:tokens_predicted_total",),
        (),
    ),
    "dynamo": Words(
        "/metrics",
        ("dynamo_frontend_input_sequence_tokens_sum",),
        ("dynamo_frontend_cached_tokens_sum",),
        ("dynamo_frontend_output_tokens_total",),
        (),
    ),
}


def total(raw: Mapping[str, float], names: Sequence[str]) -> float | None:
    """Sum of counters over all label sets; None where one of the names is missing, or none is asked for."""
    found = 0.0
    for name in names:
        values = [value for key, value in raw.items() if key.partition("{")[0] == name]
        if not values:
            return None
        found += sum(values)
    return found if names else None


def _by_source(raw: Mapping[str, float], wanted: str) -> float | None:
    """Sum of the samples with this name whose labels hold the wanted one."""
    name, _, label = wanted.rstrip("}").partition("{")
    values = [v for key, v in raw.items() if key.partition("{")[0] == name and label in key]
    return sum(values) if values else None


class ServerReader:
    """EngineReader of an engine whose server speaks the OpenAI API."""

    def __init__(self, engine: str) -> None:
        self.name = engine
        self.words = WORDS[engine]

    def check_installed(self) -> None:
        """Said by the step that cannot be started: the program may be in a container only."""

    def identity(self, base_url: str, command: EngineCommand) -> EngineIdentity:
        """Version and served model. Raises ServemarkError (layer engine) when the server does not answer."""
        try:
            entries = model_entries(base_url, timeout_s=_TIMEOUT_S)
        except ProbeError as error:
            raise _no_answer(base_url, error) from error
        details: dict[str, object] = {}
        version = None
        for path in self.words.version:
            try:
                said = fetch_json(base_url, path, timeout_s=_TIMEOUT_S)
            except ProbeError:
                continue
            if isinstance(said, dict) and isinstance(said.get("version"), str):
                version = str(said["version"])[:200]
                break
        entry = entries[0] if entries else {}
        root, longest = entry.get("root"), entry.get("max_model_len")
        if isinstance(longest, int):
            details["ctx_tokens_per_slot"] = longest
        served = entry.get("id")
        return EngineIdentity(
            engine=self.name,
            version=version,
            build=None,
            served_model=served[:200] if isinstance(served, str) else None,
            model_file=root[:500] if isinstance(root, str) else None,
            model_sha256=None,
            details=details,
        )

    def counters(self, base_url: str) -> EngineCounters:
        """From the server's Prometheus text."""
        try:
            reply = fetch(base_url, self.words.metrics, timeout_s=_TIMEOUT_S, max_bytes=_METRICS_BYTES)
            if reply.status != 200:
                raise ProbeError(f"HTTP {reply.status}")
            raw = parse_prometheus(reply.body.decode("utf-8"))
        except (ProbeError, ValueError) as error:
            raise _no_answer(base_url, error) from error
        words = self.words
        prompt, cached = total(raw, words.prompt), total(raw, words.cached)
        computed = _by_source(raw, words.computed) if words.computed else None
        if prompt is not None and computed is not None:
            cached = prompt - computed
        return EngineCounters(prompt, cached, total(raw, words.generated), raw)

    def failure_hint(self, log_tail: str) -> tuple[str, dict[str, object]] | None:
        """The signatures that all engines share."""
        kind = known_signature(log_tail)
        return None if kind is None else (f"launch.engine_exited.{kind}", {})

    def tokenize(self, base_url: str, content: str) -> list[int]:
        """POST /tokenize, as vLLM and SGLang offer it."""
        return self._tokens(base_url, {"prompt": content, "add_special_tokens": False})

    def count_prompt(self, base_url: str, messages: Sequence[Mapping[str, object]]) -> int:
        """The chat form of vLLM's /tokenize."""
        return len(
            self._tokens(base_url, {"messages": [dict(m) for m in messages], "add_generation_prompt": True})
        )

    def _tokens(self, base_url: str, body: dict[str, object]) -> list[int]:
        try:
            reply = fetch_json(base_url, "/tokenize", body=body, timeout_s=30.0, max_bytes=64 << 20)
            tokens = reply.get("tokens") if isinstance(reply, dict) else None
            if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
                raise ProbeError("/tokenize gave no list of tokens")
        except ProbeError as error:
            raise _no_answer(base_url, error) from error
        return tokens


def get_reader(engine: str) -> EngineReader:
    """How a running server of this engine is read; ServemarkError (input) for an unknown one."""
    if engine in WORDS:
        return ServerReader(engine)
    from servemark.launch.engines.registry import get_adapter  # noqa: PLC0415 - the embedded engine's own

    return get_adapter(engine)


def _no_answer(base_url: str, error: Exception) -> ServemarkError:
    return ServemarkError("launch.engine_no_answer", Layer.ENGINE, url=base_url, reason=str(error))
