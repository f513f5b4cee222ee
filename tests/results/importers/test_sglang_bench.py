"""SGLang's serving benchmark: two runs in one file, against the console and their own per-request lists."""

from __future__ import annotations

import json
import math

import pytest
from tests.results.importers.given_files import HINTS, SAMPLES, explained, given, sample, survives

from servemark.results.importers.sglang_bench import IMPORTER

DATA = (SAMPLES / "sglang_bench" / "sglang.jsonl").read_bytes()


def test_sample_equals_its_console() -> None:
    """Every latency that the tool printed of the first run (two decimals, ms)."""
    first = next(iter(IMPORTER.read(sample("sglang_bench/sglang.jsonl")))).point
    assert first is not None
    printed = {}
    for line in (SAMPLES / "sglang_bench" / "console.txt").read_text().splitlines():
        label, colon, value = line.rpartition(":")
        if colon:
            printed[label.strip()] = value.strip()
    names = {"TTFT": "ttft_s", "TPOT": "tpot_s", "ITL": "itl_s", "E2E Latency": "e2el_s"}
    for shown, metric in names.items():
        for word, statistic in {"Mean": "mean", "Median": "p50", "P90": "p90", "P99": "p99"}.items():
            found = first.value(f"{metric}.{statistic}")
            assert found is not None
            assert math.isclose(1e3 * found, float(printed[f"{word} {shown} (ms)"]), abs_tol=0.00501), (
                word,
                shown,
            )
    assert first.requests.ok == int(printed["Successful requests"])
    assert first.value("total_tokens_per_s") == pytest.approx(
        float(printed["Total token throughput (tok/s)"]), abs=0.006
    )
    assert first.value("achieved_concurrency") == pytest.approx(float(printed["Concurrency"]), abs=0.006)


def test_two_lines_are_two_rows_of_one_configuration() -> None:
    """The second was run with details; its mean TTFT is that of its list, its error count that of its errors."""
    rows = list(IMPORTER.read(sample("sglang_bench/sglang.jsonl")))
    points = [row.point for row in rows]
    assert len(points) == 2 and points[0] and points[1]
    assert (
        points[0].identity.point_key == points[1].identity.point_key and points[0].identity.concurrency == 4
    )
    raw = json.loads(DATA.splitlines()[1])
    assert points[1].value("ttft_s.mean") == pytest.approx(sum(raw["ttfts"]) / len(raw["ttfts"]), rel=1e-9)
    assert points[1].requests.error == 0 and points[0].requests.error is None
    assert (points[1].identity.scenario.isl, points[1].identity.scenario.osl) == (100, 20)
    assert rows[1].raw is not None and json.loads(rows[1].raw)["itls"] is None


def test_the_model_must_be_said_where_no_server_says_it() -> None:
    """The file names none."""
    rows = list(IMPORTER.read(sample("sglang_bench/sglang.jsonl", {"hardware": "h200"})))
    assert [explained(row) for row in rows] == ["results.import_says_not"] * 2
    assert rows[0].reason_values == {"missing": "model"}


def test_damage_gives_messages() -> None:
    """Cut, nested, other shapes; a cut last line is found out, a wrong number is its row's alone."""
    survives(IMPORTER, DATA.splitlines()[0])
    row = json.loads(DATA.splitlines()[0])
    wrong = json.dumps(row | {"p99_itl_ms": float("nan")}).encode()
    first, second = IMPORTER.read(given(wrong + b"\n" + DATA.splitlines()[0], hints=HINTS))
    assert explained(first) == "results.import_not_finite" and second.status == "mapped"
