"""A small suite in a real git repository, with a base and an edited head. Figures in tests are worked out by hand."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

MASTER = """\
# two arms; this comment must survive
one:
  image: img:1
  model: Qwen/Qwen3-8B
  model-prefix: qwen3
  precision: bf16
  framework: vllm
  runner: cluster:x
  multinode: true
  disagg: false
  scenarios:
    agentic-coding:
    - search-space:
      - kv-offloading: none
        conc-list: [1, 2]
        prefill: {num-worker: 1, tp: 1, ep: 1, dp-attn: false, additional-settings: ["CONFIG_FILE=recipes/one.yaml"]}
        decode: {num-worker: 0, tp: 1, ep: 1, dp-attn: false}
gone:
  image: img:1
  model: m
  model-prefix: m
  precision: fp8
  framework: sglang
  runner: cluster:y
  multinode: false
  scenarios:
    fixed-seq-len:
    - isl: 1024
      osl: 1024
      search-space:
      - {tp: 4, conc-list: [4]}
"""
RECIPE = """\
schema: 2
name: one
# why eight: see the notes
model: {path: Qwen/Qwen3-8B, container: "img:1", precision: bf16}
resources: {gpu_type: h200, gpus_per_node: 8}
engine: {type: vllm}
roles:
  aggregated:
    nodes: 1
    workers: 1
    gpus: 1
    args: {tensor-parallel-size: 1, kv-cache-dtype: auto, max-num-seqs: 64}
benchmark: {type: custom, command: bash run.sh}
"""
SUITE = """\
name: small
masters: [configs/x-master.yaml]
recipe-roots: [recipes]
clusters: configs/clusters.yaml
changelog: perf-changelog.yaml
"""
CLUSTERS = """\
labels: {'cluster:x': [x_0], 'cluster:y': [y_0]}
hardware: {'cluster:x': {available-cpu-dram-mib: 1000000, gpus-per-node: 8}}
"""
CHANGELOG = """\
- config-keys:
    - one
  description:
    - "First."
  pr-link: https://example.org/o/r/pull/1
"""


def git(folder: Path, *arguments: str) -> str:
    """Run git with an identity."""
    names = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *names, "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite one folder below a repository's top; its first commit is on `main`, the working branch is `topic`."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = tmp_path / "repo" / "small"
    (root / "configs").mkdir(parents=True)
    (root / "recipes").mkdir()
    (root / "suite.yaml").write_text(SUITE)
    (root / "configs" / "x-master.yaml").write_text(MASTER)
    (root / "configs" / "clusters.yaml").write_text(CLUSTERS)
    (root / "recipes" / "one.yaml").write_text(RECIPE)
    (root / "perf-changelog.yaml").write_text(CHANGELOG)
    git(tmp_path / "repo", "init", "-q")
    commit(root, "one")
    git(root, "checkout", "-qb", "topic")
    return root


def commit(root: Path, message: str) -> None:
    """Everything."""
    git(root, "add", "-A", ":/")
    git(root, "commit", "-qm", message)


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text that must be there."""
    said = path.read_text()
    assert old in said
    path.write_text(said.replace(old, new))
