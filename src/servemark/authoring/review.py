"""What a change of a suite comes to: arms, plan, findings, memory, results and files, read from two commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from servemark.authoring.arm_changes import ArmChange, arm_changes, topology_of
from servemark.authoring.snapshot import Snapshot
from servemark.base.errors import ServemarkError
from servemark.catalog.arms import Arm, SearchEntry
from servemark.catalog.nodes import Problem
from servemark.catalog.suite import Suite
from servemark.checks.changes import Change
from servemark.checks.check import Wishes as CheckWishes
from servemark.checks.check import check_change, check_read
from servemark.checks.model import Finding
from servemark.checks.suppress import print_of
from servemark.plan.gitrepo import changed_paths
from servemark.plan.strict import Plan, plan_suite
from servemark.plan.strict import Wishes as PlanWishes
from servemark.plan.summary import Share, Summary, summarize
from servemark.runs.scenario import planned_scenario
from servemark.sizing.fit import fit
from servemark.sizing.fit_target import Target, Wishes, asked_of_target
from servemark.sizing.lines import Verdict

MAX_FITS = 400
"""Deployments whose memory is worked out for one review."""


@dataclass(frozen=True, slots=True)
class PlanDelta:
    """Points before and after, and those that have to run anew: what the branch costs. Hours are estimates, in GPU-hours."""

    before: Summary | None
    after: Summary
    anew: Summary
    dropped: int
    """Points of the base that the head no longer has."""

    def share(self, side: Summary | None, cluster: str) -> Share | None:
        """One side's figures of a cluster."""
        found = (one for one in (side.clusters if side is not None else ()) if one.cluster == cluster)
        return next(found, None)

    @property
    def clusters(self) -> tuple[str, ...]:
        """Those of either side, of the head first."""
        sides = (self.after, self.before)
        return tuple(dict.fromkeys(one.cluster or "" for s in sides if s is not None for one in s.clusters))


@dataclass(frozen=True, slots=True)
class Findings:
    """Findings of both sides compared by what they say, not by their lines; notes are only counted."""

    new: tuple[Finding, ...]
    fixed: tuple[Finding, ...]
    kept: int
    notes: tuple[Finding, ...] = ()
    """New ones; they pass and fail nothing."""

    def count(self, severity: str) -> int:
        """New ones of a severity."""
        return sum(one.severity == severity for one in self.new)


@dataclass(frozen=True, slots=True)
class FitLine:
    """One deployment of a changed arm and whether it fits. `error` says what kept it from being worked out."""

    arm: str
    topology: str
    cluster: str
    verdict: Verdict | None
    error: ServemarkError | None = None
    before: Verdict | None = None
    """The verdict at the base; None where it is new there or could not be worked out."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """Files below the suite's folder that differ, by kind."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Review:
    """Everything that is read from the two commits."""

    base: Snapshot
    head: Snapshot
    arms: tuple[ArmChange, ...]
    plan: PlanDelta
    plans: tuple[Plan | None, Plan]
    findings: Findings
    fits: tuple[FitLine, ...]
    fits_left: int
    """Deployments beyond MAX_FITS."""
    files: FileChange
    changelog: Change | None
    """None where the suite has no changelog."""

    def of_kind(self, kind: str) -> tuple[ArmChange, ...]:
        """Arms that were added, changed or removed."""
        return tuple(change for change in self.arms if change.kind == kind)


def reviewed(base: Snapshot, head: Snapshot) -> Review:
    """Compare the two commits. ServemarkError (exit 2) when there is no suite at the head."""
    suite = head.suite
    if suite is None:
        raise ValueError("the head of a review is always a suite")
    changes = arm_changes(base, head)
    change = _changelog(base, head)
    plans = (_plan(base.suite) if base.suite is not None else None, _plan(suite))
    fits, left = _fits(base, suite, changes)
    return Review(
        base,
        head,
        changes,
        _delta(*plans),
        plans,
        _findings(base, head, change),
        fits,
        left,
        _files(base, head),
        change,
    )


def _plan(suite: Suite) -> Plan:
    return plan_suite(
        suite, PlanWishes(scenario_of=lambda entry, deployment: planned_scenario(suite, entry, deployment))
    )


def _delta(before: Plan | None, after: Plan) -> PlanDelta:
    old = {row.identity.point_id for row in before.rows} if before is not None else set()
    new = {row.identity.point_id for row in after.rows}
    anew = tuple(row for row in after.rows if row.identity.point_id not in old)
    return PlanDelta(
        summarize(before) if before is not None else None,
        summarize(after),
        summarize(replace(after, rows=anew)),
        len(old - new),
    )


def _checked(side: Snapshot) -> list[Finding]:
    if side.suite is None:
        return []
    return list(check_read(side.suite, list(side.problems), CheckWishes()).findings)


def _findings(base: Snapshot, head: Snapshot, change: Change | None) -> Findings:
    old, new = _checked(base), _checked(head)
    if change is not None:
        said = {(one.code, one.at) for one in new}
        new += [one for one in check_change(change) if (one.code, one.at) not in said]
    fresh, kept = _beyond(new, old)
    gone, _ = _beyond(old, new)
    told = tuple(one for one in fresh if one.severity != "note")
    return Findings(
        tuple(sorted(told, key=lambda one: (one.severity != "error", one.order))),
        tuple(one for one in gone if one.severity != "note"),
        kept,
        tuple(sorted((one for one in fresh if one.severity == "note"), key=lambda one: one.order)),
    )


def _beyond(findings: Iterable[Finding], known: Iterable[Finding]) -> tuple[list[Finding], int]:
    """(findings that `known` does not hold, number of those that it does)."""
    left = Counter(print_of(one) for one in known)
    kept, old = [], 0
    for one in findings:
        name = print_of(one)
        if left[name] > 0:
            left[name] -= 1
            old += 1
        else:
            kept.append(one)
    return kept, old


def _changelog(base: Snapshot, head: Snapshot) -> Change | None:
    suite = head.suite
    layout = suite.layout if suite is not None else None
    if suite is None or layout is None or layout.changelog is None:
        return None
    data = head.tree.read(layout.changelog)
    if data is None:
        return None
    shown = suite.shown(suite.root / layout.changelog)
    return Change(shown, data, base.tree.read(layout.changelog) or b"", arms=suite.keys)


def _fits(base: Snapshot, suite: Suite, changes: Sequence[ArmChange]) -> tuple[tuple[FitLine, ...], int]:
    found: list[FitLine] = []
    left = 0
    for change in changes:
        if change.kind == "removed":
            continue
        before = {topology_of(entry): entry for entry in change.before.entries} if change.before else {}
        seen: set[tuple[str | None, str]] = set()
        touched = _touched(change)
        for entry in change.arm.entries:
            name = topology_of(entry)
            what = (entry.config_file, name if entry.config_file is None else "")
            if what in seen or (touched is not None and name not in touched):
                continue
            seen.add(what)
            if len(found) >= MAX_FITS:
                left += 1
                continue
            line = _fit(suite, change.arm, entry)
            twin = before.get(name)
            if twin is not None and change.before is not None and base.suite is not None:
                line = replace(line, before=_fit(base.suite, change.before, twin).verdict)
            found.append(line)
    return tuple(found), left


def _touched(change: ArmChange) -> frozenset[str] | None:
    """Topologies of a changed arm that the change touches; None for all of them."""
    if change.kind != "changed" or any(one.topology is None for one in change.fields):
        return None
    recipes = {recipe.setting for recipe in change.recipes}
    return frozenset(
        [
            *change.topologies_added,
            *(one.topology for one in change.fields if one.topology is not None),
            *(topology_of(entry) for entry in change.arm.entries if entry.config_file in recipes),
        ]
    )


def _fit(suite: Suite, arm: Arm, entry: SearchEntry) -> FitLine:
    name = topology_of(entry)
    try:
        deployment = None if entry.config_file is None else suite.deployment(arm, entry)
        target = Target(f"{arm.key}/{entry.topology}", deployment, arm, entry, suite.clusters)
        return FitLine(arm.key, name, arm.runner, fit(asked_of_target(target, Wishes())).verdict)
    except ServemarkError as error:
        return FitLine(arm.key, name, arm.runner, None, error)


def _files(base: Snapshot, head: Snapshot) -> FileChange:
    old: Mapping[str, str] = base.tree.blobs
    new: Mapping[str, str] = head.tree.blobs
    added = sorted(path for path in new if path not in old)
    removed = sorted(path for path in old if path not in new)
    changed = {path for path in new if path in old and new[path] != old[path]}
    if base.tree.commit and head.tree.commit:  # links, modes and submodules are changes too
        listed = changed_paths(base.tree.folder, base.tree.commit, head.tree.commit, below=True)
        changed |= {*listed} - {*added, *removed}
    return FileChange(tuple(added), tuple(sorted(changed)), tuple(removed))


def new_plan_errors(review: Review) -> list[Problem]:
    """What is wrong with the head's plan that was not wrong with the base's, wherever it stands now."""
    before, after = review.plans
    known = Counter(_said(one) for one in before.problems) if before is not None else Counter[str]()
    found = []
    for one in after.problems:
        name = _said(one)
        if known[name] > 0:
            known[name] -= 1
        elif one.severity == "error":
            found.append(one)
    return found


def _said(problem: Problem) -> str:
    return f"{problem.severity} {problem.key} {sorted((name, str(v)) for name, v in problem.values.items())}"
