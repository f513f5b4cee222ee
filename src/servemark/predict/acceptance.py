"""Acceptance lengths of a speculating arm, side by side: the golden one that makes arms comparable, what the arm forces,
and what real verification gave or is known to give on such work.

A golden length was taken on short coding prompts (SPEED-Bench, at most 16 k tokens of context). On agents' long contexts
drafts are accepted far less often, so a throughput under forced acceptance is no promise of the throughput in service.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from servemark.analysis.measured import Measured
from servemark.catalog.arms import Arm, SearchEntry
from servemark.catalog.deployment import Deployment, Speculative
from servemark.catalog.references import GoldenLength
from servemark.checks.golden import Curve, curves_of, method_of, plain_model
from servemark.evals.forced import forced


@dataclass(frozen=True, slots=True)
class GoldenValue:
    """One golden length of exactly this method and number of draft tokens; `file` and `mode` tell curves apart, `own` says
    that the recipe's own sampling is that of the curve."""

    length: float
    mode: str
    file: str
    own: bool


@dataclass(frozen=True, slots=True)
class PublishedReal:
    """A range of real acceptance lengths that somebody published for a model on a kind of work."""

    model: str
    scenario: str
    low: float
    high: float
    golden: float
    draft_tokens: int
    source: str


PUBLISHED = (
    PublishedReal("kimi-k3", "agentic-coding", 1.16, 2.01, 3.84, 7, "InferenceX perf changelog, PR 2380"),
)


@dataclass(frozen=True, slots=True)
class AcceptanceView:
    """What is known of an arm's acceptance length, in tokens a step (the bonus token included). `measured` are real ones of
    this model in the store: (least, median, largest, points)."""

    method: str
    draft_tokens: int | None
    golden: tuple[GoldenValue, ...]
    forced: float | None
    forced_by: str | None
    measured: tuple[float, float, float, int] | None
    published: PublishedReal | None

    @property
    def expected(self) -> tuple[float, float] | None:
        """(low, high) of what service will see: measured where it was, else published; None where nobody knows."""
        if self.measured is not None:
            return self.measured[0], self.measured[2]
        return None if self.published is None else (self.published.low, self.published.high)


def acceptance_of(
    arm: Arm,
    entry: SearchEntry,
    deployment: Deployment | None,
    golden: tuple[GoldenLength, ...],
    points: Iterable[Measured],
) -> AcceptanceView | None:
    """The view; None for an arm that does not speculate."""
    role = None if deployment is None else deployment.role("decode") or deployment.role("aggregated")
    asked = role.speculative if role is not None else None
    if asked is None and entry.spec_decoding == "none":
        return None
    method = method_of(asked) if asked is not None else entry.spec_decoding
    drafts = asked.draft_tokens if asked is not None else None
    rule = forced(entry, deployment) if deployment is not None else None
    found = [
        GoldenValue(one.length, one.mode, curve.file, _own(curve, asked))
        for curve in curves_of(golden, arm.model, method)
        for (_, level), one in curve.values.items()
        if level == drafts
    ]
    scenario = entry.scenario.kind if entry.scenario is not None else ""
    return AcceptanceView(
        method=method,
        draft_tokens=drafts,
        golden=tuple(sorted(found, key=lambda each: (not each.own, each.file, each.mode))),
        forced=rule.length if rule is not None else None,
        forced_by=rule.name if rule is not None else None,
        measured=_measured(points, scenario),
        published=next(
            (p for p in PUBLISHED if p.model == plain_model(arm.model) and p.scenario == scenario), None
        ),
    )


def _own(curve: Curve, asked: Speculative | None) -> bool:
    """Whether a curve was taken with the recipe's own sampling of drafts, where curves differ in it (DSpark)."""
    if asked is None or asked.method != "dspark":
        return asked is not None
    return curve.probabilistic == (asked.draft_sampling == "probabilistic")


def _measured(points: Iterable[Measured], scenario: str) -> tuple[float, float, float, int] | None:
    """(least, median, largest, count) of real acceptance lengths on such work."""
    lengths = [
        length
        for point in points
        if point.identity.speculation is not None
        and point.identity.speculation.acceptance == "real"
        and point.identity.scenario.type == scenario
        and (length := point.value("acceptance_length")) is not None
    ]
    return (min(lengths), statistics.median(lengths), max(lengths), len(lengths)) if lengths else None
