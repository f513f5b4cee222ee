"""Gates on published rows: the defects that are known to be in them, counted and two of each worked by hand, and no
sound row in quarantine."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from dataclasses import replace

import pytest
from tests.results.published import DATA, points, topology_of
from tests.results.sound_point import figures, said, sound, with_identity

from servemark.results.gates.base import GateFinding, Severity, Verdict
from servemark.results.gates.read import implied_total
from servemark.results.gates.registry import judge_all
from servemark.results.gates.topology import Split, recover_split
from servemark.results.point import Execution, Point, Scenario

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(
        not DATA.is_dir(), reason="the published rows lie outside the project and are not here"
    ),
]
BAD = (Severity.WARNING, Severity.QUARANTINE)
Found = list[tuple[Point, GateFinding]]


def caught(rows: list[Point], gate: str) -> Found:
    """Rows that the gate objects to."""
    found: Found = []
    for point, (findings, _) in zip(rows, judge_all(rows), strict=True):
        found += [(point, each) for each in findings if each.gate == gate and each.severity in BAD]
    return found


@pytest.fixture(scope="module")
def latest() -> list[Point]:
    """The latest rows."""
    return points("benchmarks.json")


@pytest.fixture(scope="module")
def history() -> list[Point]:
    """The history, which has medians and no means."""
    return points("benchmarks-history.json")


def test_wrong_gpu_counts(latest: list[Point], history: list[Point]) -> None:
    """46 of 200 aggregated rows and 336 of 1,027 state tp x ep: 33 say 64 for tp 8, 13 say 16 for tp 4. The loop shows
    that all their figures were made with tp, so all stay usable, with a warning."""
    aggregated = [point for point in latest if not point.identity.disaggregated]
    found = caught(latest, "gpu_count")
    assert (len(found), len(aggregated)) == (46, 200)
    assert Counter((each.values["stated"], each.values["topology"]) for _, each in found) == {
        (64, 8): 33,
        (16, 4): 13,
    }
    assert {each.severity for _, each in found} == {Severity.WARNING}
    found = caught(history, "gpu_count")
    assert (len(found), sum(not point.identity.disaggregated for point in history)) == (336, 1027)


BY_HAND = [
    # 64 x 0.9 x 2048 / 27.3927 = 4306.4 tok/s: / 8 = 538.3 and / 64 = 67.3, the row says 515.7.
    (64, 27.3927, 515.68, 538.3, 67.3),
    # 256 x 0.9 x 9216 / 137.2247 = 15473.7: / 8 = 1934.2 and / 64 = 241.8, the row says 1853.5.
    (256, 137.2247, 1853.52, 1934.2, 241.8),
]


@pytest.mark.parametrize("case", BY_HAND, ids=["c64", "c256"])
def test_gpu_count_by_hand(latest: list[Point], case: tuple[int, float, float, float, float]) -> None:
    """Two B200 rows that say 64 GPUs for an 8-GPU server."""
    concurrency, latency_s, stated, with_8, with_64 = case
    row = next(
        point
        for point, _ in caught(latest, "gpu_count")
        if (point.identity.hardware, point.identity.concurrency) == ("b200", concurrency)
        and point.value("e2el_s.mean") == pytest.approx(latency_s, rel=1e-5)
    )
    implied = implied_total(row)
    assert implied is not None
    assert implied[0] / 8 == pytest.approx(with_8, rel=1e-3)
    assert implied[0] / 64 == pytest.approx(with_64, rel=1e-3)
    assert row.value("total_tokens_per_s_per_gpu") == pytest.approx(stated, rel=1e-4)


def test_lost_splits(latest: list[Point]) -> None:
    """Eight rows with the total under both roles. First: 146.43 P + 18.447 (36 - P) = 32.667 x 36 -> 127.98 P = 511.9,
    P = 4. Fifth: 12447.4 P + 3111.4 (48 - P) = 9335.4 x 48 -> 9336.1 P = 298,752, P = 32."""
    found = caught(latest, "split")
    recovered = sorted(
        (
            int(str(each.values["stated_prefill"])),
            int(str(each.values["prefill"])),
            int(str(each.values["decode"])),
        )
        for _, each in found
    )
    assert recovered == [
        (20, 4, 16),
        (28, 4, 24),
        (28, 4, 24),
        (36, 4, 32),
        (36, 4, 32),
        (48, 32, 16),
        (72, 24, 48),
        (72, 48, 24),
    ]
    assert not caught(latest, "split_unknown")
    by_load = {point.identity.concurrency: recover_split(point) for point, _ in found}
    assert by_load[4] == Split(4, 32)
    assert by_load[1075] == Split(32, 16)
    sound = [point for point in latest if point.identity.disaggregated]
    assert len(sound) - len(found) == 227


def test_the_row_that_is_42_times_off(latest: list[Point]) -> None:
    """512 x 0.9 x 2048 / 55.5958 = 16,974.4 tok/s, / 8 = 2121.8 per GPU; the row says 50.53: 42 times. It is the only
    row in quarantine, there and in the history."""
    rows = [(p, each) for p, each in caught(latest, "closed_loop") if each.severity is Severity.QUARANTINE]
    assert len(rows) == 1
    row, word = rows[0]
    assert (row.identity.hardware, row.identity.engine, row.identity.concurrency) == ("mi355x", "atom", 512)
    assert row.execution.started_utc == "2026-06-02"
    assert word.values["implied"] == pytest.approx(2121.8, rel=1e-4)
    assert word.values["ratio"] == pytest.approx(41.99, rel=1e-4)


def test_no_sound_row_is_quarantined(latest: list[Point], history: list[Point]) -> None:
    """One row of each file, the same one."""
    for rows in (latest, history):
        bad = [
            p for p, (_, verdict) in zip(rows, judge_all(rows), strict=True) if verdict is Verdict.QUARANTINED
        ]
        assert [(p.identity.hardware, p.identity.engine, p.identity.concurrency) for p in bad] == [
            ("mi355x", "atom", 512)
        ]


def test_residuals_of_the_loop(latest: list[Point]) -> None:
    """Over the 199 sound aggregated rows the mean residual is about 2.5 % and p90 3.5 %, the largest 5.7 %: the 10 % of
    the gate is three times p90."""
    residuals = []
    for point in latest:
        implied, stated = implied_total(point), point.value("total_tokens_per_s_per_gpu")
        if point.identity.disaggregated or implied is None or stated is None:
            continue
        tp = point.identity.topology[0].tp
        assert tp is not None
        residuals.append(abs(implied[0] / tp / stated - 1))
    residuals.remove(max(residuals))  # 42 times off
    assert len(residuals) == 199
    assert statistics.mean(residuals) == pytest.approx(0.025, abs=0.001)
    assert statistics.quantiles(residuals, n=10)[-1] == pytest.approx(0.035, abs=0.001)
    assert max(residuals) == pytest.approx(0.0566, abs=0.0001)


def test_one_denominator(latest: list[Point]) -> None:
    """In + out = total in all 198 aggregated rows that state the three; disaggregated rows are on role denominators:
    146.43 + 18.45 is not 32.67."""
    judged = judge_all(latest)
    severities = Counter(
        each.severity for findings, _ in judged for each in findings if each.gate == "one_denominator"
    )
    assert severities == {Severity.OK: 198, Severity.SKIPPED: 237}
    roles = [point for point in latest if point.identity.disaggregated]
    assert all("input_tokens_per_s_per_gpu" not in point.figures for point in roles)


def test_gaps_that_are_no_tokens(latest: list[Point]) -> None:
    """On 363 of 435 rows median ITL and TPOT differ by more than a quarter. By hand: 124.97 / 6.269 ms = 19.9, and the
    first row, 9.4069 / 9.6480 ms = 0.975, passes."""
    found = caught(latest, "itl_tpot")
    assert len(found) == 363
    lost = next(each for point, each in found if point.gpus_stated == 72 and point.identity.concurrency == 4)
    assert lost.values["ratio"] == pytest.approx(19.93, rel=1e-3)
    assert latest[0] not in [point for point, _ in found]


def test_absent_is_not_zero(latest: list[Point]) -> None:
    """p90 is absent on 290 of 435 rows; no gate takes that for 0, and a mapping that did would be caught on each."""
    assert sum("tpot_s.p90" not in point.figures for point in latest) == 290
    assert not caught(latest, "zero_latency")


def test_power(latest: list[Point]) -> None:
    """17 rows state both: 628.907 W / 198.945 tok/s = 3.1612 J/token, as the first row says."""
    judged = judge_all(latest)
    severities = Counter(
        each.severity for findings, _ in judged for each in findings if each.gate == "energy"
    )
    assert severities == {Severity.OK: 17, Severity.SKIPPED: 418}


def test_gpu_counts_of_eval_rows() -> None:
    """136 disaggregated eval rows and 4 aggregated ones state tp x ep GPUs, two of them 1,024 for a 32-way worker. No
    figures are there to tell which count was used."""
    rows = json.loads((DATA / "published-2026-06" / "evaluations.json").read_text(encoding="utf-8"))
    found = Counter[str]()
    for row in rows:
        topology = topology_of(row)
        point = with_identity(
            sound(gpus_deployed=None, gpus_stated=row["num_decode_gpu"], figures={}), topology=topology
        )
        for gate in ("gpu_count", "role_gpus"):
            word = said(gate, point)
            found[gate] += word.severity in BAD
            found["1024"] += word.severity in BAD and word.values["stated"] == 1024
    assert found == {"gpu_count": 4, "role_gpus": 136, "1024": 2}


def test_a_real_retry() -> None:
    """Two attempts of one agentic point, 405.3 and then 396.1 tok/s/GPU: the later counts though slower, both are kept.
    Their interactivity falls from p50 113.3 to p90 61.9: the slow tail."""
    rows = []
    for attempt in (1, 2):
        path = DATA / "agentic-v3-h100-retry" / f"attempt{attempt}.json"
        raw = json.loads(path.read_text(encoding="utf-8"))
        measured = raw["request_metrics"]
        point = with_identity(
            sound(), concurrency=raw["conc"], scenario=Scenario("agentic-coding", dataset="weka")
        )
        values = {f"ttft_s.{q}": measured["latency"]["ttft"][q] for q in ("mean", "p50", "p90")}
        values |= {f"e2el_s.{q}": measured["latency"]["e2el"][q] for q in ("mean", "p50", "p90")}
        values["total_tokens_per_s_per_gpu"] = measured["throughput"]["per_gpu"]["total_tput_tps"]
        rates = {q: measured["latency"]["intvty"][q] for q in ("p50", "p90")}
        rows.append(
            replace(
                point,
                figures=figures(values),
                execution=Execution("one-run", attempt),
                observed={"stated_interactivity": rates},
            )
        )
    assert [round(row.figures["total_tokens_per_s_per_gpu"].value, 1) for row in rows] == [405.3, 396.1]
    found = [{each.gate: each.severity for each in findings} for findings, _ in judge_all(rows)]
    assert [each["superseded"] for each in found] == [Severity.QUARANTINE, Severity.SKIPPED]
    assert [each["rate_direction"] for each in found] == [Severity.OK, Severity.OK]
    assert [each["closed_loop"] for each in found] == [Severity.SKIPPED, Severity.SKIPPED]  # sessions think
