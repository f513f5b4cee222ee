"""What the sweep's scheduler itself costs: points that do nothing, in this process and as processes of their own.

    PYTHONPATH=src python benchmarks/runs/sweep.py [POINTS] [--json]

`rehearsal`: nothing is started, so only the frozen plan, the transactions and the loop are left. `processes`: each point
is `true` under the small parent that real runs have. `resume`: from the start of a scheduler to its first new attempt
when half of the points are done and their processes' records lie there. Budgets: 50 points/s and 1 s; exit code 1 when
one is missed. Each transition waits for the disk, so the disk counts.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from servemark.base.home import Home
from servemark.runs.sweep_control import Control
from servemark.runs.sweep_plan import SweepOptions
from servemark.runs.sweep_runner import Outcome, UnitRunner, Work, died
from servemark.runs.sweep_scheduler import Scheduler
from servemark.store.sweep_rows import PointState, SweepPoint, SweepRow, SweepState
from servemark.store.sweeps import SweepStore

POINTS_PER_S = 50.0
RESUME_S = 1.0


@dataclass(slots=True)
class True_:  # noqa: N801 - named after the program
    """Every unit is `true`."""

    def new_line_id(self, point: SweepPoint) -> str:
        """Any name."""
        return f"true-{point.number}"

    def argv(self, work: Work) -> list[str]:
        """Does nothing."""
        return ["/bin/true"]

    def env(self) -> dict[str, str]:
        """None."""
        return {}

    def outcomes(self, work: Work, exit_word: str | None) -> dict[int, Outcome]:
        """Done when it ended with 0."""
        good = exit_word == "exit 0"
        one = Outcome(run_id=work.line_id) if good else Outcome(failure=died(exit_word), transient=True)
        return {point.number: one for point in work.points}

    def jobs(self, work: Work) -> tuple[str, ...]:
        """None."""
        return ()

    def leftovers(self, work: Work) -> list[str]:
        """None."""
        return []


def make(home: Path, count: int, *, rehearse: bool, parallel: int) -> str:
    """A sweep of `count` units of one point each."""
    options = SweepOptions(max_parallel=parallel, rehearse=rehearse)
    name = f"bench-{'rehearsal' if rehearse else 'processes'}-{parallel}"
    sweep = SweepRow(name, "2026-01-01T00:00:00Z", None, SweepState.RUNNING, 0, options.plain(), {})
    points = [
        SweepPoint(
            number=number,
            unit=number,
            point_id=f"{number:016d}",
            series_id=f"{number:016d}",
            selector=f"noop/agg@{number}",
            suite="/",
            arm="noop",
            topology="agg",
            concurrency=number,
            cluster="local",
            gpus=0,
            canary=False,
            recipe=None,
            fingerprint=None,
            state=PointState.WAITING,
            budget=3,
        )
        for number in range(1, count + 1)
    ]
    with SweepStore.open(Home(home).sweeps) as store:
        (Home(home).sweeps / name).mkdir()
        store.create(sweep, points)
    return name


def rate(home: Path, count: int, runner: UnitRunner | None, parallel: int) -> float:
    """Points a second of a whole sweep."""
    control = Control(Home(home), make(home, count, rehearse=runner is None, parallel=parallel), {}, runner)
    begun = time.perf_counter()
    end = control.resume()
    seconds = time.perf_counter() - begun
    assert end is not None and end.counts[PointState.DONE] == count, end
    return count / seconds


def resume_s(home: Path, count: int) -> float:
    """A scheduler that was killed half-way, and the next one's time to its first new attempt."""
    name = make(home, count, rehearse=False, parallel=3)
    pid = os.fork()
    if pid == 0:

        def half(scheduler: Scheduler) -> None:
            if sum(point.state is PointState.DONE for point in scheduler.points.values()) >= count // 2:
                os.kill(os.getpid(), 9)

        Control(Home(home), name, {}, True_()).resume(half)
        os._exit(1)
    os.waitpid(pid, 0)
    time.sleep(0.5)
    first = 0.0
    before: set[int] = set()
    begun = time.perf_counter()

    def look(scheduler: Scheduler) -> None:
        nonlocal first
        started = {number for number, point in scheduler.points.items() if point.tries}
        if not before and not first:
            before.update(started)
        if scheduler.live and not first:
            first = time.perf_counter() - begun
            scheduler.interrupts.count = 3

    Control(Home(home), name, {}, True_()).resume(look)
    return first


def main() -> None:
    """Print the figures."""
    arguments = [word for word in sys.argv[1:] if word != "--json"]
    count = int(arguments[0]) if arguments else 1_000
    with tempfile.TemporaryDirectory(prefix="sweep-bench-") as folder:
        homes = [Path(folder) / name for name in ("a", "b", "c", "d")]
        figures = {
            "points": count,
            "rehearsal_points_per_s": rate(homes[0], count, None, 1),
            "rehearsal_8_at_once_points_per_s": rate(homes[1], count, None, 8),
            "processes_8_at_once_points_per_s": rate(homes[2], count, True_(), 8),
            "resume_s": resume_s(homes[3], count),
        }
    if "--json" in sys.argv:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:36} {value:10.2f}")
    slowest = min(value for name, value in figures.items() if name.endswith("points_per_s"))
    sys.exit(0 if slowest >= POINTS_PER_S and figures["resume_s"] <= RESUME_S else 1)


if __name__ == "__main__":
    main()
