"""What the importers of single tools share: numbers that are checked, hints, and the making of a point.

A result file of a load generator seldom says which GPU or engine stood behind the endpoint. What it does not say comes
from hints (`--set hardware=h200`); without them the row is kept as `unmapped`, never guessed.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache

import msgspec

from servemark.results.importers.base import Given
from servemark.results.importers.precision_names import precision
from servemark.results.point import (
    Eval,
    Execution,
    Figure,
    Mapped,
    Memory,
    Offload,
    Point,
    PointIdentity,
    Precision,
    Requests,
    RoleTopology,
    Scenario,
)

MAX_NUMBER = 1e18
STATISTICS = {
    "mean": "mean", "avg": "mean", "median": "p50", "std": "std", "stddev": "std", "std_dev": "std", "min": "min",
    "max": "max", "count": "n", "n": "n", "p50": "p50", "p75": "p75", "p90": "p90", "p95": "p95", "p99": "p99",
}  # fmt: skip
"""A tool's name of a statistic -> ours. Percentiles that are not mapped (p1, p99.9) stay in the raw row."""


class RowError(Exception):
    """This row cannot be a result: `key` and `values` of a message. Becomes a Mapped with status `invalid`."""

    def __init__(self, key: str, **values: object) -> None:
        super().__init__(key)
        self.key = key
        self.values = values


def number(value: object, at: str) -> float | None:
    """A finite number at or above 0; None where the source says null. Raises RowError for anything else."""
    if value is None:
        return None
    if value.__class__ is float and 0 <= value <= MAX_NUMBER:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RowError("results.import_not_a_number", field=at, value=str(value)[:60])
    if value > MAX_NUMBER or not math.isfinite(value):
        raise RowError("results.import_not_finite", field=at, value=str(value)[:60])
    if value < 0:
        raise RowError("results.import_negative", field=at, value=str(value)[:60])
    return float(value)


def whole(value: object, at: str) -> int | None:
    """A count; None where the source says null. Raises RowError for a fraction."""
    found = number(value, at)
    if found is not None and found != int(found):
        raise RowError("results.import_not_a_number", field=at, value=str(value)[:60])
    return None if found is None else int(found)


def words(value: object) -> str | None:
    """A text that is not empty, cut to a sane length; None for anything else."""
    return value.strip()[:500] or None if isinstance(value, str) else None


def part(value: object, *path: str) -> dict[str, object]:
    """A nested object; empty where any step is absent or something else."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def rows_of(value: object) -> list[object]:
    """A list; empty where it is absent or something else."""
    return value if isinstance(value, list) else []


def utc(seconds: float | None) -> str | None:
    """Seconds since 1970 as ISO 8601 ending in Z; None for a time no clock of a benchmark shows."""
    if seconds is None or not 0 < seconds < 1e11:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(slots=True)
class Draft:
    """A point in the making. `hints` fill what the file does not say and win where the user names it otherwise."""

    given: Given
    ordinal: int
    source: str
    version: int
    definition: str
    raw: bytes | None = None
    model: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    hardware: str | None = None
    run: str | None = None
    started_utc: str | None = None
    finished_utc: str | None = None
    concurrency: int | None = None
    scenario: Scenario = field(default_factory=lambda: Scenario("unknown"))
    requests: Requests = field(default_factory=Requests)
    duration_s: float | None = None
    complete: bool = True
    figures: dict[str, Figure] = field(default_factory=dict)
    extra: dict[str, object] = field(default_factory=dict)
    declared: dict[str, object] = field(default_factory=dict)
    observed: dict[str, object] = field(default_factory=dict)
    expected: dict[str, object] = field(default_factory=dict)
    evals: tuple[Eval, ...] = ()
    topology: tuple[RoleTopology, ...] = ()
    precision: Precision = field(default_factory=lambda: Precision(None, None))
    gpus_stated: int | None = None
    client: dict[str, object] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, address: str, value: object, at: str, scale: float = 1.0, how: str | None = None) -> None:
        """A stated figure in `scale` base units; nothing where the source says null."""
        found = number(value, at)
        if found is None:
            return
        if scale != 1.0 and how is None:
            how = f"x {scale:g}"
        self.figures[address] = Figure(
            found * scale, self.definition, at, stated=found if how is not None else None, how=how
        )

    def spread(self, metric: str, stats: Mapping[str, object], at: str, scale: float = 1.0) -> None:
        """The statistics of one metric, under the tool's names; a percentile named twice must agree."""
        for name, value in stats.items():
            ours = STATISTICS.get(name)
            if ours is None or isinstance(value, dict | list):
                continue
            factor = 1.0 if ours == "n" else scale
            self.add(f"{metric}.{ours}", value, f"{at}/{name}", factor)

    def per_gpu(self, gpus: int) -> None:
        """Rates over all GPUs deployed, as the user states their number."""
        for name in ("input_tokens_per_s", "output_tokens_per_s", "total_tokens_per_s", "requests_per_s"):
            rate = self.figures.get(name)
            if rate is not None:
                self.figures[f"{name}_per_gpu"] = msgspec.structs.replace(
                    rate, value=rate.value / gpus, stated=rate.value, how=f"/ {gpus} GPUs deployed"
                )

    def mapped(self) -> Mapped:
        """The row as a point; `unmapped` while model, hardware or engine is not known, `invalid` without a success."""
        hints = self.given.hints
        missing = [
            name for name in ("model", "hardware", "engine") if not (hints.get(name) or getattr(self, name))
        ]
        if self.requests.ok == 0:
            return self.failed(RowError("results.import_no_success"))
        if missing:
            reason: dict[str, object] = {"missing": ", ".join(missing)}
            return Mapped(self.ordinal, "unmapped", None, self.raw, "results.import_says_not", reason)
        gpus = hint_number(hints, "gpus")
        if gpus:
            self.per_gpu(gpus)
        for name in ("model", "engine", "engine_version", "hardware"):
            stated = getattr(self, name)
            if stated and hints.get(name, stated) != stated:
                self.notes.append(f"{name} set by the user; the file says {stated}")
        return Mapped(self.ordinal, "mapped", self._point(gpus), self.raw)

    def _point(self, gpus: int | None) -> Point:
        hints = self.given.hints
        isl, osl = hint_number(hints, "isl"), hint_number(hints, "osl")
        scenario = replace(
            self.scenario,
            type=hints.get("scenario", self.scenario.type),
            isl=isl if isl is not None else self.scenario.isl,
            osl=osl if osl is not None else self.scenario.osl,
            dataset=hints.get("dataset", self.scenario.dataset),
        )
        return Point(
            identity=PointIdentity(
                model=hints.get("model") or self.model or "",
                hardware=hints.get("hardware") or self.hardware or "",
                engine=hints.get("engine") or self.engine or "",
                scenario=scenario,
                concurrency=self.concurrency,
                engine_version=hints.get("engine_version") or self.engine_version,
                image=hints.get("image"),
                precision=precision(hints["precision"]) if hints.get("precision") else self.precision,
                offload=Offload(hints["offload"]) if hints.get("offload") else None,
                recipe_fingerprint=hints.get("recipe_fingerprint"),
                topology=self.topology,
                extra=self.extra,
            ),
            execution=Execution(
                run=hints.get("run") or self.run or file_run(self.given),
                attempt=hint_number(hints, "attempt") or 1,
                started_utc=self.started_utc or hints.get("date"),
                finished_utc=self.finished_utc,
            ),
            figures=self.figures,
            source=self.source,
            mapping_version=self.version,
            status="complete" if self.complete else "partial",
            requests=self.requests,
            duration_s=self.duration_s,
            gpus_deployed=gpus,
            gpus_stated=self.gpus_stated,
            evals=self.evals,
            expected=self.expected,
            declared=self.declared,
            observed=self.observed,
            client={"harness": self.source, **self.client},
            notes=tuple(self.notes),
            memory=None if not hints.get("dram_bytes") else Memory(hint_number(hints, "dram_bytes")),
        )

    def failed(self, error: RowError) -> Mapped:
        """The row as invalid, with its reason."""
        return Mapped(self.ordinal, "invalid", None, self.raw, error.key, dict(error.values))


def hint_number(hints: Mapping[str, str], name: str) -> int | None:
    """A hint that is a count. Raises RowError when it is none."""
    text = hints.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,15}", text.strip()):
        raise RowError("results.import_not_a_number", field=f"--set {name}", value=text[:60])
    return int(text)


def file_run(given: Given) -> str:
    """A run of its own for a file that names none: the same bytes give the same run."""
    return _head_run(given.head, given.size)


@lru_cache(maxsize=4)  # every row of a file asks
def _head_run(head: bytes, size: int) -> str:
    return "file-" + hashlib.sha256(head + str(size).encode()).hexdigest()[:16]


_sorted = msgspec.json.Encoder(order="sorted").encode


def _same_point(identity: PointIdentity) -> bytes:
    """Equal where `point_key` is, at a tenth of its cost; it never leaves this module."""
    try:
        body = _sorted(identity)
    except (TypeError, ValueError, OverflowError, RecursionError):  # what only the slow way can spell
        body = identity.point_key.encode()
    return hashlib.sha256(body).digest()[:16]


def repeats(rows: Iterator[Mapped]) -> Iterator[Mapped]:
    """Rows of one file, in which the same point measured again is a repeat and not a retry.

    The k-th measurement of a point gets the run `RUN#k`, so that first measurements stay one line. Rows with the same
    figures, counts and start are one measurement, told twice. Memory grows by some 100 bytes a row.
    """
    seen: dict[bytes, dict[bytes, int]] = {}
    for row in rows:
        if row.point is None:
            yield row
            continue
        known = seen.setdefault(_same_point(row.point.identity), {})
        point = row.point
        said = [(name, figure.value) for name, figure in sorted(point.figures.items())]
        body = repr((said, point.duration_s, point.execution.started_utc, point.requests)).encode()
        content = hashlib.sha256(body).digest()[:16]
        number = known.setdefault(content, len(known) + 1)
        if number > 1:
            execution = replace(row.point.execution, run=f"{row.point.execution.run}#{number}")
            row = msgspec.structs.replace(row, point=replace(row.point, execution=execution))  # noqa: PLW2901
        yield row
