"""Command lines, environment and placement of engines that do not run here, held to values worked out by hand.

Flags are those of the engines' own command-line references: vLLM 0.11+ (`vllm serve`, multi-node and data parallel),
SGLang 0.5 (`sglang.launch_server`, `sglang_router.launch_router`), TensorRT-LLM 1.x (`trtllm-serve [disaggregated]`),
Dynamo 1.x (`dynamo.frontend`, `dynamo.vllm`).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.launch.recipes import argv_of, deployment_of, job_of, option

from servemark.base.errors import Layer, ServemarkError
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch.allocation import AllocationRequest, NodeGroup
from servemark.launch.local_allocation import HostLauncher
from servemark.launch.slurm_options import step_argv

HEAD_CPU = """
schema: 2
name: golden
model: {path: /models/m, container: "img:1", precision: fp8}
resources: {gpu_type: cpu, gpus_per_node: 0}
"""
SGLANG_PD = """
engine: {type: sglang}
frontend: {type: FRONT, args: {policy: cache_aware}}
roles:
  prefill: {nodes: 2, workers: 2, gpus: 8, args: {tp-size: 8, disaggregation-bootstrap-port: 30001}}
  decode: {nodes: 2, workers: 1, gpus: 16, args: {tp-size: 16}, env: {SGLANG_X: "1"}}
"""


def test_vllm_alone_serves_itself(tmp_path: Path) -> None:
    """One worker, no router: it listens on the node's address, and JSON values stay one word."""
    body = """
engine: {type: vllm}
frontend: {type: vllm}
roles:
  aggregated:
    nodes: 1
    workers: 1
    gpus: 4
    args: {tensor-parallel-size: 4, enable-prefix-caching: true, async-scheduling: false,
      compilation-config: '{"level": 3}', port: 9}
    env: {VLLM_X: "a b"}
"""
    job = job_of(deployment_of(tmp_path, body))
    assert [step.name for step in job.steps] == ["aggregated-0"]
    step = job.steps[0]
    assert step.process.argv == (
        "vllm", "serve", "/models/m", "--served-model-name", "m", "--host", "10.0.0.1", "--port", "20000",
        "--tensor-parallel-size", "4", "--enable-prefix-caching", "--compilation-config", '{"level": 3}',
    )  # fmt: skip
    assert (
        step.gpus == (0, 1, 2, 3) and step.env["VLLM_X"] == "a b" and step.env["VLLM_HOST_IP"] == "10.0.0.1"
    )
    assert job.front.base_url == "http://10.0.0.1:20000" and job.notes == ("aggregated-0: port",)


def test_vllm_tensor_parallel_over_two_nodes(tmp_path: Path) -> None:
    """16 ranks on two nodes of 8: rank 0 serves, rank 1 is headless, both meet at rank 0's address and port."""
    body = """
engine: {type: vllm}
frontend: {type: vllm}
roles:
  aggregated: {nodes: 2, workers: 1, gpus: 16, args: {tensor-parallel-size: 16}}
"""
    job = job_of(deployment_of(tmp_path, body))
    first, second = argv_of(job, "aggregated-0"), argv_of(job, "aggregated-0.1")
    for argv in (first, second):
        assert option(argv, "--nnodes") == "2" and option(argv, "--master-addr") == "10.0.0.1"
        assert option(argv, "--master-port") == "20001"
    assert (option(first, "--node-rank"), option(second, "--node-rank")) == ("0", "1")
    assert "--headless" in second and "--headless" not in first and "--port" not in second
    assert [step.node.name for step in job.steps] == ["n1", "n2"]
    assert [step.process.probe is None for step in job.steps] == [False, True]


def test_vllm_data_parallel_over_two_nodes(tmp_path: Path) -> None:
    """Sixteen replicas of one GPU: eight a node, the second node's begin at rank 8."""
    body = """
engine: {type: vllm}
frontend: {type: vllm}
roles:
  aggregated: {nodes: 2, workers: 1, gpus: 16, args: {tensor-parallel-size: 1, data-parallel-size: 16}}
"""
    job = job_of(deployment_of(tmp_path, body))
    first, second = argv_of(job, "aggregated-0"), argv_of(job, "aggregated-0.1")
    for argv in (first, second):
        assert (
            option(argv, "--data-parallel-size") == "16" and option(argv, "--data-parallel-size-local") == "8"
        )
        assert option(argv, "--data-parallel-address") == "10.0.0.1"
        assert option(argv, "--data-parallel-rpc-port") == "20001" and "--nnodes" not in argv
    assert option(second, "--data-parallel-start-rank") == "8" and "--headless" in second
    assert "--data-parallel-start-rank" not in first


def test_dynamo_with_vllm_and_a_store(tmp_path: Path) -> None:
    """The seed arm's shape: services first, prefill on the first node, every worker told of the planes and the store."""
    body = """
engine: {type: vllm}
frontend: {type: dynamo, args: {router-mode: kv}}
services:
- name: store
  type: mooncake-master
  args: [--default_kv_lease_ttl=60000]
  options:
    store_config: {metadata_server: P2PHANDSHAKE, global_segment_size: 190GB, local_buffer_size: 4GB, protocol: efa}
roles:
  prefill:
    nodes: 1
    workers: 1
    gpus: 8
    args:
      tensor-parallel-size: 8
      kv-transfer-config: '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
  decode:
    nodes: 1
    workers: 1
    gpus: 8
    args: {tensor-parallel-size: 8}
"""
    job = job_of(deployment_of(tmp_path, body))
    assert [(step.stage, step.name, step.node.name) for step in job.steps] == [
        ("services", "etcd", "n1"),
        ("services", "nats", "n1"),
        ("services", "store", "n1"),
        ("workers", "prefill-0", "n1"),
        ("workers", "decode-0", "n2"),
        ("router", "router", "n1"),
    ]
    prefill = argv_of(job, "prefill-0")
    assert prefill[:5] == ["python3", "-m", "dynamo.vllm", "--model", "/models/m"]
    assert option(prefill, "--disaggregation-mode") == "prefill" and "--port" not in prefill
    env = next(step for step in job.steps if step.name == "decode-0").env
    assert env["ETCD_ENDPOINTS"] == "http://10.0.0.1:20000" and env["NATS_SERVER"] == "nats://10.0.0.1:20002"
    assert env["MOONCAKE_MASTER"] == "10.0.0.1:20004" and env["MOONCAKE_CONFIG_PATH"] == (
        "/logs/config/decode-0/mooncake.json"
    )
    step = next(step for step in job.steps if step.name == "decode-0")
    written = json.loads(step.process.files["mooncake.json"])
    assert written["master_server_address"] == "10.0.0.1:20004" and written["global_segment_size"] == "190GB"
    nixl = next(step for step in job.steps if step.name == "prefill-0").env
    assert nixl["VLLM_NIXL_SIDE_CHANNEL_HOST"] == "10.0.0.1" and nixl["VLLM_NIXL_SIDE_CHANNEL_PORT"].isdigit()
    front = argv_of(job, "router")
    assert front[:3] == ["python3", "-m", "dynamo.frontend"] and option(front, "--router-mode") == "kv"
    assert job.front.workers == 2


def test_sglang_pair_behind_its_own_router(tmp_path: Path) -> None:
    """Two prefill workers and one decode worker over two nodes: bootstrap ports pair up, followers serve nothing."""
    job = job_of(deployment_of(tmp_path, SGLANG_PD.replace("FRONT", "sglang-router")))
    names = [step.name for step in job.steps]
    assert names == ["prefill-0", "prefill-1", "decode-0", "decode-0.1", "router"]
    assert [step.node.name for step in job.steps] == ["n1", "n2", "n3", "n4", "n1"]
    first, router = argv_of(job, "prefill-0"), argv_of(job, "router")
    assert option(first, "--disaggregation-mode") == "prefill"
    bootstrap = option(first, "--disaggregation-bootstrap-port")
    place = router.index("--prefill")
    assert router[place + 1 : place + 3] == [f"http://10.0.0.1:{option(first, '--port')}", bootstrap]
    assert router.count("--prefill") == 2 and option(router, "--policy") == "cache_aware"
    leader, follower = argv_of(job, "decode-0"), argv_of(job, "decode-0.1")
    assert option(leader, "--dist-init-addr") == option(follower, "--dist-init-addr")
    assert option(leader, "--dist-init-addr").startswith("10.0.0.3:")
    assert option(follower, "--node-rank") == "1" and option(follower, "--nnodes") == "2"
    assert option(router, "--decode") == f"http://10.0.0.3:{option(leader, '--port')}"
    assert all(step.env.get("SGLANG_X") == "1" for step in job.steps if step.role == "decode")


def test_the_word_sglang_means_what_its_schema_says(tmp_path: Path) -> None:
    """In schema 1 `sglang` is the router; in schema 2 it is a lone worker that serves itself, unfit for a pair."""
    alone = """
engine: {type: sglang}
frontend: {type: sglang}
roles:
  aggregated: {nodes: 1, workers: 1, gpus: 8, args: {tp-size: 8}}
"""
    job = job_of(deployment_of(tmp_path, alone))
    assert [step.name for step in job.steps] == ["aggregated-0"] and job.frontend == "none"
    with pytest.raises(ServemarkError) as refused:
        job_of(deployment_of(tmp_path, SGLANG_PD.replace("FRONT", "sglang")))
    assert refused.value.key == "launch.frontend_unfit" and "sglang-router" in (
        refused.value.next_step() or ""
    )
    assert "sglang cannot" in refused.value.what()  # the recipe's own word
    first = """
name: golden
model: {path: /models/m, container: "img:1", precision: fp8}
resources: {gpu_type: h200, gpus_per_node: 8, agg_nodes: 1, agg_workers: 1}
backend: {type: sglang, sglang_config: {aggregated: {tp-size: 8}}}
frontend: {type: sglang}
"""
    old = job_of(deployment_of(tmp_path, "", head=first))
    assert [step.name for step in old.steps] == ["aggregated-0", "router"] and old.frontend == "sglang-router"


def test_trtllm_pair(tmp_path: Path) -> None:
    """Settings go into a file as LlmArgs spells them; the router's file lists the leaders of both sides."""
    body = """
engine: {type: trtllm}
frontend: {type: trtllm_serve}
roles:
  prefill: {nodes: 1, workers: 2, gpus: 4, args: {tensor-parallel-size: 4, max_batch_size: 8}}
  decode: {nodes: 1, workers: 1, gpus: 8, args: {tensor_parallel_size: 8}}
"""
    job = job_of(deployment_of(tmp_path, body))
    first = next(step for step in job.steps if step.name == "prefill-0")
    assert first.process.argv == (
        "trtllm-serve", "/models/m", "--host", "10.0.0.1", "--port", "20000", "--served_model_name", "m",
        "--extra_llm_api_options", "/logs/config/prefill-0/trtllm.yaml",
    )  # fmt: skip
    assert yaml.safe_load(first.process.files["trtllm.yaml"]) == {
        "tensor_parallel_size": 4,
        "max_batch_size": 8,
    }
    second = next(step for step in job.steps if step.name == "prefill-1")
    assert (first.gpus, second.gpus, second.node.name) == ((0, 1, 2, 3), (4, 5, 6, 7), "n1")
    router = next(step for step in job.steps if step.name == "router")
    assert router.process.argv == ("trtllm-serve", "disaggregated", "-c", "/logs/config/router/trtllm.yaml")
    said = yaml.safe_load(router.process.files["trtllm.yaml"])
    assert said["context_servers"] == {"num_instances": 2, "urls": ["10.0.0.1:20000", "10.0.0.1:20001"]}
    assert said["generation_servers"] == {"num_instances": 1, "urls": ["10.0.0.2:20002"]}


def test_trtllm_over_two_nodes_is_one_program_of_many_ranks(tmp_path: Path) -> None:
    """As TensorRT-LLM documents it for Slurm: one step, a rank a GPU, started together through its launch wrapper."""
    body = """
engine: {type: trtllm}
roles:
  aggregated: {nodes: 2, workers: 1, gpus: 16, args: {tensor_parallel_size: 16}}
"""
    job = job_of(deployment_of(tmp_path, body))
    (found,) = [step for step in job.steps if step.stage == "workers"]
    assert found.process.tasks == 16 and [found.node.name, *(node.name for node in found.also)] == [
        "n1",
        "n2",
    ]
    assert found.process.argv[0] == "trtllm-llmapi-launch" and found.gpus == tuple(range(8))
    asked = found.request()
    argv = step_argv(LaunchCluster("c", "slurm", mpi="pmix"), asked, "7", None, "m")
    wanted = ["--nodes=2", "--ntasks=16", "--ntasks-per-node=8", "--kill-on-bad-exit=1", "--mpi=pmix"]
    assert argv[4:9] == wanted and "--nodelist=n1,n2" in argv
    assert not any(
        word.startswith("--mpi") for word in step_argv(LaunchCluster("c", "slurm"), asked, "7", None, "m")
    )
    assert HostLauncher(0).describe(asked)[0] == "[16 MPI ranks on n1,n2]"
    allocation = HostLauncher(0).allocate(AllocationRequest("x", (NodeGroup("all", 1),), 60, 1.0))
    with pytest.raises(ServemarkError) as refused:
        allocation.start(asked)
    allocation.release()
    assert refused.value.key == "launch.local_ranks" and "16" in refused.value.what()


def test_an_external_llama_server(tmp_path: Path) -> None:
    """The binary is found by its name; host, port and the model's alias are the launcher's."""
    body = """
engine: {type: llama-server}
roles:
  aggregated: {nodes: 1, workers: 1, gpus: 0, args: {ctx-size: 4096, no-mmap: true, port: 1}}
"""
    job = job_of(deployment_of(tmp_path, body, head=HEAD_CPU), nodes=1)
    assert job.steps[0].process.argv == (
        "llama-server", "--model", "/models/m", "--alias", "m", "--host", "10.0.0.1", "--port", "20000",
        "--metrics", "--slots", "--ctx-size", "4096", "--no-mmap",
    )  # fmt: skip


def test_small_workers_are_packed_and_decode_begins_on_a_fresh_node(tmp_path: Path) -> None:
    """Three prefill workers of 2 GPUs share node 1 (6 of 8); decode takes whole nodes from the second on."""
    body = """
engine: {type: vllm}
frontend: {type: dynamo}
roles:
  prefill: {nodes: 1, workers: 3, gpus: 2, args: {tensor-parallel-size: 2}}
  decode: {nodes: 2, workers: 4, gpus: 4, args: {tensor-parallel-size: 4}}
"""
    job = job_of(deployment_of(tmp_path, body))
    where = {step.name: (step.node.name, step.gpus) for step in job.steps if step.stage == "workers"}
    assert where == {
        "prefill-0": ("n1", (0, 1)),
        "prefill-1": ("n1", (2, 3)),
        "prefill-2": ("n1", (4, 5)),
        "decode-0": ("n2", (0, 1, 2, 3)),
        "decode-1": ("n2", (4, 5, 6, 7)),
        "decode-2": ("n3", (0, 1, 2, 3)),
        "decode-3": ("n3", (4, 5, 6, 7)),
    }


@pytest.mark.parametrize("bind", ["loopback", "node", "all"])
def test_listening_addresses(tmp_path: Path, bind: str) -> None:
    """No step listens wider than it was told to: every --host is the address of the chosen kind."""
    job = job_of(deployment_of(tmp_path, SGLANG_PD.replace("FRONT", "sglang-router")), bind=bind)  # type: ignore[arg-type]
    for step in job.steps:
        argv = list(step.process.argv)
        if "--host" in argv:
            expected = {"loopback": "127.0.0.1", "node": step.node.address, "all": "0.0.0.0"}[bind]  # noqa: S104
            assert option(argv, "--host") == expected


BARE = """
engine: {type: vllm}
frontend: {type: vllm}
services:
- name: exporter
  type: command
  options: {command: WORDS}
roles:
  aggregated: {nodes: 1, workers: 1, gpus: 8, args: {tensor-parallel-size: 8}}
"""


def test_a_bare_command_is_a_list_of_words(tmp_path: Path) -> None:
    """A list passes word by word; one text would need a shell and is refused with its position."""
    words = '["/bin/echo", "$HOME; rm -rf /", "a b"]'
    job = job_of(deployment_of(tmp_path, BARE.replace("WORDS", words)))
    assert (
        job.steps[0].process.argv == ("/bin/echo", "$HOME; rm -rf /", "a b")
        and job.steps[0].stage == "services"
    )
    for wrong in ('"echo hi"', "[]", '["a", 1]', '[""]'):
        with pytest.raises(ServemarkError) as refused:
            job_of(deployment_of(tmp_path, BARE.replace("WORDS", wrong)))
        assert refused.value.key == "launch.command_list" and refused.value.where


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "PATH", "PYTHONSTARTUP", "SLURM_JOB_ID", "SERVEMARK_RUN"]
)
def test_variables_that_reach_further_than_an_engine(tmp_path: Path, name: str) -> None:
    """A recipe is data: what makes a program load other code, or passes for the launcher's own, is refused."""
    body = f"""
engine: {{type: vllm}}
frontend: {{type: vllm}}
roles:
  aggregated: {{nodes: 1, workers: 1, gpus: 8, args: {{tensor-parallel-size: 8}}, env: {{{name}: "x"}}}}
"""
    with pytest.raises(ServemarkError) as refused:
        job_of(deployment_of(tmp_path, body))
    assert refused.value.layer is Layer.INPUT and refused.value.key == "launch.env_refused"


@pytest.mark.parametrize("flag", ["a b", "x;y", "$(id)", "-", "é", "a\\nb"])
def test_a_name_that_is_no_flag(tmp_path: Path, flag: str) -> None:
    """An argument's name goes onto a command line; what is no name of one is refused, not handed over."""
    body = f"""
engine: {{type: vllm}}
frontend: {{type: vllm}}
roles:
  aggregated: {{nodes: 1, workers: 1, gpus: 8, args: {{tensor-parallel-size: 8, "{flag}": 1}}}}
"""
    with pytest.raises((ServemarkError, AssertionError)) as refused:
        job_of(deployment_of(tmp_path, body))
    if isinstance(refused.value, ServemarkError):
        assert refused.value.layer is Layer.INPUT


def test_front_ends_that_are_not_started_are_said(tmp_path: Path) -> None:
    """A recipe with ten routers behind a balancer gets one, and the step says which fields that leaves out."""
    body = SGLANG_PD.replace(
        "type: FRONT", "type: sglang-router, enable_multiple_frontends: true, num_additional_frontends: 9"
    )
    job = job_of(deployment_of(tmp_path, body))
    router = next(step for step in job.steps if step.name == "router")
    assert router.process.ignored == ("enable_multiple_frontends", "num_additional_frontends")
    assert "router: enable_multiple_frontends, num_additional_frontends" in job.notes
    one = job_of(deployment_of(tmp_path, body.replace("true", "false").replace("9", "0")))
    assert next(step for step in one.steps if step.name == "router").process.ignored == ()
