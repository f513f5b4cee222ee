"""What a rule gives and what a reader gets: hits, findings, fixes, and the rule itself as data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from servemark.base.messages import find_text, text
from servemark.catalog.nodes import Position, Problem

Severity = Literal["error", "warning", "note"]
Scope = Literal["suite", "arm", "entry", "recipe", "changelog", "schema"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
Edit = tuple[str, str, str]
"""(file of the example suite, text in it, text to put there)."""


@dataclass(frozen=True, slots=True)
class Related:
    """Another place that is involved; `key` names the message that says how."""

    at: Position
    key: str
    values: dict[str, object] = field(default_factory=dict)

    def note(self, lang: str | None = None) -> str:
        """The message."""
        return text(self.key, lang, **Problem(self.at, self.key, self.values).shown)


@dataclass(frozen=True, slots=True)
class Fix:
    """A certain correction: `old` at a position becomes `new`. `safe` is False where it changes what a recipe
    runs, so that only `--unsafe` applies it."""

    at: Position
    old: str
    new: str
    safe: bool = True


@dataclass(frozen=True, slots=True)
class Hit:
    """One violation as a rule reports it. `variant` picks another message of the rule; `severity` another
    weight than the rule's own, where what is known is less or more certain."""

    at: Position
    values: dict[str, object] = field(default_factory=dict)
    related: tuple[Related, ...] = ()
    fix: Fix | None = None
    variant: str | None = None
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule as data. Texts are `checks.<code>`, `.summary`, `.why` and, for variants, `.<variant>`."""

    code: str
    family: str
    severity: Severity
    scope: Scope
    check: Callable[[Any], Iterable[Hit]]
    wrong: tuple[Edit, ...] = ()
    right: tuple[Edit, ...] = ()
    message: str | None = None
    """Key of its message where that is another room's."""
    base: str | None = None
    """The changelog that the examples grow from, for rules about a change."""
    on_main: bool = False
    """Whether the examples stand on the main branch."""

    @property
    def key(self) -> str:
        """Its message key."""
        return f"checks.{self.code.lower()}"

    def summary(self, lang: str | None = None) -> str:
        """One line: what it looks for."""
        if self.message:
            return _PLACEHOLDER.sub("…", text(self.message, lang))
        return text(f"{self.key}.summary", lang)

    def why(self, lang: str | None = None) -> str:
        """Why it matters."""
        if not self.message:
            return text(f"{self.key}.why", lang)
        step = find_text(f"{self.message}.next", lang) or ""
        why = text("checks.sup.why" if self.code.startswith("SUP") else "checks.sch.why", lang)
        step = _PLACEHOLDER.sub("…", step).rstrip(".。")
        return text("checks.why_and_step", lang, why=why, step=step[:1].upper() + step[1:]) if step else why


@dataclass(frozen=True, slots=True)
class Finding:
    """One diagnostic: a rule's hit with the arm it belongs to."""

    code: str
    family: str
    severity: Severity
    key: str
    at: Position
    values: dict[str, object]
    arm: str | None = None
    related: tuple[Related, ...] = ()
    fix: Fix | None = None

    def message(self, lang: str | None = None) -> str:
        """What is wrong and what it does, with texts of files cut and made harmless."""
        return text(self.key, lang, **Problem(self.at, self.key, self.values).shown)

    def next_step(self, lang: str | None = None) -> str | None:
        """What to do, where it is known and is not said by the message."""
        return find_text(f"{self.key}.next", lang, **Problem(self.at, self.key, self.values).shown)

    @property
    def order(self) -> tuple[str, int, int, str, str]:
        """By file and place, then code: the same at every run."""
        return self.at.file, self.at.line, self.at.column, self.code, self.arm or ""

    @property
    def identity(self) -> tuple[object, ...]:
        """Findings that say the same of the same place are one."""
        return self.code, self.key, self.at, repr(sorted(self.values.items()))
