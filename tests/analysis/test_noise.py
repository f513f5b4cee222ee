"""Noise from repeats: by hand for small groups, recomputed another way for real ones."""

from __future__ import annotations

import io
import json
import math
import re
import statistics
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from servemark.analysis.measured import Measured, of_point
from servemark.analysis.noise import ASSUMED_ELSE, has_noise, noise_model
from servemark.analysis.student import t_quantile, t_tail
from servemark.metrics.address import parse
from servemark.results.importers.base import Given
from servemark.results.importers.registry import importers
from servemark.results.point import Execution, Figure, Point, PointIdentity, Scenario

RATE = "total_tokens_per_s"
REPEATS = Path(__file__).resolve().parents[3] / "shared/data/results/repeat-runs-h200/merged.json"


def measured(
    run: str,
    rate: float,
    *,
    image: str | None = "sha256:a",
    concurrency: int = 8,
    kind: str = "fixed-seq-len",
    source: str = "tool",
    verdict: str = "valid",
    day: str = "2026-05-01",
) -> Measured:
    """One point with one rate."""
    identity = PointIdentity("m", "h100", "vllm", Scenario(kind, 1024, 1024), concurrency, image=image)
    window = float(int.from_bytes(run.encode(), "big"))  # else equal rates would be copies of one row
    figures = {RATE: Figure(rate, "d", "/rate"), "window_s": Figure(window, "d", "/window")}
    point = Point(identity, Execution(run, started_utc=day), figures, source, 1)
    return of_point(point, f"{source}{run}:{concurrency}", verdict, official=True)


@pytest.mark.parametrize(
    ("df", "value"), [(1, 12.7062), (2, 4.3027), (4, 2.7764), (10, 2.2281), (30, 2.0423), (math.inf, 1.95996)]
)
def test_t_is_that_of_the_tables(df: float, value: float) -> None:
    """Printed tables of Student's t, two-sided 5 %."""
    assert t_quantile(0.05, df) == pytest.approx(value, rel=2e-5)
    assert t_tail(value, df) == pytest.approx(0.05, rel=1e-3)


def test_two_groups_pooled_by_hand() -> None:
    """Logs 0, 0.02, 0.04 (squares about their mean 0.0008, 2 degrees) and 0, 0.02 (0.0002, 1 degree):
    s² = 0.001 / 3, s = 0.018257."""
    some = [measured(f"r{i}", 100 * math.exp(0.02 * i)) for i in range(3)]
    some += [measured(f"r{i}", 200 * math.exp(0.02 * i), concurrency=16) for i in range(2)]
    noise = noise_model(some).relative_sd(some[3], RATE)
    assert noise is not None
    assert (noise.basis, noise.repeats, noise.groups, noise.df) == ("scenario", 5, 2, 3.0)
    assert noise.rel_sd == pytest.approx(math.sqrt(0.001 / 3))
    assert noise.lowest == pytest.approx(math.sqrt(0.0002))
    assert noise.highest == pytest.approx(math.sqrt(0.0004))
    band = noise_model(some).band(some[3], RATE, 100.0)
    assert band is not None
    half = 3.18245 * math.sqrt(0.001 / 3)  # t of the tables for 3 degrees
    assert band[0] == pytest.approx(100 * math.exp(-half), rel=1e-5)
    assert band[1] == pytest.approx(100 * math.exp(half), rel=1e-5)


def test_own_repeats_come_first_steadied_by_the_scenario() -> None:
    """Own: 0.001 times the spread of 0 1 0 1 0, s² = 3e-7 with 4 degrees. Scenario: with 0 0.1 0 0.1, squares 0.01 about the
    mean, together 1.2e-6 + 0.01 with 7 degrees. Steadied with 6 of them: (4 * 3e-7 + 6 * 0.0100012 / 7) / 10."""
    quiet = [measured(f"q{i}", 100 * math.exp(0.001 * (i % 2))) for i in range(5)]
    loud = [measured(f"l{i}", 100 * math.exp(0.1 * (i % 2)), concurrency=16) for i in range(4)]
    model = noise_model([*quiet, *loud])
    own, pooled = model.relative_sd(quiet[0], RATE), model.relative_sd(loud[0], RATE)
    assert own is not None and pooled is not None
    assert (own.basis, own.repeats) == ("own", 5)
    assert own.rel_sd == pytest.approx(math.sqrt((1.2e-6 + 6 * 0.0100012 / 7) / 10))
    assert (own.df, own.steadied) == (10.0, True)
    assert "steadied" in own.text("en")
    assert (pooled.basis, pooled.repeats, pooled.df) == ("own", 4, 9.0)
    alone = noise_model(quiet).relative_sd(quiet[0], RATE)
    assert alone is not None
    assert (alone.basis, alone.df, alone.steadied) == ("own", 4.0, False)
    assert alone.rel_sd == pytest.approx(0.001 * statistics.stdev([0, 1, 0, 1, 0]))


def test_steps_between_runs_that_state_nothing() -> None:
    """Ten runs of 1 % up and down with one jump to the double: the jump is a change, not noise. Eleven logs, ten steps,
    nine of 0.01: median |step| / √2 / 0.6745 = 0.010484."""
    logs = [0.0, 0.01, 0.0, 0.01, 0.0, 0.01, 0.70, 0.71, 0.70, 0.71, 0.70]
    some = [
        measured(f"r{i}", 100 * math.exp(log), image=None, day=f"2026-05-{i + 1:02d}")
        for i, log in enumerate(logs)
    ]
    noise = noise_model(reversed(some)).relative_sd(some[0], RATE)
    assert noise is not None
    assert noise.method == "steps"
    assert noise.rel_sd == pytest.approx(0.01 / math.sqrt(2) / 0.6745)
    assert noise.df == pytest.approx(3.7)
    assert "neither image nor recipe" in noise.text("en")


def test_repeats_within_a_run_are_a_spread_without_an_image() -> None:
    """`RUN#k` are repeats of one run whatever the file states of the image."""
    names = ["run", "run#2", "run#3", "run#4", "run#5"]
    some = [measured(name, 100 + i, image=None) for i, name in enumerate(names)]
    noise = noise_model(some).relative_sd(some[0], RATE)
    assert noise is not None
    assert (noise.basis, noise.method, noise.df) == ("own", "spread", 4.0)


def test_an_assumption_is_marked() -> None:
    model = noise_model([])
    fixed = model.relative_sd(measured("r", 1), RATE)
    agentic = model.relative_sd(measured("r", 1, kind="agentic-coding"), RATE)
    assert fixed is not None and agentic is not None
    assert (fixed.basis, fixed.rel_sd) == ("assumed", 0.03)
    assert (agentic.basis, agentic.rel_sd) == ("assumed", ASSUMED_ELSE)
    assert "assumed" in agentic.text("en") and "假定" in agentic.text("zh")


def test_what_is_no_repeat() -> None:
    """Copies of one row, quarantined points and points of two sides."""
    one = measured("a", 100)
    copies = [replace(one, ref=f"copy:{i}", run=f"r{i}") for i in range(9)]
    bad = [measured(f"b{i}", 100 + i, verdict="quarantined") for i in range(9)]
    for model in (noise_model([*copies, *bad]), noise_model([], [one], [measured("b", 150)])):
        noise = model.relative_sd(one, RATE)
        assert noise is not None and noise.basis == "assumed"


def test_other_sources_before_an_assumption() -> None:
    some = [measured(f"r{i}", 100 + i) for i in range(4)]
    noise = noise_model(some).relative_sd(measured("x", 1, source="other"), RATE)
    assert noise is not None and noise.basis == "any_source"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (RATE, True),
        ("ttft_s.p99", True),
        ("interactivity.p50", True),
        ("error_rate", False),
        ("eval_score", False),
        ("window_s", False),
        ("requests_error", False),
        ("ttft_s.n", False),
    ],
)
def test_which_figures_have_noise(address: str, expected: bool) -> None:
    assert has_noise(parse(address)) is expected
    assert (noise_model([]).relative_sd(measured("r", 1), address) is not None) is expected


def test_no_band_without_a_positive_value() -> None:
    model = noise_model([])
    assert model.band(measured("r", 1), RATE, 0.0) is None
    assert model.band(measured("r", 1), RATE, float("nan")) is None


@pytest.mark.corpus
def test_the_twelve_groups_of_real_repeats(tmp_path: Path) -> None:
    """Every group of repeats (`NAME_rK.json`) on its own: its spread, recomputed here from the raw file."""
    if not REPEATS.exists():
        pytest.skip("needs ../shared/data")
    groups: dict[str, list[dict[str, float]]] = defaultdict(list)
    for row in json.loads(REPEATS.read_text()):
        named = re.fullmatch(r"(.*)_r\d+\.json", row["_source_path"])
        if named:
            groups[named[1]].append(row)
    assert len(groups) == 12
    tool = next(each for each in importers() if each.id == "vllm-bench")
    for name, rows in groups.items():
        path = tmp_path / f"{Path(name).name}.json"
        path.write_text(json.dumps(rows))
        data = path.read_bytes()
        given = Given(str(path), len(data), data, partial(io.BytesIO, data), {"hardware": "h200"}, {})
        points = [
            of_point(row.point, f"f:{row.ordinal}", "valid")
            for row in tool.read(given)
            if row.point is not None
        ]
        assert len(points) == len(rows)
        for address, field in ((RATE, "total_token_throughput"), ("tpot_s.p50", "median_tpot_ms")):
            values = [row[field] for row in rows]
            found = noise_model(points).relative_sd(points[0], address)
            assert found is not None
            if len(rows) == 5:
                assert found.basis == "own"
                assert found.rel_sd == pytest.approx(statistics.stdev(map(math.log, values)), rel=1e-6)
                assert found.rel_sd == pytest.approx(
                    statistics.stdev(values) / statistics.fmean(values), rel=0.03
                )
                assert 0.001 < found.rel_sd < 0.03
            else:
                assert found.basis == "assumed"  # three repeats are two degrees of freedom
