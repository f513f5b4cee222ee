"""llama.cpp: the embedded server (also as a side of a P/D pair), or a `llama-server` binary from elsewhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from servemark.base.errors import ServemarkError, input_error
from servemark.launch.engines.embedded import EmbeddedAdapter
from servemark.launch.engines.protocol import EngineCommand, EngineRequest
from servemark.launch.engines.services import store_env, store_settings
from servemark.launch.engines.steps import JobContext, PlannedProcess, Probe, Rank, WorkerPlace, flags, url

SLOTS = "slots"
"""Folder of slot files within a worker's working folder."""
PD_ROUTER = "servemark-pd"
_ROOM = Path(__file__).resolve().parents[1]
KV_AGENT, ROUTER = _ROOM / "kv_agent.py", _ROOM / "pd_router.py"
"""Scripts of their own processes; neither is imported here, since what they import is heavy."""
_BINARY_OWN = frozenset({"model", "m", "alias", "host", "port", "metrics", "slots", "slot-save-path"})


def worker(ctx: JobContext, place: WorkerPlace) -> list[PlannedProcess]:
    """One process; llama.cpp's server does not span nodes. Raises ServemarkError (input) at the role's position."""
    role = place.role
    try:
        if len(place.ranks) > 1:
            raise input_error("launch.one_node_only", engine="llamacpp", nodes=len(place.ranks))
        if ctx.deployment.engine == "llama-server":
            return [_binary(ctx, place)]
        return [_embedded(ctx, place, place.ranks[0])]
    except ServemarkError as error:
        error.where = error.where or str(role.at)
        raise


def _embedded(ctx: JobContext, place: WorkerPlace, rank: Rank) -> PlannedProcess:
    role, split = place.role, place.role.role != "aggregated"
    args = {"slot-save-path": SLOTS, **role.args} if split else role.args
    recipe_env = {**ctx.deployment.environment, **role.env}
    for_store = {name: value for name, value in recipe_env.items() if split and name.startswith("MC_")}
    port = ctx.port(rank.node) if split else ctx.front_port(rank.node)
    request = EngineRequest(
        model=ctx.model,
        served_name=ctx.served_name,
        host=ctx.listen(rank.node),
        port=port,
        args=args,
        env={name: value for name, value in recipe_env.items() if name not in for_store},
    )
    command = EmbeddedAdapter().command(request)
    at = url(rank.node, port)
    probe = Probe(at, "/health", ctx.served_name)
    if not split:
        return PlannedProcess(command.argv, command.env, probe=probe, model_files=command.model_files)
    return _with_agent(ctx, place, rank, command, probe, for_store)


def _with_agent(  # noqa: PLR0917 - what one worker is made of
    ctx: JobContext,
    place: WorkerPlace,
    rank: Rank,
    command: EngineCommand,
    probe: Probe,
    for_store: dict[str, str],
) -> PlannedProcess:
    """The same process with a client of the store in it (see kv_agent.py)."""
    port = ctx.port(rank.node)
    folder = str(place.role.args.get("slot-save-path", SLOTS))
    kv = {
        "host": ctx.listen(rank.node),
        "port": port,
        "slot_folder": folder,
        "hostname": rank.node.address,
        **store_settings(ctx, str(place.role.at)),
    }
    python, isolated, child, config = command.argv
    argv = (python, isolated, str(KV_AGENT), child, config, json.dumps(kv))
    env = {**command.env, **store_env(ctx, rank), **for_store}
    env.pop("MOONCAKE_CONFIG_PATH", None)
    return PlannedProcess(
        argv, env, probe=probe, agent_url=url(rank.node, port), model_files=command.model_files
    )


def engine_command(process: PlannedProcess) -> EngineCommand:
    """The embedded engine's own command within a planned process: what its identity is read against."""
    config = process.argv[4] if process.agent_url is not None else process.argv[-1]
    return EngineCommand((*process.argv[:3], config), process.env, process.model_files)


def router(ctx: JobContext, workers: list[tuple[WorkerPlace, PlannedProcess]]) -> PlannedProcess:
    """Our own P/D router on the head node."""
    port = ctx.front_port(ctx.head)
    sides: dict[str, list[dict[str, object]]] = {"prefill": [], "decode": []}
    for place, process in workers:
        if process.probe is not None and process.agent_url is not None:
            slots = place.role.flag("parallel")
            sides[place.role.role].append(
                {
                    "name": place.name,
                    "url": process.probe.base_url,
                    "agent": process.agent_url,
                    "slots": slots if isinstance(slots, int) else 1,
                }
            )
    config = {
        "host": ctx.listen(ctx.head),
        "port": port,
        "run": ctx.run_id,
        "idle_s": 4 * ctx.deployment.benchmark.idle_timeout_s,
        **sides,
    }
    argv = (sys.executable, "-P", str(ROUTER), json.dumps(config))
    given = ctx.deployment.frontend
    env = dict(given.env) if given is not None else {}
    return PlannedProcess(argv, env, probe=Probe(url(ctx.head, port), "/health", ctx.served_name))


def _binary(ctx: JobContext, place: WorkerPlace) -> PlannedProcess:
    """`llama-server` from the PATH of the node or its container."""
    node = place.leader
    port = ctx.front_port(node) if ctx.frontend == "none" else ctx.port(node)
    rest, ignored = flags(place.role.args, _BINARY_OWN)
    argv = ["llama-server", "--model", ctx.model, "--alias", ctx.served_name]
    argv += ["--host", ctx.listen(node), "--port", str(port), "--metrics", "--slots", *rest]
    return PlannedProcess(
        tuple(argv), probe=Probe(url(node, port), "/health", ctx.served_name), ignored=tuple(ignored)
    )
