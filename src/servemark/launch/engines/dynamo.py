"""Dynamo: the front end with its router, and what makes an engine a Dynamo worker."""

from __future__ import annotations

from servemark.catalog.deployment import Deployment
from servemark.launch.allocation import AllocatedNode
from servemark.launch.engines.steps import JobContext, PlannedProcess, Probe, WorkerPlace, flags, url

ROUTER_MODES = (
    "round-robin",
    "random",
    "kv",
    "direct",
    "least-loaded",
    "power-of-two",
    "device-aware-weighted",
)
"""Values of `--router-mode` that Dynamo 1.x documents; another is handed over as it stands."""
_OWN = frozenset({"http-port", "http-host"})


def frontend(ctx: JobContext) -> PlannedProcess:
    """`python3 -m dynamo.frontend` on the head node. It is ready when it lists the model."""
    given = ctx.deployment.frontend
    port = ctx.front_port(ctx.head)
    rest, ignored = flags({a.spelled: a.value for a in given.args.values()} if given else {}, _OWN)
    argv = [
        "python3",
        "-m",
        "dynamo.frontend",
        "--http-host",
        ctx.listen(ctx.head),
        "--http-port",
        str(port),
        *rest,
    ]
    env = {**plane_env(ctx), **(given.env if given else {})}
    workers = sum(role.workers for role in ctx.deployment.roles)
    probe = Probe(url(ctx.head, port), "/health", ctx.served_name, workers)
    return PlannedProcess(tuple(argv), env, probe=probe, ignored=tuple(ignored))


def plane_env(ctx: JobContext) -> dict[str, str]:
    """Where discovery and messages are; without such services, files and plain TCP on this host."""
    env = {}
    if "etcd" in ctx.services:
        env["ETCD_ENDPOINTS"] = ctx.services["etcd"]
    if "nats" in ctx.services:
        env["NATS_SERVER"] = ctx.services["nats"]
    if ctx.bind == "loopback":
        env |= {"DYN_TCP_RPC_HOST": "127.0.0.1", "DYN_EVENT_PLANE_HOST": "127.0.0.1"}
    return env


def dynamo_env(ctx: JobContext, place: WorkerPlace, node: AllocatedNode) -> dict[str, str]:
    """A Dynamo worker's variables: the planes, and a system port of its own."""
    return {**plane_env(ctx), "DYN_SYSTEM_PORT": str(ctx.port(node))}


def mode_flags(ctx: JobContext, place: WorkerPlace) -> list[str]:
    """The worker's side. Dynamo before 1.0 had switches where there is `--disaggregation-mode` now."""
    role = place.role.role
    if role == "aggregated":
        return []
    if _major(ctx.deployment) == 0 and ctx.deployment.engine == "vllm":
        return [f"--is-{role}-worker"]
    return ["--disaggregation-mode", role]


def _major(deployment: Deployment) -> int | None:
    """Dynamo's major version where the recipe states one."""
    for software in deployment.software:
        if software.name == "dynamo" and software.kind in ("version", "wheel"):
            first = software.value.lstrip("v").partition(".")[0]
            return int(first) if first.isdigit() else None
    return None
