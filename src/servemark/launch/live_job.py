"""A job while it lives: steps started in order and awaited, watched, read, and stopped in reverse order."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import make_folder, write_atomic
from servemark.launch import failure
from servemark.launch.allocation import Allocation, Container, Mount, Step
from servemark.launch.engines.llamacpp import engine_command
from servemark.launch.engines.prometheus import parse_prometheus
from servemark.launch.engines.protocol import EngineCommand, EngineCounters, EngineIdentity
from servemark.launch.engines.readers import EngineReader, get_reader
from servemark.launch.http_probe import ProbeError, fetch, fetch_json
from servemark.launch.job import STAGES, Job, PlannedStep, Stage
from servemark.launch.local import Activity, ReadyTick
from servemark.launch.process import ExitStatus

SIDE_BUDGET_S = 90.0
"""For services, and for a router once its workers are ready."""
_TICK_S = 0.5
_LOG_BYTES = 256 << 10
_MAX_STOPPERS = 16
_SETTLE_S = 0.3
"""How long after the first end another may be found that explains it better: workers before routers."""
_STORE = re.compile(r"store_[a-z_]+\Z")


def layer_of(stage: Stage) -> Layer:
    """Whose fault it is when a step of this stage fails."""
    return {"services": Layer.SERVICE, "workers": Layer.ENGINE, "router": Layer.LAUNCH}[stage]


@dataclass(slots=True)
class Callbacks:
    """Whom to tell, and who may end it. Each is called from the thread that starts the job."""

    phase: Callable[[str], None] = lambda _: None
    tick: Callable[[str, ReadyTick, float], None] = lambda *_: None
    cancelled: Callable[[], bool] = lambda: False


@dataclass(slots=True)
class LiveJob:
    """One job on one allocation. `release` at the end, whatever happened."""

    job: Job
    allocation: Allocation
    engine: str
    ready_budget_s: float
    callbacks: Callbacks = field(default_factory=Callbacks)
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)
    container: Container | None = None
    srun_options: tuple[str, ...] = ()
    """The recipe's own, for its workers and router."""
    side_budgets_s: Mapping[str, float] = field(default_factory=dict)
    """Stage -> seconds where it is not SIDE_BUDGET_S; workers have `ready_budget_s`."""
    steps: dict[str, Step] = field(default_factory=dict)
    phases_s: dict[str, float] = field(default_factory=dict)
    _oom_kills: int | None = field(default_factory=failure.oom_kill_count)

    def start(self) -> None:
        """Start every stage and wait until it is ready. Raises ServemarkError naming layer and instance; what has been
        started stays until `stop`."""
        for stage in STAGES:
            planned = self.job.stage(stage)
            if not planned:
                continue
            self.callbacks.phase(stage)
            begun = time.monotonic()
            for one in planned:
                if self.callbacks.cancelled():
                    raise ServemarkError("launch.cancelled", Layer.INTERRUPT)
                self._start(one)
            budget = self.side_budgets_s.get(stage, SIDE_BUDGET_S)
            if stage == "workers" or self.job.frontend == "dynamo":
                budget = self.ready_budget_s
            for one in planned:
                self._await(one, begun + budget, budget)
            self.phases_s[stage] = time.monotonic() - begun

    def _start(self, planned: PlannedStep) -> None:
        for name, text in planned.process.files.items():
            make_folder(planned.config_dir)
            write_atomic(planned.config_dir / name, text.encode("utf-8"))
        try:
            container = self._container(planned)
            self.steps[planned.name] = self.allocation.start(
                planned.request(self.secret_env, container, self.srun_options)
            )
        except ServemarkError as error:
            error.values.setdefault("step", planned.name)
            raise

    def _container(self, planned: PlannedStep) -> Container | None:
        """The image with the step's own folders in it; services run outside of it."""
        if self.container is None or planned.stage == "services":
            return None
        own = [Mount(planned.work_dir, str(planned.work_dir), read_only=False)]
        if planned.process.files:
            own.append(Mount(planned.config_dir, str(planned.config_dir)))
        return replace(self.container, own=tuple(own), workdir=str(planned.work_dir))

    def _await(self, planned: PlannedStep, deadline: float, budget_s: float) -> None:
        """Until this step's probe is content; an end of any step ends the wait at once."""
        step, probe = self.steps[planned.name], planned.process.probe
        if probe is None:
            return
        activity, next_tick = Activity(step), time.monotonic() + _TICK_S
        while True:
            died = self.exited()
            if died is not None:
                raise died
            if self.callbacks.cancelled():
                raise ServemarkError("launch.cancelled", Layer.INTERRUPT)
            try:
                if probe.ready():
                    return
            except ServemarkError:
                step.wait(1.0)
                raise self.exited() or _foreign(planned) from None
            now = time.monotonic()
            if now >= next_tick:
                next_tick = now + _TICK_S
                activity.look()
                self.callbacks.tick(planned.name, activity.tick(), budget_s)
            if now >= deadline:
                activity.look()
                raise self._not_ready(planned, activity, budget_s)
            pause = min(max(0.05 * (now - step.started_s), 0.01), _TICK_S)
            step.wait(min(pause, max(deadline - now, 0.0)))

    def exited(self) -> ServemarkError | None:
        """The error of the step that ended by itself, the most telling one where several did; None while all run."""
        lost = self.allocation.lost()
        if lost is not None:
            return self._lost(lost)
        ended = [p for p in self.job.steps if self._ended(p) is not None]
        if not ended:
            return None
        self.allocation.settle(self.steps[ended[0].name])
        lost = self.allocation.lost()
        if lost is not None:
            return self._lost(lost)
        if len(self.steps) > 1:
            time.sleep(_SETTLE_S)
            ended = [p for p in self.job.steps if self._ended(p) is not None]
        first = min(ended, key=lambda p: STAGES.index(p.stage))
        return self.exit_error(first, self._ended(first) or ExitStatus())

    def _lost(self, reason: str) -> ServemarkError:
        return ServemarkError(
            "launch.allocation_lost", Layer.ALLOCATION, reason=reason, id=self.allocation.id
        )

    def _ended(self, planned: PlannedStep) -> ExitStatus | None:
        step = self.steps.get(planned.name)
        return step.poll() if step is not None else None

    def exit_error(self, planned: PlannedStep, status: ExitStatus) -> ServemarkError:
        """`launch.step_exited[.KIND]`: which instance ended, how, the first lines of its log that matter."""
        step = self.steps[planned.name]
        log = step.log_head(_LOG_BYTES)
        if step.log_size() > _LOG_BYTES:
            log += "\n" + step.log_tail(_LOG_BYTES)
        now, oom = failure.oom_kill_count(), None
        if now is not None and self._oom_kills is not None:
            oom = now - self._oom_kills
        kind = "unseen" if status == ExitStatus() else failure.signal_kind(status, oom_kills=oom)
        if kind in (None, "crashed"):
            kind = failure.known_signature(log) or kind
        base = "launch.engine_exited" if len(self.job.steps) == 1 else "launch.step_exited"
        return ServemarkError(
            f"{base}.{kind}" if kind else base,
            layer_of(planned.stage),
            step=planned.name,
            node=planned.node.name,
            status=str(status),
            seconds=f"{time.monotonic() - step.started_s:.1f}",
            log=str(planned.log_path),
            lines="\n".join(f"    {line}" for line in failure.relevant_lines(log)) or "    -",
        )

    def _not_ready(self, planned: PlannedStep, activity: Activity, budget_s: float) -> ServemarkError:
        tick = activity.tick()
        alone = len(self.job.steps) == 1
        working = "launch.not_ready_working" if alone else "launch.step_not_ready_working"
        silent = "launch.not_ready_silent" if alone else "launch.step_not_ready_silent"
        return ServemarkError(
            working if tick.working else silent,
            layer_of(planned.stage),
            step=planned.name,
            node=planned.node.name,
            budget=f"{budget_s:g}",
            silent=f"{activity.silent_s():.1f}",
            cpu="?" if tick.cpu_s is None else f"{tick.cpu_s:.1f}",
            log_bytes=tick.log_bytes,
            last_line=tick.last_line or "-",
            log=str(planned.log_path),
        )

    def unanswering(self) -> list[PlannedStep]:
        """Steps whose probe gets no answer now, services first; for a run in which nothing comes back."""
        probed = [p for p in self.job.steps if p.process.probe is not None and p.name in self.steps]

        def ready(planned: PlannedStep) -> bool:
            with contextlib.suppress(ServemarkError):
                return planned.process.probe is None or planned.process.probe.ready()
            return False

        with ThreadPoolExecutor(max(1, min(len(probed), _MAX_STOPPERS))) as pool:
            answers = list(pool.map(ready, probed))
        return [planned for planned, answered in zip(probed, answers, strict=True) if not answered]

    def stop(self) -> None:
        """Router first, services last, all of a stage at once; then the allocation. Safe to call at any time."""
        self.stop_steps()
        self.allocation.release()

    def stop_steps(self) -> None:
        """The same, and the allocation stays for steps to come."""
        for stage in reversed(STAGES):
            running = [self.steps.pop(p.name) for p in self.job.stage(stage) if p.name in self.steps]
            if running:
                with ThreadPoolExecutor(min(len(running), _MAX_STOPPERS)) as pool:
                    list(pool.map(lambda step: step.stop(), running))

    # What is read from the running servers.

    def leaders(self) -> list[PlannedStep]:
        """The first rank of every worker that serves HTTP."""
        return [p for p in self.job.stage("workers") if p.rank == 0 and p.process.probe is not None]

    def identities(self) -> dict[str, EngineIdentity]:
        """What every worker says of itself, by instance. Raises ServemarkError (launch.workers_differ) when they are
        not the same engine with the same model."""
        found: dict[str, EngineIdentity] = {}
        for planned in self.leaders():
            probe = planned.process.probe
            if probe is not None:
                found[planned.name] = self.reader.identity(probe.base_url, self._command(planned))
        if not found and self.job.frontend == "dynamo":
            found["router"] = get_reader("dynamo").identity(self.job.front.base_url, EngineCommand((), {}))
        same: dict[str, tuple[str, object]] = {}
        for name, identity in found.items():
            for fact in ("engine", "version", "build", "model_sha256"):
                value = getattr(identity, fact)
                other, first = same.setdefault(fact, (name, value))
                if value != first:
                    raise ServemarkError(
                        "launch.workers_differ",
                        Layer.ENGINE,
                        fact=fact,
                        one=other,
                        first=first,
                        two=name,
                        second=value,
                    )
        return found

    @property
    def reader(self) -> EngineReader:
        """How this engine's servers are read."""
        return get_reader(self.engine)

    def _command(self, planned: PlannedStep) -> EngineCommand:
        if planned.process.model_files:
            return engine_command(planned.process)
        return EngineCommand(planned.process.argv, planned.process.env)

    def counters(self) -> EngineCounters | None:
        """Counters of the whole deployment, None when a worker does not answer.

        Prompt tokens and cached ones are those of the prefill side (aggregated workers count as it), generated tokens
        those of the decode side. `raw` of one lone worker is its own; of several, each name has the instance in front,
        and the store's are added up without one (`store_put_bytes`, …).
        """
        leaders = self.leaders()
        try:
            if not leaders and self.job.frontend == "dynamo":
                return get_reader("dynamo").counters(self.job.front.base_url)
            read = [(p, self.reader.counters(p.process.probe.base_url)) for p in leaders if p.process.probe]
        except ServemarkError:
            return None
        if len(self.job.steps) == 1 and read:
            return read[0][1]
        raw: dict[str, float] = {}
        for planned, counters in read:
            raw |= {f"{planned.name} {name}": value for name, value in counters.raw.items()}
        raw |= self._side_counters()
        split = self.job.frontend != "none" and any(p.role == "decode" for p, _ in read)
        front = [c for p, c in read if p.role != "decode"]
        back = [c for p, c in read if p.role != "prefill"] if split else front
        return EngineCounters(
            prompt_tokens=_sum([c.prompt_tokens for c in front]),
            cached_prompt_tokens=_sum([c.cached_prompt_tokens for c in front]),
            generated_tokens=_sum([c.generated_tokens for c in back]),
            raw=raw,
        )

    def _side_counters(self) -> dict[str, float]:
        """Of the store's agents and of our own router; what does not answer is left out."""
        raw: dict[str, float] = {}
        for planned in self.job.stage("workers"):
            if planned.process.agent_url is not None:
                with contextlib.suppress(ProbeError):
                    said = fetch_json(planned.process.agent_url, "/counters", timeout_s=2.0)
                    for name, value in said.items() if isinstance(said, dict) else ():
                        if _STORE.match(str(name)) and isinstance(value, (int, float)):
                            raw[f"{planned.name} {name}"] = float(value)
                            raw[str(name)] = raw.get(str(name), 0.0) + float(value)
        for planned in self.job.stage("router"):
            if planned.process.probe is not None:
                with contextlib.suppress(ProbeError, ValueError):
                    text = fetch(planned.process.probe.base_url, "/metrics", timeout_s=2.0).body.decode(
                        "utf-8"
                    )
                    raw |= {f"router {name}": value for name, value in parse_prometheus(text).items()}
        return raw

    def store_facts(self) -> dict[str, object]:
        """Per rank, how the store was set up: seconds, page size behind the segment, kernel counters either side."""
        found: dict[str, object] = {}
        for planned in self.job.stage("workers"):
            if planned.process.agent_url is not None:
                with contextlib.suppress(ProbeError):
                    said = fetch_json(planned.process.agent_url, "/counters", timeout_s=2.0)
                    facts = said.get("facts") if isinstance(said, dict) else None
                    if isinstance(facts, dict):
                        found[planned.name] = facts
        return found


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _foreign(planned: PlannedStep) -> ServemarkError:
    url = planned.process.probe.base_url if planned.process.probe else "?"
    return ServemarkError("launch.step_other_server", Layer.LAUNCH, step=planned.name, url=url)
