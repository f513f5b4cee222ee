"""What rules say beside their own example: other wordings, other weights, and what they must leave alone.

Every case is an edit of the example suite; the expected codes follow from the sources that the rules name.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from servemark.base.messages import LANGUAGES
from servemark.checks.check import check_suite
from servemark.checks.example import CONNECTORS, DECODE_KV, NIXL_ONLY, PREFILL_ENV, PREFILL_KV, write
from servemark.checks.model import Edit

DISAGG, AGG, TRT = "recipes/owl/disagg.yaml", "recipes/owl/agg.yaml", "recipes/owl/trt.yaml"
STORE = "protocol: rdma\n        device_name: mlx5_0"
EFA_LIBRARY = (DISAGG, "LD_LIBRARY_PATH: /usr/local/cuda/lib64", "LD_LIBRARY_PATH: /opt/amazon/efa/lib")


def variable(text: str) -> Edit:
    """An edit that sets a variable of the prefill role."""
    return DISAGG, PREFILL_ENV, PREFILL_ENV.replace('NCCL_CUMEM_ENABLE: "1"', text)


def nixl(config: str) -> str:
    """A NIXL connector with a configuration."""
    return NIXL_ONLY.replace('"kv_both"}', f'"kv_both","kv_connector_extra_config":{config}}}')


def connectors(prefill: str, decode: str) -> tuple[Edit, ...]:
    """Edits that give the two roles other connectors."""
    return (
        (DISAGG, PREFILL_KV, PREFILL_KV.replace(CONNECTORS, prefill)),
        (DISAGG, DECODE_KV, DECODE_KV.replace(CONNECTORS, decode)),
    )


CASES: dict[str, tuple[tuple[Edit, ...], str, str | None]] = {
    "router and engine cut alike": (
        (
            (DISAGG, "router-mode: kv,", "router-mode: kv, kv-cache-block-size: 64,"),
            (DISAGG, "tensor-parallel-size: 8", 'tensor-parallel-size: 8\n      block-size: "64"'),
        ),
        "KVC518",
        None,
    ),
    "a router that knows no caches": (
        (
            (DISAGG, "router-mode: kv,", "router-mode: random, kv-cache-block-size: 64,"),
            (DISAGG, "tensor-parallel-size: 8", "tensor-parallel-size: 8\n      block-size: 32"),
        ),
        "KVC518",
        None,
    ),
    "the launcher's front end of TensorRT-LLM": (
        (("recipes/owl/trt.yaml", "type: dynamo\nbackend", "type: trtllm_serve\nbackend"),),
        "RTR158",
        None,
    ),
    "a lone worker takes requests itself": (
        (("recipes/owl/agg.yaml", "frontend:\n  type: dynamo", "frontend:\n  type: none"),),
        "RTR158",
        None,
    ),
    "tcp has no devices": (((DISAGG, STORE, STORE.replace("rdma", "tcp")),), "KVT551", "note"),
    "a device twice": (((DISAGG, "mlx5_0", "mlx5_0,mlx5_1,mlx5_0"),), "KVT551", "warning"),
    "EFA devices under rdma": (((DISAGG, "mlx5_0", "rdmap79s0,rdmap80s0"),), "KVT551", "error"),
    "EFA devices under EFA": (
        ((DISAGG, STORE, "protocol: efa\n        device_name: rdmap79s0"),),
        "KVT551",
        None,
    ),
    "metadata over http": (((DISAGG, "P2PHANDSHAKE", "http://10.0.0.1:8080/metadata"),), "KVT552", None),
    "metadata by host": (((DISAGG, "P2PHANDSHAKE", "10.0.0.1:2379"),), "KVT552", None),
    "metadata in no form": (((DISAGG, "P2PHANDSHAKE", "none"),), "KVT552", "error"),
    "no NIXL plugin": (connectors(nixl('{"backends":[]}'), CONNECTORS), "KVT553", "error"),
    "NIXL plugins of one's own choice": (
        connectors(nixl('{"backends":["UCX","GDS"]}'), CONNECTORS),
        "KVT553",
        None,
    ),
    "one plugin in common": (
        connectors(nixl('{"backends":["UCX","LIBFABRIC"]}'), nixl('{"backends":["LIBFABRIC"]}')),
        "KVT554",
        None,
    ),
    "rdma beside EFA's library": ((EFA_LIBRARY,), "KVT555", "warning"),
    "EFA beside another provider": (
        ((DISAGG, STORE, "protocol: efa"), EFA_LIBRARY, variable("FI_PROVIDER: tcp")),
        "KVT555",
        "warning",
    ),
    "a store that nobody fills": (
        connectors(
            *(
                CONNECTORS.replace(
                    'StoreConnector","kv_role":"kv_both"', 'StoreConnector","kv_role":"kv_consumer"'
                ),
            )
            * 2
        ),
        "KVT558",
        "error",
    ),
    "a store that prefill fills": (
        connectors(
            CONNECTORS,
            CONNECTORS.replace(
                'StoreConnector","kv_role":"kv_both"', 'StoreConnector","kv_role":"kv_consumer"'
            ),
        ),
        "KVT558",
        None,
    ),
    "TCP forced off": ((variable('MC_FORCE_TCP: "0"'),), "KVT562", None),
    "an arena of no size": ((variable("MC_MMAP_ARENA_POOL_SIZE: 8GiB"),), "MEM312", "error"),
    "an arena without end": ((variable("MC_MMAP_ARENA_POOL_SIZE: infinite"),), "MEM312", None),
    "a page size that is off": ((variable("MC_STORE_HUGEPAGE_SIZE: 1GB"),), "MEM313", "warning"),
    "pages that nobody states": ((variable('MC_STORE_USE_HUGEPAGE: "1"'),), "MEM311", "note"),
    "a small segment in small pages": (
        ((DISAGG, STORE, "protocol: efa"), (DISAGG, "size: 150GB", "size: 64GB")),
        "MEM310",
        "note",
    ),
    "SGLang's size with a decimal": (
        (
            (
                AGG,
                "hicache-size: 150",
                "hicache-size: 150\n      hicache-storage-backend: mooncake\n"
                '      hicache-storage-backend-extra-config: \'{"global_segment_size":"1.5gb"}\'',
            ),
        ),
        "MEM306",
        "error",
    ),
    "a host cache of the second manager": (
        (
            (
                TRT,
                "moe_expert_parallel_size: 4\n",
                "moe_expert_parallel_size: 4\n      kv_cache_config: {enable_block_reuse: false, "
                "host_cache_size: 137438953472, use_kv_cache_manager_v2: true}\n",
            ),
        ),
        "KVT563",
        None,
    ),
}


@pytest.mark.parametrize("name", list(CASES))
def test_variant(name: str, tmp_path: Path) -> None:
    """The code with this severity, worded in both languages; or not the code at all."""
    edits, code, severity = CASES[name]
    found = [one for one in check_suite(write(tmp_path, edits)).findings if one.code == code]
    assert {one.severity for one in found} == ({severity} if severity else set()), [
        one.message() for one in found
    ]
    for one in found:
        assert all(one.message(lang) for lang in LANGUAGES)
