"""The real suites: every file read, figures that were counted by other means, and damaged copies of real
files.

Counts of entries, recipes, units and services come from a separate survey of the suite with PyYAML and grep.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from servemark.catalog.nodes import Node, Problem, errors_of
from servemark.catalog.recipe import deployment_of
from servemark.catalog.suite import load_suite
from servemark.catalog.variants import has_variants, variant_names
from servemark.catalog.yaml_nodes import read_yaml

pytestmark = pytest.mark.corpus


def keys_as_text(value: object) -> object:
    """PyYAML's tree with keys spelled as this reader does."""
    if isinstance(value, dict):
        return {
            str(key).lower() if isinstance(key, bool) else "null" if key is None else str(key): keys_as_text(
                inner
            )
            for key, inner in value.items()
        }
    return [keys_as_text(inner) for inner in value] if isinstance(value, list) else value


def test_every_file_is_what_pyyaml_reads(reference_suite: Path) -> None:
    """Values of all files equal PyYAML's, duplicate keys (the later wins) included. Task definitions of an
    eval harness lie there too; they hold its own tags and are no suite files."""
    paths = [
        path for path in sorted(reference_suite.rglob("*.yaml")) if b"!function" not in path.read_bytes()
    ]
    assert len(paths) > 480
    duplicates = Counter[str]()
    for path in paths:
        root, problems = read_yaml(path, path.name)
        assert root.plain() == keys_as_text(yaml.load(path.read_bytes(), yaml.CSafeLoader)), path
        assert {problem.key for problem in problems} <= {"catalog.duplicate_key"}
        duplicates[path.name] += len(problems)
    assert sum(duplicates.values()) == 8 and sum(bool(count) for count in duplicates.values()) == 8


def test_every_scalar_stands_where_its_position_says(reference_suite: Path) -> None:
    """The text at a plain scalar's position begins with it, for every scalar of a master (7,111)."""
    path = reference_suite / "configs" / "nvidia-master.yaml"
    lines = path.read_text(encoding="utf-8").split("\n")
    root, _ = read_yaml(path, "m")
    seen = 0
    for _, node in root.walk():
        if isinstance(node.scalar, str) and not isinstance(node.scalar, bool):
            text = lines[node.line - 1][node.column - 1 :]
            assert text.lstrip("\"'").startswith(node.scalar), node.at
            seen += 1
        elif isinstance(node.scalar, int) and not isinstance(node.scalar, bool):
            assert lines[node.line - 1][node.column - 1 :].replace("_", "").startswith(str(node.scalar)), (
                node.at
            )
            seen += 1
    assert seen == 7111


def test_all_arms_and_side_files(reference_suite: Path) -> None:
    """208 arms, 749 search entries, 772 changelog entries, 37 labels, 16 kinds of hardware; nothing is
    wrong."""
    suite = load_suite(reference_suite)
    problems: list[Problem] = []
    assert suite.masters == ("configs/nvidia-master.yaml", "configs/amd-master.yaml")
    assert len(suite.arms) == 208
    entries = [entry for arm in suite.arms.values() for entry in arm.entries]
    assert len(entries) == 749 and sum(not entry.single_node for entry in entries) == 505
    assert sum(entry.config_file is not None for entry in entries) == 465
    assert len(suite.changelog(problems)) == 772
    assert len(suite.clusters.labels) == 37 and len(suite.clusters.hardware) == 16
    thresholds, priorities = suite.thresholds(problems), suite.priorities(problems)
    assert thresholds is not None and thresholds.of("dsr1", "gsm8k") == 0.91
    assert priorities is not None and priorities.framework_prefix["sglang"] == 0.5
    golden = {
        (g.at.file.rpartition("/")[2], g.mode, g.draft_tokens): g.length for g in suite.golden(problems)
    }
    assert golden[("kimik3_dspark.yaml", "thinking_on", 4)] == 3.22 and not problems
    assert Counter(suite.recipe(entry).state for entry in entries) == {
        "none": 284, "read": 252, "elsewhere": 208, "foreign": 3, "faulty": 2,
    }  # fmt: skip


def all_deployments(suite_folder: Path) -> list[tuple[str, object]]:
    """(file, deployment) of every recipe and variant; errors other than duplicate keys fail."""
    suite = load_suite(suite_folder)
    found: list[tuple[str, object]] = []
    for path in suite.recipe_files():
        root, _ = suite.recipe_tree(path)
        for name in variant_names(root) if has_variants(root) else (None,):
            problems: list[Problem] = []
            deployment = deployment_of(root, problems, name)
            assert deployment is not None and not problems, (path, problems)
            found.append((path.name, deployment))
    return found


def test_all_469_recipes_of_schema_one(reference_suite: Path) -> None:
    """496 deployments of 469 files. In every role the sizes that its arguments state multiply to the GPUs
    that its resources book: two facts of different blocks that agree for all 935 roles."""
    from servemark.catalog.deployment import Deployment

    found = [d for _, d in all_deployments(reference_suite) if isinstance(d, Deployment)]
    assert len(found) == 496
    roles = [(role, d.engine) for d in found for role in d.roles]
    assert len(roles) == 935
    assert all(role.parallel.ranks(engine) == role.gpus for role, engine in roles)
    stores = [
        s.sizes["global_segment_size"] for d in found for s in d.services if s.type == "mooncake-master"
    ]
    plain = [size for size in stores if size % 2**30 == 0]
    assert len(plain) == len(stores) >= 42
    assert {size // 2**30 for size in stores} == {200, 150, 140, 180, 96}
    budgets = Counter(d.ready_budget_s for d in found if d.ready_budget_stated)
    assert set(budgets) == {3600, 7200, 14400, 21600, 5400, 2700, 900}
    assert Counter(t for d in found for t in d.kv_transfer) == {
        "nixl": 291,
        "ucx": 64,
        "mooncake": 41,
        "default": 11,
    }
    nested = [c for role, _ in roles for c in role.connectors if c.inside]
    assert {c.name for c in nested} == {"NixlConnector", "MooncakeStoreConnector"}


def test_the_seed_recipe_of_schema_two(seed_suite: Path) -> None:
    """Both roles share one anchor; 190GB a rank is 204,010,946,560 bytes."""
    suite = load_suite(seed_suite)
    (arm,) = suite.arms.values()
    deployment = suite.deployment(arm, arm.entries[0])
    prefill, decode = deployment.roles
    assert (deployment.schema, deployment.gpus_total, deployment.nodes_total) == (2, 16, 2)
    assert prefill.flags == decode.flags and prefill.parallel.dcp == 8 and prefill.parallel.ranks("vllm") == 8
    assert [c.name for c in decode.connectors] == [
        "MultiConnector",
        "NixlConnector",
        "MooncakeStoreConnector",
    ]
    store = next(s for s in deployment.services if s.type == "mooncake-master")
    assert store.sizes == {"global_segment_size": 204_010_946_560, "local_buffer_size": 4 * 2**30}
    assert deployment.software[0].kind == "source" and deployment.ready_budget_s == 7200
    assert deployment.time_limit_s == 6 * 3600 and deployment.benchmark.concurrencies == (48,)


def mutants_program() -> ModuleType:
    """The program below benchmarks/ that makes the mutants, as a module."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "plan" / "mutants.py"
    spec = importlib.util.spec_from_file_location("servemark_mutants", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_damaged_real_files_never_break_a_reader(reference_suite: Path, seed_suite: Path) -> None:
    """1,500 mutants here (the program runs 20,000 and more): no exception, none over two seconds."""
    program = mutants_program()
    files = [pair for pair in program.material([reference_suite, seed_suite]) if len(pair[1]) < 40_000]
    seed = random.SystemRandom().randrange(10**9)
    for kind, data in program.mutants(files, 1500, seed):
        began = time.process_time()
        program.read(kind, data)
        assert time.process_time() - began < 2, (seed, kind)


def test_a_mistake_in_a_real_master_spares_the_other_arms(reference_suite: Path) -> None:
    """A broken line in the middle costs one arm; the other 151 are read and the place is named."""
    text = (reference_suite / "configs" / "nvidia-master.yaml").read_text(encoding="utf-8")
    lines = text.split("\n")
    number = next(i for i, line in enumerate(lines) if i > 5000 and line.startswith("  image:"))
    lines[number] = "  image: 'open"
    from servemark.catalog.master import arms_of
    from servemark.catalog.yaml_nodes import parse_yaml

    root, problems = parse_yaml("\n".join(lines).encode(), "m")
    arms = arms_of(root, problems)
    assert isinstance(root, Node) and len(arms) >= 150 and 1 <= len(errors_of(problems)) <= 3
