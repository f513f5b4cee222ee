"""Where a number comes from: on the synthetic run, and on one where the right line is known by hand."""

from __future__ import annotations

import json
import runpy
import shutil
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from servemark.base.errors import ServemarkError
from servemark.base.messages import LANGUAGES
from servemark.metrics.accuracy import EvalScore
from servemark.metrics.address import all_addresses
from servemark.results.serialize import read_result
from servemark.results.why import explain

MADE = runpy.run_path(str(Path(__file__).with_name("make_run.py")))
BUILD = runpy.run_path(str(Path(__file__).with_name("test_build.py")))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run folder, never changed."""
    folder: Path = MADE["make_point"](tmp_path_factory.mktemp("why"), 4)
    return folder


def by_hand(tmp_path: Path) -> tuple[Path, Any]:
    """Ten requests, the i-th (on line i + 2, after a warm-up) with a TTFT of 1.9 - i/10 s."""
    records = [BUILD["a_record"]("w", -9.0, phase="warmup")]
    for i in range(10):
        record = BUILD["a_record"](f"r{i}", 10.0 * i)
        records.append(replace(record, chunk_s=[moment + (9 - i) / 10 for moment in record.chunk_s]))
    body = "".join(json.dumps(asdict(record)) + "\n" for record in records)
    (tmp_path / "requests.jsonl").write_text(body)
    return tmp_path, BUILD["built"](*records)


def test_a_percentile_names_its_very_request(tmp_path: Path) -> None:
    """p90 of ten is the ninth smallest: r1 on line 3, 11.8 - 10."""
    folder, row = by_hand(tmp_path)
    found = explain(folder, row, "ttft_s.p90", "en")
    assert found.value == pytest.approx(1.8)
    assert found.agrees is True
    (evidence,) = found.evidence
    assert (evidence.file, evidence.line, evidence.request) == ("requests.jsonl", 3, "r1")
    assert evidence.text == "chunk_s[0] 11.800000 - start_s 10.000000 = 1.800000"
    assert "9 of 10" in found.rule


def test_a_rate_shows_latency_numbers_and_formula(tmp_path: Path) -> None:
    """Interactivity: TPOT is 2 s / 4 tokens for every request, so 2 tok/s; the first of the equals is
    named."""
    folder, row = by_hand(tmp_path)
    found = explain(folder, row, "interactivity.p50", "en")
    assert found.value == pytest.approx(2.0)
    assert found.substituted == "1 ÷ 0.5"
    assert found.evidence[0].request is not None
    assert "÷ (output_tokens 5 - 1 (assumed)) = 0.500000000" in found.evidence[0].text


def test_sums_and_window_name_field_count_and_lines(tmp_path: Path) -> None:
    """50 output tokens over 10 requests; the window opens on line 2 at 0 and closes on line 11 at 93.1, its
    end."""
    folder, row = by_hand(tmp_path)
    found = explain(folder, row, "output_tokens_per_s", "en")
    total, first, last = found.evidence
    assert total.field == "output_tokens"
    assert total.text == "sum over 10 requests = 50"
    assert (first.line, first.text) == (2, "0.000000")
    assert (last.line, last.field, last.text) == (11, "end_s", "93.100000")
    assert found.substituted == "50 ÷ 93.1"


def test_a_value_that_the_raw_file_contradicts_is_called_out(tmp_path: Path) -> None:
    """The stored p90 was edited after the run."""
    folder, row = by_hand(tmp_path)
    spread = replace(row.distributions["ttft_s"], p90=1.1)
    forged = replace(row, distributions={**row.distributions, "ttft_s": spread})
    found = explain(folder, forged, "ttft_s.p90", "en")
    assert found.agrees is False
    assert found.recomputed == pytest.approx(1.8)
    assert "1.8" in found.check
    assert "1.1" in found.check


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_address_of_a_real_run_is_explained(run: Path, lang: str) -> None:
    """Either a value with evidence, equal to what the raw files give, or a reason why it is absent."""
    row = read_result(run)
    stored_only = {"cache_hit_theoretical", "cache_hit_theoretical_blocks", "requests_planned", "concurrency"}
    for address in all_addresses():
        found = explain(run, row, address, lang)
        assert found.formula
        if found.value is None:
            assert found.absent_because
            assert not found.evidence
            continue
        assert found.evidence, address
        kept = address in stored_only or address.startswith(("client_", "gpus_"))
        assert found.agrees is (None if kept else True), address
        assert found.check


def test_stalls_name_the_stalled_line(run: Path) -> None:
    """The one reply that was made to stall."""
    found = explain(run, read_result(run), "stalls", "en")
    lines = (run / "requests.jsonl").read_text().splitlines()
    assert found.value == 1
    line = found.evidence[0].line
    assert line is not None
    gaps = json.loads(lines[line - 1])["chunk_s"]
    assert max(later - earlier for earlier, later in pairwise(gaps)) > 1.5


def test_damaged_evidence_is_named_by_line(run: Path, tmp_path: Path) -> None:
    """A line that is no record any more; a name that is no metric."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    row = read_result(copy)
    lines = (copy / "requests.jsonl").read_text().splitlines(keepends=True)
    lines[6] = "{broken\n"
    (copy / "requests.jsonl").write_text("".join(lines))
    with pytest.raises(ServemarkError) as caught:
        explain(copy, row, "ttft_s.p50")
    assert "requests.jsonl:7" in caught.value.what("en")
    with pytest.raises(ServemarkError, match="ttft_s"):
        explain(run, row, "tttft_s.p50")


def test_a_row_without_raw_values_is_contradicted(tmp_path: Path) -> None:
    """The row states a p90 of ten requests; the raw file holds none at all."""
    folder, row = by_hand(tmp_path)
    (tmp_path / "requests.jsonl").write_text("")
    for lang in LANGUAGES:
        with pytest.raises(ServemarkError) as caught:
            explain(folder, row, "ttft_s.p90", lang)
        assert caught.value.key == "results.contradicted"
        assert "ttft_s.p90" in caught.value.what(lang)
        assert caught.value.next_step(lang)


@pytest.mark.parametrize("raw", ["empty", "huge"])
def test_no_address_of_a_contradicted_row_gives_a_traceback(tmp_path: Path, raw: str) -> None:
    """Any figure is explained or refused, with no raw value or with times whose squares overflow."""
    folder, row = by_hand(tmp_path)
    lines = (tmp_path / "requests.jsonl").read_text().splitlines()
    moved = [json.loads(line) for line in lines] if raw == "huge" else []
    for record in moved:
        record.update(start_s=-1e308, end_s=1e308, chunk_s=[1e308] * 5)
    (tmp_path / "requests.jsonl").write_text("".join(json.dumps(each) + "\n" for each in moved))
    refused = 0
    for address in all_addresses():
        try:
            explain(folder, row, address)
        except ServemarkError as error:
            refused += 1
            assert error.key in {"results.contradicted", "replay.record_bad"}
    assert refused


def test_a_score_of_nothing_answered_is_absent(tmp_path: Path) -> None:
    """Every request of the task failed: no accuracy, and the reason."""
    folder, row = by_hand(tmp_path)
    score = EvalScore("sums", "1", 10, 10, 0, 0.0, 0.0, 10, 0, 1.0)
    found = explain(folder, replace(row, evals=(score,)), "eval_score.sums", "en")
    assert found.value is None
    assert found.absent_because == "no item was answered"
