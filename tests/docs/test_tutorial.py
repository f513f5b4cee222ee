"""The tutorial and how-tos, typed block by block as they stand; what they show has the shape of what is printed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.docs.doc_pages import DOCS, ROOT, Block, blocks
from tests.docs.typed import Shell, missing_lines, shape


def play(page: str, shell: Shell, without: str | None = None) -> None:
    """Type every `sh` block of a page, but those that hold `without`; a `text` block after one shows lines of what it
    printed."""
    printed = ""
    for block in blocks((DOCS / page).read_text(encoding="utf-8")):
        if "test: skip" in block.note:
            continue
        if without is not None and block.language == "sh" and without in block.body:
            printed = ""
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
    play("zh/tutorial.md", Shell(empty.folder, lang="zh_CN.UTF-8"), without="servemark run ")


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


def test_efa_and_huge_pages(empty: Shell, alone_with_the_pool: None) -> None:
    """Needs and facts, on a host that has neither."""
    if Path("/sys/class/infiniband").exists() or Path("/proc/sys/vm/nr_hugepages").read_text().strip() != "0":
        pytest.skip("this host has RDMA devices or huge pages, which the page's example has not")
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


def source_copy(folder: Path) -> Shell:
    """A copy of the program and its suites, whose shell runs the copy."""
    for name in ("src", "suites", "models", "hardware", "rates"):
        shutil.copytree(
            ROOT / name, folder / "servemark" / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    return Shell(folder / "servemark", source=folder / "servemark" / "src")


def added(diff: str) -> str:
    """The lines that a diff adds."""
    return "".join(line[1:] + "\n" for line in diff.splitlines() if line.startswith("+"))


def insert_after(file: Path, mark: str, new: str) -> None:
    """Put text behind the end of the line that holds `mark`."""
    text = file.read_text(encoding="utf-8")
    assert text.count(mark) == 1, (file, mark)
    end = text.index("\n", text.index(mark)) + 1
    file.write_text(text[:end] + new + text[end:], encoding="utf-8")


def test_add_a_rule(tmp_path: Path) -> None:
    """The page's function and texts, put where it says, are a rule that finds its case and leaves sound suites alone."""
    shell = source_copy(tmp_path)
    page = blocks((DOCS / "how-to/add-a-rule.md").read_text(encoding="utf-8"))
    package = shell.folder / "src" / "servemark"
    rules = package / "checks" / "rules" / "recipe.py"
    (function,) = [block.body for block in page if block.language == "python"]
    rules.write_text(f"{rules.read_text(encoding='utf-8')}\n\n{function}", encoding="utf-8")
    texts = [block.body for block in page if block.language == "json"]
    for lang, new in zip(("en", "zh"), texts, strict=True):
        insert_after(package / "base" / "messages" / lang / "checks.json", '"checks.rcp905.why"', new)
    assert "首尾" in shell.type(Block("sh", "servemark explain RCP906 --lang zh\n", ""))
    spoilt = (
        shell.folder / "suites" / "kimi-k3-b300" / "recipes" / "kimi-k3" / "vllm" / "b300" / "agg-c16.yaml"
    )
    assert "RCP906" not in shell.type(Block("sh", "servemark check suites/kimi-k3-b300\n", ""))
    spoilt.write_text(spoilt.read_text().replace("NCCL_CUMEM_ENABLE: '1'", "NCCL_CUMEM_ENABLE: '1 '"))
    assert "RCP906" in shell.type(Block("sh", "servemark check suites/kimi-k3-b300\n", ""))


def test_add_an_engine(tmp_path: Path) -> None:
    """The page's module, lines and recipe, put where it says, give the command line that it shows."""
    shell = source_copy(tmp_path)
    page = blocks((DOCS / "how-to/add-an-engine.md").read_text(encoding="utf-8"))
    launch = shell.folder / "src" / "servemark" / "launch"
    (module,) = [block.body for block in page if block.language == "python"]
    (launch / "engines" / "acme.py").write_text(module, encoding="utf-8")
    worker, words = (added(block.body) for block in page if block.language == "diff")
    job = launch / "job.py"
    job.write_text(job.read_text().replace("engines import dynamo", "engines import acme, dynamo", 1))
    insert_after(job, '    "trtllm": trtllm.worker,', worker)
    insert_after(launch / "engines" / "readers.py", '    "trtllm": Words(', words)
    suite, see = (block for block in page if block.language == "sh")
    (recipe,) = [block.body for block in page if block.language == "yaml"]
    shell.type(suite)
    file = shell.folder / "acme-suite" / "recipes" / "smollm2" / "acme" / "agg-cpu.yaml"
    file.write_text(recipe)
    printed = shell.type(Block("sh", see.body.replace("../.venv/bin/servemark", "servemark"), ""))
    (shown,) = [block.body for block in page if block.language == "text"]
    assert not missing_lines(shown, printed), printed
