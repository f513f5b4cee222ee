"""`/health` and `/changelog`: what `check` says of the suites that are served, by rule; and what changed in them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from servemark.base.errors import ServemarkError
from servemark.base.printable import one_line
from servemark.catalog.changelog import ChangelogEntry
from servemark.catalog.nodes import Problem as Fault
from servemark.catalog.suite import read_suite
from servemark.checks.check import Wishes, check_read
from servemark.checks.model import SEVERITIES, Finding
from servemark.checks.registry import all_rules
from servemark.web.api.base import Query, Route
from servemark.web.depends import Depends
from servemark.web.site import Context

MAX_EXAMPLES = 50
"""Findings of one rule that are told; all of them are counted."""
MAX_ENTRIES = 5_000


def health(ctx: Context, query: Query) -> object:
    """Every suite with its findings by rule, the gravest first."""
    return {"suites": [_health(root, query.lang) for root in ctx.site.suites()]}


def _health(root: Path, lang: str) -> dict[str, object]:
    try:
        suite, problems = read_suite(root)
        report = check_read(suite, problems, Wishes())
    except ServemarkError as error:
        return {"name": root.name, "error": _said(error, root, lang)}
    by_code: dict[str, list[Finding]] = {}
    for finding in report.findings:
        by_code.setdefault(finding.code, []).append(finding)
    ranked = sorted(by_code.values(), key=lambda some: (min(map(_rank, some)), -len(some), some[0].code))
    return {
        "name": suite.name,
        "arms": report.arms,
        "recipes": report.recipes,
        "rules_run": report.rules,
        "read_failed": report.read_failed,
        "suppressed": len(report.suppressed),
        "counts": {severity: report.count(severity) for severity in SEVERITIES},
        "rules": [_rule(some, lang) for some in ranked],
        "error": None,
    }


def _rank(finding: Finding) -> int:
    return SEVERITIES.index(finding.severity)


def _rule(some: list[Finding], lang: str) -> dict[str, object]:
    first = min(some, key=_rank)
    rule = all_rules().get(first.code)
    counts = Counter(finding.severity for finding in some)
    return {
        "code": first.code,
        "family": first.family,
        "severity": first.severity,
        "summary": rule.summary(lang) if rule is not None else first.code,
        "why": rule.why(lang) if rule is not None else None,
        "counts": {severity: counts[severity] for severity in SEVERITIES},
        "findings": [_finding(each, lang) for each in some[:MAX_EXAMPLES]],
    }


def _finding(each: Finding, lang: str) -> dict[str, object]:
    return {
        "severity": each.severity,
        "message": each.message(lang),
        "next": each.next_step(lang),
        "arm": each.arm,
        "file": one_line(each.at.file),
        "line": each.at.line,
        "column": each.at.column,
        "fixable": each.fix is not None,
    }


def changelog(ctx: Context, query: Query) -> object:
    """Every suite with the entries of its changelog, in the file's order."""
    return {"suites": [_changes(root, query.lang) for root in ctx.site.suites()]}


def _changes(root: Path, lang: str) -> dict[str, object]:
    faults: list[Fault] = []
    try:
        suite, _ = read_suite(root)
        entries = suite.changelog(faults)
    except ServemarkError as error:
        return {
            "name": root.name,
            "entries": [],
            "total": 0,
            "problems": 0,
            "error": _said(error, root, lang),
        }
    told = entries[-MAX_ENTRIES:]
    return {
        "name": suite.name,
        "entries": [_entry(each) for each in told],
        "total": len(entries),
        "problems": len(faults),
        "error": None,
    }


def _entry(each: ChangelogEntry) -> dict[str, object]:
    link = each.pr_link
    return {
        "config_keys": [one_line(key) for key in each.config_keys],
        "description": [one_line(line) for line in each.description],
        "link": link if link.startswith(("https://", "http://")) else None,
        "evals_only": each.evals_only,
        "all_evals": each.all_evals,
        "append_only": each.append_only,
        "scenarios": each.scenarios,
        "file": one_line(each.at.file),
        "line": each.at.line,
    }


def _said(error: ServemarkError, root: Path, lang: str) -> str:
    return error.what(lang).replace(f"{root.parent}/", "").replace(str(root), root.name)


ROUTES = (
    Route("/health", "serve.api.health", health, depends=Depends.SUITE),
    Route("/changelog", "serve.api.changelog", changelog, depends=Depends.SUITE),
)
