"""Before anything starts: what a host lacks ends the run, an image is imported once, a worker is what was declared."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.launch.test_pd_real import RECIPE
from tests.launch.test_pd_real import deployment as read

from servemark.base.errors import Layer, ServemarkError
from servemark.catalog.cluster_launch import ImageImport, LaunchCluster, read_launch_clusters
from servemark.catalog.selector import parse_selector
from servemark.launch.allocation import AllocatedNode
from servemark.launch.engines.protocol import EngineIdentity
from servemark.launch.engines.steps import PlannedProcess
from servemark.launch.job import PlannedStep
from servemark.plan.points import Choice, choose
from servemark.runs.node_checks import image_of, is_whole, judged, preflight_here, wants_image
from servemark.runs.phases import budgets
from servemark.runs.site import find_cluster
from servemark.runs.worker_identity import Worker, differences

ARM = "disaggregated-cpu:smollm2-q4-cpu-llamacpp-agentic-mooncake-disagg-1p1d"


@pytest.fixture
def choice() -> Choice:
    """The shipped pair."""
    return choose(parse_selector(ARM))


def with_env(choice: Choice, **env: str) -> Choice:
    """The same with more environment for every role."""
    roles = tuple(replace(role, env={**role.env, **env}) for role in choice.deployment.roles)
    return replace(choice, deployment=replace(choice.deployment, roles=roles))


def test_missing_huge_pages_end_the_run(choice: Choice) -> None:
    """The shipped pair asks for none and passes. With the store's switch, 768 MiB a worker are 384 pages, which no
    test machine has reserved."""
    assert preflight_here(choice) is not None
    pool = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
    if not pool.exists() or int(pool.read_text()) >= 384:
        pytest.skip("this host has huge pages reserved, or none at all")
    with pytest.raises(ServemarkError) as caught:
        preflight_here(with_env(choice, MC_STORE_USE_HUGEPAGE="1"))
    assert caught.value.layer is Layer.PREFLIGHT and "nr_hugepages" in caught.value.what()


def test_only_what_the_launcher_does_not_look_after_itself() -> None:
    """A port that is taken is no reason: the launcher takes another."""

    def report(topic: str) -> dict[str, object]:
        facts = {"names": {"NVIDIA B300": 8}}
        finding = {
            "topic": topic,
            "verdict": "fail",
            "found": "x",
            "needs": "y",
            "commands": [{"run": "mend"}],
        }
        return {
            "node": "n1",
            "counts": {"fail": 1},
            "findings": [finding, {"topic": "gpus", "verdict": "ok", "facts": facts}],
        }

    assert judged([report("ports")], {}).gpus == {"n1": ["NVIDIA B300 x8"]}
    with pytest.raises(ServemarkError) as caught:
        judged([report("memlock")], {})
    assert "n1: x" in caught.value.what() and "mend" in caught.value.what()


def test_image_is_imported_once(choice: Choice, tmp_path: Path) -> None:
    """Into the cluster's cache by its own command; a second run finds it, and a package is no image."""
    named = replace(choice, deployment=replace(choice.deployment, container="registry.example/engine:1.0"))
    log = tmp_path / "log"
    squash = (
        "import struct,sys; open(sys.argv[1],'wb').write(b'hsqs'+b'\\0'*36+struct.pack('<Q',96)+b'\\0'*48)"
    )
    script = f'echo import >> {log}; python3 -c "$1" "$0"'
    how = ImageImport(("/bin/sh", "-c", script, "{output}", squash, "{uri}"))
    cluster = LaunchCluster("c", "slurm", image_cache=tmp_path / "cache", image_import=how)
    assert not wants_image(choice, cluster) and not wants_image(named, None) and wants_image(named, cluster)
    for _ in range(2):
        found = image_of(named, cluster, "/models/m", wait_s=5.0, tell=lambda *_: None)
    assert log.read_text() == "import\n" and found.container.image.is_file()
    assert is_whole(found)
    found.container.image.write_bytes(b"hsqs" + b"x" * 92)
    assert not is_whole(found)
    assert [mount.target for mount in found.container.mounts] == ["/models/m"] and found.sha256


def test_cluster_by_name_by_label_or_none(choice: Choice, tmp_path: Path) -> None:
    """The arm's runner label chooses; `local` is this machine; a name that no file has is told with the nearest."""
    file = tmp_path / "clusters.yaml"
    assert find_cluster(choice, None, file, asked=False) is None
    file.write_text(
        "launch:\n  b300-a: {launcher: slurm, labels: ['cluster:local'], wait-s: 5, budgets-s: {replay: 60}}\n"
    )
    found = find_cluster(choice, None, file, asked=False)
    assert found is not None and found.name == "b300-a"
    assert find_cluster(choice, "local", file, asked=False) is None
    assert (
        budgets(choice.deployment, found)["allocate"] == 5
        and budgets(choice.deployment, found)["replay"] == 60
    )
    with pytest.raises(ServemarkError) as caught:
        find_cluster(choice, "b300-b", file, asked=True)
    assert caught.value.exit_code == 2 and "b300-a" in caught.value.what() + str(caught.value.next_step())
    file.write_text("launch:\n  x: {launcher: slurm, budgets-s: {reply: 60}, silence-s: 1}\n")
    with pytest.raises(ServemarkError) as caught:
        read_launch_clusters(file)
    assert "reply" in caught.value.what()


def worker(name: str, identity: EngineIdentity, **more: object) -> Worker:
    """A worker as it ran."""
    node = AllocatedNode("n1", "all", "10.0.0.1")
    folder = Path("/x")
    gpus: tuple[int, ...] = (0,) if more.get("gpus") else ()
    step = PlannedStep(
        name, name, "workers", "decode", 0, node, PlannedProcess(()), {}, gpus, folder, folder, folder
    )
    return Worker(step, identity, more.get("gpus"), more.get("image"))  # type: ignore[arg-type]  # named by the tests


def test_every_worker_is_compared_with_its_recipe() -> None:
    """Each fact that both state; what nobody observed raises nothing."""
    digest = "sha256:" + "a" * 64
    declared = replace(
        read(RECIPE),
        engine="vllm",
        container=f"registry.example/engine@{digest}",
        gpu_type="b300",
        identity={"model": {"revision": "abc123"}, "frameworks": {"vllm": "v0.23.0"}},
    )
    model = "/hub/models--x/snapshots/" + "d" * 40
    good = EngineIdentity("vllm", "0.23.0+cu130", None, "m", "/m", None)
    bad = EngineIdentity("vllm", "0.24.0", None, "other", model, None)
    workers = [
        worker("prefill-0", good, gpus=["NVIDIA B300 x8"], image=digest),
        worker("decode-0", bad, gpus=["NVIDIA H200 x8"], image="sha256:" + "b" * 64),
    ]
    found = differences(declared, "m", workers, image_entered=True)
    assert {one["worker"] for one in found} == {"decode-0"}
    assert [one["fact"] for one in found] == ["version", "served_model", "model_revision", "image", "gpu"]
    outside = differences(declared, "m", workers[:1], image_entered=False)
    assert [one["fact"] for one in outside] == ["image"]


Make = Callable[..., Path]
Start = Callable[..., object]


@pytest.mark.engine
def test_a_budget_that_is_spent_ends_the_run(make_suite: Make, start: Start, tmp_path: Path) -> None:
    """A replay that may take half a second does not go on for longer; layer, phase and seconds are said."""
    suite = make_suite(sessions=200, out=64)
    recipe = suite / "recipes" / "tiny.yaml"
    recipe.write_text(recipe.read_text() + "  budgets_s: {replay: 0.5}\n")
    process = start("run", f"{suite}:tiny@1", "--home", str(tmp_path / "home"), "--no-report")
    _, err = process.communicate(timeout=60)  # type: ignore[attr-defined]
    assert process.returncode == 1 and "[replay]" in err and "0.5" in err  # type: ignore[attr-defined]
    (failure,) = (tmp_path / "home" / "runs").glob("*/failure.json")
    assert json.loads(failure.read_text())["key"] == "runs.phase_over"
