"""Predictions that were written down before a run, beside what it measured: read from what a point's manifest expected,
kept with the point, and asked for by point or as a whole record.

A prediction travels in the manifest (`expected.prediction`), so a run folder that is imported elsewhere brings its own.
What it says there comes from outside: parts that are no sound prediction are left out, never repaired.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from servemark.base.errors import ServemarkError
from servemark.metrics.address import parse
from servemark.metrics.figures import figure_value
from servemark.results.point import Point
from servemark.store.database import Store

FIELD = "prediction"
"""Where it stands in a manifest's `expected`."""
SCHEMA = 1
CLASSES = ("interpolated", "extrapolated_concurrency", "other_shape", "one_anchor", "none")
MAX_FIGURES = 64
MAX_TEXT = 200
MOST = 1e15
"""No figure that is predicted is beyond it in its base unit, nor below 0: a wider interval would say nothing."""
_UTC = re.compile(r"\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-6]\dZ\Z", re.ASCII)
_KEY = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+){1,8}\Z")


class Foretold(NamedTuple):
    """One figure of one prediction, in the metric's base unit; the columns of the table after the point's number."""

    metric: str
    klass: str
    value: float | None
    low: float | None
    high: float | None
    level: float
    residuals: int
    reason: str | None
    """Message key that says why nothing could be said."""
    made_utc: str
    fit: str
    """Which calibration gave it: a hash over its inputs."""
    measured: float | None

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured; None without both, or for a measured 0."""
        if self.value is None or not self.measured:
            return None
        off = (self.value - self.measured) / self.measured
        return off if math.isfinite(off) else None

    @property
    def inside(self) -> bool | None:
        """Whether the measured value lies within the interval; None where there is none or nothing was measured."""
        if self.low is None or self.high is None or self.measured is None:
            return None
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, slots=True)
class Recorded:
    """One past prediction with the run that it was of."""

    point_id: int
    run: str
    at_utc: str
    verdict: str
    foretold: Foretold


def foretold_of(point: Point) -> tuple[Foretold, ...]:
    """What the point's manifest foretold, with what the point measured; () where nothing was foretold, or what stands
    there is no prediction."""
    said = point.expected.get(FIELD)
    if not isinstance(said, Mapping) or said.get("schema") != SCHEMA:
        return ()
    made, fit, figures = said.get("made_utc"), said.get("fit"), said.get("figures")
    if not (isinstance(made, str) and _UTC.match(made) and isinstance(fit, str) and len(fit) <= MAX_TEXT):
        return ()
    started = point.execution.started_utc
    if started is not None and made[: len(started)] > started:  # said afterwards: no prediction
        return ()
    if not isinstance(figures, list) or len(figures) > MAX_FIGURES:
        return ()
    stated = {address: figure.value for address, figure in point.figures.items()}
    found: dict[str, Foretold] = {}
    for each in figures:
        one = _figure(each, made, fit) if isinstance(each, Mapping) else None
        if one is not None:
            found[one.metric] = one._replace(measured=figure_value(stated, one.metric, point.gpus_deployed))
    return tuple(found.values())


def _figure(said: Mapping[str, object], made: str, fit: str) -> Foretold | None:
    metric, klass, reason = said.get("metric"), said.get("class"), said.get("reason")
    level, residuals = _number(said.get("level")), said.get("residuals")
    value, low, high = (_number(said.get(name)) for name in ("value", "low", "high"))
    sound = (
        isinstance(metric, str)
        and _is_address(metric)
        and klass in CLASSES
        and level is not None
        and 0 < level < 1
        and isinstance(residuals, int)
        and not isinstance(residuals, bool)
        and 0 <= residuals < 2**31
        and (reason is None or (isinstance(reason, str) and len(reason) <= MAX_TEXT and _KEY.match(reason)))
        and (low is None) == (high is None)
        and (low is None or high is None or low <= high)
        and all(0 <= one <= MOST for one in (value, low, high) if one is not None)
        and not (klass == "none" and value is not None)
    )
    if not sound:
        return None
    assert isinstance(metric, str) and isinstance(klass, str) and level is not None  # noqa: S101 - just checked
    assert isinstance(residuals, int) and (reason is None or isinstance(reason, str))  # noqa: S101
    return Foretold(metric, klass, value, low, high, level, residuals, reason, made, fit, None)


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
    return None


def _is_address(text: str) -> bool:
    try:
        parse(text)
    except ServemarkError:
        return False
    return len(text) <= MAX_TEXT


class FigureForetold(Protocol):
    """What a prediction says of one metric, before or after it is stored; see `Foretold`."""

    @property
    def metric(self) -> str: ...
    @property
    def klass(self) -> str: ...
    @property
    def value(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...
    @property
    def level(self) -> float: ...
    @property
    def residuals(self) -> int: ...
    @property
    def reason(self) -> str | None: ...


def plain_figures(figures: Iterable[FigureForetold]) -> list[dict[str, object]]:
    """Figures as a manifest holds them; the way back is `foretold_of`."""
    return [
        {
            "metric": each.metric,
            "class": each.klass,
            "value": each.value,
            "low": each.low,
            "high": each.high,
            "level": each.level,
            "residuals": each.residuals,
            "reason": each.reason,
        }
        for each in figures
    ]


_COLUMNS = "metric, class, value, low, high, level, residuals, reason, made_utc, fit, measured"


def predictions_of(store: Store, point_id: int) -> tuple[Foretold, ...]:
    """What was foretold of one point, by metric."""
    ask = f"SELECT {_COLUMNS} FROM prediction WHERE point_id = ? ORDER BY metric"  # noqa: S608 - fixed names
    return tuple(Foretold(*row) for row in store.query(ask, (point_id,)))


def record(store: Store, model: str | None = None, until_utc: str | None = None) -> Iterator[Recorded]:
    """Every past prediction of points that count (current, complete, not quarantined) and that measured the figure, the
    oldest run first; of one model, and of runs that began no later than `until_utc`, where these are given."""
    terms, values = ["p.current = 1", "p.status = 'complete'", "p.verdict <> 'quarantined'"], list[str]()
    for term, wanted in (("c.model = ?", model), ("p.at_utc <= ?", until_utc)):
        if wanted is not None:
            terms.append(term)
            values.append(wanted)
    columns = ", ".join(f"f.{name}" for name in _COLUMNS.split(", "))
    ask = f"""
        SELECT p.id, l.run, p.at_utc, p.verdict, {columns} FROM prediction f JOIN result_point p ON p.id = f.point_id
        JOIN result_line l ON l.id = p.line_id JOIN result_config c ON c.id = l.config_id
        WHERE f.measured IS NOT NULL AND {" AND ".join(terms)} ORDER BY p.at_utc, p.id, f.metric
    """  # noqa: S608 - fixed column names and question marks alone
    for number, run, at_utc, verdict, *rest in store.query(ask, values):
        yield Recorded(number, run, at_utc, verdict, Foretold(*rest))
