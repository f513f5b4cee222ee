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
    for point in points:
        _name(grid, *place(point.x, point.y), point.label)
    return ["".join(line).rstrip() for line in grid]


def _name(grid: list[list[str]], column: int, row: int, label: str) -> None:
    """Write a label beside its point, to the right or else to the left; not at all where it would run into another one,
    because half a label is a wrong one."""
    right = (column + 1, f" {label}", column + len(label) + 2)
    left = (column - len(label) - 1, f"{label} ", column - len(label) - 2)
    line = grid[row]
    for start, written, beyond in (right, left):
        cells = range(start, start + len(written))
        if cells.start < 0 or cells.stop > len(line):
            continue
        near = [line[at] for at in (*cells, beyond) if 0 <= at < len(line)]
        if not any(cell in "●○" or cell.isalnum() for cell in near):
            line[cells.start : cells.stop] = written
            return


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
