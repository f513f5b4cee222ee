"""Real changes: changelogs before and after, and a real suite with an edited head; figures by hand."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from tests.authoring.conftest import commit, edit, git

from servemark.authoring.insertion import copied_block
from servemark.authoring.review import reviewed
from servemark.authoring.snapshot import range_of, snapshots

pytestmark = pytest.mark.corpus
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def repository(folder: Path) -> Path:
    """The real suite as the only folder of a new repository."""
    source = DATA / "inferencex-2026-08"
    if not source.is_dir() or shutil.which("git") is None:
        pytest.skip("the real suite or git is not on this machine")
    root = folder / "suite"
    shutil.copytree(source, root)
    for path in (root, *root.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    git(folder, "init", "-q")
    commit(root, "base")
    git(root, "checkout", "-qb", "topic")
    return root


def test_one_more_concurrency_of_a_real_arm(tmp_path: Path) -> None:
    """1P1D tp4 + tp8 is 12 GPUs. A point more in a fixed-sequence list of one allocation: 12 x 0.25 h = 3 GPU-hours more in
    all; alone it needs its start too, 12 x (0.25 + 0.25) = 6."""
    root = repository(tmp_path)
    master = root / "configs" / "nvidia-master.yaml"
    said = master.read_text()
    master.write_text(said.replace("conc-list: [90]", "conc-list: [90, 120]", 1))
    commit(root, "one more")
    with snapshots(root, range_of("main...topic")) as (base, head):
        review = reviewed(base, head)
        delta = review.plan
        assert delta.before is not None
        assert delta.after.total.points - delta.before.total.points == 1
        assert delta.after.total.gpu_hours - delta.before.total.gpu_hours == pytest.approx(3.0)
        assert (delta.anew.total.points, delta.anew.total.gpu_hours, delta.dropped) == (1, 6.0, 0)
        (change,) = review.arms
        assert (change.kind, [(one.before, one.after) for one in change.fields]) == (
            "changed",
            [("90", "90, 120")],
        )
        assert review.findings.new == () and review.findings.fixed == () and len(review.fits) == 1


@pytest.mark.parametrize("pair", ["1", "2", "3", "4", "5"])
def test_real_changelogs(suite: Path, pair: str) -> None:
    """Real pull requests: each appends, or says where it does not; new entries are counted as lines say."""
    folder = DATA / "changelog-pairs" / pair
    if not folder.is_dir():
        pytest.skip("the real changelogs are not on this machine")
    base, head = (gzip.decompress((folder / f"{side}.yaml.gz").read_bytes()) for side in ("base", "head"))
    log = suite / "perf-changelog.yaml"
    git(suite, "checkout", "-q", "main")
    log.write_bytes(base)
    commit(suite, "base")
    git(suite, "checkout", "-qB", "topic")
    log.write_bytes(head)
    commit(suite, "head")
    with snapshots(suite, range_of("main..topic")) as sides:
        change = reviewed(*sides).changelog
    assert change is not None
    assert change.appended == head.startswith(base)
    more = sum(line.startswith(b"- ") for line in head.split(b"\n")) - sum(
        line.startswith(b"- ") for line in base.split(b"\n")
    )
    assert len(change.new_entries) == max(more, 0)


def test_a_recipe_of_the_real_suite(tmp_path: Path) -> None:
    """A KV data type is a major setting wherever it stands in the recipe."""
    root = repository(tmp_path)
    recipes = root / "benchmarks" / "multi_node" / "srt-slurm-recipes"
    named = (root / "configs" / "nvidia-master.yaml").read_text()
    path = next(
        p for p in sorted(recipes.rglob("*.yaml"))
        if "kv-cache-dtype: fp8\n" in p.read_text() and f"CONFIG_FILE=recipes/{p.relative_to(recipes)}" in named
    )  # fmt: skip
    edit(path, "kv-cache-dtype: fp8\n", "kv-cache-dtype: auto\n")
    commit(root, "kv")
    with snapshots(root, range_of("main..topic")) as (base, head):
        review = reviewed(base, head)
    settings = [one for change in review.arms for recipe in change.recipes for one in recipe.settings]
    assert settings and {(one.group, one.before, one.after) for one in settings} == {
        ("kv_dtype", "fp8", "auto")
    }
    assert review.plan.anew.total.points == review.plan.dropped > 0


def test_a_copy_of_real_arms_is_an_insertion() -> None:
    """Every 25th arm of the largest master: the copy is inserted, and taking it out again gives the file's bytes."""
    path = DATA / "inferencex-2026-08" / "configs" / "nvidia-master.yaml"
    if not path.is_file():
        pytest.skip("the real suite is not on this machine")
    data = path.read_bytes()
    keys = [line.split(b":")[0].decode() for line in data.split(b"\n") if line[:1].isalpha()]
    for key in keys[::25]:
        copied, block, line = copied_block(data, "m", key, "a-new-name")
        before = b"".join(copied.splitlines(keepends=True)[: line - 1])
        assert copied[len(before) :].startswith(block)
        after = copied[len(before) + len(block) :]
        assert data in {
            before + after,
            before.removesuffix(b"\n") + after,
        }  # with the blank line between arms, or without
