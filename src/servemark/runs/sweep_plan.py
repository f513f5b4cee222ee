"""From selectors to a frozen plan: the very points that `plan` shows, grouped into units, with what they were made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.base.files import sha256_file
from servemark.base.printable import one_line
from servemark.catalog.nodes import Problem, errors_of, problems_error
from servemark.catalog.selector import Selector, parse_selector
from servemark.catalog.suite import SUITE_FILE, Suite, read_suite, shipped_suites
from servemark.plan.changed import base_of
from servemark.plan.points import deployments, require_scorable
from servemark.plan.rows import PlanRow
from servemark.plan.selection import Selection
from servemark.plan.strict import Wishes, plan_suite
from servemark.runs.scenario import planned_scenario
from servemark.runs.sweep_prune import LAYER as PRUNED_BY
from servemark.runs.sweep_prune import read_pruned_plan
from servemark.runs.sweep_runner import LOCAL
from servemark.store.sweep_rows import Failure, PointState, SweepPoint

MAX_POINTS = 100_000


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What a sweep was asked for; frozen with its plan."""

    selectors: tuple[str, ...] = ()
    """Empty: the whole suite."""
    suite: str | None = None
    changed_since: str | None = None
    max_parallel: int = 1
    """Units of this sweep at once."""
    fail_fast: bool = False
    canary: bool = False
    canary_point: str | None = None
    by_point: bool = False
    """One engine start a point, instead of one for all points that differ only in concurrency."""
    max_attempts: int = 3
    backoff_s: float = 10.0
    """Seconds before the second attempt; doubled for each further one."""
    priority: int = 0
    rehearse: bool = False
    arguments: tuple[str, ...] = ()
    """More arguments for every run."""
    cluster: str | None = None
    clusters: Mapping[str, str] = field(default_factory=dict)
    """Runner label of an arm -> the cluster that runs it, where it is not `cluster`."""
    clusters_file: str | None = None
    plan: str | None = None
    """A pruned plan's file: what it let go is skipped, with its reason."""

    def plain(self) -> dict[str, object]:
        """For the sweeps' file."""
        return {**asdict(self), "clusters": dict(self.clusters)}

    @classmethod
    def of(cls, plain: Mapping[str, object]) -> SweepOptions:
        """Back from the file; what another version wrote beyond our fields is left alone."""
        known = {each.name for each in fields(cls)}
        values = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in plain.items()
            if name in known
        }
        return cls(**values)  # type: ignore[arg-type]  # written by `plain`

    def cluster_of(self, runner: str) -> str:
        """Where an arm of that runner label runs."""
        return self.clusters.get(runner) or self.cluster or LOCAL


@dataclass(frozen=True, slots=True)
class FrozenPlan:
    """Points in the order in which they run, and every file that they were made from."""

    points: tuple[SweepPoint, ...]
    inputs: dict[str, dict[str, object]]


def freeze(options: SweepOptions) -> FrozenPlan:
    """Resolve, check and hash everything. ServemarkError (exit 2) for whatever has to be mended before a start."""
    pruned = read_pruned_plan(Path(options.plan)) if options.plan is not None else None
    if pruned is not None and options.suite is None and not options.selectors:
        options = replace(options, suite=pruned.suite_folder())
    rows, inputs = _rows(options)
    if not rows:
        raise input_error("runs.sweep.nothing_selected")
    if len(rows) > MAX_POINTS:
        raise input_error("runs.sweep.too_many", count=len(rows), limit=MAX_POINTS)
    gone: Mapping[str, Failure] = {}
    if pruned is not None:
        whole = not options.selectors and options.changed_since is None
        pruned.require_known((each.row.identity.point_id for each in rows), whole=whole)
        gone = pruned.gone
        inputs[str(Path(options.plan or "").absolute())] = _hashed(Path(options.plan or ""))
    canary = _canary([each for each in rows if each.row.identity.point_id not in gone], options)
    if canary is not None:
        rows = [canary, *(row for row in rows if row is not canary)]
    points = _points(rows, canary, options, gone)
    if all(point.state is PointState.SKIPPED for point in points):
        raise _nothing_runs(points[0].failure or {}, options)
    return FrozenPlan(tuple(points), inputs)


def _nothing_runs(failure: Failure, options: SweepOptions) -> ServemarkError:
    """All points are skipped: why the first one is."""
    key, values = failure.get("key"), failure.get("values")
    if failure.get("layer") == PRUNED_BY:
        return input_error("runs.sweep.all_pruned", path=one_line(options.plan or "")[:300])
    return input_error(str(key), **(values if isinstance(values, dict) else {}))


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a suite's plan with its suite."""

    suite: Suite
    row: PlanRow


def _rows(options: SweepOptions) -> tuple[list[_Row], dict[str, dict[str, object]]]:
    wanted: dict[Path, tuple[Suite, list[Selector]]] = {}
    for text in options.selectors or ("*",):
        selector = parse_selector(text)
        shipped = selector.arm if selector.arm in shipped_suites() else None
        where = selector.suite or options.suite or shipped or "."
        suite, problems = read_suite(where)
        _refuse(problems)
        if "@" in str(suite.root):
            raise input_error("runs.sweep.at_in_path", path=str(suite.root))
        suite, selectors = wanted.setdefault(suite.root, (suite, []))
        selectors.append(selector)
    rows: list[_Row] = []
    inputs: dict[str, dict[str, object]] = {}
    for suite, selectors in wanted.values():
        found = _selected(suite, selectors, options)
        rows += [_Row(suite, row) for row in found]
        inputs.update(_inputs(suite, found))
    return rows, inputs


def _refuse(problems: Iterable[Problem]) -> None:
    faults = errors_of(list(problems))
    if faults:
        raise problems_error(faults)


def _selected(suite: Suite, selectors: Sequence[Selector], options: SweepOptions) -> list[PlanRow]:
    problems: list[Problem] = []
    base = base_of(suite, options.changed_since, problems) if options.changed_since is not None else None
    wishes = Wishes(
        selection=Selection(keys=tuple(dict.fromkeys(selector.arm for selector in selectors))),
        priorities=suite.priorities(problems),
        why=base.why if base is not None else None,
        scenario_of=lambda entry, deployment: planned_scenario(suite, entry, deployment),
    )
    made = plan_suite(suite, wishes)
    _refuse([*problems, *made.problems])
    if base is None:  # nothing is left out but by the selectors, so each must find what it names
        for selector in selectors:
            _require_found(selector, made.rows, [pair.row for pair in made.removed])
    return [row for row in made.rows if any(_takes(selector, row) for selector in selectors)]


def _takes(selector: Selector, row: PlanRow) -> bool:
    return (
        fnmatchcase(row.arm.key, selector.arm)
        and (selector.topology is None or fnmatchcase(row.entry.topology, selector.topology))
        and (selector.concurrencies is None or row.concurrency in selector.concurrencies)
    )


def _require_found(selector: Selector, rows: Sequence[PlanRow], removed: Sequence[PlanRow]) -> None:
    every = [*rows, *removed]
    for concurrency in selector.concurrencies or (None,):
        one = selector if concurrency is None else replace(selector, concurrencies=(concurrency,))
        if not any(_takes(one, row) for row in every):
            near = [row for row in every if fnmatchcase(row.arm.key, selector.arm)]
            some = ", ".join(dict.fromkeys(row.selector for row in near[:6]))
            shown = f"{selector.arm}/{selector.topology or '*'}" + (f"@{concurrency}" if concurrency else "")
            raise input_error("runs.sweep.matches_nothing", selector=shown, some=some)


def _canary(rows: Sequence[_Row], options: SweepOptions) -> _Row | None:
    """The point that goes first: as asked for, else the one with the fewest GPUs, then the least concurrency, then
    the shortest prompt."""
    if options.canary_point is not None:
        selector = parse_selector(options.canary_point)
        found = [each for each in rows if _takes(selector, each.row)]
        if len(found) != 1:
            raise input_error("runs.sweep.canary_choice", selector=options.canary_point, count=len(found))
        return found[0]
    able = [each for each in rows if each.row.recipe.deployment is not None]
    return min(able, key=lambda each: _cost(each.row)) if options.canary and able else None


def _cost(row: PlanRow) -> tuple[int, int, int]:
    scenario = row.entry.scenario
    return row.gpus, row.concurrency, (scenario.isl or 0) if scenario is not None else 0


def _points(
    rows: Sequence[_Row], canary: _Row | None, options: SweepOptions, gone: Mapping[str, Failure]
) -> list[SweepPoint]:
    units: dict[object, int] = {}
    points: list[SweepPoint] = []
    for number, each in enumerate(rows, 1):
        row = each.row
        alone = options.by_point or each is canary
        key: object = number if alone else (each.suite.root, row.arm.key, row.entry.topology)
        failure = _cannot_run(each, scored="--no-evals" not in options.arguments) or gone.get(
            row.identity.point_id
        )
        points.append(
            SweepPoint(
                number=number,
                unit=units.setdefault(key, len(units) + 1),
                point_id=row.identity.point_id,
                series_id=row.identity.series_id,
                selector=row.selector,
                suite=str(each.suite.root),
                arm=row.arm.key,
                topology=row.entry.topology,
                concurrency=row.concurrency,
                cluster=options.cluster_of(row.arm.runner),
                gpus=row.gpus,
                canary=each is canary,
                recipe=row.recipe.file,
                fingerprint=_text(row.identity.canonical.get("deployment")),
                state=PointState.SKIPPED if failure else PointState.WAITING,
                budget=options.max_attempts,
                failure=failure,
            )
        )
    return points


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _cannot_run(each: _Row, *, scored: bool) -> Failure | None:
    """Why a point has no deployment that could be launched (a script's, another suite's) or scored; None when it has one."""
    try:
        deployment, verified = deployments(each.suite, each.row.arm, each.row.entry)
        if scored and deployment.benchmark.evals:
            require_scorable(each.row.entry, verified)
    except ServemarkError as error:
        return failure_of(error)
    return None


def failure_of(error: ServemarkError) -> Failure:
    """An error as a point keeps it."""
    values = {
        name: value if isinstance(value, (str, int, float, bool)) or value is None else str(value)
        for name, value in error.values.items()
    }
    return {"layer": str(error.layer), "key": error.key, "values": values}


def _inputs(suite: Suite, rows: Sequence[PlanRow]) -> dict[str, dict[str, object]]:
    names = [SUITE_FILE, *suite.masters]
    if suite.layout is not None and suite.layout.clusters is not None:
        names.append(suite.layout.clusters)
    paths = [suite.root / name for name in names]
    for entry in {id(row.entry): row.entry for row in rows}.values():
        path = suite.recipe_file(entry)
        if path is not None:
            paths.append(path)
        deployment = suite.recipe(entry).deployment
        if deployment is not None and deployment.benchmark.workload is not None:
            paths.append(suite.file(deployment.benchmark.workload, str(deployment.benchmark.at)))
    return {str(path): _hashed(path) for path in dict.fromkeys(paths) if path.is_file()}


def _hashed(path: Path) -> dict[str, object]:
    return {"sha256": sha256_file(path), "bytes": path.stat().st_size}


class PlanGuard:
    """Whether points are still what was frozen. A changed byte is no change of a point as long as its id stays."""

    def __init__(self, inputs: Mapping[str, Mapping[str, object]]) -> None:
        self._inputs = inputs
        self._seen: dict[str, tuple[tuple[int, int] | None, bool]] = {}

    def changed_files(self) -> list[str]:
        """Files whose bytes differ from the frozen ones; each is read again only when its time or size changed."""
        found = []
        for name, facts in self._inputs.items():
            path = Path(name)
            try:
                status = path.stat()
                mark: tuple[int, int] | None = (status.st_mtime_ns, status.st_size)
            except OSError:
                mark = None
            seen = self._seen.get(name)
            if seen is None or seen[0] != mark:
                seen = self._seen[name] = (mark, mark is not None and _same(path, facts))
            if not seen[1]:
                found.append(name)
        return found

    def problem(self, points: Sequence[SweepPoint]) -> Failure | None:
        """Why these points may not be run any more; None when they may. One unit's points are asked for at a time."""
        changed = self.changed_files()
        if not changed:
            return None
        first = points[0]
        asked = ",".join(str(point.concurrency) for point in points)
        selector = f"{first.suite}:{first.arm}/{first.topology}@{asked}"
        try:
            rows, _ = _rows(SweepOptions(selectors=(selector,)))
        except ServemarkError as error:
            return failure_of(error)
        now = {each.row.identity.point_id for each in rows}
        if all(point.point_id in now for point in points):
            return None
        values: dict[str, object] = {"file": changed[0], "count": len(changed)}
        return {"layer": str(Layer.INPUT), "key": "runs.sweep.changed", "values": values}


def _same(path: Path, facts: Mapping[str, object]) -> bool:
    try:
        return sha256_file(path) == facts.get("sha256")
    except OSError:
        return False
