"""Recipes of engines that cannot run here, and the job that one of them becomes on named nodes."""

from __future__ import annotations

import itertools
from pathlib import Path

from servemark.catalog.deployment import Deployment
from servemark.catalog.recipe import read_recipe
from servemark.launch.allocation import AllocatedNode
from servemark.launch.engines.steps import Bind
from servemark.launch.job import Job, JobPlace, build_job
from servemark.launch.placement import nodes_of, place

HEAD = """
schema: 2
name: golden
model: {path: /models/m, container: "img:1", precision: fp8}
resources: {gpu_type: h200, gpus_per_node: 8}
"""
TAIL = """
benchmark: {type: servemark, workload: w.yaml, cache_state: marked, concurrencies: [1]}
"""


def deployment_of(folder: Path, body: str, head: str = HEAD) -> Deployment:
    """A recipe's text, with the parts that all of these recipes share, as a deployment."""
    path = folder / "recipe.yaml"
    path.write_text(head + body + TAIL, encoding="utf-8")
    problems: list[object] = []
    found = read_recipe(path, "recipe.yaml", problems)  # type: ignore[arg-type]  # only shown when it fails
    assert found is not None, problems
    return found


def nodes_for(deployment: Deployment, count: int | None = None) -> list[AllocatedNode]:
    """n1, n2, … at 10.0.0.1, 10.0.0.2, …, as many as the placement needs."""
    wanted = nodes_of(place(deployment)) if count is None else count
    gpus = tuple(range(deployment.gpus_per_node or 0))
    return [AllocatedNode(f"n{n + 1}", "all", f"10.0.0.{n + 1}", gpus) for n in range(wanted)]


def job_of(deployment: Deployment, *, bind: Bind = "node", nodes: int | None = None) -> Job:
    """The job, with ports 20000, 20001, … in the order in which they are asked for."""
    numbers = itertools.count(20_000)
    where = JobPlace(
        nodes=nodes_for(deployment, nodes),
        ports=lambda _, count: [next(numbers) for _ in range(count)],
        work_root=Path("/work"),
        log_root=Path("/logs"),
        bind=bind,
    )
    return build_job(deployment, where, run_id="run-1", served_name="m")


def argv_of(job: Job, name: str) -> list[str]:
    """The command line of one step."""
    return list(next(step for step in job.steps if step.name == name).process.argv)


def option(argv: list[str], flag: str) -> str:
    """The word after a flag that stands there exactly once."""
    assert argv.count(flag) == 1, f"{flag} in {argv}"
    return argv[argv.index(flag) + 1]
