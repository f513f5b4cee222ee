"""How a unit of a sweep is executed: as `servemark run`, here or on a cluster. Where differs in arguments only."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from servemark.base.errors import Layer, ServemarkError
from servemark.base.home import Home
from servemark.base.printable import one_line
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch.slurm import SlurmLauncher
from servemark.runs.folder import RunInfo, RunState, inspect
from servemark.runs.manifest import new_line_id, run_id
from servemark.store.sweep_rows import Failure, SweepPoint

LOCAL = "local"
"""The cluster that is this machine."""
SLURM_STATE = "slurm"
"""Folder, in the home or in a run's, below which the launcher keeps what it knows of its jobs."""
TRANSIENT_LAYERS = frozenset({Layer.ALLOCATION, Layer.IMAGE})
"""Layers where the same attempt may go well another time: nodes, queues, registries."""
_OUTPUT_BYTES = 65_536
_WHAT_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Work:
    """One attempt at a unit: which points, under which line id, and the attempt's own folder."""

    line_id: str
    points: tuple[SweepPoint, ...]
    folder: Path


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one point. `run_id` names its result; without one `failure` says why."""

    run_id: str | None = None
    failure: Failure | None = None
    transient: bool = False
    """Whether another attempt may go better."""


class UnitRunner(Protocol):
    """What the scheduler asks of an executor. No method waits for long."""

    def new_line_id(self, point: SweepPoint) -> str:
        """The id of an attempt's line, made before anything is started."""

    def argv(self, work: Work) -> Sequence[str]:
        """The command of an attempt; an argv list."""

    def env(self) -> Mapping[str, str]:
        """Its environment."""

    def outcomes(self, work: Work, exit_word: str | None) -> dict[int, Outcome]:
        """By point number, after every process of the attempt has ended. `exit_word`: see `SweepAttempt.exit`."""

    def jobs(self, work: Work) -> tuple[str, ...]:
        """Ids of the batch jobs that the attempt holds, as far as its files show them."""

    def leftovers(self, work: Work) -> list[str]:
        """End what the attempt left behind (batch jobs); returns what could not be ended, in words: then no other
        attempt may begin yet."""


def died(word: str | None) -> Failure:
    """The failure of a point whose process ended without saying why."""
    return {"layer": str(Layer.LAUNCH), "key": "runs.sweep.died", "values": {"how": word or "-"}}


@dataclass(slots=True)
class RunVerb:
    """Every unit is a `servemark run` of its own."""

    home: Home
    arguments: tuple[str, ...] = ()
    """More arguments for each run."""
    clusters: Mapping[str, LaunchCluster] = field(default_factory=dict)
    """By the name that a point carries; without one the unit runs on this machine."""
    clusters_file: Path | None = None
    launchers: Callable[[LaunchCluster, Path], SlurmLauncher] = SlurmLauncher

    def new_line_id(self, point: SweepPoint) -> str:
        """As a run of its own would be called."""
        return new_line_id(point.arm)

    def argv(self, work: Work) -> list[str]:
        """`servemark run SUITE:ARM/TOPOLOGY@CONC,… --line-id ID`."""
        first = work.points[0]
        asked = ",".join(str(point.concurrency) for point in work.points)
        argv = [sys.executable, "-m", "servemark", "run"]
        argv += [f"{first.suite}:{first.arm}/{first.topology}@{asked}", f"--line-id={work.line_id}"]
        argv += [f"--home={self.home.root}", "--no-report", "--json", *self.arguments]
        if first.cluster != LOCAL:
            argv.append(f"--cluster={first.cluster}")
            if self.clusters_file is not None:
                argv.append(f"--clusters={self.clusters_file}")
        return argv

    def env(self) -> dict[str, str]:
        """This process's own."""
        return dict(os.environ)

    def outcomes(self, work: Work, exit_word: str | None) -> dict[int, Outcome]:
        """From the run folders; where a run never made one, from what it printed."""
        found = {}
        said: Failure | None = None
        for point in work.points:
            folder = self._folder(work, point)
            info = inspect(folder)
            if info.manifest is None and not (folder / "manifest.json").exists():  # it never came so far
                said = said or _printed(work.folder) or died(exit_word)
                found[point.number] = Outcome(failure=said, transient=is_transient(said))
            else:
                found[point.number] = _outcome(point, info, exit_word)
        return found

    def jobs(self, work: Work) -> tuple[str, ...]:
        """Looked for where the launcher writes them: below the home's and the first run's `slurm` folder."""
        if work.points[0].cluster == LOCAL:
            return ()
        found = []
        for state in (self.home.root / SLURM_STATE, self._folder(work, work.points[0]) / SLURM_STATE):
            for request in state.glob("slurm-*/request.json"):
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    if json.loads(request.read_text(encoding="utf-8")).get("run_id") == work.line_id:
                        found.append((request.parent / "job").read_text(encoding="ascii").strip())
        return tuple(job for job in found if job.isalnum())

    def leftovers(self, work: Work) -> list[str]:
        """Jobs of that line which Slurm still holds are ended by their ids."""
        cluster = self.clusters.get(work.points[0].cluster)
        if cluster is None or cluster.launcher != "slurm":
            return []
        try:
            return self.launchers(cluster, self.home.root / SLURM_STATE).end_leftovers(work.line_id)
        except ServemarkError as error:
            return [error.what()]

    def _folder(self, work: Work, point: SweepPoint) -> Path:
        return self.home.runs / run_id(work.line_id, point.concurrency)


def is_transient(failure: Failure) -> bool:
    """Whether the same attempt may go well another time: by its layer, or because it was killed from outside."""
    return failure.get("layer") in TRANSIENT_LAYERS or failure.get("key") in (
        "runs.sweep.died",
        "runs.interrupted",
    )


def _outcome(point: SweepPoint, info: RunInfo, exit_word: str | None) -> Outcome:
    ran = str((info.manifest or {}).get("point_id"))
    if info.state is RunState.COMPLETE and ran != point.point_id:
        values: dict[str, object] = {"run": info.run_id, "planned": point.point_id, "ran": ran}
        return Outcome(failure={"layer": str(Layer.INPUT), "key": "runs.sweep.other_point", "values": values})
    if info.state is RunState.COMPLETE:
        return Outcome(run_id=info.run_id)
    if info.state is RunState.DAMAGED:
        values = {"run": info.run_id}
        return Outcome(failure={"layer": str(Layer.RESULTS), "key": "runs.sweep.damaged", "values": values})
    failure = died(exit_word)
    if info.failure is not None:
        failure = {name: info.failure[name] for name in ("layer", "key", "values") if name in info.failure}
    return Outcome(failure=failure, transient=is_transient(failure))


def _printed(folder: Path) -> Failure | None:
    """The error that a run printed as JSON before it had a folder; None when it printed none."""
    try:
        with (folder / "out.log").open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - _OUTPUT_BYTES))
            lines = stream.read(_OUTPUT_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        with contextlib.suppress(ValueError, RecursionError, AttributeError):
            error = json.loads(line).get("error")
            if isinstance(error, dict) and error.get("what"):
                what = "\n".join(one_line(part) for part in str(error["what"])[:_WHAT_CHARS].splitlines())
                layer = str(error.get("layer", Layer.LAUNCH))
                return {"layer": layer if layer in set(Layer) else str(Layer.LAUNCH), "what": what}
    return None


@dataclass(slots=True)
class Rehearsal:
    """Executes nothing: shows the order, the limits and the states of a sweep without an engine."""

    def new_line_id(self, point: SweepPoint) -> str:
        """A name that no run carries."""
        return f"rehearsal-{point.number}"

    def argv(self, work: Work) -> tuple[str, ...]:
        """No command: the scheduler takes the outcome at once."""
        return ()

    def env(self) -> dict[str, str]:
        """None."""
        return {}

    def outcomes(self, work: Work, exit_word: str | None) -> dict[int, Outcome]:
        """Every point goes well."""
        return {point.number: Outcome(run_id="") for point in work.points}

    def jobs(self, work: Work) -> tuple[str, ...]:
        """None."""
        return ()

    def leftovers(self, work: Work) -> list[str]:
        """None."""
        return []
