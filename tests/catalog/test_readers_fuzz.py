"""Every reader takes any tree: field names that it knows with values that it does not expect, at any depth."""

# ruff: noqa: E501 - made-up files and their expected values stand on one line each

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from servemark.catalog.changelog import additions, entries_of
from servemark.catalog.clusters import clusters_of
from servemark.catalog.engine_args import arguments_of
from servemark.catalog.master import arms_of
from servemark.catalog.nodes import Node, Problem
from servemark.catalog.priorities import priorities_of
from servemark.catalog.recipe import deployment_of
from servemark.catalog.references import aliases_of, golden_of, thresholds_of
from servemark.catalog.variants import has_variants, variant_names
from servemark.catalog.yaml_nodes import parse_yaml

NAMES = [
    "image",
    "model",
    "model-prefix",
    "model_prefix",
    "precision",
    "framework",
    "runner",
    "multinode",
    "disagg",
    "scenarios",
    "fixed-seq-len",
    "agentic-coding",
    "search-space",
    "isl",
    "osl",
    "tp",
    "pp",
    "ep",
    "dp-attn",
    "dcp-size",
    "conc-list",
    "conc-start",
    "conc-end",
    "prefill",
    "decode",
    "num-worker",
    "additional-settings",
    "kv-offloading",
    "kv-offload-backend",
    "router",
    "kv-p2p-transfer",
    "dram-utilization",
    "hardware",
    "spec-decoding",
    "name",
    "version",
    "schema",
    "backend",
    "type",
    "vllm_config",
    "sglang_config",
    "trtllm_config",
    "resources",
    "prefill_nodes",
    "prefill_workers",
    "gpus_per_node",
    "gpus_per_prefill",
    "prefill_environment",
    "frontend",
    "args",
    "env",
    "router-mode",
    "dynamo",
    "hash",
    "source",
    "rev",
    "identity",
    "frameworks",
    "container",
    "health_check",
    "max_attempts",
    "interval_seconds",
    "benchmark",
    "concurrencies",
    "slurm",
    "time_limit",
    "roles",
    "aggregated",
    "workers",
    "nodes",
    "gpus",
    "engine",
    "port",
    "services",
    "options",
    "store_config",
    "global_segment_size",
    "kv-transfer-config",
    "kv_connector",
    "kv_connector_extra_config",
    "connectors",
    "speculative-config",
    "labels",
    "default",
    "models",
    "base",
    "override_x",
    "zip_override_x",
    "config-keys",
    "description",
    "pr-link",
    "scenario-type",
    "adjustments",
    "base-score",
    "path",
]
scalars = (
    st.none() | st.booleans() | st.integers(-9, 10**20) | st.floats() | st.text(max_size=8)
    | st.sampled_from(["cluster:x", "none", "dram", "mtp", "vllm", "CONFIG_FILE=a.yaml", '{"kv_connector": "X"}', "[1", "8:00:00",
                       "512x1024", "190GB", "--a=b --c", "fixed-seq-len", "true", "inf"])
)  # fmt: skip
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=40,
)


def read_recipe(root: Node, problems: list[Problem]) -> None:
    """All variants, or the one deployment."""
    for name in variant_names(root)[:5] if has_variants(root) else (None,):
        found = deployment_of(root, problems, name)
        if found is not None:
            found.fingerprint()


@pytest.mark.parametrize(
    "reader",
    [
        arms_of,
        read_recipe,
        clusters_of,
        entries_of,
        golden_of,
        thresholds_of,
        priorities_of,
        aliases_of,
        arguments_of,
    ],
)
@settings(max_examples=60, deadline=None)
@given(tree=trees)
def test_any_tree_is_read(reader: Callable[[Node, list[Problem]], object], tree: object) -> None:
    """No exception; every problem can be said in both languages."""
    root, problems = parse_yaml(yaml.safe_dump(tree).encode(), "f")
    reader(root, problems)
    for problem in problems:
        error = problem.error()
        assert error.what("en") and error.what("zh") and (error.next_step() is None or error.next_step("zh"))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([b"- config-keys: [a]\n", b"  description: [b]\n", b"  pr-link: c\n", b"\n", b"- x", b"\t"])),
       st.data())  # fmt: skip
def test_any_two_changelogs_can_be_compared(lines: list[bytes], data: st.DataObject) -> None:
    """Whatever was inserted, moved or lost: entries or problems."""
    head = data.draw(st.permutations(lines)) if data.draw(st.booleans()) else lines + lines
    entries, problems = additions(b"".join(lines), b"".join(head), "log")
    assert entries or problems
