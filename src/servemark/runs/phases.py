"""A run's phases: how long each may take, and how long each took.

allocate -> preflight -> images -> services -> workers -> router -> health -> warmup -> replay -> evals -> collect -> stop
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from servemark.base.errors import Layer, ServemarkError
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.catalog.deployment import Deployment
from servemark.runs.view import RunView

BUDGETS_S = {
    "allocate": 3600.0,
    "preflight": 300.0,
    "images": 7200.0,
    "services": 90.0,
    "router": 90.0,
    "health": 120.0,
    "replay": 86_400.0,
    "evals": 86_400.0,
    "collect": 600.0,
    "stop": 180.0,
}
"""Seconds. `workers` has the recipe's own health check as its budget, `warmup` four idle time-outs."""
LAYERS = {"warmup": Layer.REPLAY, "replay": Layer.REPLAY, "evals": Layer.EVALS, "health": Layer.ENGINE}


def budgets(deployment: Deployment, cluster: LaunchCluster | None) -> dict[str, float]:
    """Phase -> seconds: the defaults, then the cluster's word, then the recipe's."""
    bench = deployment.benchmark
    found = {**BUDGETS_S, "workers": deployment.ready_budget_s, "warmup": 4 * bench.idle_timeout_s}
    if cluster is not None:
        if cluster.wait_s is not None:
            found["allocate"] = float(cluster.wait_s)
        found |= dict(cluster.budgets_s)
    return found | dict(bench.budgets_s)


def over(phase: str, budget_s: float, log: str) -> ServemarkError:
    """The error of a phase that did not end within its budget."""
    return ServemarkError(
        "runs.phase_over", LAYERS.get(phase, Layer.LAUNCH), phase=phase, seconds=f"{budget_s:g}", log=log
    )


@dataclass(slots=True)
class PhaseClock:
    """Tells the view of each phase and adds up its seconds (monotonic). Phases may come again."""

    view: RunView
    budgets_s: dict[str, float]
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        """So much more of a phase."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    @contextlib.contextmanager
    def phase(self, name: str, concurrency: int | None = None) -> Iterator[None]:
        """What happens inside belongs to that phase."""
        self.view.phase(name, concurrency)
        begun = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - begun)

    @contextlib.contextmanager
    def noted(self, name: str, concurrency: int | None = None) -> Iterator[None]:
        """A phase that must come to its end: one that takes longer than its budget is told, not cut off."""
        before = self.seconds.get(name, 0.0)
        with self.phase(name, concurrency):
            yield
        took, budget = self.seconds[name] - before, self.budgets_s[name]
        if took > budget:
            self.view.note("runs.phase_long", phase=name, seconds=f"{took:.0f}", budget=f"{budget:g}")
