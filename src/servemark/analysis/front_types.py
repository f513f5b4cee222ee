"""What a front view holds: points with their places, series and lines, reasons, findings. Texts are in the language asked
for; absent is None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from servemark.analysis.axes import AxisInfo
from servemark.analysis.measured import Measured
from servemark.analysis.rate_cards import RateCard
from servemark.analysis.selection import Selection
from servemark.analysis.staircase import Vertex
from servemark.analysis.targets import TargetRead

RowState = Literal["on", "dominated", "beyond", "excluded", "absent"]
"""on: on the overall front of its group. dominated: some other point is better. beyond: an unofficial point that would
stand on the front if it counted. excluded: measured, but kept off with a reason. absent: an axis has no value for it."""


class NoiseBands(Protocol):
    """What says how far a figure may be off."""

    def band(self, point: Measured, address: str, value: float) -> tuple[float, float] | None:
        """Lowest and highest value that repeats would give; None where nothing is known."""
        ...


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """What is asked of a front. Axes are addresses, empty for the defaults; `extra` are further columns of the table, None
    for the usual ones; `evals` accuracy results of the same models; `overlay` points that are not official; `target` a
    value of x, in its unit."""

    x: str = ""
    y: str = ""
    noise: NoiseBands | None = None
    overlay: Sequence[Measured] = ()
    target: float | None = None
    extra: tuple[str, ...] | None = None
    evals: Sequence[Measured] = ()
    selection: Selection | None = None
    card: RateCard | None = None
    """What costs are worked out by; without one a cost is absent."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """Points that may be compared with one another: their own overall front. `on` are rows along x."""

    label: str
    points: int
    on: tuple[int, ...]
    path: tuple[Vertex, ...]


@dataclass(frozen=True, slots=True)
class SeriesView:
    """One hardware, engine, precision, speculation and disaggregation of one group. `path` is the staircase of its own
    points. `shown`: among the few to draw at first; series are ordered by what they hold of the overall front."""

    id: str
    label: str
    parts: Mapping[str, str]
    group: int
    shown: bool
    official: bool
    points: int
    path: tuple[Vertex, ...]


@dataclass(frozen=True, slots=True)
class LineOfSeries:
    """One configuration within one run; `points` are rows by load."""

    id: str
    series: int
    label: str
    run: str
    source: str
    date: str
    points: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FrontRow:
    """One point. `reason` says why it is not on a front, `warning` what is to be known of it: places in the view's
    `reasons`."""

    ref: str
    key: str
    line: int
    concurrency: int | None
    state: RowState
    reason: int | None
    warning: int | None
    x: float | None
    y: float | None
    x_band: tuple[float, float] | None
    y_band: tuple[float, float] | None
    official: bool


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Points that no front holds, by reason."""

    reason: str
    points: int


@dataclass(frozen=True, slots=True)
class TargetView:
    """The read at a target: over the main group, and of each of its series, by its place."""

    target: float
    chosen: bool
    """False where nobody asked for one: a round value amid the front."""
    text: str
    overall: TargetRead
    series: tuple[tuple[int, TargetRead], ...]


@dataclass(frozen=True, slots=True)
class FrontView:
    """Everything that a page, a table or a file shows of one selection on two axes."""

    selection: Selection | None
    x: AxisInfo
    y: AxisInfo
    groups: tuple[GroupView, ...]
    """The main one first: the most points."""
    series: tuple[SeriesView, ...]
    lines: tuple[LineOfSeries, ...]
    rows: tuple[FrontRow, ...]
    more: tuple[AxisInfo, ...]
    values: Mapping[str, tuple[float | None, ...]]
    """Address of `more` -> one value a row."""
    reasons: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    target: TargetView | None
    findings: tuple[str, ...]
    notes: tuple[str, ...]
    card: str | None = None
    """`NAME@DATE` of the rate card that costs are of; None where no column is a cost."""
    badges: tuple[str, ...] = ()
    """Of what its figures are, in a few words that stand at the title: that weights were random values."""
    workloads: Mapping[str, str] = field(default_factory=dict)
    """Data sets that are hashes -> their names (`workload_names`)."""
