"""What a comparison of two sides says: pairs of points, figures judged, curves, what had no partner. Texts are in the
language asked for; absent is None. Effects are of B against A."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from servemark.analysis.axes import AxisInfo

Verdict = Literal["better", "worse", "same", "cannot_tell", "absent", "refused"]
"""Of B against A. same: the whole interval lies within the smallest difference that matters. absent: a side lacks the
figure. refused: the two figures mean different things."""
JUDGED: tuple[Verdict, ...] = ("worse", "better", "cannot_tell", "same")
"""Verdicts of figures that were compared, in the order in which they are told."""
Level = Literal["point", "series", "fields"]
"""How a pair was found. point: the same configuration at the same load. series: the same arm at the same load, with
another image, version or recipe. fields: configurations that differ in the fields that the user named."""
EffectUnit = Literal["%", "pp"]
"""Per cent of A's value, or percentage points of a share."""


@dataclass(frozen=True, slots=True)
class ComparedMetric:
    """A figure that was compared, and what became of it over all pairs: how many with which verdict, and their mean.
    `mean_percent` is the geometric mean of B/A - 1 over the `pairs` pairs that were measured twice, with its 95 % interval
    from noise; None for shares and scores. `verdict` is of that mean; where there is one pair, of that pair; None where
    nothing was tested."""

    address: str
    label: str
    unit: str
    better: str
    definition: str
    counts: dict[str, int]
    pairs: int
    verdict: Verdict | None = None
    verdict_text: str = ""
    mean_percent: float | None = None
    low_percent: float | None = None
    high_percent: float | None = None
    mean_text: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """One figure of one pair. `a` and `b` are values in the metric's unit, geometric means of `n_a` and `n_b`
    measurements. `effect` with its 95 % interval (`low`, `high`) and the `threshold` that it had to pass are in
    `effect_unit`; `p_adjusted` is after Holm's correction. `reason` says why nothing could be told."""

    address: str
    label: str
    verdict: Verdict
    verdict_text: str
    a: float | None
    b: float | None
    a_text: str
    b_text: str
    n_a: int
    n_b: int
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    effect_unit: EffectUnit = "%"
    effect_text: str = ""
    interval_text: str = ""
    threshold: float | None = None
    p_adjusted: float | None = None
    noise: str = ""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """A field in which the two sides of a pair differ."""

    field: str
    label: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Pair:
    """One configuration at one load on both sides. `refs` are the points behind each side."""

    label: str
    concurrency: int | None
    level: Level
    verdict: Verdict
    a_refs: tuple[str, ...]
    b_refs: tuple[str, ...]
    changed: tuple[Changed, ...]
    judged: tuple[Judged, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the common range of x and who is ahead in it: `a`, `b`, or `neither` where the curves are closer than noise
    and the smallest difference that matters. `mean_percent`: B's y against A's there."""

    low: float
    high: float
    winner: Literal["a", "b", "neither"]
    mean_percent: float


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One measured point of a curve, with its noise bands where they are known."""

    ref: str
    concurrency: int | None
    x: float
    y: float
    x_low: float | None = None
    x_high: float | None = None
    y_low: float | None = None
    y_high: float | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """Two lines (or two fronts) over the range of x that both cover (`low` to `high`): `mean_percent` is B's y against A's,
    the geometric mean over that range, with its 95 % interval from noise. Without a common range `reason` says so."""

    label: str
    kind: Literal["line", "front"]
    x: AxisInfo
    y: AxisInfo
    a: tuple[CurvePoint, ...]
    b: tuple[CurvePoint, ...]
    a_path: tuple[tuple[float, float], ...]
    b_path: tuple[tuple[float, float], ...]
    verdict: Verdict
    verdict_text: str
    low: float | None = None
    high: float | None = None
    mean_percent: float | None = None
    mean_low: float | None = None
    mean_high: float | None = None
    sections: tuple[Section, ...] = ()
    text: str = ""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A point that was not compared, and why."""

    ref: str
    label: str
    reason: str


@dataclass(frozen=True, slots=True)
class CompareView:
    """The whole comparison. `verdict` is worse if any figure is worse, else better if any is, else same if all are; `how`
    says by what it was judged."""

    a_label: str
    b_label: str
    common: str
    verdict: Verdict
    headline: str
    counts: dict[str, int]
    metrics: tuple[ComparedMetric, ...]
    pairs: tuple[Pair, ...]
    curves: tuple[Curve, ...]
    left_a: tuple[LeftOut, ...]
    left_b: tuple[LeftOut, ...]
    how: tuple[str, ...]
    hints: tuple[str, ...] = ()
