"""GuideLLM: a report of two benchmarks against its own per-request records, and its two misleading names."""

from __future__ import annotations

import gzip
import json

import pytest
from tests.results.importers.given_files import HINTS, SAMPLES, explained, given, sample, survives

from servemark.results.importers.guidellm import IMPORTER

DATA = gzip.decompress((SAMPLES / "guidellm" / "report.json.gz").read_bytes())


def test_two_benchmarks_are_two_points_of_one_run() -> None:
    """Concurrency 2 and 4 in one file."""
    points = [row.point for row in IMPORTER.read(sample("guidellm/report.json.gz"))]
    assert [point.identity.concurrency for point in points if point] == [2, 4]
    assert len({point.execution.run for point in points if point}) == 1
    assert len({point.line_key for point in points if point}) == 1


def test_sample_agrees_with_its_records() -> None:
    """Its TPOT is (last token - start) / tokens and its ITL our TPOT, recomputed from each request's moments."""
    raw = json.loads(DATA)["benchmarks"]
    for row, benchmark in zip(IMPORTER.read(sample("guidellm/report.json.gz")), raw, strict=True):
        point = row.point
        assert point is not None and row.raw is not None and b'"requests":null' in row.raw
        requests = benchmark["requests"]["successful"]
        moments = [(one["info"]["timings"], one["output_tokens"]) for one in requests]
        first = [t["first_token_iteration"] - t["request_start"] for t, _ in moments]
        assert point.value("ttft_s.mean") == pytest.approx(sum(first) / len(first), rel=1e-6)
        assert point.value("ttft_s.max") == pytest.approx(max(first), rel=1e-6)
        paces = [(t["last_token_iteration"] - t["first_token_iteration"]) / (n - 1) for t, n in moments]
        weighted = sum(pace * (n - 1) for pace, (_, n) in zip(paces, moments, strict=True)) / sum(
            n - 1 for _, n in moments
        )
        assert point.value("tpot_s.mean") == pytest.approx(weighted, rel=1e-6)
        per_token = [(t["last_token_iteration"] - t["request_start"]) / n for t, n in moments]
        assert point.value("e2el_per_token_s.max") == pytest.approx(max(per_token), rel=1e-6)
        assert "token-weighted" in (point.figures["tpot_s.p90"].how or "")
        assert point.figures["tpot_s.p90"].definition == "guidellm-0.8" and any(
            "TPOT" in note for note in point.notes
        )
        assert (point.requests.ok, point.requests.error, point.requests.incomplete) == (len(requests), 0, 0)


def test_zeros_for_nothing_are_absent() -> None:
    """A benchmark whose streams gave no token has count 0 and zeros, which are no measurement."""
    report = json.loads(DATA)
    report["benchmarks"] = report["benchmarks"][:1]
    stats = report["benchmarks"][0]["metrics"]["time_to_first_token_ms"]["successful"]
    stats.update(count=0, mean=0.0)
    (row,) = IMPORTER.read(given(json.dumps(report).encode(), hints=HINTS))
    assert row.point is not None and row.point.value("ttft_s.mean") is None


def test_open_loop() -> None:
    """A Poisson rate is the scenario's arrivals."""
    report = json.loads(DATA)
    report["benchmarks"][0]["config"]["strategy"] = {"type_": "poisson", "rate": 4.0}
    row = next(iter(IMPORTER.read(given(json.dumps(report).encode(), hints=HINTS))))
    assert row.point is not None and row.point.identity.scenario.arrivals == "poisson:4"


def test_damage_gives_messages() -> None:
    """Cut, nested, other shapes; one benchmark that is wrong does not lose the other."""
    survives(IMPORTER, DATA)
    report = json.loads(DATA)
    report["benchmarks"][0]["metrics"]["request_latency"]["successful"]["mean"] = float("inf")
    first, second = IMPORTER.read(given(json.dumps(report).encode(), hints=HINTS))
    assert explained(first) == "results.import_not_finite" and second.status == "mapped"
    report["benchmarks"] = [5, {}]
    assert [explained(row) for row in IMPORTER.read(given(json.dumps(report).encode()))] == [
        "results.import_wrong_shape"
    ] * 2
