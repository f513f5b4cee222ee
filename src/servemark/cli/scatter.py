"""A scatter in characters for many points of several series: letters on the front, dots below it, a staircase between.
Draws what it is given; computes no metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

EMPTY, STEP_ACROSS, STEP_UP, OTHER = " ", "─", "│", "·"


@dataclass(frozen=True, slots=True)
class Mark:
    """One point: values on both axes, one letter, and what it is for: `front`, `other`."""

    x: float
    y: float
    letter: str
    front: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """One character, and whether it is a mark of the front, a step of its staircase or anything else."""

    letter: str = EMPTY
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """Values of the first and the last cell."""

    low: float
    high: float

    def place(self, value: float, cells: int) -> int:
        """Where a value stands among so many cells."""
        if self.high <= self.low:
            return cells // 2
        return min(max(round((value - self.low) / (self.high - self.low) * (cells - 1)), 0), cells - 1)


def scales(marks: Sequence[Mark]) -> tuple[Scale, Scale]:
    """Scales that hold all marks; from 0 where the values are positive and 0 is not far: lengths then compare."""
    return _scale([mark.x for mark in marks]), _scale([mark.y for mark in marks])


def _scale(values: Sequence[float]) -> Scale:
    low, high = min(values), max(values)
    if low == high:
        return Scale(low, high)
    return Scale(0.0, high) if 0 <= low <= 0.5 * high else Scale(low, high)


def scatter(
    marks: Sequence[Mark], path: Sequence[tuple[float, float]], width: int, height: int
) -> list[list[Cell]]:
    """Rows of cells, the highest y first; [] for no marks or no room. Marks of the front are drawn over all others."""
    if not marks or width < 10 or height < 4:
        return []
    x_scale, y_scale = scales(marks)
    grid = [[Cell() for _ in range(width)] for _ in range(height)]

    def place(x: float, y: float) -> tuple[int, int]:
        return x_scale.place(x, width), height - 1 - y_scale.place(y, height)

    for start, end in pairwise([place(x, y) for x, y in path]):
        _step(grid, start, end)
    for mark in sorted(marks, key=lambda each: each.front):
        column, row = place(mark.x, mark.y)
        grid[row][column] = Cell(mark.letter, "front") if mark.front else Cell(OTHER, "other")
    return grid


def _step(grid: list[list[Cell]], start: tuple[int, int], end: tuple[int, int]) -> None:
    (c0, r0), (c1, r1) = start, end
    for row in range(min(r0, r1), max(r0, r1) + 1):
        for column in range(min(c0, c1), max(c0, c1) + 1):
            grid[row][column] = Cell(STEP_ACROSS if r0 == r1 else STEP_UP, "step")
