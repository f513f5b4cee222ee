"""What an architecture is made of, as far as memory goes: plain, typed values with the origin of each.

A model is groups of layers. Attention and feed-forward groups are counted apart, since a hybrid model mixes
them freely. Counts are layers, heads, elements or tokens; nothing here is in bytes except where it says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

AttentionKind = Literal["gqa", "mla", "kda", "gated-delta", "mamba", "compressed"]
ATTENTION_KINDS: tuple[AttentionKind, ...] = ("gqa", "mla", "kda", "gated-delta", "mamba", "compressed")
SAME_FORM = {"mxfp4": "fp4", "nvfp4": "fp4", "mxfp8": "fp8", "bfloat16": "bf16"}
"""Names of formats that arms and recipes use for a form of the weights."""
STATE_KINDS = frozenset({"kda", "gated-delta", "mamba"})
"""Kinds that keep one state of fixed size per request instead of an entry per token."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from. `band`: relative uncertainty of an assumed one, None for a known one."""

    source: str
    band: float | None = None

    @property
    def assumed(self) -> bool:
        """Whether the value is an assumption."""
        return self.source == "assumed" or self.band is not None


@dataclass(frozen=True, slots=True)
class Attention:
    """One group of attention layers of the same geometry."""

    kind: AttentionKind
    layers: int
    heads: int
    kv_heads: int = 0
    head_dim: int = 0
    """Of queries and keys; for a state, the key side."""
    value_dim: int = 0
    """Of values; 0 where it equals `head_dim`."""
    rope_dim: int = 0
    nope_dim: int = 0
    q_rank: int = 0
    """Width of the compressed queries; 0 where queries are projected directly."""
    kv_rank: int = 0
    """Width of the compressed keys and values (MLA)."""
    output_gate: bool = False
    window: int | None = None
    """Tokens that a sliding window keeps; None for full attention."""
    compress: int = 1
    """Tokens that share one entry of the cache."""
    conv_kernel: int = 0
    """Width of the short convolution before a state; its last width - 1 inputs are kept."""
    index_dim: int = 0
    """Elements of a sparse index's key for each cached entry."""
    index_layers: int = 0
    index_bytes: int = 0
    """Bytes of a sparse index's key for each token and layer."""
    o_groups: int = 0
    o_rank: int = 0
    """Grouped low-rank output projection."""
    qk_norm: bool = False
    bias: bool = False
    index_heads: int = 0

    @property
    def values(self) -> int:
        """Width of one head's value."""
        return self.value_dim or self.head_dim

    @property
    def keeps_state(self) -> bool:
        """True where a request keeps one state instead of an entry per token."""
        return self.kind in STATE_KINDS


@dataclass(frozen=True, slots=True)
class FeedForward:
    """One group of feed-forward layers: dense (`experts` 0) or a mixture of experts."""

    layers: int
    inner: int
    experts: int = 0
    top_k: int = 0
    shared: int = 0
    shared_inner: int = 0
    """Width of one shared expert; 0 where it equals `inner`."""
    latent: int = 0
    """Width that routed experts work in when it is not the model's; projections lie around them."""
    bias: bool = False
    shared_gate: bool = False


@dataclass(frozen=True, slots=True)
class Precision:
    """Bits a parameter takes in one published form of the weights, scales included."""

    name: str
    routed_bits: float
    """Routed experts."""
    other_bits: float
    """Everything else but embeddings and router."""
    embedding_bits: float = 16.0


@dataclass(frozen=True, slots=True)
class Draft:
    """A draft model of speculative decoding, or the model's own next-token layers (`builtin`)."""

    name: str
    attention: tuple[Attention, ...]
    feed_forward: tuple[FeedForward, ...]
    parameters: int | None
    """All parameters as published; None where they are counted from the groups."""
    hidden: int
    builtin: bool = False


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model. `origins` holds where every value comes from, by its path in the file."""

    name: str
    repository: str
    aliases: tuple[str, ...]
    hidden: int
    vocabulary: int
    max_context: int
    tied: bool
    attention: tuple[Attention, ...]
    feed_forward: tuple[FeedForward, ...]
    precisions: tuple[Precision, ...]
    drafts: tuple[Draft, ...] = ()
    replicated: tuple[str, ...] = ("router",)
    """Parts that every tensor-parallel rank holds whole: router, latent, kv-down, q-down."""
    extra_parameters: int = 0
    """Parameters that no group accounts for (a vision tower, residual mixing), counted as other weights."""
    text_part: bool = False
    """Whether the model has other parts (vision, audio) whose weights are not counted here."""
    weight_bytes: int | None = None
    """Bytes of all weights where the file itself says them (GGUF, safetensors)."""
    parameters: int | None = None
    """Parameters where the file itself says them."""
    origins: dict[str, Origin] = field(default_factory=dict, compare=False, repr=False)
    sources: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    file: str = ""

    @property
    def layers(self) -> int:
        """Layers of the model: its attention groups together."""
        return sum(group.layers for group in self.attention)

    def precision(self, name: str) -> Precision | None:
        """A published form of the weights by its name; None when it has no such form."""
        wanted = SAME_FORM.get(name.strip().lower(), name.strip().lower())
        return next((one for one in self.precisions if one.name == wanted), None)

    @property
    def assumed(self) -> dict[str, Origin]:
        """The values that are assumptions."""
        return {path: origin for path, origin in self.origins.items() if origin.assumed}
