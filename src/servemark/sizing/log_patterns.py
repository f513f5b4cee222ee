"""Lines of engines' start-up logs that say something of memory, and which rank says it.

Formats were held against public logs of vLLM 0.8 to 0.27 (one rank, TP, TP with DCP, data parallel, Ray, speculative
decoding, hybrid models, MLA), SGLang 0.4.9 to 0.5.15 (TP, DP with TP, hybrid, sliding window, DeepSeek-V4, drafts)
and one start of llama.cpp. vLLM's and llama.cpp's units are binary and named so; SGLang's `GB` are 2^30 bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

GIB, MIB = 1 << 30, 1 << 20
Engine = Literal["vllm", "sglang", "llamacpp"]
Within = Literal["last", "sum", "first", "devices"]
"""What becomes of a figure that one rank says more than once: a later start replaces it (`last`), a draft's adds to
the target's (`sum`), a second pass over a device is passed over (`devices`)."""
Across = Literal["most", "least"]
"""Which rank's figure counts: the fullest rank sets weights, the tightest one the pool."""
_N = r"(-?[\d,]{1,20}(?:\.\d{1,9})?)"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_VLLM_RANK = re.compile(
    r"\(([A-Za-z]\w{0,60}(?: (?:rank=)?\w{1,20}){0,3}) pid=(\d{1,12})(?:, ip=([0-9a-fA-F.:]{1,45}))?\)"
)
_SGLANG_RANK = re.compile(r"\[[\d:. T-]{0,40}?((?: ?\b(?:DP|TP|PP|EP|CP|ATTN_\w{2}|MOE_\w{2})\d{1,6})+)\]")
_DEVICE = re.compile(r":\s+(\S{1,60})\s+(?:model|KV|compute|output) buffer size")
_NUMBERED = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Pattern:
    """One known line. Its value is the sum of its groups times `factor`."""

    engine: Engine
    name: str
    pattern: re.Pattern[str]
    factor: float = 1
    within: Within = "last"
    across: Across = "least"

    def value(self, line: str) -> float | None:
        """The line's figure; None where it is another line or no number."""
        found = self.pattern.search(line)
        if found is None:
            return None
        try:
            read = sum(float(group.replace(",", "")) for group in found.groups() if group) * self.factor
        except ValueError:
            return None
        return (
            None if read < 0 and self.factor == 1 else read
        )  # sizes may be below zero (what a pool lacks), counts not


def _p(  # noqa: PLR0917 - one row of a table
    engine: Engine,
    name: str,
    text: str,
    factor: float = 1,
    within: Within = "last",
    across: Across = "least",
) -> Pattern:
    return Pattern(engine, name, re.compile(text), factor, within, across)


_STATE = (
    rf"Mamba Cache is allocated.*?conv_state size: {_N} ?GB, ssm_state size: {_N} ?GB"
    rf"(?:,? intermediate_ssm_state_cache size: {_N} ?GB)?"
    rf"(?:,? intermediate_conv_window_cache size: {_N} ?GB)?"
)
PATTERNS = (
    _p("vllm", "weights_bytes", rf"Model loading took {_N} Gi?B", GIB, across="most"),
    _p("vllm", "weights_bytes", rf"Loading model weights took {_N} Gi?B", GIB, across="most"),
    _p("vllm", "weights_bytes", rf"model weights take {_N} ?GiB", GIB, across="most"),
    _p("vllm", "activation_bytes", rf"activation peak memory takes {_N} ?GiB", GIB, across="most"),
    _p("vllm", "pool_bytes", rf"Available KV cache memory: {_N} GiB", GIB),
    _p("vllm", "pool_bytes", rf"reserved for KV Cache is {_N} ?GiB", GIB),
    _p("vllm", "pool_tokens", rf"(?:GPU )?KV cache size: {_N} tokens"),
    _p("vllm", "max_context", rf"Maximum concurrency for {_N} tokens per request"),
    _p("vllm", "requests", rf"Maximum concurrency for [\d,]+ tokens per request: {_N}x"),
    _p("vllm", "graph_bytes", rf"Graph capturing finished in \S+ secs?, took {_N} GiB", GIB, across="most"),
    _p("vllm", "graph_estimate_bytes", rf"Estimated CUDA graph memory: {_N} GiB", GIB, across="most"),
    _p("vllm", "block_tokens", rf"Setting attention block size to {_N} tokens"),
    _p("vllm", "forced_blocks", rf"with num_gpu_blocks_override={_N}"),
    _p("vllm", "context_ranks", rf"Multiplying the GPU KV cache size by the d?cp_world_size {_N}"),
    _p("sglang", "weights_bytes", rf"Load weight end\..*?mem usage={_N} GB", GIB, "sum", "most"),
    _p("sglang", "kv_bytes", rf"#tokens: [\d,]+, K size: {_N} GB, V size: {_N} GB", GIB, "sum"),
    _p("sglang", "kv_bytes", rf"#tokens: [\d,]+, KV size: {_N} GB", GIB, "sum"),
    _p("sglang", "kv_tokens", rf"KV Cache is allocated.*?#tokens: {_N}", 1, "first"),
    _p("sglang", "window_pool_bytes", rf"SWAKVPool mem usage: {_N} GB", GIB, "sum"),
    _p("sglang", "window_full_tokens", rf"SWAKVPool mem usage:.*?full size: {_N}"),
    _p("sglang", "state_pool_bytes", _STATE, GIB, "sum"),
    _p("sglang", "state_slots", rf"Mamba Cache is allocated. max_mamba_cache_size: {_N}"),
    _p("sglang", "full_token_bytes", rf"DSV4 memory calculation: bytes_per_full_token={_N}"),
    _p("sglang", "available_bytes", rf"DSV4 memory calculation: .*?available_bytes={_N} GB", GIB),
    _p("sglang", "full_tokens", rf"DSV4 pool sizes: full={_N}"),
    _p("sglang", "max_tokens", rf"max_total_num_tokens={_N}"),
    _p("sglang", "max_context", rf"max_total_num_tokens=.*\bcontext_len={_N}"),
    _p("sglang", "requests", rf"max_total_num_tokens=.*\bmax_running_requests={_N}"),
    _p("sglang", "graph_bytes", rf"(?:CUDA|cuda) graph end\..*?mem usage={_N} GB", GIB, "sum", "most"),
    _p("llamacpp", "weights_bytes", rf"load_tensors:.*model buffer size = *{_N} MiB", MIB, "devices"),
    _p("llamacpp", "pool_bytes", rf"KV buffer size = *{_N} MiB", MIB, "devices"),
    _p("llamacpp", "compute_bytes", rf"compute buffer size = *{_N} MiB", MIB, "devices"),
    _p("llamacpp", "output_bytes", rf"output buffer size = *{_N} MiB", MIB, "devices"),
    _p("llamacpp", "pool_tokens", rf"llama_context: n_ctx += {_N}", 1, "first"),
    _p("llamacpp", "max_context", rf"llama_context: n_ctx_seq += {_N}", 1, "first"),
)
WORDS = (
    "took", "KV cache", "KV Cache", "Maximum concurrency", "block size", "Load weight end", "#tokens",
    "max_total_num_tokens=", "graph end", "buffer size", "n_ctx", "CUDA graph memory", "num_gpu_blocks_override",
    "SWAKVPool", "Mamba Cache", "DSV4", "activation peak", "GPU KV cache",
)  # fmt: skip
"""A line without one of these is passed over before any pattern is tried."""
STARTS = re.compile(r"vLLM API server version|server_args=ServerArgs\(")
"""An engine begins to start: what an earlier, finished start said is dropped."""
FINISHED = frozenset({"pool_tokens", "max_tokens"})
"""Facts that only a start that got as far as its pool says."""
VERSION = re.compile(r"vLLM API server version (\d[\w.+]{0,40})|LLM engine \(v(\d[\w.+]{0,40})\)")


def plain(line: str) -> str:
    """The line without terminal colours, which vLLM puts around its rank."""
    return _ESCAPES.sub("", line) if "\x1b" in line else line


def rank_of(line: str) -> str:
    """The rank that a line's beginning names (`Worker_TP0`, `DP1 TP3`); with the process where the name has no
    number (Ray); empty where nothing is said."""
    head = line[:240]
    found = None
    for found in _VLLM_RANK.finditer(head):  # noqa: B007 - the last one is the innermost
        pass
    if found is not None:
        name, process, address = found.groups()
        if _NUMBERED.search(name) or name == "EngineCore":
            return name
        return f"{name} {process}{f' {address}' if address else ''}"
    other = _SGLANG_RANK.search(head)
    return other.group(1).strip() if other is not None else ""


def device_of(line: str) -> str:
    """The device of a llama.cpp buffer."""
    found = _DEVICE.search(line)
    return found.group(1) if found is not None else ""
