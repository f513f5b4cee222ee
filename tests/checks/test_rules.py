"""Every rule's examples are run: the wrong one gives its code, the right one does not; texts exist in both
languages."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from servemark import catalog
from servemark.base.messages import LANGUAGES
from servemark.checks.changes import Change
from servemark.checks.check import check_change, check_suite
from servemark.checks.example import edited, write
from servemark.checks.explain_view import example_lines, example_of, rule_lines
from servemark.checks.model import Finding, Rule
from servemark.checks.registry import all_rules
from servemark.checks.rules.schema import CODES

OTHER_READERS = {
    "architectures",
    "cluster_launch",
    "data_files",
    "gguf",
    "hardware",
    "model_files",
    "selector",
}
"""Modules that read no file of a suite, or only what the launcher takes from it."""
ELSEWHERE = {
    *(
        "bad_json",
        "not_list",
        "append_only_evals",
        "history_changed",
        "no_additions",
    ),  # told by KVC and CHG rules
    *("more_problems", "problems"),  # several problems as one error, where no check is made
    *(
        "no_arm",
        "recipe_foreign",
        "no_arm_near",
        "no_recipe",
        "recipe_elsewhere",
    ),  # asked for by a user, not stated by a file
    *("no_suite", "no_suite_file", "no_suite_near", "suite_is_file"),
}
RULES = all_rules()
ORDER = ("note", "warning", "error")


def findings_of(rule: Rule, folder: Path, *, right: bool) -> list[Finding]:
    """What a check says of a rule's own example, made for real: texts, then the shell lines that it names."""
    example = example_of(rule)
    edits = example.right if right else example.edits
    if rule.base is not None:
        head = edited(edits)["changelog.yaml"].encode("utf-8", "surrogateescape")
        return check_change(Change("changelog.yaml", head, rule.base.encode(), on_main=rule.on_main))
    write(folder, edits)
    for command in () if right else example.commands:
        subprocess.run(["sh", "-c", command], cwd=folder, check=True, timeout=20)
    return list(check_suite(folder).findings)


def test_example_suite_is_right(tmp_path: Path) -> None:
    """Checked as it is, the example gives no finding at all, not even a note."""
    report = check_suite(write(tmp_path))
    assert [finding.message() for finding in report.findings] == []
    assert report.arms == 3
    assert report.recipes == 3


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_wrong_example(rule: Rule, tmp_path: Path) -> None:
    """The wrong example gives the rule's code, with a message and a place in both languages."""
    findings = findings_of(rule, tmp_path, right=False)
    found = [finding for finding in findings if finding.code == rule.code]
    assert found, [f"{f.code} {f.at} {f.message()}" for f in findings]
    if rule.scope != "schema":  # what reading finds may be less in a format that others extend
        assert max(ORDER.index(f.severity) for f in found) == ORDER.index(rule.severity)
    for finding in found:
        inside = finding.at.file.partition("/")[2]
        assert rule.base is not None or not inside or (tmp_path / inside).parent.is_dir(), finding.at
        for lang in LANGUAGES:
            assert "{" not in finding.message(lang).replace('{"', ""), finding.message(lang)
            assert all(related.note(lang) for related in finding.related)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_right_example(rule: Rule, tmp_path: Path) -> None:
    """What is shown as right gives nothing at all, of the rule nor of another (a right example of its own: not the
    rule's code)."""
    findings = findings_of(rule, tmp_path, right=True)
    if rule.right and rule.base is None:
        findings = [finding for finding in findings if finding.code == rule.code]
    assert [f"{f.code} {f.message()}" for f in findings] == []


@pytest.mark.parametrize("code", list(RULES))
def test_texts(code: str) -> None:
    """Summary and rationale in both languages."""
    rule = RULES[code]
    for lang in LANGUAGES:
        assert rule.summary(lang)
        assert rule.why(lang)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code)
def test_explained(rule: Rule) -> None:
    """`explain` shows what is wrong, and for texts what is right beside it, in a few lines that no terminal minds."""
    for lang in LANGUAGES:
        lines = list(rule_lines(rule, lang))
        assert all(line.isprintable() for line in lines)
        assert "{" not in lines[2] or rule.message is None, lines[2]
    shown, commands = example_lines(rule), example_of(rule).commands
    marks = {line[:1] for line in shown}
    assert commands or marks & {"+", "-"}
    assert commands or marks & {" ", "-"} or rule.code == "SUI801"  # a recipe too many: all of it is wrong
    assert len(shown) <= 52


def test_every_message_of_reading_has_a_code() -> None:
    """A message that a reader can give and that has no code could neither be selected nor suppressed."""
    keys = set()
    for path in sorted((Path(catalog.__file__).parent).glob("*.py")):
        if path.stem in OTHER_READERS:
            continue
        keys |= set(re.findall(r'"catalog\.([a-z_0-9]+)"', path.read_text(encoding="utf-8")))
    assert keys - set(CODES) == ELSEWHERE
