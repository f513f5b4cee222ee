"""The tutorial and how-tos, typed block by block as they stand; what they show has the shape of what is printed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.docs.doc_pages import DOCS, ROOT, blocks
from tests.docs.typed import Shell, missing_lines, shape


def play(page: str, shell: Shell) -> None:
    """Type every `sh` block of a page; a `text` block after one shows lines of what it printed."""
    printed = ""
    for block in blocks((DOCS / page).read_text(encoding="utf-8")):
        if "test: skip" in block.note:
            continue
        if block.language == "sh":
            printed = shell.serve() if block.body.startswith("servemark serve") else shell.type(block)
        elif block.language == "text" and printed:
            assert not missing_lines(block.body, printed), f"{block.body}\nprinted:\n{printed}"
            printed = ""


@pytest.fixture
def empty(tmp_path: Path) -> Shell:
    """An empty folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    return Shell(folder)


@pytest.fixture
def clone(tmp_path: Path) -> Shell:
    """A repository with the project's suites and samples, as a contributor has it."""
    folder = tmp_path / "deep" / "servemark"
    folder.mkdir(parents=True)
    for name in ("suites", "tests/results/samples"):
        shutil.copytree(ROOT / name, folder / name)
    shell = Shell(folder)
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "as it was"]):
        subprocess.run(["git", *words], cwd=folder, env=shell.environment(), check=True)
    return shell


def test_shape_ignores_values_alone() -> None:
    """Two runs of one thing have one shape; another heading or unit has not."""
    one, other = "    1  28/28    7.27        21.9", "   16  9/9   1,107   3"
    assert shape(one) == shape(other) == "# #/# # #"
    assert missing_lines("TTFT p90 4.25 s", "x\nTTFT p90   20.4 s · more") == []
    assert missing_lines("TTFT p90 4.25 ms", "TTFT p90 20.4 s") == ["TTFT p90 4.25 ms"]
    assert missing_lines("a\nb", "b\na") == ["b"]


@pytest.mark.engine
@pytest.mark.timeout(1500)
def test_tutorial(empty: Shell) -> None:
    """From an empty folder to a front, a reason, a report, a page and a comparison."""
    play("tutorial.md", empty)
    assert (empty.folder / "front.html").stat().st_size > 5000
    assert len(list((empty.folder / "servemark-data" / "runs").glob("*/result.json"))) == 4
    play("how-to/read-a-front.md", Shell(empty.folder))


@pytest.mark.engine
@pytest.mark.timeout(900)
def test_failed_run(empty: Shell) -> None:
    """One run fails, one is whole, and both are told apart."""
    play("how-to/failed-run.md", empty)
    runs = empty.folder / "servemark-data" / "runs"
    assert len(list(runs.glob("*/failure.json"))) == len(list(runs.glob("*/result.json"))) == 1


@pytest.mark.timeout(300)
def test_add_an_arm(clone: Shell) -> None:
    """1P2D: one master entry, one recipe, one changelog entry are committed, and nothing else."""
    play("how-to/add-an-arm.md", clone)
    said = subprocess.run(["git", "show", "--stat", "--format=", "HEAD"], cwd=clone.folder, env=clone.environment(),
                          capture_output=True, text=True, check=True).stdout  # fmt: skip
    assert "3 files changed" in said and "request" not in said


def test_import_results(clone: Shell) -> None:
    """The sample is kept, then mapped."""
    play("how-to/import-results.md", clone)


def test_efa_and_huge_pages(empty: Shell) -> None:
    """Needs and facts, on a host that has neither."""
    play("how-to/efa-and-huge-pages.md", empty)


def test_add_a_cluster(clone: Shell) -> None:
    """The page's own diff is applied, then the cluster is listed."""
    (diff,) = [b.body for b in blocks((DOCS / "how-to/add-a-cluster.md").read_text()) if b.language == "diff"]
    file = clone.folder / "suites" / "kimi-k3-b300" / "configs" / "clusters.yaml"
    text = file.read_text()
    for old, new in both_sides(diff):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    file.write_text(text)
    play("how-to/add-a-cluster.md", clone)


def both_sides(diff: str) -> list[tuple[str, str]]:
    """(old, new) of each added stretch with the lines before it; diffs of this page only add."""
    found: list[tuple[str, str]] = []
    lines = diff.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("+") and not lines[number - 1].startswith("+"):
            context = [each[1:] + "\n" for each in lines[max(number - 2, 0) : number] if each.startswith(" ")]
            before = "".join(context)
            added = "".join(each[1:] + "\n" for each in _run(lines[number:]))
            found.append((before, before + added))
    return found


def _run(lines: list[str]) -> list[str]:
    end = next((n for n, line in enumerate(lines) if not line.startswith("+")), len(lines))
    return lines[:end]


def test_rule_and_engine_of_the_pages(tmp_path: Path) -> None:
    """The code on the pages for contributors compiles, and their texts are those of both languages."""
    rule, engine = ((DOCS / "how-to" / name).read_text() for name in ("add-a-rule.md", "add-an-engine.md"))
    for page in (rule, engine):
        for block in blocks(page):
            if block.language == "python":
                compile(block.body, "page", "exec")
    keys = [re.findall(r'"(checks\.rcp906[a-z.]*)"', b.body) for b in blocks(rule) if b.language == "json"]
    assert len(keys) == 2 and keys[0] == keys[1] == [
        "checks.rcp906",
        "checks.rcp906.summary",
        "checks.rcp906.why",
    ]
    recipe = next(b.body for b in blocks(engine) if b.language == "yaml")
    (tmp_path / "r.yaml").write_text(recipe)
    assert "type: acme" in recipe
