"""Findings that a suite's owners have accepted: suppressions with a reason and an end, and a baseline of old ones.

`checks.yaml` beside the suite's other files: a list `suppress` of `{code, reason, until, arm?, file?}`.
"""

from __future__ import annotations

import datetime
import fnmatch
import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import ServemarkError, input_error
from servemark.base.files import write_atomic
from servemark.catalog.fields import Fields
from servemark.catalog.nodes import Position, Problem
from servemark.catalog.suite import Suite
from servemark.catalog.yaml_nodes import read_bytes, read_yaml
from servemark.checks.model import Finding
from servemark.checks.rules.schema import SUPPRESSIONS

FILE = "checks.yaml"
BASELINE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Suppression:
    """One accepted finding or kind of finding, until a day (that day included)."""

    code: str
    reason: str
    until: datetime.date
    arm: str | None
    file: str | None
    at: Position

    def covers(self, finding: Finding) -> bool:
        """Whether it means a finding: its code or the code's beginning, and the arm's and file's patterns."""
        if not finding.code.startswith(self.code):
            return False
        if self.arm is not None and not fnmatch.fnmatchcase(finding.arm or "", self.arm):
            return False
        return self.file is None or fnmatch.fnmatchcase(finding.at.file, f"*{self.file}")


@dataclass(frozen=True, slots=True)
class Suppressions:
    """All of a suite."""

    listed: tuple[Suppression, ...]
    today: datetime.date

    def apply(
        self, findings: Iterable[Finding], *, whole: bool
    ) -> tuple[list[Finding], list[Finding], list[Finding]]:
        """(kept, suppressed, findings about the suppressions themselves). One that has ended no longer hides
        anything; one that hides nothing is told when the whole suite was looked at."""
        kept, hidden = [], []
        used: set[int] = set()
        for finding in findings:
            covering = [s for s in self.listed if s.covers(finding)]
            used |= {id(s) for s in covering}
            if any(s.until >= self.today for s in covering):
                hidden.append(finding)
            else:
                kept.append(finding)
        notes = []
        for one in self.listed:
            values: dict[str, object] = {
                "code": one.code,
                "until": one.until.isoformat(),
                "reason": one.reason,
            }
            if one.until < self.today:
                notes.append(_note("ended", one, values))
            elif whole and id(one) not in used:
                notes.append(_note("unused", one, values))
        return kept, hidden, notes


def _note(name: str, one: Suppression, values: dict[str, object]) -> Finding:
    key = f"checks.suppression.{name}"
    return Finding(SUPPRESSIONS[key], "suppressions", "warning", key, one.at, values)


def read_suppressions(suite: Suite, today: datetime.date | None = None) -> tuple[Suppressions, list[Problem]]:
    """The suite's suppressions with what is wrong with the file; a wrong one hides nothing."""
    day = today or datetime.datetime.now(tz=datetime.UTC).date()
    path = suite.root / FILE
    problems: list[Problem] = []
    if not path.exists():
        return Suppressions((), day), problems
    shown = suite.shown(path)
    try:
        root, found = read_yaml(path, shown)
    except ServemarkError as error:
        return Suppressions((), day), [Problem(Position(shown, 1, 1), error.key, dict(error.values))]
    problems += found
    top = Fields(root, problems, FILE)
    listed = []
    for node in top.items("suppress"):
        fields = Fields(node, problems, "suppression")
        code, reason = fields.text("code", required=True), fields.text("reason", required=True)
        until, arm, file = fields.text("until", required=True), fields.text("arm"), fields.text("file")
        fields.no_others()
        day_of = _day(until)
        if until is not None and day_of is None:
            fields.problem(fields.at("until"), "checks.suppression.bad_day", value=until)
        if code is not None and reason is not None and day_of is not None:
            listed.append(Suppression(code.upper(), reason, day_of, arm, file, node.at))
    top.no_others()
    return Suppressions(tuple(listed), day), problems


def _day(text: str | None) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(text) if text is not None else None
    except ValueError:
        return None


def print_of(finding: Finding) -> str:
    """What a finding is, wherever its lines have moved to: code, arm, file and message, not line and column."""
    values = repr(sorted((name, str(value)) for name, value in finding.values.items()))
    text = "\0".join(
        (finding.code, finding.arm or "", finding.at.file.rpartition("/")[2], finding.key, values)
    )
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def write_baseline(path: Path, findings: Iterable[Finding]) -> int:
    """Write the findings of today as accepted; gives their number."""
    counts = Counter(print_of(finding) for finding in findings if finding.severity != "note")
    body = {"servemark-baseline": BASELINE_VERSION, "findings": dict(sorted(counts.items()))}
    write_atomic(path, (json.dumps(body, indent=1) + "\n").encode())
    return sum(counts.values())


def new_since(path: Path, findings: Iterable[Finding]) -> tuple[list[Finding], int]:
    """(findings that the baseline does not hold, number of those that it does). ServemarkError (exit 2) for a
    file that is no baseline."""
    shown = str(path)
    try:
        body = json.loads(read_bytes(path, shown))
        known = body["findings"] if body["servemark-baseline"] == BASELINE_VERSION else None
        if not isinstance(known, dict):
            raise TypeError
        left = Counter({str(name): int(count) for name, count in known.items()})
    except (ValueError, TypeError, KeyError, RecursionError):
        raise input_error("checks.bad_baseline", where=f"{shown}:1:1", path=shown) from None
    kept, old = [], 0
    for finding in findings:
        name = print_of(finding)
        if left[name] > 0:
            left[name] -= 1
            old += 1
        else:
            kept.append(finding)
    return kept, old
