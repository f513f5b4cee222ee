"""vLLM's serving benchmark: a sample against its own console and its own per-request records, and real files."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from tests.results.importers.given_files import (
    HINTS,
    SAMPLES,
    SHARED,
    explained,
    given,
    only_point,
    sample,
    survives,
)

from servemark.results.importers.vllm_bench import IMPORTER


def test_sample_equals_its_console() -> None:
    """Every latency that the tool printed (two decimals, ms) is the figure in seconds."""
    point = only_point(IMPORTER, sample("vllm_bench/result.json"))
    printed = {}
    for line in (SAMPLES / "vllm_bench" / "console.txt").read_text().splitlines():
        label, colon, value = line.rpartition(":")
        if colon:
            printed[label.strip()] = float(value)
    names = {"TTFT": "ttft_s", "TPOT": "tpot_s", "ITL": "itl_s", "E2EL": "e2el_s"}
    for shown, metric in names.items():
        for word, statistic in {"Mean": "mean", "P50": "p50", "P90": "p90", "P99": "p99"}.items():
            found = point.value(f"{metric}.{statistic}")
            assert found is not None and math.isclose(
                1e3 * found, printed[f"{word} {shown} (ms)"], abs_tol=0.00501
            )
    assert point.requests.ok == printed["Successful requests"] and point.requests.planned == 8
    assert point.figures["output_tokens_total"].value == printed["Total generated tokens"]
    assert point.value("total_tokens_per_s") == pytest.approx(
        printed["Total token throughput (tok/s)"], abs=0.006
    )
    assert point.identity.concurrency == 4 and point.identity.scenario.arrivals is None
    assert point.status == "complete" and point.figures["ttft_s.p90"].definition == "vllm-bench"


def test_detailed_sample_agrees_with_its_records() -> None:
    """TTFT and TPOT recomputed from the per-request lists; ITL lists never enter the kept row."""
    one = sample("vllm_bench/detailed.json")
    raw = json.loads(one.open().read())
    (row,) = IMPORTER.read(one)
    assert row.point is not None and row.raw is not None
    point = row.point
    mean = sum(raw["ttfts"]) / 8
    assert point.value("ttft_s.mean") == pytest.approx(mean, rel=1e-9) and point.value("ttft_s.n") == 8
    tpots = [sum(gaps) / (n - 1) for gaps, n in zip(raw["itls"], raw["output_lens"], strict=True)]
    assert point.value("tpot_s.mean") == pytest.approx(sum(tpots) / 8, rel=1e-6)
    assert json.loads(row.raw)["itls"] is None and len(json.loads(row.raw)["ttfts"]) == 8
    assert point.requests.error == 0


def test_without_hardware_the_row_is_kept_unmapped() -> None:
    """A client does not know what served it; nothing is guessed."""
    (row,) = IMPORTER.read(sample("vllm_bench/result.json", {}))
    assert row.status == "unmapped" and explained(row) == "results.import_says_not"
    assert row.reason_values == {"missing": "hardware, engine"} and row.raw


def test_gpus_from_the_user_give_rates_per_gpu() -> None:
    """613.48 tok/s over 4 GPUs."""
    one = sample("vllm_bench/result.json", {**HINTS, "gpus": "4"})
    point = only_point(IMPORTER, one)
    whole = point.value("output_tokens_per_s")
    assert (
        whole is not None
        and point.value("output_tokens_per_s_per_gpu") == whole / 4
        and point.gpus_deployed == 4
    )
    (row,) = IMPORTER.read(replace(one, hints={**HINTS, "gpus": "four"}))
    assert explained(row) == "results.import_not_a_number"


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("p99_ttft_ms", "NaN", "not_finite"),
        ("p99_ttft_ms", "1e999", "not_finite"),
        ("mean_tpot_ms", "-1", "negative"),
        ("median_itl_ms", '"12"', "not_a_number"),
        ("completed", "7.5", "not_a_number"),
        ("completed", "0", "no_success"),
        ("median_ttft", "0.5", "two_units"),
        ("total_input_tokens", "9" * 5000, "not_finite"),
    ],
)
def test_a_wrong_number_makes_the_row_invalid(key: str, value: str, reason: str) -> None:
    """In an array the other rows go on."""
    good = (SAMPLES / "vllm_bench" / "result.json").read_bytes().strip()
    bad = good[:-1] + f', "{key}": {value}}}'.encode()
    first, second = IMPORTER.read(given(b"[" + bad + b"," + good + b"]", hints=HINTS))
    assert first.status == "invalid" and explained(first) == f"results.import_{reason}"
    assert second.status == "mapped" and (first.ordinal, second.ordinal) == (0, 1)


def test_damage_gives_messages() -> None:
    """Cut, nested, other shapes."""
    survives(IMPORTER, (SAMPLES / "vllm_bench" / "detailed.json").read_bytes())


def test_a_million_requests_fit() -> None:
    """10^6 TTFTs are read; 10^6 ITL lists are passed over and not kept."""
    row = json.loads((SAMPLES / "vllm_bench" / "result.json").read_bytes())
    head = json.dumps(row).encode()[:-1]
    many = b"0.5," * 999_999 + b"0.5"
    data = head + b', "ttfts": [' + many + b'], "itls": [' + b"[0.01,0.02]," * 999_999 + b"[]]}"
    (found,) = IMPORTER.read(given(data, hints=HINTS))
    assert found.point is not None and found.point.value("ttft_s.n") == 1_000_000
    assert found.raw is not None and len(found.raw) < 5_000_000


def test_open_loop_names_its_arrivals() -> None:
    """A rate is an open loop: Poisson at burstiness 1."""
    row = json.loads((SAMPLES / "vllm_bench" / "result.json").read_bytes())
    row |= {"request_rate": 4.0, "max_concurrency": None}
    point = only_point(IMPORTER, given(json.dumps(row).encode(), hints=HINTS))
    assert point.identity.scenario.arrivals == "poisson:4" and point.identity.concurrency is None


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("folder", "count", "milliseconds"), [("token-position-slo", 169, False), ("repeat-runs-h200", 88, True)]
)
def test_real_files(folder: str, count: int, milliseconds: bool) -> None:
    """Every real row maps; seconds stay seconds; output tokens / duration is the stated rate."""
    path = SHARED / folder / "merged.json"
    if not path.is_file():
        pytest.skip("no shared data here")
    data = path.read_bytes()
    one = given(data, hints={"hardware": "h200", "engine": "vllm"})
    assert IMPORTER.detect(one) > 0.5
    rows, raw = list(IMPORTER.read(one)), json.loads(data)
    assert len(rows) == count and all(row.status == "mapped" for row in rows)
    for row, source in zip(rows, raw, strict=True):
        point = row.point
        assert point is not None and point.duration_s == source["duration"]
        key = "p99_ttft_ms" if milliseconds else "p99_ttft"
        assert point.value("ttft_s.p99") == pytest.approx(
            source[key] / (1e3 if milliseconds else 1), rel=1e-12
        )
        tokens, rate = point.value("output_tokens_total"), point.value("output_tokens_per_s")
        assert tokens is not None and rate == pytest.approx(tokens / source["duration"], rel=1e-6)
        assert (point.value("e2el_s.p99") or 0) < source["duration"]
    keys = {row.point.identity.point_key for row in rows if row.point}
    assert len(keys) == len({(r["model_id"], r["max_concurrency"], round(r["total_input_tokens"] / r["completed"]),
                              round(r["total_output_tokens"] / r["completed"])) for r in raw})  # fmt: skip
