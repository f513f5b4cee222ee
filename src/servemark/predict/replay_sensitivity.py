"""What a simulated figure hangs on: the replay's rules, or the engine.

The same trace is simulated again and again, with one thing changed each time: a rule of the replay (start points, idle
caps, think times, warm-up, lanes that begin at turn 0, another seed), or the engine (infinitely fast, so much faster and
slower, an unbounded cache). The two spreads stand beside each other, and the larger one is named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Literal

from servemark.predict.assumed_times import ScaledTimes, no_time
from servemark.predict.closed_loop import simulate
from servemark.predict.sim_result import SimulatedRun
from servemark.predict.sim_rules import Deployment, ReplayRules
from servemark.predict.types import PrefixCache, StepTimes
from servemark.replay.timeline import IdleCaps
from servemark.traces.types import Workload

Side = Literal["rules", "engine"]
Dominates = Literal["rules", "engine", "neither", "nothing"]
METRIC = "total_tokens_per_s"
HITS = "cache_hit"
"""Share of prompt tokens found in any tier: a metric that needs no speed."""
CLEAR = 1.5
"""One side dominates when its spread is so many times the other's."""
SLIGHT = 0.01
"""Where no change moves the figure by more, nothing decides."""
SPEED_ERROR = 0.2
"""How far a fitted speed is off on shapes that were not measured, typically; the engine is changed by as much."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One changed run. `name` is the end of its message key `predict.replay.variant.NAME`; `change` is its figure /
    the unchanged run's - 1, None where one of them is absent. `judged` is False for a limit that no engine reaches."""

    name: str
    side: Side
    value: float | None
    change: float | None
    judged: bool = True


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """`metric` is the address of the figure looked at, or `HITS`. Spreads are the largest judged |change| of each side.
    `dominates` names the side whose spread is clearly the larger one, "nothing" where both are slight; None where nothing
    can be compared."""

    metric: str
    value: float | None
    variants: tuple[Variant, ...]
    rules_spread: float | None
    engine_spread: float | None
    dominates: Dominates | None

    @property
    def said(self) -> str | None:
        """Message key of the finding, with `metric`, `rules` and `engine` (%) as values; None without one."""
        return None if self.dominates is None else f"predict.replay.dominates_{self.dominates}"

    def to_json(self) -> dict[str, object]:
        """JSON-ready."""
        return asdict(self)


def sensitivity(
    workload: Workload,
    make_cache: Callable[[], PrefixCache | None],
    times: StepTimes,
    rules: ReplayRules,
    deployment: Deployment,
    *,
    metric: str = METRIC,
    base: SimulatedRun | None = None,
    speed_error: float = SPEED_ERROR,
) -> Sensitivity:
    """Simulate the changes that make sense for these rules. `make_cache` makes an empty cache for each run; `base` is the
    unchanged run where it is there already. Each run costs as much as the first. Raises ServemarkError as `simulate`."""

    def run(times: StepTimes, rules: ReplayRules, cache: PrefixCache | None) -> float | None:
        return _figure(simulate(workload, cache, times, rules, deployment), metric)

    value = _figure(base, metric) if base is not None else run(times, rules, make_cache())
    found: list[Variant] = []

    def note(name: str, side: Side, changed: float | None, *, judged: bool = True) -> None:
        change = changed / value - 1 if changed is not None and value else None
        found.append(Variant(name, side, changed, change, judged))

    for name, other in rule_changes(rules):
        note(name, "rules", run(times, other, make_cache()))
    if make_cache() is not None:
        note("unbounded_cache", "engine", run(times, rules, None))
    note("faster", "engine", run(ScaledTimes(times, 1 - speed_error), rules, make_cache()))
    note("slower", "engine", run(ScaledTimes(times, 1 + speed_error), rules, make_cache()))
    if _ends_without_engine(workload, rules):
        note("no_time", "engine", run(no_time(), rules, None), judged=False)
    spreads = {
        side: max(
            (abs(v.change) for v in found if v.side == side and v.judged and v.change is not None),
            default=None,
        )
        for side in ("rules", "engine")
    }
    return Sensitivity(
        metric,
        value,
        tuple(found),
        spreads["rules"],
        spreads["engine"],
        _judge(spreads["rules"], spreads["engine"]),
    )


def _figure(run: SimulatedRun, metric: str) -> float | None:
    return run.hits.share if metric == HITS else run.value(metric)


def rule_changes(rules: ReplayRules) -> list[tuple[str, ReplayRules]]:
    """(name, rules with one thing changed) for everything that published replays of one trace do differently."""
    found: list[tuple[str, ReplayRules]] = []
    if rules.concurrency is None:
        return found
    if rules.start_share is not None:
        found.append(("from_start", replace(rules, start_share=None, pressure_requests=0)))
        found.append(("start_anywhere", replace(rules, start_share=(0.0, 1.0))))
        found.append(("other_seed", replace(rules, start_seed=rules.start_seed + 1)))
    if rules.idle_caps.tree_s is not None:
        found.append(("no_tree_cap", replace(rules, idle_caps=replace(rules.idle_caps, tree_s=None))))
    else:
        found.append(("tree_cap", replace(rules, idle_caps=replace(rules.idle_caps, tree_s=60.0))))
    if rules.idle_caps.system_s is not None:
        found.append(("no_caps", replace(rules, idle_caps=IdleCaps())))
    if rules.think_scale:
        found.append(("half_think", replace(rules, think_scale=rules.think_scale / 2)))
    if rules.duration_s is not None:
        found.append(("half_time", replace(rules, duration_s=rules.duration_s / 2)))
    return found


def _ends_without_engine(workload: Workload, rules: ReplayRules) -> bool:
    """Whether an engine that takes no time leaves a replay that takes any: one with think times, or of one pass."""
    if rules.duration_s is None:
        return False
    first = workload.sessions[0]
    return rules.think_scale > 0 and any(turn.think_s > 0 for _, turns in first.streams() for turn in turns)


def _judge(rules: float | None, engine: float | None) -> Dominates | None:
    if rules is None or engine is None:
        return None
    if max(rules, engine) < SLIGHT:
        return "nothing"
    if rules > CLEAR * engine:
        return "rules"
    return "engine" if engine > CLEAR * rules else "neither"
