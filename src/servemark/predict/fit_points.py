"""Measured points as the speed model takes them, and its figures back as the point has them.

The model knows requests by their input and output tokens. A scenario that fixes none (a trace, agents' sessions) gets the
mean lengths that its data set measured: within one data set they are the same at every load, so a curve over concurrency
stays a curve. A machine without GPUs counts as one, and its throughput is told for the whole deployment, never per GPU.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from servemark.analysis.measured import Measured
from servemark.metrics.address import parse
from servemark.predict.speed_types import OUTPUT_PER_GPU, TOTAL_PER_GPU
from servemark.predict.types import Predicted
from servemark.results.point import Scenario

_INPUT, _OUTPUT = parse("input_tokens.mean"), parse("output_tokens.mean")
WHOLE: Mapping[str, str] = {
    TOTAL_PER_GPU: "total_tokens_per_s",
    OUTPUT_PER_GPU: "output_tokens_per_s",
}
"""A figure per GPU -> the same of the whole deployment."""
Lengths = tuple[int, int]


def dataset_lengths(points: Iterable[Measured]) -> dict[tuple[str, str | None], Lengths]:
    """(scenario type, data set) -> median over points of mean input and output tokens a request, of scenarios that fix no
    lengths; a data set of which nobody measured lengths is missing. The points are of one kind of weights: random ones end
    replies where no model would."""
    found: dict[tuple[str, str | None], list[tuple[float, float]]] = defaultdict(list)
    for point in points:
        scenario = point.identity.scenario
        if fixed_lengths(scenario) is None:
            given, made = point.value(_INPUT), point.value(_OUTPUT)
            if given and made:
                found[scenario.type, scenario.dataset].append((given, made))
    return {
        key: (
            max(1, round(statistics.median(one for one, _ in some))),
            max(1, round(statistics.median(one for _, one in some))),
        )
        for key, some in found.items()
    }


def fixed_lengths(scenario: Scenario) -> Lengths | None:
    """Input and output tokens that a scenario fixes; None where it does not."""
    return None if scenario.isl is None or scenario.osl is None else (scenario.isl, scenario.osl)


def lengths_of(scenario: Scenario, known: Mapping[tuple[str, str | None], Lengths]) -> Lengths | None:
    """Lengths of a request as the scenario fixes them, else as its data set measured; None where neither says."""
    return fixed_lengths(scenario) or (
        known.get((scenario.type, scenario.dataset)) if scenario.dataset is not None else None
    )


def fit_points(points: Sequence[Measured]) -> list[Measured]:
    """The points with lengths and GPUs as the model takes them; one that has both already is the same object."""
    known = dataset_lengths(points)
    return [fit_point(point, known) for point in points]


def fit_point(point: Measured, known: Mapping[tuple[str, str | None], Lengths]) -> Measured:
    """One point for the model."""
    scenario = point.identity.scenario
    lengths = lengths_of(scenario, known) if fixed_lengths(scenario) is None else None
    if lengths is not None:
        identity = replace(point.identity, scenario=replace(scenario, isl=lengths[0], osl=lengths[1]))
        point = replace(point, identity=identity)
    if point.gpus_deployed == 0:
        figures = {name: value for name, value in point.figures.items() if not name.endswith("_per_gpu")}
        point = replace(point, gpus_deployed=1, figures=figures)
    return point


def told(figures: Mapping[str, Predicted], gpus: int) -> dict[str, Predicted]:
    """The model's figures as a deployment of so many GPUs has them: without any, throughput is the whole deployment's."""
    if gpus:
        return dict(figures)
    return {
        WHOLE.get(name, name): replace(figure, metric=WHOLE.get(name, name))
        for name, figure in figures.items()
    }
