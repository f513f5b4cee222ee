"""KV arithmetic on small geometries that can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from servemark.catalog.architecture import Architecture, Attention, Draft, FeedForward, Precision
from servemark.sizing.kv import (
    KvSettings,
    pages_of,
    request_cost,
    requests_that_fit,
    state_layer_bytes,
    token_bytes,
    tokens_that_fit,
    window_bytes,
)


def model(*groups: Attention) -> Architecture:
    """A model of nothing but attention groups."""
    layers = sum(group.layers for group in groups)
    return Architecture(
        "m", "m", (), 64, 100, 4096, False, groups, (FeedForward(layers, 128),), (Precision("bf16", 16, 16),)
    )


GQA = Attention("gqa", layers=2, heads=8, kv_heads=4, head_dim=16)


def test_grouped_query_attention() -> None:
    """2 layers x 4 heads x (16 + 16) x 2 B = 512 B; TP 2 halves it; TP 8 cannot go below one head: 128 B."""
    assert token_bytes((GQA,), KvSettings()) == 512
    assert token_bytes((GQA,), KvSettings(tp=2)) == 256
    assert token_bytes((GQA,), KvSettings(tp=8)) == 128


def test_blocks_are_whole() -> None:
    """17 tokens in blocks of 16 cost 32 tokens; with DCP 2 a block covers 32, so 17 cost one block of each rank."""
    assert request_cost(model(GQA), KvSettings(block_tokens=16), None, 17).entries == 32 * 512
    assert request_cost(model(GQA), KvSettings(block_tokens=16, dcp=2), None, 17).entries == 16 * 512


def test_windows_cost_a_request_not_a_token() -> None:
    """A window of 100 in blocks of 16: 8 blocks (100 / 16 rounded up, and one): 128 x 4 x 32 x 2 B x 2 layers."""
    sliding = replace(GQA, window=100)
    assert token_bytes((sliding,), KvSettings()) == 0
    assert window_bytes((sliding,), KvSettings(block_tokens=16)) == 2 * 128 * 4 * 32 * 2


def test_state_grows_with_drafted_tokens() -> None:
    """8 heads of 16 x 16 x 4 B and 8 x 48 channels x (4 - 1 + K) x 2 B: 8,192 + 2,304 and 3,840."""
    state = Attention("kda", layers=1, heads=8, head_dim=16, value_dim=16, conv_kernel=4)
    assert state_layer_bytes(state, KvSettings()) == 8192 + 384 * 3 * 2
    assert state_layer_bytes(state, KvSettings(draft_tokens=2)) == 8192 + 384 * 5 * 2


def test_hybrid_pages() -> None:
    """A state of 10,496 B over 256 B a token are 41 tokens: the page is 48 tokens of 256 B; 3 state layers beside 2
    with entries are padded to 4."""
    state = Attention("kda", layers=3, heads=8, head_dim=16, value_dim=16, conv_kernel=4)
    pages = pages_of(model(GQA, state), KvSettings(), None)
    assert pages is not None
    assert (pages.block_tokens, pages.page_bytes, pages.full_layers, pages.state_layers) == (
        48,
        12_288,
        2,
        4,
    )
    cost = request_cost(model(GQA, state), KvSettings(), None, 49)
    assert (cost.entries, cost.states) == (2 * 2 * 12_288, 2 * 4 * 12_288)
    assert pages_of(model(GQA), KvSettings(), None) is None
    assert pages_of(model(GQA, state), KvSettings(hybrid_pages=False), None) is None


def test_draft_whole_or_divided() -> None:
    """A draft of 1 layer costs 256 B a token: divided by DCP 4, 64 tokens cost 16; undivided all 64."""
    draft = Draft("d", (replace(GQA, layers=1),), (), 1000, 64)
    settings = KvSettings(tp=4, dcp=4, block_tokens=16)
    per_token = 2 * 16 * 2  # one KV head of the four is left on each rank
    assert request_cost(model(GQA), settings, draft, 64).draft == 16 * per_token
    assert request_cost(model(GQA), replace(settings, draft_sharded=False), draft, 64).draft == 64 * per_token


def test_empty_pool_holds_nothing() -> None:
    """No negative tokens, no division by nothing."""
    assert tokens_that_fit(model(GQA), KvSettings(), None, -5.0, 100) == 0
    assert requests_that_fit(model(GQA), KvSettings(), None, 0.0, 100) == 0
    assert requests_that_fit(model(GQA), KvSettings(block_tokens=1), None, 512 * 250, 100) == 2
