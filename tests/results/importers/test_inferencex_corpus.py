"""Real published rows: every file whole, and the traps in them, two rows of each worked by hand."""

from __future__ import annotations

import json
import runpy
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from servemark.results.gates.registry import judge_all
from servemark.results.importers.inferencex import detect
from servemark.results.point import Point, RoleTopology

HELP = runpy.run_path(str(Path(__file__).with_name("make_given.py")))
corpus, of_file, mapped, points = HELP["corpus"], HELP["of_file"], HELP["mapped"], HELP["points"]
LATEST, HISTORY = "published-2026-06/benchmarks.json", "published-2026-06/benchmarks-history.json"

pytestmark = pytest.mark.corpus


def test_every_row_of_every_file_has_a_status() -> None:
    """Counts as the data's own description states them."""
    expected = {
        LATEST: ("mapped", 435),
        HISTORY: ("mapped", 1462),
        "published-2026-06/evaluations.json": ("mapped", 531),
        "published-2026-06/supplemental-evals.json": ("mapped", 66),
        "published-2026-06/reliability.json": ("unmapped", 1),
        "published-2026-06/availability.json": ("unmapped", 1),
        "published-2026-06/submissions.json": ("unmapped", 1),
        "published-2026-06/workflow-info.json": ("unmapped", 1),
        "agentic-v3-h100-retry/attempt1.json": ("mapped", 1),
        "agentic-v3-h100-retry/attempt2.json": ("mapped", 1),
    }
    for path, (status, number) in expected.items():
        given = of_file(corpus(path))
        assert detect(given) >= 0.8, path
        rows = mapped(given)
        assert ([each.status for each in rows], path) == ([status] * number, path)
        if status == "unmapped":
            assert rows[0].reason == "results.import_no_result_rows"


def test_files_of_other_tools_are_not_taken() -> None:
    """vLLM's result rows are another importer's."""
    assert detect(of_file(corpus("repeat-runs-h200/merged.json"))) == 0
    assert detect(of_file(corpus("token-position-slo/merged.json"))) == 0


def test_raw_bytes_of_each_row_are_kept() -> None:
    """A row's own text, from which it can be mapped again."""
    file = corpus(LATEST)
    rows = mapped(of_file(file))
    assert [json.loads(each.raw) for each in rows] == json.loads(file.read_bytes())


def test_trap_1_gpu_count_is_not_tp_times_ep() -> None:
    """46 of 200 aggregated rows state tp x ep; the closed loop says tp."""
    found = points(LATEST)
    pools = [(row, point) for row, point in found if not row["disagg"]]
    wrong = [(row, point) for row, point in pools if point.gpus_stated != point.gpus_deployed]
    assert (len(pools), len(wrong)) == (200, 46)
    assert all(point.gpus_deployed == row["prefill_tp"] for row, point in pools)
    older = [(row, point) for row, point in points(HISTORY) if not row["disagg"]]
    assert (len(older), sum(point.gpus_stated != point.gpus_deployed for _, point in older)) == (1027, 336)
    # Row 16: B200, TensorRT-LLM, tp 8, ep 8, 8 lanes of 1024 + 1024 tokens. Work in the loop: 8 x 2048 = 16384 tokens.
    # 193.447 tok/s/GPU x 8 GPUs x 9.2556 s = 14324 = 0.874 of it; with 64 GPUs it would be 6.99 of it.
    _, point = found[16]
    assert (point.gpus_stated, point.gpus_deployed) == (64, 8)
    assert pytest.approx(0.8743, abs=1e-4) == 193.44744504 * 8 * 9.25558634 / 16384
    assert (
        "GPU count 8 (stated 64) by the closed loop, share of it by count: 8: 0.87, 64: 6.99" in point.notes
    )
    # Row 97: H200, TensorRT-LLM, tp 8, ep 8, 16 lanes of 1024 + 8192: 16 x 9216 = 147456 tokens.
    # 187.819 x 8 x 84.627 = 127156 = 0.862 of it; with 64 GPUs 6.90.
    _, point = found[97]
    assert (point.gpus_stated, point.gpus_deployed) == (64, 8)
    assert pytest.approx(0.8623, abs=1e-4) == 187.81867829 * 8 * 84.62738651 / 147456


def test_trap_1_evaluations_state_it_too() -> None:
    """Evaluation rows carry the same count and no load from which it could be mended: nothing is claimed."""
    found = points("published-2026-06/evaluations.json")
    assert all(point.gpus_deployed is None for _, point in found)
    assert max(point.gpus_stated or 0 for _, point in found) == 1064
    (row, point), *_ = [each for each in found if each[0]["id"] == "7308"]
    # Prefill: 5 workers of tp 8, ep 8. 5 x 8 = 40 GPUs, 320 stated (5 x 8 x 8): no GPUs of a worker are made of it.
    assert (row["num_prefill_gpu"], point.gpus_stated) == (320, 320 + 256)
    assert point.identity.topology[0] == RoleTopology("prefill", 5, None, 8, ep=8, dp_attention=True)


def test_trap_2_lost_splits_are_recovered() -> None:
    """8 GB200 rows state one GPU count for both sides; whole numbers of GPUs in which tokens add up are the split."""
    found = points(LATEST)
    lost = [(row, point) for row, point in found if row["disagg"] and not row["prefill_num_workers"]]
    splits = [
        (point.identity.extra["prefill_gpus"], point.identity.extra["decode_gpus"]) for _, point in lost
    ]
    assert splits == [(4, 32), (4, 32), (4, 24), (4, 24), (32, 16), (48, 24), (4, 16), (24, 48)]
    assert [point.gpus_deployed for _, point in lost] == [p + d for p, d in splits]
    told = [finding.values for findings, _ in judge_all([point for _, point in lost]) for finding in findings
            if finding.gate == "split"]  # fmt: skip
    stated = [(values["stated_prefill"], values["stated_decode"]) for values in told]
    assert stated == [(n, n) for n in (36, 36, 28, 28, 48, 72, 20, 72)]
    # Row 150: 146.4305 P + 18.4470 (36 - P) = 32.6674 x 36 -> 127.9835 P = 1176.0267 - 664.0927 = 511.9340, P = 4.
    _, point = found[150]
    assert pytest.approx(4, abs=1e-6) == (32.66740863 * 36 - 18.44701834 * 36) / (146.43053093 - 18.44701834)
    assert (point.gpus_stated, point.gpus_deployed) == (72, 36)
    assert point.identity.topology == (RoleTopology("prefill"), RoleTopology("decode"))
    # Row 158: 12447.4387 P + 3111.3742 (48 - P) = 9335.4172 x 48 -> 9336.0645 P = 298754.06, P = 32.
    _, point = found[158]
    assert pytest.approx(32, abs=1e-6) == (9335.41722206 * 48 - 3111.37418919 * 48) / (
        12447.43873849 - 3111.37418919
    )
    assert point.gpus_deployed == 48


def test_trap_3_one_denominator() -> None:
    """All 235 disaggregated rows divide input by prefill GPUs and output by decode GPUs; here all GPUs divide both."""
    found = points(LATEST)
    split = [point for row, point in found if row["disagg"]]
    assert len(split) == 235
    for point in split:
        assert _sum(point) == pytest.approx(point.value("total_tokens_per_s_per_gpu"), rel=1e-5)
    pools = [point for row, point in found if not row["disagg"] and "input_tput_per_gpu" in row["metrics"]]
    assert len(pools) == 198
    for point in pools:
        assert _sum(point) == pytest.approx(point.value("total_tokens_per_s_per_gpu"), rel=1e-5)
        assert point.figures["input_tokens_per_s_per_gpu"].how is None
    # Row 151: 4 prefill + 32 decode GPUs. Input 762.5057 x 4 / 36 = 84.7229, output 94.8916 x 32 / 36 = 84.3480,
    # together 169.0709 as stated for the whole.
    _, point = found[151]
    into, out = point.figures["input_tokens_per_s_per_gpu"], point.figures["output_tokens_per_s_per_gpu"]
    assert (into.value, out.value) == (pytest.approx(84.7229, abs=1e-4), pytest.approx(84.3480, abs=1e-4))
    assert (into.stated, into.at) == (762.5056863797959, "/metrics/input_tput_per_gpu")
    assert into.how == "762.505686 x 4 prefill GPUs / 36 GPUs deployed"
    assert point.value("input_tokens_per_s_per_prefill_gpu") == 762.5056863797959
    assert point.value("output_tokens_per_s_per_decode_gpu") == 94.89155859064786
    # Row 288: 26 + 16 GPUs. 20893.1541 x 26 / 42 = 12933.8573, 4244.6618 x 16 / 42 = 1617.0140; sum 14550.8713.
    _, point = found[288]
    assert point.value("input_tokens_per_s_per_gpu") == pytest.approx(12933.8573, abs=1e-3)
    assert point.value("output_tokens_per_s_per_gpu") == pytest.approx(1617.0140, abs=1e-3)


def _sum(point: Point) -> float:
    into, out = point.value("input_tokens_per_s_per_gpu"), point.value("output_tokens_per_s_per_gpu")
    assert into is not None and out is not None
    return into + out


def test_trap_4_interactivity_is_never_taken() -> None:
    """The latencies are: 1 / 0.0097002 s = 103.09 tok/s/user is what 90 % of the requests of row 0 reach or beat."""
    found = points(LATEST)
    assert not any("intvty" in at or "interactivity" in at for _, point in found for at in point.figures)
    row, point = found[0]
    assert row["metrics"]["p90_intvty"] == pytest.approx(103.0908, abs=1e-4)
    assert 1 / (point.value("tpot_s.p90") or 0) == pytest.approx(103.0908, abs=1e-4)
    # Row 200: median TPOT 0.01142699 s -> 87.5121 tok/s/user.
    _, point = found[200]
    assert point.value("tpot_s.p50") == 0.01142699401718696
    assert pytest.approx(87.5121, abs=1e-4) == 1 / 0.01142699401718696
    assert any("interactivity as stated was left out" in note for note in point.notes)


def test_trap_5_missing_stays_missing() -> None:
    """290 of 435 rows have no p90; two have no input and output."""
    found = points(LATEST)
    assert sum("tpot_s.p90" not in point.figures for _, point in found) == 290
    assert not any(figure.value == 0 for _, point in found for figure in point.figures.values())
    assert found[100][1].value("ttft_s.p90") is None  # its row has median and p99 alone
    assert found[5][1].value("input_tokens_per_s_per_gpu") is None  # not made from the total
    assert found[6][1].value("output_tokens_per_s_per_gpu") is None
    assert (
        found[0][1].value("ttft_s.p99.9")
        == found[0][0]["metrics"]["p99.9_ttft"]
        == pytest.approx(0.823355884)
    )  # a key with a dot


def test_trap_6_a_line_is_one_run() -> None:
    """30 of 151 series and 3 of 298 exact lines mix runs: their points have other line keys, and no key mixes runs."""
    found = points(LATEST)
    series, exact, keys = defaultdict(set), defaultdict(set), defaultdict(set)
    for row, point in found:
        series[_parts(row, "hardware", "framework", "precision", "spec_method", "disagg", "isl", "osl")].add(
            point.line_key
        )
        same = tuple(
            name for name in row if name not in {"conc", "metrics", "date", "run_url", "image", "workers"}
        )
        exact[_parts(row, *same)].add(row["run_url"].partition("/attempts/")[0])
        keys[point.line_key].add(point.execution.run)
    assert {len(runs) for runs in keys.values()} == {1}
    assert (len(exact), sum(len(runs) > 1 for runs in exact.values())) == (298, 3)
    # B200 sglang fp8 8k/1k at tp 8: some points of run 20621824084 (December), some of 26306422380 (May).
    b200 = [point for row, point in found if _parts(row, "hardware", "framework", "precision", "isl", "prefill_tp",
            "prefill_ep", "disagg", "spec_method") == ("b200", "sglang", "fp8", 8192, 8, 1, False, "none")]  # fmt: skip
    assert {point.execution.run for point in b200} == {"20621824084", "26306422380"}
    assert len({point.line_key for point in b200}) >= 2
    # B200 TensorRT-LLM fp4 1k/8k at tp 4: runs 21640806486 attempt 1 and 19019467297 attempt 2.
    trt = [point for row, point in found if _parts(row, "hardware", "framework", "precision", "isl", "osl", "prefill_tp",
           "prefill_ep", "spec_method") == ("b200", "trt", "fp4", 1024, 8192, 4, 1, "none")]  # fmt: skip
    executions = {(point.execution.run, point.execution.attempt) for point in trt}
    assert executions == {("21640806486", 1), ("19019467297", 2)}


def _parts(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def test_trap_7_itl_and_tpot_are_two_figures() -> None:
    """They differ by more than a quarter on 363 of 435 rows (medians): neither stands for the other."""
    found = points(LATEST)
    apart = [
        point
        for _, point in found
        if abs((point.value("itl_s.p50") or 0) / (point.value("tpot_s.p50") or 1) - 1) > 0.25
    ]
    assert len(apart) == 363
    # Row 150: ITL 0.124969 s over chunks of many tokens, TPOT 0.006270 s: 19.9 tokens came in a chunk.
    _, point = found[150]
    assert (point.value("itl_s.p50"), point.value("tpot_s.p50")) == (
        0.12496903300052509,
        0.006269479759073311,
    )
    # Row 0: no speculation, one token a chunk: 0.009620 and 0.009619 s.
    _, point = found[0]
    assert point.value("itl_s.mean") == pytest.approx(point.value("tpot_s.mean"), rel=1e-3)


def test_trap_8_retries_are_two_attempts_of_one_point() -> None:
    """405.2768 and 396.14743 tok/s/GPU: one point key, one run, attempts 1 and 2."""
    first, second = (
        mapped(of_file(corpus(f"agentic-v3-h100-retry/attempt{n}.json")))[0].point for n in (1, 2)
    )
    assert first.identity.point_key == second.identity.point_key
    assert first.identity.recipe_fingerprint == second.identity.recipe_fingerprint is not None
    assert (first.execution.run, first.execution.attempt) == (second.execution.run, 1)
    assert second.execution.attempt == 2
    assert first.value("total_tokens_per_s_per_gpu") == 405.2768
    assert second.value("total_tokens_per_s_per_gpu") == 396.14743
    # 3242.21439 tok/s over 8 GPUs = 405.2768; 8609784.934 J / 112 requests = 76873.08 J.
    assert first.gpus_deployed == 8 and (first.value("total_tokens_per_s") or 0) / 8 == pytest.approx(
        405.2768, abs=1e-4
    )
    assert (first.requests.ok, first.requests.error) == (112, 0)
    assert (first.value("gpus_energy_j") or 0) / 112 == pytest.approx(
        first.value("joules_per_request"), rel=1e-6
    )
    assert first.figures["ttft_s.p90"].at == "/request_metrics/latency/ttft/p90"
    assert (first.identity.hardware, first.declared["hardware"]) == ("h100", "cluster:h100-dgxc")
    assert str(first.declared["image_digest"]).startswith("sha256:5921361f")
    assert first.identity.scenario.dataset == "semianalysisai/cc-traces-weka-062126"


def test_power_by_role_has_names_of_its_own() -> None:
    """Decode GPUs draw 812.882 W at 1186.247 tok/s each: 812.882 / 1186.247 = 0.685255 J per output token, as stated."""
    found = [point for row, point in points(LATEST) if row["workers"]]
    assert len(found) == 1
    point = found[0]
    assert pytest.approx(0.685255, abs=1e-6) == 812.882 / 1186.2472529925478
    assert point.value("decode_joules_per_output_token") == 0.685255
    assert point.value("prefill_joules_per_input_token") == 0.201787
    assert "joules_per_output_token" not in point.figures
    assert point.value("joules_per_total_token") == 0.255314  # 907.773 W / 3555.512 tok/s of every GPU
    assert (point.gpus_telemetry, point.gpus_deployed) == (24, 24)
    # An older row samples the 8 GPUs of a node of which prefill had 4: 271.002 x 8 / (246.757 x 4) = 2.1965 J is
    # twice what its GPUs used, so it is left out and said.
    odd = [
        p
        for _, p in points(HISTORY)
        if any("joules_per_input_token was left out" in note for note in p.notes)
    ]
    assert len(odd) == 1
    assert pytest.approx(2.196511, abs=1e-5) == 271.002 * 8 / (246.75681461641713 * 4)
    assert "prefill_joules_per_input_token" not in odd[0].figures


def test_evaluations_keep_both_scores_and_their_errors() -> None:
    """A plain framework flagged disaggregated is one pool: the load rows of the same runs say so."""
    found = points("published-2026-06/evaluations.json")
    row, point = found[0]
    assert [(each.metric, each.score, each.n) for each in point.evals] == [
        ("em_strict", 0.9575435936315391, 1319),
        ("em_flexible", 0.9567854435178166, 1319),
    ]
    assert point.execution.run == "27485974465"
    assert row["disagg"] and [role.role for role in point.identity.topology] == ["aggregated"]
    loads = {
        (point.execution.run, point.identity.hardware, point.identity.engine, point.identity.router): point
        for path in (LATEST, HISTORY)
        for _, point in points(path)
    }
    same = [
        (each.identity.disaggregated, loads[key].identity.disaggregated)
        for _, each in found
        if (key := (each.execution.run, each.identity.hardware, each.identity.engine, each.identity.router))
        in loads
    ]
    assert len(same) >= 85 and all(one == other for one, other in same)
