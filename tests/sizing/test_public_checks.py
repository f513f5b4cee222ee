"""Public figures that anybody can look up, reproduced from the model files: totals, caches, pages, host memory.

Sources of expected values: published parameter counts and checkpoint sizes of the models' cards; one public vLLM
start-up line (3,249,215 tokens); a public bring-up's state entry (54.78 MiB); a store maintainer's page counts.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from servemark.catalog.architecture import Attention, Draft
from servemark.catalog.architectures import architecture
from servemark.sizing.host import dram_budget_gb
from servemark.sizing.kv import (
    KvSettings,
    compressed_entry_bytes,
    compressor_bytes,
    pages_of,
    request_cost,
    requests_that_fit,
    state_bytes,
    token_bytes,
    tokens_that_fit,
)
from servemark.sizing.needs import PAGE_2M, host_needs
from servemark.sizing.weights import Shards, parameters_of, rank_weights, weight_bytes

GIB = 1 << 30
MILLION = 1_048_576
"""Kimi-K3's longest context."""
FIRST = KvSettings(tp=8, element_bytes=1)
"""The public B300 start: TP8, fp8 entries, fp32 states, no draft."""
SEED = KvSettings(tp=8, dcp=8, element_bytes=1, state_bytes=2, draft_tokens=4)


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("moonshotai/Kimi-K3", 2779.5, 104.2),  # card: 2.78 T, 104 B
        ("deepseek-ai/DeepSeek-R1", 671.03, None),  # card: 671 B
        ("openai/gpt-oss-120b", 116.83, 5.13),  # model card: 116.83 B, 5.13 B
        ("moonshotai/Kimi-K2-Instruct", 1026.4, None),  # card: 1 T (1,026 B counted from its shards)
        ("meta-llama/Llama-3.1-8B", 8.030, None),  # safetensors index: 8,030,261,248
        ("Qwen/Qwen3-8B", 8.191, None),  # safetensors index: 8,190,735,360
        ("Qwen/Qwen3.5-397B-A17B", 396.3, None),  # its name
    ],
)
def test_totals(name: str, total: float, active: float | None) -> None:
    """Parameters in billions, to the digits that are published."""
    found = parameters_of(architecture(name))
    assert found.total / 1e9 == pytest.approx(total, rel=2e-4)
    if active is not None:
        assert found.active / 1e9 == pytest.approx(active, rel=1e-3)


def test_llama_and_qwen_to_the_parameter() -> None:
    """Published indexes count every tensor: 8,030,261,248 and 8,190,735,360; the packaged GGUF 134,515,008."""
    assert parameters_of(architecture("meta-llama/Llama-3.1-8B")).total == 8_030_261_248
    assert parameters_of(architecture("Qwen/Qwen3-8B")).total == 8_190_735_360
    assert parameters_of(architecture("HuggingFaceTB/SmolLM2-135M")).total == 134_515_008


def test_kimi_k3_checkpoint() -> None:
    """1,559.9 GB = 1,446.5 of routed experts in MXFP4 and 113.5 of bf16; an expert takes 17.547 MB."""
    model = architecture("kimik3")
    precision = model.precision("fp4")
    assert precision is not None
    parts = parameters_of(model)
    assert parts.routed * 4.25 / 8 / 1e9 == pytest.approx(1446.5, abs=0.05)
    assert (parts.total - parts.routed) * 2 / 1e9 == pytest.approx(113.5, abs=0.1)
    assert weight_bytes(parts, precision) / 1e9 == pytest.approx(1559.9, abs=0.05)
    assert parts.routed * 4.25 / 8 / 896 / 92 / 1e6 == pytest.approx(17.547, abs=0.001)


def test_kimi_k3_weights_of_a_rank() -> None:
    """TP8: 181.6 GiB were everything divided, 190.3 with latent projections and router whole on each rank."""
    model = architecture("kimik3")
    precision = model.precision("fp4")
    assert precision is not None
    shards = Shards(tp=8, experts=8)
    whole = rank_weights(replace(model, replicated=("router", "latent")), precision, shards)
    assert whole.total / GIB == pytest.approx(190.3, abs=0.05)
    cut = rank_weights(replace(model, replicated=()), precision, shards)
    assert cut.total / GIB == pytest.approx(181.6, abs=0.05)
    # With the down-projections whole too, as engines keep them: 24 x 7168 x (1536 + 576) x 2 x 7/8 more.
    more = rank_weights(model, precision, shards).total - whole.total
    assert more == pytest.approx(24 * 7168 * (1536 + 576) * 2 * 7 / 8, abs=16)


def test_kimi_k3_entries_and_states() -> None:
    """24 x 576 = 13,824 B fp8 and 27,648 B bf16 a token; states of 53.57, 54.78 and 56.00 MiB for K = 0, 2, 4."""
    groups = architecture("kimik3").attention
    assert token_bytes(groups, FIRST) == 13_824
    assert token_bytes(groups, replace(FIRST, element_bytes=2)) == 27_648
    sizes = [state_bytes(groups, replace(FIRST, draft_tokens=drafted)) / (1 << 20) for drafted in (0, 2, 4)]
    assert sizes == pytest.approx([53.57, 54.78, 56.00], abs=0.005)
    worker = 8 * state_bytes(groups, SEED) / 1e6  # bf16 states, K = 4
    assert worker == pytest.approx(252.7, abs=0.05)


def test_public_start_up_line() -> None:
    """Pool 42.23 GiB: 3,249,950 tokens worked out, 3,249,215 printed by the engine: 0.023 % off."""
    tokens = tokens_that_fit(architecture("kimik3"), FIRST, None, 42.23 * GIB, MILLION)
    assert tokens == 3_249_950
    assert tokens / 3_249_215 - 1 == pytest.approx(0.00023, abs=0.00001)


def test_decode_context_parallelism() -> None:
    """DCP8 holds 7.49 times the tokens of TP8 (a public recipe says "~7.5x"); a page is 12,288 tokens at TP16/DCP16."""
    model = architecture("kimik3")
    eight = tokens_that_fit(model, replace(FIRST, dcp=8), None, 42.23 * GIB, MILLION)
    assert eight / 3_249_950 == pytest.approx(7.49, abs=0.005)
    wide = replace(FIRST, tp=16, dcp=16)
    pages = pages_of(model, wide, None)
    assert pages is not None and pages.block_tokens * wide.context_ranks == 12_288


def test_seed_recipe_at_50_gib() -> None:
    """23.9 M tokens with the draft divided by DCP and two resident states, 22.5 M with the six that K = 4 keeps, 10.2 M
    undivided, 3.1 M without DCP."""
    model = architecture("kimik3")
    draft = model.drafts[0]
    found = [
        tokens_that_fit(model, settings, draft, 50 * GIB, MILLION) / 1e6
        for settings in (
            replace(SEED, resident_states=2),
            SEED,
            replace(SEED, resident_states=2, draft_sharded=False),
            replace(SEED, resident_states=2, dcp=1),
        )
    ]
    assert found == pytest.approx([23.95, 22.53, 10.20, 3.09], abs=0.006)
    pages = pages_of(model, SEED, draft)
    assert pages is not None
    # 5 draft layers beside groups of 24 and 72 make groups of 6: 4 + 12 groups of the target, 1 of the draft.
    assert (pages.group_layers, pages.full_layers, pages.state_layers, pages.draft_layers) == (6, 24, 72, 6)


@pytest.mark.parametrize(
    ("name", "elements"),
    [
        ("deepseek-ai/DeepSeek-V4-Pro", 5511.4375),  # 30 x (584 + 132) / 4 + 31 x 584 / 128
        ("MiniMaxAI/MiniMax-M3", 61_440 + 57 * 256),  # 60 x 2 x 4 x 128, and the assumed index
        ("Qwen/Qwen3.5-397B-A17B", 15_360),  # 15 x 2 x 2 x 256
        ("openai/gpt-oss-120b", 18_432),  # 18 x 2 x 8 x 64
        ("zai-org/GLM-5.2", 78 * 576 + 21 * 132),
        ("deepseek-ai/DeepSeek-R1", 61 * 576),
    ],
)
def test_elements_of_other_models(name: str, elements: float) -> None:
    """At one byte an element and one rank; indexes are bytes already."""
    assert token_bytes(architecture(name).attention, KvSettings(element_bytes=1)) == elements


def test_public_blocks_of_grouped_query_hybrids() -> None:
    """Blocks that engines printed: 2,096 for Qwen3.5-397B at TP2 (fp32 states, bf16 entries); for a 27B model of the
    same family (48 state layers of 48 heads, 16 full ones of 4 KV heads x 256) 784, with three drafted tokens 800 and,
    in fp8, 1,600; its 48 state layers are padded by 3 to groups of 17, its next-token layer being the 17th."""
    large = pages_of(architecture("Qwen/Qwen3.5-397B-A17B"), KvSettings(tp=2), None)
    assert large is not None and large.block_tokens == 2096
    model = replace(
        architecture("Qwen/Qwen3.5-397B-A17B"),
        attention=(
            Attention("gqa", layers=16, heads=24, kv_heads=4, head_dim=256),
            Attention(
                "gated-delta", layers=48, heads=48, kv_heads=16, head_dim=128, value_dim=128, conv_kernel=4
            ),
        ),
    )
    mtp = Draft("mtp", (Attention("gqa", 1, 24, kv_heads=4, head_dim=256),), (), None, 5120, builtin=True)
    found = [
        pages_of(model, settings, draft)
        for settings, draft in (
            (KvSettings(), None),
            (KvSettings(draft_tokens=3), mtp),
            (KvSettings(draft_tokens=3, element_bytes=1), mtp),
        )
    ]
    assert [one.block_tokens for one in found if one] == [784, 800, 1600]
    assert found[1] is not None
    assert (found[1].full_layers, found[1].state_layers, found[1].draft_layers) == (17, 51, 0)
    # A refusal of that engine names 0.63 GiB a request whatever its length: 51 pages of 1,600 x 2,048 B, 4 times
    # (one state and one for each drafted token; prefixes were not cached). Without drafts 0.14 GiB: 48 of 1,568, once.
    bare = KvSettings(draft_tokens=3, element_bytes=1, prefix_caching=False)
    assert request_cost(model, bare, mtp, 1).states / GIB == pytest.approx(0.63, abs=0.01)
    alone = KvSettings(element_bytes=1, prefix_caching=False)
    assert request_cost(model, alone, None, 1).states / GIB == pytest.approx(0.14, abs=0.005)


def test_public_starts_of_deepseek_r1() -> None:
    """A pool of 46.80 GiB, bf16 entries: an engine printed 715,072 tokens at TP8 and 5,721,088 with DCP8."""
    model = architecture("deepseek-ai/DeepSeek-R1")
    for dcp, printed in ((1, 715_072), (8, 5_721_088)):
        settings = KvSettings(tp=8, dcp=dcp, block_tokens=64)
        tokens = tokens_that_fit(model, settings, None, 46.80 * GIB, 163_840)
        assert tokens == pytest.approx(printed, rel=2e-4)


def test_pool_arithmetic_of_deepseek_v4() -> None:
    """An engine printed 7,705.45 B a token for the 43-layer model: 21 layers x (584 + 132) / 4, 20 x 584 / 128, and a
    tenth of 43 x 584 B of window with 21 layers' compressors (8 slots of 8,192 + 2,048 B for 128 tokens)."""
    four = Attention("compressed", 21, 64, kv_heads=1, head_dim=512, compress=4, window=128, index_dim=128)
    many = Attention("compressed", 20, 64, kv_heads=1, head_dim=512, compress=128, window=128)
    whole = Attention("compressed", 2, 64, kv_heads=1, head_dim=512, window=128)
    groups, settings = (four, many, whole), KvSettings(element_bytes=1)
    held = 0.1 * (43 * compressed_entry_bytes(whole) + compressor_bytes((four,), drafted=False) / 128)
    assert token_bytes(groups, settings) + held == pytest.approx(7705.45, abs=0.005)


def test_measured_starts_on_one_h200() -> None:
    """Two measured starts (0.6B and 8B shapes, bf16): weights of 1.1 and 15.3 GiB; caches of 1,188,352 and 814,368
    tokens: times 114,688 and 147,456 B they leave 1.1 and 2.1 GiB of 0.92 x 143,771 MiB, inside the assumption."""
    for name, weights, tokens, per_token in (
        ("Qwen/Qwen3-0.6B", 1.1, 1_188_352, 114_688),
        ("Qwen/Qwen3-8B", 15.3, 814_368, 147_456),
    ):
        model = architecture(name)
        precision = model.precision("bf16")
        assert precision is not None
        size = rank_weights(model, precision, Shards(tp=1)).total
        assert size / GIB == pytest.approx(weights, abs=0.06)
        assert token_bytes(model.attention, KvSettings()) == per_token
        kept = 0.92 * 143_771 * (1 << 20) - size - tokens * per_token
        assert 0.5 * GIB < kept < 2.5 * GIB


def test_huge_pages_of_the_seed() -> None:
    """8 x (190 + 4) GiB are 794,624 pages; 7 % more are 850,248; 850,000 are 1.621 TiB = 1.783 TB."""
    needs = host_needs(ranks=8, segment_bytes=190 * GIB, buffer_bytes=4 * GIB)
    assert needs.pages == 794_624
    assert needs.pages_reserved == 850_248
    assert pytest.approx(1.621, abs=0.0005) == 850_000 * PAGE_2M / (1 << 40)
    assert pytest.approx(1.783, abs=0.0005) == 850_000 * PAGE_2M / 1e12
    assert needs.bytes_per_node / 1e9 == pytest.approx(1666.45, abs=0.005)


@pytest.mark.parametrize(
    ("share", "budget"),
    [(0.75, 2249), (0.063, 188), (0.0634, 190), (0.5441, 1632), (0.5555, 1666), (0.5067, 1520)],
)
def test_budget(share: float, budget: int) -> None:
    """Both B300 fleets clamp to 2,861,022 MiB; 190 GB needs 0.0634, not 0.063."""
    assert dram_budget_gb(3_977_095, share, 8, 8) == budget
    assert dram_budget_gb(2_964_436, share, 8, 8) == budget


def test_one_long_stream_of_the_seed() -> None:
    """137,000 tokens cost a rank ceil(137,000 / 7,168) = 20 blocks: 20 x 24 + 6 x 72 + 20 x 6 pages of 516,096 B;
    50 GiB hold 100 of them."""
    model = architecture("kimik3")
    pages = 20 * 24 + 6 * 72 + 20 * 6
    assert requests_that_fit(model, SEED, model.drafts[0], 50 * GIB, 137_000) == 50 * GIB // (pages * 516_096)


def test_public_starts_of_a_shared_index() -> None:
    """GLM-5.2, fp8 entries: an engine showed 55,225 B a token while all 78 layers had an index, 47,702 once the 21
    owners alone did; 132.43 GiB then held 2,574,848 tokens and 133.40 GiB 3,002,752."""
    model = architecture("zai-org/GLM-5.2")
    for everywhere, each, pool, printed in (
        (True, 55_225, 132.43, 2_574_848),
        (False, 47_702, 133.40, 3_002_752),
    ):
        settings = KvSettings(tp=4, element_bytes=1, block_tokens=64, index_everywhere=everywhere)
        assert token_bytes(model.attention, settings) == pytest.approx(each, abs=2)
        tokens = tokens_that_fit(model, settings, None, pool * GIB, MILLION)
        assert tokens == pytest.approx(printed, rel=2e-4)


def test_a_public_refusal_of_fp8_index_keys() -> None:
    """MiniMax-M3 at TP2 with fp8 entries, fp8 index keys and a draft layer of 4 KV heads x 128: an engine refused
    1,048,576 tokens as 37.62 GiB (38,528 x 1,024 B = 37.625 GiB) and named 883,840 as the most that 31.72 GiB hold."""
    model = architecture("MiniMaxAI/MiniMax-M3")
    settings = KvSettings(tp=2, element_bytes=1, block_tokens=128, index_share=0.5)
    draft = Draft("eagle", (Attention("gqa", 1, 32, kv_heads=4, head_dim=128),), (), 10**9, 6144)
    assert token_bytes(model.attention, settings) == 60 * 2 * 256 + 57 * 128
    assert request_cost(model, settings, draft, 1_048_576).total == 37.625 * GIB
    tokens = tokens_that_fit(model, settings, draft, 31.72 * GIB, 1_048_576)
    assert tokens == pytest.approx(883_840, rel=3e-4)


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [("nvidia/MiniMax-M3-NVFP4", 248), ("nvidia/Kimi-K2.5-NVFP4", 590)],
)
def test_published_sizes_of_nvfp4_checkpoints(name: str, gigabytes: float) -> None:
    """About 250 GB and 590 to 591 GB on disk by public scripts and model cards. By hand: 413.12 G x 4.5 + 10.33 G x
    8.25 + 2.50 G x 16 bits = 248.0 GB; 1,014.69 G x 4.5 + 9.21 G x 12.2 + 2.51 G x 16 bits = 589.8 GB."""
    model = architecture(name)
    precision = model.precision("fp4")
    assert precision is not None
    assert weight_bytes(parameters_of(model), precision) / 1e9 == pytest.approx(gigabytes, rel=1e-3)


def test_public_weights_of_glm_nvfp4() -> None:
    """GLM-5.2-NVFP4 at TP4: an engine printed 106.76 GiB a rank with 21 indexes; worked out within 1.5 %."""
    model = architecture("nvidia/GLM-5.2-NVFP4")
    precision = model.precision("fp4")
    assert precision is not None
    assert rank_weights(model, precision, Shards(tp=4, experts=4)).total / GIB == pytest.approx(
        106.76, rel=0.015
    )
