"""vLLM: `vllm serve`, alone or behind our own P/D router, or `python3 -m dynamo.vllm` behind a Dynamo front end.

Flags as vLLM's and Dynamo's own command-line references name them (vLLM 0.11 and later, Dynamo 1.x).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from servemark.base.errors import input_error
from servemark.launch.engines.dynamo import dynamo_env, mode_flags
from servemark.launch.engines.services import store_env, store_file
from servemark.launch.engines.steps import JobContext, PlannedProcess, Probe, WorkerPlace, flags, url

PD_ROUTER = Path(__file__).resolve().parents[1] / "vllm_pd_router.py"
"""A script of its own process; not imported here, since what it imports is heavy."""
_BOOTSTRAP = "VLLM_MOONCAKE_BOOTSTRAP_PORT"
_MOVERS = (("MooncakeConnector", "mooncake"), ("NixlConnector", "nixl"))
OWN = frozenset(
    {
        "model",
        "host",
        "port",
        "nnodes",
        "node-rank",
        "master-addr",
        "master-port",
        "headless",
        "served-model-name",
        "data-parallel-address",
        "data-parallel-rpc-port",
        "data-parallel-size-local",
        "data-parallel-start-rank",
        "connector",
    }
)
_CONNECTORS = {
    "nixl": {"kv_connector": "NixlConnector", "kv_role": "kv_both"},
    "lmcache": {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"},
}


def worker(ctx: JobContext, place: WorkerPlace) -> list[PlannedProcess]:
    """One process a node; rank 0 serves, the others are headless."""
    behind_dynamo = ctx.frontend == "dynamo"
    port = ctx.front_port(place.leader) if ctx.frontend == "none" else ctx.port(place.leader)
    rest, ignored = flags(place.role.args, OWN)
    shared = _across_nodes(ctx, place)
    found = []
    for number, rank in enumerate(place.ranks):
        head = (
            ["python3", "-m", "dynamo.vllm", "--model", ctx.model]
            if behind_dynamo
            else ["vllm", "serve", ctx.model]
        )
        argv = [*head, "--served-model-name", ctx.served_name]
        if behind_dynamo:
            argv += mode_flags(ctx, place)
        elif number == 0:
            argv += ["--host", ctx.listen(rank.node), "--port", str(port)]
        argv += _connector(ctx, place)
        argv += shared[number]
        env = {
            "VLLM_HOST_IP": rank.node.address,
            **_transfer_env(ctx, place, number),
            **store_env(ctx, rank),
            **(dynamo_env(ctx, place, rank.node) if behind_dynamo else {}),
        }
        found.append(
            PlannedProcess(
                argv=(*argv, *rest),
                env=env,
                files=store_file(ctx),
                probe=None
                if behind_dynamo or number
                else Probe(url(rank.node, port), "/health", ctx.served_name),
                ignored=tuple(ignored),
            )
        )
    return found


def _across_nodes(ctx: JobContext, place: WorkerPlace) -> list[list[str]]:
    """Per rank, how it finds the others. Data-parallel replicas that fit into a node are vLLM's own to spread."""
    nodes = len(place.ranks)
    if nodes == 1:
        return [[]]
    sizes = place.role.parallel
    replica = (sizes.tp or 1) * (sizes.pp or 1) * (sizes.pcp or 1)
    per_node = len(place.ranks[0].gpus)
    address, port = place.leader.address, ctx.port(place.leader)
    if sizes.dp and sizes.dp > 1 and per_node and replica <= per_node and sizes.dp % nodes == 0:
        local = sizes.dp // nodes
        common = ["--data-parallel-size-local", str(local), "--data-parallel-address", address]
        common += ["--data-parallel-rpc-port", str(port)]
        return [
            common if n == 0 else [*common, "--data-parallel-start-rank", str(n * local), "--headless"]
            for n in range(nodes)
        ]
    common = ["--nnodes", str(nodes), "--master-addr", address, "--master-port", str(port)]
    if sizes.dp and sizes.dp > 1:
        common += [
            "--data-parallel-address",
            address,
            "--data-parallel-rpc-port",
            str(ctx.port(place.leader)),
        ]
    return [[*common, "--node-rank", str(n), *(["--headless"] if n else [])] for n in range(nodes)]


def _connector(ctx: JobContext, place: WorkerPlace) -> list[str]:
    """The engine-wide connector's short name as the configuration that vLLM takes; the role's own goes before."""
    if "kv-transfer-config" in place.role.flags:
        return []
    name = place.role.args.get("connector", ctx.deployment.extras.get("connector"))
    if not isinstance(name, str) or name.lower() in ("", "none", "null"):
        return []
    known = _CONNECTORS.get(name)
    return ["--kv-transfer-config", json.dumps(known) if known else name]


def _transfer_env(ctx: JobContext, place: WorkerPlace, number: int) -> dict[str, str]:
    """Ports that KV connectors listen on: each instance needs its own where several share a node."""
    names = {connector.name for connector in place.role.connectors}
    if not place.role.connectors and _connector(ctx, place):
        names.add("NixlConnector")
    node = place.ranks[number].node
    env: dict[str, str] = {}
    if "NixlConnector" in names:
        env |= {
            "VLLM_NIXL_SIDE_CHANNEL_HOST": node.address,
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(ctx.port(node)),
        }
    if "MooncakeConnector" in names:
        env[_BOOTSTRAP] = str(ctx.port(node))
    return env


def router(ctx: JobContext, workers: list[tuple[WorkerPlace, PlannedProcess]]) -> PlannedProcess:
    """Our own P/D router on the head node. Raises ServemarkError (input) when no connector is named that it knows."""
    port = ctx.front_port(ctx.head)
    sides: dict[str, list[dict[str, object]]] = {"prefill": [], "decode": []}
    for place, process in workers:
        if process.probe is None:
            continue
        worker: dict[str, object] = {"name": place.name, "url": process.probe.base_url}
        if place.role.role == "prefill" and _BOOTSTRAP in process.env:
            worker["bootstrap"] = url(place.leader, int(process.env[_BOOTSTRAP]))
        sides[place.role.role].append(worker)
    used = {c.name for place, _ in workers for c in place.role.connectors}
    if any(_connector(ctx, place) for place, _ in workers):
        used.add("NixlConnector")
    connector = next((short for name, short in _MOVERS if name in used), None)
    if connector is None:
        raise input_error(
            "launch.pd_connector",
            where=str(ctx.deployment.at),
            known=", ".join(name for name, _ in _MOVERS),
        )
    config = {
        "host": ctx.listen(ctx.head),
        "port": port,
        "connector": connector,
        "idle_s": 4 * ctx.deployment.benchmark.idle_timeout_s,
        **sides,
    }
    given = ctx.deployment.frontend
    env = dict(given.env) if given is not None else {}
    argv = (sys.executable, "-P", str(PD_ROUTER), json.dumps(config))
    return PlannedProcess(argv, env, probe=Probe(url(ctx.head, port), "/health", ctx.served_name))
