"""What the sweeps' file holds, as typed values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class SweepState(StrEnum):
    """What is wanted of a sweep, or how it ended. Whether somebody works on it, its lock tells."""

    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class PointState(StrEnum):
    """Where one point of a sweep is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class AttemptState(StrEnum):
    """How one attempt went."""

    RUNNING = "running"
    DONE = "done"
    """Every point of it has a result."""
    FAILED = "failed"
    STOPPED = "stopped"
    """Ended because the sweep asked for it; does not count against a point's budget."""
    LOST = "lost"
    """Its process ended without a word."""
    VOID = "void"
    """Intended and never started; does not count."""


RequestKind = Literal["pause", "resume", "cancel", "retry"]
Failure = dict[str, object]
"""Why a point has no result: `layer`, and `key` with `values` of a message, or `what` in words."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One sweep. `options` and `inputs` are what was frozen at its start."""

    sweep_id: str
    created_utc: str
    ended_utc: str | None
    state: SweepState
    priority: int
    options: dict[str, object]
    inputs: dict[str, dict[str, object]]
    """File -> {sha256, bytes}."""
    forgiven: int = 0
    """Failures of attempts before this one stop nothing any more: somebody asked to go on after them."""


@dataclass(slots=True)
class SweepPoint:
    """One point of a sweep: what is frozen, then where it stands."""

    number: int
    """From 1, in the order of the plan."""
    unit: int
    """Points of one unit share an engine start."""
    point_id: str
    series_id: str
    selector: str
    suite: str
    arm: str
    topology: str
    concurrency: int
    cluster: str
    gpus: int
    canary: bool
    recipe: str | None
    fingerprint: str | None
    state: PointState
    tries: int = 0
    budget: int = 1
    not_before_s: float = 0.0
    """Seconds since 1970: no new attempt before."""
    attempt: int | None = None
    """The attempt that runs it or gave its state."""
    run_id: str | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class SweepAttempt:
    """One attempt at a unit. `seconds` is None while it runs and for one that was lost."""

    attempt: int
    unit: int
    line_id: str
    state: AttemptState
    started_utc: str
    ended_utc: str | None = None
    seconds: float | None = None
    exit: str | None = None
    """`exit CODE` or `signal NUMBER`; None when nobody could note it."""
    jobs: tuple[str, ...] = ()
    """Ids of batch jobs that it held."""
    numbers: tuple[int, ...] = ()
    """The points it was for."""


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """One attempt that ended, and what became of its points (their new rows)."""

    attempt: int
    state: AttemptState
    ended_utc: str
    seconds: float | None
    exit: str | None
    points: tuple[SweepPoint, ...]
    outcomes: dict[int, tuple[str | None, Failure | None]] = field(default_factory=dict)
    """Point number -> (run id of its result, why it has none)."""


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """What another process asks of the one that writes a sweep."""

    id: int
    kind: RequestKind
    number: int | None
