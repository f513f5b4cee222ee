"""What the store says of imports: plain values that verbs print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from servemark.results.gates.base import GateFinding, Verdict
from servemark.results.point import Point

Judged = tuple[tuple[GateFinding, ...], Verdict]
Judge = Callable[[Sequence[Point]], Sequence[Judged]]
"""Judges points among each other: `results.gates.registry.judge_all`."""

RowStatus = Literal["mapped", "unmapped", "invalid", "superseded"]


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One imported file. `importer` is empty where no importer knows the format; `hints` is what the user said
    (`--set`), `siblings` (name, SHA-256) the files beside it that its mapping read."""

    sha256: str
    name: str
    bytes: int
    importer: str
    mapping_version: int
    hints: dict[str, str] = field(default_factory=dict)
    siblings: tuple[tuple[str, str], ...] = ()
    gates: str = ""
    added_utc: str = ""


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """How many rows share a status, a reason (a message key) and its values."""

    status: RowStatus
    reason: str
    values: dict[str, object]
    rows: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What the store holds of one file now. `outcome`: `added`; `same` (was here, nothing changed); `again` (mapped
    again). `changed` counts the points that a mapping made again has added, removed or altered."""

    outcome: Literal["added", "same", "again"]
    rows: dict[RowStatus, int]
    reasons: tuple[ReasonCount, ...]
    verdicts: dict[str, int]
    changed: dict[str, int] = field(default_factory=dict)
