"""The suite `h200-qwen3`: checked clean, and on one host its workers get a GPU each. Nothing is started."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from servemark.catalog.selector import parse_selector
from servemark.catalog.suite import load_suite
from servemark.cli.main import run_cli
from servemark.plan.points import choose
from servemark.plan.strict import Wishes, plan_suite
from servemark.runs.deploy import shown_job
from servemark.runs.request import LineRequest, RunOptions, prepare
from servemark.runs.site import groups_of
from servemark.runs.sweep_plan import SweepOptions, freeze

SUITE = Path(__file__).resolve().parents[2] / "suites" / "h200-qwen3"
CLUSTERS = SUITE / "configs" / "clusters.yaml"
ARM = "qwen3-8b-dummy-bf16-h200-vllm"


def asked(arm: str, cluster: str = "h200-x2") -> LineRequest:
    """The request of an arm on the host that the suite describes."""
    options = RunOptions(cluster=cluster, clusters_file=CLUSTERS, clusters_asked=True)
    return prepare(f"{SUITE}:{ARM}-{arm}", options)


def test_checks_find_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Seven arms, seven recipes."""
    assert run_cli(["check", str(SUITE), "--json", "--notes"]) == 0
    assert capsys.readouterr().out == ""


def test_a_gpu_each_and_a_port_each() -> None:
    """1P1D over two GPUs of one node: devices 0 and 1, four ports that differ, our router behind NIXL."""
    job = shown_job(asked("nixl-disagg-1p1d"), Path("/r"))
    prefill, decode = job.stage("workers")
    assert [step.gpus for step in (prefill, decode)] == [(0,), (1,)]
    side = "VLLM_NIXL_SIDE_CHANNEL_PORT"
    ports = [step.env[side] for step in (prefill, decode)]
    ports += [argv[argv.index("--port") + 1] for argv in (prefill.process.argv, decode.process.argv)]
    assert len(set(ports)) == 4
    roles = [
        argv[argv.index("--kv-transfer-config") + 1] for argv in (prefill.process.argv, decode.process.argv)
    ]
    assert [json.loads(role)["kv_role"] for role in roles] == ["kv_producer", "kv_consumer"]
    (router,) = job.stage("router")
    assert json.loads(router.process.argv[-1])["connector"] == "nixl"


def test_one_node_with_the_gpus_of_both_roles() -> None:
    """1P1D may share a node: the plan says one node and two GPUs, and a job asks for as many; with a GPU a node it is two
    nodes, each with one GPU."""
    made = plan_suite(load_suite(SUITE), Wishes())
    sizes = {(row.gpus, row.nodes) for row in made.rows if "1p1d" in row.arm.key}
    assert sizes == {(2, 1)}
    choice = asked("nixl-disagg-1p1d").choice
    (group,) = groups_of(choice, local=False)
    assert (group.nodes, group.gpus) == (1, 2)
    narrow = replace(choice, deployment=replace(choice.deployment, gpus_per_node=1))
    (group,) = groups_of(narrow, local=False)
    assert (narrow.deployment.nodes_taken, group.nodes, group.gpus) == (2, 2, 1)


def test_the_site_is_the_workers_alone() -> None:
    """Where the engine lies and which CPUs it has comes from the clusters file; the router is our own process."""
    job = shown_job(asked("nixl-disagg-1p1d"), Path("/r"))
    for step in job.stage("workers"):
        assert step.process.argv[:5] == ("taskset", "-c", "0-23", "vllm", "serve")
        assert step.process.argv[5] == "/dev/shm/servemark-gpu/models/qwen3-8b"  # noqa: S108 - as the file says
        assert step.env["PYTHONPATH"] == "/dev/shm/servemark-gpu/site"  # noqa: S108
    (router,) = job.stage("router")
    assert "PYTHONPATH" not in router.env and router.process.argv[0] != "taskset"


@pytest.mark.parametrize(
    ("arm", "gpus"), [("agg", 1), ("agg-tp2", 2), ("nixl-disagg-1p1d", 2), ("agg-8k1k", 1)]
)
def test_rows_say_dummy_weights(arm: str, gpus: int) -> None:
    """In the identity that point and series ids hash, so that no comparison can take them for the model's own."""
    request = asked(arm)
    assert request.choice.deployment.weights == "dummy"
    assert request.choice.deployment.gpus_total == gpus
    assert {point.identity.canonical["weights"] for point in request.points} == {"dummy"}


def test_a_point_sends_four_requests_a_slot() -> None:
    """512/128 at 1, 16, 64 and 128: at least 8, else four times as many; the smaller are the first of the larger."""
    request = asked("agg")
    sent = {point.concurrency: request.at(point.concurrency).workload for point in request.points}
    assert {c: work.requests for c, work in sent.items()} == {1: 8, 16: 64, 64: 256, 128: 512}
    assert len({work.id for work in sent.values()}) == 1
    assert tuple(sent[16].sessions) == tuple(sent[128].sessions)[:64]
    turn = sent[1].sessions[0].turns[0]
    assert (turn.input_tokens, turn.output_tokens) == (512, 128)


def test_a_sweep_plans_the_points_that_run() -> None:
    """Also of one concurrency asked for alone: what a retry does."""
    plan = freeze(SweepOptions(selectors=(f"{SUITE}:{ARM}-agg@1,64",)))
    ran = {point.concurrency: point.identity.point_id for point in asked("agg").points}
    assert {point.concurrency: point.point_id for point in plan.points} == {1: ran[1], 64: ran[64]}
    alone = prepare(f"{SUITE}:{ARM}-agg@1", RunOptions())
    assert alone.points[0].identity.point_id == ran[1]


def test_real_weights_are_another_point_and_series() -> None:
    """The same recipe without `load-format: dummy` is not the same line of history."""
    from servemark.catalog.identity import identify

    choice = choose(parse_selector(f"{SUITE}:{ARM}-agg"))
    deployment = choice.deployment
    role = deployment.roles[0]
    flags = {name: flag for name, flag in role.flags.items() if name != "load-format"}
    real = replace(deployment, roles=(replace(role, flags=flags),))
    assert real.weights is None

    def made(which: object) -> tuple[str, str]:
        found = identify("s", choice.arm, choice.entry, which, {"type": "x"}, 1)  # type: ignore[arg-type]
        assert ("weights" in found.canonical) == (which is deployment)
        return found.point_id, found.series_id

    assert all(a != b for a, b in zip(made(deployment), made(real), strict=True))


def test_fit_knows_the_cache_of_a_plain_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    """bf16 weights and a stated element leave `auto` no choice. The engine said 814,368 tokens of KV cache, 818,048 where
    it found its graphs compiled: both within the margin that is left."""
    assert run_cli(["fit", f"{SUITE}:{ARM}-agg", "--json"]) == 0
    said = capsys.readouterr().out
    assert "kv_dtype_auto" not in said
    tokens = next(line for line in _lines(json.loads(said)) if line.get("name") == "tokens_fit")
    assert all(abs(tokens["value"] - measured) <= tokens["margin"] for measured in (814_368, 818_048))


def _lines(node: object) -> list[dict[str, Any]]:
    """Every object of a report, however deep."""
    if isinstance(node, dict):
        return [node, *(line for value in node.values() for line in _lines(value))]
    return [line for value in node for line in _lines(value)] if isinstance(node, list) else []
