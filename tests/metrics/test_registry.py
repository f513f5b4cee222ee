"""Tests over the registry: whatever metric is added, these say what is missing for it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import pytest

from servemark.base.errors import ServemarkError
from servemark.base.messages import LANGUAGES, catalogue
from servemark.metrics.accuracy import EvalScore
from servemark.metrics.address import Address, all_addresses, parse, statistics_of
from servemark.metrics.derive import read
from servemark.metrics.percentiles import Distribution
from servemark.metrics.registry import METRICS, Better, Denominator, Kind, Metric, Need, Unit
from servemark.results.measures import VALUES
from servemark.results.row import (
    CacheFigures,
    ClientHealth,
    Counts,
    ResultRow,
    Slo,
    SpeculationFigures,
    WindowTokens,
)
from servemark.runs.collect import NIXL

ALL = sorted(METRICS.values(), key=lambda metric: metric.id)
RATE_UNITS = {Unit.TOKENS_PER_S, Unit.REQUESTS_PER_S, Unit.BYTES_PER_S}
GPU_UNITS = {Unit.TOKENS_PER_S_PER_GPU, Unit.REQUESTS_PER_S_PER_GPU}


def ids(metric: Metric) -> str:
    """Test id."""
    return metric.id


@pytest.mark.parametrize("metric", ALL, ids=ids)
@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_metric_is_explained_in_every_language(metric: Metric, lang: str) -> None:
    """Label, definition and formula exist in the language itself, not by falling back to English."""
    known = catalogue(lang, "metrics")
    for key in (metric.label_key, metric.definition_key, metric.formula_key):
        assert known.get(key, "").strip(), f"{lang}: {key}"


def test_no_explanation_is_left_over() -> None:
    """A metric that went away takes its texts with it."""
    parts = ("label", "definition", "formula")
    named = {key.split(".")[1] for key in catalogue("en", "metrics") if key.rsplit(".", 1)[-1] in parts}
    assert named == set(METRICS)


@pytest.mark.parametrize("metric", ALL, ids=ids)
def test_unit_suffix_agrees_with_unit(metric: Metric) -> None:
    """The unit is in the name (law 2): seconds end in _s, rates in _per_s, per-GPU rates in
    _per_s_per_gpu."""
    name = metric.id
    if name.endswith("_per_s_per_gpu"):
        assert metric.unit in GPU_UNITS
        assert metric.denominator is Denominator.GPUS_DEPLOYED
    elif name.endswith("_per_s"):
        assert metric.unit in RATE_UNITS
        during = Denominator.TRANSFER_S if metric.unit is Unit.BYTES_PER_S else Denominator.WINDOW
        assert metric.denominator is during
    elif name.endswith("_s"):
        assert metric.unit is Unit.SECONDS
    else:
        assert metric.unit not in {Unit.SECONDS, *RATE_UNITS, *GPU_UNITS}
    counts_tokens = name.endswith(("_tokens", "_tokens_total")) and not name.startswith("usd_per_")
    assert counts_tokens == (metric.unit is Unit.TOKENS)
    assert name.startswith("usd_") == metric.unit.value.startswith("$")
    assert name.endswith("_per_mw") == metric.unit.value.endswith("/MW")
    assert ("_us_" in name) == (metric.unit is Unit.MICROSECONDS)
    assert name.startswith("requests_") == (
        metric.unit in {Unit.REQUESTS, Unit.REQUESTS_PER_S, Unit.REQUESTS_PER_S_PER_GPU}
    )


@pytest.mark.parametrize("metric", ALL, ids=ids)
def test_latency_is_better_low_and_rate_better_high(metric: Metric) -> None:
    """Direction follows from the unit for everything but the window."""
    if metric.unit is Unit.SECONDS and metric.id != "window_s":
        assert metric.better is Better.LOWER
    if metric.unit in RATE_UNITS | GPU_UNITS | {Unit.TOKENS_PER_S_PER_USER}:
        assert metric.better is Better.HIGHER


def row_fields() -> set[str]:
    """Every dotted figure that a row can hold, from the dataclasses."""
    found = {each.name for each in fields(ResultRow)}
    for name, part in (("counts", Counts), ("cache", CacheFigures), ("client", ClientHealth)):
        found |= {f"{name}.{each.name}" for each in fields(part)}
    found |= {f"tokens.{name}" for name in ("input", "output", "cached")}
    found |= {f"replayed.steady.{each.name}" for each in fields(WindowTokens)}
    found |= {f"replayed.slo.{each.name}" for each in fields(Slo)}
    found |= {f"speculation.{each.name}" for each in fields(SpeculationFigures)}
    found |= {f"observed.kv_transfer.{name}" for name in NIXL}
    for metric in VALUES:
        found |= {f"distributions.{metric}"}
        found |= {f"distributions.{metric}.{each.name}" for each in fields(Distribution)}
    return found


@pytest.mark.parametrize("metric", ALL, ids=ids)
def test_every_place_in_the_row_exists(metric: Metric) -> None:
    """A metric that reads a field which no row has would be absent for ever."""
    known = row_fields()
    if metric.kind is Kind.TASK:
        assert metric.field in {each.name for each in fields(EvalScore)}
    elif metric.kind is Kind.DERIVED:
        assert metric.ratio is not None
        assert not metric.field
        for place in (*metric.ratio.over, *metric.ratio.under, *metric.ratio.per):
            assert place.replace("{q}", "p50") in known
    elif metric.kind is Kind.TELEMETRY:
        assert metric.ratio is None
        assert not metric.field
        assert metric.need in {Need.POWER, Need.POWER_ROLES}
    elif metric.kind is Kind.COST:
        assert metric.need is Need.RATE_CARD
        assert metric.ratio is None
        assert not metric.field
    else:
        assert metric.ratio is None
        assert metric.field in known


def test_every_stored_distribution_has_a_metric() -> None:
    """What the row summarises can be asked for, and nothing else claims to be a distribution."""
    assert {m.id for m in ALL if m.kind is Kind.DISTRIBUTION} == set(VALUES)


@pytest.mark.parametrize("need", list(Need))
@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_need_has_a_reason_in_words(need: Need, lang: str) -> None:
    """An absent value says why. (A missing GPU and a missing window are said differently.)"""
    assert f"metrics.absent.{need.value}" in catalogue(lang, "metrics")


@pytest.mark.parametrize("text", all_addresses())
def test_addresses_round_trip(text: str) -> None:
    """Parsing and printing are inverse."""
    if text != "eval_score":
        assert str(parse(text)) == text
    assert str(parse(f" {text} ")) == text


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("ttft_s.p99.9", "s"),
        ("interactivity.p99.9", "tok/s/user"),
        ("gpu_power_w.mean", "W"),
        ("gpus_energy_j", "J"),
        ("decode_joules_per_output_token", "J/token"),
    ],
)
def test_figures_that_only_points_hold_have_a_name_and_a_unit(text: str, unit: str) -> None:
    """Imported points state them; our own rows answer with a reason."""
    address = parse(text)
    assert (str(address), address.unit) == (text, unit)
    reading = read({"distributions": {"ttft_s": {"p99": 1.0}}}, text)
    assert reading.value is None
    assert reading.reason in catalogue("en", "metrics")


def test_an_accuracy_task_is_named_in_the_address() -> None:
    """Task names may hold dots and dashes."""
    assert parse("eval_score.gsm8k-v1.2") == Address(METRICS["eval_score"], task="gsm8k-v1.2")
    assert parse("eval_score").task is None


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("tttf_s.p90", "metrics.unknown", "ttft_s"),
        ("INTERACTIVTY.p50", "metrics.unknown", "interactivity.p50"),
        ("", "metrics.unknown", "ttft_s.p90"),
        ("ttft_s", "metrics.statistic_missing", "p50"),
        ("ttft_s.p42", "metrics.unknown_statistic", "p50"),
        ("interactivity.mean", "metrics.unknown_statistic", "p90"),
        ("window_s.p50", "metrics.no_statistics", "window_s"),
        ("x" * 100_000, "metrics.unknown", "ttft_s.p90"),
    ],
)
def test_what_is_no_address_gets_an_answer_that_helps(text: str, key: str, said: str) -> None:
    """The nearest names or the choices; never more than a screen, and exit code 2."""
    with pytest.raises(ServemarkError) as caught:
        parse(text)
    assert caught.value.key == key
    assert caught.value.exit_code == 2
    for lang in LANGUAGES:
        assert said in caught.value.what(lang)
        assert len(caught.value.what(lang)) < 1000
        assert caught.value.next_step(lang)


def test_a_rate_has_no_mean_of_its_own() -> None:
    """Mean of rates and inverse of mean latency differ (121.3 against 1/mean in published data): neither is
    offered."""
    assert "mean" not in statistics_of(METRICS["interactivity"])
    assert "mean" in statistics_of(METRICS["tpot_s"])


def test_metrics_alone_are_light() -> None:
    """Reading the registry loads no JSON library and no other room: --help and explain stay fast."""
    code = (
        "import sys, servemark.metrics.registry, servemark.metrics.address, servemark.metrics.derive;"
        "heavy = ('msgspec', 'sqlite3', 'servemark.results', 'servemark.replay');"
        "bad = [m for m in sys.modules if m.startswith(heavy)];"
        "sys.exit(repr(bad) if bad else 0)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert found.returncode == 0, found.stderr
