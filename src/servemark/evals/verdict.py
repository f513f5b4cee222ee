"""A score against the threshold of its model and task: passed, failed, or no threshold; never passed while incomplete.

Without a threshold a score is held against the same model's other deployments: far below them is said, and is no verdict.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from servemark.catalog.nodes import errors_of
from servemark.catalog.references import Thresholds, thresholds_of
from servemark.catalog.yaml_nodes import read_yaml
from servemark.metrics.accuracy import EvalScore, wilson_interval

Outcome = Literal["passed", "failed", "incomplete", "no_threshold"]
"""incomplete: items have no sample, or nothing was answered; it counts as failed."""
FEWEST_OTHERS = 3
FAR_BELOW = 0.03
FAR_BELOW_ERRORS = 4.0


@dataclass(frozen=True, slots=True)
class Judged:
    """One score with its verdict. `threshold` is a share; `where` the place of it in its file, and `of_default` True where
    the task's default was taken because the model has none of its own. `close`: the 95 % interval of the score holds the
    threshold, so another run may fall on the other side."""

    task: str
    concurrency: int | None
    score: float
    n: int
    outcome: Outcome
    threshold: float | None = None
    where: str = ""
    of_default: bool = False
    close: bool = False

    @property
    def passed(self) -> bool | None:
        """As points keep it: None where there is no threshold."""
        return None if self.outcome == "no_threshold" else self.outcome == "passed"


def read_thresholds(path: Path) -> Thresholds:
    """A thresholds file. Raises ServemarkError (exit 2) with the position of what is wrong in it."""
    root, problems = read_yaml(path, str(path))
    found = thresholds_of(root, problems)
    for problem in errors_of(problems):
        raise problem.error()
    return found


def judge(score: EvalScore, thresholds: Thresholds | None, model: str, missing: int = 0) -> Judged:
    """A score against the threshold in force for `model` (the model's prefix in its masters). `missing` items have no
    sample."""
    base = (score.task, score.concurrency, score.score, score.n)
    limit = None if thresholds is None else thresholds.of(model, score.task)
    if missing or score.n < score.expected_n or not score.answered:
        return Judged(*base, "incomplete", limit)
    if limit is None or thresholds is None:
        return Judged(*base, "no_threshold")
    own = score.task in thresholds.models.get(model, {})
    low, high = wilson_interval(score.correct, score.n)
    where = thresholds.at.get((model if own else "", score.task))
    return Judged(
        *base,
        "passed" if score.score >= limit else "failed",
        limit,
        "" if where is None else str(where),
        not own,
        low < limit <= high,
    )


@dataclass(frozen=True, slots=True)
class BesideOthers:
    """A score beside those of the same model's other deployments on the same task: their median, how many they are, and
    whether it is far below."""

    median: float
    others: int
    far_below: bool


def beside_others(score: float, stderr: float, others: Sequence[float]) -> BesideOthers | None:
    """None with fewer than `FEWEST_OTHERS`. Far below: by more than `FAR_BELOW`, and by more than `FAR_BELOW_ERRORS`
    times the root of the score's squared standard error and the others' squared spread (1.4826 median absolute
    deviations)."""
    if len(others) < FEWEST_OTHERS:
        return None
    middle = statistics.median(others)
    spread = 1.4826 * statistics.median(abs(each - middle) for each in others)
    far = middle - score > max(FAR_BELOW, FAR_BELOW_ERRORS * math.hypot(stderr, spread))
    return BesideOthers(middle, len(others), far)


def all_passed(judged: Iterable[Judged]) -> bool | None:
    """False when one failed or is incomplete, None when nothing has a threshold."""
    found = [each.passed for each in judged]
    if any(each is False for each in found):
        return False
    return True if any(found) else None
