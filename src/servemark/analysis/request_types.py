"""What the records of one run show, as plain values. Columns rather than objects where there may be thousands."""

from __future__ import annotations

from dataclasses import dataclass

from servemark.analysis.report_types import CachePanel, EvalPanel, FailedRequest, Phase


@dataclass(frozen=True, slots=True)
class HistogramView:
    """One histogram, in the unit that it is shown in: bin i holds `edges[i]` to `edges[i + 1]`. `texts` has the words of
    each bin, `marks` the percentiles (name, value, text), `note` what is not in a bin or not counted."""

    metric: str
    label: str
    unit: str
    log: bool
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    texts: tuple[str, ...]
    marks: tuple[tuple[str, float, str], ...]
    n: int
    note: str


@dataclass(frozen=True, slots=True)
class LanesView:
    """Requests as bars in the client's lanes; one entry a request in every column. Seconds since the first start.
    `first` is None where no content came. `ticks` are round moments (seconds, text)."""

    duration_s: float
    lanes: int
    lane: tuple[int, ...]
    start: tuple[float, ...]
    first: tuple[float | None, ...]
    end: tuple[float, ...]
    ok: tuple[bool, ...]
    said: tuple[str, ...]
    ticks: tuple[tuple[float, str], ...]
    total: int
    note: str


@dataclass(frozen=True, slots=True)
class Track:
    """One quantity over time: `at` seconds since its file's first sample, `values` None where nothing is known. `low`
    and `high` bound the drawing; `text` says its range."""

    id: str
    label: str
    unit: str
    at: tuple[float, ...]
    values: tuple[float | None, ...]
    low: float
    high: float
    text: str


@dataclass(frozen=True, slots=True)
class TrackGroup:
    """The tracks of one file."""

    file: str
    tracks: tuple[Track, ...]
    duration_s: float
    note: str


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log of the run, by its name within the folder."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class LogView:
    """The end of a log. Untrusted text."""

    name: str
    text: str
    note: str


@dataclass(frozen=True, slots=True)
class RequestView:
    """What the raw records of one point's run show."""

    run_id: str
    histograms: tuple[HistogramView, ...]
    lanes: LanesView
    engine: TrackGroup | None
    gpus: TrackGroup | None
    failed: tuple[FailedRequest, ...]
    failed_total: int
    cache: CachePanel | None
    """None where requests were listed by another client."""
    phases: tuple[Phase, ...]
    logs: tuple[LogFile, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SamplesView:
    """Accuracy tasks with samples of their items."""

    run_id: str
    tasks: tuple[EvalPanel, ...]
