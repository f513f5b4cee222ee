"""What the store has measured of a change: the branch's runs of its arms against the main branch's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from servemark.analysis.compare import CompareOptions, compare
from servemark.analysis.compare_types import CompareView
from servemark.analysis.measured import Measured
from servemark.analysis.noise import NoiseModel, noise_model
from servemark.authoring.review import Review
from servemark.plan.rows import PlanRow
from servemark.results.point import Eval

RunKey = tuple[str, str, str, int]
"""(arm, image, fingerprint of the deployment, concurrency): what tells a branch's run from the main branch's."""
MAX_ARMS = 40
"""Arms that are compared figure by figure on one page."""


@dataclass(frozen=True, slots=True)
class ArmResults:
    """Measured points of one arm. `main` holds those of the base's version of it, () for a new arm."""

    arm: str
    kind: str
    branch: tuple[Measured, ...]
    main: tuple[Measured, ...]
    planned: int
    """Points that the head's plan has of it."""
    measured: int
    """Those of them that the store has at least one complete run of."""

    @property
    def evals(self) -> tuple[tuple[Measured, Eval], ...]:
        """Accuracy results of the branch."""
        return tuple((point, one) for point in self.branch for one in point.evals)

    @property
    def main_evals(self) -> tuple[tuple[Measured, Eval], ...]:
        """Accuracy results of the main branch."""
        return tuple((point, one) for point in self.main for one in point.evals)


@dataclass(frozen=True, slots=True)
class Results:
    """Of all added and changed arms. `asked` is False where there was no store to look in."""

    asked: bool
    arms: tuple[ArmResults, ...] = ()
    noise: NoiseModel | None = None

    def compared(self, one: ArmResults, names: tuple[str, str], lang: str | None) -> CompareView | None:
        """The branch (B) against main (A); None where a side has nothing."""
        if not one.branch or not one.main:
            return None
        noise = self.noise.apart(one.main, one.branch) if self.noise is not None else None
        options = CompareOptions(a_label=names[0], b_label=names[1])
        return compare(one.main, one.branch, options, noise, lang)


NO_RESULTS = Results(False)


def results_of(review: Review, points: Iterable[Measured]) -> Results:
    """The store's points of the arms that a review is about; `points` are all of the suite's own runs."""
    before, after = review.plans
    wanted = {change.key: change.kind for change in review.arms if change.kind != "removed"}
    new = _keys(after.rows, wanted)
    old = _keys(before.rows, wanted) if before is not None else set()
    by_arm: dict[str, tuple[list[Measured], list[Measured]]] = {key: ([], []) for key in wanted}
    listed = list(points)
    seen: set[RunKey] = set()
    for point in listed:
        key = _key_of(point)
        if key is None or key[0] not in wanted:
            continue
        if key in new:
            by_arm[key[0]][0].append(point)
            if point.status == "complete":
                seen.add(key)
        if key in old:
            by_arm[key[0]][1].append(point)
    found = []
    for arm, (branch, main) in by_arm.items():
        mine = {one for one in new if one[0] == arm}
        found.append(ArmResults(arm, wanted[arm], tuple(branch), tuple(main), len(mine), len(mine & seen)))
    return Results(True, tuple(found[:MAX_ARMS]), noise_model(listed) if listed else None)


def _keys(rows: Sequence[PlanRow], arms: Iterable[str]) -> set[RunKey]:
    wanted = set(arms)
    return {
        (row.arm.key, row.arm.image, str(row.identity.canonical["deployment"]), row.concurrency)
        for row in rows
        if row.arm.key in wanted
    }


def _key_of(point: Measured) -> RunKey | None:
    identity = point.identity
    arm = identity.extra.get("arm")
    if not isinstance(arm, str) or point.concurrency is None:
        return None
    return (arm, identity.image or "", str(identity.recipe_fingerprint), point.concurrency)
