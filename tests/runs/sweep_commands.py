"""Sweeps over small shell commands in place of runs, for tests: what each point does is said by its arm.

As a program: `python sweep_commands.py HOME SWEEP` reads lines from stdin; for each it forks a process that works on
the sweep, prints that process's id, and prints `ended` when it has ended by itself or was killed.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from servemark.base.home import Home
from servemark.runs.sweep_control import Control
from servemark.runs.sweep_plan import SweepOptions
from servemark.runs.sweep_runner import Outcome, Work, died
from servemark.store.sweep_rows import PointState, SweepPoint, SweepRow, SweepState
from servemark.store.sweeps import SweepStore

ENDS = {
    "ok": "exit 0",
    "bad": "exit 3",  # a deterministic failure
    "node": "exit 4",  # a failure that may pass
    "flaky": "[ $(wc -l < began-$n) -ge 2 ] && exit 0; exit 4",  # the second attempt goes well
    "slow": "sleep 30",
    "nap": "sleep 0.3; exit 0",
    "tick": "sleep 0.03; exit 0",
    "gate": "while [ ! -e go ]; do sleep 0.02; done; exit 0",
    "second": "while [ ! -e began-1 ]; do sleep 0.02; done; exit 3",
}
"""How a point's command ends, after it has noted that it began; `n` is the point's number."""


@dataclass(slots=True)
class Commands:
    """A UnitRunner of shell commands. Each point leaves a line in `began-N`, and in `finished-N` when it went well."""

    folder: Path
    held: list[str] = field(default_factory=list)
    """What `leftovers` answers."""

    def new_line_id(self, point: SweepPoint) -> str:
        """Any name."""
        return f"line-{point.number}-{time.time_ns()}"

    def argv(self, work: Work) -> list[str]:
        """The points of a unit one after another; the first that fails ends it."""
        parts = [f"cd '{self.folder}'"]
        for point in work.points:
            end = ENDS[point.arm]
            parts.append(f"n={point.number}; echo {work.line_id} >> began-$n")
            # A shell notes a Ctrl-C only when its child has ended, so the long one takes its place.
            parts.append(
                f"exec {end}"
                if point.arm == "slow"
                else f"( {end} ) || exit $?; echo {work.line_id} >> finished-$n"
            )
        return ["/bin/sh", "-c", "; ".join(parts)]

    def env(self) -> dict[str, str]:
        """Just a path."""
        return {"PATH": os.environ["PATH"]}

    def outcomes(self, work: Work, exit_word: str | None) -> dict[int, Outcome]:
        """A point whose `finished` file names the line is done."""
        failure = died(exit_word)
        if exit_word == "exit 3":
            failure = {"layer": "engine", "what": "unknown argument --no-such"}
        elif exit_word == "exit 4":
            failure = {"layer": "allocation", "what": "node n2 went down"}
        transient = exit_word != "exit 3"
        found = {}
        for point in work.points:
            path = self.folder / f"finished-{point.number}"
            done = path.exists() and work.line_id in path.read_text().split()
            found[point.number] = (
                Outcome(run_id=f"{work.line_id}-c{point.concurrency}")
                if done
                else Outcome(None, failure, transient)
            )
        return found

    def jobs(self, work: Work) -> tuple[str, ...]:
        """One pretended batch job for points of the cluster `batch`."""
        return ("4711",) if work.points[0].cluster == "batch" else ()

    def leftovers(self, work: Work) -> list[str]:
        """As told."""
        return list(self.held)


def make_sweep(
    home: Path,
    arms: list[str],
    *,
    name: str = "20260101-000000-sweep-0001",
    unit_size: int = 1,
    cluster: str = "local",
    canary: int | None = None,
    **options: object,
) -> SweepRow:
    """Keep a sweep whose n-th point does what `arms[n - 1]` says. `canary`: the number of the point that goes first."""
    asked = SweepOptions(**{"backoff_s": 0.05, "max_attempts": 3, **options})  # type: ignore[arg-type]
    sweep = SweepRow(
        name, "2026-01-01T00:00:00Z", None, SweepState.RUNNING, asked.priority, asked.plain(), {}
    )
    points = [
        SweepPoint(
            number=number,
            unit=(number - 1) // unit_size + 1,
            point_id=f"p{number:015d}",
            series_id=f"s{number:015d}",
            selector=f"{arm}/1p1d@{number}",
            suite="/nowhere",
            arm=arm,
            topology="1p1d",
            concurrency=number,
            cluster=cluster,
            gpus=8,
            canary=number == canary,
            recipe=None,
            fingerprint=None,
            state=PointState.WAITING,
            budget=asked.max_attempts,
        )
        for number, arm in enumerate(arms, 1)
    ]
    folder = Home(home).sweeps
    with SweepStore.open(folder) as store:
        (folder / name).mkdir(exist_ok=True)
        store.create(sweep, points)
    return sweep


def control(home: Path, sweep: SweepRow | str, runner: Commands | None = None) -> Control:
    """The sweep from outside, with commands for runs."""
    name = sweep if isinstance(sweep, str) else sweep.sweep_id
    return Control(Home(home), name, {}, runner or Commands(home))


def main(home: str, sweep: str) -> None:
    """See the module's docstring."""
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                control(Path(home), sweep).resume()
                code = 0
            finally:
                os._exit(code)
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
