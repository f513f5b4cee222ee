"""How a figure is written: significant digits, one unit for a whole column, a dash for what is absent.

Nothing depends on the locale: a full stop for decimals, a narrow no-break space between groups of three
digits (from 10 000 on) and before the unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal

from servemark.metrics.registry import Unit

ABSENT = "—"
SPACE = "\u202f"
_EXACT = Context(prec=400, rounding=ROUND_HALF_UP)
_COUNTED = {Unit.COUNT, Unit.REQUESTS, Unit.SESSIONS, Unit.GPUS}
"""Units that the metric's own name already says: "Ok requests: 60" needs no second word."""


def significant(value: float, digits: int = 3) -> str:
    """`value` rounded to `digits` significant digits, never with an exponent; whole parts are never cut. A half is rounded
    away from 0, as browsers do, so that a page and a terminal say the same.

    1234.5 -> 1235, 0.012345 -> 0.0123, 99.96 -> 100. Below 1e-9 it is written 0.
    """
    if not math.isfinite(value):
        return ABSENT
    if abs(value) < 1e-9:
        return "0"
    decimals = min(12, max(0, digits - 1 - math.floor(math.log10(abs(value)))))
    text = _fixed(value, decimals)
    if decimals and len(text.replace("-", "").replace(".", "").lstrip("0")) > digits:
        text = _fixed(value, decimals - 1)  # rounding carried into a new digit: 99.96 -> 100.0 -> 100
    return group(text)


def _fixed(value: float, decimals: int) -> str:
    """What JavaScript's `toFixed` gives; `format` would round a half to the even digit."""
    return format(_EXACT.quantize(Decimal(value), Decimal(1).scaleb(-decimals)), "f")


def group(text: str) -> str:
    """Groups of three in the whole part, from five digits on (a four-digit number reads well as it is)."""
    sign, body = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, dot, rest = body.partition(".")
    if len(whole) > 4:
        whole = f"{int(whole):,}".replace(",", SPACE)
    return f"{sign}{whole}{dot}{rest}"


@dataclass(frozen=True, slots=True)
class Display:
    """The unit in which stored values are shown and the factor that leads to it."""

    unit: str
    factor: float = 1.0
    whole: bool = False

    def number(self, value: float | None) -> str:
        """The number without its unit."""
        if value is None or not math.isfinite(value):
            return ABSENT
        shown = value * self.factor
        if self.whole and float(shown).is_integer():
            return group(f"{shown:.0f}")
        return significant(shown)

    def text(self, value: float | None) -> str:
        """The number with its unit."""
        number = self.number(value)
        return number if number == ABSENT or not self.unit else f"{number}{SPACE}{self.unit}"


def display(unit: Unit | str, values: Iterable[float | None] = ()) -> Display:
    """How values stored in `unit` are shown, all alike so that a column compares: seconds below 1 s as ms
    (below 1 ms as µs), shares as per cent, counts without a unit word."""
    known = [abs(value) for value in values if value is not None and math.isfinite(value)]
    largest = max(known, default=None)
    if unit == Unit.SECONDS and largest is not None and largest < 1:
        return Display("µs", 1e6) if 0 < largest < 1e-3 else Display("ms", 1e3)
    if unit == Unit.SHARE:
        return Display("%", 100.0)
    if unit in _COUNTED:
        return Display("", whole=True)
    return Display(str(unit), whole=unit == Unit.TOKENS)


def one(value: float | None, unit: Unit | str) -> str:
    """A single figure in the unit that suits it."""
    return display(unit, (value,)).text(value)
