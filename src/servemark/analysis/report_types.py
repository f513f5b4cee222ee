"""`ReportData`: the one plain value that a report or a terminal view draws. No arithmetic is left to do but
pixels.

Every text is in the language asked for. Times are seconds, shares 0..1, in the units of `metrics.registry`;
`text` fields are finished for display. Absent is None, with a sentence that says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from servemark.analysis.front import Front
from servemark.analysis.histogram import Histogram
from servemark.analysis.staircase import Vertex
from servemark.analysis.timeline import Timeline
from servemark.metrics.registry import Better
from servemark.results.row import ResultRow, RunStatus

Level = Literal["error", "warning", "note"]
"""error: a figure or a whole point is missing. warning: a figure may mislead. note: good to know."""


@dataclass(frozen=True, slots=True)
class Header:
    """Whose line this is. `title` is arm and suite in words; times are ISO 8601 UTC, the first start, the
    last end."""

    title: str
    suite: str
    arm: str
    line_ids: tuple[str, ...]
    started_utc: str | None
    finished_utc: str | None
    servemark_version: str | None
    model: str | None
    engine: str | None
    hardware: str | None
    workload: str | None
    weights: str | None = None
    """`dummy` for random weights; None: the model's own."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table of points: what it shows, in which unit, and what it means."""

    address: str
    label: str
    """Short name with its statistic, e.g. "TTFT p90"."""
    unit: str
    better: Better
    definition: str
    formula: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure of one point: raw value in the stored unit, number and number with unit in the column's
    unit."""

    address: str
    value: float | None
    number: str
    text: str
    absent_because: str | None
    best: bool
    """True for the best value of its column among eligible points (all that tie)."""


@dataclass(frozen=True, slots=True)
class AxisChoice:
    """One front: two addresses, their labels, units and directions, and the points sorted by it.

    Units and `x_factor`/`y_factor` say how to show a raw value: shown = raw x factor. `excluded` says in
    words why each point that is not eligible is off: (run id, sentence).
    """

    id: str
    x: str
    y: str
    x_label: str
    y_label: str
    x_unit: str
    y_unit: str
    x_factor: float
    y_factor: float
    x_better: Better
    y_better: Better
    x_better_text: str
    y_better_text: str
    front: Front
    path: tuple[Vertex, ...]
    """Staircase through the front, raw values; extend it to the edges of the drawing with `staircase(front,
    bounds)`."""
    excluded: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Share:
    """One line of a panel of shares: label, share 0..1 or None, text, and what it means."""

    id: str
    label: str
    value: float | None
    text: str
    meaning: str
    absent_because: str | None


@dataclass(frozen=True, slots=True)
class CachePanel:
    """Prefix-cache shares side by side: theory, theory in blocks, usage, engine; and whether they agree."""

    entries: tuple[Share, ...]
    verdict: str
    agrees: bool | None
    state: str
    """The stated cache state in words (law 13)."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One item of an accuracy task as it was asked, answered and judged. Untrusted text: escape it."""

    id: str
    prompt: str
    reply: str | None
    extracted: str | None
    expected: str
    correct: bool
    latency_s: float | None
    finish_reason: str | None
    outcome: str


@dataclass(frozen=True, slots=True)
class EvalPanel:
    """One accuracy task at one point. `text` is "62.0 % ± 4.9 (62 of 100)".

    Where no item was answered there is no score: `absent_because` says so, `text` too, and `score` and
    `stderr`, which then only count failures, must not be shown.
    """

    task: str
    version: str
    score: float
    stderr: float
    n: int
    expected_n: int
    correct: int
    unanswered: int
    truncated: int
    duration_s: float
    text: str
    samples: tuple[Sample, ...]
    """Up to the number asked for, correct and wrong mixed, in the task's order."""
    samples_total: int
    absent_because: str | None = None


@dataclass(frozen=True, slots=True)
class ProvenanceRow:
    """One fact as declared and as observed. `agree` is None when one of the two is absent."""

    field: str
    declared: str | None
    observed: str | None
    agree: bool | None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a reader must know before trusting the figures. `run_id`/`concurrency` say where; None:
    everywhere."""

    level: Level
    code: str
    title: str
    text: str
    next_step: str | None
    run_id: str | None
    concurrency: int | None


@dataclass(frozen=True, slots=True)
class ProblemGroup:
    """The same problem at several points, told once: `problems` hold each point's own figures."""

    level: Level
    code: str
    title: str
    next_step: str | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """A measured request that did not end well, with what was seen. `detail` is untrusted: escape it."""

    run_id: str
    concurrency: int | None
    request: str
    session: str
    turn: int
    outcome: str
    kind: str | None
    detail: str | None
    http_status: int | None
    at_s: float | None
    line: int
    """Line in the run's requests.jsonl, from 1."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a run: its name in the row, its label in words, seconds."""

    id: str
    label: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PointView:
    """Everything about one point. `cells` follow `ReportData.columns`."""

    run_id: str
    concurrency: int | None
    load: str
    """The concurrency, or the law of arrivals of an open loop, as short as can be."""
    label: str
    status: RunStatus
    row: ResultRow
    folder: str
    """Name of the run folder (not its path: reports travel)."""
    cells: tuple[Cell, ...]
    histograms: tuple[Histogram, ...]
    timeline: Timeline
    cache: CachePanel
    evals: tuple[EvalPanel, ...]
    provenance: tuple[ProvenanceRow, ...]
    failed: tuple[FailedRequest, ...]
    failed_total: int
    phases: tuple[Phase, ...]
    warnings: tuple[Problem, ...]
    quarantined: bool = False
    """By a gate: shown, and on no front."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """See the module's text. `points` are ordered by line, then concurrency; `problems` gravest first."""

    lang: str
    header: Header
    findings: tuple[str, ...]
    columns: tuple[Column, ...]
    points: tuple[PointView, ...]
    axes: tuple[AxisChoice, ...]
    """The first one is the default view."""
    problems: tuple[Problem, ...]
    problem_groups: tuple[ProblemGroup, ...]
    """`problems` with equal code, title and next step told together, in the same order."""
    definitions: tuple[Column, ...]
    """Every metric that the report shows, once, for a glossary."""
