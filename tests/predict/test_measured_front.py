"""The page of the measured front: what it says `predict` says, from the rows that are attached to it; and both kinds of
weights in one store."""

from __future__ import annotations

import json
import statistics
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.analysis.measured import Measured, of_point
from servemark.catalog.suite import load_suite
from servemark.plan.strict import Wishes, plan_suite
from servemark.predict.forecast import Forecast, Forecaster
from servemark.predict.matching import known_configurations, matches
from servemark.predict.outlook import axes_of, measured_spots, scope_of
from servemark.predict.planned import PlannedPoint, planned_of_row
from servemark.results.importers.own import point_of
from servemark.results.serialize import row_from_json
from servemark.runs.scenario import planned_scenario

ROOT = Path(__file__).resolve().parents[2]
ARM = "qwen3-8b-dummy-bf16-h200-vllm-"
ARMS = {"aggregated": "agg", "1P1D": "nixl-disagg-1p1d"}
ARMS_ZH = {"聚合": "agg", "1P1D": "nixl-disagg-1p1d"}


@pytest.fixture(scope="module")
def measured() -> list[tuple[str, Measured]]:
    """(arm, point) of every row."""
    with tarfile.open(ROOT / "docs" / "data" / "h200-qwen3" / "rows.tar.xz") as archive:
        names = [m for m in archive if m.name.startswith("./runs/") and m.name.endswith("/result.json")]
        files = [archive.extractfile(name) for name in names]
        rows = [row_from_json(json.loads(file.read()), "row") for file in files if file is not None]
    return [(row.arm, of_point(point_of(row), f"{n}:0", "valid")) for n, row in enumerate(rows)]


@pytest.fixture(scope="module")
def planned() -> dict[tuple[str, int], PlannedPoint]:
    """The suite's points by arm and concurrency."""
    suite = load_suite("h200-qwen3")
    made = plan_suite(suite, Wishes(scenario_of=lambda entry, found: planned_scenario(suite, entry, found)))
    return {(row.arm.key, row.concurrency): planned_of_row(row) for row in made.rows}


def left_out(measured: list[tuple[str, Measured]], point: PlannedPoint, arm: str) -> Forecast:
    """The forecast of a load that nobody shows it."""
    some = [p for key, p in measured if (key, p.concurrency) != (arm, point.concurrency)]
    assert len(some) == 32
    return Forecaster(some).forecast(point)


@pytest.mark.parametrize(
    ("page", "arms"), [("measured-front-h200.md", ARMS), ("zh/measured-front-h200.md", ARMS_ZH)]
)
def test_the_table_is_what_the_program_says(
    measured: list[tuple[str, Measured]],
    planned: dict[tuple[str, int], PlannedPoint],
    page: str,
    arms: dict[str, str],
) -> None:
    """Predicted and measured figure of each row; the configuration is matched exactly, and a doubtful TTFT says so."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for shown, name in arms.items():
        for load in (16, 64):
            arm = ARM + name
            found = left_out(measured, planned[arm, load], arm)
            assert found.nearest is not None
            assert (found.nearest.level, found.nearest.differs, found.nearest.unstated) == ("exact", (), ())
            cells = []
            for address, scale, form in (
                ("tpot_s.p50", 1e3, ".2f"),
                ("total_tokens_per_s_per_gpu", 1, ",.0f"),
                ("ttft_s.p50", 1e3, ".0f"),
            ):
                truth = statistics.median(
                    value
                    for key, p in measured
                    if (key, p.concurrency) == (arm, load) and (value := p.value(address)) is not None
                )
                figure = found.figure(address)
                assert figure is not None and figure.value is not None
                assert figure.low is None and figure.reason == "predict.fit.few_residuals"
                error = figure.value / truth - 1
                sign = "\N{MINUS SIGN}" if error < 0 else "+"
                percent = f"{abs(error) * 100:.{0 if 'ttft' in address else 1}f} %"
                cells.append(f"| {figure.value * scale:{form}} | {truth * scale:{form}} | {sign}{percent} |")
            assert found.predictions is not None
            doubt = [values for key, values in found.predictions.notes if key == "predict.fit.note.queue"]
            assert len(doubt) == 1 and doubt[0]["low"] in (1, 16)
            place = next(
                n
                for n, line in enumerate(text.splitlines())
                if line.startswith((f"| {shown}, {load} ", f"| {shown}\uff0c{load} "))
            )
            lines = text.splitlines()[place : place + 3]
            assert [cell in line for cell, line in zip(cells, lines, strict=True)] == [True] * 3, (
                cells,
                lines,
            )


def own(point: Measured, factor: float) -> Measured:
    """The same as if the model's own weights had run, that much slower."""
    extra = {name: value for name, value in point.identity.extra.items() if name != "weights"}
    identity = replace(point.identity, extra=extra)
    figures = {name: value * factor for name, value in point.figures.items()}
    return replace(
        point,
        ref=f"own-{point.ref}",
        identity=identity,
        figures=figures,
        config_key=identity.config_key,
        point_key=identity.point_key,
    )


def test_dummy_and_real_weights_inform_each_other_of_nothing(
    measured: list[tuple[str, Measured]], planned: dict[tuple[str, int], PlannedPoint]
) -> None:
    """Rows of both kinds in one store: each gets the figures that it gets alone, and with rows of the other kind alone
    nothing can be said, not even a band or kin."""
    dummies = [p for _, p in measured]
    reals = [own(p, 3.0) for p in dummies]
    asked = planned[ARM + "agg", 64]
    real = replace(
        asked,
        identity=replace(
            asked.identity, extra={n: v for n, v in asked.identity.extra.items() if n != "weights"}
        ),
    )
    both = Forecaster([*dummies, *reals])
    for point, alone in ((asked, dummies), (real, reals)):
        mixed, single = both.forecast(point), Forecaster(alone).forecast(point)
        assert mixed.predictions == single.predictions
        assert mixed.nearest is not None and single.nearest is not None
        assert mixed.nearest.config_key == single.nearest.config_key
        assert both.apart(point) == 35
    assert both.forecast(asked).figure("tpot_s.p50") != both.forecast(real).figure("tpot_s.p50")
    for point, others in ((asked, reals), (real, dummies)):
        assert matches(point.identity, known_configurations(others)) == []
        found = Forecaster(others).forecast(point)
        assert (found.nearest, found.predictions, found.measured) == (None, None, ())
        assert found.cannot == "predict.use.nothing"
        axes = axes_of([both.forecast(point)])
        assert measured_spots([found], others, axes) == []
    assert scope_of(asked.identity) != scope_of(real.identity)
