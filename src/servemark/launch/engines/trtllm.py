"""TensorRT-LLM: `trtllm-serve`, or `python3 -m dynamo.trtllm`. The engine's settings go into a YAML file."""

from __future__ import annotations

import yaml

from servemark.launch.engines.dynamo import dynamo_env, mode_flags
from servemark.launch.engines.steps import JobContext, PlannedProcess, Probe, WorkerPlace, url

SETTINGS = "trtllm.yaml"
_SERVER = frozenset({"host", "port", "served_model_name", "model", "model_path"})


def worker(ctx: JobContext, place: WorkerPlace) -> list[PlannedProcess]:
    """One process on one node, which starts its own ranks; over several nodes one MPI program, a rank a GPU.

    `trtllm-llmapi-launch` then runs the server in rank 0 and has the others wait for its work.
    """
    tasks = sum(len(rank.gpus) for rank in place.ranks) if len(place.ranks) > 1 else 1
    together = ["trtllm-llmapi-launch"] if tasks > 1 else []
    rank = place.ranks[0]
    behind_dynamo = ctx.frontend == "dynamo"
    settings, ignored = _settings(place)
    path = str(rank.config_dir / SETTINGS)
    env: dict[str, str] = {}
    probe = None
    if behind_dynamo:
        argv = [
            "python3",
            "-m",
            "dynamo.trtllm",
            "--model-path",
            ctx.model,
            "--served-model-name",
            ctx.served_name,
        ]
        argv += ["--extra-engine-args", path, *mode_flags(ctx, place)]
        if ctx.deployment.extras.get("publish_events_and_metrics"):
            argv.append("--publish-events-and-metrics")
        env = dynamo_env(ctx, place, rank.node)
    else:
        port = ctx.front_port(place.leader) if ctx.frontend == "none" else ctx.port(place.leader)
        argv = ["trtllm-serve", ctx.model, "--host", ctx.listen(rank.node), "--port", str(port)]
        argv += ["--served_model_name", ctx.served_name, "--extra_llm_api_options", path]
        probe = Probe(url(rank.node, port), "/health", ctx.served_name)
    files = {SETTINGS: yaml.safe_dump(settings, sort_keys=True)}
    argv = [*together, *argv]
    return [PlannedProcess(tuple(argv), env, files, probe, ignored=tuple(ignored), tasks=tasks)]


def router(ctx: JobContext, workers: list[tuple[WorkerPlace, PlannedProcess]]) -> PlannedProcess:
    """`trtllm-serve disaggregated` over the leaders."""
    port = ctx.front_port(ctx.head)
    hosts: dict[str, list[str]] = {"prefill": [], "decode": []}
    for place, process in workers:
        if process.probe is not None and place.role.role in hosts:
            hosts[place.role.role].append(process.probe.base_url.removeprefix("http://"))
    config = {
        "hostname": ctx.listen(ctx.head),
        "port": port,
        "backend": "pytorch",
        "context_servers": {"num_instances": len(hosts["prefill"]), "urls": hosts["prefill"]},
        "generation_servers": {"num_instances": len(hosts["decode"]), "urls": hosts["decode"]},
    }
    path = str(ctx.config_root / "router" / SETTINGS)
    return PlannedProcess(
        ("trtllm-serve", "disaggregated", "-c", path),
        files={SETTINGS: yaml.safe_dump(config, sort_keys=False)},
        probe=Probe(url(ctx.head, port), "/health", ctx.served_name),
    )


def _settings(place: WorkerPlace) -> tuple[dict[str, object], list[str]]:
    """The engine's settings as LlmArgs spells them (underscores), without what the server's command line has."""
    found: dict[str, object] = {}
    ignored = []
    for argument in place.role.flags.values():
        name = argument.spelled.lstrip("-").replace("-", "_")
        if name in _SERVER:
            ignored.append(name)
        else:
            found[name] = argument.value
    return found, ignored
