"""Three to six plain sentences about one line: what was reached, what it costs, whether it can be trusted.

Each is a message key with values, so that terminal, report and API say the same in either language.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from servemark.analysis.format import one
from servemark.analysis.line_accuracy import (
    SIGNIFICANCE,
    LineAccuracy,
    PointScore,
    detectable_difference,
    items_of,
)
from servemark.analysis.load import Load
from servemark.base.messages import text
from servemark.evals.runner import TaskOutcome
from servemark.metrics.derive import value_of
from servemark.metrics.registry import Unit
from servemark.results.doubts import CACHE_TOLERANCE
from servemark.results.row import ResultRow
from servemark.results.serialize import row_to_json

CLOSELY = 1e-3
"""Shares of prompt tokens that lie nearer than this are the same: a tenth of a percentage point."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence: message key and values."""

    key: str
    values: Mapping[str, object] = field(default_factory=dict)

    def text(self, lang: str | None = None) -> str:
        """The sentence in one language."""
        shown = {k: v.label(lang) if isinstance(v, Load) else v for k, v in self.values.items()}
        return text(self.key, lang, **shown)


def findings(
    rows: Sequence[ResultRow],
    missing: Sequence[int] = (),
    outcomes: Mapping[str, Sequence[TaskOutcome]] = MappingProxyType({}),
) -> tuple[Finding, ...]:
    """Sentences about the rows of one line in ascending concurrency; `missing` are points without a result, `outcomes` the
    accuracy tasks of each run id with their samples, as far as they are at hand."""
    if not rows:
        return (Finding("analysis.finding.nothing"),)
    plain = [row_to_json(row) for row in rows]
    found = [
        _best(rows, plain),
        _change(rows, plain),
        _cache(rows),
        *_accuracy(rows, outcomes),
        _trouble(rows, missing),
    ]
    return tuple(finding for finding in found if finding is not None)


def _best(rows: Sequence[ResultRow], plain: Sequence[Mapping[str, object]]) -> Finding | None:
    """The point of highest output throughput and what its users get."""
    known = [
        (rate, row, json)
        for row, json in zip(rows, plain, strict=True)
        if (rate := value_of(json, "output_tokens_per_s")) is not None
    ]
    if not known:
        return Finding("analysis.finding.no_rate")
    rate, row, json = max(known, key=lambda each: each[0])
    return Finding(
        "analysis.finding.best" if len(rows) > 1 else "analysis.finding.only",
        {
            "rate": one(rate, Unit.TOKENS_PER_S),
            "load": Load.of(row),
            "interactivity": one(value_of(json, "interactivity.p90"), Unit.TOKENS_PER_S_PER_USER),
            "ttft": one(value_of(json, "ttft_s.p90"), Unit.SECONDS),
        },
    )


def _change(rows: Sequence[ResultRow], plain: Sequence[Mapping[str, object]]) -> Finding | None:
    """From the lowest to the highest concurrency: throughput, interactivity and TTFT."""
    if len(rows) < 2 or None in (rows[0].concurrency, rows[-1].concurrency):
        return None
    if rows[0].concurrency == rows[-1].concurrency:
        return None
    low, high = plain[0], plain[-1]
    rates = (value_of(low, "output_tokens_per_s"), value_of(high, "output_tokens_per_s"))
    ratio = rates[1] / rates[0] if rates[0] and rates[1] is not None else None

    def pair(address: str, unit: Unit) -> tuple[str, str]:
        return one(value_of(low, address), unit), one(value_of(high, address), unit)

    speed, first = pair("interactivity.p50", Unit.TOKENS_PER_S_PER_USER), pair("ttft_s.p90", Unit.SECONDS)
    return Finding(
        "analysis.finding.change",
        {
            "low": rows[0].concurrency,
            "high": rows[-1].concurrency,
            "ratio": one(ratio, ""),
            "speed_from": speed[0],
            "speed_to": speed[1],
            "ttft_from": first[0],
            "ttft_to": first[1],
        },
    )


def _cache(rows: Sequence[ResultRow]) -> Finding | None:
    """Observed against theoretical cache share, at the point where the two lie furthest apart."""
    known = []
    for number, row in enumerate(rows):
        seen = row.cache.usage if row.cache.usage is not None else row.cache.engine
        if seen is not None and row.cache.theoretical is not None:
            known.append((abs(seen - row.cache.theoretical), seen, row.cache.theoretical, number))
    if not known:
        return None
    gap, seen, theory, number = max(known)
    if gap <= CACHE_TOLERANCE:
        close = gap < CLOSELY
        key = "analysis.finding.cache_agrees_closely" if close else "analysis.finding.cache_agrees"
    else:
        key = "analysis.finding.cache_below" if seen < theory else "analysis.finding.cache_above"
    return Finding(
        key,
        {
            "seen": one(seen, Unit.SHARE),
            "theory": one(theory, Unit.SHARE),
            "points": one(100 * gap, ""),
            "load": Load.of(rows[number]),
        },
    )


def _accuracy(rows: Sequence[ResultRow], outcomes: Mapping[str, Sequence[TaskOutcome]]) -> list[Finding]:
    """One sentence a task: the score with its standard error, and whether points differ beyond chance. Points
    where no item was answered have no score."""
    tasks: dict[tuple[str, str], list[PointScore]] = {}
    for row in rows:
        for score in row.evals:
            if score.answered:
                point = PointScore(Load.of(row), score, items_of(score, outcomes.get(row.run_id, ())))
                tasks.setdefault((score.task, score.version), []).append(point)
    return [_task(task, LineAccuracy(points)) for (task, _), points in tasks.items()]


def _task(task: str, line: LineAccuracy) -> Finding:
    values: dict[str, object] = {
        "task": task,
        "score": one(line.share, Unit.SHARE),
        "stderr": one(100 * line.stderr, ""),
        "n": line.n,
        "points": len(line.points),
    }
    if len(line.points) == 1:
        return Finding("analysis.finding.accuracy_one", values)
    pairs = line.differences()
    worst = min(pairs, key=lambda each: each.p_value)
    if worst.p_value * len(pairs) >= SIGNIFICANCE:
        least = max(detectable_difference(each.differing, each.n, len(pairs)) for each in pairs)
        values["detectable"] = one(100 * least, "")
        return Finding("analysis.finding.accuracy_same", values)
    values |= {
        "load_a": worst.a.load,
        "score_a": one(worst.a.score.score, Unit.SHARE),
        "load_b": worst.b.load,
        "score_b": one(worst.b.score.score, Unit.SHARE),
        "p_value": one(min(1.0, worst.p_value * len(pairs)), ""),
    }
    return Finding("analysis.finding.accuracy_differs", values)


def _trouble(rows: Sequence[ResultRow], missing: Sequence[int]) -> Finding:
    """What went wrong, or that nothing did."""
    total = bad = 0
    for row in rows:
        counts = row.counts
        failed = counts.error + counts.timeout + counts.incomplete + counts.cancelled
        bad, total = bad + failed, total + failed + counts.ok
    doubts = {warned.code for row in rows for warned in row.warnings}
    if missing:
        shown = ", ".join(str(each) for each in missing)
        values = {"missing": shown, "bad": bad, "total": total}
        return Finding("analysis.finding.points_missing", values)
    if bad:
        return Finding(
            "analysis.finding.requests_failed", {"bad": bad, "total": total, "doubts": len(doubts)}
        )
    if doubts:
        return Finding("analysis.finding.doubts", {"total": total, "doubts": len(doubts)})
    return Finding("analysis.finding.all_well", {"total": total})
