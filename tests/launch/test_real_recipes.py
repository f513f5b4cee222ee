"""Every recipe of two real suites becomes steps, or says precisely why it does not. Nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.launch.recipes import argv_of, job_of, option

from servemark.base.errors import ServemarkError
from servemark.catalog.deployment import COLOCATION, SPREAD, Deployment
from servemark.catalog.nodes import Problem
from servemark.catalog.recipe import read_recipe
from servemark.launch.placement import nodes_of, place

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
SUITES = ("inferencex-2026-08", "seed/suite")
pytestmark = pytest.mark.corpus


def recipes() -> list[tuple[Path, Deployment]]:
    """Every recipe file, each variant of a file that has them; skips where the suites are absent."""
    found: list[tuple[Path, Deployment]] = []
    for suite in SUITES:
        root = DATA / suite / "benchmarks"
        if not root.is_dir():
            pytest.skip("the real suites are not on this machine")
        for path in sorted(root.rglob("*.yaml")):
            problems: list[Problem] = []
            deployment = read_recipe(path, path.name, problems)
            missing = [p for p in problems if p.key == "catalog.variant_missing"]
            names = str(missing[0].values["names"]).split(", ") if missing else []
            variants = [read_recipe(path, path.name, [], name) for name in names] if names else [deployment]
            found += [(path, one) for one in variants if one is not None]
    return found


def test_every_recipe_renders_or_says_why_not() -> None:
    """There is no reason left not to: every real recipe has steps, those of many nodes as well."""
    rendered, together = 0, 0
    for path, deployment in recipes():
        job = job_of(deployment)
        rendered += 1
        for step in job.steps:
            if step.process.tasks > 1:
                together += 1
                assert deployment.engine == "trtllm" and step.also, path
                assert step.process.tasks == len(step.gpus) * (1 + len(step.also)), path
        for step in job.steps:
            assert step.process.argv and all(
                word.isprintable() or "\n" in word for word in step.process.argv
            ), path
            assert all(isinstance(value, str) for value in step.env.values()), path
    assert rendered > 400 and together > 0


def test_placement_of_every_recipe_is_sound() -> None:
    """No GPU is given twice, none that a node lacks, every worker has as many as its role says, ranks evenly."""
    for path, deployment in recipes():
        per_node = deployment.gpus_per_node or 0
        taken: set[tuple[int, int]] = set()
        for worker in place(deployment):
            gpus = [(share.node, gpu) for share in worker.shares for gpu in share.gpus]
            assert len(gpus) == worker.role.gpus, path
            assert not taken & set(gpus) and all(gpu < per_node for _, gpu in gpus), path
            assert len({len(share.gpus) for share in worker.shares}) == 1, path
            assert max(share.node for share in worker.shares) < deployment.nodes_total, path
            taken |= set(gpus)


def test_shared_nodes_are_counted_once() -> None:
    """Where roles may share nodes, a plan counts the nodes that a placement uses."""
    shared = [(path, one) for path, one in recipes() if one.gpus_total and one.extras.get(COLOCATION)]
    assert len(shared) >= 20
    for path, deployment in shared:
        assert deployment.nodes_taken == nodes_of(place(deployment)), path


def test_a_plan_counts_the_nodes_that_a_placement_uses() -> None:
    """Of every recipe; those with `spread_workers` book a node for each worker, however small."""
    spread = 0
    for path, deployment in recipes():
        spread += bool(deployment.extras.get(SPREAD))
        assert deployment.nodes_taken in {nodes_of(place(deployment)), 0}, path
    assert spread >= 9


def test_ports_of_every_recipe_are_its_own() -> None:
    """On one node no two steps are given the same port, whatever a recipe writes."""
    for path, deployment in recipes():
        try:
            job = job_of(deployment)
        except ServemarkError:
            continue
        seen: dict[tuple[str, str], str] = {}
        for step in job.steps:
            argv = list(step.process.argv)
            for flag in ("--port", "--http-port", "--disaggregation-bootstrap-port"):
                if flag in argv and (step.rank == 0 or flag == "--http-port"):
                    key = (step.node.name, option(argv, flag))
                    assert key not in seen, f"{path}: {step.name} and {seen.get(key)} share port {key}"
                    seen[key] = step.name


def test_the_seed_arm() -> None:
    """Its one worker a side on eight GPUs, the store's master as written, and Dynamo's router mode of the recipe."""
    for path, deployment in recipes():
        if "disagg-1p1d-dcp8" in path.name and path.is_relative_to(DATA / "seed"):
            job = job_of(deployment)
            names = [step.name for step in job.steps]
            assert names == ["etcd", "nats", "mooncake-master", "prefill-0", "decode-0", "router"]
            master = argv_of(job, "mooncake-master")
            assert {"-default_kv_lease_ttl=60000", "-eviction_high_watermark_ratio=0.95"} <= set(master)
            assert option(argv_of(job, "router"), "--router-mode") == "least-loaded"
            return
    pytest.fail("the seed arm's recipe was not found")
