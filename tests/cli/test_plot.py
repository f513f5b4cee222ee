"""The small front in characters: points stand where their values say."""

from __future__ import annotations

import pytest

from servemark.cli.plot import PlotPoint, front_plot


def spot(lines: list[str], mark: str) -> tuple[int, int]:
    """(column, row) of a mark."""
    return next((line.index(mark), row) for row, line in enumerate(lines) if mark in line)


def test_higher_is_above_and_larger_is_right() -> None:
    """Two points: the better one in y stands above, the larger in x to the right."""
    lines = front_plot([PlotPoint(10, 5, "c1", True), PlotPoint(2, 50, "c4", False)], [], 40, 10)
    (x1, y1), (x4, y4) = spot(lines, "●"), spot(lines, "○")
    assert x1 > x4 and y1 > y4
    assert "● c1" in lines[y1] and "○ c4" in lines[y4]


@pytest.mark.parametrize("points", [[PlotPoint(3, 3, "c1", True)], [PlotPoint(0, 0, "a", True)] * 2])
def test_degenerate_ranges(points: list[PlotPoint]) -> None:
    """One point, or all at one spot, or at zero: still drawn."""
    lines = front_plot(points, [(p.x, p.y) for p in points], 20, 6)
    assert len(lines) == 6 and "●" in "".join(lines)


def test_nothing_to_draw() -> None:
    """No points or no room: no lines."""
    assert front_plot([], [], 40, 10) == []
    assert front_plot([PlotPoint(1, 1, "x", True)], [], 5, 2) == []


def test_no_label_is_cut_or_run_into_another() -> None:
    """Five loads close together, as of two fronts over each other: whatever is written is the whole name of one of them,
    and every point is there. A label at the right edge stands on the left of its point."""
    loads = ("c1024", "c512", "c256", "c32", "c4")
    points = [PlotPoint(10 + i * 0.4, 5, load, True) for i, load in enumerate(loads)]
    lines = front_plot(
        [*points, PlotPoint(0, 1, "c9999", False), PlotPoint(30, 9, "c7777", False)], [], 40, 10
    )
    words = "".join(line + " " for line in lines).replace("●", " ").replace("○", " ").split()
    assert set(words) <= {*loads, "c9999", "c7777"} and {"c9999", "c7777"} <= set(words)
    edge = front_plot([PlotPoint(0, 0, "c1", True), PlotPoint(1, 1, "c100000", True)], [], 12, 6)
    assert any("c100000 ●" in line for line in edge)
