"""The path that draws a front: the edge of what was shown to be attainable, never a line between two
points."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from servemark.analysis.front import Front
from servemark.metrics.registry import Better

Vertex = tuple[float, float]


def staircase(result: Front, bounds: tuple[Vertex, Vertex] | None = None) -> tuple[Vertex, ...]:
    """Vertices (x, y) of the staircase, x ascending, in the metrics' units; empty for an empty front.

    Between two neighbours a < b in x only one reaches a target that lies between them: b where a higher x is
    better, a where a lower x is. The step therefore runs at that point's y. `bounds` ((x_low, y_low),
    (x_high, y_high)) extends the ends to the edge of a drawing: along x on the side that is easier, along y
    to the worst edge on the side that nobody reached.
    """
    points: list[Vertex] = []
    for candidate in result.on:
        if (
            candidate.x is not None
            and candidate.y is not None
            and (candidate.x, candidate.y) not in points[-1:]
        ):
            points.append((candidate.x, candidate.y))
    if not points:
        return ()
    higher = result.x_better is Better.HIGHER
    path: list[Vertex] = [points[0]]
    for here, there in pairwise(points):
        path.append((here[0], there[1]) if higher else (there[0], here[1]))
        path.append(there)
    return tuple(_extended(path, result, bounds, higher) if bounds else path)


def _extended(
    path: Sequence[Vertex], result: Front, bounds: tuple[Vertex, Vertex], higher: bool
) -> list[Vertex]:
    """The path with its two ends led to the edges of the drawing."""
    (x_low, y_low), (x_high, y_high) = bounds
    worst_y = y_low if result.y_better is Better.HIGHER else y_high
    first, last = path[0], path[-1]
    if higher:
        return [(min(x_low, first[0]), first[1]), *path, (last[0], worst_y)]
    return [(first[0], worst_y), *path, (max(x_high, last[0]), last[1])]
