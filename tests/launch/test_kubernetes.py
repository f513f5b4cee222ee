"""Kubernetes manifests: core objects against the schemas that Kubernetes publishes, everything else by hand.

The schemas are those of the PyPI package kubernetes-validate. Custom resources have none there, so their pod templates
are checked as core PodTemplates, and their own fields against the public references that the module names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.launch.recipes import HEAD, deployment_of

from servemark.base.errors import ServemarkError
from servemark.launch.kubernetes import kubernetes_manifests

SGLANG = """
engine: {type: sglang}
frontend: {type: sglang-router}
roles:
  prefill: {nodes: 2, workers: 2, gpus: 8, args: {tp-size: 8}, env: {A: "x$(B) $C"}}
  decode: {nodes: 4, workers: 1, gpus: 32, args: {tp-size: 32}}
"""
STORE = """
services:
  - {name: mc, type: mooncake-master, options: {store_config: {global_segment_size: 1gb, local_buffer_size: 1gb}}}
"""
VLLM = """
engine: {type: vllm}
frontend: {type: vllm}
roles:
  aggregated: {nodes: 1, workers: 1, gpus: 4, args: {tensor-parallel-size: 4}}
"""
DYNAMO = """
engine: {type: vllm}
frontend: {type: dynamo}
roles:
  prefill: {nodes: 2, workers: 2, gpus: 8, args: {tensor-parallel-size: 8}}
  decode: {nodes: 2, workers: 1, gpus: 16, args: {tensor-parallel-size: 16}}
"""
CUSTOM = {"LeaderWorkerSet", "DynamoGraphDeployment"}


def documents(text: str) -> dict[str, dict[str, Any]]:
    """Documents by `kind/name`; no two may be the same object."""
    found = [document for document in yaml.safe_load_all(text) if document]
    named = {f"{d['kind']}/{d['metadata']['name']}": d for d in found}
    assert len(named) == len(found)
    return named


def container(template: dict[str, Any], name: str = "main") -> dict[str, Any]:
    """One container of a pod template."""
    found: dict[str, Any] = next(c for c in template["spec"]["containers"] if c["name"] == name)
    return found


def templates(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The pod templates inside a custom resource."""
    spec = document["spec"]
    if document["kind"] == "LeaderWorkerSet":
        inner = spec["leaderWorkerTemplate"]
        return [inner[key] for key in ("leaderTemplate", "workerTemplate") if key in inner]
    return [component["podTemplate"] for component in spec["components"]]


@pytest.mark.parametrize("body", [SGLANG, SGLANG + STORE, VLLM, DYNAMO, DYNAMO + STORE])
def test_every_core_object_keeps_its_schema(tmp_path: Path, body: str) -> None:
    """Strictly: a field that the schema does not know is an error. Each mount has its volume, each volume its source."""
    made = documents(
        kubernetes_manifests(deployment_of(tmp_path, body), namespace="bench", secrets=["HF_TOKEN"])
    )
    for document in made.values():
        assert document["metadata"]["namespace"] == "bench"
        pods = [document["spec"]["template"]] if document["kind"] == "Deployment" else []
        if document["kind"] in CUSTOM:
            pods = templates(document)
            for pod in pods:
                bare = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": pod}
                kubernetes_validate.validate(bare, "1.37", strict=True)
        else:
            kubernetes_validate.validate(document, "1.37", strict=True)
        for pod in pods:
            volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
            mounted = {mount["name"] for c in pod["spec"]["containers"] for mount in c["volumeMounts"]}
            assert mounted == set(volumes)
            named = [v["configMap"]["name"] for v in volumes.values() if "configMap" in v]
            assert all(f"ConfigMap/{name}" in made for name in named)


def test_the_schemas_can_refuse(tmp_path: Path) -> None:
    """The check above is worth something: a field that does not exist is found."""
    made = documents(kubernetes_manifests(deployment_of(tmp_path, SGLANG)))
    head = made["Deployment/golden-head"]
    head["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(head, "1.37", strict=True)


def test_roles_are_leader_worker_sets_that_find_each_other(tmp_path: Path) -> None:
    """Two prefill groups of one pod and one decode group of four; names and ports worked out by hand.

    A leader's pod is called SET-GROUP, its headless service SET; within a group it is LWS_LEADER_ADDRESS.
    """
    made = documents(kubernetes_manifests(deployment_of(tmp_path, SGLANG)))
    assert set(made) == {
        "Deployment/golden-head", "Service/golden-head",
        "LeaderWorkerSet/golden-prefill", "LeaderWorkerSet/golden-decode",
    }  # fmt: skip
    prefill, decode = (made[f"LeaderWorkerSet/golden-{role}"]["spec"] for role in ("prefill", "decode"))
    assert prefill["replicas"] == 2 and prefill["leaderWorkerTemplate"]["size"] == 1
    assert decode["replicas"] == 1 and decode["leaderWorkerTemplate"]["size"] == 4
    leader = container(decode["leaderWorkerTemplate"]["leaderTemplate"])["args"]
    worker = container(decode["leaderWorkerTemplate"]["workerTemplate"])
    assert leader[leader.index("--node-rank") + 1] == "0"
    words = worker["args"]
    assert words[words.index("--node-rank") + 1] == "$(LWS_WORKER_INDEX)"
    assert words[words.index("--dist-init-addr") + 1] == "$(LWS_LEADER_ADDRESS):20001"
    assert worker["resources"] == {"limits": {"nvidia.com/gpu": 8}} and "readinessProbe" not in worker
    router = container(made["Deployment/golden-head"]["spec"]["template"], "router")["args"]
    assert router[router.index("--pd-disaggregation") + 1 :] == [
        "--prefill", "http://golden-prefill-0.golden-prefill:20000", "20001",
        "--prefill", "http://golden-prefill-1.golden-prefill:20000", "20001",
        "--decode", "http://golden-decode-0.golden-decode:20000",
    ]  # fmt: skip


def test_a_recipe_cannot_make_the_kubelet_expand_anything(tmp_path: Path) -> None:
    """`$$` is a dollar to the kubelet; only our own LWS and POD_IP references are expanded."""
    made = documents(kubernetes_manifests(deployment_of(tmp_path, SGLANG)))
    template = made["LeaderWorkerSet/golden-prefill"]["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    env = {e["name"]: e.get("value") for e in container(template)["env"]}
    assert env["A"] == "x$$(B) $$C"


def test_one_worker_is_served_by_its_leader(tmp_path: Path) -> None:
    """Without a router there is no head, and the Service selects pod 0 of the group by the controller's labels."""
    made = documents(kubernetes_manifests(deployment_of(tmp_path, VLLM), secrets=["HF_TOKEN"]))
    assert set(made) == {"LeaderWorkerSet/golden-aggregated", "Service/golden-front"}
    service = made["Service/golden-front"]["spec"]
    assert service["selector"]["leaderworkerset.sigs.k8s.io/name"] == "golden-aggregated"
    assert [port["port"] for port in service["ports"]] == [20000]
    pod = made["LeaderWorkerSet/golden-aggregated"]["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    secret = next(e for e in container(pod)["env"] if e["name"] == "HF_TOKEN")
    assert secret["valueFrom"] == {"secretKeyRef": {"name": "golden-secrets", "key": "HF_TOKEN"}}


def test_a_dynamo_arm_is_a_graph(tmp_path: Path) -> None:
    """The operator brings etcd, nats and the joining of nodes: none of their words stay, the store's master does."""
    made = documents(kubernetes_manifests(deployment_of(tmp_path, DYNAMO + STORE)))
    graph = made["DynamoGraphDeployment/golden"]["spec"]
    assert graph["backendFramework"] == "vllm"
    shapes = [(c["name"], c["type"], c["replicas"], c.get("multinode")) for c in graph["components"]]
    assert shapes == [
        ("Frontend", "frontend", 1, None),
        ("Prefill", "prefill", 2, None),
        ("Decode", "decode", 1, {"nodeCount": 2}),
    ]
    decode = container(graph["components"][2]["podTemplate"])
    assert decode["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert not {"--nnodes", "--master-addr", "--node-rank"} & set(decode["args"])
    names = {e["name"] for e in decode["env"]}
    assert "MOONCAKE_MASTER" in names and not {"ETCD_ENDPOINTS", "NATS_SERVER", "DYN_SYSTEM_PORT"} & names
    head = made["Deployment/golden-head"]["spec"]["template"]["spec"]["containers"]
    assert [c["name"] for c in head] == ["mc"] and head[0]["command"] == ["mooncake_master"]
    assert "golden-head:" in made["ConfigMap/golden-decode-config"]["data"]["mooncake.json"]


def test_custom_resources_are_marked(tmp_path: Path) -> None:
    """Each stands under a comment with its version."""
    text = kubernetes_manifests(deployment_of(tmp_path, SGLANG))
    assert text.count("# Not validated: custom resource leaderworkerset.x-k8s.io/v1\napiVersion") == 2
    assert "# Not validated: custom resource nvidia.com/v1beta1" in kubernetes_manifests(
        deployment_of(tmp_path, DYNAMO)
    )


@pytest.mark.parametrize(
    ("head", "options", "key"),
    [
        (HEAD.replace("img:1", "pypi#vllm==0.11"), {}, "launch.kubernetes_no_image"),
        (HEAD, {"namespace": "Bad_Name"}, "launch.kubernetes_namespace"),
        (HEAD, {"secrets": ["a b"]}, "launch.kubernetes_secret"),
    ],
)
def test_what_cannot_be_rendered_is_said(
    tmp_path: Path, head: str, options: dict[str, Any], key: str
) -> None:
    """One error that names the cause."""
    with pytest.raises(ServemarkError) as caught:
        kubernetes_manifests(deployment_of(tmp_path, VLLM, head), **options)
    assert caught.value.key == key


def test_words_of_a_recipe_add_no_object(tmp_path: Path) -> None:
    """Names stand in comments: a line feed in one must not end the comment."""
    name = '"x\\n---\\nkind: Pod\\n# $(A)"'
    head = HEAD.replace("golden", name).replace('"img:1"', name).replace("/models/m", "/m/$B")
    plain = documents(kubernetes_manifests(deployment_of(tmp_path, SGLANG)))
    made = documents(kubernetes_manifests(deployment_of(tmp_path, SGLANG, head)))
    assert len(made) == len(plain)
    assert {key.partition("/")[0] for key in made} == {key.partition("/")[0] for key in plain}


def test_what_looks_like_a_node_or_a_port_stays_a_word(tmp_path: Path) -> None:
    """A node that the job does not have, and a number of an argument above 20000."""
    body = SGLANG.replace("x$(B) $C", "@ADDR99999@") + STORE.replace(
        "options", "args: [--default_kv_lease_ttl=60000], options"
    )
    made = documents(kubernetes_manifests(deployment_of(tmp_path, body)))
    main = container(templates(made["LeaderWorkerSet/golden-prefill"])[0])
    assert {"name": "A", "value": "@ADDR99999@"} in main["env"]
    ports = [port["port"] for port in made["Service/golden-head"]["spec"]["ports"]]
    assert ports
    assert 60000 not in ports


@pytest.mark.parametrize("count", ["workers: 1, gpus: 1000000000000", "workers: 1000000000, gpus: 8"])
def test_absurd_counts_are_refused(tmp_path: Path, count: str) -> None:
    """They would be listed one by one."""
    with pytest.raises(AssertionError):
        deployment_of(tmp_path, VLLM.replace("workers: 1, gpus: 4", count))
