"""May a point stand on a front: whole, counted, not quarantined, few errors, and right in what it answers.

Accuracy is often a result of its own (scenario type `eval`): it speaks for the points of the same run and configuration.
Where a threshold is stated a failed eval keeps them off. Where none is, nothing fails; a score far below what the same
model reaches elsewhere is named as a warning.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from servemark.analysis.axes import Reading
from servemark.analysis.front import ERROR_RATE_LIMIT
from servemark.analysis.measured import Measured
from servemark.base.messages import find_text, text
from servemark.evals.verdict import FAR_BELOW, beside_others
from servemark.results.gates.base import GateFinding, Severity
from servemark.results.gates.words import sentence, title
from servemark.results.point import Eval

EVAL = "eval"


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a point is kept off, or what is to be known of it: `front.doubt.<kind>` is the sentence with its values,
    `front.doubt.<kind>.short` the same without any, for counts. `absent` is the reading that has no value, `finding` what
    a gate said."""

    kind: str
    values: tuple[tuple[str, object], ...] = ()
    absent: Reading | None = None
    finding: GateFinding | None = None

    def sentence(self, lang: str | None = None) -> str:
        """For the person who looks at this point."""
        values = dict(self.values)
        if self.absent is not None:
            values["why"] = self.absent.why(lang) or text("metrics.absent.always", lang)
        if self.finding is not None:
            values["said"] = sentence(self.finding, lang)
        return text(f"front.doubt.{self.kind}", lang, **values)

    def short(self, lang: str | None = None) -> str:
        """For a count of points."""
        values = {} if self.finding is None else {"title": title(self.finding.gate, lang)}
        return find_text(f"front.doubt.{self.kind}.short", lang, **values) or self.sentence(lang)


@dataclass(frozen=True, slots=True)
class LowEval:
    """An accuracy result far below the others of its model. `others` is how many results the median is of."""

    point: Measured
    score: Eval
    median: float
    others: int

    def doubt(self) -> Doubt:
        """As a warning of the points that it speaks for."""
        said = (
            ("task", self.score.task),
            ("metric", self.score.metric),
            ("score", round(self.score.score, 3)),
        )
        return Doubt("low_eval", (*said, ("median", round(self.median, 3)), ("others", self.others)))


def same_run_and_configuration(point: Measured) -> Hashable:
    """Points that an accuracy result speaks for: one run, one deployment, whatever the load or the scenario."""
    i = point.identity
    return (point.source, point.run, i.model, i.hardware, i.engine, i.precision, i.speculation, i.topology)


def without_copies(points: Iterable[Measured]) -> list[Measured]:
    """Each measurement once. Two files may hold one row: the same run, configuration and load, where all figures that one
    states are those that the other states. The one that says more stands for both; repeats differ in their figures."""
    alike: dict[Hashable, list[Measured]] = defaultdict(list)
    for point in points:
        key = (
            same_run_and_configuration(point),
            point.scenario,
            point.concurrency,
            point.attempt,
            point.current,
        )
        alike[key if point.figures else point.ref].append(point)
    return [kept for some in alike.values() for kept in (some if len(some) == 1 else _once(some))]


def _once(some: list[Measured]) -> list[Measured]:
    kept: list[Measured] = []
    for point in sorted(some, key=lambda p: (-len(p.figures), -sum(map(bool, _told(p))), p.ref)):
        figures = point.figures.items()
        if not any(figures <= other.figures.items() for other in kept):
            kept.append(point)
    return kept


def _told(point: Measured) -> tuple[object, ...]:
    i = point.identity
    return i.image, i.engine_version, i.model_revision, i.recipe_fingerprint, i.router


def eligibility(points: Iterable[Measured], evals: Iterable[Measured] = ()) -> dict[str, Doubt | None]:
    """By `ref`: None, or the first reason that keeps the point off every front. `evals` are accuracy results of their
    own; those among `points` are heard as well."""
    offered = list(points)
    failed: dict[Hashable, Eval] = {}
    for one in {each.ref: each for each in (*offered, *evals)}.values():
        bad = [each for each in one.evals if each.passed is False] if one.current else []
        if bad:
            failed.setdefault(same_run_and_configuration(one), bad[0])
    return {point.ref: _doubt(point, failed) for point in offered}


def _doubt(point: Measured, failed: dict[Hashable, Eval]) -> Doubt | None:
    if point.identity.scenario.type == EVAL:
        return Doubt("accuracy_only")
    if not point.current:
        return Doubt("superseded")
    wrong = failed.get(same_run_and_configuration(point)) if failed else None
    if wrong is not None:
        said = (("task", wrong.task), ("metric", wrong.metric), ("score", round(wrong.score, 3)))
        return Doubt("eval_failed", said)
    if point.verdict == "quarantined":
        return _quarantined(point)
    if point.status != "complete":
        return Doubt("partial")
    return _errors(point)


def _quarantined(point: Measured) -> Doubt:
    gates = [each for each in point.findings if each.severity is Severity.QUARANTINE]
    if not gates:
        return Doubt("quarantined")
    return Doubt("quarantined_by", finding=gates[0])


def _errors(point: Measured) -> Doubt | None:
    ok, bad = point.requests_ok, point.requests_error
    if ok == 0:
        return Doubt("no_request")
    share = point.figures.get("error_rate")
    if share is None and ok is not None and bad is not None:
        share = bad / (ok + bad)
    if share is not None and share > ERROR_RATE_LIMIT:
        return Doubt("errors", (("percent", round(100 * share, 1)), ("limit", round(100 * ERROR_RATE_LIMIT))))
    return None


def low_evals(evals: Sequence[Measured]) -> list[LowEval]:
    """Accuracy results far below the same model's others on the same task and metric, the farthest first: by the rule of
    `evals.verdict.beside_others`, so that a front, the overview and `eval` call the same scores low."""
    alike: dict[tuple[str, str, str], list[tuple[Measured, Eval]]] = defaultdict(list)
    for point in evals:
        for each in point.evals:
            alike[point.identity.model, each.task, each.metric].append((point, each))
    found = []
    for some in alike.values():
        ordered = sorted(each.score for _, each in some)
        above = ordered[min(len(ordered) // 2 + 1, len(ordered) - 1)]  # no median of others lies higher
        for number, (point, each) in enumerate(some):
            if above - each.score <= FAR_BELOW:
                continue
            others = [other.score for _, other in (*some[:number], *some[number + 1 :])]
            beside = beside_others(each.score, each.stderr or 0.0, others)
            if beside is not None and beside.far_below:
                found.append(LowEval(point, each, beside.median, beside.others))
    return sorted(found, key=lambda low: (low.score.score - low.median, low.point.ref, low.score.metric))
