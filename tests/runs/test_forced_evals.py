"""A recipe that forces acceptance runs no eval; what it asks for and what the suite wants stand in the declaration."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
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


def test_forced_acceptance_refuses_evals_and_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(ServemarkError) as caught:
        request(tmp_path, SPECULATION + "      spec-synth-len: 2.5\n")
    assert (caught.value.key, caught.value.exit_code) == ("evals.forced.recipe", 2)
    assert "agg-cpu.yaml:" in str(caught.value.where)
    shutil.rmtree(tmp_path / "quickstart")
    found = declared(request(tmp_path, SPECULATION + "      spec-synth-len: 2.5\n", evals=False))
    assert found["acceptance_length"] == 2.5
    assert isinstance(found["speculation"], dict)
    assert found["speculation"]["acceptance"] == "forced"


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
