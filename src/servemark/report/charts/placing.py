"""Where a point's label goes so that it covers neither another label, another point nor the chart's edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_LINE = 16.0
_REACH = 12.0


@dataclass(frozen=True, slots=True)
class Box:
    """A marker at (x, y) pixels whose label is `width` pixels wide."""

    x: float
    y: float
    width: float


@dataclass(frozen=True, slots=True)
class Spot:
    """A label's baseline relative to its marker, and the end that is anchored there."""

    dx: float
    dy: float
    anchor: str


def place(
    boxes: Sequence[Box], width: float, height: float, *, right_first: bool, up_first: bool
) -> list[Spot]:
    """One spot a box: the first free one of eight, tried from the chart's good corner onwards.

    When all eight are taken the first is used: a label is never dropped.
    """
    taken: list[tuple[float, float, float, float]] = [(b.x - 8, b.y - 8, b.x + 8, b.y + 8) for b in boxes]
    spots: list[Spot] = []
    for index, box in enumerate(boxes):
        others = taken[:index] + taken[index + 1 :]
        choices = _choices(right_first, up_first)
        chosen = choices[0]
        for choice in choices:
            area = _area(box, choice)
            inside = area[0] >= -8 and area[2] <= width + 8 and area[1] >= -10 and area[3] <= height
            if inside and not any(_overlap(area, other) for other in others):
                chosen = choice
                break
        spots.append(chosen)
        taken.append(_area(box, chosen))
    return spots


def _choices(right_first: bool, up_first: bool) -> list[Spot]:
    sides = ["start", "end"] if right_first else ["end", "start"]
    heights = [-_REACH + 2, _REACH + 8] if up_first else [_REACH + 8, -_REACH + 2]
    corners = [Spot(_REACH if side == "start" else -_REACH, dy, side) for dy in heights for side in sides]
    level = [Spot(_REACH + 2 if side == "start" else -_REACH - 2, 4.5, side) for side in sides]
    upright = [Spot(0, -_REACH - 4, "middle"), Spot(0, _REACH + 14, "middle")]
    return corners + level + upright


def _area(box: Box, spot: Spot) -> tuple[float, float, float, float]:
    left = box.x + spot.dx
    if spot.anchor == "end":
        left -= box.width
    elif spot.anchor == "middle":
        left -= box.width / 2
    bottom = box.y + spot.dy + 4
    return left, bottom - _LINE, left + box.width, bottom


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
