"""Every rule's examples are run: the wrong one gives its code, the right one does not; texts exist in both
languages."""

from __future__ import annotations

from pathlib import Path

import pytest

from servemark.base.messages import LANGUAGES
from servemark.checks.check import check_suite
from servemark.checks.example import write
from servemark.checks.model import Rule
from servemark.checks.registry import all_rules

RULES = all_rules()
WITH_EXAMPLE = [rule for rule in RULES.values() if rule.wrong]
CHANGES = {f"CHG{n}" for n in (405, 413, 414, 415, 416, 417, 418, 420, 421, 424, 425, 426, 427)}
"""Rules about a change or about bytes that no text file can hold; tests/checks/test_changelog.py shows them."""


def test_example_suite_is_right(tmp_path: Path) -> None:
    """Checked as it is, the example gives no finding at all, not even a note."""
    report = check_suite(write(tmp_path))
    assert [finding.message() for finding in report.findings] == []
    assert report.arms == 3
    assert report.recipes == 3


@pytest.mark.parametrize("rule", WITH_EXAMPLE, ids=lambda rule: rule.code)
def test_wrong_example(rule: Rule, tmp_path: Path) -> None:
    """The wrong example gives the rule's code, with a message and a place in both languages."""
    report = check_suite(write(tmp_path, rule.wrong))
    found = [finding for finding in report.findings if finding.code == rule.code]
    assert found, [f"{f.code} {f.at} {f.message()}" for f in report.findings]
    order = ("note", "warning", "error")
    assert max(order.index(f.severity) for f in found) == order.index(rule.severity)
    for finding in found:
        assert (tmp_path / finding.at.file.partition("/")[2]).is_file(), finding.at
        for lang in LANGUAGES:
            assert "{" not in finding.message(lang).replace('{"', ""), finding.message(lang)
            assert all(related.note(lang) for related in finding.related)


@pytest.mark.parametrize("rule", [rule for rule in RULES.values() if rule.right], ids=lambda rule: rule.code)
def test_right_example(rule: Rule, tmp_path: Path) -> None:
    """A right example of its own does not give the code."""
    report = check_suite(write(tmp_path, rule.right))
    assert not [finding for finding in report.findings if finding.code == rule.code]


@pytest.mark.parametrize("code", list(RULES))
def test_texts(code: str) -> None:
    """Summary and rationale in both languages."""
    rule = RULES[code]
    for lang in LANGUAGES:
        assert rule.summary(lang)
        assert rule.why(lang)


def test_every_rule_has_an_example() -> None:
    """A rule without one cannot be explained."""
    without = {rule.code for rule in RULES.values() if not rule.wrong and rule.scope != "schema"}
    assert without == CHANGES
