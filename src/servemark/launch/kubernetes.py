"""A deployment as Kubernetes manifests, for clusters that are not run by Slurm. Rendered only: nothing is applied.

What services and the router are to a job on Slurm is one pod here, the head; every role is a LeaderWorkerSet whose
groups are its workers and whose pods are their ranks. A Dynamo arm becomes a DynamoGraphDeployment instead, because its
operator brings discovery, messages and the joining of nodes itself.

Custom resources follow the public references of LeaderWorkerSet (leaderworkerset.x-k8s.io/v1) and of the Dynamo
operator 1.5 (nvidia.com/v1beta1). No schema of theirs is checked here; each stands under a comment that says so.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from servemark.base.errors import input_error
from servemark.base.printable import one_line
from servemark.catalog.deployment import Deployment
from servemark.launch.allocation import AllocatedNode
from servemark.launch.job import Job, JobPlace, PlannedStep, build_job, frontend_of
from servemark.launch.placement import NodeShare, Placed, place_apart

Document = dict[str, Any]
LWS_VERSION = "leaderworkerset.x-k8s.io/v1"
DYNAMO_VERSION = "nvidia.com/v1beta1"
_FIRST_PORT = 20_000
_WORK, _CONFIG = "/work", "/config"
_PERIOD_S = 10
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_NODE = re.compile(r"@ADDR([0-9]{1,5})@")
_FOLDER = re.compile(r"/@(WORK|LOGS)@(?:/config)?/([A-Za-z0-9_.-]+)")
_OPERATORS_ENV = frozenset({"ETCD_ENDPOINTS", "NATS_SERVER", "DYN_SYSTEM_PORT"})
_OPERATORS_SERVICES = frozenset({"etcd", "nats"})
_TYPES = {"aggregated": "worker", "prefill": "prefill", "decode": "decode"}


@dataclass(frozen=True, slots=True)
class _Names:
    """What nodes of the job are called in the cluster: node 0 is the head, then each worker's ranks."""

    base: str
    hosts: Mapping[int, str]
    ranks: Mapping[int, tuple[str, int, int]]
    """Node -> (role, index, rank)."""
    ports: frozenset[int] = frozenset()
    """Every port that was handed out."""

    def resolved(self, text: str, own: int | None = None, *, expanded: bool = True) -> str:
        """A word of the job with names for node tokens. In a worker's own words (`own` its node) its leader is
        LWS_LEADER_ADDRESS, which the kubelet expands where `expanded`; every other dollar is kept as it stands."""
        parts, at = [], 0
        for found in _NODE.finditer(text):
            if int(found[1]) not in self.hosts:  # the recipe's own words
                continue
            parts.append(_escaped(text[at : found.start()], expanded))
            parts.append(self._host(int(found[1]), own if expanded else None))
            at = found.end()
        parts.append(_escaped(text[at:], expanded))
        return _FOLDER.sub(_folder, "".join(parts))

    def _host(self, node: int, own: int | None) -> str:
        if own is not None and node in self.ranks and own in self.ranks:
            role, index, rank = self.ranks[node]
            mine, my_index, my_rank = self.ranks[own]
            if (role, index, rank) == (mine, my_index, 0):
                return "$(LWS_LEADER_ADDRESS)"
            if (role, index, rank) == (mine, my_index, my_rank):
                return "$(POD_IP)"
        return self.hosts[node]


def _escaped(text: str, expanded: bool) -> str:
    return text.replace("$", "$$") if expanded else text


def _folder(found: re.Match[str]) -> str:
    return _WORK if found[1] == "WORK" else _CONFIG


def kubernetes_manifests(
    deployment: Deployment, *, namespace: str | None = None, secrets: Sequence[str] = ()
) -> str:
    """All manifests as one YAML stream, for people to read and to apply by hand.

    Raises ServemarkError (layer input) for what cannot be rendered: no container image, or what no launcher renders.
    """
    if namespace is not None and not _LABEL.fullmatch(namespace):
        raise input_error("launch.kubernetes_namespace", name=namespace[:80])
    for name in secrets:
        if not _KEY.fullmatch(name):
            raise input_error("launch.kubernetes_secret", name=name[:80])
    dynamo = frontend_of(deployment) == "dynamo"
    job, names = _job(deployment, joined=dynamo)
    image = _image(deployment)
    pods = _Pods(deployment, names, image, tuple(secrets))
    head = _head_steps(job, without_operators=dynamo)
    documents: list[tuple[str | None, Document]] = []
    documents += [(None, document) for document in pods.head(head)]
    roles = [role for role in deployment.roles if role.workers]
    if dynamo:
        documents += [(None, document) for document in pods.config_maps(job.stage("workers"))]
        documents.append((f"{DYNAMO_VERSION} (Dynamo operator 1.5)", _graph(deployment, job, pods)))
    else:
        for role in roles:
            steps = [step for step in job.stage("workers") if step.role == role.role]
            documents += pods.role(role.role, steps)
        if not any(step.stage == "router" for step in head):
            documents.append((None, pods.front_service(roles[0].role, job)))
    if namespace is not None:
        for _, document in documents:
            document["metadata"]["namespace"] = namespace
    return _stream(deployment, documents, secrets)


def _job(deployment: Deployment, *, joined: bool) -> tuple[Job, _Names]:
    """The job with a node a rank (`joined`: a node a worker), the head before them, and every node's ports alike."""
    per_node = deployment.gpus_per_node or None
    placed = tuple(_after_head(worker) for worker in place_apart(deployment, None if joined else per_node))
    base = _name(deployment.name)
    hosts, ranks = {0: f"{base}-head"}, {}
    for worker in placed:
        for rank, share in enumerate(worker.shares):
            group = f"{base}-{worker.role.role}"
            leader = f"{group}-{worker.index}"
            hosts[share.node] = f"{leader if rank == 0 else f'{leader}-{rank}'}.{group}"
            ranks[share.node] = (worker.role.role, worker.index, rank)
    counters: dict[str, count[int]] = {}
    handed = {deployment.port} if deployment.port else set()

    def ports(node: AllocatedNode, many: int) -> list[int]:
        numbers = counters.setdefault(node.name, count(_FIRST_PORT))
        found = [next(numbers) for _ in range(many)]
        handed.update(found)
        return found

    nodes = [AllocatedNode(f"node{n}", "all", f"@ADDR{n}@", ()) for n in range(1 + max(ranks, default=0))]
    where = JobPlace(
        nodes=nodes,
        ports=ports,
        work_root=Path("/@WORK@"),
        log_root=Path("/@LOGS@"),
        bind="all",
        fixed_port=deployment.port,
        placed=placed,
    )
    job = build_job(deployment, where, run_id=base, served_name=deployment.name)
    return job, _Names(base, hosts, ranks, frozenset(handed))


def _after_head(worker: Placed) -> Placed:
    """Node 0 is the head's."""
    shares = tuple(NodeShare(share.node + 1, share.gpus) for share in worker.shares)
    return Placed(worker.role, worker.index, shares)


def _head_steps(job: Job, *, without_operators: bool) -> list[PlannedStep]:
    if without_operators:  # the operator runs the front end, and brings etcd and nats
        return [step for step in job.stage("services") if step.role not in _OPERATORS_SERVICES]
    return [*job.stage("services"), *job.stage("router")]


def _image(deployment: Deployment) -> str:
    """`registry#repository:tag` as Kubernetes spells it."""
    if not deployment.container or deployment.container.startswith("pypi#"):
        raise input_error(
            "launch.kubernetes_no_image", where=str(deployment.at), container=deployment.container or "-"
        )
    return deployment.container.replace("#", "/", 1).removeprefix("docker://")


def _name(text: str) -> str:
    """A DNS label (RFC 1123) short enough for the names of pods that are made from it."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-") or "servemark"


class _Pods:
    """Pods of one deployment: containers out of steps, and what stands around them."""

    def __init__(self, deployment: Deployment, names: _Names, image: str, secrets: tuple[str, ...]) -> None:
        self.deployment = deployment
        self.names = names
        self.image = image
        self.secrets = secrets
        path = Path(deployment.model_path)
        self.model_dir = str(path.parent) if path.is_absolute() else None
        self.vendor = (
            "amd.com/gpu" if (deployment.gpu_type or "").lower().startswith("mi") else "nvidia.com/gpu"
        )

    def labels(self, part: str) -> dict[str, str]:
        """The recommended labels of an application's part."""
        return {"app.kubernetes.io/name": self.names.base, "app.kubernetes.io/component": part}

    def metadata(self, part: str) -> Document:
        """Name and labels."""
        return {"name": f"{self.names.base}-{part}", "labels": self.labels(part)}

    def container(self, step: PlannedStep, name: str, argv: Sequence[str] | None = None) -> Document:
        """One container: the step's own argv, never a shell."""
        own = int(step.node.name.removeprefix("node"))
        words = list(argv) if argv is not None else self.words(step)
        found: Document = {"name": name, "image": self.image, "command": words[:1], "args": words[1:]}
        found["env"] = self.environment(step, own)
        found["workingDir"] = _WORK
        if step.process.probe is not None:
            port = int(step.process.probe.base_url.rpartition(":")[2])
            get = {"httpGet": {"path": step.process.probe.path, "port": port}}
            patience = max(1, -(-int(self.deployment.ready_budget_s) // _PERIOD_S))
            found["ports"] = [{"containerPort": port}]
            found["startupProbe"] = {**get, "periodSeconds": _PERIOD_S, "failureThreshold": patience}
            found["readinessProbe"] = {**get, "periodSeconds": _PERIOD_S}
        if step.gpus:
            found["resources"] = {"limits": {self.vendor: len(step.gpus)}}
        mounts: list[Document] = [{"name": "work", "mountPath": _WORK}]
        if step.process.files:
            mounts.append({"name": f"config-{_name(name)}", "mountPath": _CONFIG})
        if step.gpus:
            mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - where engines look for it
        if self.model_dir is not None and step.stage == "workers":
            mounts.append({"name": "model", "mountPath": self.model_dir, "readOnly": True})
        found["volumeMounts"] = mounts
        return found

    def words(self, step: PlannedStep) -> list[str]:
        """The step's argv with names for nodes and folders."""
        own = int(step.node.name.removeprefix("node"))
        program, *rest = step.process.argv
        if Path(program).parent == Path(sys.executable).parent:  # of this host's; the image has its own
            program = Path(program).name
        return [self.names.resolved(word, own) for word in (program, *rest)]

    def environment(self, step: PlannedStep, own: int) -> list[Document]:
        """Variables: the pod's address first, because others refer to it; secrets by name only."""
        found: list[Document] = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
        for name, value in sorted(step.env.items()):
            address = value == step.node.address and step.stage == "workers"
            found.append({"name": name, "value": "$(POD_IP)" if address else self.names.resolved(value, own)})
        for name in self.secrets:
            found.append(
                {
                    "name": name,
                    "valueFrom": {"secretKeyRef": {"name": f"{self.names.base}-secrets", "key": name}},
                }
            )
        return found

    def volumes(self, containers: Iterable[tuple[Document, str | None]]) -> list[Document]:
        """What the containers mount; each with the name of its configuration."""
        found: list[Document] = [{"name": "work", "emptyDir": {}}]
        wanted = set()
        for container, config in containers:
            for mount in container["volumeMounts"]:
                wanted.add(mount["name"])
                if mount["name"].startswith("config-") and config is not None:
                    found.append({"name": mount["name"], "configMap": {"name": config}})
        if "shm" in wanted:
            found.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
        if "model" in wanted:
            claim = {"claimName": f"{self.names.base}-model", "readOnly": True}
            found.append({"name": "model", "persistentVolumeClaim": claim})
        return found

    def config_map(self, step: PlannedStep) -> Document | None:
        """The files that are written for a step."""
        if not step.process.files:
            return None
        data = {
            name: self.names.resolved(body, None, expanded=False) for name, body in step.process.files.items()
        }
        part = f"{step.role if step.stage == 'workers' else _name(step.name)}-config"
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": self.metadata(part), "data": data}

    def config_maps(self, steps: Iterable[PlannedStep]) -> list[Document]:
        """Those of the first worker of each role: the others have the same."""
        seen: dict[str, Document] = {}
        for step in steps:
            found = self.config_map(step)
            if found is not None and step.role not in seen:
                seen[step.role] = found
        return list(seen.values())

    def head(self, steps: Sequence[PlannedStep]) -> list[Document]:
        """Services and router as the containers of one pod, and one Service in front of them."""
        if not steps:
            return []
        found = [made for step in steps if (made := self.config_map(step)) is not None]
        pairs = []
        for step in steps:
            config = self.config_map(step)
            container = self.container(step, _name(step.name))
            pairs.append((container, None if config is None else config["metadata"]["name"]))
        labels = self.labels("head")
        pod = {"containers": [c for c, _ in pairs], "volumes": self.volumes(pairs)}
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": template,
        }
        found.append(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": self.metadata("head"), "spec": spec}
        )
        found.append(self._service("head", labels, _ports_of(steps, self.names.ports)))
        return found

    def _service(self, part: str, selector: Mapping[str, str], ports: Sequence[int]) -> Document:
        listed = [{"name": f"p{port}", "port": port, "targetPort": port} for port in ports]
        spec = {"selector": dict(selector), "ports": listed}
        return {"apiVersion": "v1", "kind": "Service", "metadata": self.metadata(part), "spec": spec}

    def front_service(self, role: str, job: Job) -> Document:
        """Where requests go when the one worker takes them itself: its leader."""
        port = int(job.front.base_url.rpartition(":")[2])
        selector = {
            "leaderworkerset.sigs.k8s.io/name": f"{self.names.base}-{role}",
            "leaderworkerset.sigs.k8s.io/worker-index": "0",
        }
        return self._service("front", selector, [port])

    def role(self, role: str, steps: Sequence[PlannedStep]) -> list[tuple[str | None, Document]]:
        """One LeaderWorkerSet of all workers. Raises ServemarkError (input) when they are not alike."""
        workers: dict[str, list[PlannedStep]] = {}
        for step in steps:
            workers.setdefault(step.instance, []).append(step)
        templates = [self._templates(ranks) for ranks in workers.values()]
        if any(template != templates[0] for template in templates):
            raise input_error(
                "launch.kubernetes_unlike", where=str(self.deployment.at), role=role, count=len(workers)
            )
        ranks = next(iter(workers.values()))
        leader, worker = templates[0]
        template: Document = {"size": len(ranks), "restartPolicy": "RecreateGroupOnPodRestart"}
        if worker is not None:
            template["leaderTemplate"] = leader
        template["workerTemplate"] = worker if worker is not None else leader
        spec = {"replicas": len(workers), "leaderWorkerTemplate": template}
        document = {
            "apiVersion": LWS_VERSION,
            "kind": "LeaderWorkerSet",
            "metadata": self.metadata(role),
            "spec": spec,
        }
        found: list[tuple[str | None, Document]] = []
        config = self.config_map(ranks[0])
        if config is not None:
            found.append((None, config))
        return [*found, (LWS_VERSION, document)]

    def _templates(self, ranks: Sequence[PlannedStep]) -> tuple[Document, Document | None]:
        """Pod templates of the leader and of the other ranks, which may differ in their own number only."""
        leader = self._pod(ranks[0], self.words(ranks[0]))
        if len(ranks) == 1:
            return leader, None
        columns = zip(*(self.words(step) for step in ranks[1:]), strict=True)
        words = []
        for column in columns:
            numbers = all(word == str(step.rank) for word, step in zip(column, ranks[1:], strict=True))
            if numbers and len(ranks) > 2:
                words.append("$(LWS_WORKER_INDEX)")
            elif len(set(column)) == 1:
                words.append(column[0])
            else:
                raise input_error(
                    "launch.kubernetes_unlike",
                    where=str(self.deployment.at),
                    role=ranks[0].role,
                    count=len(ranks),
                )
        return leader, self._pod(ranks[1], words)

    def _pod(self, step: PlannedStep, words: Sequence[str]) -> Document:
        container = self.container(step, "main", words)
        config = f"{self.names.base}-{step.role}-config" if step.process.files else None
        spec = {"containers": [container], "volumes": self.volumes([(container, config)])}
        return {"metadata": {"labels": self.labels(step.role)}, "spec": spec}


def _ports_of(steps: Sequence[PlannedStep], handed: frozenset[int]) -> list[int]:
    """Every port of the head that a word or a variable names: one that was handed out, or that follows a colon."""
    found: set[int] = set()
    for step in steps:
        texts = [*step.process.argv, *step.process.files.values(), *step.env.values()]
        if step.process.probe is not None:
            texts.append(step.process.probe.base_url)
        for text in texts:
            numbers = (int(number) for number in re.findall(r"(?<![0-9.])[0-9]{4,5}(?![0-9.])", text))
            found |= {n for n in numbers if n < 65536 and (n in handed or f":{n}" in text)}
    return sorted(found)


def _graph(deployment: Deployment, job: Job, pods: _Pods) -> Document:
    """A DynamoGraphDeployment: the front end, and a component a role. Ranks are joined by the operator."""
    components: list[Document] = []
    for step in job.stage("router"):
        container = _component_container(pods, step)
        components.append(
            {"name": "Frontend", "type": "frontend", "replicas": 1, **_template(pods, container)}
        )
    for role in deployment.roles:
        steps = [step for step in job.stage("workers") if step.role == role.role]
        if not steps:
            continue
        container = _component_container(pods, steps[0])
        nodes = -(-role.gpus // (deployment.gpus_per_node or role.gpus or 1)) or 1
        if role.gpus:
            container["resources"] = {"limits": {pods.vendor: role.gpus // nodes}}
        config = pods.config_map(steps[0])
        name = None if config is None else config["metadata"]["name"]
        component: Document = {"name": role.role.title(), "type": _TYPES[role.role], "replicas": role.workers}
        component |= _template(pods, container, name)
        if nodes > 1:
            component["multinode"] = {"nodeCount": nodes}
        components.append(component)
    spec = {"backendFramework": deployment.engine, "components": components}
    return {
        "apiVersion": DYNAMO_VERSION,
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": pods.names.base, "labels": pods.labels("graph")},
        "spec": spec,
    }


def _template(pods: _Pods, container: Document, config: str | None = None) -> Document:
    return {
        "podTemplate": {"spec": {"containers": [container], "volumes": pods.volumes([(container, config)])}}
    }


def _component_container(pods: _Pods, step: PlannedStep) -> Document:
    """The container that the operator looks for by the name `main`, without what the operator sets itself."""
    found = pods.container(step, "main")
    found["env"] = [variable for variable in found["env"] if variable["name"] not in _OPERATORS_ENV]
    for probe in ("startupProbe", "readinessProbe", "ports"):
        found.pop(probe, None)
    return found


def _stream(
    deployment: Deployment, documents: Sequence[tuple[str | None, Document]], secrets: Sequence[str]
) -> str:
    base = _name(deployment.name)
    lines = [
        f"# {deployment.name}: rendered by servemark from {deployment.file}. Running it is untested.",
        f"# The image must hold what every container starts: {deployment.container}",
    ]
    if Path(deployment.model_path).is_absolute():
        lines.append(f"# PersistentVolumeClaim {base}-model must exist; it holds {deployment.model_path}")
    if secrets:
        lines.append(f"# Secret {base}-secrets must exist, with the keys {', '.join(secrets)}")
    parts = ["".join(f"{one_line(line)}\n" for line in lines)]
    for custom, document in documents:
        note = f"# Not validated: custom resource {custom}\n" if custom is not None else ""
        parts.append(
            note + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)
        )
    return "---\n".join(parts)


class _Dumper(yaml.SafeDumper):
    """Without anchors, and with text of several lines as it stands: people read this."""

    def ignore_aliases(self, data: object) -> bool:
        """Always."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
