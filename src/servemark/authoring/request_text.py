"""A request's text in both languages, and whether its halves say the same: the same arms, the same figures.

The two halves are told apart by their marks, `<!-- servemark:en -->` and `<!-- servemark:zh -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from servemark.base.errors import input_error
from servemark.base.messages import text

MARK = "<!-- servemark:{lang} -->"
_MARK = re.compile(r"<!-- servemark:(en|zh) -->")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
# letters of ASCII alone: in Chinese a figure touches the word that it counts
_NUMBER = re.compile(r"(?<![A-Za-z0-9_.,-])\d[\d,]*(?:\.\d+)?(?![A-Za-z0-9_]*[A-Za-z_])")
MAX_BYTES = 1 << 20
Kind = Literal["arm", "figure"]


@dataclass(frozen=True, slots=True)
class HalfFault:
    """Something that one half says and the other does not."""

    kind: Kind
    value: str
    there: str
    """Language of the half that says it."""
    absent: str

    def said(self, lang: str) -> str:
        """In words."""
        halves = {name: text(f"authoring.half.{name}", lang) for name in ("en", "zh")}
        values = {"value": self.value, "there": halves[self.there], "absent": halves[self.absent]}
        return text(f"authoring.half_fault.{self.kind}", lang, **values)


def halves_of(body: str) -> dict[str, str]:
    """Text by language. ServemarkError (exit 2) when a half is missing or stands twice."""
    parts = _MARK.split(body)
    names = parts[1::2]
    if sorted(names) != ["en", "zh"]:
        raise input_error("authoring.no_halves", en=MARK.format(lang="en"), zh=MARK.format(lang="zh"))
    return dict(zip(names, parts[2::2], strict=True))


def half_faults(body: str, arms: Iterable[str]) -> tuple[HalfFault, ...]:
    """What only one half says: arms of the two commits, and figures as numbers (their order does not matter).

    Numbers that are part of a name (`tp8`, `b300`) are no figures; digits may be grouped with commas."""
    halves = {lang: _COMMENT.sub(" ", half) for lang, half in halves_of(body).items()}
    keys = sorted(set(arms), key=len, reverse=True)
    named: dict[str, set[str]] = {}
    figures: dict[str, set[str]] = {}
    for lang, half in halves.items():
        rest, found = half, set()
        for key in keys:
            pattern = re.compile(rf"(?<![\w.-]){re.escape(key)}(?![\w-])")
            if pattern.search(rest):
                found.add(key)
                rest = pattern.sub(" ", rest)
        named[lang] = found
        figures[lang] = {one.group(0).replace(",", "") for one in _NUMBER.finditer(rest)}
    faults: list[HalfFault] = []
    for there, absent in (("en", "zh"), ("zh", "en")):
        faults += [HalfFault("arm", one, there, absent) for one in sorted(named[there] - named[absent])]
        faults += [
            HalfFault("figure", one, there, absent) for one in sorted(figures[there] - figures[absent])
        ]
    return tuple(faults)
