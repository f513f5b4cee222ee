"""A rule as a person reads it: what it looks for, why, and a wrong example beside the right one."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from servemark.base.messages import text
from servemark.checks.example import edited
from servemark.checks.model import Rule
from servemark.checks.schema_examples import EXAMPLES, SchemaExample

MAX_SHOWN = 160
"""Characters of a line."""
MAX_LINES = 24
"""Lines of a file; of more, the middle is left out."""


def rule_plain(rule: Rule, lang: str | None = None) -> dict[str, object]:
    """A rule for programs. `example` holds the lines of a unified diff: `-` is right, `+` is wrong; `commands` are
    shell lines that make the example where no text can show it."""
    return {
        "code": rule.code,
        "family": rule.family,
        "severity": rule.severity,
        "summary": rule.summary(lang),
        "why": rule.why(lang),
        "example": example_lines(rule),
        "commands": list(example_of(rule).commands),
    }


def example_of(rule: Rule) -> SchemaExample:
    """What makes the example suite wrong in the way that the rule finds."""
    if rule.wrong:
        return SchemaExample(rule.wrong, right=rule.right)
    return EXAMPLES.get(rule.code, SchemaExample())


def example_lines(rule: Rule) -> list[str]:
    """The wrong example against the right one, as the lines of a diff without line numbers."""
    example = example_of(rule)
    right, wrong, found = edited(example.right), edited(example.edits), []
    for name in dict.fromkeys(edit[0] for edit in example.edits):
        if right.get(name) == wrong[name]:
            continue
        before, after = (side.get(name, "").split("\n") for side in (right, wrong))
        lines = list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]
        found.append(f"# {name}")
        shown = [_shown(line) for line in lines if not line.startswith("@@")]
        while shown and not shown[-1].strip():
            shown.pop()
        if len(shown) > MAX_LINES:
            shown = [*shown[: MAX_LINES - 4], "…", *shown[-3:]]
        found += shown
    return found


def _shown(line: str) -> str:
    """A line that is safe to print: bytes that are no text are written out, a very long line is cut."""
    letters = (
        f"\\x{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else c if c.isprintable() else repr(c)[1:-1]
        for c in line[:MAX_SHOWN]
    )
    return "".join(letters) + ("…" if len(line) > MAX_SHOWN else "")


def setting_of(rule: Rule, lang: str | None = None) -> str | None:
    """What the example of a rule about a change grows from; None for other rules."""
    if rule.base is None:
        return None
    key = "checks.view.example_main" if rule.on_main else "checks.view.example_base"
    return text(key, lang, count=rule.base.count("- config-keys:"))


def rule_lines(rule: Rule, lang: str | None = None) -> Iterator[str]:
    """The rule for a terminal."""
    severity = text(f"checks.severity.{rule.severity}", lang)
    family = text(f"checks.family.{rule.family.replace('-', '_')}", lang)
    yield f"{rule.code}  ({family}, {severity})"
    yield ""
    yield rule.summary(lang)
    yield rule.why(lang)
    setting, commands = setting_of(rule, lang), example_of(rule).commands
    yield ""
    if commands:
        yield text("checks.view.example_commands", lang)
        yield from (f"  $ {command}" for command in commands)
        return
    yield text("checks.view.example", lang)
    if setting is not None:
        yield f"  {setting}"
    yield from (f"  {line}" for line in example_lines(rule))
