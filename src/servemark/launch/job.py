"""A deployment as ordered steps: services, then workers, then what takes requests. Pure: nothing is started here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.catalog.deployment import Deployment
from servemark.launch.allocation import AllocatedNode, Container, StepRequest
from servemark.launch.engines import dynamo, llamacpp, services, sglang, trtllm, vllm
from servemark.launch.engines.steps import Bind, JobContext, PlannedProcess, Probe, Rank, WorkerPlace
from servemark.launch.placement import Placed, place

Stage = Literal["services", "workers", "router"]
STAGES: tuple[Stage, ...] = ("services", "workers", "router")
_Worker = Callable[[JobContext, WorkerPlace], list[PlannedProcess]]
_WORKERS: Mapping[str, _Worker] = {
    "llamacpp": llamacpp.worker,
    "llamacpp-embedded": llamacpp.worker,
    "llama-server": llamacpp.worker,
    "vllm": vllm.worker,
    "sglang": sglang.worker,
    "trtllm": trtllm.worker,
}
ENGINES = tuple(_WORKERS)
_LLAMACPP = frozenset({"llamacpp", "llamacpp-embedded", "llama-server"})
_RANK_GRACE_S = 20.0
_REFUSED_ENV = frozenset(
    {
        *(
            "BASH_ENV",
            "ENV",
            "GCONV_PATH",
            "JAVA_TOOL_OPTIONS",
            "LD_AUDIT",
            "LD_PRELOAD",
            "NODE_OPTIONS",
            "PATH",
        ),
        *("PERL5OPT", "PROMPT_COMMAND", "PYTHONBREAKPOINT", "PYTHONHOME", "PYTHONINSPECT", "PYTHONSTARTUP"),
        *("PYTHONUSERBASE", "RUBYOPT"),
    }
)
_COPIES = ("enable_multiple_frontends", "num_additional_frontends")
_OWN_ENV = re.compile(r"(SERVEMARK|SLURM|SBATCH|SRUN|PYXIS)_")


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step as it will be started. `instance` is the worker's name; a worker of several nodes has a step a rank."""

    name: str
    instance: str
    stage: Stage
    role: str
    rank: int
    node: AllocatedNode
    process: PlannedProcess
    env: Mapping[str, str]
    gpus: tuple[int, ...]
    work_dir: Path
    config_dir: Path
    log_path: Path
    also: tuple[AllocatedNode, ...] = ()
    """Further nodes of a worker whose ranks are started together; `node` is the first."""

    def request(
        self,
        secret_env: Mapping[str, str] | None = None,
        container: Container | None = None,
        srun_options: tuple[str, ...] = (),
    ) -> StepRequest:
        """What a launcher is asked for. The recipe's options are those of its own steps, not of a service beside them."""
        return StepRequest(
            name=self.name,
            node=self.node,
            argv=self.process.argv,
            log_path=self.log_path,
            work_dir=self.work_dir,
            env=self.env,
            secret_env=dict(secret_env or {}),
            gpus=self.gpus or None,
            container=container,
            also=self.also,
            tasks=self.process.tasks,
            grace_s=self._grace_s(),
            srun_options=srun_options if self.stage != "services" else (),
        )

    def _grace_s(self) -> float:
        if self.process.grace_s is not None:
            return self.process.grace_s
        return _RANK_GRACE_S if self.stage == "workers" and self.gpus else 5.0


@dataclass(frozen=True, slots=True)
class Job:
    """All steps in the order of starting. `front` is what takes requests, `served_name` the model it serves."""

    steps: tuple[PlannedStep, ...]
    front: Probe
    served_name: str
    frontend: str
    notes: tuple[str, ...]
    """Of the recipe, what is not handed over: `decode-0: host`."""

    def stage(self, stage: Stage) -> tuple[PlannedStep, ...]:
        """The steps of one stage."""
        return tuple(step for step in self.steps if step.stage == stage)


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where a job runs: nodes, a source of ports on them, and folders that all of its nodes see."""

    nodes: Sequence[AllocatedNode]
    ports: Callable[[AllocatedNode, int], Sequence[int]]
    work_root: Path
    log_root: Path
    front_log: Path | None = None
    """The log of what takes requests; None: beside the others."""
    bind: Bind = "loopback"
    fixed_port: int | None = None
    model: str | None = None
    """The model as the nodes see it, when a cluster keeps it under another path."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of every worker, below what the recipe states: where the site keeps its engine."""
    worker_cpus: str | None = None
    """CPUs that workers are bound to, as taskset takes them; None: as they come."""
    placed: tuple[Placed, ...] | None = None
    """Where each worker goes, when that has been decided elsewhere."""


def build_job(deployment: Deployment, where: JobPlace, *, run_id: str, served_name: str | None = None) -> Job:
    """Place the workers and render every step.

    `served_name` names the model where the recipe does not. Raises ServemarkError (layer input, position of the role
    or service) for what cannot be rendered, and why.
    """
    check_environment(deployment)
    placed = place(deployment, len(where.nodes)) if where.placed is None else where.placed
    ctx = JobContext(
        deployment=deployment,
        run_id=run_id,
        served_name=_served_name(deployment) or served_name or deployment.model_path,
        model=where.model or deployment.model_path,
        head=where.nodes[0],
        ports=where.ports,
        bind=where.bind,
        work_root=where.work_root,
        config_root=where.log_root / "config",
        fixed_port=where.fixed_port,
        frontend=frontend_of(deployment),
    )
    steps = [*_services(ctx, where)]
    rendered: list[tuple[WorkerPlace, PlannedProcess]] = []
    for worker in placed:
        at = _worker_place(worker, where)
        processes = _WORKERS[deployment.engine](ctx, at)
        rendered.append((at, processes[0]))
        steps += _worker_steps(ctx, where, at, processes)
    front = rendered[0][1].probe
    router = _router(ctx, rendered)
    if router is not None:
        router = replace(router, ignored=(*router.ignored, *_front_copies(deployment)))
        env = {**_global_env(ctx), **router.env}
        steps.append(
            _step(
                where,
                router,
                name="router",
                instance="router",
                stage="router",
                role="router",
                node=ctx.head,
                env=env,
            )
        )
        front = router.probe
    if front is None:
        raise input_error("launch.no_router", where=str(deployment.at), engine=deployment.engine)
    notes = tuple(f"{step.name}: {', '.join(step.process.ignored)}" for step in steps if step.process.ignored)
    return Job(tuple(steps), front, ctx.served_name, ctx.frontend, notes)


def frontend_of(deployment: Deployment) -> str:
    """What takes requests: `none` (the one worker itself), `servemark-pd`, `dynamo`, `sglang-router` or `trtllm_serve`.

    Raises ServemarkError (layer input) for an engine that is not known, or a front end that cannot stand before it.
    """
    engine = deployment.engine
    if engine not in _WORKERS:
        raise input_error(
            "launch.engine_unknown", where=str(deployment.at), name=engine[:80], known=", ".join(ENGINES)
        )
    alone = len(deployment.roles) == 1 and deployment.roles[0].role == "aggregated"
    alone = alone and deployment.roles[0].workers == 1
    given = deployment.frontend.type if deployment.frontend is not None else None
    known: set[str | None]
    if engine in _LLAMACPP:
        split = deployment.role("prefill") is not None and deployment.role("decode") is not None
        fits = "none" if alone else llamacpp.PD_ROUTER if split and engine != "llama-server" else None
        known = set() if fits is None else {fits}
        chosen = given or ("none" if alone else None)
    elif engine == "sglang":
        # Schema 1 calls the router `sglang`; schema 2 calls it `sglang-router`, and `sglang` is a worker that serves itself.
        chosen = given or "dynamo"
        known = {"dynamo", "sglang-router", *(["none"] if alone else [])}
        if chosen == "sglang":
            chosen = "sglang-router" if deployment.schema == 1 else "none"
    else:
        chosen = given or "dynamo"
        known = {"dynamo", *(["trtllm_serve"] if engine == "trtllm" and not alone else [])}
        if engine == "vllm" and deployment.role("prefill") and deployment.role("decode"):
            known.add(llamacpp.PD_ROUTER)
        if alone and chosen in (engine, "trtllm_serve", "none"):
            return "none"
    if chosen is None or chosen not in known:
        raise input_error(
            "launch.frontend_unfit",
            where=str(deployment.frontend.at if deployment.frontend else deployment.at),
            frontend=str(given or chosen)[:80],
            engine=engine,
            known=", ".join(sorted(str(name) for name in known)) or "-",
        )
    return chosen


def check_environment(deployment: Deployment) -> None:
    """Raise ServemarkError (input) for a variable that reaches further than an engine: a recipe is data."""
    places = [(deployment.environment, deployment.at), *((role.env, role.at) for role in deployment.roles)]
    if deployment.frontend is not None:
        places.append((deployment.frontend.env, deployment.frontend.at))
    for env, at in places:
        for name in env:
            if name in _REFUSED_ENV or _OWN_ENV.match(name):
                raise input_error("launch.env_refused", where=str(at), name=name[:80])


def _served_name(deployment: Deployment) -> str | None:
    """What the recipe has its engines serve the model as."""
    if deployment.engine in _LLAMACPP:
        return None
    for role in deployment.roles:
        name = role.flag("served-model-name")
        if isinstance(name, list) and name:
            name = name[0]
        if isinstance(name, str) and name:
            return name
    return None


def _global_env(ctx: JobContext) -> dict[str, str]:
    return {} if ctx.deployment.engine in _LLAMACPP else dict(ctx.deployment.environment)


def _services(ctx: JobContext, where: JobPlace) -> Iterator[PlannedStep]:
    """Services in the recipe's order, those that Dynamo needs and a recipe does not name before them."""
    given = ctx.deployment.services
    types = {service.type for service in given}
    for name, make in (("etcd", services.etcd), ("nats", services.nats)):
        if ctx.frontend == "dynamo" and name not in types:
            work = where.work_root / name
            yield _service_step(ctx, where, name, name, make(ctx, work))
    for service in given:
        safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", service.name).strip("-.")[:60] or "service"
        process = services.service(ctx, service, where.work_root / safe)
        yield _service_step(ctx, where, safe, service.type, process)


def _service_step(
    ctx: JobContext, where: JobPlace, name: str, kind: str, process: PlannedProcess
) -> PlannedStep:
    env = dict(process.env)
    return _step(
        where, process, name=name, instance=name, stage="services", role=kind, node=ctx.head, env=env
    )


def _step(
    where: JobPlace,
    process: PlannedProcess,
    *,
    name: str,
    instance: str,
    stage: Stage,
    role: str,
    node: AllocatedNode,
    env: dict[str, str],
    rank: int = 0,
    gpus: tuple[int, ...] = (),
    also: tuple[AllocatedNode, ...] = (),
) -> PlannedStep:
    """A step with its folders and its log, all by its name."""
    log = where.log_root / f"{name}.log"
    if where.front_log is not None and (stage == "router" or role == "aggregated"):
        log = where.front_log if rank == 0 and name in ("router", "aggregated-0") else log
    work, config = where.work_root / name, where.log_root / "config" / name
    return PlannedStep(name, instance, stage, role, rank, node, process, env, gpus, work, config, log, also)


def _worker_place(worker: Placed, where: JobPlace) -> WorkerPlace:
    ranks = []
    for number, share in enumerate(worker.shares):
        name = worker.name if number == 0 else f"{worker.name}.{number}"
        folders = where.work_root / name, where.log_root / "config" / name
        ranks.append(Rank(where.nodes[share.node], share.gpus, *folders))
    return WorkerPlace(worker.role, worker.index, tuple(ranks))


def _worker_steps(
    ctx: JobContext, where: JobPlace, at: WorkerPlace, processes: list[PlannedProcess]
) -> Iterator[PlannedStep]:
    together = len(processes) == 1  # also of several nodes: its ranks are one program
    for number, (rank, process) in enumerate(
        zip(at.ranks[:1] if together else at.ranks, processes, strict=True)
    ):
        name = at.name if number == 0 else f"{at.name}.{number}"
        own = (
            {} if ctx.deployment.engine in _LLAMACPP else at.role.env
        )  # theirs has been checked by its adapter
        env = {**where.environment, **_global_env(ctx), **own, **process.env}
        bound = ("taskset", "-c", where.worker_cpus or "", *process.argv)
        yield _step(
            where,
            process if where.worker_cpus is None else replace(process, argv=bound),
            name=name,
            instance=at.name,
            stage="workers",
            role=at.role.role,
            node=rank.node,
            env=env,
            rank=number,
            gpus=rank.gpus,
            also=tuple(other.node for other in at.ranks[1:]) if together else (),
        )


def _front_copies(deployment: Deployment) -> tuple[str, ...]:
    """Fields that ask for several front ends behind a balancer, where the recipe states them: one is started."""
    whole = deployment.node.plain() if deployment.node is not None else None
    stated = whole.get("frontend") if isinstance(whole, dict) else None
    if not isinstance(stated, dict):
        return ()
    return tuple(name for name in _COPIES if stated.get(name))


def _router(ctx: JobContext, rendered: list[tuple[WorkerPlace, PlannedProcess]]) -> PlannedProcess | None:
    if ctx.frontend == "none":
        return None
    if ctx.frontend == "dynamo":
        return dynamo.frontend(ctx)
    makers = {
        llamacpp.PD_ROUTER: vllm.router if ctx.deployment.engine == "vllm" else llamacpp.router,
        "sglang-router": sglang.router,
        "trtllm_serve": trtllm.router,
    }
    maker = makers.get(ctx.frontend)
    if maker is None:
        raise ServemarkError("launch.no_router", Layer.INPUT, exit_code=2, engine=ctx.deployment.engine)
    return maker(ctx, rendered)
