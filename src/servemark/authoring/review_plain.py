"""A review for programs: the page's facts as plain JSON values; absent is null."""

from __future__ import annotations

from servemark.authoring.arm_changes import ArmChange
from servemark.authoring.review import FitLine
from servemark.authoring.review_view import Page
from servemark.checks.model import Finding


def page_plain(page: Page) -> dict[str, object]:
    """Everything that the page says; hours are estimated GPU-hours, sizes are bytes."""
    review = page.review
    plan = review.plan
    return {
        "base": {"ref": review.base.ref, "commit": review.base.tree.commit},
        "head": {"ref": review.head.ref, "commit": review.head.tree.commit},
        "arms": [_arm(change) for change in review.arms],
        "plan": {
            "before": plan.before.plain() if plan.before is not None else None,
            "after": plan.after.plain(),
            "anew": plan.anew.plain(),
            "dropped_points": plan.dropped,
        },
        "findings": {
            "new": [_finding(one) for one in review.findings.new],
            "fixed": [_finding(one) for one in review.findings.fixed],
            "kept": review.findings.kept,
            "new_notes": len(review.findings.notes),
            "notes": [_finding(one) for one in review.findings.notes],
        },
        "fits": [_fit(line) for line in review.fits],
        "results": [
            {"arm": one.arm, "planned": one.planned, "measured": one.measured,
             "branch": [point.ref for point in one.branch], "main": [point.ref for point in one.main]}
            for one in page.results.arms
        ] if page.results.asked else None,
        "files": {name: list(getattr(review.files, name)) for name in ("added", "changed", "removed")},
        "halves": None if page.halves is None else [
            {"kind": one.kind, "value": one.value, "said_in": one.there, "missing_in": one.absent}
            for one in page.halves
        ],
        "checklist": {
            "version": page.checklist.version,
            "phrase": page.checklist.phrase,
            "source": page.checklist.source,
            "items": [
                {"id": one.item.id, "state": one.state, "evidence": one.item.evidence, "needs": one.item.needs,
                 "values": dict(one.values) if one.values is not None else None}
                for one in page.answers
            ],
        },
    }  # fmt: skip


def _arm(change: ArmChange) -> dict[str, object]:
    return {
        "kind": change.kind,
        "arm": change.key,
        "at": str(change.arm.at),
        "topologies_added": list(change.topologies_added),
        "topologies_removed": list(change.topologies_removed),
        "fields": [
            {"topology": one.topology, "name": one.name, "before": one.before, "after": one.after}
            for one in change.fields
        ],
        "recipes": [
            {
                "recipe": recipe.setting,
                "unread": recipe.state,
                "settings": [
                    {"name": s.name, "group": s.group, "before": s.before, "after": s.after}
                    for s in recipe.settings
                ],
            }
            for recipe in change.recipes
        ],
    }


def _finding(one: Finding) -> dict[str, object]:
    return {
        "code": one.code,
        "severity": one.severity,
        "arm": one.arm,
        "at": str(one.at),
        "message": one.message(),
    }


def _fit(line: FitLine) -> dict[str, object]:
    verdict = line.verdict
    return {
        "arm": line.arm,
        "topology": line.topology,
        "cluster": line.cluster,
        "verdict": verdict.kind if verdict is not None else None,
        "missing_bytes": verdict.missing or None if verdict is not None else None,
        "error": line.error.what() if line.error is not None else None,
    }
