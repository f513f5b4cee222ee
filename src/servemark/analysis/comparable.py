"""What must be alike for two points to stand on one front: model and its weights, workload, acceptance policy, definition
of the figures.

Hardware, engine, precision, speculation and topology are what a front compares; they are not asked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from servemark.base.messages import text
from servemark.results.gates.evals import FORCED

if TYPE_CHECKING:
    from servemark.analysis.axes import Reading
    from servemark.analysis.measured import Measured
    from servemark.results.point import PointIdentity

_LENGTHS = ("mean_input_tokens", "mean_output_tokens")
"""What tells workloads apart whose lengths nobody declared."""
ALIKE_LENGTHS = 1.05
"""Undeclared lengths within 5 % of one another are taken for samples of one workload."""

MODEL_WEIGHTS = "model"
"""The model's own weights, as a point's identity leaves unsaid."""

Lengths = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Comparable:
    """Points with equal values may share a front. `definitions` are those of the figures on the axes, empty where the
    point lacks a figure."""

    model: str
    workload: str
    loop: str
    acceptance: str
    definitions: tuple[str, ...] = ()
    weights: str = MODEL_WEIGHTS
    """`dummy` where the engine's weights were random values."""

    def without_definitions(self) -> tuple[str, str, str, str, str]:
        """What is known of a point that lacks a figure."""
        return self.model, self.workload, self.loop, self.acceptance, self.weights


def weights_of(point: Measured) -> str:
    """`dummy`, or `model` where nobody says otherwise."""
    return stated_weights(point.identity)


def stated_weights(identity: PointIdentity) -> str:
    """The same of an identity, planned or measured."""
    said = identity.extra.get("weights")
    return said if isinstance(said, str) and said else MODEL_WEIGHTS


def undeclared_lengths(point: Measured) -> Lengths:
    """Mean tokens of prompts and replies where they stand for the workload; empty where lengths were declared."""
    found = (point.identity.extra.get(name) for name in _LENGTHS)
    return tuple(float(each) for each in found if isinstance(each, int | float))


def length_classes(points: Iterable[Measured]) -> dict[Lengths, str]:
    """Undeclared lengths -> the class of lengths that they belong to, in words. Along each length in turn a class ends
    where the next value is more than `ALIKE_LENGTHS` times its smallest."""
    every = sorted({lengths for point in points if (lengths := undeclared_lengths(point))})
    return {each: label for some in _split(every, 0) for label in [_named(some)] for each in some}


def _split(some: list[Lengths], place: int) -> list[list[Lengths]]:
    """Classes of equally many parts, alike from `place` on."""
    if not some or place >= max(len(each) for each in some):
        return [some] if some else []
    classes: list[list[Lengths]] = []
    for each in sorted(some, key=lambda lengths: lengths[place : place + 1]):
        first = classes[-1][0] if classes else None
        if (
            first is not None
            and first[place:]
            and each[place:]
            and each[place] <= first[place] * ALIKE_LENGTHS
        ):
            classes[-1].append(each)
        else:
            classes.append([each])
    return [inner for one in classes for inner in _split(one, place + 1)]


def _named(some: list[Lengths]) -> str:
    """`10240/128`, or `7147-7207/902-914` where they differ."""
    parts = zip(*some, strict=False)
    return "/".join(f"{min(p):g}" if min(p) == max(p) else f"{min(p):g}-{max(p):g}" for p in parts)


def comparable(
    point: Measured, readings: tuple[Reading, ...], lengths: Mapping[Lengths, str] | None = None
) -> Comparable:
    """What this point may be compared with, on the axes of `readings`; `lengths` as `length_classes` gives them for
    all points that are compared; without them undeclared lengths must be equal."""
    identity = point.identity
    scenario = identity.scenario
    more = [f"range {scenario.range_ratio:g}"] if scenario.range_ratio is not None else []
    if scenario.rules:
        more.append(f"rules {scenario.rules}")
    if scenario.dataset and scenario.isl is not None:
        more.append(scenario.dataset)
    if undeclared := undeclared_lengths(point):
        classes = lengths if lengths is not None else length_classes((point,))
        more.append(classes[undeclared])
    speculation = identity.speculation
    policy = (speculation.acceptance or "").lower() if speculation is not None else ""
    known = all(reading.value is not None for reading in readings)
    return Comparable(
        identity.model,
        " ".join([point.scenario, *more]),
        "open" if scenario.arrivals else "closed",
        "forced" if policy in FORCED else "real",
        _definitions(point, readings) if known else (),
        weights_of(point),
    )


def _definitions(point: Measured, readings: tuple[Reading, ...]) -> tuple[str, ...]:
    names = (name for reading in readings for name, _ in reading.made_of)
    return tuple(sorted({point.definitions[name] for name in names if name in point.definitions}))


def difference(one: Comparable, others: list[Comparable], lang: str | None = None) -> str:
    """One group in words: its model and workload, and what else tells it from the other groups."""
    said = [one.model, one.workload]
    if one.weights != MODEL_WEIGHTS:  # said always: such figures hold for no model's answers
        said.append(text("front.comparable.weights", lang, weights=one.weights))
    for name in ("loop", "acceptance"):
        if len({getattr(each, name) for each in others}) > 1:
            said.append(text(f"front.comparable.{name}.{getattr(one, name)}", lang))
    alike = {each.definitions for each in others if each.without_definitions() == one.without_definitions()}
    if len(alike) > 1 and one.definitions:
        said.append(text("front.comparable.definition", lang, definitions=", ".join(one.definitions)))
    return " · ".join(said)
