"""Measured points of the branch and of the main branch, told apart by what they ran; figures by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.analysis.compare_points import point
from tests.authoring.conftest import commit, edit

from servemark.analysis.measured import Measured, of_point
from servemark.authoring.checklist import answered, shipped_checklist
from servemark.authoring.results import NO_RESULTS, results_of
from servemark.authoring.review import Review, reviewed
from servemark.authoring.snapshot import range_of, snapshots
from servemark.results.point import Eval, Execution, Figure, Point


def of(review: Review, side: int, concurrency: int, rate: float, evals: tuple[Eval, ...] = ()) -> Measured:
    """A run of the arm `one` as that side's files make it."""
    plan = review.plans[side]
    assert plan is not None
    row = next(r for r in plan.rows if r.arm.key == "one" and r.concurrency == concurrency)
    made = point(
        f"run{side}", rate, concurrency=concurrency, image="img:1", day=f"2026-0{side + 5}-01", evals=evals
    )
    identity = replace(
        made.identity, recipe_fingerprint=str(row.identity.canonical["deployment"]), extra={"arm": "one"}
    )

    figures = {name: Figure(value, "d1", "/rate") for name, value in made.figures.items()}
    whole = Point(
        identity,
        Execution(f"run{side}", 1, started_utc=made.at_utc),
        figures,
        "servemark",
        1,
        evals=made.evals,
    )
    return of_point(whole, f"run{side}:{concurrency}", "valid", official=True)


def test_sides_verdicts_and_evidence(suite: Path) -> None:
    """100 -> 50 tokens/s/GPU is half, beyond any noise that is assumed (15 % of agentic points): worse. Two of the head's
    two points are measured, one score of two is below its threshold."""
    edit(suite / "recipes" / "one.yaml", "max-num-seqs: 64", "max-num-seqs: 8")
    commit(suite, "fewer")
    with snapshots(suite, range_of("main...topic")) as (base, head):
        review = reviewed(base, head)
        good, bad = Eval("gsm8k", 0.9, "acc", 0.01, 100, True), Eval("gsm8k", 0.2, "acc", 0.01, 100, False)
        old = [of(review, 0, c, 100.0, evals=(good,)) for c in (1, 2)]
        new = [of(review, 1, 1, 50.0, evals=(good,)), of(review, 1, 2, 50.0, evals=(bad,))]
        stray = point("other", 1.0, concurrency=1)
        results = results_of(review, [*old, *new, stray])
        (one,) = results.arms
        assert (len(one.main), len(one.branch), one.planned, one.measured) == (2, 2, 2, 2)
        view = results.compared(one, ("main", "topic"), "en")
        assert view is not None and view.verdict == "worse" and len(view.pairs) == 2
        states = {a.item.id: a.state for a in answered(shipped_checklist(), review, results)}
        assert (
            states["measured"] == "passed"
            and states["not-worse"] == "failed"
            and states["accuracy"] == "failed"
        )
        some = results_of(review, [*old, new[0]])
        states = {a.item.id: a.state for a in answered(shipped_checklist(), review, some)}
        assert states["measured"] == "failed" and states["accuracy"] == "passed"
        states = {a.item.id: a.state for a in answered(shipped_checklist(), review, NO_RESULTS)}
        assert states["measured"] == states["accuracy"] == "unknown"
