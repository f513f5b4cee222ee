"""What a sweep's file says of it, as one plain value: the table of `sweep status`, its JSON, and the dashboard's source."""

from __future__ import annotations

import calendar
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from servemark.base.home import Home
from servemark.base.messages import find_text
from servemark.plan.rows import worded
from servemark.runs.sweep_attempts import WriterLock
from servemark.runs.sweep_plan import SweepOptions
from servemark.store.sweep_rows import (
    AttemptState,
    Failure,
    PointState,
    SweepAttempt,
    SweepPoint,
    SweepRow,
    SweepState,
)
from servemark.store.sweeps import SweepStore

SCHEMA = 1
SHOWN_STATES = ("running", "pausing", "paused", "stopped", "cancelling", "done", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class SweepStatus:
    """A sweep at one moment."""

    sweep: SweepRow
    state: str
    """One of SHOWN_STATES; `stopped`: it should run, and no process works on it."""
    holder: tuple[str, str] | None
    points: tuple[SweepPoint, ...]
    attempts: tuple[SweepAttempt, ...]
    now_s: float
    """time.time() of the look."""

    def count(self, state: PointState) -> int:
        """How many points are in a state."""
        return sum(point.state is state for point in self.points)

    def seconds_per_point(self) -> float | None:
        """Median over attempts that ended whole: their seconds divided by their points. None before the first."""
        known = [
            one.seconds / len(one.numbers)
            for one in self.attempts
            if one.state is AttemptState.DONE and one.seconds is not None and one.numbers
        ]
        return statistics.median(known) if known else None

    def eta_s(self) -> float | None:
        """Seconds until the last point ends, by that median and the limit on units at once; None when it is not known
        or nothing more will run."""
        each = self.seconds_per_point()
        open_points = [p for p in self.points if p.state in (PointState.WAITING, PointState.RUNNING)]
        if each is None or not open_points or self.state not in ("running", "pausing"):
            return None
        left = each * self.count(PointState.WAITING) if self.state == "running" else 0.0
        for one in self.attempts:
            if one.state is AttemptState.RUNNING:
                left += max(0.0, each * len(one.numbers) - self.elapsed_s(one))
        rest = max(
            (p.not_before_s - self.now_s + each for p in open_points), default=0.0
        )  # one waits to be retried
        lanes = min(SweepOptions.of(self.sweep.options).max_parallel, len({p.unit for p in open_points}))
        return max(left / max(1, lanes), rest if self.state == "running" else 0.0)

    def elapsed_s(self, one: SweepAttempt) -> float:
        """Seconds that an attempt has run."""
        return one.seconds if one.seconds is not None else max(0.0, self.now_s - _epoch(one.started_utc))

    def attempt_of(self, point: SweepPoint) -> SweepAttempt | None:
        """The attempt that runs a point or gave its state."""
        return next((one for one in self.attempts if one.attempt == point.attempt), None)


def read_status(home: Home, sweep: SweepRow, store: SweepStore | None = None) -> SweepStatus:
    """Look at a sweep. Raises ServemarkError (layer store) for a file that cannot be read."""
    own = store or SweepStore.read(home.sweeps)
    if own is None:
        raise FileNotFoundError(home.sweeps)
    try:
        row = own.sweep(sweep.sweep_id) or sweep
        points, attempts = own.points(row.sweep_id), own.attempts(row.sweep_id)
    finally:
        if store is None:
            own.close()
    holder = WriterLock.holder(home.sweeps / row.sweep_id)
    return SweepStatus(
        row, _shown(row.state, holder, points), holder, tuple(points), tuple(attempts), time.time()
    )


def _shown(state: SweepState, holder: tuple[str, str] | None, points: Sequence[SweepPoint]) -> str:
    running = any(point.state is PointState.RUNNING for point in points)
    if state is SweepState.RUNNING:
        return "running" if holder is not None else "stopped"
    if running and state is SweepState.PAUSED:
        return "pausing"
    if running and state is SweepState.CANCELLED:
        return "cancelling"
    return str(state)


def status_json(status: SweepStatus, home: Home) -> dict[str, object]:
    """One object for machines; docs/sweep.schema.json describes it."""
    sweep = status.sweep
    options = SweepOptions.of(sweep.options)
    return {
        "schema": SCHEMA,
        "sweep_id": sweep.sweep_id,
        "state": status.state,
        "created_utc": sweep.created_utc,
        "ended_utc": sweep.ended_utc,
        "priority": sweep.priority,
        "rehearsal": options.rehearse,
        "max_parallel": options.max_parallel,
        "holder": None if status.holder is None else {"host": status.holder[0], "pid": status.holder[1]},
        "folder": str(home.sweeps / sweep.sweep_id),
        "total": len(status.points),
        "counts": {str(state): status.count(state) for state in PointState},
        "seconds_per_point": status.seconds_per_point(),
        "eta_s": status.eta_s(),
        "points": [_point(point, status) for point in status.points],
        "attempts": [_attempt(one, status) for one in status.attempts],
    }


def _point(point: SweepPoint, status: SweepStatus) -> dict[str, object]:
    attempt = status.attempt_of(point)
    waits = point.state is PointState.WAITING and point.not_before_s > status.now_s
    return {
        "number": point.number,
        "unit": point.unit,
        "selector": point.selector,
        "point_id": point.point_id,
        "series_id": point.series_id,
        "arm": point.arm,
        "topology": point.topology,
        "concurrency": point.concurrency,
        "cluster": point.cluster,
        "gpus": point.gpus,
        "canary": point.canary,
        "recipe": point.recipe,
        "recipe_fingerprint": point.fingerprint,
        "state": str(point.state),
        "attempts": point.tries,
        "attempts_allowed": point.budget,
        "attempt": point.attempt,
        "started_utc": attempt.started_utc if attempt is not None else None,
        "seconds": status.elapsed_s(attempt) if attempt is not None and _timed(attempt) else None,
        "jobs": list(attempt.jobs) if attempt is not None else [],
        "not_before_utc": _utc(point.not_before_s) if waits else None,
        "run_id": point.run_id,
        "failure": None
        if point.failure is None
        else {
            "layer": point.failure.get("layer"),
            "key": point.failure.get("key"),
            "what": why(point.failure),
        },
    }


def _timed(one: SweepAttempt) -> bool:
    return one.seconds is not None or one.state is AttemptState.RUNNING


def _attempt(one: SweepAttempt, status: SweepStatus) -> dict[str, object]:
    return {
        "attempt": one.attempt,
        "unit": one.unit,
        "line_id": one.line_id,
        "state": str(one.state),
        "started_utc": one.started_utc,
        "ended_utc": one.ended_utc,
        "seconds": status.elapsed_s(one) if _timed(one) else None,
        "exit": one.exit,
        "jobs": list(one.jobs),
        "points": list(one.numbers),
    }


def why(failure: Failure) -> str:
    """Why a point has no result, in the reader's language where the message is known."""
    said = failure.get("what")
    if said:
        return str(said)
    values = failure.get("values")
    key = str(failure.get("key", ""))
    try:
        return find_text(key, None, **worded(values if isinstance(values, dict) else {})) or key
    except (
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
    ):  # written by another version, with other placeholders
        return key


_TEXT: dict[str, object] = {"type": "string"}
_COUNT: dict[str, object] = {"type": "integer", "minimum": 0}
_NUMBER: dict[str, object] = {"type": "number", "minimum": 0}
_FLAG: dict[str, object] = {"type": "boolean"}


def _or_null(kind: dict[str, object]) -> dict[str, object]:
    return {"anyOf": [kind, {"type": "null"}]}


def _closed(fields: dict[str, dict[str, object]]) -> dict[str, object]:
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _list_of(kind: dict[str, object]) -> dict[str, object]:
    return {"type": "array", "items": kind}


def _point_schema() -> dict[str, object]:
    failure = _closed({"layer": _or_null(_TEXT), "key": _or_null(_TEXT), "what": _TEXT})
    return _closed(
        {
            **dict.fromkeys(
                ("number", "unit", "concurrency", "gpus", "attempts", "attempts_allowed"), _COUNT
            ),
            **dict.fromkeys(("selector", "point_id", "series_id", "arm", "topology", "cluster"), _TEXT),
            "canary": _FLAG,
            "recipe": _or_null(_TEXT),
            "recipe_fingerprint": _or_null(_TEXT),
            "state": {"enum": [str(state) for state in PointState]},
            "attempt": _or_null(_COUNT),
            "started_utc": _or_null(_TEXT),
            "seconds": _or_null(_NUMBER),
            "jobs": _list_of(_TEXT),
            "not_before_utc": _or_null(_TEXT),
            "run_id": _or_null(_TEXT),
            "failure": _or_null(failure),
        }
    )


def _attempt_schema() -> dict[str, object]:
    return _closed(
        {
            "attempt": _COUNT,
            "unit": _COUNT,
            "line_id": _TEXT,
            "state": {"enum": [str(state) for state in AttemptState]},
            "started_utc": _TEXT,
            "ended_utc": _or_null(_TEXT),
            "seconds": _or_null(_NUMBER),
            "exit": _or_null(_TEXT),
            "jobs": _list_of(_TEXT),
            "points": _list_of(_COUNT),
        }
    )


def status_schema() -> dict[str, object]:
    """JSON Schema of `sweep status --json`."""
    body = _closed(
        {
            "schema": {"const": SCHEMA},
            "sweep_id": _TEXT,
            "state": {"enum": list(SHOWN_STATES)},
            "created_utc": _TEXT,
            "ended_utc": _or_null(_TEXT),
            "priority": {"type": "integer"},
            "rehearsal": _FLAG,
            "max_parallel": _COUNT,
            "holder": _or_null(_closed({"host": _TEXT, "pid": _TEXT})),
            "folder": _TEXT,
            "total": _COUNT,
            "counts": _closed({str(state): _COUNT for state in PointState}),
            "seconds_per_point": _or_null(_NUMBER),
            "eta_s": _or_null(_NUMBER),
            "points": _list_of(_point_schema()),
            "attempts": _list_of(_attempt_schema()),
        }
    )
    title = "servemark sweep status --json"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **body}


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _epoch(utc: str) -> float:
    return float(calendar.timegm(time.strptime(utc, "%Y-%m-%dT%H:%M:%SZ")))
