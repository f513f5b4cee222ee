"""Figures of a point: single stated values, and many of them that share what is not a number.

Rows of one source state the same metrics, with the same definitions, at the same places: `FigureShape` holds these once,
and `Figures` the numbers of a row. It behaves as the `dict[str, Figure]` that it stands for; a `Figure` is made when one is
asked for, so whoever wants numbers of many points (the store, the gates) never makes any.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping, Sequence
from typing import TypeVar, overload

import msgspec

T = TypeVar("T")
Row = tuple[str, str, str]
"""(address, definition, at) of one figure."""
MAX_LONGER = 1024
"""Longer shapes that a shape remembers; real sources have a handful."""


class Figure(msgspec.Struct, frozen=True, gc=False):
    """One stated value in base units. `definition` names the formula and percentile rule of the tool that made it:
    figures with unlike definitions do not belong on one axis unmarked. `at` is the place within the raw row (a JSON
    pointer, or `line:field`); `stated` is the number as written there when units were converted or a denominator was
    changed, and `how` says what was done to it. A struct: a point has dozens, and dataclasses take eight times as long."""

    value: float
    definition: str
    at: str
    stated: float | None = None
    how: str | None = None


class FigureShape:
    """What figures of many points have in common, in the order in which they are listed. Two shapes are the same only where
    they are one object: whoever makes points keeps his."""

    __slots__ = ("_longer", "addresses", "places", "rows")

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)
        self.addresses = tuple(address for address, _, _ in self.rows)
        self.places = {address: place for place, address in enumerate(self.addresses)}
        """address -> place among the numbers."""
        self._longer: dict[tuple[Row, ...], FigureShape] = {}

    def longer(self, rows: tuple[Row, ...]) -> FigureShape:
        """This shape with more figures after its own, made once. Their addresses must be new."""
        found = self._longer.get(rows)
        if found is None:
            if len(self._longer) >= MAX_LONGER:
                self._longer.clear()
            found = self._longer[rows] = FigureShape(self.rows + rows)
        return found


class Figures(Mapping[str, Figure]):
    """The figures of one point: `numbers` in the order of the shape. `stated` and `hows` are as long, or empty where no
    figure was changed. Never changed once made."""

    __slots__ = ("hows", "numbers", "shape", "stated")

    def __init__(
        self,
        shape: FigureShape,
        numbers: tuple[float, ...],
        stated: tuple[float | None, ...] = (),
        hows: tuple[str | None, ...] = (),
    ) -> None:
        self.shape = shape
        self.numbers = numbers
        self.stated = stated
        self.hows = hows

    def __getitem__(self, address: str) -> Figure:
        place = self.shape.places[address]
        _, definition, at = self.shape.rows[place]
        if self.hows:
            return Figure(self.numbers[place], definition, at, self.stated[place], self.hows[place])
        return Figure(self.numbers[place], definition, at)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shape.addresses)

    def __len__(self) -> int:
        return len(self.numbers)

    def __contains__(self, address: object) -> bool:
        return address in self.shape.places

    def __repr__(self) -> str:
        return repr(dict(self))

    def keys(self) -> KeysView[str]:
        """As of a dict."""
        return self.shape.places.keys()

    @overload
    def get(self, address: str, /) -> Figure | None: ...

    @overload
    def get(self, address: str, default: Figure | T, /) -> Figure | T: ...

    def get(self, address: str, default: object = None, /) -> object:
        """As of a dict; without the exception that `Mapping.get` makes for every absent figure."""
        return self[address] if address in self.shape.places else default

    def number(self, address: str) -> float | None:
        """A stated value; None where it is absent. No `Figure` is made."""
        place = self.shape.places.get(address)
        return None if place is None else self.numbers[place]

    def with_more(self, more: Mapping[str, Figure]) -> Mapping[str, Figure]:
        """These and others after them; one of an address that is here already takes its place."""
        if not self.shape.places.keys().isdisjoint(more):
            return {**self, **more}
        rows = tuple([(address, each.definition, each.at) for address, each in more.items()])
        numbers = self.numbers + tuple([each.value for each in more.values()])
        hows = tuple([each.how for each in more.values()])
        stated = tuple([each.stated for each in more.values()])
        if not self.hows and hows.count(None) == len(hows) == stated.count(None):
            return Figures(self.shape.longer(rows), numbers)
        before = (None,) * len(self.numbers)
        return Figures(
            self.shape.longer(rows), numbers, (self.stated or before) + stated, (self.hows or before) + hows
        )


def with_more(figures: Mapping[str, Figure], more: Mapping[str, Figure]) -> Mapping[str, Figure]:
    """Figures and others after them."""
    if not more:
        return figures
    return figures.with_more(more) if isinstance(figures, Figures) else {**figures, **more}


def number_of(figures: Mapping[str, Figure], address: str) -> float | None:
    """A stated value; None where it is absent."""
    if isinstance(figures, Figures):
        return figures.number(address)
    found = figures.get(address)
    return found.value if found is not None else None
