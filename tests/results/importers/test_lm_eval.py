"""lm-eval: a sample against its own samples file."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.results.importers.given_files import HINTS, SAMPLES, explained, given, only_point, sample, survives

from servemark.results.importers.lm_eval import IMPORTER

(RESULTS,) = (SAMPLES / "lm_eval").glob("results_*.json")
(ITEMS,) = (SAMPLES / "lm_eval").glob("samples_*.jsonl")


def test_sample_agrees_with_its_items() -> None:
    """Scores are means over the items of each filter; the standard error is that of a mean, s / sqrt(n)."""
    point = only_point(IMPORTER, sample(f"lm_eval/{RESULTS.name}"))
    items = [json.loads(line) for line in ITEMS.read_text().splitlines()]
    for name in ("strict-match", "flexible-extract"):
        scores = [item["exact_match"] for item in items if item["filter"] == name]
        (found,) = [one for one in point.evals if one.metric == f"exact_match,{name}"]
        mean = sum(scores) / len(scores)
        assert found.score == pytest.approx(mean) and found.n == len(scores) == 6 and found.task == "sums"
        variance = sum((score - mean) ** 2 for score in scores) / (len(scores) - 1)
        assert found.stderr == pytest.approx((variance / len(scores)) ** 0.5)
    assert point.observed["samples"] == {"sums": {"strict-match": 6, "flexible-extract": 6}}
    assert point.expected == {"evals": ["sums"]} and not point.figures
    assert point.identity.concurrency == 2 and point.client["harness_version"] == "0.4.13"


def test_model_comes_from_the_arguments() -> None:
    """`model=fake` of the endpoint, where the user says nothing."""
    one = sample(f"lm_eval/{RESULTS.name}", {"hardware": "h200", "engine": "vllm"})
    assert only_point(IMPORTER, one).identity.model == "fake"


def test_a_cut_samples_file_is_counted_as_such() -> None:
    """Half an item is damaged, not an item."""
    one = sample(f"lm_eval/{RESULTS.name}")
    cut = {ITEMS.name: given(ITEMS.read_bytes()[:-40], ITEMS.name)}
    point = only_point(IMPORTER, replace(one, siblings=cut))
    assert point.observed["samples"] == {
        "sums": {"strict-match": 6, "flexible-extract": 5, "damaged": 1}
    } or point.observed["samples"] == {"sums": {"strict-match": 5, "flexible-extract": 6, "damaged": 1}}


def test_damage_gives_messages() -> None:
    """Cut, nested, other shapes; NaN scores; a percent is no share."""
    survives(IMPORTER, RESULTS.read_bytes())
    row = json.loads(RESULTS.read_bytes())
    row["results"]["sums"]["exact_match,strict-match"] = float("nan")
    (found,) = IMPORTER.read(given(json.dumps(row).encode(), hints=HINTS))
    assert explained(found) == "results.import_not_finite"
    row["results"]["sums"]["exact_match,strict-match"] = 87.5
    point = only_point(IMPORTER, given(json.dumps(row).encode(), hints=HINTS))
    assert len(point.evals) == 1 and any("not a share" in note for note in point.notes)
    row["results"]["sums"] = 1
    (found,) = IMPORTER.read(given(json.dumps(row).encode(), hints=HINTS))
    assert explained(found) == "results.import_wrong_shape"
