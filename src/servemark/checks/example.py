"""A small correct suite. Every rule's wrong example is one edit of it; checked as it is, it gives no finding."""

from __future__ import annotations

from pathlib import Path

from servemark.checks.model import Edit

MASTER = """\
acme-fp8-h9-dynamo-vllm-disagg:
  image: vllm/vllm-openai:v0.25.1
  model: acme/Owl-2
  model-prefix: owl2
  precision: fp8
  framework: dynamo-vllm
  runner: cluster:h9-lab
  router: {name: dynamo-router, version: "1.3.1"}
  kv-p2p-transfer: nixl
  multinode: true
  disagg: true
  scenarios:
    agentic-coding:
      - dram-utilization: 0.4411
        search-space:
          - spec-decoding: mtp
            kv-offloading: dram
            kv-offload-backend: {name: mooncake, version: "0.3.13.post1"}
            conc-list: [16]
            prefill:
              num-worker: 1
              tp: 8
              ep: 1
              dp-attn: false
              additional-settings:
                - "SYNTHETIC_ACCEPTANCE=true"
                - "SYNTHETIC_ACCEPTANCE_LENGTH=2.70"
                - "CONFIG_FILE=recipes/owl/disagg.yaml"
            decode: {num-worker: 2, tp: 4, ep: 1, dp-attn: false}
acme-fp8-h9-dynamo-sglang-agg:
  image: lmsysorg/sglang:v0.5.17
  model: acme/Owl-2
  model-prefix: owl2
  precision: fp8
  framework: dynamo-sglang
  runner: cluster:h9-lab
  router: {name: dynamo-router, version: "1.3.1"}
  multinode: true
  scenarios:
    agentic-coding:
      - dram-utilization: 0.4
        search-space:
          - kv-offloading: dram
            kv-offload-backend: {name: hicache}
            conc-list: [8]
            prefill:
              num-worker: 1
              tp: 8
              ep: 8
              dp-attn: true
              additional-settings:
                - "CONFIG_FILE=recipes/owl/agg.yaml"
            decode: {num-worker: 0, tp: 1, ep: 1, dp-attn: false}
acme-fp8-h9-dynamo-trt-disagg:
  image: nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc24
  model: acme/Owl-2
  model-prefix: owl2
  precision: fp8
  framework: dynamo-trt
  runner: cluster:h9-lab
  router: {name: dynamo-router, version: "1.3.1"}
  kv-p2p-transfer: nixl
  multinode: true
  disagg: true
  scenarios:
    fixed-seq-len:
      - isl: 1024
        osl: 1024
        search-space:
          - spec-decoding: mtp
            conc-list: [64, 128]
            prefill:
              num-worker: 1
              tp: 4
              ep: 4
              dp-attn: true
              additional-settings:
                - "CONFIG_FILE=recipes/owl/trt.yaml"
            decode: {num-worker: 1, tp: 8, ep: 8, dp-attn: false}
"""

CLUSTERS = """\
labels:
  cluster:h9-lab: [h9-lab_00, h9-lab_01]
hardware:
  cluster:h9-lab: {available-cpu-dram-mib: 3_000_000, gpus-per-node: 8}
"""

CONNECTORS = (
    '{"kv_connector":"MultiConnector","kv_role":"kv_both","kv_connector_extra_config":{"connectors":['
    '{"kv_connector":"NixlConnector","kv_role":"kv_both"},'
    '{"kv_connector":"MooncakeStoreConnector","kv_role":"kv_both",'
    '"kv_connector_extra_config":{"enable_offload":false}}]}}'
)

NIXL_ONLY = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
SPECULATIVE = '{"method":"mtp","num_speculative_tokens":3}'

DISAGG = f"""\
schema: 2
name: owl-disagg
model: {{path: acme/Owl-2, container: "vllm/vllm-openai:v0.25.1", precision: fp8}}
identity:
  model: {{repo: acme/Owl-2}}
  container: {{image: "vllm/vllm-openai:v0.25.1"}}
  frameworks: {{dynamo: "1.3.1", vllm: "0.25.1"}}
dynamo: {{install: true, version: "1.3.1"}}
slurm: {{time_limit: "06:00:00"}}
health_check: {{max_attempts: 720, interval_seconds: 10}}
resources: {{gpu_type: h9, gpus_per_node: 8}}
environment:
  LD_LIBRARY_PATH: /usr/local/cuda/lib64
frontend:
  type: dynamo
  args: {{router-mode: kv, router-session-affinity-ttl-secs: 900}}
services:
  - name: store
    type: mooncake-master
    options:
      store_config:
        metadata_server: P2PHANDSHAKE
        global_segment_size: 150GB
        local_buffer_size: 4GB
        protocol: rdma
        device_name: mlx5_0
        mode: embedded
        enable_offload: false
engine: {{type: vllm, connector: null}}
roles:
  prefill:
    nodes: 1
    workers: 1
    gpus: 8
    env: {{NCCL_CUMEM_ENABLE: "1"}}
    args:
      served-model-name: acme/Owl-2
      tensor-parallel-size: 8
      kv-cache-dtype: fp8
      max-num-seqs: 64
      kv-transfer-config: '{CONNECTORS}'
      speculative-config: '{{"method":"mtp","num_speculative_tokens":3}}'
  decode:
    nodes: 1
    workers: 2
    gpus: 4
    env: {{NCCL_CUMEM_ENABLE: "1"}}
    args:
      served-model-name: acme/Owl-2
      tensor-parallel-size: 4
      kv-cache-dtype: fp8
      max-num-seqs: 64
      kv-transfer-config: '{CONNECTORS}'
      speculative-config: '{{"method":"mtp","num_speculative_tokens":3}}'
benchmark:
  type: custom
  command: bash /bench/agentic.sh
  concurrencies: [16]
  env: {{RESULT_DIR: /logs/agentic}}
sbatch_directives: {{cpus-per-task: "72", mem: "0"}}
"""

AGG = """\
name: owl-agg
model: {path: acme/Owl-2, container: "lmsysorg/sglang:v0.5.17", precision: fp8}
identity:
  model: {repo: acme/Owl-2}
  container: {image: "lmsysorg/sglang:v0.5.17"}
  frameworks: {dynamo: "1.3.1", sglang: "0.5.17"}
dynamo: {install: true, version: "1.3.1"}
slurm: {time_limit: "06:00:00"}
health_check: {max_attempts: 720, interval_seconds: 10}
resources: {gpu_type: h9, gpus_per_node: 8, agg_nodes: 1, agg_workers: 1, gpus_per_agg: 8}
frontend:
  type: dynamo
  args: {router-mode: kv, router-session-affinity-ttl-secs: 900}
backend:
  type: sglang
  aggregated_environment: {NCCL_CUMEM_ENABLE: "1"}
  sglang_config:
    aggregated:
      served-model-name: acme/Owl-2
      tensor-parallel-size: 8
      data-parallel-size: 8
      expert-parallel-size: 8
      enable-dp-attention: true
      max-running-requests: 128
      enable-hierarchical-cache: true
      hicache-size: 150
benchmark:
  type: custom
  command: bash /bench/agentic.sh
"""

TRT = """\
name: owl-trt
model: {path: acme/Owl-2, container: "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc24", precision: fp8}
identity:
  model: {repo: acme/Owl-2}
  container: {image: "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc24"}
  frameworks: {dynamo: "1.3.1", tensorrt_llm: "1.3.0rc24"}
dynamo: {install: true, version: "1.3.1"}
slurm: {time_limit: "06:00:00"}
health_check: {max_attempts: 720, interval_seconds: 10}
resources:
  gpu_type: h9
  gpus_per_node: 8
  prefill_nodes: 1
  prefill_workers: 1
  gpus_per_prefill: 4
  decode_nodes: 1
  decode_workers: 1
  gpus_per_decode: 8
frontend:
  type: dynamo
backend:
  type: trtllm
  decode_environment: {TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS: "1.70"}
  trtllm_config:
    prefill:
      tensor_parallel_size: 4
      moe_expert_parallel_size: 4
      enable_attention_dp: true
      cache_transceiver_config: {backend: NIXL}
      speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 3}
    decode:
      tensor_parallel_size: 8
      moe_expert_parallel_size: 8
      enable_attention_dp: false
      max_batch_size: 256
      cache_transceiver_config: {backend: NIXL}
      speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 3}
benchmark:
  type: sa-bench
  isl: 1024
  osl: 1024
  concurrencies: "64x128"
  req_rate: inf
  use_chat_template: true
"""

CHANGELOG = """\
- config-keys:
    - acme-fp8-h9-dynamo-vllm-disagg
  description:
    - "Add the disaggregated arm."
  pr-link: https://example.com/acme/suite/pull/12

- config-keys:
    - acme-fp8-h9-dynamo-sglang-agg
  description:
    - "Add the aggregated arm."
  pr-link: XXX
"""

FILES: dict[str, str] = {
    "suite.yaml": (
        "name: example\nmasters: [masters.yaml]\nclusters: clusters.yaml\nchangelog: changelog.yaml\n"
        "recipe-roots: [recipes]\ngolden-acceptance-lengths: [golden]\neval-thresholds: thresholds.yaml\n"
        "container-aliases: aliases.yaml\n"
    ),
    "masters.yaml": MASTER,
    "clusters.yaml": CLUSTERS,
    "recipes/owl/disagg.yaml": DISAGG,
    "recipes/owl/agg.yaml": AGG,
    "recipes/owl/trt.yaml": TRT,
    "changelog.yaml": CHANGELOG,
    "golden/owl2_mtp.yaml": (
        "owl-2:\n  thinking_on: {1: 1.80, 2: 2.30, 3: 2.70, 4: 2.91}\n  thinking_off: {3: 2.95}\n"
    ),
    "thresholds.yaml": "default: {gsm8k: 0.85}\nmodels:\n  owl2: {gsm8k: 0.93}\n",
    "aliases.yaml": "owl-image: vllm/vllm-openai:v0.25.1\n",
}

PREFILL_ENV = 'env: {NCCL_CUMEM_ENABLE: "1"}\n    args:\n      served-model-name: acme/Owl-2\n      tensor-parallel-size: 8'
"""The environment of the disaggregated recipe's prefill role, with what makes the text unique."""
PREFILL_KV = f"""max-num-seqs: 64
      kv-transfer-config: '{CONNECTORS}'
      speculative-config: '{SPECULATIVE}'
  decode"""
"""Its connectors, likewise."""
DECODE_KV = PREFILL_KV.removesuffix("  decode") + "benchmark"
"""Those of the decode role."""
TRT_PREFILL = "moe_expert_parallel_size: 4\n      enable_attention_dp: true\n      cache_transceiver_config: {backend: NIXL}"
TRT_SETTINGS = """dp-attn: true
              additional-settings:
                - "CONFIG_FILE=recipes/owl/trt.yaml\""""

_TRT_ARM = MASTER[MASTER.index("acme-fp8-h9-dynamo-trt-disagg:") :]
TWICE = MASTER + _TRT_ARM.replace("trt-disagg:", "trt-disagg-again:")
"""A master in which one arm stands a second time under another key."""

_VLLM_ARM = MASTER[: MASTER.index("acme-fp8-h9-dynamo-sglang-agg:")]
_BY_GPUS = _VLLM_ARM.replace("ep: 1\n              dp-attn: false", "ep: 8\n              dp-attn: true")
TWO_MEANINGS = MASTER + "".join(
    text.replace("vllm-disagg:", f"vllm-disagg-{name}:").replace("owl/disagg", "owl/dep")
    for name, text in (("gpus", _BY_GPUS), ("arg", _BY_GPUS.replace("tp: 8", "tp: 1")))
)
"""Two more arms, in which `tp` means all GPUs of a worker, and the engine's argument."""
DATA_PARALLEL = DISAGG.replace(
    "tensor-parallel-size: 8",
    "tensor-parallel-size: 1\n      data-parallel-size: 8\n      enable-expert-parallel: true",
)
DSPARK = DISAGG.replace(
    SPECULATIVE, '{"method":"dspark","num_speculative_tokens":3,"draft_sample_method":"probabilistic"}'
)


def edited(edits: tuple[Edit, ...]) -> dict[str, str]:
    """The example's files with edits applied. ValueError for a text that is not there exactly once, unless the
    edit names an empty text: then the new text is the whole file."""
    files = dict(FILES)
    for name, old, new in edits:
        if not old:
            files[name] = new
            continue
        if files[name].count(old) != 1:
            raise ValueError(f"{name}: {old!r} stands there {files[name].count(old)} times")
        files[name] = files[name].replace(old, new)
    return files


def write(folder: Path, edits: tuple[Edit, ...] = ()) -> Path:
    """Put the example suite into a folder; gives the folder."""
    for name, content in edited(edits).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
    return folder
