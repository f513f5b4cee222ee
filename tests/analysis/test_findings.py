"""Sentences about a line: the statistics by hand, and which sentence is said when."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servemark.analysis.findings import findings
from servemark.analysis.line_accuracy import detectable_difference, two_proportions
from servemark.analysis.load import Load
from servemark.base.messages import LANGUAGES, catalogue
from servemark.metrics.accuracy import EvalScore
from servemark.results.row import CacheFigures, ResultRow
from servemark.results.serialize import read_result

MADE = runpy.run_path(str(Path(__file__).parents[1] / "results" / "make_run.py"))


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> list[ResultRow]:
    """Three rows of one line."""
    return [read_result(folder) for folder in MADE["make_line"](tmp_path_factory.mktemp("line"))]


def keys(rows: list[ResultRow], missing: tuple[int, ...] = ()) -> list[str]:
    """The sentences said, by the last part of their key; each can be read in both languages."""
    found = findings(rows, missing)
    for finding in found:
        for lang in LANGUAGES:
            assert "{" not in finding.text(lang)
    assert 1 <= len(found) <= 6
    return [finding.key.removeprefix("analysis.finding.") for finding in found]


def test_two_proportions_by_hand() -> None:
    """60 and 45 of 100: p = 0.525, z = 0.15 / sqrt(0.525 x 0.475 x 0.02) = 2.124, two-sided p = 0.0337
    (normal table)."""
    found = two_proportions(60, 100, 45, 100)
    assert found is not None
    assert found.z == pytest.approx(2.124, abs=1e-3)
    assert found.p_value == pytest.approx(0.0337, abs=2e-4)
    same = two_proportions(45, 100, 45, 100)
    assert same is not None
    assert same.p_value == 1.0


def test_two_proportions_that_say_nothing() -> None:
    """All right, all wrong or no items: no test, rather than a division by zero."""
    assert two_proportions(10, 10, 20, 20) is None
    assert two_proportions(0, 10, 0, 20) is None
    assert two_proportions(0, 0, 1, 2) is None


def test_detectable_difference_by_hand() -> None:
    """p = 0.5, n = 100: 2.8016 x sqrt(2 x 0.25 / 100) = 0.198."""
    assert detectable_difference(0.5, 100) == pytest.approx(0.198, abs=1e-3)
    """As one of three tests the quantile is 2.3940 (normal table): 3.2356 x 0.0707 = 0.2288."""
    assert detectable_difference(0.5, 100, 3) == pytest.approx(0.2288, abs=1e-3)


def test_a_line_as_it_was_made(line: list[ResultRow]) -> None:
    """Best point, change, cache, accuracy, what failed: five sentences, with the figures of the rows."""
    assert keys(line) == ["best", "change", "cache_agrees", "accuracy_same", "requests_failed"]
    best = findings(line)[0]
    assert best.values["load"] == Load(4)
    assert "178" in str(best.values["rate"])
    assert "3 of 180" in findings(line)[-1].text("en")


def scored(row: ResultRow, correct: int) -> ResultRow:
    """The row with another number of right answers of 100."""
    return replace(
        row, evals=(EvalScore("word-sort", "1", 100, 100, correct, correct / 100, 0.05, 0, 0, 1.0),)
    )


def test_accuracy_differs_only_beyond_chance_over_all_pairs(line: list[ResultRow]) -> None:
    """60 against 45 has p = 0.034 alone, but 0.10 as the worst of three pairs: nothing can be told. 60
    against 35 can."""
    near = [scored(row, c) for row, c in zip(line, (60, 52, 45), strict=True)]
    assert "accuracy_same" in keys(near)
    assert "accuracy_differs" in keys(near[::2])
    far = [scored(row, c) for row, c in zip(line, (60, 52, 35), strict=True)]
    assert "accuracy_differs" in keys(far)
    said = next(each for each in findings(far) if each.key.endswith("differs"))
    assert (said.values["load_a"], said.values["load_b"]) == (Load(1), Load(4))


@pytest.mark.parametrize(
    ("usage", "theory", "key"),
    [(0.80, 0.82, "cache_agrees"), (0.60, 0.82, "cache_below"), (0.90, 0.82, "cache_above")],
)
def test_cache_against_theory(line: list[ResultRow], usage: float, theory: float, key: str) -> None:
    """Within three points, below, above; absent shares say nothing."""
    row = replace(line[0], cache=CacheFigures(theory, None, usage, None))
    assert key in keys([row])
    bare = replace(line[0], cache=CacheFigures(theory, None, None, None))
    assert not any(each.startswith("cache") for each in keys([bare]))


def test_other_endings(line: list[ResultRow]) -> None:
    """Nothing at all; one point; missing points; no token counts; all well."""
    assert keys([]) == ["nothing"]
    assert keys(line[:1])[0] == "only"
    assert keys(line, (8, 16))[-1] == "points_missing"
    blind: Any = replace(line[0], tokens={"input": None, "output": None, "cached": None})
    assert keys([blind])[0] == "no_rate"
    assert keys([replace(line[0], warnings=())])[-1] == "all_well"
    assert keys([line[0]])[-1] == "doubts"


def test_every_sentence_is_reached() -> None:
    """No sentence in the catalogue that no code says."""
    source = (Path(__file__).parents[2] / "src/servemark/analysis/findings.py").read_text(encoding="utf-8")
    for key in catalogue("en", "analysis"):
        if key.startswith("analysis.finding."):
            assert key in source


def test_a_point_where_nothing_was_answered_has_no_accuracy(line: list[ResultRow]) -> None:
    """Not 0 % beside 62 %: it is left out of the sentence, and alone there is none."""
    nothing = EvalScore("word-sort", "1", 100, 100, 0, 0.0, 0.0, 100, 0, 1.0)
    rows = [scored(line[0], 62), replace(line[1], evals=(nothing,))]
    assert "accuracy_one" in keys(rows)
    assert not [key for key in keys([rows[1]]) if key.startswith("accuracy")]
