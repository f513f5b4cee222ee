"""AIPerf and its agentic fork: samples against their own raw per-request records."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.results.importers.given_files import HINTS, SAMPLES, explained, given, only_point, sample, survives

from servemark.results.importers.aiperf import IMPORTER


def records(tool: str) -> list[dict[str, dict[str, float]]]:
    """Metrics of each raw record."""
    lines = (SAMPLES / tool / "profile_export.jsonl").read_text().splitlines()
    return [json.loads(line)["metrics"] for line in lines]


def linear(values: list[float], share: float) -> float:
    """Percentile by linear interpolation: the tool's own rule, written out."""
    values = sorted(values)
    place = share * (len(values) - 1)
    low = int(place)
    return values[low] + (place - low) * (values[min(low + 1, len(values) - 1)] - values[low])


@pytest.mark.parametrize(("tool", "definition"), [("aiperf", "aiperf-0.13"), ("agentx", "agentx-1.0")])
def test_sample_agrees_with_its_records(tool: str, definition: str) -> None:
    """TTFT, TPOT (which the tool calls inter-token latency) and latency recomputed from the records, ms -> s."""
    point = only_point(IMPORTER, sample(f"{tool}/profile_export_aiperf.json"))
    raw = records(tool)
    names = {"time_to_first_token": "ttft_s", "inter_token_latency": "tpot_s", "request_latency": "e2el_s"}
    for theirs, ours in names.items():
        values = [record[theirs]["value"] for record in raw]
        assert point.value(f"{ours}.mean") == pytest.approx(sum(values) / len(values) / 1e3, rel=1e-9)
        assert point.value(f"{ours}.p90") == pytest.approx(linear(values, 0.9) / 1e3, rel=1e-9)
        assert point.value(f"{ours}.max") == pytest.approx(max(values) / 1e3, rel=1e-12)
    gaps = [gap for record in raw for gap in record["inter_chunk_latency"]["value"]]  # type: ignore[attr-defined]
    assert point.value("chunk_gap_s.n") == len(gaps)
    assert point.value("chunk_gap_s.mean") == pytest.approx(sum(gaps) / len(gaps) / 1e3, rel=1e-9)
    assert point.figures["ttft_s.p50"].definition == definition and point.client["harness"] == tool
    tokens = sum(record["output_sequence_length"]["value"] for record in raw)
    assert point.duration_s is not None
    assert point.value("output_tokens_per_s") == pytest.approx(tokens / point.duration_s, rel=1e-5)
    assert (point.requests.planned, point.requests.ok, point.requests.error) == (8, 8, 0)
    assert point.identity.concurrency == 4 and (point.identity.scenario.isl, point.identity.scenario.osl) == (
        100,
        20,
    )


def test_raw_records_count_warmup_and_failures() -> None:
    """One warm-up record, one with an error, one cancelled and a cut line beside the eight good ones."""
    one = sample("aiperf/profile_export_aiperf.json")
    raw = one.siblings["profile_export.jsonl"].open().read()
    other = json.loads(raw.splitlines()[0])
    lines = []
    for change in ({"benchmark_phase": "warmup"}, {}, {"was_cancelled": True}):
        made = {**other, "metadata": {**other["metadata"], **change}}
        if not change:
            made["error"] = {"code": 500}
        lines.append(json.dumps(made).encode())
    damaged = raw + b"\n".join(lines) + b'\n{"metadata": {"bench'
    point = only_point(IMPORTER, replace(one, siblings={"profile_export.jsonl": given(damaged)}))
    assert point.observed["raw_records"] == {"ok": 8, "error": 1, "cancelled": 1, "warmup": 1}
    assert "1 lines not read" in point.notes[0]


def test_units_come_from_the_metric() -> None:
    """The same figure in ns; a unit that is not known makes the row invalid."""
    row = json.loads((SAMPLES / "aiperf" / "profile_export_aiperf.json").read_bytes())
    before = row["time_to_first_token"]["p90"]
    row["time_to_first_token"] = {"unit": "ns", "p90": before * 1e6}
    point = only_point(IMPORTER, given(json.dumps(row).encode(), hints=HINTS))
    assert point.value("ttft_s.p90") == pytest.approx(before / 1e3)
    row["time_to_first_token"]["unit"] = "fortnights"
    (found,) = IMPORTER.read(given(json.dumps(row).encode(), hints=HINTS))
    assert explained(found) == "results.import_unknown_unit"


def test_scenario_and_its_validity_of_the_fork() -> None:
    """The fork names its scenario and says why a run does not count."""
    row = json.loads((SAMPLES / "agentx" / "profile_export_aiperf.json").read_bytes())
    row["metadata"] = {
        "scenario": "agentx",
        "submission_valid": False,
        "submission_invalid_reasons": ["local data"],
    }
    row["was_cancelled"] = True
    point = only_point(IMPORTER, given(json.dumps(row).encode(), hints=HINTS))
    assert point.identity.scenario.rules == "agentx" and point.status == "partial"
    assert point.declared["submission_invalid_reasons"] == ["local data"]


def test_damage_gives_messages() -> None:
    """Cut, nested, other shapes; a metric that is NaN or below zero."""
    data = (SAMPLES / "aiperf" / "profile_export_aiperf.json").read_bytes()
    survives(IMPORTER, data)
    row = json.loads(data)
    for value, key in ((float("nan"), "not_finite"), (-3, "negative"), ([1], "not_a_number")):
        row["output_token_throughput"]["avg"] = value
        (found,) = IMPORTER.read(given(json.dumps(row).encode(), hints=HINTS))
        assert explained(found) == f"results.import_{key}"
