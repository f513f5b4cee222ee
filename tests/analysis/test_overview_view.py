"""What the overview says of a store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.analysis.made_points import IDENTITY
from tests.analysis.made_store import a_point, fill

from servemark.analysis.overview_view import overview_view
from servemark.base.messages import LANGUAGES
from servemark.results.point import Eval, Scenario
from servemark.store.database import Store

FIGURES = {"tpot_s.p50": 0.02, "total_tokens_per_s_per_gpu": 700.0}


@pytest.mark.parametrize("lang", LANGUAGES)
def test_by_hand(tmp_path: Path, lang: str) -> None:
    """Two loads of `m`, one quarantined; six accuracy results of it, one of which is far below; one point of `n` later."""
    points = [a_point(FIGURES, identity=replace(IDENTITY, concurrency=load)) for load in (1, 2)]
    task = replace(IDENTITY, scenario=Scenario("eval", dataset="gsm8k"))
    for number, score in enumerate((0.95, 0.951, 0.949, 0.95, 0.952, 0.875)):
        one = (Eval("gsm8k", score, "em", 0.005, 1319),)
        points.append(
            a_point({}, identity=replace(task, concurrency=number + 1), run=f"e{number}", evals=one)
        )
    later = replace(IDENTITY, model="n", hardware="b200")
    points.append(a_point(FIGURES, identity=later, run="r9", at="2026-03-01"))
    fill(tmp_path, points, quarantined=[1])
    with Store.open(tmp_path / "store.sqlite", read_only=True) as store:
        view = overview_view(store, lang)
    assert (view.store.points, view.store.newest) == (9, "2026-03-01")
    assert (view.runs[0].run, view.runs[0].usable) == ("r9", 1)
    assert next((run.points, run.usable) for run in view.runs if run.run == "r1") == (2, 1)
    assert [(gate.gate, gate.severity, gate.points) for gate in view.gates] == [
        ("superseded", "quarantine", 1)
    ]
    assert [low.run for low in view.accuracy] == ["e5"]
    assert "0.875" in view.accuracy[0].text


def test_an_empty_store(tmp_path: Path) -> None:
    """Nothing, and no trouble."""
    with Store.open(tmp_path / "store.sqlite") as store:
        view = overview_view(store, "en")
    assert (view.store.points, view.store.newest) == (0, None)
    assert not view.runs and not view.gates and not view.left_out and not view.accuracy
