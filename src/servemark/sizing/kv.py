"""KV cache: bytes per token and rank, state per request, pages of the hybrid allocator, tokens that fit.

The hybrid allocator (vLLM V1): every group of layers gets pages of one size. A layer that keeps a state makes the
page at least as large as its state: block = roundup(state / bytes per token, kernel's block), page = block x bytes
per token; layers of a kind are padded to whole groups. SGLang and TensorRT-LLM keep states in a pool of their own.
Checked against public start-up lines: tokens of one model to 0.02 %, blocks of two models exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from servemark.catalog.architecture import Architecture, Attention, Draft

MLA_BLOCK = 128
HEADS_BLOCK = 16
"""Tokens that a block's size is a multiple of where a state sets it: the least block of the attention's kernel.
128 fits the public lines of Kimi-K3 (MLA); 16 those of grouped-query hybrids (blocks of 784, 800, 1568, 2096)."""
COMPRESSED_ROPE = 64
COMPRESSED_SCALES = 8
"""DeepSeek-V4's cached entry has one form: fp8 but for 64 bf16 rotary elements, 7 scales and a pad: 584 bytes."""
INDEX_SCALE = 4
"""Bytes of the scale of 128 fp8 elements of an index key."""
DTYPE_BYTES: dict[str, float] = {
    "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8_inc": 1, "int8": 1, "bfloat16": 2, "bf16": 2, "float16": 2,
    "fp16": 2, "f16": 2, "half": 2, "float32": 4, "fp32": 4, "f32": 4, "nvfp4": 0.5625, "fp4": 0.5625,
    "fp4_e2m1": 0.5, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32, "q4_1": 20 / 32, "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}  # fmt: skip
"""Bytes of one cached element; block scales included for quantised forms."""


@dataclass(frozen=True, slots=True)
class StatePool:
    """A pool of states beside that of entries (SGLang; TensorRT-LLM with `slots` as its batch size).

    SGLang 0.5: `slots` where --max-mamba-cache-size says them, else `ratio` / (1 + ratio) of the pool
    (--mamba-full-memory-ratio, 0.9). A request holds `per_request` slots, and drafting keeps one more state for each
    drafted token of every request that may run.
    """

    slots: int | None = None
    ratio: float = 0.9
    per_request: int = 3


@dataclass(frozen=True, slots=True)
class KvSettings:
    """How a role keeps its cache. `tp`: ranks that share one attention (data-parallel attention has fewer than the
    worker has ranks). `draft_tokens`: tokens drafted a step (they lengthen the convolution's state)."""

    tp: int = 1
    pp: int = 1
    dcp: int = 1
    pcp: int = 1
    element_bytes: float = 2
    state_bytes: float = 4
    conv_bytes: float = 2
    draft_tokens: int = 0
    block_tokens: int = 16
    prefix_caching: bool = True
    resident_states: int | None = None
    """State blocks of a request and layer where somebody knows better; None counts as the engine does."""
    state_pool: StatePool | None = None
    window_share: float = 0.0
    """Share of all tokens for which windows and running compressors are set aside (SGLang's --swa-full-tokens-ratio for
    DeepSeek-V4); 0 where they are counted for each request."""
    index_share: float = 1.0
    """Of the index bytes that the model's file states: a half where an engine is told to keep bf16 index keys as fp8."""
    index_everywhere: bool = False
    """Whether layers that share another's index have room for one too: engines differ."""
    draft_sharded: bool = True
    """Whether the draft's cache is divided by DCP: open until an engine's log says so."""
    hybrid_pages: bool = True
    """Whether states and entries share pages of one size."""

    @property
    def states_kept(self) -> int:
        """State blocks that vLLM keeps for each request and layer: the running one, the last one where prefixes are
        cached, and one for each drafted token (its kv_cache_interface, cache mode `align`; 0.14 to 0.30)."""
        if self.resident_states is not None:
            return self.resident_states
        return (2 if self.prefix_caching else 1) + self.draft_tokens

    @property
    def context_ranks(self) -> int:
        """Ranks over which one request's tokens are spread."""
        return self.dcp * self.pcp


def head_share(group: Attention, settings: KvSettings) -> float:
    """KV heads that one rank keeps: at least one."""
    return max(1, math.ceil(group.kv_heads / settings.tp))


def entry_elements(group: Attention, settings: KvSettings) -> float:
    """Elements that one layer caches for one token on one rank, before DCP. 0 for a state."""
    if group.keeps_state:
        return 0.0
    if group.kind == "mla":
        return group.kv_rank + group.rope_dim
    if group.kind == "compressed":
        if group.compress == 1 and group.window is not None:
            return 0.0
        index = group.index_dim + INDEX_SCALE if group.index_dim else 0
        return (compressed_entry_bytes(group) + index) / group.compress / settings.element_bytes
    return head_share(group, settings) * (group.head_dim + group.values)


def compressed_entry_bytes(group: Attention) -> int:
    """Bytes of one entry of a compressed layer, whatever cache type was asked for (584 for DeepSeek-V4)."""
    each = group.head_dim - COMPRESSED_ROPE + 2 * COMPRESSED_ROPE + COMPRESSED_SCALES
    return max(1, group.kv_heads) * each if group.head_dim > COMPRESSED_ROPE else 2 * group.head_dim


def compressor_bytes(groups: tuple[Attention, ...], drafted: bool) -> int:
    """Bytes of the compressors' running states of one request: fp32 keys and scores of the last `compress` tokens, of
    twice as many where pieces overlap (compress 4) and again where tokens are drafted; index keys likewise.

    Source: pool arithmetic of SGLang 0.5.13, whose log line (7,705.45 B a token of the 43-layer model) it reproduces.
    """
    total = 0
    for group in groups:
        if group.kind != "compressed" or group.compress == 1:
            continue
        overlap = 2 if group.compress == 4 else 1
        ring = group.compress * overlap * (2 if drafted else 1)
        width = group.head_dim + group.index_dim
        total += group.layers * ring * 2 * overlap * width * 4
    return total


def window_token_bytes(groups: tuple[Attention, ...], settings: KvSettings) -> float:
    """Bytes that SGLang sets aside for one token of the window pool: an entry of every layer, and the compressors of
    overlapping pieces spread over a window. 0 for models without compressed entries."""
    total = 0.0
    for group in groups:
        if group.kind != "compressed" or group.window is None:
            continue
        total += group.layers * compressed_entry_bytes(group)
        if group.compress == 4:
            total += compressor_bytes((group,), drafted=settings.draft_tokens > 0) / group.window
    return total


def token_bytes(groups: tuple[Attention, ...], settings: KvSettings) -> float:
    """Bytes that one more token of a long context costs a rank, before DCP: full-attention layers and indexes.

    Windows and states cost per request and are left out.
    """
    total = 0.0
    for group in groups:
        if group.window is None or group.kind == "compressed":
            total += group.layers * entry_elements(group, settings) * settings.element_bytes
        total += index_token_bytes(group, settings)
    return total


def index_token_bytes(group: Attention, settings: KvSettings) -> float:
    """Bytes of a sparse attention's index keys for one token, all layers of the group.

    GLM-5.2 owns 21 indexes in 78 layers. Public start-up lines of SGLang show 55,225 B a token before, 47,702 after
    it left out the 57 others; TensorRT-LLM, llama.cpp and ATOM changed so in July and August 2026.
    """
    layers = group.layers if settings.index_everywhere and group.index_layers else group.index_layers
    return layers * group.index_bytes * settings.index_share


def state_layer_bytes(group: Attention, settings: KvSettings) -> int:
    """Bytes of one layer's state for one request on one rank: heads' matrices and the convolution's last inputs,
    longer by the drafted tokens (kernel - 1 + K)."""
    if not group.keeps_state:
        return 0
    heads = math.ceil(group.heads / settings.tp)
    matrix = heads * group.head_dim * group.value_dim * settings.state_bytes
    if group.kind == "kda":
        channels = heads * (2 * group.head_dim + group.value_dim)
    else:
        keys = math.ceil(group.kv_heads / settings.tp)
        channels = heads * group.value_dim + 2 * keys * group.head_dim
    conv = channels * (group.conv_kernel - 1 + settings.draft_tokens) * settings.conv_bytes
    return int(matrix + conv)


def state_bytes(groups: tuple[Attention, ...], settings: KvSettings) -> int:
    """Bytes of a request's whole state on one rank, unpadded."""
    return sum(group.layers * state_layer_bytes(group, settings) for group in groups)


def window_bytes(groups: tuple[Attention, ...], settings: KvSettings) -> float:
    """Bytes that sliding windows keep for one request on one rank once it is longer than the window (one block of
    slack each)."""
    total = 0.0
    for group in groups:
        if group.window is None:
            continue
        each: float
        if group.kind == "compressed":
            each = compressed_entry_bytes(group)
        else:
            each = head_share(group, settings) * (group.head_dim + group.values) * settings.element_bytes
        tokens = math.ceil(group.window / settings.block_tokens + 1) * settings.block_tokens
        total += group.layers * each * tokens
    return total + compressor_bytes(groups, settings.draft_tokens > 0)


@dataclass(frozen=True, slots=True)
class Pages:
    """The hybrid allocator's pages on one rank."""

    block_tokens: int
    """Tokens of a page on one rank."""
    page_bytes: int
    """One layer's page."""
    full_layers: int
    """Layers with one entry a token."""
    state_layers: int
    """Layers with a state, padded to whole groups."""
    draft_layers: int
    """The draft's layers, padded to whole groups."""
    group_layers: int


@dataclass(frozen=True, slots=True)
class RequestCost:
    """Bytes that one request of `tokens` costs a rank, and what of it is state and draft."""

    tokens: int
    entries: int
    states: int
    draft: int
    windows: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.entries + self.states + self.draft + self.windows


def pages_of(model: Architecture, settings: KvSettings, draft: Draft | None) -> Pages | None:
    """The pages of a model that keeps both entries and states; None for any other."""
    full = [group for group in model.attention if not group.keeps_state]
    states = [group for group in model.attention if group.keeps_state]
    if not full or not states or not settings.hybrid_pages:
        return None
    layer_token = max(entry_elements(group, settings) for group in full) * settings.element_bytes
    largest = max(state_layer_bytes(group, settings) for group in states)
    unit = block_unit(model)
    block = math.ceil(largest / layer_token / unit) * unit
    full_layers = sum(group.layers for group in full)
    state_layers = sum(group.layers for group in states)
    draft_layers = sum(group.layers for group in draft.attention) if draft else 0
    if (
        draft is not None and draft.builtin
    ):  # a next-token layer has the target's geometry and joins its group
        full_layers, draft_layers = full_layers + draft_layers, 0
    size = min(full_layers, state_layers)
    if draft_layers:
        size = _group_size(size, draft_layers)
    return Pages(
        block_tokens=block,
        page_bytes=int(block * layer_token),
        full_layers=_padded(full_layers, size),
        state_layers=_padded(state_layers, min(full_layers, state_layers)),
        draft_layers=_padded(draft_layers, size),
        group_layers=size,
    )


def block_unit(model: Architecture) -> int:
    """Tokens that the hybrid allocator's block is a multiple of."""
    return MLA_BLOCK if any(group.kind == "mla" for group in model.attention) else HEADS_BLOCK


def _padded(layers: int, size: int) -> int:
    return math.ceil(layers / size) * size


def _group_size(target: int, draft: int) -> int:
    """The smallest divisor of the target's group that holds the draft's layers whole, so that 5 draft layers
    beside groups of 24 make groups of 6."""
    fitting = [size for size in range(1, target + 1) if target % size == 0 and size >= draft]
    return fitting[0] if fitting else target


def request_cost(model: Architecture, settings: KvSettings, draft: Draft | None, tokens: int) -> RequestCost:
    """Bytes that one request of `tokens` costs a rank: whole pages, each request's states, windows, the draft."""
    pages = pages_of(model, settings, draft)
    spread = settings.context_ranks
    stage = math.ceil(model.layers / settings.pp) / model.layers
    if pages is not None:
        own = math.ceil(tokens / (pages.block_tokens * spread))
        drafted = math.ceil(tokens / (pages.block_tokens * (spread if settings.draft_sharded else 1)))
        return RequestCost(
            tokens=tokens,
            entries=math.ceil(own * pages.full_layers * pages.page_bytes * stage),
            states=math.ceil(settings.states_kept * pages.state_layers * pages.page_bytes * stage),
            draft=drafted * pages.draft_layers * pages.page_bytes,
            windows=0,
        )
    blocks = math.ceil(tokens / (settings.block_tokens * spread)) * settings.block_tokens
    aside = settings.window_share * window_token_bytes(model.attention, settings)
    per_token = token_bytes(model.attention, settings) + aside
    drafted_tokens = (
        blocks
        if settings.draft_sharded
        else math.ceil(tokens / settings.block_tokens) * settings.block_tokens
    )
    draft_token = token_bytes(draft.attention, settings) if draft else 0.0
    return RequestCost(
        tokens=tokens,
        entries=math.ceil(blocks * per_token * stage),
        states=0 if settings.state_pool else math.ceil(state_bytes(model.attention, settings) * stage),
        draft=math.ceil(drafted_tokens * draft_token),
        windows=0 if aside else math.ceil(window_bytes(model.attention, settings) * stage),
    )


def state_split(model: Architecture, settings: KvSettings, pool_bytes: float) -> tuple[int, int]:
    """(bytes of the pool of states, slots in it) where an engine keeps states apart; (0, 0) elsewhere.

    A slot costs its state and, where tokens are drafted, `draft_tokens` / `per_request` states more.
    """
    apart = settings.state_pool
    each = state_bytes(model.attention, settings) * math.ceil(model.layers / settings.pp) / model.layers
    if apart is None or not each:
        return 0, 0
    cost = each * (1 + settings.draft_tokens / apart.per_request)
    slots = apart.slots
    if slots is None:
        slots = max(0, int(pool_bytes * apart.ratio / (1 + apart.ratio) // cost))
    return int(slots * cost), slots


def tokens_that_fit(
    model: Architecture, settings: KvSettings, draft: Draft | None, pool_bytes: float, length: int
) -> int:
    """Tokens in a rank's pool when all requests are `length` long: what an engine prints at start-up with
    `length` its longest context. 0 for an empty pool."""
    left = pool_bytes - state_split(model, settings, pool_bytes)[0]
    if left <= 0:
        return 0
    return int(left * length / request_cost(model, settings, draft, length).total)


def requests_that_fit(
    model: Architecture, settings: KvSettings, draft: Draft | None, pool_bytes: float, length: int
) -> int:
    """Whole requests of `length` tokens that a pool holds at once."""
    apart, slots = state_split(model, settings, pool_bytes)
    left = pool_bytes - apart
    if left <= 0:
        return 0
    held = int(left // request_cost(model, settings, draft, length).total)
    return min(held, slots // settings.state_pool.per_request) if settings.state_pool and apart else held
