"""The standard table of points and the axis choices: which figures, in which unit, with which label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from servemark.analysis.format import Display
from servemark.analysis.front import Candidate, candidate_of, front
from servemark.analysis.labels import absent_text, display_of, label
from servemark.analysis.report_types import AxisChoice, Cell, Column
from servemark.analysis.staircase import staircase
from servemark.base.messages import text
from servemark.metrics.address import Address, parse
from servemark.metrics.derive import Reading, Row, read
from servemark.metrics.registry import Better

ALWAYS = (
    "output_tokens_per_s",
    "interactivity.p50",
    "interactivity.p90",
    "ttft_s.p50",
    "ttft_s.p90",
    "tpot_s.p50",
    "e2el_s.p50",
    "e2el_s.p90",
    "cache_hit_usage",
)
LAST = ("requests_ok", "error_rate")
PER_GPU = "output_tokens_per_s_per_gpu"
X_CHOICES = ("interactivity.p50", "ttft_s.p90", "e2el_s.p50")


def standard_addresses(rows: Sequence[Row]) -> tuple[Address, ...]:
    """The table's columns: per-GPU throughput where any point has GPUs, one accuracy column for each task."""
    tasks: dict[str, None] = {}
    for row in rows:
        scores = row.get("evals")
        for score in scores if isinstance(scores, list | tuple) else ():
            tasks[str(score["task"])] = None
    with_gpus = any(row.get("gpus_deployed") for row in rows)
    names = (ALWAYS[0], *((PER_GPU,) if with_gpus else ()), *ALWAYS[1:])
    scored = tuple(Address(parse("eval_score").metric, task=task) for task in tasks)
    return (*map(parse, names), *scored, *map(parse, LAST))


def column(address: Address, shown: Display, lang: str | None) -> Column:
    """What one column says of itself."""
    metric = address.metric
    return Column(
        address=str(address),
        label=label(address, lang),
        unit=shown.unit,
        better=metric.better,
        definition=text(metric.definition_key, lang),
        formula=text(metric.formula_key, lang),
    )


def table(
    rows: Sequence[Row], eligible: Sequence[bool], lang: str | None
) -> tuple[tuple[Column, ...], list[tuple[Cell, ...]]]:
    """Columns, and for each row its cells in their order. `eligible` says which rows may hold a best
    value."""
    read_all = {address: [read(row, address) for row in rows] for address in standard_addresses(rows)}
    family: dict[str, list[float | None]] = {}
    for address, readings in read_all.items():
        family.setdefault(address.metric.id, []).extend(reading.value for reading in readings)
    columns: list[Column] = []
    by_column: list[list[Cell]] = []
    for address, readings in read_all.items():
        shown = display_of(address, family[address.metric.id])  # p50 and p90 of a metric share one unit
        columns.append(column(address, shown, lang))
        best = _best(address, readings, eligible)
        pairs = zip(readings, eligible, strict=True)
        by_column.append([_cell(reading, shown, best, may, lang) for reading, may in pairs])
    return tuple(columns), [tuple(cells[i] for cells in by_column) for i in range(len(rows))]


def _best(address: Address, readings: Sequence[Reading], eligible: Sequence[bool]) -> float | None:
    """The best value of a column among eligible rows, when there are two of them to choose from."""
    if address.metric.better is Better.NEITHER or sum(eligible) < 2:
        return None
    values = [r.value for r, may in zip(readings, eligible, strict=True) if may and r.value is not None]
    if not values:
        return None
    best = max(values) if address.metric.better is Better.HIGHER else min(values)
    return best if any(value != best for value in values) else None


def _cell(reading: Reading, shown: Display, best: float | None, eligible: bool, lang: str | None) -> Cell:
    return Cell(
        address=str(reading.address),
        value=reading.value,
        number=shown.number(reading.value),
        text=shown.text(reading.value),
        absent_because=absent_text(reading.reason, lang),
        best=eligible and best is not None and reading.value == best,
    )


def axis_choices(
    rows: Sequence[Row], lang: str | None, kept_off: Mapping[str, str] | None = None
) -> tuple[AxisChoice, ...]:
    """The fronts that a reader may choose from; the first is the default. Throughput is per GPU where all
    points have GPUs, since only then one denominator serves them all. `kept_off`: run id -> why gates quarantined it."""
    if not rows:
        return ()
    y = parse(PER_GPU if all(row.get("gpus_deployed") for row in rows) else ALWAYS[0])
    return tuple(_axis_choice(rows, parse(x), y, lang, kept_off or {}) for x in X_CHOICES)


def _axis_choice(
    rows: Sequence[Row], x: Address, y: Address, lang: str | None, kept_off: Mapping[str, str]
) -> AxisChoice:
    candidates = [_judged(candidate_of(row, x, y), kept_off) for row in rows]
    result = front(candidates, x.metric.better, y.metric.better)
    shown_x = display_of(x, [candidate.x for candidate in candidates])
    shown_y = display_of(y, [candidate.y for candidate in candidates])
    return AxisChoice(
        id=f"{x}/{y}",
        x=str(x),
        y=str(y),
        x_label=label(x, lang),
        y_label=label(y, lang),
        x_unit=shown_x.unit,
        y_unit=shown_y.unit,
        x_factor=shown_x.factor,
        y_factor=shown_y.factor,
        x_better=x.metric.better,
        y_better=y.metric.better,
        x_better_text=text(f"metrics.better.{x.metric.better.value}", lang),
        y_better_text=text(f"metrics.better.{y.metric.better.value}", lang),
        front=result,
        path=staircase(result),
        excluded=tuple((candidate.id, excluded_text(candidate, lang)) for candidate in result.excluded),
    )


def _judged(candidate: Candidate, kept_off: Mapping[str, str]) -> Candidate:
    """The same, off the front where gates quarantined it and nothing else keeps it off."""
    said = kept_off.get(candidate.id)
    if said is None or candidate.reason is not None:
        return candidate
    return replace(candidate, reason="analysis.excluded.quarantined", values=(("said", said),))


def excluded_text(candidate: Candidate, lang: str | None) -> str:
    """Why a point is not eligible, in words."""
    if candidate.reason is None:
        return ""
    said: dict[str, object] = dict(candidate.values)
    if "metric" in said:
        said["metric"] = label(parse(str(said["metric"])), lang)
        said["why"] = text(str(said["why"]), lang)
    return text(candidate.reason, lang, **said)
