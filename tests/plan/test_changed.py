"""What changed since a commit, with a real git: dirty trees, odd names, missing and shallow history."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.catalog.nodes import Problem
from servemark.catalog.suite import load_suite
from servemark.plan.changed import base_of
from servemark.plan.gitrepo import GitTree
from servemark.plan.strict import Wishes, plan_suite

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

MASTER = """\
# comment
one:
  image: img:1
  model: m
  model-prefix: m
  precision: fp8
  framework: f
  runner: cluster:x
  multinode: true
  disagg: false
  scenarios:
    agentic-coding:
    - dram-utilization: 0.5
      search-space:
      - kv-offloading: none
        conc-list: [1, 2]
        prefill: {num-worker: 1, tp: 1, ep: 1, dp-attn: false, additional-settings: ["CONFIG_FILE=recipes/a b.yaml"]}
        decode: {num-worker: 0, tp: 1, ep: 1, dp-attn: false}
      - kv-offloading: dram
        kv-offload-backend: {name: b}
        conc-list: [4]
        prefill: {num-worker: 1, tp: 4, ep: 1, dp-attn: false}
        decode: {num-worker: 0, tp: 1, ep: 1, dp-attn: false}
"""
RECIPE = """\
schema: 2
name: n
model: {path: p, container: c, precision: fp8}
engine: {type: vllm}
roles: {aggregated: {workers: 1, gpus: 1, args: {a: 1}}}
benchmark: {type: custom}
"""
RUNNERS = "labels: {'cluster:x': [x_0]}\nhardware: {'cluster:x': {available-cpu-dram-mib: 1000000, gpus-per-node: 8}}\n"


def git(folder: Path, *arguments: str) -> str:
    """Run git with an identity."""
    names = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *names, "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A suite two folders below a repository's top, one commit, names with spaces and umlauts."""
    root = tmp_path / "re po" / "süite"
    recipes = root / "benchmarks" / "multi_node" / "srt-slurm-recipes"
    recipes.mkdir(parents=True)
    (root / "configs").mkdir()
    (root / "configs" / "x-master.yaml").write_text(MASTER)
    (root / "configs" / "runners.yaml").write_text(RUNNERS)
    (recipes / "a b.yaml").write_text(RECIPE)
    git(tmp_path / "re po", "init", "-q")
    git(tmp_path / "re po", "add", "-A")
    git(tmp_path / "re po", "commit", "-qm", "one")
    return root


def changed(root: Path, ref: str = "HEAD") -> dict[str, list[str]]:
    """Selector -> reasons, of what a plan since `ref` holds."""
    suite = load_suite(root)
    problems: list[Problem] = []
    base = base_of(suite, ref, problems)
    assert not problems
    made = plan_suite(suite, Wishes(why=base.why, canary=False))
    return {row.selector: [one.plain()["code"] for one in row.why[:-1]] for row in made.rows}  # type: ignore[misc]


def rewrite(path: Path, old: str, new: str) -> None:
    """Replace a text that must be there."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_nothing_changed(repository: Path) -> None:
    """Neither a comment nor another order of a recipe's keys is a change."""
    assert changed(repository) == {}
    rewrite(repository / "configs" / "x-master.yaml", "# comment", "# another")
    recipe = repository / "benchmarks" / "multi_node" / "srt-slurm-recipes" / "a b.yaml"
    recipe.write_text("# c\n" + "".join(f"{line}\n" for line in reversed(RECIPE.splitlines())))
    assert changed(repository) == {}


def test_each_kind_of_change_in_a_dirty_tree(repository: Path) -> None:
    """Recipe, image, entry, hardware, new topology, new arm; only what is touched, each with its reason."""
    master = repository / "configs" / "x-master.yaml"
    recipe = repository / "benchmarks" / "multi_node" / "srt-slurm-recipes" / "a b.yaml"
    rewrite(recipe, "a: 1", "a: 2")
    assert changed(repository) == {"one/agg1xtp1@1": ["recipe_changed"], "one/agg1xtp1@2": ["recipe_changed"]}
    git(repository, "add", "-A")  # staged changes count as well
    assert set(changed(repository)) == {"one/agg1xtp1@1", "one/agg1xtp1@2"}
    git(repository, "commit", "-qm", "two")
    assert changed(repository) == {} and set(changed(repository, "HEAD~1")) == {
        "one/agg1xtp1@1",
        "one/agg1xtp1@2",
    }
    rewrite(master, "conc-list: [4]", "conc-list: [8]")
    assert changed(repository) == {"one/agg1xtp4-kvdram@8": ["entry_changed"]}
    rewrite(repository / "configs" / "runners.yaml", "1000000", "2000000")
    assert changed(repository) == {"one/agg1xtp4-kvdram@8": ["entry_changed", "hardware_changed"]}
    git(repository, "checkout", "-q", ".")
    rewrite(master, "img:1", "img:2")
    assert set(changed(repository)) == {"one/agg1xtp1@1", "one/agg1xtp1@2", "one/agg1xtp4-kvdram@4"}
    git(repository, "checkout", "-q", ".")
    rewrite(master, "tp: 4,", "tp: 2,")
    assert changed(repository) == {"one/agg1xtp2-kvdram@4": ["new_topology"]}
    git(repository, "checkout", "-q", ".")
    master.write_text(MASTER + MASTER.split("\n", 1)[1].replace("one:", "two:"))
    assert set(changed(repository)) == {"two/agg1xtp1@1", "two/agg1xtp1@2", "two/agg1xtp4-kvdram@4"}


def test_an_untracked_suite_is_all_new(repository: Path) -> None:
    """A folder that the commit does not know: every arm is new."""
    other = repository.parent / "other"
    shutil.copytree(repository, other)
    assert len(changed(other)) == 3


def test_failures_are_one_clear_message(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ref, an option for a ref, no repository, a shallow clone, no git."""

    def key(root: Path, ref: str) -> str:
        with pytest.raises(ServemarkError) as caught:
            base_of(load_suite(root), ref, [])
        assert caught.value.exit_code == 2 and caught.value.what("zh")
        return caught.value.key

    assert key(repository, "nope") == "plan.git_no_ref"
    assert key(repository, "HEAD:configs") == "plan.git_no_ref"
    assert key(repository, "--output=/tmp/x") == "plan.git_bad_ref"
    assert key(repository, "") == "plan.git_bad_ref"
    outside = tmp_path / "outside"
    shutil.copytree(repository, outside)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert key(outside, "HEAD") == "plan.no_repository"
    rewrite(repository / "configs" / "x-master.yaml", "img:1", "img:2")
    git(repository, "commit", "-qam", "two")
    first = git(repository, "rev-parse", "HEAD~1")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository.parent}", str(tmp_path / "shallow"))
    assert key(tmp_path / "shallow" / "süite", first) == "plan.git_shallow"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert key(repository, "HEAD") == "plan.no_git"


def test_faulty_history_is_a_warning(repository: Path) -> None:
    """What is wrong with an old file cannot be mended and must not stop a plan."""
    master = repository / "configs" / "x-master.yaml"
    rewrite(master, "tp: 4,", "tp: -4,")
    git(repository, "commit", "-qam", "broken")
    rewrite(master, "tp: -4,", "tp: 4,")
    problems: list[Problem] = []
    base_of(load_suite(repository), "HEAD", problems)
    assert [(p.key, p.severity) for p in problems] == [("catalog.too_small", "warning")]


def test_blobs_are_read_whatever_they_hold(repository: Path) -> None:
    """Several blobs in one go, lines like batch headers among them; links are no files."""
    (repository / "blob 1").write_bytes(b"0123 blob 7\n\n\0binary")
    (repository / "blob2").write_bytes(b"")
    (repository / "link").symlink_to("blob2")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "three")
    tree = GitTree.open(repository, "HEAD")
    tree.fetch(["blob 1", "blob2", "configs/runners.yaml", "none"])
    assert tree.read("blob 1") == b"0123 blob 7\n\n\0binary" and tree.read("blob2") == b""
    assert tree.read("none") is None and tree.read("link") is None
    assert tree.read("configs/runners.yaml") == RUNNERS.encode()
    assert tree.same("blob2", b"") and not tree.same("blob2", b"x")
