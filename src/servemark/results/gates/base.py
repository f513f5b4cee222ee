"""What a gate is, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from servemark.results.point import Eval, Point

if TYPE_CHECKING:
    from servemark.results.gates.columns import Columns, Mask


class Severity(StrEnum):
    """What one gate says of one point. SKIPPED: what it needs is not there; `values` says what."""

    OK = "ok"
    WARNING = "warning"
    QUARANTINE = "quarantine"
    SKIPPED = "skipped"


class Verdict(StrEnum):
    """What all gates together say of a point: the worst of them."""

    VALID = "valid"
    WARNINGS = "warnings"
    QUARANTINED = "quarantined"


class GateFinding(msgspec.Struct, frozen=True):
    """One gate's word on one point. The sentence is message `gate.<id>` (and `.next`, what to do) with `values`; numbers
    in them are what was compared, so that anybody can check the arithmetic. A struct, as `Context` is, for speed."""

    gate: str
    severity: Severity
    values: dict[str, object] = {}


if TYPE_CHECKING:
    Said = tuple[GateFinding, Mask | bool]


class Context(msgspec.Struct, frozen=True):
    """What stands around a point: its line and run (points of the same source and run), and other attempts of the same
    point in the same run or with the same figures; the point itself may stand among them.

    `concurrencies` and `evals` are what complete points of the line have, where somebody has gathered them already
    (`registry.judge_all`): a long line is then read once and not once a point. None: the gates read `line`."""

    line: Sequence[Point] = ()
    run: Sequence[Point] = ()
    attempts: Sequence[Point] = ()
    concurrencies: frozenset[int] | None = None
    evals: tuple[Eval, ...] | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate. `version` goes up when the same point would be judged otherwise. `tolerance` is the named number that its
    message quotes, `source` where it comes from."""

    id: str
    version: int
    judge: Callable[[Point, Context], GateFinding]
    tolerance: float | None = None
    source: str = ""
    idle: tuple[str, GateFinding] | None = None
    """(a part of `registry.PARTS`, what the gate says of every point without it): most gates need not be asked."""
    columns: Callable[[Columns], Said] | None = None
    """For a gate on figures: one finding, and of which of many points `judge` would say exactly that."""
    framed: Callable[[Point], GateFinding | None] | None = None
    """What `judge` says of every point with this one's identity and GPU counts, whatever else it holds; None where it
    reads more."""


def verdict_of(findings: Sequence[GateFinding]) -> Verdict:
    """The worst finding decides; skipped gates decide nothing."""
    said = {finding.severity for finding in findings}
    if Severity.QUARANTINE in said:
        return Verdict.QUARANTINED
    return Verdict.WARNINGS if Severity.WARNING in said else Verdict.VALID
