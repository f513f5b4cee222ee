"""SGLang: `python3 -m sglang.launch_server` with its own router, or `python3 -m dynamo.sglang`."""

from __future__ import annotations

from servemark.launch.engines.dynamo import dynamo_env
from servemark.launch.engines.services import store_env, store_file
from servemark.launch.engines.steps import JobContext, PlannedProcess, Probe, WorkerPlace, flags, url

OWN = frozenset(
    {
        "model-path",
        "model",
        "served-model-name",
        "host",
        "port",
        "disaggregation-mode",
        "disaggregation-bootstrap-port",
        "dist-init-addr",
        "nnodes",
        "node-rank",
    }
)
BOOTSTRAP = "sglang-bootstrap"


def worker(ctx: JobContext, place: WorkerPlace) -> list[PlannedProcess]:
    """One process a node; rank 0 serves."""
    behind_dynamo = ctx.frontend == "dynamo"
    role = place.role.role
    port = ctx.front_port(place.leader) if ctx.frontend == "none" else ctx.port(place.leader)
    bootstrap = ctx.port(place.leader) if role == "prefill" else None
    if bootstrap is not None:
        ctx.services[f"{BOOTSTRAP}:{place.name}"] = str(bootstrap)
    init = f"{place.leader.address}:{ctx.port(place.leader)}" if len(place.ranks) > 1 else None
    rest, ignored = flags(place.role.args, OWN)
    found = []
    for number, rank in enumerate(place.ranks):
        argv = ["python3", "-m", "dynamo.sglang" if behind_dynamo else "sglang.launch_server"]
        argv += ["--model-path", ctx.model, "--served-model-name", ctx.served_name]
        argv += ["--host", ctx.listen(rank.node), "--port", str(port)]
        if role != "aggregated":
            argv += ["--disaggregation-mode", role]
        if bootstrap is not None:
            argv += ["--disaggregation-bootstrap-port", str(bootstrap)]
        if init is not None:
            argv += ["--dist-init-addr", init, "--nnodes", str(len(place.ranks)), "--node-rank", str(number)]
        if not behind_dynamo and role != "aggregated":
            argv.append("--skip-server-warmup")  # its own warm-up asks a peer that is not there yet
        env = {**store_env(ctx, rank), **(dynamo_env(ctx, place, rank.node) if behind_dynamo else {})}
        probe = None if behind_dynamo or number else Probe(url(rank.node, port), "/health", ctx.served_name)
        found.append(
            PlannedProcess((*argv, *rest), env, store_file(ctx), probe=probe, ignored=tuple(ignored))
        )
    return found


def router(ctx: JobContext, workers: list[tuple[WorkerPlace, PlannedProcess]]) -> PlannedProcess:
    """SGLang's own router over the leaders of all workers."""
    given = ctx.deployment.frontend
    port = ctx.front_port(ctx.head)
    argv = [
        "python3",
        "-m",
        "sglang_router.launch_router",
        "--host",
        ctx.listen(ctx.head),
        "--port",
        str(port),
    ]
    plain = [w.probe.base_url for p, w in workers if p.role.role == "aggregated" and w.probe]
    if plain:
        argv += ["--worker-urls", *plain]
    else:
        argv.append("--pd-disaggregation")
    for place, process in workers:
        if process.probe is not None and place.role.role == "prefill":
            argv += ["--prefill", process.probe.base_url, ctx.services[f"{BOOTSTRAP}:{place.name}"]]
        elif process.probe is not None and place.role.role == "decode":
            argv += ["--decode", process.probe.base_url]
    rest, ignored = flags(
        {a.spelled: a.value for a in given.args.values()} if given else {}, frozenset({"host", "port"})
    )
    env = dict(given.env) if given else {}
    probe = Probe(url(ctx.head, port), "/health", ctx.served_name)
    return PlannedProcess((*argv, *rest), env, probe=probe, ignored=tuple(ignored))
