"""What an engine's start-up log says of memory: vLLM, SGLang and llama.cpp.

The text is untrusted and may be large: it is read line by line, bounded, and only known lines count. Ranks print
the same line; the pool is the least of them and weights the most, as the slowest rank sets both.
Formats: vLLM 0.26.0 and SGLang 0.5.23 from the text in their own source files; llama.cpp from a real start.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from servemark.base.errors import input_error

MAX_LOG_BYTES = 256 << 20
MAX_LINE = 4000
GIB, MIB = 1 << 30, 1 << 20
Engine = Literal["vllm", "sglang", "llamacpp"]
Keep = Literal["most", "least", "sum", "first"]
"""What becomes of a figure that several lines say; `sum` adds those of different devices."""
_DEVICE = re.compile(r":\s+(\S+)\s+(?:model|KV|compute|output) buffer size")
_NUMBER = r"(-?[\d,]{1,20}(?:\.\d{1,9})?)"


@dataclass(frozen=True, slots=True)
class Reading:
    """One fact of a log: its value in bytes or tokens, and where it stands."""

    value: float
    line: int
    text: str
    devices: tuple[str, ...] = ()
    """Devices of which figures were added up."""


@dataclass(frozen=True, slots=True)
class StartupLog:
    """Facts of one start. Names: weights_bytes, pool_bytes, pool_tokens, graph_bytes, block_tokens, max_context,
    requests (concurrent ones at the longest context), state_pool_bytes, compute_bytes, context_tokens."""

    engine: Engine
    facts: dict[str, Reading]
    file: str

    def value(self, name: str) -> float | None:
        """A fact's value; None when the log does not say it."""
        found = self.facts.get(name)
        return None if found is None else found.value


@dataclass(frozen=True, slots=True)
class _Pattern:
    engine: Engine
    name: str
    pattern: re.Pattern[str]
    factor: float = 1
    keep: Keep = "first"


def _p(engine: Engine, name: str, text: str, factor: float = 1, keep: Keep = "first") -> _Pattern:
    return _Pattern(engine, name, re.compile(text), factor, keep)


_PATTERNS = (
    _p("vllm", "weights_bytes", rf"Model loading took {_NUMBER} Gi?B", GIB, "most"),
    _p("vllm", "weights_bytes", rf"Loading model weights took {_NUMBER} Gi?B", GIB, "most"),
    _p("vllm", "pool_bytes", rf"Available KV cache memory: {_NUMBER} GiB", GIB, "least"),
    _p("vllm", "pool_tokens", rf"(?:GPU )?KV cache size: {_NUMBER} tokens", 1, "least"),
    _p("vllm", "max_context", rf"Maximum concurrency for {_NUMBER} tokens per request"),
    _p("vllm", "requests", rf"Maximum concurrency for [\d,]+ tokens per request: {_NUMBER}x"),
    _p("vllm", "graph_bytes", rf"Graph capturing finished in .* secs, took {_NUMBER} GiB", GIB, "most"),
    _p("vllm", "block_tokens", rf"Setting attention block size to {_NUMBER} tokens"),
    _p("sglang", "weights_bytes", rf"Load weight end\..*mem usage={_NUMBER} GB", GIB, "most"),
    _p("sglang", "pool_tokens", rf"#tokens: {_NUMBER}, K(?:V)? size", 1, "least"),
    _p("sglang", "k_bytes", rf"#tokens: [\d,]+, K size: {_NUMBER} GB", GIB, "least"),
    _p("sglang", "v_bytes", rf"#tokens: [\d,]+, K size: .*V size: {_NUMBER} GB", GIB, "least"),
    _p("sglang", "pool_bytes", rf"#tokens: [\d,]+, KV size: {_NUMBER} GB", GIB, "least"),
    _p("sglang", "max_tokens", rf"max_total_num_tokens={_NUMBER}", 1, "least"),
    _p("sglang", "max_context", rf"context_len={_NUMBER}"),
    _p("sglang", "graph_bytes", rf"(?:CUDA|cuda) graph end\..*mem usage={_NUMBER} GB", GIB, "most"),
    _p("llamacpp", "weights_bytes", rf"load_tensors:.*model buffer size = *{_NUMBER} MiB", MIB, "sum"),
    _p("llamacpp", "pool_bytes", rf"KV buffer size = *{_NUMBER} MiB", MIB, "sum"),
    _p("llamacpp", "compute_bytes", rf"compute buffer size = *{_NUMBER} MiB", MIB, "sum"),
    _p("llamacpp", "output_bytes", rf"output buffer size = *{_NUMBER} MiB", MIB, "sum"),
    _p("llamacpp", "pool_tokens", rf"llama_context: n_ctx += {_NUMBER}"),
    _p("llamacpp", "max_context", rf"llama_context: n_ctx_seq += {_NUMBER}"),
)
_WORDS = (
    "took", "KV cache", "Maximum concurrency", "block size", "Load weight end", "#tokens",
    "max_total_num_tokens=", "graph end", "buffer size", "n_ctx", "context_len",
)  # fmt: skip


def read_log(path: Path) -> StartupLog:
    """Facts of a log file.

    Raises ServemarkError (exit 2): no such file, not a regular one, too large, unreadable, or no known line in it.
    """
    shown = str(path)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise input_error("sizing.log_not_file", path=shown)
            if found.st_size > MAX_LOG_BYTES:
                raise input_error("sizing.log_large", path=shown, size=found.st_size, limit=MAX_LOG_BYTES)
            return log_facts(_lines(stream), shown)
    except OSError as error:
        raise input_error("sizing.log_unreadable", path=shown, reason=error.strerror or str(error)) from error


def _lines(stream: BinaryIO) -> Iterable[str]:
    """Lines of bounded length; the rest of a longer one is passed over."""
    while True:
        raw = stream.readline(MAX_LINE)
        if not raw:
            return
        whole = raw
        while len(whole) == MAX_LINE and not whole.endswith(b"\n"):
            whole = stream.readline(MAX_LINE)
        yield raw.decode("utf-8", "replace")


def log_facts(lines: Iterable[str], shown: str) -> StartupLog:
    """Facts of a log's lines; the engine is the one of which most lines are known."""
    by_engine: dict[Engine, dict[str, Reading]] = {"vllm": {}, "sglang": {}, "llamacpp": {}}
    for number, line in enumerate(lines, 1):
        if not any(word in line for word in _WORDS):
            continue
        for pattern in _PATTERNS:
            found = pattern.pattern.search(line)
            if found is not None:
                value = _number(found.group(1))
                if value is not None:
                    named = _DEVICE.search(line) if pattern.keep == "sum" else None
                    devices = (named.group(1),) if named is not None else ()
                    reading = Reading(value * pattern.factor, number, line.strip(), devices)
                    _keep(by_engine[pattern.engine], pattern, reading)
    engine: Engine = max(by_engine, key=lambda name: len(by_engine[name]))
    facts = by_engine[engine]
    if not facts:
        raise input_error("sizing.log_foreign", path=shown)
    if engine == "sglang":
        _joined(facts)
    return StartupLog(engine, facts, shown)


def _keep(facts: dict[str, Reading], pattern: _Pattern, new: Reading) -> None:
    old = facts.get(pattern.name)
    if old is None:
        facts[pattern.name] = new
    elif pattern.keep == "sum":
        if new.devices and new.devices[0] not in old.devices:  # a second pass prints the same device again
            both = (*old.devices, *new.devices)
            facts[pattern.name] = Reading(old.value + new.value, old.line, old.text, both)
    elif (pattern.keep == "most" and new.value > old.value) or (
        pattern.keep == "least" and new.value < old.value
    ):
        facts[pattern.name] = new


def _joined(facts: dict[str, Reading]) -> None:
    """SGLang prints keys and values apart; its `GB` are 2^30."""
    if "k_bytes" in facts and "v_bytes" in facts and "pool_bytes" not in facts:
        first = facts["k_bytes"]
        facts["pool_bytes"] = Reading(first.value + facts["v_bytes"].value, first.line, first.text)
    if "max_tokens" in facts and "pool_tokens" not in facts:
        facts["pool_tokens"] = facts["max_tokens"]


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
