"""What keeps a point off a front, and accuracy results that are far below the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.analysis.made_points import IDENTITY, measured

from servemark.analysis.eligible import eligibility, low_evals
from servemark.analysis.measured import Measured
from servemark.base.messages import LANGUAGES
from servemark.results.gates.base import GateFinding, Severity
from servemark.results.point import Eval, RoleTopology, Scenario

EVAL_IDENTITY = replace(IDENTITY, scenario=Scenario("eval", dataset="gsm8k"), concurrency=64)


def scored(score: float, passed: bool | None = None, run: str = "r1", **changes: object) -> Measured:
    """An accuracy result of its own."""
    found = (Eval("gsm8k", score, "em_strict", 0.005, 1319, passed),)
    identity = changes.pop("identity", EVAL_IDENTITY)
    return measured({}, identity=identity, run=run, ref=f"e-{run}-{score}:0", evals=found, **changes)  # type: ignore[arg-type]


def kind(point: Measured, *evals: Measured) -> str | None:
    """The kind of doubt, if any."""
    doubt = eligibility([point], evals)[point.ref]
    return doubt.kind if doubt is not None else None


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        (measured({}), None),
        (measured({}, current=False), "superseded"),
        (measured({}, status="partial"), "partial"),
        (measured({}, verdict="quarantined"), "quarantined"),
        (
            measured(
                {},
                verdict="quarantined",
                findings=(
                    GateFinding(
                        "eval_failed",
                        Severity.QUARANTINE,
                        {"task": "t", "metric": "m", "score": "0.1", "n": 5},
                    ),
                ),
            ),
            "quarantined_by",
        ),
        (measured({}, verdict="warnings"), None),
        (measured({}, requests_ok=90, requests_error=10), None),  # 10 % is the limit and not above it
        (measured({}, requests_ok=89, requests_error=11), "errors"),
        (measured({}, requests_ok=0, requests_error=0), "no_request"),
        (measured({}, requests_ok=None, requests_error=None), None),
        (measured({"error_rate": 0.2}, requests_ok=None), "errors"),
        (scored(0.9), "accuracy_only"),
    ],
)
def test_reasons(point: Measured, expected: str | None) -> None:
    """One reason each; what nobody counted keeps nothing off."""
    assert kind(point) == expected
    doubt = eligibility([point])[point.ref]
    for lang in LANGUAGES if doubt is not None else ():
        assert doubt is not None and doubt.sentence(lang) and doubt.short(lang)


def test_a_failed_eval_of_the_same_run_and_configuration() -> None:
    """Another run, another topology, no threshold or a pass: it stays."""
    point = measured({})
    assert kind(point, scored(0.2, False)) == "eval_failed"
    assert kind(point, scored(0.2, True)) is None
    assert kind(point, scored(0.2, None)) is None
    assert kind(point, scored(0.2, False, run="r2")) is None
    other = replace(EVAL_IDENTITY, topology=(RoleTopology("aggregated", 1, 4, tp=4),))
    assert kind(point, scored(0.2, False, identity=other)) is None
    assert kind(point, scored(0.2, False, current=False)) is None
    assert kind(replace(point, evals=(Eval("t", 0.1, "m", passed=False),))) == "eval_failed"


def test_far_below() -> None:
    """Ten results about 0.95 and one of 0.875: 0.075 below, against 0.03 and 4 x hypot(0.005, 1.4826 x 0.001) = 0.021.
    0.93 is 0.02 below and no more than noise may give by this rule; three others are enough to tell, two are not, as for
    `eval` (tests/evals)."""
    rest = [scored(0.949 + 0.001 * (i % 3), run=f"r{i}") for i in range(10)]
    low = low_evals([*rest, scored(0.875, run="bad"), scored(0.93, run="ok")])
    assert [each.point.run for each in low] == ["bad"]
    assert low[0].median == pytest.approx(0.95, abs=0.001)
    assert low[0].others == 11
    assert [each.point.run for each in low_evals([*rest[:3], scored(0.5, run="bad")])] == ["bad"]
    assert low_evals([*rest[:2], scored(0.5, run="bad")]) == []
