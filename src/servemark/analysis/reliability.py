"""How often jobs end well: by hardware and source, over 3 days, a week, a month, three months and all time, with the
numbers that each share is made of and the reasons of what failed.

A share without its denominator says nothing, so every cell has both and the interval that so few jobs allow (Wilson,
95 %). No job is no share. Sources are never summed: a published job, an attempt of a sweep and a run are three things.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

from servemark.base.errors import ServemarkError
from servemark.base.messages import find_text, text
from servemark.catalog.hardware import gpu_of_label
from servemark.store.database import Store
from servemark.store.raw_files import RawFiles
from servemark.store.sweep_rows import AttemptState, SweepAttempt, SweepPoint
from servemark.store.sweeps import SweepStore

PUBLISHED, SWEEP, RUN = "published", "sweep", "run"
SOURCES = (SWEEP, RUN, PUBLISHED)
WINDOWS: tuple[tuple[str, int | None], ...] = (("3d", 3), ("7d", 7), ("1m", 30), ("3m", 90), ("all", None))
"""Name and days, the last of them being the newest day that anything is known of."""
MAX_PUBLISHED_BYTES = 64 * 2**20
MAX_REASONS = 50
_Z = 1.959963984540054
"""Normal quantile of 97.5 %."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Jobs of one day: `ok` of `total` ended well. `layer` and `what` (words or a message key with values) say why one
    did not; None where the source does not tell."""

    source: str
    hardware: str
    day: str
    ok: int
    total: int
    layer: str | None = None
    what: str | None = None
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReliabilityCell:
    """One window: how many of how many, their share with its interval (0..1), or None where no job ran."""

    window: str
    ok: int
    total: int
    share: float | None
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True, slots=True)
class ReliabilityDay:
    """One day that had jobs."""

    day: str
    ok: int
    total: int


@dataclass(frozen=True, slots=True)
class ReliabilityRow:
    """One hardware (or cluster) of one source."""

    source: str
    source_label: str
    hardware: str
    cells: tuple[ReliabilityCell, ...]
    days: tuple[ReliabilityDay, ...]


@dataclass(frozen=True, slots=True)
class ReliabilityReason:
    """Failures of one kind: how many, of which layer, an example in words, and the last day that saw one."""

    source: str
    source_label: str
    hardware: str
    layer: str
    layer_label: str
    text: str
    count: int
    last: str


@dataclass(frozen=True, slots=True)
class ReliabilityView:
    """See the module. `until` is the newest day of each source that has any."""

    windows: tuple[str, ...]
    window_labels: tuple[str, ...]
    until: Mapping[str, str]
    rows: tuple[ReliabilityRow, ...]
    reasons: tuple[ReliabilityReason, ...]
    unexplained: int
    notes: tuple[str, ...]


def reliability(outcomes: Iterable[Outcome], lang: str | None = None) -> ReliabilityView:
    """The view of these outcomes; their order does not matter."""
    grouped: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for one in outcomes:
        if one.total > 0:
            grouped[one.source, one.hardware].append(one)
    until: dict[str, str] = {}
    for (source, _), some in grouped.items():
        until[source] = max(until.get(source, ""), *(one.day for one in some))
    order = sorted(grouped, key=lambda key: (_place(key[0]), key[1]))
    rows = tuple(_row(source, name, grouped[source, name], until[source], lang) for source, name in order)
    failed = [one for some in grouped.values() for one in some if one.ok < one.total]
    reasons = _reasons(failed, lang)
    unexplained = sum(one.total - one.ok for one in failed if one.layer is None)
    notes = []
    if unexplained:
        notes.append(text("reliability.note.unexplained", lang, count=unexplained))
    if rows:
        notes.append(text("reliability.note.interval", lang))
    labels = tuple(text(f"reliability.window.{name}", lang) for name, _ in WINDOWS)
    return ReliabilityView(
        tuple(name for name, _ in WINDOWS), labels, until, rows, reasons, unexplained, tuple(notes)
    )


def _place(source: str) -> int:
    return SOURCES.index(source) if source in SOURCES else len(SOURCES)


def _row(source: str, hardware: str, some: Sequence[Outcome], until: str, lang: str | None) -> ReliabilityRow:
    last = date.fromisoformat(until)
    cells = []
    for name, days in WINDOWS:
        first = "" if days is None else (last - timedelta(days=days - 1)).isoformat()
        within = [one for one in some if one.day >= first]
        cells.append(_cell(name, sum(o.ok for o in within), sum(o.total for o in within), lang))
    by_day: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for one in some:
        by_day[one.day][0] += one.ok
        by_day[one.day][1] += one.total
    days_seen = tuple(ReliabilityDay(day, ok, total) for day, (ok, total) in sorted(by_day.items()))
    return ReliabilityRow(
        source, text(f"reliability.source.{source}", lang), hardware, tuple(cells), days_seen
    )


def _cell(window: str, ok: int, total: int, lang: str | None) -> ReliabilityCell:
    if not total:
        return ReliabilityCell(window, 0, 0, None, None, None, text("reliability.none", lang))
    low, high = wilson(ok, total)
    said = text(
        "reliability.cell",
        lang,
        percent=f"{100 * ok / total:.1f}",
        ok=ok,
        total=total,
        low=f"{100 * low:.0f}",
        high=f"{100 * high:.0f}",
    )
    return ReliabilityCell(window, ok, total, ok / total, low, high, said)


def wilson(ok: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927): sound for few jobs and for shares of 0 and 1."""
    share = ok / total
    middle = share + _Z**2 / (2 * total)
    spread = _Z * math.sqrt(share * (1 - share) / total + _Z**2 / (4 * total**2))
    below = 1 + _Z**2 / total
    return max(0.0, (middle - spread) / below), min(1.0, (middle + spread) / below)


def _reasons(failed: Sequence[Outcome], lang: str | None) -> tuple[ReliabilityReason, ...]:
    counts: Counter[tuple[str, str, str, str]] = Counter()
    last: dict[tuple[str, str, str, str], Outcome] = {}
    for one in failed:
        if one.layer is None:
            continue
        key = (one.source, one.hardware, one.layer, one.what or "")
        counts[key] += one.total - one.ok
        if key not in last or one.day >= last[key].day:
            last[key] = one
    found = []
    for key, count in counts.most_common(MAX_REASONS):
        one = last[key]
        found.append(
            ReliabilityReason(
                one.source,
                text(f"reliability.source.{one.source}", lang),
                one.hardware,
                key[2],
                find_text(f"reliability.layer.{key[2]}", lang) or key[2],
                _words(one, lang),
                count,
                one.day,
            )
        )
    return tuple(found)


def _words(one: Outcome, lang: str | None) -> str:
    """A message where `what` is a key that is known and its values fit; else what stands there."""
    what = one.what or ""
    try:
        found = find_text(what, lang, **{str(name): value for name, value in one.values.items()})
    except (KeyError, IndexError, ValueError, TypeError, AttributeError):
        found = None  # written by another version, with other placeholders
    return found or what


def published_outcomes(store: Store, raw: RawFiles) -> tuple[list[Outcome], list[str]]:
    """Jobs by hardware and day as an imported file of them states (rows of hardware, date, n_success, total), and why
    files were passed over. Snapshots of one publisher overlap, so that the one with the newest day counts alone."""
    ask = """
        SELECT s.sha256, s.name, s.bytes FROM import_row r JOIN import_source s ON s.id = r.source_id
        WHERE r.reason = 'results.import_no_result_rows' AND json_extract(r.reason_values, '$.kind') = 'reliability'
        ORDER BY s.id
    """
    best: list[Outcome] = []
    problems = []
    for sha256, name, size in store.query(ask):
        if int(size) > MAX_PUBLISHED_BYTES:
            problems.append(str(name))
            continue
        try:
            with raw.open(str(sha256)) as stream:
                rows = json.loads(stream.read(MAX_PUBLISHED_BYTES + 1))
        except (ServemarkError, ValueError, RecursionError):
            problems.append(str(name))
            continue
        found = (
            [one for row in rows if (one := _published(row)) is not None] if isinstance(rows, list) else []
        )
        if max((one.day for one in found), default="") > max((one.day for one in best), default=""):
            best = found
    return best, problems


def _published(row: object) -> Outcome | None:
    if not isinstance(row, dict):
        return None
    hardware, day, ok, total = (row.get(name) for name in ("hardware", "date", "n_success", "total"))
    if not (isinstance(hardware, str) and hardware and isinstance(day, str) and _is_day(day)):
        return None
    if (
        isinstance(ok, bool)
        or isinstance(total, bool)
        or not (isinstance(ok, int) and isinstance(total, int))
    ):
        return None
    return Outcome(PUBLISHED, hardware[:80], day, ok, total) if 0 <= ok <= total < 10**9 else None


def _is_day(value: str) -> bool:
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return len(value) == len("2026-01-01")


def sweep_outcomes(sweeps: SweepStore) -> list[Outcome]:
    """Attempts of all sweeps that ended by themselves: done, failed or lost. Those that were stopped on request or never
    started say nothing about reliability."""
    found = []
    for sweep in sweeps.sweeps():
        points = sweeps.points(sweep.sweep_id)
        by_unit: dict[int, list[SweepPoint]] = defaultdict(list)
        for point in points:
            by_unit[point.unit].append(point)
        for attempt in sweeps.attempts(sweep.sweep_id):
            one = _attempt(attempt, by_unit.get(attempt.unit, []))
            if one is not None:
                found.append(one)
    return found


def _attempt(attempt: SweepAttempt, points: Sequence[SweepPoint]) -> Outcome | None:
    day = (attempt.ended_utc or attempt.started_utc)[:10]
    if not _is_day(day) or not points:
        return None
    label = points[0].cluster
    gpu = gpu_of_label(label)
    hardware = gpu.name if gpu is not None else label
    if attempt.state is AttemptState.DONE:
        return Outcome(SWEEP, hardware, day, 1, 1)
    if attempt.state is AttemptState.LOST:
        return Outcome(SWEEP, hardware, day, 0, 1, "lost", "reliability.lost")
    if attempt.state is not AttemptState.FAILED:
        return None
    failures = [p.failure for p in points if p.attempt == attempt.attempt and p.failure is not None]
    if not failures:
        return Outcome(SWEEP, hardware, day, 0, 1, "unknown", attempt.exit)
    layer, what, values = failure_words(failures[0])
    return Outcome(SWEEP, hardware, day, 0, 1, layer, what, values)


def failure_words(failure: Mapping[str, object]) -> tuple[str, str, Mapping[str, object]]:
    """(layer, message key or words, values) of a failure as runs and sweeps keep it."""
    layer = str(failure.get("layer") or "unknown")[:40]
    values = failure.get("values")
    what = failure.get("what") or failure.get("key") or ""
    return layer, str(what)[:400], values if isinstance(values, Mapping) else {}
