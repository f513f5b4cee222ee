"""A recipe that forces acceptance is scored on a deployment of its own; what is asked for stands in the declaration."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.runs.manifest import declared
from servemark.runs.request import LineRequest, RunOptions, prepare

SUITE = Path(__file__).resolve().parents[2] / "suites" / "quickstart"
MODEL = "embedded:smollm2-135m-instruct-q4_1"


def request(folder: Path, arguments: str, *, evals: bool = True) -> LineRequest:
    """The shipped suite with more engine arguments and a thresholds file."""
    suite = folder / "quickstart"
    shutil.copytree(SUITE, suite)
    recipe = suite / "recipes/smollm2/llamacpp/agg-cpu.yaml"
    recipe.write_text(recipe.read_text().replace("      parallel: 4", f"{arguments}      parallel: 4"))
    (suite / "limits.yaml").write_text("default:\n  basics: 0.5\nmodels:\n  smollm2:\n    basics: 0.6\n")
    with (suite / "suite.yaml").open("a") as stream:
        stream.write("eval-thresholds: limits.yaml\n")
    return prepare(f"{suite}:quickstart", RunOptions(evals=evals))


SPECULATION = f"      spec-type: draft-simple\n      spec-draft-model: {MODEL}\n      spec-draft-n-max: 3\n"


def test_forced_points_are_scored_on_a_deployment_of_their_own(tmp_path: Path) -> None:
    """The recipe forces a length; the tasks are asked on the same recipe without that argument, and the row says so."""
    asked = request(tmp_path, SPECULATION + "      spec-synth-len: 2.5\n")
    found = declared(asked)
    assert asked.scored is not None and asked.tasks and asked.not_scored is None
    measured, scored = (each.choice.deployment.roles[0].args for each in (asked, asked.scored))
    assert measured == {**scored, "spec-synth-len": 2.5}
    assert found["acceptance_length"] == 2.5
    assert isinstance(found["speculation"], dict)
    assert found["speculation"]["acceptance"] == "forced"
    apart = found["eval_deployment"]
    assert isinstance(apart, dict)
    assert apart["acceptance"] == "real"
    assert apart["fingerprint"] == asked.scored.choice.deployment.fingerprint()
    assert apart["differences"] == [
        {"role": "aggregated", "name": "spec-synth-len", "measured": 2.5, "scored": None}
    ]
    assert asked.points[0].identity.canonical["deployment"] == asked.choice.deployment.fingerprint()
    shutil.rmtree(tmp_path / "quickstart")
    without = request(tmp_path, SPECULATION + "      spec-synth-len: 2.5\n", evals=False)
    assert without.scored is None
    assert "eval_deployment" not in declared(without)


def test_what_nothing_can_take_away_is_measured_and_not_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never scored under forced acceptance: where it stays, the tasks fall away and the row says why."""
    monkeypatch.setattr("servemark.plan.points.as_verified", replace)
    asked = request(tmp_path, SPECULATION + "      spec-synth-len: 2.5\n")
    assert asked.tasks == () and asked.scored is None and asked.points
    said = declared(asked)["not_scored"]
    assert isinstance(said, dict)
    assert (said["code"], said["name"]) == ("forced_acceptance", "spec-synth-len")


def test_real_speculation_is_declared_with_the_threshold_of_the_model(tmp_path: Path) -> None:
    found = declared(request(tmp_path, SPECULATION))
    assert found["speculation"] == {
        "method": "draft-simple",
        "draft_tokens": 3,
        "draft_model": MODEL,
        "acceptance": "real",
        "forced_by": None,
    }
    assert "acceptance_length" not in found
    assert found["eval_thresholds"] == {"basics": 0.6}


def test_a_draft_model_without_its_type_is_asked_for_all_the_same(tmp_path: Path) -> None:
    """So that nothing drafted is told as a doubt."""
    found = declared(request(tmp_path, f"      spec-draft-model: {MODEL}\n"))
    assert isinstance(found["speculation"], dict)
    assert found["speculation"]["method"] == "draft"
