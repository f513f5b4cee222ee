"""A side of a comparison in words: a selection (`hardware=h100 run=…`), the newest at a date (`@DATE`), a period
(`@DATE..DATE`). The same words on the command line and in the API."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from servemark.analysis.compare_match import BY, fields_key
from servemark.analysis.measured import Measured
from servemark.analysis.selection import KEYS, Selection, parse_selection
from servemark.base.errors import input_error

Select = Callable[[Selection], Sequence[Measured]]
"""Points of a store by a selection."""
NAMED = (*(name for name in BY if name != "topology"), "disaggregated")
"""Keys of a selection that name a field in which two sides may be meant to differ."""
_DATE = re.compile(r"@(\d{4}-\d\d-\d\d)?(\.\.)?(\d{4}-\d\d-\d\d)?")


@dataclass(frozen=True, slots=True)
class Side:
    """One side: its points, what it is called, and what could not be read of it. `words` are the values that a selection
    names by key."""

    label: str
    points: tuple[Measured, ...]
    problems: tuple[str, ...] = ()
    words: Mapping[str, tuple[str, ...]] | None = None


def in_words(argument: str) -> bool:
    """Whether a side is a date, a period or a selection."""
    words = argument.split()
    return argument.startswith("@") or (
        bool(words) and all("=" in word and word.partition("=")[0] in KEYS for word in words)
    )


def side_in_words(argument: str, common: Sequence[str], select: Select) -> Side:
    """The points of a date, a period or a selection, narrowed by further words. Raises ServemarkError (exit code 2)."""
    if argument.startswith("@"):
        return Side(argument, tuple(_dated(argument, common, select)))
    chosen = parse_selection([*argument.split(), *common])
    if chosen.run or chosen.since or chosen.until:  # what is named is meant, also where a newer one is here
        chosen = replace(chosen, latest=False)
    return Side(argument, tuple(select(chosen)), words={name: getattr(chosen, name) for name in NAMED})


def fields_named(a: Side, b: Side) -> tuple[str, ...]:
    """Fields in which two selections name unlike values: what the user compares, without having to say it twice."""
    if a.words is None or b.words is None:
        return ()
    return tuple(
        name
        for name, values in a.words.items()
        if values and b.words[name] and not set(values) & set(b.words[name])
    )


def _dated(argument: str, common: Sequence[str], select: Select) -> list[Measured]:
    """`@DATE`: of every series of lines the newest run on or before that day. `@DATE..DATE`: all of that period."""
    read = _DATE.fullmatch(argument)
    if read is None or not (read[1] or read[3]):
        raise input_error("compare.bad_date", side=argument[:40])
    if read[2]:
        return list(select(parse_selection([*common, f"date={argument[1:]}", "all=yes"])))
    key = fields_key((), loads=True)
    newest: dict[tuple[str, str], tuple[str, str, str]] = {}
    places = []
    for point in select(parse_selection([*common, f"date=..{read[1]}", "all=yes"])):
        place, age = (point.source, key(point)), (point.at_utc, point.run, point.line_key)
        places.append((place, point))
        if point.status == "complete":
            newest[place] = max(newest.get(place, ("", "", "")), age)
    return [point for place, point in places if newest.get(place, ("", "", ""))[2] == point.line_key]
