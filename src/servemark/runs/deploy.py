"""What a line measures while it lives: allocated, started, ready, identified, restarted for a cold point, stopped.

One worker or many roles take the same path: the recipe becomes a job of steps (launch/job.py) on an allocation of a
launcher, and everything else asks the job.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict, TypeVar

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch import script
from servemark.launch.allocation import AllocatedNode, Allocation, AllocationRequest
from servemark.launch.engines.embedded import is_installed
from servemark.launch.engines.llamacpp import PD_ROUTER
from servemark.launch.engines.protocol import EngineCounters, EngineIdentity
from servemark.launch.engines.readers import get_reader
from servemark.launch.job import Job, JobPlace, build_job
from servemark.launch.live_job import Callbacks, LiveJob
from servemark.launch.local import ReadyTick
from servemark.launch.placement import nodes_of, place
from servemark.launch.ports import require_free
from servemark.launch.script import ScriptSite, sbatch_script, stand_in
from servemark.launch.slurm_options import recipe_directives, recipe_options
from servemark.plan.points import Choice
from servemark.preflight.facts import PAGE_2M
from servemark.preflight.needs import needs_of
from servemark.runs.folder import LIVE_STEPS
from servemark.runs.interrupts import Interrupts
from servemark.runs.node_checks import (
    CachedContainer,
    NodeFacts,
    asks_nothing,
    image_of,
    is_whole,
    needs,
    preflight_here,
    preflight_there,
    wants_image,
)
from servemark.runs.phases import PhaseClock
from servemark.runs.request import LineRequest
from servemark.runs.site import Site, groups_of, model_at
from servemark.runs.view import RunView
from servemark.runs.worker_identity import Worker, differences
from servemark.traces.template import TemplateTokens
from servemark.traces.types import Role

WORK = "work"
"""What steps write while they run, in the folder of a line's first run; gone when they are."""
PREFLIGHT = "preflight"
"""What the nodes said before anything started, in the folder of a line's first run; kept."""
FIRST_SHOWN_PORT = 20_000
NODE_FAULTS = frozenset({"launch.slurm_step_node", "launch.slurm_container", "launch.slurm_step_slow"})
"""Faults of one node, which another may not have."""
_DAY_S = 86_400
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """Of where it ran: blocks for the row's `observed`, and workers that are not what the recipe declares."""

    observed: dict[str, object] = field(default_factory=dict)
    differences: tuple[dict[str, str], ...] = ()


@dataclass(slots=True)
class LiveEngine:
    """The deployment of one line."""

    request: LineRequest
    served_name: str
    log_path: Path
    """The log of what takes requests: the one worker, or the router."""
    interrupts: Interrupts
    clock: PhaseClock
    site: Site
    record: Callable[[dict[str, object]], None] = lambda _: None
    """Keeps what finds the allocation again, as soon as there is anything to keep."""
    live: LiveJob | None = None
    allocation: Allocation | None = None
    restarts: int = 0
    nodes: NodeFacts | None = None
    image: CachedContainer | None = None
    workers: tuple[Worker, ...] = ()

    def start(self) -> None:
        """Allocate, look at the nodes, start and wait until healthy; on other nodes when nodes fail meanwhile.

        Raises ServemarkError with layer, instance and the log's word.
        """
        get_reader(self.request.choice.deployment.engine).check_installed()
        if self.request.port is not None and self.site.cluster is None:
            require_free(self.request.port)
        tries = self.site.cluster.other_nodes if self.site.cluster is not None else 0
        excluded: tuple[str, ...] = ()
        while True:
            try:
                self._start(excluded)
                return
            except ServemarkError as error:
                self.interrupts.check()
                failed = self._failed_nodes(error)
                if not failed or tries == 0:
                    raise
                tries -= 1
                excluded += failed
                self.view.note("runs.other_nodes", nodes=", ".join(failed), reason=error.what())
                self._release()

    def _failed_nodes(self, error: ServemarkError) -> tuple[str, ...]:
        """The nodes to leave out of another try; empty when another try would meet the same fault."""
        if self.allocation is not None and self.allocation.lost_nodes():
            return self.allocation.lost_nodes()
        node = error.values.get("node")
        if error.key == "launch.slurm_container" and not (self.image is not None and is_whole(self.image)):
            return ()  # the file is at fault, and every node would read the same
        return (str(node),) if error.key in NODE_FAULTS and node else ()

    def _start(self, excluded: tuple[str, ...]) -> None:
        if self.allocation is None:
            self.allocation = self._allocate(excluded)
            self._look_at_nodes(self.allocation)
        allocation, request = self.allocation, self.request
        root = self.log_path.parent.parent
        where = JobPlace(
            nodes=allocation.nodes,
            ports=allocation.free_ports,
            work_root=allocation.work_root(root / WORK),
            log_root=root / LIVE_STEPS,
            front_log=self.log_path,
            bind=self.site.bind,
            fixed_port=request.port,
            model=model_at(request.choice, self.site.described),
            **_site_words(self.site.described),
        )
        job = build_job(
            request.choice.deployment, where, run_id=self.served_name, served_name=self.served_name
        )
        self.served_name = job.served_name
        self._run(LiveJob(job, allocation, request.choice.deployment.engine, self.budget_s("workers")))

    def budget_s(self, phase: str) -> float:
        """Seconds that a phase may take."""
        return self.clock.budgets_s[phase]

    @property
    def view(self) -> RunView:
        """Who watches."""
        return self.clock.view

    def _allocate(self, excluded: tuple[str, ...]) -> Allocation:
        launcher, cluster = self.site.launcher, self.site.cluster
        known: dict[str, object] = {"launcher": launcher.name, "cluster": self.site.name}
        wait_s = self.budget_s("allocate")
        wanted = AllocationRequest(
            run_id=self.served_name,
            groups=groups_of(self.request.choice, local=cluster is None),
            time_limit_s=self.request.choice.deployment.time_limit_s or _DAY_S,
            wait_s=wait_s,
            exclude_nodes=excluded,
            sbatch_options=self.request.choice.deployment.sbatch_options,
        )
        with self.clock.phase("allocate"):
            found = launcher.allocate(
                wanted,
                on_wait=lambda seconds, _: self.view.waiting(seconds, wait_s),
                cancelled=lambda: self.interrupts.requested,
                on_id=lambda job: self.record({**known, "id": job}),
            )
            try:
                self.record({**known, **found.facts()})
            except BaseException:  # whatever it was, the nodes go back
                found.release()
                raise
        return found

    def _look_at_nodes(self, allocation: Allocation) -> None:
        """Preflight of every node, then the image: what the recipe needs and is not there ends the run here."""
        choice, cluster = self.request.choice, self.site.cluster
        if self.request.preflight and cluster is not None:
            with self.clock.phase("preflight"):
                folder = self.log_path.parent.parent / PREFLIGHT
                self.nodes = preflight_there(allocation, choice, folder, timeout_s=self.budget_s("preflight"))
        elif self.request.preflight and not asks_nothing(needs(choice)):
            with self.clock.phase("preflight"):
                self.nodes = preflight_here(choice)
        self.interrupts.check()
        if cluster is not None and wants_image(choice, cluster):
            with self.clock.phase("images"):
                budget = self.budget_s("images")
                self.image = image_of(
                    choice,
                    cluster,
                    model_at(choice, cluster) or choice.deployment.model_path,
                    wait_s=budget,
                    tell=lambda seconds, _: self.view.waiting(seconds, budget),
                )

    def _run(self, live: LiveJob) -> None:
        """Start the job's steps; a signal is the cause of whatever goes wrong meanwhile."""
        live.callbacks = Callbacks(
            phase=lambda name: self.view.phase(name, None),
            tick=lambda _, tick, budget: self._waiting(tick, budget),
            cancelled=lambda: self.interrupts.requested,
        )
        live.side_budgets_s = {name: self.budget_s(name) for name in ("services", "router")}
        live.secret_env = self.request.secret_env
        live.container = self.image.container if self.image is not None else None
        live.srun_options = self.request.choice.deployment.srun_options
        self.live = live
        try:
            live.start()
        except ServemarkError:
            self.interrupts.check()
            raise
        finally:
            for name, seconds in live.phases_s.items():
                self.clock.add(name, seconds)
        self.interrupts.check()

    def _waiting(self, tick: ReadyTick, budget_s: float) -> None:
        self.view.waiting(tick.elapsed_s, budget_s)

    def restart(self) -> None:
        """A cold start on the same nodes: nothing of the old processes is left. The nodes stay ours."""
        if self.live is not None:
            self.live.stop_steps()
            self.live = None
        if self.allocation is not None:
            self.allocation.clean()
        shutil.rmtree(self.log_path.parent.parent / WORK, ignore_errors=True)
        self.restarts += 1
        for phase in ("services", "workers", "router", "health"):  # of the new start alone
            self.clock.seconds.pop(phase, None)
        self.start()

    def become(self, request: LineRequest) -> None:
        """Restart as another deployment of the same line, on the same nodes."""
        self.request = request
        self.restart()

    def stop(self) -> None:
        """Stop every step and give the allocation back; safe to call at any time."""
        if self.allocation is None:
            return
        with self.clock.noted("stop"):
            self._release()
            shutil.rmtree(self.log_path.parent.parent / WORK, ignore_errors=True)

    def _release(self) -> None:
        live, self.live = self.live, None
        allocation, self.allocation = self.allocation, None
        try:
            if live is not None:
                live.stop_steps()
        finally:
            if allocation is not None:
                allocation.release()

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
        self.workers = self._workers(found)
        first = next(iter(found.values()), None)
        if first is None:
            return EngineIdentity(self.request.choice.deployment.engine, None, None, None, None, None)
        if len(live.job.steps) == 1:
            return first
        limits = [i.details.get("ctx_tokens_per_slot") for i in found.values()]
        known = [limit for limit in limits if isinstance(limit, int)]
        details = dict(first.details) | ({"ctx_tokens_per_slot": min(known)} if known else {})
        details["workers"] = {worker.step.name: worker.plain() for worker in self.workers}
        details["steps"] = [{"name": p.name, "role": p.role, "node": p.node.name} for p in live.job.steps]
        store = live.store_facts()
        if store:
            details["store"] = store
        return replace(first, details=details)

    def _workers(self, found: Mapping[str, EngineIdentity]) -> tuple[Worker, ...]:
        gpus = self.nodes.gpus if self.nodes is not None else {}
        digest = self.image.digest if self.image is not None else None
        steps = {planned.name: planned for planned in self._live().job.steps}
        return tuple(
            Worker(steps[name], identity, gpus.get(steps[name].node.name), digest)
            for name, identity in found.items()
            if name in steps
        )

    def require_healthy(self) -> None:
        """Every step that answers health checks does so now, all of them in one round, within the budget.

        Raises ServemarkError naming those that do not.
        """
        deadline, silent = time.monotonic() + self.budget_s("health"), self._live().unanswering()
        while silent:
            died = self.exited()
            if died is not None:
                raise died
            self.interrupts.check()
            if time.monotonic() >= deadline:
                names = ", ".join(planned.name for planned in silent)
                raise ServemarkError(
                    "runs.not_healthy",
                    Layer.ENGINE,
                    steps=names,
                    seconds=f"{self.budget_s('health'):g}",
                    log=str(silent[0].log_path),
                )
            time.sleep(0.2)
            silent = self._live().unanswering()

    def observed(self) -> SiteFacts:
        """Where it runs, what the nodes said, and which workers are not what the recipe declares."""
        blocks: dict[str, object] = {}
        if self.allocation is not None:
            blocks["allocation"] = {"cluster": self.site.name, **self.allocation.facts()}
        if self.nodes is not None:
            blocks["preflight"] = self.nodes.plain()
        if self.image is not None:
            image = self.image
            blocks["image"] = {
                "reference": image.reference,
                "digest": image.digest,
                "sha256": image.sha256,
                "path": str(image.container.image),
            }
        return SiteFacts(
            blocks,
            differences(
                self.request.choice.deployment,
                self.served_name,
                self.workers,
                image_entered=self.image is not None,
            ),
        )

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


class _SiteWords(TypedDict, total=False):
    environment: Mapping[str, str]
    worker_cpus: str | None


def _site_words(described: LaunchCluster | None) -> _SiteWords:
    """What a clusters file adds to every worker: where its engine lies, and its CPUs."""
    if described is None:
        return {}
    return {"environment": dict(described.environment), "worker_cpus": described.worker_cpus}


def shown_job(request: LineRequest, root: Path) -> Job:
    """The job with stand-in nodes and ports: what `--dry-run` prints and what checks need. Starts nothing.

    Raises ServemarkError (layer input) for what cannot be rendered, and for a recipe of more nodes than this host is
    when it is to run here.
    """
    deployment, cluster = request.choice.deployment, request.cluster
    count = groups_of(request.choice, local=cluster is None)[0].nodes
    numbers = _shown_ports(request.port)
    local = cluster is None and count == 1
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
        work_root=root / WORK if cluster is None else cluster.scratch / "servemark-MARK",
        log_root=root / "logs" / "steps",
        bind="loopback" if local else "node",
        fixed_port=request.port,
        model=model_at(request.choice, request.described),
        **_site_words(request.described),
    )
    return build_job(deployment, where, run_id="RUN", served_name="RUN")


def _shown_ports(fixed: int | None) -> Iterator[int]:
    """Stand-in ports in their order, without the one that somebody chose for the front."""
    return (number for number in itertools.count(FIRST_SHOWN_PORT) if number != fixed)


def script_of(
    choice: Choice, port: int | None = None, secrets: Sequence[str] = (), cluster: LaunchCluster | None = None
) -> str:
    """The deployment as an sbatch script (launch/script.py), with what the cluster asks for where one is given.

    Raises ServemarkError for what cannot be rendered."""
    deployment = choice.deployment
    nodes = nodes_of(place(deployment))
    gpus = deployment.gpus_per_node or 0
    fixed = port if port is not None else deployment.port
    numbers = _shown_ports(fixed)
    where = JobPlace(
        nodes=[stand_in(number, gpus) for number in range(nodes)],
        ports=lambda _, many: [next(numbers) for _ in range(many)],
        work_root=script.WORK,
        log_root=script.LOGS,
        bind="node",
        fixed_port=fixed,
        model=model_at(choice, cluster),
    )
    job = build_job(deployment, where, run_id=f"{deployment.name}-by-hand", served_name=deployment.name)
    store = needs_of(deployment, arm=deployment.name).store
    hugetlb = store is not None and store.huge == "hugetlb" and store.huge_page_bytes == PAGE_2M
    return sbatch_script(
        job,
        name=deployment.name,
        nodes=nodes,
        gpus=gpus,
        time_limit_s=deployment.time_limit_s or _DAY_S,
        ready_budget_s=deployment.ready_budget_s,
        secrets=secrets,
        image=None if deployment.container.startswith("pypi#") else deployment.container,
        huge_pages=store.reserve_pages if store is not None and hugetlb else 0,
        site=_script_site(cluster, recipe_directives(deployment.sbatch_options)),
        srun_options=recipe_options(deployment.srun_options),
    )


def _script_site(cluster: LaunchCluster | None, own: list[str]) -> ScriptSite:
    """The recipe's words for sbatch, then a cluster's, and the cluster's roots as mounts of the same name."""
    if cluster is None:
        return ScriptSite(tuple(own))
    options = [
        *([f"--partition={cluster.partition}"] if cluster.partition else []),
        *([f"--account={cluster.account}"] if cluster.account else []),
        *([f"--exclude={','.join(cluster.exclude_nodes)}"] if cluster.exclude_nodes else []),
        *own,
        *cluster.sbatch,
    ]
    mounts = ",".join(f"{root}:{root}" for root in cluster.mounts)
    return ScriptSite(tuple(options), mounts, cluster.exclusive)


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
    if request.cluster is not None:
        _require_nodes(request, request.cluster)
        recipe_directives(deployment.sbatch_options)
        recipe_options(deployment.srun_options)
    shown_job(request, Path("/nowhere"))


def _require_nodes(request: LineRequest, cluster: LaunchCluster) -> None:
    """A job for more nodes than there are would wait for ever."""
    needed = sum(group.nodes for group in groups_of(request.choice, local=False))
    if cluster.nodes is not None and needed > cluster.nodes:
        deployment = request.choice.deployment
        raise input_error(
            "runs.too_few_nodes",
            recipe=str(deployment.at),
            needed=needed,
            have=cluster.nodes,
            cluster=cluster.name,
        )


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
