"""All gates, and how points are judged: many with what stands around them."""

from __future__ import annotations

from collections.abc import Sequence

from servemark.results.gates.base import Context, Gate, GateFinding, Verdict, verdict_of
from servemark.results.point import Point

GATES: tuple[Gate, ...] = ()
_ALONE = Context()

Judged = tuple[tuple[GateFinding, ...], Verdict]


def gates_version() -> str:
    """Every gate with its version: points judged under another one are to be judged again."""
    return ",".join(f"{gate.id}:{gate.version}" for gate in GATES)


def judge(point: Point, context: Context = _ALONE) -> Judged:
    """What every gate says of the point, in the order of GATES, and the verdict: the worst of them."""
    found = tuple(gate.judge(point, context) for gate in GATES)
    return found, verdict_of(found)


def judge_all(points: Sequence[Point]) -> list[Judged]:
    """Each point judged among all others given, in their order."""
    return [judge(point) for point in points]
