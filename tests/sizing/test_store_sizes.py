"""Host tiers, each read by its own rules. Expected values by hand from the rule that the engine states."""

from __future__ import annotations

from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError

from .test_from_recipe import role_of

GIB = 1 << 30


def connector(name: str, extra: str) -> str:
    """Arguments of a vLLM role at TP 4 with one connector."""
    config = f'{{"kv_connector":"{name}","kv_role":"kv_both","kv_connector_extra_config":{extra}}}'
    return f"{{tensor-parallel-size: 4, kv-transfer-config: '{config}'}}"


@pytest.mark.parametrize(
    ("name", "extra", "each"),
    [
        ("SimpleCPUOffloadConnector", '{"cpu_bytes_to_use":8589934592}', 2 * GIB),  # a total over TP 4
        ("OffloadingConnector", '{"cpu_bytes_to_use":8589934592}', 2 * GIB),
        ("SimpleCPUOffloadConnector", '{"cpu_bytes_to_use":8589934592,"cpu_bytes_to_use_per_rank":1073741824}', GIB),
        ("LMCacheConnectorV1", '{"lmcache.max_local_cpu_size":20}', 20 * GIB),  # GiB of each process
        ("LMCacheConnectorV1", "{}", 5 * GIB),  # its default
    ],
)  # fmt: skip
def test_vllm_tiers(tmp_path: Path, name: str, extra: str, each: int) -> None:
    """Totals are divided, sizes of a rank are not; no other rank reads them, so they make no pool."""
    store = role_of(tmp_path, connector(name, extra), gpus=4).store
    assert store is not None and store.rank_bytes == each and not store.shared


def test_kv_offloading_size_is_gib_in_all(tmp_path: Path) -> None:
    """8 GiB over TP 4."""
    store = role_of(tmp_path, "{tensor-parallel-size: 4, kv-offloading-size: 8}", gpus=4).store
    assert store is not None and store.rank_bytes == 2 * GIB


def test_a_total_is_of_one_engine(tmp_path: Path) -> None:
    """Its world size is TP x PP x PCP: 24 GiB over 2 x 2 ranks; a data-parallel copy takes the total again."""
    for sizes, each in (
        ("tensor-parallel-size: 2, prefill-context-parallel-size: 2", 6 * GIB),
        ("tensor-parallel-size: 2, pipeline-parallel-size: 2", 6 * GIB),
        ("tensor-parallel-size: 2, data-parallel-size: 2", 12 * GIB),
    ):
        store = role_of(tmp_path, f"{{{sizes}, kv-offloading-size: 24}}", gpus=4).store
        assert store is not None and store.rank_bytes == each


def test_trtllm_host_cache_is_of_each_rank(tmp_path: Path) -> None:
    """137,438,953,472 B are 128 GiB on each of 8 ranks; 0 is no tier; silence with the second manager is said."""
    base = "{{tensor_parallel_size: 8, kv_cache_config: {{{more}}}}}"
    made = role_of(tmp_path, base.format(more="host_cache_size: 137438953472"), engine="trtllm")
    assert made.store is not None and made.store.rank_bytes == 128 * GIB
    assert role_of(tmp_path, base.format(more="host_cache_size: 0"), engine="trtllm").store is None
    silent = role_of(tmp_path, base.format(more="use_kv_cache_manager_v2: true"), engine="trtllm")
    assert silent.store is None and "trt_host_auto" in {one.name for one in silent.remarks}


def test_hicache_ratio_is_a_multiple(tmp_path: Path) -> None:
    """Without a size the default of 2 holds; a stated one replaces it; its bytes come with the device pool."""
    args = "{{tp-size: 8, enable-hierarchical-cache: true{more}}}"
    for more, ratio in (("", 2.0), (", hicache-ratio: 6", 6.0), (", hicache-size: 10", 0.0)):
        store = role_of(tmp_path, args.format(more=more), engine="sglang").store
        assert store is not None and store.ratio == ratio


@pytest.mark.parametrize(
    "args",
    [
        connector("OffloadingConnector", '{"cpu_bytes_to_use":"8GB"}'),
        connector("OffloadingConnector", '{"cpu_bytes_to_use":0}'),
        connector("LMCacheConnectorV1", '{"lmcache.max_local_cpu_size":"lots"}'),
        connector("LMCacheConnectorV1", '{"lmcache.max_local_cpu_size":1e300}'),
        "{tensor-parallel-size: 4, kv-offloading-size: -1}",
        "{tensor-parallel-size: 4, kv-offloading-size: .nan}",
    ],
)
def test_sizes_that_no_reader_takes(tmp_path: Path, args: str) -> None:
    """Exit code 2, no figure."""
    with pytest.raises(ServemarkError) as caught:
        role_of(tmp_path, args, gpus=4)
    assert caught.value.exit_code == 2


def test_memory_that_is_stated_elsewhere_is_said(tmp_path: Path) -> None:
    """A connector without a size, a server process of its own."""
    for name, remark in (("OffloadingConnector", "store_unread"), ("LMCacheMPConnector", "store_elsewhere")):
        role = role_of(tmp_path, connector(name, "{}"), gpus=4)
        assert role.store is None and [one.name for one in role.remarks] == [remark]


def test_states_apart(tmp_path: Path) -> None:
    """SGLang: slots are divided by data-parallel attention; extra buffers make 5 of a request; no cache, 1."""
    args = "{{tp-size: 8, dp-size: 4, enable-dp-attention: true, max-mamba-cache-size: 1024{more}}}"
    for more, each in (
        ("", 3),
        (", mamba-scheduler-strategy: extra_buffer", 5),
        (", disable-radix-cache: true", 1),
    ):
        role = role_of(tmp_path, args.format(more=more), model="Qwen/Qwen3.5-397B-A17B", engine="sglang")
        pool = role.kv.state_pool
        assert pool is not None and (pool.slots, pool.per_request) == (256, each)
