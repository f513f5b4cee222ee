"""Verdicts against thresholds; scores worked out by hand, the real file read as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.evals.verdict import all_passed, beside_others, judge, read_thresholds
from servemark.metrics.accuracy import EvalScore

REAL = Path(__file__).resolve().parents[3] / "shared/data/inferencex-2026-08/utils/evals/thresholds.yaml"
TEXT = "default:\n  sums: 0.50\nmodels:\n  owl:\n    sums: 0.70\n"


def score(correct: int, n: int = 200, unanswered: int = 0, task: str = "sums") -> EvalScore:
    return EvalScore(task, "1", n, n, correct, correct / n, 0.03, unanswered, 0, 1.0)


def test_by_model_and_by_default(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(TEXT)
    found = read_thresholds(path)
    own, default = judge(score(139), found, "owl"), judge(score(139), found, "hawk")
    assert (own.outcome, own.threshold, own.where, own.of_default) == ("failed", 0.7, f"{path}:5:11", False)
    assert own.close  # 69.5 %: Wilson's interval reaches from 62.8 to 75.5 %
    assert (default.outcome, default.where, default.of_default) == ("passed", f"{path}:2:9", True)
    assert not default.close
    assert judge(score(139, task="other"), found, "owl").outcome == "no_threshold"
    assert judge(score(140), found, "owl").outcome == "passed"


def test_incomplete_is_never_passed(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(TEXT)
    found = read_thresholds(path)
    assert judge(score(190), found, "owl", missing=1).passed is False
    assert judge(score(0, unanswered=200), found, "owl").outcome == "incomplete"
    assert judge(score(190), None, "owl", missing=1).outcome == "incomplete"
    assert all_passed([judge(score(190), found, "owl"), judge(score(1), found, "owl")]) is False
    assert all_passed([judge(score(190), None, "owl")]) is None


@pytest.mark.parametrize(
    "text", ["default: {sums: 90}\n", "default: {sums: x}\n", "models: {}\n", "[]\n", "default: {a: .nan}\n"]
)
def test_a_bad_file_says_where(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(text)
    with pytest.raises(ServemarkError) as caught:
        read_thresholds(path)
    assert str(caught.value.where).startswith(f"{path}:1")


@pytest.mark.corpus
def test_the_real_file() -> None:
    if not REAL.is_file():
        pytest.skip("the real suite is not on this machine")
    found = read_thresholds(REAL)
    assert found.of("glm5", "gsm8k") == 0.94
    assert found.of("unknown", "gsm8k") == 0.90
    assert found.of("kimik2.5", "swebench_lite") == 0.5
    assert found.of("dsr1", "mmlu") is None
    assert str(found.at["glm5", "gsm8k"]).endswith("thresholds.yaml:12:12")


def test_beside_others() -> None:
    """Median 0.90, no spread, standard error 0.005: far below begins at 0.03."""
    others = (0.90, 0.90, 0.90, 0.91)
    low = beside_others(0.86, 0.005, others)
    assert low is not None
    assert (low.median, low.others, low.far_below) == (0.9, 4, True)
    near = beside_others(0.88, 0.005, others)
    assert near is not None
    assert not near.far_below
    assert beside_others(0.1, 0.0, others[:2]) is None
