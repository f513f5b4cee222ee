"""Reports from plain values: what a line says, transfers, arms without a recipe, and the order of verdicts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servemark.catalog.architecture import Attention
from servemark.catalog.architectures import architecture
from servemark.catalog.arms import WorkerBlock
from servemark.catalog.hardware import gpu
from servemark.catalog.nodes import Position
from servemark.sizing.fit import FitReport, fit
from servemark.sizing.from_recipe import roles_of_blocks
from servemark.sizing.host import StoreSizes
from servemark.sizing.inputs import FitInput, RoleInput, Stated
from servemark.sizing.kv import KvSettings, StatePool, request_cost, state_bytes, state_layer_bytes
from servemark.sizing.startup_log import log_facts
from servemark.sizing.weights import Shards, draft_parameters

GIB = 1 << 30
R1 = architecture("deepseek-ai/DeepSeek-R1")
FP8 = R1.precision("fp8")
assert FP8 is not None
ROLE = RoleInput(
    name="prefill", engine="vllm", workers=1, nodes=1, ranks_per_worker=8, ranks_per_node=8,
    shards=Shards(tp=8, experts=8), kv=KvSettings(tp=8, element_bytes=1), kv_dtype="fp8",
    share=Stated(0.9, "flag"), max_context=Stated(10_000, "flag"),
)  # fmt: skip
ASKED = FitInput(
    title="t", model=R1, precision=FP8, roles=(ROLE, replace(ROLE, name="decode")), gpu=gpu("b200"), gpus_per_node=8,
    context=10_000, context_stated=True, transfer="nixl",
)  # fmt: skip


def line(report: FitReport, name: str) -> float:
    """A figure of the first role or the job."""
    return next(one.value for one in (*report.roles[0].lines, *report.job) if one.name == name)


def test_transfer_at_the_rate_of_the_nics() -> None:
    """10,000 tokens x 61 x 576 B = 351.36 MB; eight NICs of 400 Gb/s move 400 GB/s: 0.8784 ms. Over EFA: a band."""
    report = fit(ASKED)
    assert line(report, "transfer_bytes") == 10_000 * 61 * 576
    assert line(report, "transfer") == pytest.approx(351.36e6 / 400e9)
    efa = next(one for one in fit(replace(ASKED, transfer_efa=True)).job if one.name == "transfer_band")
    assert efa.margin is not None
    assert efa.value - efa.margin == pytest.approx(351.36e6 / 400e9)
    assert efa.value + efa.margin == pytest.approx(351.36e6 / 100e9)
    assert "transfer" not in {one.name for one in fit(replace(ASKED, roles=(ROLE,), transfer=None)).job}


def test_heads_divided_over_ranks_are_sent_once_each() -> None:
    """Grouped-query entries lie on all ranks of an attention: 36 x 8 x 256 x 2 B a token, whatever TP is."""
    model = architecture("Qwen/Qwen3-8B")
    precision = model.precision("bf16")
    assert precision is not None
    role = replace(ROLE, kv=KvSettings(tp=4), shards=Shards(tp=4), ranks_per_worker=4, ranks_per_node=4)
    asked = replace(ASKED, model=model, precision=precision, roles=(role, replace(role, name="decode")))
    assert line(fit(asked), "transfer_bytes") == 10_000 * 36 * 8 * 256 * 2


def test_store_without_known_host_memory() -> None:
    """The node's DRAM is not stated: on every known node of B200 (the least has 2,015 GiB) 8 x 104 GiB fit, 8 x 260
    cannot be told; stated and too small: the bytes; enough: fits."""
    large = StoreSizes("mooncake", 256 * GIB, 4 * GIB)
    unsure = fit(replace(ASKED, roles=(replace(ROLE, store=large),))).verdict
    assert (unsure.kind, unsure.reason) == ("cannot_say", "node_dram")
    assert "b200-nscale (2,016 GiB)" in str((unsure.values or {})["known"])
    store = StoreSizes("mooncake", 100 * GIB, 4 * GIB)
    asked = replace(ASKED, roles=(replace(ROLE, store=store),))
    assert fit(asked).verdict.kind == "fits"
    assert "node_dram_known" in {one.name for one in fit(asked).remarks}
    short = fit(replace(asked, node_dram_bytes=800 * GIB)).verdict
    assert (short.kind, short.scope, short.missing) == ("does_not_fit", "node", 32 * GIB)
    assert fit(replace(asked, node_dram_bytes=832 * GIB)).verdict.kind == "fits"


def test_budget_remarks() -> None:
    """832 GiB allocated: a budget of 800 GB is exceeded; one of 900 GB is within 2 %; 1,000 GB is another figure."""
    store = StoreSizes("mooncake", 100 * GIB, 4 * GIB)
    asked = replace(ASKED, roles=(replace(ROLE, store=store),), node_dram_bytes=1 << 50)
    found = {
        budget: {one.name for one in fit(replace(asked, budget_bytes=budget * 10**9)).remarks}
        for budget in (800, 900, 1000)
    }
    assert "over_budget" in found[800]
    assert not {"over_budget", "budget_is_not_allocation"} & found[900]
    assert "budget_is_not_allocation" in found[1000]


def test_worst_finding_decides() -> None:
    """One role that does not fit outweighs one of which nothing can be said."""
    small = replace(ROLE, name="decode", shards=Shards(tp=1), kv=KvSettings(element_bytes=1))
    store = StoreSizes("mooncake", GIB, GIB)
    verdict = fit(replace(ASKED, roles=(replace(ROLE, store=store), small))).verdict
    assert verdict.kind == "does_not_fit" and verdict.reason == "weights"
    assert fit(replace(ASKED, gpu=None)).verdict.reason == "gpu_memory"


def test_other_engines_start_with_a_short_pool() -> None:
    """SGLang with a pool below one longest request: said, and only a stated length that is too long does not fit."""
    role = replace(ROLE, engine="sglang", share=Stated(0.49, "flag"), max_context=Stated(10_000_000, "flag"))
    # 0.49 x 178 GiB - 79.2 GiB of weights - 2 +- 1.5 GiB are some 6 GiB; 10^7 tokens of 35,136 B are 327 GiB.
    unstated = fit(replace(ASKED, roles=(role,), context=10_000_000, context_stated=False))
    assert unstated.verdict.kind == "fits"
    assert "longest_short" in {one.name for one in unstated.remarks}
    assert fit(replace(ASKED, roles=(role,), context=10_000_000)).verdict.reason == "asked"
    assert fit(replace(ASKED, roles=(role,), context=100_000)).verdict.kind == "fits"


def test_arm_of_a_script_is_never_said_to_fit() -> None:
    """Sizes come from the master entry; shares, cache type and lengths are not known."""
    at = Position("m.yaml", 1, 1)
    block = WorkerBlock(2, 8, 2, 1, 1, 1, False, (), at)
    roles = roles_of_blocks("vllm", (("aggregated", block),), R1, 8)
    assert (roles[0].ranks_per_worker, roles[0].shards) == (16, Shards(tp=8, pp=2, experts=8))
    assert roles[0].ranks_per_node == 8
    assert fit(replace(ASKED, roles=roles)).verdict.reason == "no_recipe"


def test_largest_state_sets_the_page() -> None:
    """Two kinds of states and of entries: the larger of each. And 65 tokens of an undivided draft are 5 blocks of 16."""
    qwen = architecture("Qwen/Qwen3-8B")
    draft = architecture("qwen3.5").drafts[0]
    cost = request_cost(qwen, KvSettings(draft_sharded=False, dcp=2), draft, 65)
    assert cost.draft == 80 * 2 * 2 * 256 * 2
    assert cost.entries == 48 * 36 * 8 * 256 * 2


def test_block_of_a_log() -> None:
    """The public TP8 start of Kimi-K3 has blocks of 1,536 tokens; a log that says 768 is half."""
    k3 = architecture("kimik3")
    precision = k3.precision("fp4")
    assert precision is not None
    log = log_facts(
        ["INFO Setting attention block size to 768 tokens to ensure", "INFO KV cache size: 5 tokens"], "x"
    )
    found = fit(replace(ASKED, model=k3, precision=precision, roles=(ROLE,), gpu=gpu("b300"), log=log))
    block = next(one for one in found.roles[0].lines if one.name == "block")
    assert (block.value, block.replaced, block.off) == (768, 1536, 1.0)


def test_mamba_state() -> None:
    """4 heads of 8 with states of 16, one group, kernel 4: 4 x 16 x 8 x 4 B and (32 + 2 x 16) x 3 x 2 B."""
    group = Attention("mamba", layers=1, heads=4, kv_heads=1, head_dim=16, value_dim=8, conv_kernel=4)
    assert state_layer_bytes(group, KvSettings()) == 4 * 16 * 8 * 4 + 64 * 3 * 2


def test_data_parallel_attention_has_a_pool_for_each_share() -> None:
    """Eight ranks in attentions of two: four shares of one pool each; their requests add up over the worker."""
    role = replace(ROLE, kv=KvSettings(tp=2, element_bytes=1), shards=Shards(tp=2, experts=8))
    lines = {one.name: one for one in fit(replace(ASKED, roles=(role,))).roles[0].lines}
    assert role.data_parallel_shares == 4 and ROLE.data_parallel_shares == 1
    assert lines["requests_fit"].scope == lines["tokens_fit"].scope == "share"
    assert lines["requests_worker"].scope == "worker"
    assert lines["requests_worker"].value == 4 * lines["requests_fit"].value > 0
    alone = {one.name: one for one in fit(ASKED).roles[0].lines}
    assert alone["requests_fit"].scope == "worker" and "requests_worker" not in alone


def test_requests_stop_at_the_slots_for_states() -> None:
    """Qwen3.5 with five slots of one state each: five requests, though entries of 15,360 B a token allow more; the
    formula takes the states' pool off first."""
    model = architecture("Qwen/Qwen3.5-397B-A17B")
    precision = model.precision("fp8")
    assert precision is not None
    pool = StatePool(slots=5, per_request=1)
    kv = KvSettings(tp=8, element_bytes=1, hybrid_pages=False, state_pool=pool)
    role = replace(ROLE, engine="sglang", kv=kv)
    lines = {
        one.name: one
        for one in fit(replace(ASKED, model=model, precision=precision, roles=(role,))).roles[0].lines
    }
    assert lines["requests_slots"].value == 5 and "requests_fit" not in lines
    assert lines["state_pool"].value == 5 * state_bytes(model.attention, kv)
    assert f" - {5 * state_bytes(model.attention, kv):,})" in str(lines["tokens_fit"].formula["left"])


def test_an_unstated_cache_type_widens_what_is_worked_out_from_it() -> None:
    """`auto` may mean fp8: a request may cost half, so twice the tokens lie within the margin."""
    role = replace(ROLE, kv=KvSettings(tp=8, element_bytes=2), kv_dtype="auto")
    lines = {one.name: one for one in fit(replace(ASKED, roles=(role,))).roles[0].lines}
    halved = fit(replace(ASKED, roles=(replace(role, kv=KvSettings(tp=8, element_bytes=1), kv_dtype="fp8"),)))
    margin = lines["tokens_fit"].margin
    assert margin is not None and lines["tokens_fit"].value + margin >= line(halved, "tokens_fit")
    request = lines["request"]
    assert request.tag == "assumed" and request.margin == pytest.approx(request.value / 2)


def test_the_drafts_formula_gives_its_figure() -> None:
    """Experts of a next-token layer are divided over all ranks, its other parts over an attention's."""
    model = architecture("zai-org/GLM-5.2")
    precision = model.precision("fp4")
    assert precision is not None
    draft = model.drafts[0]
    role = replace(ROLE, draft=draft, kv=KvSettings(tp=1, element_bytes=1), shards=Shards(tp=1, experts=8))
    report = fit(replace(ASKED, model=model, precision=precision, roles=(role,)))
    made = next(one for one in report.roles[0].lines if one.name == "draft_weights").formula
    experts = 256 * 3 * 6144 * 2048
    assert made["routed"] == experts
    router = 6144 * 256 + 256  # counts at 16 bits as the other parts do
    rest = draft_parameters(draft).total - experts
    assert rest > router
    assert line(report, "draft_weights") == pytest.approx(rest * 2 + experts * 4.5 / 8 / 8)


def test_an_index_that_layers_share_is_said_both_ways() -> None:
    """Without a log both readings; a log whose tokens are those of 78 indexes says so."""
    model = architecture("zai-org/GLM-5.2")
    precision = model.precision("fp4")
    assert precision is not None
    asked = replace(ASKED, model=model, precision=precision, roles=(replace(ROLE, engine="sglang"),))
    (said,) = [one for one in fit(asked).remarks if one.name == "index_shared"]
    assert (said.values["own"], said.values["layers"]) == (21, 78)
    assert (said.values["shared_bytes"], said.values["whole_bytes"]) == (47_700, 55_224)
    log = log_facts(
        ["[2026-07-01 00:00:00 TP0] KV Cache is allocated. #tokens: 1944270, KV size: 100.00 GB"], "start.log"
    )  # 100 GiB / 55,225 B
    names = {one.name for one in fit(replace(asked, log=log)).remarks}
    assert "index_is_whole" in names and "index_shared" not in names
