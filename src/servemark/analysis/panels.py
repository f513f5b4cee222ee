"""The panels of one point: prefix cache, accuracy with samples, provenance, phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from servemark.analysis.format import one, significant
from servemark.analysis.labels import absent_text
from servemark.analysis.report_types import CachePanel, EvalPanel, Phase, ProvenanceRow, Sample, Share
from servemark.base.canonical import canonical_json
from servemark.base.messages import find_text, text
from servemark.catalog.phase_budgets import PHASES
from servemark.evals.runner import TaskOutcome
from servemark.evals.samples import SampleRecord
from servemark.metrics.accuracy import EvalScore
from servemark.metrics.derive import Row, read
from servemark.metrics.registry import METRICS, Unit
from servemark.results.doubts import CACHE_TOLERANCE
from servemark.results.row import CacheFigures, ResultRow

SHARES = ("cache_hit_theoretical", "cache_hit_theoretical_blocks", "cache_hit_usage", "cache_hit_engine")
MAX_SAMPLE_CHARS = 4000
MAX_PROVENANCE_ROWS = 200
MAX_VALUE_CHARS = 400

PAIRS = {"engine": "engine.engine", "engine_version": "engine.version"}
"""Declared field -> the observed field that states the same fact. Other fields pair with their equal name."""
EARLIER_PHASES = ("launch", "ready")
"""Of rows from before a run's start was kept phase by phase."""
INTERNAL = "engine_counters"


def cache_panel(row: ResultRow, plain: Row, lang: str | None) -> CachePanel:
    """The four shares and whether what was seen agrees with what was to be expected."""
    entries = []
    for name in SHARES:
        metric, reading = METRICS[name], read(plain, name)
        if name == "cache_hit_theoretical_blocks" and reading.value is None:
            continue  # this workload does not come in blocks: nothing is missing
        entries.append(
            Share(
                id=name,
                label=text(metric.label_key, lang),
                value=reading.value,
                text=one(reading.value, Unit.SHARE),
                meaning=text(metric.definition_key, lang),
                absent_because=absent_text(reading.reason, lang),
            )
        )
    agrees, verdict = _verdict(row.cache)
    kind, scope = row.cache_state.get("kind"), row.cache_state.get("marker_scope")
    state = f"analysis.cache.state.{kind}_{scope}" if kind == "marked" else f"analysis.cache.state.{kind}"
    unknown = text("analysis.cache.state.unknown", lang)
    return CachePanel(
        tuple(entries),
        text(verdict, lang, limit=_points(CACHE_TOLERANCE)),
        agrees,
        find_text(state, lang) or unknown,
    )


def _points(share: float) -> str:
    return f"{100 * share:g}"


def _verdict(cache: CacheFigures) -> tuple[bool | None, str]:
    """(all known shares within the tolerance of each other?, message key)."""
    pairs = [(cache.usage, cache.engine, "engine"), (cache.theoretical, cache.usage, "theory")]
    if cache.usage is None:
        pairs.append((cache.theoretical, cache.engine, "theory"))
    compared = [
        (abs(a - b) <= CACHE_TOLERANCE, which) for a, b, which in pairs if a is not None and b is not None
    ]
    if not compared:
        return None, "analysis.cache.unknown"
    apart = [which for close, which in compared if not close]
    return (False, f"analysis.cache.apart_{apart[0]}") if apart else (True, "analysis.cache.agree")


def eval_panels(
    scores: Sequence[EvalScore], tasks: Sequence[TaskOutcome], samples: int, lang: str | None
) -> tuple[EvalPanel, ...]:
    """One panel for each task that the row scored, with samples where evals.json holds them."""
    kept = {(task.score.task, task.score.version, task.score.concurrency): task for task in tasks}
    return tuple(
        _eval_panel(score, kept.get((score.task, score.version, score.concurrency)), samples, lang)
        for score in scores
    )


def _eval_panel(score: EvalScore, kept: TaskOutcome | None, samples: int, lang: str | None) -> EvalPanel:
    absent = None if score.answered else text("metrics.absent.no_answer", lang)
    said = text(
        "analysis.eval.score",
        lang,
        score=one(score.score, Unit.SHARE),
        stderr=significant(100 * score.stderr),
        correct=score.correct,
        n=score.n,
    )
    return EvalPanel(
        task=score.task,
        version=score.version,
        score=score.score,
        stderr=score.stderr,
        n=score.n,
        expected_n=score.expected_n,
        correct=score.correct,
        unanswered=score.unanswered,
        truncated=score.truncated,
        duration_s=score.duration_s,
        text=said if absent is None else text("analysis.eval.absent", lang, reason=absent, n=score.n),
        samples=tuple(_sample(each) for each in mixed(kept.samples if kept else (), samples)),
        samples_total=kept.sampled if kept else 0,
        absent_because=absent,
    )


def mixed(samples: Sequence[SampleRecord], limit: int) -> list[SampleRecord]:
    """Up to `limit` samples spread evenly over the task, half of them wrong as far as there are any, in
    order."""
    if limit <= 0:
        return []
    wrong = [i for i, each in enumerate(samples) if not each.correct]
    right = [i for i, each in enumerate(samples) if each.correct]
    n_wrong = min(len(wrong), max(limit // 2, limit - len(right)))
    n_right = min(len(right), limit - n_wrong)
    return [samples[i] for i in sorted(_spread(wrong, n_wrong) + _spread(right, n_right))]


def _spread(places: Sequence[int], count: int) -> list[int]:
    return [places[i * len(places) // count] for i in range(count)]


def _cut(value: str | None) -> str | None:
    return value if value is None or len(value) <= MAX_SAMPLE_CHARS else value[:MAX_SAMPLE_CHARS] + " …"


def _sample(sample: SampleRecord) -> Sample:
    return Sample(
        id=sample.item,
        prompt=_cut(sample.prompt) or "",
        reply=_cut(sample.reply),
        extracted=_cut(sample.extracted),
        expected=_cut(sample.expected) or "",
        correct=sample.correct,
        latency_s=sample.latency_s,
        finish_reason=sample.finish_reason,
        outcome=sample.outcome,
    )


def flatten(value: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Dotted field -> text of each leaf; absent (None) leaves are left out, lists are one leaf."""
    found: dict[str, str] = {}
    for name, inner in value.items():
        field = f"{prefix}{name}"
        if isinstance(inner, Mapping):
            found |= flatten(inner, f"{field}.")
        elif inner is not None:
            said = inner if isinstance(inner, str) else canonical_json(inner)
            found[field] = said if len(said) <= MAX_VALUE_CHARS else said[:MAX_VALUE_CHARS] + " …"
    return found


def provenance(row: ResultRow) -> tuple[ProvenanceRow, ...]:
    """Declared fields first, each beside the observed field of the same fact, then what was only observed."""
    declared = flatten(row.declared)
    observed = flatten({name: value for name, value in row.observed.items() if name != INTERNAL})
    rows, used = [], set()
    for field, said in declared.items():
        twin = PAIRS.get(field, field)
        seen = observed.get(twin)
        used.add(twin)
        rows.append(ProvenanceRow(field, said, seen, None if seen is None else said.strip() == seen.strip()))
    rows += [ProvenanceRow(field, None, seen, None) for field, seen in observed.items() if field not in used]
    return tuple(rows[:MAX_PROVENANCE_ROWS])


def phases(row: ResultRow, lang: str | None) -> tuple[Phase, ...]:
    """Phases in the order in which the row holds them."""
    order = (*EARLIER_PHASES, *PHASES)
    known = [name for name in order if name in row.phases_s]
    names = known + sorted(name for name in row.phases_s if name not in order)
    return tuple(
        Phase(name, find_text(f"analysis.phase.{name}", lang) or name, row.phases_s[name]) for name in names
    )
