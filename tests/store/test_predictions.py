"""Predictions out of a manifest's expectations into the store and back; what is none is left out, none is counted twice."""

from __future__ import annotations

import io
import runpy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.results.gates.registry import judge_all
from servemark.results.importers.base import Given, Importer
from servemark.results.point import Execution, Mapped, Point
from servemark.store.database import Store
from servemark.store.found_files import Found
from servemark.store.intake import Intake, map_again, take_in
from servemark.store.points import PointFilter, load_points
from servemark.store.predictions import FIELD, foretold_of, plain_figures, predictions_of, record
from servemark.store.raw_files import RawFiles

SOUND = runpy.run_path(str(Path(__file__).parents[1] / "results" / "sound_point.py"))
sound = SOUND["sound"]


def figure(metric: str, **changes: object) -> dict[str, object]:
    """A figure as a manifest holds it."""
    body: dict[str, object] = {
        "metric": metric,
        "class": "interpolated",
        "value": 100.0,
        "low": 90.0,
        "high": 130.0,
        "level": 0.9,
        "residuals": 40,
        "reason": None,
    }
    return body | changes


def foretold(*figures: object, **changes: object) -> Point:
    """The sound point with a prediction of the day before."""
    said = {"schema": 1, "made_utc": "2025-12-31T23:59:00Z", "fit": "ab12", "figures": list(figures)}
    point: Point = sound(expected={FIELD: said | changes})
    return point


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    with Store.open(tmp_path / "store.sqlite") as opened:
        yield opened


def taken(store: Store, folder: Path, *points: Point) -> Intake:
    """The points imported from one file."""

    def read(_: Given) -> Iterator[Mapped]:
        for number, point in enumerate(points):
            yield Mapped(number, "mapped", point)

    intake = Intake(RawFiles(folder / "raw"), (Importer("made", 1, "made", lambda _: 1.0, read),), judge_all)
    report = take_in(store, intake, Found("made.bin", 4, lambda: io.BytesIO(b"made")))
    assert report.error is None
    return intake


def test_measured_stands_beside_what_was_foretold(store: Store, tmp_path: Path) -> None:
    """The sound point measures 128 output tok/s/GPU and a TPOT p50 of 9.75/1023 s (see sound_point): 100 is 28/128 too
    low and 128 lies within 90..130; interactivity is made of the latency; a metric that was not measured stays open."""
    taken(
        store,
        tmp_path,
        foretold(
            figure("output_tokens_per_s_per_gpu"),
            figure("interactivity.p50", value=110.0, low=105.0, high=120.0),
            figure("ttfo_s.p50"),
        ),
    )
    (one,) = load_points(store, PointFilter())
    found = {each.metric: each for each in predictions_of(store, one.id)}
    rate = found["output_tokens_per_s_per_gpu"]
    assert (rate.measured, rate.inside, rate.klass, rate.fit) == (128.0, True, "interpolated", "ab12")
    assert rate.error == pytest.approx(-28 / 128)
    speed = found["interactivity.p50"]
    assert speed.measured == pytest.approx(1023 / 9.75)
    assert speed.inside is False  # 104.9 is below 105
    assert (found["ttfo_s.p50"].measured, found["ttfo_s.p50"].error, found["ttfo_s.p50"].inside) == (
        None,
    ) * 3
    assert [each.foretold.metric for each in record(store)] == [
        "interactivity.p50",
        "output_tokens_per_s_per_gpu",
    ]


def test_mapped_again_is_counted_once_and_goes_with_its_point(store: Store, tmp_path: Path) -> None:
    """Mapping anew replaces rows; without points there are no predictions."""
    intake = taken(store, tmp_path, foretold(figure("output_tokens_per_s_per_gpu")))
    for _ in range(2):
        assert [report.error for report in map_again(store, intake)] == [None]
    assert len(list(record(store))) == 1
    nothing = replace(intake, importers=(Importer("made", 2, "made", lambda _: 1.0, lambda _: iter(())),))
    list(map_again(store, nothing))
    assert store.query("SELECT count(*) FROM prediction") == [(0,)]
    assert store.check() == []


def test_doubted_points_do_not_count(store: Store, tmp_path: Path) -> None:
    """A quarantined point (a tpot that contradicts its rate 42-fold) says nothing of the model."""
    point = foretold(figure("output_tokens_per_s_per_gpu"))
    wrong = SOUND["with_figures"](
        point, output_tokens_per_s_per_gpu=3.0, total_tokens_per_s_per_gpu=6.0, input_tokens_per_s_per_gpu=3.0
    )
    taken(store, tmp_path, wrong)
    (one,) = load_points(store, PointFilter())
    assert one.verdict == "quarantined"
    assert predictions_of(store, one.id)
    assert list(record(store)) == []


@pytest.mark.parametrize(
    "figures",
    [
        "text",
        [5],
        [figure("no_such_metric")],
        [figure("tpot_s.p50", value=float("nan")) | {"class": "guess"}],
        [figure("tpot_s.p50", level=1.0)],
        [figure("tpot_s.p50", residuals=True)],
        [figure("tpot_s.p50", low=None)],
        [figure("tpot_s.p50", low=2.0, high=1.0)],
        [figure("tpot_s.p50", reason="<script>")],
        [figure("tpot_s.p50") | {"class": "none"}],
        [figure("tpot_s.p50", value=10**400, residuals=-1)],
        [figure("tpot_s.p50")] * 65,
        [figure("tpot_s.p50", value=-1.0, low=-2.0, high=1.0)],
        [figure("tpot_s.p50", value=1e308, low=0.0, high=1e308)],
    ],
)
def test_what_is_no_prediction_is_left_out(figures: object) -> None:
    """A folder from elsewhere may say anything; class none never has a value."""
    assert foretold_of(foretold(figures=figures)) == ()


def test_said_afterwards_is_no_prediction() -> None:
    """Written a minute after the start, or without a time."""
    good = figure("tpot_s.p50")
    assert len(foretold_of(foretold(good))) == 1
    assert foretold_of(foretold(good, made_utc="2026-01-01T00:01:00Z")) == ()
    assert foretold_of(foretold(good, made_utc="yesterday")) == ()
    assert foretold_of(foretold(good, made_utc="2025-99-99T99:99:99Z")) == ()
    assert foretold_of(foretold(good, made_utc="٢٠٢٥-12-31T23:59:00Z")) == ()
    by_day = replace(foretold(good), execution=Execution("r1", 1, "2025-12-31"))
    assert len(foretold_of(by_day)) == 1  # a date alone says no more than the day


def test_an_error_beyond_floats_is_none() -> None:
    """(1e15 - m) / m overflows for the least m that a float can hold."""
    (one,) = foretold_of(foretold(figure("tpot_s.p50", value=1e15, low=0.0, high=1e15)))
    assert one._replace(measured=5e-324).error is None


def test_round_trip_through_a_manifest() -> None:
    """What `plain_figures` writes is read back as it was."""
    found = foretold_of(
        foretold(
            figure("tpot_s.p50"),
            figure("ttft_s.p50", value=None, low=None, high=None, reason="predict.use.none")
            | {"class": "none"},
        )
    )
    again = foretold_of(foretold(*plain_figures(found)))
    assert again == found and len(again) == 2
