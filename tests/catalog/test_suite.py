"""Suites: named by suite.yaml or recognised by their layout; files stay inside; recipes are never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.catalog.layout import suite_root
from servemark.catalog.nodes import errors_of
from servemark.catalog.suite import load_suite, read_suite, shipped_suites

ARM = """\
arm:
  image: i
  model: m
  model-prefix: m
  precision: fp8
  framework: f
  runner: cluster:x
  multinode: true
  disagg: false
  scenarios:
    fixed-seq-len:
    - isl: 1024
      osl: 1024
      search-space:
"""
ENTRY = """\
      - conc-list: [1]
        prefill: {{num-worker: 1, tp: 1, ep: 1, dp-attn: false, additional-settings: ["CONFIG_FILE={file}"]}}
        decode: {{num-worker: 0, tp: 1, ep: 1, dp-attn: false}}
"""
RECIPE = """\
schema: 2
name: n
model: {path: p, container: c, precision: fp8}
engine: {type: vllm}
roles: {aggregated: {workers: 1, gpus: 1}}
benchmark: {type: custom}
"""


def make(root: Path, *files: str) -> Path:
    """A suite in the reference layout whose one arm names these recipes."""
    recipes = root / "benchmarks" / "multi_node" / "srt-slurm-recipes"
    recipes.mkdir(parents=True)
    (root / "configs").mkdir()
    (root / "configs" / "amd-master.yaml").write_text(ARM + "".join(ENTRY.format(file=f) for f in files))
    (root / "configs" / "runners.yaml").write_text("labels: {'cluster:x': [x_0]}\n")
    (recipes / "a.yaml").write_text(RECIPE)
    (recipes / "bad.yaml").write_text(RECIPE + "name: again\n")
    (root / "benchmarks" / "multi_node" / "llm-d-recipes").mkdir()
    (root / "benchmarks" / "multi_node" / "llm-d-recipes" / "d.yaml").write_text("apiVersion: llm-d.ai/v1\n")
    return root


def test_recipe_states(tmp_path: Path) -> None:
    """Read, faulty, elsewhere, foreign; a recipe outside the suite is never said to be fine."""
    root = make(
        tmp_path / "s", "recipes/a.yaml", "benchmarks/multi_node/srt-slurm-recipes/a.yaml", "recipes/bad.yaml",
        "recipes/none.yaml", "d.yaml", "recipes/a.yaml:override_x",
    )  # fmt: skip
    suite = load_suite(root)
    arm = suite.arms["arm"]
    states = [suite.recipe(entry).state for entry in arm.entries]
    assert states == ["read", "read", "faulty", "elsewhere", "foreign", "faulty"]
    with pytest.raises(ServemarkError) as caught:
        suite.deployment(arm, arm.entries[3])
    assert caught.value.key == "catalog.recipe_elsewhere" and "not in this suite" in caught.value.what("en")
    with pytest.raises(ServemarkError) as caught:
        suite.deployment(arm, arm.entries[4])
    assert caught.value.key == "catalog.recipe_foreign" and "d.yaml" in caught.value.what("en")
    with pytest.raises(ServemarkError) as caught:
        suite.deployment(arm, arm.entries[2])
    assert caught.value.where == "s/benchmarks/multi_node/srt-slurm-recipes/bad.yaml:7:1"


def test_files_stay_inside_the_suite(tmp_path: Path) -> None:
    """`..`, absolute paths and links that lead out are errors; links that stay inside are fine."""
    outside = tmp_path / "outside.yaml"
    outside.write_text(RECIPE)
    root = make(tmp_path / "s", "recipes/../../../../outside.yaml", "recipes/link.yaml", "recipes/dir/outside.yaml",
                f"{outside}", "recipes/inner.yaml")  # fmt: skip
    recipes = root / "benchmarks" / "multi_node" / "srt-slurm-recipes"
    (recipes / "link.yaml").symlink_to(outside)
    (recipes / "dir").symlink_to(tmp_path)
    (recipes / "inner.yaml").symlink_to("a.yaml")
    suite = load_suite(root)
    found = [suite.recipe(entry) for entry in suite.arms["arm"].entries]
    assert [one.state for one in found] == ["faulty", "faulty", "faulty", "faulty", "read"]
    assert {one.problems[0].key for one in found[:4]} == {"catalog.escapes"}


def test_suite_yaml_names_every_file(tmp_path: Path) -> None:
    """Masters, clusters, changelog, recipe roots, golden lengths, thresholds, aliases, priorities."""
    root = make(tmp_path / "s", "recipes/a.yaml")
    (root / "log.yaml").write_text("- {config-keys: [arm], description: [d], pr-link: x}\n")
    (root / "golden.yaml").write_text("m: {thinking_on: {1: 1.5, 2: 2}}\n")
    (root / "eval.yaml").write_text("default: {gsm8k: 0.9}\nmodels: {m: {gsm8k: 0.95}}\n")
    (root / "alias.yaml").write_text("short: org/long:1\n")
    (root / "prio.yaml").write_text("base-score: 2\nadjustments: {precision: {fp8: 0.5}, multi-node: 1}\n")
    (root / "suite.yaml").write_text(
        "name: mine\nmasters: [configs/amd-master.yaml]\nclusters: configs/runners.yaml\nchangelog: log.yaml\n"
        "recipe-roots: [benchmarks/multi_node/srt-slurm-recipes]\ngolden-acceptance-lengths: [golden.yaml]\n"
        "eval-thresholds: eval.yaml\ncontainer-aliases: alias.yaml\npriorities: prio.yaml\n"
    )
    suite = load_suite(root)
    problems: list[object] = []
    assert suite.name == "mine" and suite.clusters.labels == {"cluster:x": ("x_0",)}
    assert [entry.config_keys for entry in suite.changelog(problems)] == [("arm",)]  # type: ignore[arg-type]
    assert [(g.draft_tokens, g.length) for g in suite.golden(problems)] == [(1, 1.5), (2, 2.0)]  # type: ignore[arg-type]
    thresholds = suite.thresholds(problems)  # type: ignore[arg-type]
    assert thresholds is not None
    assert (thresholds.of("m", "gsm8k"), thresholds.of("k", "gsm8k"), thresholds.of("k", "x")) == (
        0.95,
        0.9,
        None,
    )
    assert suite.aliases(problems) == {"short": "org/long:1"}  # type: ignore[arg-type]
    priorities = suite.priorities(problems)  # type: ignore[arg-type]
    arm = suite.arms["arm"]
    assert priorities is not None and priorities.score(arm, arm.entries[0]) == 3.5 and not problems


def test_problems_of_several_files_in_one_reading(tmp_path: Path) -> None:
    """Two masters, clusters: sound arms stay, everything wrong is listed; a key in two files is an error."""
    root = make(tmp_path / "s", "recipes/a.yaml")
    text = (root / "configs" / "amd-master.yaml").read_text()
    (root / "configs" / "nvidia-master.yaml").write_text(
        text + text.replace("arm:", "b:").replace("tp: 1", "tp: 0")
    )
    (root / "configs" / "runners.yaml").write_text(
        "labels: {x: []}\nhardware: {x: {gpus-per-node: 0}}\nfoo: 1\n"
    )
    suite, problems = read_suite(root)
    assert list(suite.arms) == ["arm"]
    assert [problem.key for problem in errors_of(problems)] == [
        "catalog.too_small", "catalog.too_small", "catalog.arm_twice",
        "catalog.empty_list", "catalog.missing_field", "catalog.too_small", "catalog.unknown_field",
    ]  # fmt: skip
    with pytest.raises(ServemarkError) as caught:
        load_suite(root)
    assert caught.value.key == "catalog.problems" and caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("name", "key"),
    [("nothing", "catalog.no_suite"), ("a" * 5000, "catalog.no_suite"), ("a\0b", "catalog.no_suite"),
     ("quikstart", "catalog.no_suite_near"), ("file", "catalog.suite_is_file"),
     ("empty", "catalog.no_suite_file")],
)  # fmt: skip
def test_what_is_no_suite(name: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing folder, a mistyped name, a file, a folder without a suite."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ServemarkError) as caught:
        load_suite(name)
    assert caught.value.key == key and caught.value.exit_code == 2


def test_a_master_that_is_a_folder_or_missing(tmp_path: Path) -> None:
    """A clear error for each, and the rest is read."""
    (tmp_path / "s" / "dir.yaml").mkdir(parents=True)
    (tmp_path / "s" / "suite.yaml").write_text("name: s\nmasters: [dir.yaml, none.yaml, ../x.yaml]\n")
    suite, problems = read_suite(tmp_path / "s")
    assert not suite.arms
    assert [p.key for p in problems] == ["catalog.is_folder", "catalog.missing_in_suite", "catalog.escapes"]


def test_shipped_suites_are_sound() -> None:
    """Every suite that comes with servemark loads without a problem, and each recipe of it is there."""
    for path in shipped_suites().values():
        suite, problems = read_suite(path)
        assert not problems
        for arm in suite.arms.values():
            for entry in arm.entries:
                assert suite.recipe(entry).state in {"read", "none"}


def test_a_file_that_cannot_be_read_is_named_in_its_place(tmp_path: Path) -> None:
    """A master of 50 MB is refused before it is read, under its own name."""
    (tmp_path / "s" / "configs").mkdir(parents=True)
    with (tmp_path / "s" / "configs" / "x-master.yaml").open("wb") as stream:
        stream.truncate(50_000_000)
    _, problems = read_suite(tmp_path / "s")
    assert [(str(p.at), p.key) for p in problems] == [("s/configs/x-master.yaml:1:1", "catalog.too_large")]


def test_a_name_means_the_suite_that_lies_here_before_the_shipped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a clone, `quickstart` is the folder that is edited there, not the installed copy: from its top, and from within."""
    shipped = suite_root("quickstart")
    mine = tmp_path / "suites" / "quickstart"
    mine.mkdir(parents=True)
    (mine / "suite.yaml").write_text("name: quickstart\n")
    monkeypatch.chdir(tmp_path)
    assert suite_root("quickstart") == mine
    monkeypatch.chdir(mine)
    assert suite_root("quickstart") == mine
    monkeypatch.chdir(tmp_path / "suites" / "..")
    (mine / "suite.yaml").unlink()
    assert suite_root("quickstart") == shipped
