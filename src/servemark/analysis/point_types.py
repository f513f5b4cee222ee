"""What the page of one point shows, as plain values: texts in the language asked for, absent parts None."""

from __future__ import annotations

from dataclasses import dataclass

from servemark.analysis.prediction_view import PredictionView
from servemark.analysis.report_types import ProvenanceRow


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and its value in words."""

    id: str
    label: str
    value: str


@dataclass(frozen=True, slots=True)
class RoleView:
    """One role of the deployment; counts as the source states them, `text` is the whole in words."""

    role: str
    label: str
    text: str


@dataclass(frozen=True, slots=True)
class FigureView:
    """One figure. `value` is in the metric's own unit, `text` finished; `stated` False: made of other figures here."""

    address: str
    statistic: str
    value: float
    text: str
    stated: bool


@dataclass(frozen=True, slots=True)
class MetricView:
    """All figures of one metric, in the order in which people read statistics. `defined_by`: the tools' own words where the
    figures were not made by this project's definition."""

    id: str
    label: str
    unit: str
    better: str
    definition: str
    formula: str
    defined_by: tuple[str, ...]
    figures: tuple[FigureView, ...]


@dataclass(frozen=True, slots=True)
class GroupView:
    """Metrics that belong together: throughput, latency, cache, power, accuracy, work, instrument, other."""

    id: str
    label: str
    metrics: tuple[MetricView, ...]


@dataclass(frozen=True, slots=True)
class GateView:
    """One gate's word: `sentence` with the numbers compared, `next` what to do, `why` what the gate is for."""

    gate: str
    severity: str
    title: str
    sentence: str
    next: str | None
    why: str


@dataclass(frozen=True, slots=True)
class EvalView:
    """One accuracy result of the point, or of the eval point of the same run and configuration (`ref`)."""

    task: str
    metric: str
    score: float
    text: str
    passed: bool | None
    n: int | None
    ref: str | None


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a small table."""

    address: str
    label: str
    unit: str


@dataclass(frozen=True, slots=True)
class TableRow:
    """One other point. `label` says its load, `note` what else tells it apart; `values` finished texts, a dash where
    absent."""

    ref: str
    label: str
    run: str
    date: str
    verdict: str
    here: bool
    note: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PointTable:
    """Other points beside this one; `left_out` more than are shown."""

    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class FileView:
    """A file that the point rests on. `state`: `kept`, `missing`, or `folder` for one in its run's folder."""

    role: str
    name: str
    sha256: str | None
    bytes: int | None
    state: str
    state_text: str


@dataclass(frozen=True, slots=True)
class PointView:
    """Everything about one point."""

    ref: str
    point_key: str
    line_key: str
    series_key: str
    title: str
    subtitle: str
    official: bool
    verdict: str
    verdict_text: str
    standing: tuple[str, ...]
    """Sentences on how it counts: superseded, partial, not the latest run."""
    facts: tuple[Fact, ...]
    roles: tuple[RoleView, ...]
    provenance: tuple[ProvenanceRow, ...]
    differing: int
    """Declared facts that what ran contradicts."""
    provenance_text: str
    gates: tuple[GateView, ...]
    """What gates found fault with, the worst first."""
    passed: tuple[str, ...]
    """Titles of the gates that passed."""
    skipped: tuple[tuple[str, str], ...]
    """(title, reason) of the gates that had nothing to judge."""
    groups: tuple[GroupView, ...]
    headline: tuple[Fact, ...]
    """The few figures that people look for first; `id` is the address."""
    prediction: PredictionView | None
    """What was foretold before it ran; None where nothing was."""
    evals: tuple[EvalView, ...]
    siblings: PointTable
    history: PointTable
    files: tuple[FileView, ...]
    url: str | None
    front: dict[str, str]
    """Query of the front that this point stands on."""
    has_requests: bool
    """Raw records of its requests are at hand: `request_view`, or lists in the imported file: `bench_request_view`."""
    has_samples: bool
    """Samples of its accuracy tasks are at hand."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WhyPart:
    """One stated figure behind the answer: where it stands and what was done to it."""

    address: str
    text: str
    at: str
    stated: str
    conversion: str
    definition: str


@dataclass(frozen=True, slots=True)
class WhyEvidence:
    """A line of a raw file that the figure rests on."""

    place: str
    request: str | None
    field: str
    text: str


@dataclass(frozen=True, slots=True)
class FigureWhy:
    """Where one figure comes from."""

    ref: str
    point_key: str
    address: str
    label: str
    value: float | None
    text: str
    unit: str
    definition: str
    formula: str
    substituted: str
    absent_because: str | None
    parts: tuple[WhyPart, ...]
    file: str
    sha256: str
    row: int
    raw_state: str
    raw_text: str
    importer: str
    mapping_version: int
    mapping_text: str
    verdict_text: str
    evidence: tuple[WhyEvidence, ...]
    check: str
    """Whether raw records, read again now, give the same value; empty where there are none."""
    command: str
