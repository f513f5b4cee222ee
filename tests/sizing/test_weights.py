"""Weights part by part on geometries small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace

from servemark.catalog.architecture import Architecture, Attention, FeedForward, Precision
from servemark.catalog.architectures import architecture
from servemark.sizing.kv import KvSettings, state_layer_bytes
from servemark.sizing.weights import (
    Shards,
    attention_parameters,
    draft_parameters,
    parameters_of,
    rank_weights,
    weight_bytes,
)

GQA = Attention("gqa", layers=4, heads=4, kv_heads=2, head_dim=8)
BF16 = Precision("bf16", 16, 16)
MODEL = Architecture(
    "m", "m", (), 32, 100, 512, False, (GQA,),
    (FeedForward(1, 64), FeedForward(3, 16, experts=8, top_k=2, shared=1)), (BF16,),
)  # fmt: skip


def test_by_hand() -> None:
    """Hidden 32. Attention 32x32 + 32x2x16 + 32x32 + 64 norms = 3,136 a layer and 32 at the end; dense 3x32x64;
    8 experts of 3x32x16 and one shared in 3 layers; router 32x8 + 8; two tables of 3,200."""
    found = parameters_of(MODEL)
    assert found.attention == 4 * 3136 + 32
    assert found.dense == 6144
    assert (found.routed, found.routed_active, found.shared) == (3 * 8 * 1536, 3 * 2 * 1536, 3 * 1536)
    assert found.router == 3 * 264
    assert (found.embedding, found.head) == (3200, 3200)
    assert found.total == 12_576 + 6144 + 36_864 + 4608 + 792 + 6400
    assert found.active == found.total - (36_864 - 9216) - 3200
    assert weight_bytes(found, BF16) == found.total * 2
    tied = parameters_of(replace(MODEL, tied=True))
    assert tied.total == found.total - 3200 and tied.active == found.active


def test_bits_by_part() -> None:
    """Routed experts at 4 bits, other parts at 8, tables and router at 16."""
    found = parameters_of(MODEL)
    bits = found.routed * 4 + found.other * 8 + (6400 + 792) * 16
    assert weight_bytes(found, Precision("x", 4, 8)) == bits // 8
    assert weight_bytes(replace(found, routed=1), Precision("x", 4, 8)) == -(
        -(4 + found.other * 8 + 7192 * 16) // 8
    )


def test_pipeline_stages_and_experts() -> None:
    """PP 3 of 4 layers: the fullest stage has 2, so half of the layers, and one table of the two; experts over 4."""
    whole = rank_weights(replace(MODEL, replicated=()), BF16, Shards(tp=1))
    assert whole.total == weight_bytes(parameters_of(MODEL), BF16)
    staged = rank_weights(replace(MODEL, replicated=()), BF16, Shards(tp=1, pp=3, experts=4))
    layers = 12_576 + 6144 + 4608 + 792
    # The router is at 16 bits like the rest, so that it may be counted with the layers.
    assert staged.sharded == 2 * (layers // 2 + 3200)
    assert staged.routed == 36_864 * 2 // 2 // 4


def test_router_whole_on_each_rank() -> None:
    """TP 4: all but the router in quarters."""
    found = rank_weights(replace(MODEL, replicated=("router",)), BF16, Shards(tp=4, experts=4))
    assert found.replicated == 792 * 2
    assert found.routed == 36_864 * 2 // 4
    assert found.sharded == 2 * (12_576 + 6144 + 4608 + 6400) // 4


def test_gated_delta() -> None:
    """4 value heads of 8 and 2 key heads of 8, kernel 4, hidden 32: q, k 2x32x16, v and gate 2x32x32, output 32x32,
    64x4 scalars, convolution (16 + 16 + 32) x 4, 8 per head, norms 8 + 64. State on TP 2: 2 x 8 x 8 x 4 B and
    (2 x 8 + 2 x 1 x 8) x 3 x 2 B."""
    group = Attention(
        "gated-delta", layers=1, heads=4, kv_heads=2, head_dim=8, value_dim=8, conv_kernel=4, output_gate=True
    )
    expected = 2 * 32 * 16 + 2 * 32 * 32 + 32 * 32 + 32 * 8 + 64 * 4 + 8 + 8 + 64
    assert attention_parameters((group,), 32) == (expected, 0)
    assert state_layer_bytes(group, KvSettings(tp=2)) == 2 * 8 * 8 * 4 + 32 * 3 * 2


def test_sparse_index_has_weights() -> None:
    """GLM-5.2: 32 heads of 128 from compressed queries of 2048, one key of 128 and 32 weights from 6144, 21 layers."""
    model = architecture("glm-5.2")
    bare = tuple(replace(group, index_heads=0) for group in model.attention)
    more = attention_parameters(model.attention, 6144)[0] - attention_parameters(bare, 6144)[0]
    assert more == 21 * (2048 * 32 * 128 + 6144 * (128 + 32))


def test_drafts() -> None:
    """A published count is taken whole; next-token layers are counted with the projection that joins both inputs."""
    k3 = architecture("kimik3")
    assert draft_parameters(k3.drafts[0]).total == 3_560_000_000
    mtp = draft_parameters(architecture("dsr1").drafts[0])
    assert mtp.routed == 256 * 3 * 7168 * 2048
    assert (
        11.3e9 < mtp.total < 14e9
    )  # published 14 B of DeepSeek-V3's MTP weights include tables that are shared


def test_biases_and_sinks() -> None:
    """gpt-oss's attention: biases of queries (32), keys and values (2 x 16), output (32), and a sink a head (4)."""
    bare, _ = attention_parameters((GQA,), 32)
    full, _ = attention_parameters((replace(GQA, bias=True),), 32)
    assert full - bare == 4 * (32 + 2 * 16 + 32 + 4)
