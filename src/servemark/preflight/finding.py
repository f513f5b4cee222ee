"""One finding: what was found, what the arm needs, a verdict, and the exact command that mends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from servemark.base.messages import text
from servemark.preflight.facts import GIB, KIB, MIB

Verdict = Literal["ok", "warn", "fail", "unknown", "none"]
VERDICTS: tuple[Verdict, ...] = ("fail", "warn", "unknown", "ok", "none")
"""`none`: nothing was asked of it, the fact stands alone. `unknown`: cannot tell, and the finding says why."""


@dataclass(frozen=True, slots=True)
class Saying:
    """A message by its key, put into words when it is shown."""

    key: str
    values: dict[str, object] = field(default_factory=dict)

    def said(self, lang: str | None = None) -> str:
        """The words; values that are sayings, or lists of them, are said first."""
        values = {name: _said(value, lang) for name, value in self.values.items()}
        return text(self.key, lang, **values)


@dataclass(frozen=True, slots=True)
class Command:
    """A command for a person, and what it must print afterwards (None: nothing in particular)."""

    line: str
    must_print: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """`facts`: the same as plain values, for machines and for comparing nodes."""

    topic: str
    verdict: Verdict
    found: Saying
    need: Saying | None = None
    why: tuple[Saying, ...] = ()
    commands: tuple[Command, ...] = ()
    facts: dict[str, object] = field(default_factory=dict)

    def plain(self) -> dict[str, object]:
        """For JSON; the words are in the language in force."""
        return {
            "topic": self.topic,
            "verdict": self.verdict,
            "found": self.found.said(),
            "needs": self.need.said() if self.need is not None else None,
            "why": [saying.said() for saying in self.why],
            "commands": [{"run": one.line, "must_print": one.must_print} for one in self.commands],
            "facts": self.facts,
        }


def say(key: str, **values: object) -> Saying:
    """A saying."""
    return Saying(key, values)


def _said(value: object, lang: str | None) -> object:
    if isinstance(value, Saying):
        return value.said(lang)
    if isinstance(value, (list, tuple)):
        between = "; " if any(isinstance(one, Saying) for one in value) else ", "
        return between.join(str(_said(one, lang)) for one in value)
    return value


def size(value: float | None) -> str:
    """Bytes in binary units: `23.5 GiB`, `512 MiB`; `?` for None."""
    if value is None:
        return "?"
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(value) >= unit:
            shown = f"{value / unit:,.1f}".removesuffix(".0")
            return f"{shown} {name}"
    return f"{value:,.0f} B"


def both(value: int) -> str:
    """Bytes in binary and decimal units, which are mixed up so often: `1,552 GiB (1,666.4 GB)`."""
    return f"{size(value)} ({value / 1e9:,.1f} GB)"


def count(value: int | None) -> str:
    """A whole number with separators; `?` for None."""
    return f"{value:,}" if value is not None else "?"


def seconds(value: float) -> str:
    """A time in seconds, three figures: `0.0312 s`, `12.3 s`, `2,280 s`."""
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"
