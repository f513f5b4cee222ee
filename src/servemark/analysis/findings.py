"""Three to six plain sentences about one line: what was reached, what it costs, whether it can be trusted.

Each is a message key with values, so that terminal, report and API say the same in either language.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from servemark.analysis.format import one
from servemark.analysis.load import Load
from servemark.base.messages import text
from servemark.metrics.accuracy import EvalScore
from servemark.metrics.derive import value_of
from servemark.metrics.registry import Unit
from servemark.results.doubts import CACHE_TOLERANCE
from servemark.results.row import ResultRow
from servemark.results.serialize import row_to_json

SIGNIFICANCE = 0.05
"""Family-wise error of "the accuracy differs", shared by all pairs of points (Bonferroni)."""
POWER_Z = 0.8416
"""Normal quantile of 80 % power, for the smallest difference that could have been seen."""
ALPHA_Z = 1.96


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence: message key and values."""

    key: str
    values: Mapping[str, object] = field(default_factory=dict)

    def text(self, lang: str | None = None) -> str:
        """The sentence in one language."""
        shown = {k: v.label(lang) if isinstance(v, Load) else v for k, v in self.values.items()}
        return text(self.key, lang, **shown)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two shares of correct answers: |z| of the pooled two-proportion test and its two-sided p-value."""

    z: float
    p_value: float


def two_proportions(correct_a: int, n_a: int, correct_b: int, n_b: int) -> Comparison | None:
    """Pooled z test of equal shares; None when it says nothing (no items, or all right or all wrong at both).

    z = (pa - pb) / sqrt(p (1 - p) (1/na + 1/nb)) with p the share of both together; p-value = erfc(|z| / sqrt
    2). The points answer the same items, which makes this test err towards "no difference".
    """
    if n_a <= 0 or n_b <= 0:
        return None
    pooled = (correct_a + correct_b) / (n_a + n_b)
    spread = pooled * (1 - pooled) * (1 / n_a + 1 / n_b)
    if spread <= 0:
        return None
    z = abs(correct_a / n_a - correct_b / n_b) / math.sqrt(spread)
    return Comparison(z, math.erfc(z / math.sqrt(2)))


def detectable_difference(p: float, n: int) -> float:
    """The difference between two shares near p that two samples of n items would show in 80 % of cases at 5
    %."""
    return (ALPHA_Z + POWER_Z) * math.sqrt(2 * p * (1 - p) / n) if n > 0 else 1.0


def findings(rows: Sequence[ResultRow], missing: Sequence[int] = ()) -> tuple[Finding, ...]:
    """Sentences about the rows of one line in ascending concurrency; `missing` are points without a
    result."""
    if not rows:
        return (Finding("analysis.finding.nothing"),)
    plain = [row_to_json(row) for row in rows]
    found = [
        _best(rows, plain),
        _change(rows, plain),
        _cache(rows),
        *_accuracy(rows),
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
        key = "analysis.finding.cache_agrees"
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


def _accuracy(rows: Sequence[ResultRow]) -> list[Finding]:
    """One sentence a task: the score with its standard error, and whether points differ beyond chance. Points
    where no item was answered have no score."""
    tasks: dict[tuple[str, str], list[tuple[Load, EvalScore]]] = {}
    for row in rows:
        for score in row.evals:
            if score.answered:
                tasks.setdefault((score.task, score.version), []).append((Load.of(row), score))
    return [_task(task, scores) for (task, _), scores in tasks.items()]


def _task(task: str, scores: Sequence[tuple[Load, EvalScore]]) -> Finding:
    n = sum(score.n for _, score in scores)
    share = sum(score.correct for _, score in scores) / n
    values: dict[str, object] = {
        "task": task,
        "score": one(share, Unit.SHARE),
        "stderr": one(100 * math.sqrt(share * (1 - share) / n), ""),
        "n": n,
        "points": len(scores),
    }
    if len(scores) == 1:
        return Finding("analysis.finding.accuracy_one", values)
    pairs = list(combinations(scores, 2))
    tested = [
        (result.p_value, a, b)
        for a, b in pairs
        if (result := two_proportions(a[1].correct, a[1].n, b[1].correct, b[1].n)) is not None
    ]
    worst = min(tested, key=lambda each: each[0], default=None)
    if worst is None or worst[0] * len(pairs) >= SIGNIFICANCE:
        smallest = min(score.n for _, score in scores)
        values["detectable"] = one(100 * detectable_difference(share, smallest), "")
        return Finding("analysis.finding.accuracy_same", values)
    p_value, (load_a, a), (load_b, b) = worst
    values |= {
        "load_a": load_a,
        "score_a": one(a.score, Unit.SHARE),
        "load_b": load_b,
        "score_b": one(b.score, Unit.SHARE),
        "p_value": one(min(1.0, p_value * len(pairs)), ""),
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
