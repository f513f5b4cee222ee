"""Findings in words: the sentence of a finding, what to do about it, and what a gate is for.

Keys: `gate.<id>` and `gate.<id>.next` with the finding's values, `gate.<id>.title` and `gate.<id>.why` without any;
`gate.skipped.<reason>` for a gate that did not apply.
"""

from __future__ import annotations

from servemark.base.messages import text
from servemark.results.gates.base import GateFinding, Severity


def sentence(finding: GateFinding, lang: str | None = None) -> str:
    """What the gate says of the point, in `lang`."""
    if finding.severity is Severity.SKIPPED:
        return text(f"gate.skipped.{finding.values['reason']}", lang)
    if finding.severity is Severity.OK:
        title = text(f"gate.{finding.gate}.title", lang)
        return text("gate.ok", lang, title=title)
    return text(f"gate.{finding.gate}", lang, **finding.values)


def next_step(finding: GateFinding, lang: str | None = None) -> str | None:
    """What to do; None for a finding that asks for nothing."""
    if finding.severity in (Severity.SKIPPED, Severity.OK):
        return None
    return text(f"gate.{finding.gate}.next", lang, **finding.values)


def title(gate: str, lang: str | None = None) -> str:
    """The gate's short name."""
    return text(f"gate.{gate}.title", lang)


def why(gate: str, lang: str | None = None) -> str:
    """What the gate checks and why a result that fails it cannot stand."""
    return text(f"gate.{gate}.why", lang)
