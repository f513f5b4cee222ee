"""Which sign-offs count: a good one, and everything that spoils it, one at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.authoring.conftest import commit, git

from servemark.authoring.checklist import Answer, Checklist, read_checklist, shipped_checklist
from servemark.authoring.codeowners import owners_of, read_codeowners
from servemark.authoring.sign_off import Known, objections
from servemark.base.errors import ServemarkError
from servemark.cli.main import run_cli

LIST = """\
review: 1
version: "2"
phrase: "I have read this change and"
items:
- {id: clean, evidence: no-new-errors, en: "No new error.", zh: "没有新增错误。"}
- {id: run-link, needs: link, en: "A run.", zh: "运行。"}
- {id: same-work, en: "Same work.", zh: "同样的工作。"}
"""
COMMENT = """\
As one who answers for it, I have read this change
and agree. Checklist version 2, commit 0123456789ab.

- [x] clean: yes
- [X] run-link: https://ci.example.org/runs/7
- [x] same-work: it does
"""
OWNERS = b"* @else\n/configs/ @alice @Org/Team # these\n*.md\n"


def known(state: str = "passed", **more: object) -> Known:
    checklist = read_checklist(LIST.encode(), "review.yaml")
    clean, link, work = checklist.items
    first = Answer(clean, "failed" if state == "failed" else "passed", "authoring.evidence.errors", {})
    answers = (first, Answer(link, "human"), Answer(work, "human"))
    values: dict[str, object] = {
        "checklist": checklist, "answers": answers, "commit": "0123456789ab" + "0" * 28,
        "changed": ("configs/x.yaml",), "owners": read_codeowners(OWNERS), "runs": {"r-1"}, "files": {"log.txt"},
    }  # fmt: skip
    return Known(**(values | more))  # type: ignore[arg-type]  # values of one test


def names(comment: str, author: str = "alice", teams: tuple[str, ...] = (), **more: object) -> list[str]:
    return [one.name for one in objections(comment, author, teams, known(**more))]  # type: ignore[arg-type]


def test_a_good_one_counts() -> None:
    assert names(COMMENT) == []
    assert names(COMMENT.replace("\n", "\r\n"), author="ALICE") == []
    assert names(COMMENT, author="carol", teams=("org/team",)) == []
    assert names(COMMENT.replace("https://ci.example.org/runs/7", "run:r-1, file:log.txt")) == []


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("version 2", "version 1", "version"), ("Checklist version 2", "Done", "version"),
        ("version 2", "version 22", "version"),
        ("have read", "have seen", "phrase"), ("0123456789ab", "fff3456789ab", "commit"),
        ("- [x] clean: yes\n", "", "missing"), ("- [x] clean", "- [ ] clean", "open"),
        ("- [x] same-work: it does\n", "- [x] same-work: it does\n- [ ] same-work: no\n", "twice"),
        ("https://ci.example.org/runs/7", "yes", "no_link"), ("https://ci.example.org/runs/7", "run:r-2", "no_evidence"),
        ("https://ci.example.org/runs/7", "file:../log", "no_evidence"),
        ("- [x] same-work", "- [x] other: x\n- [x] same-work", "unknown"),
    ],
)  # fmt: skip
def test_what_spoils_it(old: str, new: str, reason: str) -> None:
    assert old in COMMENT
    assert names(COMMENT.replace(old, new)) == [reason]


@pytest.mark.parametrize("wrap", ["```\n{}\n```", "~~~~md\n{}", "<!--\n{}\n-->", "<!-- {}", "QUOTE"])
def test_what_nobody_says_does_not_count(wrap: str) -> None:
    """Code, hidden remarks and quotations of somebody else's sign-off."""
    quoted = "".join(f"> {line}\n" for line in COMMENT.splitlines())
    said = quoted if wrap == "QUOTE" else wrap.replace("{}", COMMENT)
    assert names(said) == ["version", "phrase", "missing", "missing", "missing"]


def test_evidence_that_says_no() -> None:
    assert names(COMMENT, state="failed") == ["contradicted"]


def test_who_owns_what() -> None:
    """The last line that fits decides: all to else, configs to alice and the team, markdown to nobody."""
    assert names(COMMENT, author="else") == ["not_owner"]
    assert names(COMMENT, changed=("configs/x.yaml", "recipes/y.yaml")) == ["not_owner"]
    assert names(COMMENT, changed=("configs/x.md",)) == ["not_owner"]
    assert names(COMMENT, owners=None) == ["no_codeowners"]


@pytest.mark.parametrize(
    ("pattern", "path", "owned"),
    [
        ("*", "a/b", True), ("*.yaml", "a/b.yaml", True), ("/a/", "a/b/c", True), ("/a/", "b/a/c", False),
        ("a/", "b/a/c", True),
        ("docs/*", "docs/x.md", True), ("docs/*", "docs/a/x.md", False), ("a/b", "x/a/b", False), ("**/a", "x/y/a", True),
        ("/a/**/c", "a/b/b/c", True), ("/a/**/c", "a/c", True), ("a?", "ab", True), ("a?", "a/", False),
        ("a.b", "axb", False),
        ("!a", "a", False), ("/apps", "apps/x", True), ("/apps", "appsx", False), ("a\\ b", "a b", True),
    ],
)  # fmt: skip
def test_patterns(pattern: str, path: str, owned: bool) -> None:
    """As GitHub documents them."""
    assert (owners_of(read_codeowners(f"{pattern} @me".encode()), path) == ("me",)) is owned


def test_many_crossings_cost_nothing() -> None:
    assert owners_of(read_codeowners(b"a**b**c**d**e**f**g @me\n"), "a" * 4000) == ()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"review: 2\nversion: '1'\nphrase: a b c\nitems: [{id: a, en: x, zh: y}]\n", b"- 1\n", b"a: [",
        b"review: 1\nversion: '1'\nphrase: ok\nitems: [{id: a, en: x, zh: y}]\n",
        b"review: 1\nversion: '1'\nphrase: a b c\nitems: []\n",
        b"review: 1\nversion: '1'\nphrase: a b c\nitems: [{id: a, en: x}]\n",
        b"review: 1\nversion: '1'\nphrase: a b c\nitems: [{id: a, en: x, zh: y}, {id: a, en: x, zh: y}]\n",
        b"review: 1\nversion: '1'\nphrase: a b c\nitems: [{id: a, evidence: nothing, en: x, zh: y}]\n",
        b"review: 1\nversion: '1'\nphrase: a b c\nitems: [{id: A B, en: x, zh: y}]\n",
    ],
)  # fmt: skip
def test_a_faulty_template(data: bytes) -> None:
    with pytest.raises(ServemarkError):
        read_checklist(data, "review.yaml")


def test_the_shipped_template() -> None:
    found: Checklist = shipped_checklist()
    assert len(found.items) == 13 and found.version == "1"


def test_in_a_repository(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The template and the owners of the base count; what the branch writes into them does not. A link is a changed file."""
    git(suite, "checkout", "-q", "main")
    (suite / "review.yaml").write_text(LIST)
    (suite.parent / "CODEOWNERS").write_text("/small/ @alice\n")
    commit(suite, "rules")
    git(suite, "checkout", "-qB", "topic")
    (suite / "notes.md").write_text("x")
    commit(suite, "notes")
    comment = tmp_path / "comment.md"
    head = git(suite, "rev-parse", "HEAD")
    comment.write_text(COMMENT.replace("0123456789ab", head[:12]))
    line = [
        "review",
        "verify",
        "main...topic",
        "--suite",
        str(suite),
        "--comment",
        str(comment),
        "--lang",
        "en",
    ]
    line += ["--home", str(tmp_path / "home")]
    assert run_cli([*line, "--author", "alice"]) == 0
    assert run_cli([*line, "--author", "bob"]) == 1
    (suite / "review.yaml").write_text(LIST.replace('"2"', '"3"'))
    (suite.parent / "CODEOWNERS").write_text("* @bob\n")
    (suite.parent / "link").symlink_to("small")
    commit(suite, "other rules")
    comment.write_text(COMMENT.replace(", commit 0123456789ab", ""))
    capsys.readouterr()
    assert run_cli([*line, "--author", "bob", "--json"]) == 1
    (reason,) = json.loads(capsys.readouterr().out)["reasons"]
    assert reason["reason"] == "not_owner" and reason["count"] == 4 and "link" in reason["names"]
    assert run_cli([*line, "--author", "alice", "--json"]) == 1
    (reason,) = json.loads(capsys.readouterr().out)["reasons"]
    assert reason["names"] == "CODEOWNERS, link"
