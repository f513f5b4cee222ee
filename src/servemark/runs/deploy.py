"""What a line measures while it lives: allocated, started, ready, identified, restarted for a cold point, stopped.

One worker or many roles take the same path: the recipe becomes a job of steps (launch/job.py) on an allocation of a
launcher, and everything else asks the job.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.catalog.deployment import Deployment
from servemark.launch import script
from servemark.launch.allocation import AllocatedNode, AllocationRequest, Launcher, NodeGroup
from servemark.launch.engines.embedded import is_installed
from servemark.launch.engines.llamacpp import PD_ROUTER
from servemark.launch.engines.protocol import EngineCounters, EngineIdentity
from servemark.launch.engines.readers import get_reader
from servemark.launch.job import Job, JobPlace, build_job
from servemark.launch.live_job import Callbacks, LiveJob
from servemark.launch.local import ReadyTick
from servemark.launch.local_allocation import HostLauncher
from servemark.launch.placement import nodes_of, place
from servemark.launch.ports import require_free
from servemark.launch.script import sbatch_script, stand_in
from servemark.runs.folder import LIVE_STEPS
from servemark.runs.interrupts import Interrupts
from servemark.runs.request import LineRequest
from servemark.runs.view import RunView
from servemark.traces.template import TemplateTokens
from servemark.traces.types import Role

WORK = "work"
"""What steps write while they run, in the folder of a line's first run; gone when they are."""
FIRST_SHOWN_PORT = 20_000
_WAIT_S = 3600.0
_DAY_S = 86_400
T = TypeVar("T")


@dataclass(slots=True)
class LiveEngine:
    """The deployment of one line."""

    request: LineRequest
    served_name: str
    log_path: Path
    """The log of what takes requests: the one worker, or the router."""
    view: RunView
    interrupts: Interrupts
    launcher: Launcher = field(default_factory=HostLauncher)
    live: LiveJob | None = None
    restarts: int = 0
    phases_s: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        """Allocate, start and wait until healthy. Raises ServemarkError with layer, instance and the log's word."""
        deployment = self.request.choice.deployment
        begun = time.monotonic()
        single = _is_single(self.request)
        self.view.phase("launch" if single else "allocate", None)
        get_reader(deployment.engine).check_installed()
        if self.request.port is not None:
            require_free(self.request.port)
        allocation = self.launcher.allocate(
            AllocationRequest(
                run_id=self.served_name,
                groups=groups_of(self.request, self.launcher),
                time_limit_s=deployment.time_limit_s or _DAY_S,
                wait_s=_WAIT_S,
            ),
            on_wait=lambda seconds, _: self.view.waiting(seconds, _WAIT_S),
            cancelled=lambda: self.interrupts.requested,
        )
        try:
            root = self.log_path.parent.parent
            where = JobPlace(
                nodes=allocation.nodes,
                ports=allocation.free_ports,
                work_root=root / WORK,
                log_root=root / LIVE_STEPS,
                front_log=self.log_path,
                fixed_port=self.request.port,
            )
            job = build_job(deployment, where, run_id=self.served_name, served_name=self.served_name)
        except BaseException:  # also an interrupt gives the nodes back
            allocation.release()
            raise
        self.served_name = job.served_name
        self.phases_s["launch" if single else "allocate"] = time.monotonic() - begun
        self._run(LiveJob(job, allocation, deployment.engine, deployment.ready_budget_s), single=single)

    def _run(self, live: LiveJob, *, single: bool) -> None:
        """Start the job's steps; a signal is the cause of whatever goes wrong meanwhile."""
        live.callbacks = Callbacks(
            phase=lambda name: self.view.phase("ready" if single else name, None),
            tick=lambda _, tick, budget: self._waiting(tick, budget),
            cancelled=lambda: self.interrupts.requested,
        )
        live.secret_env = self.request.secret_env
        self.live = live
        try:
            live.start()
        except ServemarkError:
            self.interrupts.check()
            raise
        self.interrupts.check()
        taken = {"ready": live.phases_s.get("workers", 0.0)} if single else live.phases_s
        self.phases_s.update(taken)

    def _waiting(self, tick: ReadyTick, budget_s: float) -> None:
        self.view.waiting(tick.elapsed_s, budget_s)

    def restart(self) -> None:
        """A cold start: nothing of the old processes is left."""
        self.stop()
        self.restarts += 1
        self.start()

    def stop(self) -> None:
        """Stop every step and give the allocation back; safe to call at any time."""
        if self.live is not None:
            live, self.live = self.live, None
            live.stop()
            shutil.rmtree(self.log_path.parent.parent / WORK, ignore_errors=True)

    @property
    def base_url(self) -> str:
        """What takes requests."""
        return self._live().job.front.base_url

    def _live(self) -> LiveJob:
        if self.live is None:
            raise RuntimeError("the engine is not running")
        return self.live

    def exited(self) -> ServemarkError | None:
        """The error to raise when a step has ended by itself, else None."""
        return self._live().exited()

    def hung(self, seconds: float, timeouts: int) -> ServemarkError:
        """The error for requests that all wait in vain: which instance does not even answer a health check."""
        live = self._live()
        silent = live.unanswering()
        if len(live.job.steps) == 1 or not silent:
            return ServemarkError(
                "runs.engine_silent", Layer.ENGINE, seconds=seconds, log=str(self.log_path), count=timeouts
            )
        first = silent[0] if silent[0].stage != "router" else silent[-1]
        names = ", ".join(planned.name for planned in silent)
        return ServemarkError(
            "runs.step_silent",
            Layer.ENGINE,
            step=names,
            seconds=seconds,
            count=timeouts,
            log=str(first.log_path),
        )

    def identity(self) -> EngineIdentity:
        """What the servers say of themselves: the first worker's facts, and every worker's under `workers`."""
        live = self._live()
        found = self._asked(live.identities)
        first = next(iter(found.values()), None)
        if first is None:
            return EngineIdentity(self.request.choice.deployment.engine, None, None, None, None, None)
        if len(live.job.steps) == 1:
            return first
        limits = [i.details.get("ctx_tokens_per_slot") for i in found.values()]
        known = [limit for limit in limits if isinstance(limit, int)]
        details = dict(first.details) | ({"ctx_tokens_per_slot": min(known)} if known else {})
        details["workers"] = {
            name: {"version": i.version, "build": i.build, "served_model": i.served_model, **dict(i.details)}
            for name, i in found.items()
        }
        details["steps"] = [{"name": p.name, "role": p.role, "node": p.node.name} for p in live.job.steps]
        store = live.store_facts()
        if store:
            details["store"] = store
        return replace(first, details=details)

    def counters(self) -> EngineCounters | None:
        """The deployment's own counters now, or None when it does not answer in time."""
        return self.live.counters() if self.live is not None else None

    def tokenize(self, content: str) -> list[int]:
        """Token ids of a text by a worker's own tokenizer."""
        return self._asked(lambda: self._live().reader.tokenize(self._tokenizer_url(), content))

    def count_prompt(self, messages: Sequence[tuple[Role, str]]) -> int:
        """Prompt tokens of a chat request as a worker counts them."""
        plain = [{"role": role, "content": content} for role, content in messages]
        return self._asked(lambda: self._live().reader.count_prompt(self._tokenizer_url(), plain))

    def _tokenizer_url(self) -> str:
        leaders = self._live().leaders()
        probe = leaders[0].process.probe if leaders else None
        return probe.base_url if probe is not None else self.base_url

    def step_logs(self) -> Mapping[str, Path]:
        """Logs beside the one of what takes requests, by step."""
        live = self.live
        if live is None:
            return {}
        return {p.name: p.log_path for p in live.job.steps if p.log_path != self.log_path}

    def _asked(self, ask: Callable[[], T]) -> T:
        """Ask a server; when it is gone, its own word is the error."""
        try:
            return ask()
        except ServemarkError as error:
            raise self.exited() or error from error


def _is_single(request: LineRequest) -> bool:
    roles = request.choice.deployment.roles
    return len(roles) == 1 and roles[0].workers == 1 and not request.choice.deployment.services


def groups_of(request: LineRequest, launcher: Launcher) -> tuple[NodeGroup, ...]:
    """The nodes that the deployment needs. This host is one node, which is enough for workers without GPUs."""
    deployment = request.choice.deployment
    free = all(role.gpus == 0 for role in deployment.roles)
    nodes = 1 if free and launcher.name == "local" else nodes_of(place(deployment))
    gpus = 0 if free else min(deployment.gpus_per_node or 0, max(role.gpus for role in deployment.roles))
    return (NodeGroup("all", nodes, gpus),)


def shown_job(request: LineRequest, root: Path, nodes: int | None = None) -> Job:
    """The job with stand-in nodes and ports: what `--dry-run` prints and what checks need. Starts nothing.

    Raises ServemarkError (layer input) for what cannot be rendered.
    """
    deployment = request.choice.deployment
    count = groups_of(request, HostLauncher())[0].nodes if nodes is None else nodes
    numbers = itertools.count(FIRST_SHOWN_PORT)
    local = count == 1
    where = JobPlace(
        nodes=[
            AllocatedNode(
                f"node{n}",
                "all",
                "127.0.0.1" if local else f"node{n}",
                tuple(range(deployment.gpus_per_node or 0)),
            )
            for n in range(count)
        ],
        ports=lambda _, many: [next(numbers) for _ in range(many)],
        work_root=root / WORK,
        log_root=root / "logs" / "steps",
        bind="loopback" if local else "node",
        fixed_port=request.port,
    )
    return build_job(deployment, where, run_id="RUN", served_name="RUN")


def script_of(deployment: Deployment, port: int | None = None, secrets: Sequence[str] = ()) -> str:
    """The deployment as an sbatch script (launch/script.py). Raises ServemarkError for what cannot be rendered."""
    nodes = nodes_of(place(deployment))
    gpus = deployment.gpus_per_node or 0
    numbers = itertools.count(FIRST_SHOWN_PORT)
    where = JobPlace(
        nodes=[stand_in(number, gpus) for number in range(nodes)],
        ports=lambda _, many: [next(numbers) for _ in range(many)],
        work_root=script.WORK,
        log_root=script.LOGS,
        bind="node",
        fixed_port=port if port is not None else deployment.port,
    )
    job = build_job(deployment, where, run_id=f"{deployment.name}-by-hand", served_name=deployment.name)
    return sbatch_script(
        job,
        name=deployment.name,
        nodes=nodes,
        gpus=gpus,
        time_limit_s=deployment.time_limit_s or _DAY_S,
        ready_budget_s=deployment.ready_budget_s,
        secrets=secrets,
        image=None if deployment.container.startswith("pypi#") else deployment.container,
    )


def check_deployment(request: LineRequest) -> None:
    """Everything that can be said of the recipe without starting it: roles, arguments, environment, model file.

    Raises ServemarkError with the role's position.
    """
    deployment = request.choice.deployment
    get_reader(deployment.engine).check_installed()
    if (
        deployment.frontend is not None
        and deployment.frontend.type == PD_ROUTER
        and not is_installed("aiohttp" if deployment.engine == "vllm" else "mooncake")
    ):
        raise ServemarkError("launch.store_not_installed", Layer.INSTALL)
    shown_job(request, Path("/nowhere"))


def require_fits(request: LineRequest, limit: int | None, template: TemplateTokens) -> None:
    """Stop before replay when the longest request, template and marker included, cannot fit one context."""
    marked = request.cache_bust != "none"
    longest = 0
    for session in request.workload.sessions:
        for _, turns in session.streams():
            for turn in turns:
                prompt = template.prompt_tokens(turn, marked=marked)
                longest = max(longest, (prompt or 0) + (turn.output_tokens or 0))
    if limit is not None and longest > limit:
        raise input_error(
            "runs.context_too_small",
            where=str(request.choice.deployment.roles[0].at),
            longest=longest,
            limit=limit,
            scale=f"{limit / longest:.2f}",
        )
