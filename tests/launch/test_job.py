"""Deployments as steps: placement and command lines, against values worked out by hand from the recipes below."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from servemark.base.errors import Layer, ServemarkError
from servemark.catalog.deployment import Deployment
from servemark.catalog.nodes import Problem
from servemark.catalog.recipe import read_recipe
from servemark.launch import script
from servemark.launch.allocation import AllocatedNode
from servemark.launch.job import Job, JobPlace, PlannedStep, build_job
from servemark.launch.placement import nodes_of, place

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
HEAD = "schema: 2\nname: t\nmodel: {path: org/model, container: img, precision: fp8}\nbenchmark: {type: manual}\n"


def recipe(tmp_path: Path, text: str) -> Deployment:
    """Read a recipe made of HEAD and `text`."""
    path = tmp_path / "r.yaml"
    path.write_text(HEAD + text)
    problems: list[Problem] = []
    found = read_recipe(path, "r.yaml", problems)
    assert found is not None, problems
    return found


def job_of(deployment: Deployment) -> Job:
    """On nodes n0, n1, … of addresses 10.0.0.1, …; ports count from 20000."""
    numbers = itertools.count(20_000)
    count = nodes_of(place(deployment))
    gpus = tuple(range(deployment.gpus_per_node or 0))
    nodes = [AllocatedNode(f"n{i}", "all", f"10.0.0.{i + 1}", gpus) for i in range(count)]

    def ports(_: AllocatedNode, many: int) -> Sequence[int]:
        return [next(numbers) for _ in range(many)]

    return build_job(deployment, JobPlace(nodes, ports, Path("/w"), Path("/l"), bind="node"), run_id="r1")


def step(job: Job, name: str) -> PlannedStep:
    """One step by its name."""
    return next(s for s in job.steps if s.name == name)


def shares(deployment: Deployment) -> dict[str, list[tuple[int, tuple[int, ...]]]]:
    """Worker -> (node, GPUs) of its ranks."""
    return {w.name: [(s.node, s.gpus) for s in w.shares] for w in place(deployment)}


def roles(prefill: str, decode: str, engine: str = "vllm", extra: str = "") -> str:
    """Two roles of nodes, workers and GPUs each, on nodes of four GPUs."""
    kinds = [
        dict(zip(("nodes", "workers", "gpus"), map(int, text.split()), strict=True))
        for text in (prefill, decode)
    ]
    block = yaml.safe_dump({"roles": {"prefill": kinds[0], "decode": kinds[1]}})
    return f"engine: {{type: {engine}{extra}}}\nresources: {{gpu_type: x, gpus_per_node: 4}}\n{block}"


def test_small_workers_pack_and_decode_begins_on_a_fresh_node(tmp_path: Path) -> None:
    """Three prefill workers of two GPUs fill a node and a half; decode leaves the half empty."""
    found = shares(recipe(tmp_path, roles("2 3 2", "1 1 4")))
    assert found == {
        "prefill-0": [(0, (0, 1))],
        "prefill-1": [(0, (2, 3))],
        "prefill-2": [(1, (0, 1))],
        "decode-0": [(2, (0, 1, 2, 3))],
    }


def test_spread_workers_have_nodes_of_their_own(tmp_path: Path) -> None:
    """Two prefill and three decode workers of two GPUs on five nodes of four, as published recipes book them with
    `spread_workers`; packed they would take three, and share caches, links and host memory."""
    text = roles("2 2 2", "3 3 2")
    packed = recipe(tmp_path, text)
    spread = recipe(tmp_path, text.replace("gpus_per_node: 4", "gpus_per_node: 4, spread_workers: true"))
    assert nodes_of(place(packed)) == 3
    assert [found[0][0] for found in shares(spread).values()] == [0, 1, 2, 3, 4]
    assert {found[0][1] for found in shares(spread).values()} == {(0, 1)}
    assert nodes_of(place(spread)) == spread.nodes_taken == 5
    assert spread.fingerprint() != packed.fingerprint()


def test_large_workers_take_whole_nodes(tmp_path: Path) -> None:
    """Eight GPUs on nodes of four: two nodes, rank 0 first."""
    found = shares(recipe(tmp_path, roles("1 1 4", "2 1 8")))
    assert found["decode-0"] == [(1, (0, 1, 2, 3)), (2, (0, 1, 2, 3))]


def test_too_few_nodes_and_uneven_ranks_are_said(tmp_path: Path) -> None:
    """With the position of the role."""
    for text, key in (
        (roles("1 2 4", "1 1 4"), "launch.too_few_nodes"),
        (roles("1 1 4", "2 1 7"), "launch.uneven_ranks"),
    ):
        with pytest.raises(ServemarkError) as caught:
            place(recipe(tmp_path, text))
        assert (
            caught.value.key == key
            and caught.value.layer is Layer.INPUT
            and "r.yaml:" in str(caught.value.where)
        )


def test_vllm_over_two_nodes(tmp_path: Path) -> None:
    """Tensor parallelism across nodes: `--nnodes`, and every rank but the first headless."""
    text = (
        "engine: {type: vllm}\nfrontend: {type: vllm}\nresources: {gpu_type: x, gpus_per_node: 4}\n"
        "roles: {aggregated: {nodes: 2, workers: 1, gpus: 8, env: {A: b}, args: {tensor-parallel-size: 8, port: 1,"
        " enable-x: true, off: false, j: '{\"a\": 1}'}}}\n"
    )
    job = job_of(recipe(tmp_path, text))
    rest = ["--tensor-parallel-size", "8", "--enable-x", "--j", '{"a": 1}']
    common = ["--nnodes", "2", "--master-addr", "10.0.0.1", "--master-port", "20001"]
    head = ["vllm", "serve", "org/model", "--served-model-name", "org/model"]
    serve = ["--host", "10.0.0.1", "--port", "20000"]
    assert list(step(job, "aggregated-0").process.argv) == [*head, *serve, *common, "--node-rank", "0", *rest]
    assert list(step(job, "aggregated-0.1").process.argv) == [
        *head,
        *common,
        "--node-rank",
        "1",
        "--headless",
        *rest,
    ]
    assert step(job, "aggregated-0.1").env == {"A": "b", "VLLM_HOST_IP": "10.0.0.2"}
    assert step(job, "aggregated-0.1").process.probe is None and job.front.base_url == "http://10.0.0.1:20000"
    assert job.notes == ("aggregated-0: port", "aggregated-0.1: port")


def test_vllm_data_parallel_over_two_nodes(tmp_path: Path) -> None:
    """Eight replicas of one GPU on two nodes: four on each, the second begins at rank 4."""
    text = (
        "engine: {type: vllm}\nfrontend: {type: vllm}\nresources: {gpu_type: x, gpus_per_node: 4}\n"
        "roles: {aggregated: {nodes: 2, workers: 1, gpus: 8, args: {tensor-parallel-size: 1, data-parallel-size: 8}}}\n"
    )
    words = " ".join(step(job_of(recipe(tmp_path, text)), "aggregated-0.1").process.argv)
    assert (
        "--data-parallel-size-local 4 --data-parallel-address 10.0.0.1 --data-parallel-rpc-port 20001"
        in words
    )
    assert "--data-parallel-start-rank 4 --headless" in words


def test_dynamo_with_services(tmp_path: Path) -> None:
    """etcd and nats are implied, ports go round, the front end waits for both workers."""
    text = roles("1 1 4", "1 1 4", extra=", connector: nixl") + (
        "frontend: {type: dynamo, args: {router-mode: kv}, env: {F: '1'}}\n"
        "services:\n- {name: nats, type: nats, options: {max_payload_mb: 32}}\n"
    )
    job = job_of(recipe(tmp_path, text))
    assert [s.name for s in job.steps] == ["etcd", "nats", "prefill-0", "decode-0", "router"]
    etcd, nats, prefill, router = (step(job, n) for n in ("etcd", "nats", "prefill-0", "router"))
    assert etcd.process.argv[:3] == ("etcd", "--data-dir", "/w/etcd/data")
    assert "max_payload: 33554432" in nats.process.files["nats.conf"]
    assert prefill.process.argv[:9] == (
        *("python3", "-m", "dynamo.vllm", "--model", "org/model", "--served-model-name", "org/model"),
        *("--disaggregation-mode", "prefill"),
    )
    assert '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}' in prefill.process.argv
    assert prefill.env["ETCD_ENDPOINTS"] == "http://10.0.0.1:20000"
    assert prefill.env["NATS_SERVER"] == "nats://10.0.0.1:20002"
    assert (
        prefill.env["VLLM_NIXL_SIDE_CHANNEL_PORT"] != step(job, "decode-0").env["VLLM_NIXL_SIDE_CHANNEL_PORT"]
    )
    assert router.process.argv[:3] == ("python3", "-m", "dynamo.frontend") and router.env["F"] == "1"
    assert router.process.argv[-2:] == ("--router-mode", "kv")
    assert router.process.probe is not None and router.process.probe.workers == 2


def test_sglang_pair_behind_its_own_router(tmp_path: Path) -> None:
    """The router is told each prefill worker's bootstrap port."""
    job = job_of(
        recipe(tmp_path, roles("1 1 4", "1 1 4", engine="sglang") + "frontend: {type: sglang-router}\n")
    )
    argv = step(job, "prefill-0").process.argv
    bootstrap = argv[argv.index("--disaggregation-bootstrap-port") + 1]
    router = " ".join(step(job, "router").process.argv)
    assert (
        f"--pd-disaggregation --prefill http://10.0.0.1:20000 {bootstrap} --decode http://10.0.0.2:" in router
    )


def test_trtllm_settings_file_and_ranks_over_nodes(tmp_path: Path) -> None:
    """Arguments go into YAML with underscores; a worker over two nodes is one step of all its ranks."""
    text = roles("1 1 4", "1 1 4", engine="trtllm").replace(
        "gpus: 4", "gpus: 4\n    args: {max-batch-size: 8, kv-cache-config: {dtype: fp8}}"
    )
    found = step(job_of(recipe(tmp_path, text)), "decode-0")
    assert yaml.safe_load(found.process.files["trtllm.yaml"]) == {
        "max_batch_size": 8,
        "kv_cache_config": {"dtype": "fp8"},
    }
    assert "/l/config/decode-0/trtllm.yaml" in found.process.argv
    wide = step(job_of(recipe(tmp_path, roles("1 1 4", "2 1 8", engine="trtllm"))), "decode-0")
    assert wide.process.tasks == 8 and len(wide.also) == 1


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("environment: {LD_PRELOAD: /x.so}\n", "launch.env_refused"),
        ("environment: {SERVEMARK_RUN: x}\n", "launch.env_refused"),
        ("services: [{name: s, type: command, options: {command: 'rm -rf /'}}]\n", "launch.command_list"),
        ("services: [{name: s, type: nothing}]\n", "launch.service_unknown"),
        ("frontend: {type: nginx}\n", "launch.frontend_unfit"),
    ],
)
def test_untrusted_recipes(tmp_path: Path, more: str, key: str) -> None:
    """Variables that load code, a shell string, unknown services and front ends are refused before anything runs."""
    with pytest.raises(ServemarkError) as caught:
        job_of(recipe(tmp_path, roles("1 1 4", "1 1 4") + more))
    assert caught.value.key == key and caught.value.exit_code == 2


def test_hostile_words_stay_words(tmp_path: Path) -> None:
    """Arguments full of shell signs are single words of argv, and of the script when bash reads it."""
    evil = "$(touch /tmp/x); `id` 'q' \"d\" \\ \n&"
    role = f"{{workers: 1, gpus: 0, args: {{x: {json.dumps(evil)}}}}}"
    text = f"engine: {{type: vllm}}\nfrontend: {{type: vllm}}\nroles: {{aggregated: {role}}}\n"
    deployment = recipe(tmp_path, text)
    assert evil in step(job_of(deployment), "aggregated-0").process.argv
    printed = subprocess.run(
        ["bash", "-c", f"printf %s {script.word(evil)}"], capture_output=True, text=True, check=True
    )
    assert printed.stdout == evil
    told = subprocess.run(
        ["bash", "-c", f"ADDR=(h0 h1); WORK=/w; printf %s {script.word('/@WORK@/a b:@ADDR1@')}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "/w/a b:h1"


@pytest.mark.corpus
def test_every_recipe_of_a_real_suite_renders(tmp_path: Path) -> None:
    """466 readable recipes; in 59 of them TensorRT-LLM workers span nodes, and their ranks are started together."""
    if not SHARED.is_dir():
        pytest.skip("no shared data here")
    outcomes: dict[str, int] = {}
    for root in (SHARED / "inferencex-2026-08" / "benchmarks", SHARED / "seed" / "suite" / "benchmarks"):
        for path in sorted(root.rglob("*.yaml")):
            deployment = read_recipe(path, path.name, [])
            if deployment is None:
                continue
            job = job_of(deployment)
            assert all("\0" not in word for s in job.steps for word in s.process.argv)
            held = {(n.name, gpu) for s in job.steps for n in (s.node, *s.also) for gpu in s.gpus}
            assert len(held) == deployment.gpus_total
            kind = "together" if any(s.process.tasks > 1 for s in job.steps) else "apart"
            outcomes[kind] = outcomes.get(kind, 0) + 1
    assert outcomes == {"apart": 407, "together": 59}
