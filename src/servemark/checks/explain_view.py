"""A rule as a person reads it: what it looks for, why, and a wrong example beside the right one."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from servemark.base.messages import text
from servemark.checks.example import FILES, edited
from servemark.checks.model import Rule

MAX_SHOWN = 160


def rule_plain(rule: Rule, lang: str | None = None) -> dict[str, object]:
    """A rule for programs. `example` holds the lines of a unified diff: `-` is right, `+` is wrong."""
    return {
        "code": rule.code,
        "family": rule.family,
        "severity": rule.severity,
        "summary": rule.summary(lang),
        "why": rule.why(lang),
        "example": example_lines(rule),
    }


def example_lines(rule: Rule) -> list[str]:
    """The wrong example against the right suite, as the lines of a diff without line numbers."""
    if not rule.wrong:
        return []
    wrong, found = edited(rule.wrong), []
    for name in dict.fromkeys(edit[0] for edit in rule.wrong):
        right = FILES.get(name, "").splitlines()
        lines = list(difflib.unified_diff(right, wrong[name].splitlines(), lineterm="", n=2))[2:]
        found.append(f"# {name}")
        found += [
            line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]}…"
            for line in lines
            if not line.startswith("@@")
        ]
    return found


def rule_lines(rule: Rule, lang: str | None = None) -> Iterator[str]:
    """The rule for a terminal."""
    severity = text(f"checks.severity.{rule.severity}", lang)
    family = text(f"checks.family.{rule.family.replace('-', '_')}", lang)
    yield f"{rule.code}  ({family}, {severity})"
    yield ""
    yield rule.summary(lang)
    yield rule.why(lang)
    lines = example_lines(rule)
    if lines:
        yield ""
        yield text("checks.view.example", lang)
        yield from (f"  {line}" for line in lines)
