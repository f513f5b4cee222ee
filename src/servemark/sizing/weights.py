"""Parameters of an architecture part by part, and the bytes they take in a precision, per model and per rank."""

from __future__ import annotations

import math
from dataclasses import dataclass

from servemark.catalog.architecture import Architecture, Attention, Draft, FeedForward, Precision


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameter counts. `attention` and the others leave out what `router`, `latent` and `down` hold."""

    routed: int = 0
    shared: int = 0
    dense: int = 0
    attention: int = 0
    down: int = 0
    """Down-projections to the compressed queries and keys, which tensor parallel ranks hold whole."""
    latent: int = 0
    router: int = 0
    embedding: int = 0
    """Input table."""
    head: int = 0
    """Output table; 0 where it is tied to the input's."""
    extra: int = 0
    routed_active: int = 0
    """Routed parameters that one token uses."""

    @property
    def total(self) -> int:
        """All parameters."""
        return self.other + self.routed + self.router + self.embedding + self.head

    @property
    def other(self) -> int:
        """Everything but routed experts, router and embeddings."""
        return self.shared + self.dense + self.attention + self.down + self.latent + self.extra

    @property
    def active(self) -> int:
        """Parameters that one token uses: all but unused experts and the input table, of which it reads one row.

        A tied table is used as the output's."""
        used = self.head or self.embedding
        return self.other + self.routed_active + self.router + used


def _mla(group: Attention, hidden: int) -> tuple[int, int]:
    query_dim = group.nope_dim + group.rope_dim
    down = hidden * (group.kv_rank + group.rope_dim) + (hidden * group.q_rank)
    query = (group.q_rank or hidden) * group.heads * query_dim
    values = group.kv_rank * group.heads * (group.nope_dim + group.value_dim)
    output = group.heads * group.value_dim * hidden * (2 if group.output_gate else 1)
    norms = group.q_rank + group.kv_rank + 2 * hidden
    index = 0
    if group.index_heads:
        each = group.q_rank * group.index_heads * group.index_dim + hidden * (
            group.index_dim + group.index_heads
        )
        index = each * group.index_layers // group.layers
    return query + values + output + norms + index, down


def _gqa(group: Attention, hidden: int) -> tuple[int, int]:
    query = hidden * group.heads * group.head_dim * (2 if group.output_gate else 1)
    keys = hidden * group.kv_heads * (group.head_dim + group.values)
    output = group.heads * group.values * hidden
    norms = 2 * hidden + (2 * group.head_dim if group.qk_norm else 0)
    bias = (group.heads * group.head_dim + 2 * group.kv_heads * group.head_dim + hidden + group.heads) * (
        1 if group.bias else 0
    )
    return query + keys + output + norms + bias, 0


def _kda(group: Attention, hidden: int) -> tuple[int, int]:
    """Queries, keys and values of every head, a full output gate, decay through a rank of one head's width,
    step sizes, convolution, and per-head decay and bias."""
    width = group.heads * group.head_dim
    inner = group.heads * group.value_dim
    projections = hidden * (2 * width + inner) + inner * hidden * (2 if group.output_gate else 1)
    decay = hidden * group.head_dim + group.head_dim * width + hidden * group.heads
    small = (2 * width + inner) * group.conv_kernel + group.heads + width + group.value_dim + 2 * hidden
    return projections + decay + small, 0


def _gated_delta(group: Attention, hidden: int) -> tuple[int, int]:
    """`heads` value heads and `kv_heads` key heads: q, k, v, gate, output, two scalars a head (Mamba: one), convolution."""
    keys = group.kv_heads * group.head_dim
    inner = group.heads * group.value_dim
    projections = hidden * (2 * keys + inner) + inner * hidden * (2 if group.output_gate else 1)
    scalars = 1 if group.kind == "mamba" else 2
    small = hidden * scalars * group.heads + (2 * keys + inner) * group.conv_kernel + 2 * group.heads
    return projections + small + group.value_dim + 2 * hidden, 0


def _compressed(group: Attention, hidden: int) -> tuple[int, int]:
    """Compressed queries, one shared key-value head, grouped low-rank output, an index and compressors where there are
    some. A compressor has two projections of the hidden width, twice as wide where pieces overlap (compress 4); every
    rank holds it whole, as the head that it makes is shared."""
    width = group.heads * group.head_dim
    overlap = 2 if group.compress == 4 else 1
    compressors = 2 * hidden * overlap * (group.head_dim + group.index_dim) if group.compress > 1 else 0
    down = hidden * group.q_rank + compressors
    output = width * group.o_rank + group.o_groups * group.o_rank * hidden
    index = group.q_rank * group.index_heads * group.index_dim
    return (
        group.q_rank * width + hidden * group.head_dim * max(1, group.kv_heads) + output + index + 2 * hidden,
        down,
    )


_COUNT = {
    "mla": _mla,
    "gqa": _gqa,
    "kda": _kda,
    "gated-delta": _gated_delta,
    "mamba": _gated_delta,
    "compressed": _compressed,
}


def attention_parameters(groups: tuple[Attention, ...], hidden: int) -> tuple[int, int]:
    """(sharded, down-projections) of all layers of the groups, norms included."""
    counts = [(group.layers, *_COUNT[group.kind](group, hidden)) for group in groups]
    return sum(n * each for n, each, _ in counts), sum(n * down for n, _, down in counts)


def _feed_forward(groups: tuple[FeedForward, ...], hidden: int) -> dict[str, int]:
    found = dict.fromkeys(("routed", "shared", "dense", "latent", "router", "routed_active"), 0)
    for group in groups:
        if not group.experts:
            found["dense"] += group.layers * 3 * hidden * group.inner
            continue
        width = group.latent or hidden
        expert = 3 * width * group.inner + ((2 * group.inner + width) if group.bias else 0)
        found["routed"] += group.layers * group.experts * expert
        found["routed_active"] += group.layers * group.top_k * expert
        found["shared"] += group.layers * group.shared * 3 * hidden * (group.shared_inner or group.inner)
        found["shared"] += group.layers * hidden * (1 if group.shared_gate else 0)
        found["latent"] += group.layers * 2 * hidden * group.latent
        found["router"] += group.layers * (hidden * group.experts + group.experts)
    return found


def parameters_of(model: Architecture) -> Parameters:
    """Parameters of a model, part by part; next-token layers and drafts are counted by `draft_parameters`."""
    attention, down = attention_parameters(model.attention, model.hidden)
    table = model.vocabulary * model.hidden
    return Parameters(
        attention=attention + model.hidden,
        down=down,
        embedding=table,
        head=0 if model.tied else table,
        extra=model.extra_parameters,
        **_feed_forward(model.feed_forward, model.hidden),
    )


def draft_parameters(draft: Draft) -> Parameters:
    """Parameters of a draft; a published total is taken whole as attention where there is one."""
    if draft.parameters is not None:
        return Parameters(attention=draft.parameters)
    attention, down = attention_parameters(draft.attention, draft.hidden)
    joined = 2 * draft.hidden * draft.hidden if draft.builtin else 0
    return Parameters(
        attention=attention + joined, down=down, **_feed_forward(draft.feed_forward, draft.hidden)
    )


def weight_bytes(parameters: Parameters, precision: Precision) -> int:
    """Bytes of a checkpoint: each part's parameters by its bits; the router counts as an embedding does."""
    bits = (
        parameters.routed * precision.routed_bits
        + parameters.other * precision.other_bits
        + (parameters.embedding + parameters.head + parameters.router) * precision.embedding_bits
    )
    return math.ceil(bits / 8)


@dataclass(frozen=True, slots=True)
class Shards:
    """How one worker's ranks divide the weights. `tp`: ranks that share one attention; `experts`: ranks that share
    the routed experts."""

    tp: int
    pp: int = 1
    experts: int = 1


@dataclass(frozen=True, slots=True)
class RankWeights:
    """Bytes of weights on the fullest rank."""

    sharded: int
    replicated: int
    routed: int

    @property
    def total(self) -> int:
        """All bytes."""
        return self.sharded + self.replicated + self.routed


def rank_weights(model: Architecture, precision: Precision, shards: Shards) -> RankWeights:
    """Bytes of weights on the fullest rank of a worker.

    A pipeline stage holds ceil(layers / pp) layers and one table at most (the first and the last hold one each;
    with one stage both). Tables are cut by TP along the vocabulary.
    """
    found = parameters_of(model)
    stage = math.ceil(model.layers / shards.pp) / model.layers
    whole_parts = {
        "router": found.router * precision.embedding_bits,
        "latent": found.latent * precision.other_bits,
    }
    down = found.down * precision.other_bits
    keeps_down = "q-down" in model.replicated or "kv-down" in model.replicated
    replicated = sum(bits for name, bits in whole_parts.items() if name in model.replicated)
    split = sum(bits for name, bits in whole_parts.items() if name not in model.replicated)
    replicated, split = (replicated + down, split) if keeps_down else (replicated, split + down)
    split += (found.shared + found.dense + found.attention + found.extra) * precision.other_bits
    tables = (found.embedding + (found.head if shards.pp == 1 else 0)) * precision.embedding_bits
    return RankWeights(
        sharded=math.ceil((split * stage + tables) / shards.tp / 8),
        replicated=math.ceil(replicated * stage / 8),
        routed=math.ceil(found.routed * precision.routed_bits * stage / max(1, shards.experts) / 8),
    )
