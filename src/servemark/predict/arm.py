"""One arm's predictions: its points as planned (or at other loads that somebody asks for), what the store has of their
model, forecasts, and acceptance lengths side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from servemark.base.errors import ServemarkError, input_error
from servemark.base.home import Home
from servemark.catalog.arms import Arm, SearchEntry
from servemark.catalog.deployment import Deployment
from servemark.catalog.identity import identify_line
from servemark.catalog.nodes import Problem
from servemark.catalog.selector import Selector
from servemark.catalog.suite import Suite, load_suite, shipped_suites
from servemark.predict.acceptance import AcceptanceView, acceptance_of
from servemark.predict.forecast import Forecast, Forecaster, OnFit
from servemark.predict.planned import PlannedPoint, planned_point
from servemark.replay.profiles import RUN_PROFILE, Profile, find_profile
from servemark.store.database import Store
from servemark.traces.types import CacheBust, Workload

if TYPE_CHECKING:
    from servemark.predict.agentic import AgenticRun, Change

WorkloadOf = Callable[[Suite, Deployment], tuple[Workload, CacheBust]]
ScenarioOf = Callable[[Suite, SearchEntry, Deployment | None], dict[str, object]]


@dataclass(frozen=True, slots=True)
class TopologyForecast:
    """One search-space entry of the arm: its points in order of concurrency. `unlisted` are loads that the arm does not
    list."""

    entry: SearchEntry
    forecasts: tuple[Forecast, ...]
    acceptance: AcceptanceView | None
    unlisted: tuple[int, ...]
    simulated: tuple[AgenticRun, ...] = ()
    not_simulated: ServemarkError | None = None
    """Why a simulation that was asked for was not made."""


@dataclass(frozen=True, slots=True)
class ArmForecast:
    """All of it. `points` counts the usable measured points of the model in the store; None without a store."""

    suite: str
    arm: Arm
    topologies: tuple[TopologyForecast, ...]
    points: int | None
    forecaster: Forecaster

    @property
    def says_anything(self) -> bool:
        """Whether any figure or band is given."""
        return any(topology.simulated for topology in self.topologies) or any(
            figure.value is not None or figure.low is not None
            for topology in self.topologies
            for each in topology.forecasts
            if each.predictions is not None
            for figure in each.predictions.figures.values()
        )


def forecast_arm(
    selector: Selector,
    home: Home,
    at: tuple[int, ...],
    *,
    scenario_of: ScenarioOf,
    workload_of: WorkloadOf | None = None,
    what_if: tuple[str, ...] = (),
    profile: str | None = None,
    on_fit: OnFit | None = None,
) -> ArmForecast:
    """Predict an arm at its listed concurrencies, or `at` others. `scenario_of` says what a run would replay; with
    `workload_of`, which gives it, the arm is simulated too, and once more with the changes of `what_if`. `profile` names
    rules of the replay other than those of `run`; `on_fit` is told of a long fit's progress.

    Raises ServemarkError (exit 2): unknown suite, arm or topology.
    """
    shipped = selector.arm if selector.arm in shipped_suites() else None
    suite = load_suite(selector.suite or shipped or ".")
    arm = suite.arm(selector.arm)
    entries = [each for each in arm.entries if selector.topology in (None, each.topology)]
    if not entries:
        names = ", ".join(each.topology for each in arm.entries)
        raise input_error("catalog.no_topology", arm=arm.key, topology=selector.topology, topologies=names)
    forecaster, count = forecaster_of(home, (arm.model,), on_fit=on_fit)
    changes = _changes(what_if)
    rules = find_profile(profile or RUN_PROFILE)
    problems: list[Problem] = []
    golden = suite.golden(problems)
    found = []
    for entry in entries:
        planned = _planned(suite, arm, entry, at or tuple(sorted(entry.concurrencies)), scenario_of)
        forecasts = tuple(forecaster.forecast(each) for each in planned)
        measured = forecaster.of_weights(planned[0]) if planned else ()
        acceptance = acceptance_of(arm, entry, suite.recipe(entry).deployment, golden, measured)
        unlisted = tuple(each for each in at if each not in entry.concurrencies)
        made = TopologyForecast(entry, forecasts, acceptance, unlisted)
        if workload_of is not None:
            made = _with_simulation(made, suite, arm, forecaster, workload_of, changes, rules)
        found.append(made)
    return ArmForecast(suite.name, arm, tuple(found), count, forecaster)


def _changes(what_if: tuple[str, ...]) -> tuple[Change, ...]:
    if not what_if:
        return ()
    from servemark.predict.agentic import parse_changes  # noqa: PLC0415 - the simulator is asked for rarely

    return parse_changes(what_if)


def _with_simulation(  # noqa: PLR0917 - what is simulated, where, how
    made: TopologyForecast,
    suite: Suite,
    arm: Arm,
    forecaster: Forecaster,
    workload_of: WorkloadOf,
    changes: tuple[Change, ...],
    profile: Profile,
) -> TopologyForecast:
    """The same with a simulated replay of each point, or with the reason why there is none."""
    from servemark.predict.agentic import ArmReplay, simulate_arm  # noqa: PLC0415 - the simulator is asked for rarely
    from servemark.predict.arm_engines import engine_limits  # noqa: PLC0415

    target = f"{suite.root}:{arm.key}/{made.entry.topology}"
    try:
        deployment = suite.deployment(arm, made.entry)
        workload, bust = workload_of(suite, deployment)
        replay = ArmReplay(target, workload, profile, bust, engine_limits(deployment))
        runs = []
        for number, each in enumerate(made.forecasts, 1):
            near = () if each.nearest is None else each.nearest.points
            times = forecaster.step_times(each)
            last = number == len(made.forecasts)  # what decides is asked of one load
            runs.append(simulate_arm(replay, each.planned, times, near, changes, judge_rules=last))
    except ServemarkError as error:
        return replace(made, not_simulated=error)
    return replace(made, simulated=tuple(runs))


def forecaster_of(
    home: Home, models: tuple[str, ...], *, wait: bool = True, on_fit: OnFit | None = None
) -> tuple[Forecaster, int | None]:
    """A forecaster over the store of a home, and how many usable points of these models it has; without a store one that
    knows of nothing, and None. Raises ServemarkError (layer store) for a store that cannot be read."""
    if not home.store.exists():
        return Forecaster(()), None
    with Store.open(home.store, read_only=True) as store:
        found = Forecaster.of_store(store, models, home, wait=wait, on_fit=on_fit)
    return found, len(found.points)


def _planned(
    suite: Suite, arm: Arm, entry: SearchEntry, loads: tuple[int, ...], scenario_of: ScenarioOf
) -> list[PlannedPoint]:
    deployment = suite.recipe(entry).deployment
    scenario = scenario_of(suite, entry, deployment)
    identities = identify_line(suite.name, arm, entry, deployment, scenario, loads)
    gpus = _gpus(entry) if deployment is None else deployment.gpus_total
    return [
        planned_point(arm, entry, deployment, identity, load, gpus)
        for identity, load in zip(identities, loads, strict=True)
    ]


def _gpus(entry: SearchEntry) -> int:
    """All GPUs of the entry, from its own numbers."""
    return sum(block.num_worker * block.gpus for block in (entry.prefill, entry.decode))
