"""What an eval's scores mean: against thresholds, the same model's other deployments, and a reference eval.

An eval is named as people name things: a folder (of `eval` or of a run), an `evals.json` or `samples.jsonl`, a run of the
home, or a point of the store that one of its runs gave.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from servemark.base.errors import ServemarkError, input_error
from servemark.base.files import write_atomic
from servemark.base.home import Home
from servemark.evals.against import Paired, compare, gather
from servemark.evals.io import read_all_samples, read_evals
from servemark.evals.runner import TaskOutcome
from servemark.evals.samples import SAMPLES_NAME, SampleRecord, read_samples
from servemark.evals.verdict import BesideOthers, Judged, all_passed, beside_others, judge, read_thresholds
from servemark.runs.eval_folder import EVALS
from servemark.runs.folder import find_run
from servemark.runs.manifest import run_id
from servemark.store.database import Store
from servemark.store.points import PointFilter, find_points, load_points

VERDICT: Final = "verdict.json"
MAX_OTHERS = 10_000


@dataclass(slots=True)
class Verdicts:
    """Everything said of one eval. `beside` holds, by task, where a score lies among other deployments of the model."""

    folder: Path
    judged: list[Judged] = field(default_factory=list)
    beside: dict[str, BesideOthers] = field(default_factory=dict)
    against: list[Paired] = field(default_factory=list)
    reference: str | None = None

    @property
    def failed(self) -> bool:
        """A threshold missed, an eval incomplete, or answers that are worse than, or cannot be held against, the
        reference's."""
        bad = {"worse", "unpaired", "no_pairs", "other_prompts"}
        return all_passed(self.judged) is False or any(each.finding in bad for each in self.against)

    def plain(self) -> dict[str, object]:
        """As JSON."""
        return {
            "schema": 1,
            "folder": str(self.folder),
            "failed": self.failed,
            "judged": [{**asdict(each), "passed": each.passed} for each in self.judged],
            "beside_others": {task: asdict(each) for task, each in self.beside.items()},
            "reference": self.reference,
            "against": [asdict(each) for each in self.against],
        }


def find_eval(name: str, home: Home) -> Path:
    """The `evals.json` (of an unfinished eval the `samples.jsonl`) of what is named. Raises ServemarkError (exit 2)."""
    for path in (Path(name), home.root / "evals" / name):
        found = _inside(path)
        if found is not None:
            return found
    try:
        found = _inside(find_run(home.runs, name).path)
    except ServemarkError:
        found = _of_point(name, home)
    if found is None:
        raise input_error("evals.none_named", name=name[:200])
    return found


def _inside(path: Path) -> Path | None:
    if path.is_file():
        return path
    return next((path / each for each in (EVALS, SAMPLES_NAME) if (path / each).is_file()), None)


def _of_point(name: str, home: Home) -> Path | None:
    """The run that gave a point of the store, where its folder is still there."""
    if not home.store.exists():
        return None
    with Store.open(home.store, read_only=True) as store:
        for stored in reversed(find_points(store, name)):
            found = _inside(home.runs / run_id(stored.run, stored.concurrency))
            if found is not None:
                return found
    return None


def samples_of(path: Path) -> Iterator[SampleRecord]:
    """Every sample of what `find_eval` found, one at a time."""
    if path.name == SAMPLES_NAME or path.suffix == ".jsonl":
        return read_samples(path, lenient_end=True)
    return read_all_samples(path)


def verdicts(name: str, home: Home, *, thresholds: Path | None, model: str, against: str | None) -> Verdicts:
    """All that can be said of one eval; kept beside it as `verdict.json` where it has scores. `model` is the prefix that
    the thresholds file knows. Raises ServemarkError (exit 2) for files that are missing or damaged."""
    path = find_eval(name, home)
    made = Verdicts(path.parent)
    limits = None if thresholds is None else read_thresholds(thresholds)
    outcomes = read_evals(path) if path.name == EVALS else ()
    for each in outcomes:
        made.judged.append(judge(each.score, limits, model, each.statistics.missing))
    if limits is None:
        made.beside = _beside(outcomes, model, home)
    if against is not None:
        other = find_eval(against, home)
        if other.resolve().parent == path.resolve().parent:
            raise input_error("evals.against_itself", name=against[:200])
        made.reference = str(other)
        made.against = compare(gather(samples_of(path)), gather(samples_of(other)))
    if outcomes:
        write_atomic(
            path.with_name(VERDICT), json.dumps(made.plain(), ensure_ascii=False, indent=1).encode() + b"\n"
        )
    return made


def _beside(outcomes: tuple[TaskOutcome, ...], model: str, home: Home) -> dict[str, BesideOthers]:
    """Each score among those of the same model in the store."""
    if not home.store.exists() or not outcomes:
        return {}
    scores: dict[str, list[float]] = {}
    with Store.open(home.store, read_only=True) as store:
        for stored in load_points(store, PointFilter(model=model, limit=MAX_OTHERS)):
            for one in stored.point().evals if stored.has_evals() else ():
                scores.setdefault(one.task, []).append(one.score)
    found = {}
    for each in outcomes:
        near = beside_others(each.score.score, each.score.stderr, scores.get(each.score.task, ()))
        if near is not None:
            found[each.score.task] = near
    return found
