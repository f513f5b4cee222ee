"""Every page exists in both languages, with the same headings and code, a switcher, and links that lead somewhere."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.docs.doc_pages import DOCS, ROOT, anchor, blocks, english_pages, heading_levels, headings, links

from servemark.checks.registry import all_rules

PAGES = english_pages()
GENERATED = {"cli.md", "rules.md"}
"""Their blocks hold the program's own words, which are translated."""
COMMENT = re.compile(r"(^|\s)#.*$", re.M)


def text_of(path: Path) -> str:
    """A page."""
    return path.read_text(encoding="utf-8")


def test_no_page_in_one_language_only() -> None:
    """Both folders hold the same pages."""
    chinese = sorted(path.relative_to(DOCS / "zh").as_posix() for path in (DOCS / "zh").rglob("*.md"))
    assert chinese == PAGES


@pytest.mark.parametrize("name", PAGES)
def test_same_headings_and_code(name: str) -> None:
    """Headings have the same levels; blocks the same language and body. Comments may be translated, and so may output."""
    english, chinese = text_of(DOCS / name), text_of(DOCS / "zh" / name)
    assert heading_levels(english) == heading_levels(chinese)
    one, other = blocks(english), blocks(chinese)
    assert [block.language for block in one] == [block.language for block in other]
    for left, right in zip(one, other, strict=True):
        if left.language == "text" or name in GENERATED:
            continue
        assert COMMENT.sub("", left.body) == COMMENT.sub("", right.body), left.body
        assert left.note == right.note


@pytest.mark.parametrize("name", PAGES)
def test_switcher_below_the_title(name: str) -> None:
    """The third line of a page leads to its other language."""
    chinese = Path("zh") / name
    there = os.path.relpath(chinese, Path(name).parent)
    back = os.path.relpath(name, chinese.parent)
    assert text_of(DOCS / name).splitlines()[:3][1:] == ["", f"**English** | [简体中文]({there})"]
    assert text_of(DOCS / chinese).splitlines()[:3][1:] == ["", f"[English]({back}) | **简体中文**"]


@pytest.mark.parametrize(
    "name", [*PAGES, *(f"zh/{name}" for name in PAGES), "../README.md", "../README_zh.md"]
)
def test_links_lead_somewhere(name: str) -> None:
    """Files exist, and so do headings that are named; a Chinese page links to Chinese pages."""
    path = (DOCS / name).resolve()
    for target in links(text_of(path)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, part = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), target
        assert there.is_relative_to(ROOT), target
        if part:
            assert part in {anchor(each) for each in headings(text_of(there))}, target
        if name.startswith("zh/") and file.endswith(".md") and "switch" not in target:
            is_switcher = target == os.path.relpath(DOCS / name.removeprefix("zh/"), path.parent)
            in_english = there.is_relative_to(DOCS) and not there.is_relative_to(DOCS / "zh")
            assert is_switcher or not in_english or "decisions" in there.parts, target


@pytest.mark.parametrize("lang", ["", "zh/"])
def test_index_lists_every_page(lang: str) -> None:
    """Nothing is written that nobody finds."""
    index = DOCS / lang / "README.md"
    listed = {(index.parent / target).resolve() for target in links(text_of(index))}
    missing = [name for name in PAGES if name != "README.md" and (DOCS / lang / name).resolve() not in listed]
    assert not missing


def test_chinese_pages_are_chinese() -> None:
    """A paragraph of plain English in a Chinese page is a forgotten one."""
    for name in PAGES:
        page = re.sub(r"```.*?^```", "", text_of(DOCS / "zh" / name), flags=re.S | re.M)
        for line in page.splitlines():
            if len(re.findall(r"[A-Za-z]{3,}", re.sub(r"`[^`]*`|\([^)]*\)|<!--.*?-->", "", line))) >= 12:
                assert re.search(r"[\u4e00-\u9fff]", line), f"{name}: {line}"


def test_pages_count_the_rules_that_there_are() -> None:
    """Output of `check` in the pages names as many rules as the program has."""
    shown = {
        (page.name, count)
        for page in (*DOCS.glob("*.md"), *(DOCS / "zh").glob("*.md"))
        for pair in re.findall(r"rules: (\d+)\)|(\d+) 条规则", page.read_text(encoding="utf-8"))
        for count in pair
        if count
    }
    assert {name for name, _ in shown} == {"tutorial.md", "kimi-k3-b300.md"}
    assert {count for _, count in shown} == {str(len(all_rules()))}
