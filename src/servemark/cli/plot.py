"""A small scatter with its staircase front, in characters. Draws what it is given; computes no metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class PlotPoint:
    """One point: values on both axes, a one-character label, and whether it is on the front."""

    x: float
    y: float
    label: str
    on_front: bool


def front_plot(
    points: Sequence[PlotPoint], steps: Sequence[tuple[float, float]], width: int, height: int
) -> list[str]:
    """Lines of text, top first. `steps` are the staircase's corners in data units. [] for no points."""
    if not points or width < 10 or height < 4:
        return []
    xs = [p.x for p in points] + [x for x, _ in steps]
    ys = [p.y for p in points] + [y for _, y in steps]
    x_range = _padded(min(xs), max(xs))
    y_range = _padded(min(ys), max(ys))
    grid = [[" "] * width for _ in range(height)]

    def place(x: float, y: float) -> tuple[int, int]:
        column = round((x - x_range[0]) / (x_range[1] - x_range[0]) * (width - 1))
        row = round((y_range[1] - y) / (y_range[1] - y_range[0]) * (height - 1))
        return min(max(column, 0), width - 1), min(max(row, 0), height - 1)

    for (x0, y0), (x1, y1) in pairwise(steps):
        _segment(grid, place(x0, y0), place(x1, y1))
    for point in points:
        column, row = place(point.x, point.y)
        grid[row][column] = "●" if point.on_front else "○"
        for offset, letter in enumerate(f" {point.label}"):
            if column + 1 + offset < width:
                grid[row][column + 1 + offset] = letter
    return ["".join(line).rstrip() for line in grid]


def _segment(grid: list[list[str]], start: tuple[int, int], end: tuple[int, int]) -> None:
    (c0, r0), (c1, r1) = start, end
    if r0 == r1:
        for column in range(min(c0, c1), max(c0, c1) + 1):
            grid[r0][column] = "─"
    else:
        for row in range(min(r0, r1), max(r0, r1) + 1):
            grid[row][c0] = "│"


def _padded(low: float, high: float) -> tuple[float, float]:
    """A range with room around its ends; never empty."""
    span = high - low
    margin = span * 0.12 if span > 0 else max(abs(high) * 0.5, 1.0)
    return max(0.0, low - margin) if low >= 0 else low - margin, high + margin
