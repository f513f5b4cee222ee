"""Findings for programs: JSON lines, SARIF 2.1.0, GitHub annotations, JUnit, and a review comment."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from xml.sax.saxutils import escape, quoteattr

from servemark.base.messages import LANGUAGES, text
from servemark.checks.check import by_severity
from servemark.checks.model import SEVERITIES, Finding
from servemark.checks.places import Places
from servemark.checks.registry import all_rules

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "note": "note"}
_GITHUB = {"error": "error", "warning": "warning", "note": "notice"}
MAX_REVIEW = 20
_XML_BAD = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_plain(finding: Finding, places: Places) -> dict[str, object]:
    """One finding as an object; `fix` is null or {old, new, safe} at its own place."""
    fix = finding.fix
    return {
        "code": finding.code,
        "family": finding.family,
        "severity": finding.severity,
        "message": finding.message(),
        "arm": finding.arm,
        "file": places.shown(finding.at.file),
        "line": finding.at.line,
        "column": finding.at.column,
        "related": [
            {
                "file": places.shown(related.at.file),
                "line": related.at.line,
                "column": related.at.column,
                "note": related.note(),
            }
            for related in finding.related
        ],
        "fix": None
        if fix is None
        else {
            "file": places.shown(fix.at.file),
            "line": fix.at.line,
            "column": fix.at.column,
            "old": fix.old,
            "new": fix.new,
            "safe": fix.safe,
        },
    }


def json_lines(findings: Iterable[Finding], places: Places) -> Iterator[str]:
    """One object a line, in the report's order."""
    for finding in findings:
        yield json.dumps(as_plain(finding, places), ensure_ascii=False)


def sarif(findings: Iterable[Finding], places: Places, version: str) -> str:
    """SARIF 2.1.0: one run, its rules, one result a finding."""
    listed = list(findings)
    codes = sorted({finding.code for finding in listed})
    known = all_rules()
    rules = [
        {
            "id": code,
            "name": code,
            "shortDescription": {"text": known[code].summary() if code in known else code},
            "fullDescription": {"text": known[code].why() if code in known else code},
        }
        for code in codes
    ]
    results = [
        {
            "ruleId": finding.code,
            "ruleIndex": codes.index(finding.code),
            "level": _LEVELS[finding.severity],
            "message": {"text": finding.message()},
            "locations": [_location(places, finding)],
            "relatedLocations": [
                {
                    "id": number,
                    "message": {"text": related.note()},
                    "physicalLocation": _physical(
                        places, related.at.file, related.at.line, related.at.column
                    ),
                }
                for number, related in enumerate(finding.related, 1)
            ],
        }
        for finding in listed
    ]
    driver = {"name": "servemark", "version": version, "rules": rules}
    body = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }
    return json.dumps(body, ensure_ascii=False, indent=1)


def _location(places: Places, finding: Finding) -> dict[str, object]:
    return {"physicalLocation": _physical(places, finding.at.file, finding.at.line, finding.at.column)}


def _physical(places: Places, file: str, line: int, column: int) -> dict[str, object]:
    return {
        "artifactLocation": {"uri": places.shown(file).replace("\\", "/").replace(" ", "%20")},
        "region": {"startLine": line, "startColumn": column},
    }


def github(findings: Iterable[Finding], places: Places) -> Iterator[str]:
    """Workflow commands: one annotation a finding."""
    for finding in findings:
        where = (
            f"file={_property(places.shown(finding.at.file))},line={finding.at.line},col={finding.at.column}"
        )
        said = finding.message()
        for related in finding.related:
            said += f"\n{places.shown(related.at.file)}:{related.at.line}: {related.note()}"
        kind = _GITHUB[finding.severity]
        yield f"::{kind} {where},title={_property(finding.code)}::{_data(said)}"


def _data(said: str) -> str:
    return said.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(said: str) -> str:
    return _data(said).replace(":", "%3A").replace(",", "%2C")


def junit(findings: Iterable[Finding], places: Places) -> str:
    """JUnit: a test case a finding; errors and warnings are failures, notes are skipped."""
    listed = list(findings)
    failures = sum(finding.severity != "note" for finding in listed)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name="servemark check" tests="{max(len(listed), 1)}" failures="{failures}">',
    ]
    for finding in listed:
        where = f"{places.shown(finding.at.file)}:{finding.at.line}:{finding.at.column}"
        name, group = quoteattr(_xml(f"{finding.code} {where}")), quoteattr(finding.family)
        said = quoteattr(_xml(finding.message()))
        tag = "skipped" if finding.severity == "note" else "failure"
        more = "" if tag == "skipped" else f' type="{finding.severity}"'
        notes = "\n".join(f"{places.shown(r.at.file)}:{r.at.line}: {r.note()}" for r in finding.related)
        lines.append(f"<testcase name={name} classname={group}>")
        lines.append(f"<{tag} message={said}{more}>{escape(_xml(notes))}</{tag}></testcase>")
    if not listed:
        lines.append('<testcase name="no finding" classname="servemark"/>')
    return "\n".join([*lines, "</testsuite>"])


def _xml(said: str) -> str:
    return _XML_BAD.sub("�", said)


def review(findings: Iterable[Finding], places: Places, *, bilingual: bool = False) -> Iterator[str]:
    """A review comment in Markdown: short, most serious first; with `bilingual` in both languages."""
    listed = [finding for finding in findings if finding.severity != "note"]
    notes = len(list(findings)) - len(listed) if isinstance(findings, (list, tuple)) else 0
    for number, lang in enumerate(LANGUAGES if bilingual else (None,)):
        if number:
            yield "\n---\n"
        yield from _review(listed, notes, places, lang)


def _review(listed: list[Finding], notes: int, places: Places, lang: str | None) -> Iterator[str]:
    counts = Counter(finding.severity for finding in listed)
    values = {severity: counts[severity] for severity in SEVERITIES} | {"note": notes}
    yield f"### {text('checks.view.review', lang, **values)}"
    yield ""
    shown = 0
    for severity, some in by_severity(listed):
        for finding in some:
            if shown == MAX_REVIEW:
                yield f"- {text('checks.view.more', lang, count=len(listed) - shown)}"
                return
            shown += 1
            place = f"{_code(f'{places.shown(finding.at.file)}:{finding.at.line}')}"
            said = text(f"checks.severity.{severity}", lang)
            yield f"- **{said} {finding.code}** {place}: {_inline(finding.message(lang))}"
            for related in finding.related[:2]:
                note = _inline(related.note(lang))
                yield f"  - {_code(f'{places.shown(related.at.file)}:{related.at.line}')}: {note}"
            if finding.fix is not None:
                yield f"  - {_code(finding.fix.old)} → {_code(finding.fix.new)}"


def _code(said: str) -> str:
    """A code span of one line, which a suite's text cannot end."""
    return "`" + " ".join(said.split()).replace("`", "'") + "`"


def _inline(said: str) -> str:
    """One line in which nothing is markup. An empty remark after an @ keeps a suite's text from calling people."""
    escaped = re.sub(r"([\\<>*_`\[\]|])", r"\\\1", " ".join(said.split()))
    return re.sub(r"(?<!\w)@(?=\w)", "@<!-- -->", escaped)
