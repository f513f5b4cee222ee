"""What must be alike for two points to stand on one front: model, workload, acceptance policy, definition of the figures.

Hardware, engine, precision, speculation and topology are what a front compares; they are not asked here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from servemark.base.messages import text
from servemark.results.gates.evals import FORCED

if TYPE_CHECKING:
    from servemark.analysis.measured import Measured
    from servemark.metrics.figures import FigureReading

_LENGTHS = ("mean_input_tokens", "mean_output_tokens")
"""What tells workloads apart whose lengths nobody declared."""


@dataclass(frozen=True, slots=True)
class Comparable:
    """Points with equal values may share a front. `definitions` are those of the figures on the axes, empty where the
    point lacks a figure."""

    model: str
    workload: str
    loop: str
    acceptance: str
    definitions: tuple[str, ...] = ()

    def without_definitions(self) -> tuple[str, str, str, str]:
        """What is known of a point that lacks a figure."""
        return self.model, self.workload, self.loop, self.acceptance


def comparable(point: Measured, readings: tuple[FigureReading, ...]) -> Comparable:
    """What this point may be compared with, on the axes of `readings`."""
    identity = point.identity
    scenario = identity.scenario
    more = [f"range {scenario.range_ratio:g}"] if scenario.range_ratio is not None else []
    if scenario.rules:
        more.append(f"rules {scenario.rules}")
    if scenario.dataset and scenario.isl is not None:
        more.append(scenario.dataset)
    lengths = [str(found) for name in _LENGTHS if (found := identity.extra.get(name)) is not None]
    if lengths:
        more.append("/".join(lengths))
    speculation = identity.speculation
    policy = (speculation.acceptance or "").lower() if speculation is not None else ""
    known = all(reading.value is not None for reading in readings)
    return Comparable(
        identity.model,
        " ".join([point.scenario, *more]),
        "open" if scenario.arrivals else "closed",
        "forced" if policy in FORCED else "real",
        _definitions(point, readings) if known else (),
    )


def _definitions(point: Measured, readings: tuple[FigureReading, ...]) -> tuple[str, ...]:
    names = (name for reading in readings for name, _ in reading.made_of)
    return tuple(sorted({point.definitions[name] for name in names if name in point.definitions}))


def difference(one: Comparable, others: list[Comparable], lang: str | None = None) -> str:
    """One group in words: its model and workload, and what else tells it from the other groups."""
    said = [one.model, one.workload]
    for name in ("loop", "acceptance"):
        if len({getattr(each, name) for each in others}) > 1:
            said.append(text(f"front.comparable.{name}.{getattr(one, name)}", lang))
    alike = {each.definitions for each in others if each.without_definitions() == one.without_definitions()}
    if len(alike) > 1 and one.definitions:
        said.append(text("front.comparable.definition", lang, definitions=", ".join(one.definitions)))
    return " · ".join(said)
