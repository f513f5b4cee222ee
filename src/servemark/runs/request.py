"""From a selector and options to everything that one line needs, decided before anything is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from servemark.base.errors import ServemarkError, input_error
from servemark.base.files import sha256_file
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.catalog.deployment import BenchmarkSpec, Deployment
from servemark.catalog.nodes import errors_of, problems_error
from servemark.catalog.selector import parse_selector
from servemark.catalog.suite import Suite
from servemark.catalog.yaml_nodes import read_yaml
from servemark.evals.forced import Forced, forced_in_recipe
from servemark.evals.registry import find_task
from servemark.evals.tasks import EvalTask
from servemark.launch.job import frontend_of
from servemark.plan.points import Choice, Point, choose, points, require_scorable
from servemark.runs.site import find_place
from servemark.traces.generator import generate
from servemark.traces.identity import source_id
from servemark.traces.random_lengths import RandomLengths, random_workload
from servemark.traces.recipe import AgenticRecipe, recipe_problems
from servemark.traces.theory import TheoreticalHit, theoretical_hit
from servemark.traces.types import CacheBust, Workload

TRACE_SESSIONS = 8
"""Sessions of a trace that a run takes unless told otherwise: a first look, not the trace's hours."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line may change. None leaves the recipe's word."""

    trace: Path | str | None = None
    """A trace in any format, a folder of session files, or `random:isl=…,osl=…`."""
    sessions: int | None = None
    """Of the trace; None: `TRACE_SESSIONS`."""
    scale_lengths: float = 1.0
    scale_think: float | None = None
    cache_bust: CacheBust | None = None
    port: int | None = None
    evals: bool = True
    command: tuple[str, ...] = ()
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secrets by name, for every step; kept in no record."""
    cluster: str | None = None
    """A cluster by name or label; None: the arm's runner chooses, else this machine."""
    clusters_file: Path | None = None
    """Where clusters are described; None: nowhere but in the suite."""
    clusters_asked: bool = False
    """Somebody named the file."""
    preflight: bool = True


@dataclass(frozen=True, slots=True)
class LineRequest:
    """One line to run: a deployment and its points, the workload, the tasks, the cache policy."""

    choice: Choice
    points: tuple[Point, ...]
    workload: Workload
    theory: TheoreticalHit
    cache_bust: CacheBust
    cold: bool
    """True: the engine is restarted before each point. False: each point's prompts carry a marker of their own."""
    tasks: tuple[EvalTask, ...]
    """Asked on `scored`."""
    port: int | None
    inputs: dict[str, dict[str, object]]
    """Every file that the line was made from: shown path -> {sha256, bytes}."""
    command: tuple[str, ...]
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cluster: LaunchCluster | None = None
    """None: this machine."""
    preflight: bool = True
    host: LaunchCluster | None = None
    """What a clusters file says of this machine, where it runs here."""
    sizes: Mapping[int, int] = field(default_factory=dict)
    """Concurrency -> sessions of the workload that its point sends; empty: all of them."""
    not_scored: Forced | None = None
    """Why the recipe's tasks are not asked: acceptance is forced, and no known setting takes that away."""

    @property
    def described(self) -> LaunchCluster | None:
        """What a file says of where it runs."""
        return self.cluster or self.host

    def at(self, concurrency: int) -> LineRequest:
        """The same with the part of the workload that a point sends."""
        taken = self.sizes.get(concurrency)
        if taken is None:
            return self
        work = self.workload
        source = {**work.source, "requests": taken}
        return replace(self, workload=replace(work, sessions=tuple(work.sessions[:taken]), source=source))

    @property
    def scored(self) -> LineRequest | None:
        """The same line on the deployment that its tasks are asked on, where that is another one: started after the
        points, with real verification of drafts. None where there is nothing to ask or nothing is forced."""
        choice = self.choice
        if not self.tasks or choice.verified is None or choice.verified is choice.deployment:
            return None
        return replace(self, choice=replace(choice, deployment=choice.verified))


def scenario_of(
    workload: Workload, cache_bust: CacheBust, cold: bool, bench: BenchmarkSpec | None = None
) -> dict[str, object]:
    """Type, data set and cache policy: what has to be equal for two points to be comparable. `bench`: of a recipe whose
    requests are of fixed lengths."""
    fixed = bench is not None and is_fixed(bench)
    lengths = {"isl": bench.isl, "osl": bench.osl} if bench is not None and fixed else {}
    return {
        "type": "fixed-seq-len" if fixed else "agentic-coding",
        **lengths,
        "dataset": workload.id,
        "name": workload.name,
        "cache_state": "cold" if cold else "marked",
        "cache_bust": cache_bust,
    }


def prepare(selector_text: str, options: RunOptions, default_suite: str | None = None) -> LineRequest:
    """Resolve and read everything. Raises ServemarkError (exit 2) for whatever the user has to mend first."""
    choice = choose(parse_selector(selector_text), default_suite)
    frontend_of(choice.deployment)
    bench = choice.deployment.benchmark
    workload, inputs = _workload(choice, options)
    fixed = bench if options.trace is None else None
    bust: CacheBust = options.cache_bust or ("none" if bench.cache_state == "cold" else "session")
    cold = bust == "none"
    tasks = tuple(find_task(name, str(bench.at)) for name in bench.evals) if options.evals else ()
    still = forced_in_recipe(require_scorable(choice.entry, choice.verified)) if tasks else None
    if still is not None:  # never scored under forced acceptance
        tasks = ()
    inputs.update(_suite_files(choice))
    place = _place(choice, options)
    here = place is None or place.launcher != "slurm"
    return LineRequest(
        choice=choice,
        points=points(choice, scenario_of(workload, bust, cold, fixed)),
        workload=workload,
        theory=theoretical_hit(workload, bust),
        cache_bust=bust,
        cold=cold,
        tasks=tasks,
        port=options.port if options.port is not None else choice.deployment.port,
        inputs=inputs,
        command=options.command,
        secret_env=options.secret_env,
        cluster=None if here else place,
        preflight=options.preflight,
        host=place if here else None,
        sizes=sizes_of(bench, choice.concurrencies) if fixed is not None and is_fixed(bench) else {},
        not_scored=still,
    )


def _place(choice: Choice, options: RunOptions) -> LaunchCluster | None:
    """What a clusters file says of where it runs; None where no file was asked for."""
    if options.clusters_file is None and options.cluster is None:
        return None
    file = options.clusters_file or Path("clusters.yaml")
    return find_place(choice, options.cluster, file, asked=options.clusters_asked)


def is_fixed(bench: BenchmarkSpec) -> bool:
    """Whether a recipe asks for requests of fixed lengths instead of a generator's sessions."""
    return (
        bench.workload is None
        and bench.isl is not None
        and bench.osl is not None
        and bench.requests_per_slot is not None
    )


def sizes_of(bench: BenchmarkSpec, concurrencies: Sequence[int]) -> dict[int, int]:
    """Concurrency -> requests of its point: so many a slot, and never fewer than the recipe's least."""
    per_slot = bench.requests_per_slot or 1
    return {each: max(bench.min_requests, per_slot * each) for each in concurrencies}


def fixed_workload(bench: BenchmarkSpec, requests: int) -> Workload:
    """Requests of exactly `isl` prompt and `osl` output tokens, those of a smaller point the first of a larger one's.

    All points share the id, which is that of the rule and not of its length."""
    lengths = RandomLengths(isl=bench.isl or 1, osl=bench.osl or 1, requests=requests)
    made = random_workload(lengths)
    law = {**made.source, "requests": f"{bench.requests_per_slot} a slot, at least {bench.min_requests}"}
    return replace(made, id=source_id(law))


def _workload(choice: Choice, options: RunOptions) -> tuple[Workload, dict[str, dict[str, object]]]:
    if options.trace is not None:
        return _traced(options.trace, options)
    bench = choice.deployment.benchmark
    if is_fixed(bench):
        if options.scale_think is not None:
            raise input_error("runs.random_options", options="--scale-think", spec=f"isl {bench.isl}")
        return fixed_workload(bench, max(sizes_of(bench, choice.concurrencies).values())), {}
    recipe, hashes = _generator_recipe(choice.suite, choice.deployment)
    if options.scale_think is not None:
        recipe = replace(recipe, think_scale=options.scale_think)
    return generate(recipe), hashes


def _traced(trace: Path | str, options: RunOptions) -> tuple[Workload, dict[str, dict[str, object]]]:
    """The workload of `--trace`: whatever `open_workload` opens, told by content. Mooncake rows are linked to
    sessions and their gaps shortened, since a row alone shares next to nothing with its neighbours."""
    from servemark.traces.chains import DEFAULT_THINK_SCALE  # noqa: PLC0415 - msgspec is slow
    from servemark.traces.open import TraceOptions, detect, open_workload  # noqa: PLC0415

    spec = str(trace)
    lengths_alone = spec.startswith("random:")
    if lengths_alone:
        _refuse_options(spec, options)
    mooncake = not lengths_alone and Path(spec).is_file() and detect(Path(spec)) == "mooncake"
    think = options.scale_think
    if think is None:
        think = DEFAULT_THINK_SCALE if mooncake else 1.0
    workload = open_workload(
        spec,
        TraceOptions(
            sessions=options.sessions or TRACE_SESSIONS,
            scale_lengths=options.scale_lengths,
            think_scale=think,
            link=mooncake,
        ),
    )
    if lengths_alone:
        return workload, {}
    path = Path(spec)
    if path.is_dir():  # the hash that the workload was opened with, over the sessions that it takes
        return workload, {path.name: {"sha256": workload.source["sha256"], "bytes": None}}
    return workload, {path.name: _hashed(path)}


def _refuse_options(spec: str, options: RunOptions) -> None:
    given = {
        "--sessions": options.sessions is not None,
        "--scale-lengths": options.scale_lengths != 1.0,
        "--scale-think": options.scale_think is not None,
    }
    names = ", ".join(name for name, is_given in given.items() if is_given)
    if names:
        raise input_error("runs.random_options", options=names, spec=spec[:60])


def suite_scenario(suite: Suite, deployment: Deployment) -> dict[str, object]:
    """The scenario of a recipe that names its own workload, without any option: what `plan` shows and `run` runs."""
    bench = deployment.benchmark
    cold = bench.cache_state == "cold"
    if is_fixed(bench):
        return scenario_of(fixed_workload(bench, 1), "none" if cold else "session", cold, bench)
    recipe, _ = _generator_recipe(suite, deployment)
    return scenario_of(_generated(recipe), "none" if cold else "session", cold)


@lru_cache(maxsize=1)
def _generated(recipe: AgenticRecipe) -> Workload:
    """Made once for the scenario and the workload of the same recipe, which are asked for one after the other."""
    return generate(recipe)


def suite_workload(suite: Suite, deployment: Deployment) -> tuple[Workload, CacheBust]:
    """The workload that a recipe names and its cache-bust, as `run` replays them. Raises ServemarkError (exit 2) for a
    recipe that names none."""
    recipe, _ = _generator_recipe(suite, deployment)
    return _generated(recipe), "none" if deployment.benchmark.cache_state == "cold" else "session"


def _generator_recipe(
    suite: Suite, deployment: Deployment
) -> tuple[AgenticRecipe, dict[str, dict[str, object]]]:
    bench = deployment.benchmark
    if bench.workload is None:
        raise input_error("runs.no_workload", where=str(bench.at))
    path = suite.file(bench.workload, str(bench.at))
    shown = suite.shown(path)
    node, problems = read_yaml(path, shown)
    faults = errors_of(problems)
    if faults:
        raise problems_error(faults)
    plain = node.plain()
    content = plain if isinstance(plain, dict) else {}
    wrong = recipe_problems(content, shown)
    if wrong:
        raise wrong[0] if len(wrong) == 1 else _together(wrong)
    return AgenticRecipe.from_mapping(content, shown), {shown: _hashed(path)}


def _together(wrong: list[ServemarkError]) -> ServemarkError:
    lines = "\n".join(f"  {problem.what()}" for problem in wrong)
    return input_error("catalog.problems", count=len(wrong), lines=lines)


def _suite_files(choice: Choice) -> dict[str, dict[str, object]]:
    suite = choice.suite
    names = ["suite.yaml", *suite.masters]
    found = {suite.shown(suite.root / name): _hashed(suite.root / name) for name in names}
    recipe = choice.deployment.file
    path = suite.root.parent / recipe if not recipe.startswith("/") else Path(recipe)
    local = suite.root / recipe.partition("/")[2]
    found[recipe] = _hashed(local if local.is_file() else path)
    return found


def _hashed(path: Path) -> dict[str, object]:
    return {"sha256": sha256_file(path), "bytes": path.stat().st_size}
