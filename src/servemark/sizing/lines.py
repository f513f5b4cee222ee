"""One line of a size report: a figure with its unit, scope, formula with numbers, and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TIMES = "\u00d7"
"""The sign between factors of a formula."""
Tag = Literal["exact", "declared", "assumed", "measured"]
Unit = Literal["bytes", "tokens", "count", "seconds", "parameters", "ratio"]
Scope = Literal["model", "rank", "share", "worker", "node", "role", "job", "request", "nic"]


@dataclass(frozen=True, slots=True)
class Line:
    """A figure. `name` is its key: label `sizing.line.<name>`, formula `sizing.line.<name>.formula`.

    `tag`: exact (arithmetic over published geometry), declared (a file or a flag says it), assumed (± `margin` in
    the line's unit), measured (an engine's log said it).
    """

    name: str
    scope: Scope
    value: float
    unit: Unit
    tag: Tag
    formula: dict[str, object]
    margin: float | None = None
    """Half-width of an assumed figure, in its unit."""
    source: str | None = None
    """Which file, flag or log says it."""
    replaced: float | None = None
    """The estimate that a measured value stands in for."""

    @property
    def off(self) -> float | None:
        """How far the estimate was off, relative to what was measured; None where nothing was replaced."""
        if self.replaced is None or not self.value:
            return None
        return self.replaced / self.value - 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """`fits`, `does not fit` (by `missing` bytes in `scope`), or `cannot say` (because of `reason`)."""

    kind: Literal["fits", "does_not_fit", "cannot_say"]
    scope: str = ""
    missing: int = 0
    reason: str = ""
    values: dict[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that the reader must know beside the figures; `name` is a message `sizing.remark.<name>`."""

    name: str
    severity: Literal["error", "warning", "note"]
    values: dict[str, object]
