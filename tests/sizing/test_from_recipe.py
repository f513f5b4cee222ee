"""Recipes of several engines -> typed roles: which flag says what, read by whose rules, and what nobody says."""

from __future__ import annotations

from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.catalog.architectures import architecture
from servemark.catalog.nodes import Problem
from servemark.catalog.recipe import read_recipe
from servemark.sizing.from_recipe import roles_of
from servemark.sizing.inputs import RoleInput

GIB = 1 << 30
BASE = """\
schema: 2
name: r
model: {{path: {model}, container: x, precision: fp8}}
resources: {{gpu_type: h200, gpus_per_node: 8}}
engine: {{type: {engine}}}
{services}
roles:
  {role}:
    nodes: {nodes}
    workers: {workers}
    gpus: {gpus}
    args: {args}
benchmark: {{type: custom, command: "true", concurrencies: [1]}}
"""
STORE = """\
services:
- name: master
  type: mooncake-master
  options:
    store_config: {{global_segment_size: {segment}, local_buffer_size: 4GB, protocol: {protocol}, mode: {mode}}}
"""
CONNECTOR = '\'{"kv_connector":"MooncakeStoreConnector","kv_role":"kv_both"}\''


def role_of(tmp_path: Path, args: str, model: str = "deepseek-ai/DeepSeek-R1", **more: object) -> RoleInput:
    """The one role of a recipe written here."""
    fields: dict[str, object] = {
        "engine": "vllm", "services": "", "role": "aggregated", "nodes": 1, "workers": 1, "gpus": 8, **more,
    }  # fmt: skip
    path = tmp_path / "r.yaml"
    path.write_text(BASE.format(model=model, args=args, **fields), encoding="utf-8")
    problems: list[Problem] = []
    found = read_recipe(path, "r.yaml", problems)
    assert found is not None, [problem.error().what() for problem in problems]
    return roles_of(found, architecture(model))[0]


def test_sglang(tmp_path: Path) -> None:
    """TP 8 over 4 data-parallel ranks: two share one attention; experts over all 8; a token is a block."""
    role = role_of(
        tmp_path,
        "{tp-size: 8, dp-size: 4, enable-dp-attention: true, ep-size: 8, mem-fraction-static: 0.8, "
        "kv-cache-dtype: fp8_e4m3, context-length: 9000}",
        engine="sglang",
    )
    assert (role.shards.tp, role.shards.experts, role.kv.block_tokens) == (2, 8, 1)
    assert (role.share.value, role.share.margin) == (0.8, None)
    assert (role.kv.element_bytes, role.max_context.value) == (1, 9000)
    assert role.store is None


def test_hicache(tmp_path: Path) -> None:
    """--hicache-size 100 is 10^11 a rank; a store's 160gb is a total over TP 8: 20 GiB a rank."""
    args = "{tp-size: 8, enable-hierarchical-cache: true, hicache-size: 100}"
    role = role_of(tmp_path, args, engine="sglang")
    assert role.store is not None and role.store.rank_bytes == 100 * 10**9
    args = (
        "{tp-size: 8, enable-hierarchical-cache: true, hicache-size: 100, hicache-storage-backend-extra-config: "
        '\'{"global_segment_size": "160gb"}\'}'
    )
    role = role_of(tmp_path, args, engine="sglang")
    assert role.store is not None
    assert (role.store.segment_bytes, role.store.buffer_bytes) == (20 * GIB, 100 * 10**9)


def test_trtllm(tmp_path: Path) -> None:
    """The share is of what is left; attention-DP leaves one rank to an attention."""
    role = role_of(
        tmp_path,
        "{tensor_parallel_size: 8, enable_attention_dp: true, max_seq_len: 5000, kv_cache_config: "
        "{free_gpu_memory_fraction: 0.7, dtype: fp8, tokens_per_block: 32}}",
        engine="trtllm",
    )
    assert (role.shards.tp, role.shards.experts) == (1, 8)
    assert (role.share.value, role.kv.element_bytes, role.kv.block_tokens) == (0.7, 1, 32)
    assert role.max_context.value == 5000


def test_silent_recipe(tmp_path: Path) -> None:
    """What nobody says is an assumption with a margin, or the model's own limit."""
    role = role_of(tmp_path, "{tensor-parallel-size: 8}")
    assert (role.share.value, role.share.margin) == (0.92, 0.02)
    assert (role.kv_dtype, role.kv.element_bytes) == ("auto", 2)
    assert (role.max_context.value, role.max_context.source) == (163_840, "model")


def test_vllm_store(tmp_path: Path) -> None:
    """Embedded: each rank gives a segment. Standalone: none, only a buffer. 16 ranks in two workers on two nodes: 8
    on each."""
    args = f"{{tensor-parallel-size: 8, kv-transfer-config: {CONNECTOR}}}"
    for mode, segment in (("embedded", 190 * GIB), ("standalone-store", 0)):
        services = STORE.format(segment="190GB", protocol="rdma", mode=mode)
        role = role_of(tmp_path, args, services=services, workers=2, nodes=2)
        assert role.store is not None
        assert (role.store.segment_bytes, role.store.buffer_bytes) == (segment, 4 * GIB)
        assert (role.ranks_per_node, role.store.protocol, role.store.watermark_stated) == (8, "rdma", False)


@pytest.mark.parametrize("segment", ["190GiB", "1TB", "0GB", "lots", "-1GB"])
def test_store_size_that_its_reader_refuses(tmp_path: Path, segment: str) -> None:
    """vLLM would fail at start: exit code 2 with the place of the service, no figure."""
    args = f"{{tensor-parallel-size: 8, kv-transfer-config: {CONNECTOR}}}"
    services = STORE.format(segment=segment, protocol="rdma", mode="embedded")
    with pytest.raises((ServemarkError, AssertionError)) as caught:
        role_of(tmp_path, args, services=services)
    if isinstance(caught.value, ServemarkError):
        assert caught.value.exit_code == 2 and (caught.value.where or "").startswith("r.yaml:")
    else:
        assert "size" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "name", "remark"),
    [
        ('{"method":"mtp","num_speculative_tokens":2}', "mtp", None),
        ('{"method":"ngram","num_speculative_tokens":2}', None, None),
        ('{"method":"eagle3","model":"someone/unknown"}', None, "draft_unknown"),
    ],
)
def test_drafts(tmp_path: Path, config: str, name: str | None, remark: str | None) -> None:
    """The model's own next-token layers; n-grams have no weights; an unknown draft is said."""
    role = role_of(tmp_path, f"{{tensor-parallel-size: 8, speculative-config: '{config}'}}")
    assert (role.draft.name if role.draft else None) == name
    assert [one.name for one in role.remarks] == ([remark] if remark else [])


def test_large_graphs_are_said(tmp_path: Path) -> None:
    """Captures up to 512 without max-num-seqs; with it, or with small ones, nothing."""
    for args, names in (
        ("{tensor-parallel-size: 8, max-cudagraph-capture-size: 512}", ["graphs"]),
        ("{tensor-parallel-size: 8, max-cudagraph-capture-size: 512, max-num-seqs: 64}", []),
        ("{tensor-parallel-size: 8, max-cudagraph-capture-size: 64}", []),
        ("{tensor-parallel-size: 8}", []),
    ):
        assert [one.name for one in role_of(tmp_path, args).remarks] == names


def test_unread_store_is_said(tmp_path: Path) -> None:
    """A connector whose memory is not read here; a store connector without a store."""
    args = '{tensor-parallel-size: 8, kv-transfer-config: \'{"kv_connector":"OffloadingConnector","kv_role":"kv_both"}\'}'
    assert [one.name for one in role_of(tmp_path, args).remarks] == ["store_unread"]
    args = f"{{tensor-parallel-size: 8, kv-transfer-config: {CONNECTOR}}}"
    role = role_of(tmp_path, args)
    assert role.store is None and [one.name for one in role.remarks] == ["store_unconfigured"]


def test_context_parallelism_of_other_engines_is_open(tmp_path: Path) -> None:
    """Only vLLM's is known to divide the cache."""
    role = role_of(tmp_path, "{tp-size: 8, attn-cp-size: 8}", engine="sglang")
    assert role.kv.pcp == 1 and [one.name for one in role.remarks] == ["context_parallel"]


@pytest.mark.parametrize(
    ("engine", "args"),
    [
        ("vllm", "tensor-parallel-size: 8, block-size: 0"),
        ("vllm", "tensor-parallel-size: 8, block-size: 99999999999999"),
        ("vllm", "tensor-parallel-size: 8, max-model-len: 99999999999999999999999"),
        ("vllm", "tensor-parallel-size: 8, speculative-config: '{\"method\":\"mtp\",\"num_speculative_tokens\":9999999}'"),
        ("sglang", "tp-size: 8, max-mamba-cache-size: -4"),
        ("sglang", "tp-size: 8, mamba-full-memory-ratio: 1e308"),
        ("sglang", "tp-size: 8, enable-hierarchical-cache: true, hicache-size: [1]"),
        ("sglang", "tp-size: 8, enable-hierarchical-cache: true, hicache-ratio: .inf"),
        ("trtllm", "tensor_parallel_size: 8, kv_cache_config: {host_cache_size: -1}"),
    ],
)  # fmt: skip
def test_counts_that_no_engine_takes(tmp_path: Path, engine: str, args: str) -> None:
    """Refused with exit code 2 and a place, never sized."""
    with pytest.raises(ServemarkError) as caught:
        role_of(tmp_path, f"{{{args}}}", engine=engine)
    assert caught.value.exit_code == 2 and (caught.value.where or "").startswith("r.yaml:")


def test_fp8_index_keys(tmp_path: Path) -> None:
    """attention-config's indexer_kv_dtype halves bf16 index keys; an MLA index is fp8 already."""
    args = '{tensor-parallel-size: 8, kv-cache-dtype: fp8, attention-config: \'{"indexer_kv_dtype": "fp8"}\'}'
    assert role_of(tmp_path, args).kv.index_share == 1  # DeepSeek-R1 keeps no index
    minimax = "MiniMaxAI/MiniMax-M3"
    role = role_of(tmp_path, args, model=minimax)
    assert role.kv.index_share == 0.5
    assert role_of(tmp_path, "{tensor-parallel-size: 8}", model=minimax).kv.index_share == 1
