"""Steps in containers, and preflight on every node, on the real four-node cluster."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.slurm.conftest import Allocate, LocalSlurm, StepOf

from servemark.base.errors import Layer, ServemarkError
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch.allocation import Container, Mount
from servemark.launch.cluster_check import compare
from servemark.launch.process import ExitStatus
from servemark.launch.slurm_preflight import preflight_argv, preflight_nodes

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def image(standing_cluster: LocalSlurm) -> Path:
    """A squash image of a shell, what it links, and a few programs: Debian's own files."""
    if standing_cluster.spank is None or shutil.which("mksquashfs") is None:
        pytest.skip("needs gcc, libslurm-dev and squashfs-tools for the container plugin and its image")
    root = standing_cluster.shared / "root"
    for name in ("proc", "dev", "sys", "etc", "tmp", "bin"):
        (root / name).mkdir(parents=True)
    for program in ("sh", "cat", "mkdir", "sleep", "hostname"):
        found = Path(str(shutil.which(program))).resolve()
        shutil.copy(found, root / "bin" / program)
        listed = subprocess.run(["ldd", str(found)], capture_output=True, text=True, check=False).stdout
        for word in listed.split():
            if word.startswith("/") and not (root / word[1:]).exists():
                (root / word[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, root / word[1:])
    (root / "etc" / "inside").write_text("squash\n", encoding="utf-8")
    for name in ("hosts", "resolv.conf"):
        (root / "etc" / name).touch()
    made = standing_cluster.shared / "images" / "x.sqsh"
    made.parent.mkdir()
    subprocess.run(
        ["mksquashfs", str(root), str(made), "-quiet", "-no-progress"], check=True, stdout=subprocess.DEVNULL
    )
    return made


def test_step_in_a_container(allocate: Allocate, step: StepOf, slurm: LocalSlurm, image: Path) -> None:
    """The image's files, a read-only mount, the step's own environment; nothing else of the host."""
    (slurm.shared / "models").mkdir(exist_ok=True)
    (slurm.shared / "models" / "m").write_text("weights\n", encoding="utf-8")
    container = Container(image, (Mount(slurm.shared / "models", "/models"),), "/tmp")  # noqa: S108 - inside the container
    script = (
        'cat /etc/inside /models/m; echo "$WORD $PWD"; echo x > /models/m || echo read-only; test -e /var/tmp'
    )
    allocation = allocate(1)
    request = step(allocation.nodes[0], script, container=container, env={"WORD": "here"})
    assert allocation.start(request).wait(20) == ExitStatus(exit_code=1)
    log = request.log_path.read_text(encoding="utf-8")
    assert "squash\nweights\nhere /tmp\n" in log and "read-only" in log


def test_own_folder_in_a_container(allocate: Allocate, step: StepOf, image: Path) -> None:
    """The step's working folder is there and writable, outside of all declared roots, and gone with the allocation."""
    allocation = allocate(1)
    work = allocation.work_root(Path("/nowhere")) / "worker"
    container = Container(image, workdir=str(work), own=(Mount(work, str(work), read_only=False),))
    request = step(
        allocation.nodes[0], "echo kept > here; cat here; echo $PWD", container=container, work_dir=work
    )
    assert allocation.start(request).wait(20) == ExitStatus(exit_code=0)
    assert request.log_path.read_text(encoding="utf-8").endswith(f"kept\n{work}\n")
    assert (work / "here").is_file()  # the nodes of this cluster share the folder with this host
    allocation.release()
    assert not work.parent.exists()


def test_corrupt_and_missing_images(allocate: Allocate, step: StepOf, slurm: LocalSlurm, image: Path) -> None:
    """The reason is the plugin's own line, the layer is `image`, and the allocation stands."""
    torn = image.with_name("torn.sqsh")
    torn.write_bytes(image.read_bytes()[:4096])
    allocation = allocate(1)
    for path, word in ((torn, "bad superblock"), (image.with_name("none.sqsh"), "No such file")):
        with pytest.raises(ServemarkError) as caught:
            allocation.start(step(allocation.nodes[0], "true", container=Container(path)))
        assert caught.value.layer is Layer.IMAGE and word in caught.value.what()
    assert allocation.lost() is None


def test_preflight_names_the_odd_node(allocate: Allocate, slurm: LocalSlurm, tmp_path: Path) -> None:
    """All four nodes are one host, so only what is made to differ can: n3 pretends to have another kernel."""
    wrapper = (
        'n=$(hostname); out=$("$0" "$@"); [ "$n" != n3 ] || out=$(echo "$out" | sed "s/\\"release\\": *\\"/&odd-/"); '
        'echo "$out"'
    )
    allocation = allocate(4)
    argv = ("/bin/sh", "-c", wrapper, *preflight_argv(sys.executable))
    merged = preflight_nodes(allocation, argv, tmp_path / "preflight")
    assert [node.name for node in merged.nodes] == ["n1", "n2", "n3", "n4"]
    assert "kernel" in merged.odd["n3"]
    assert not any("kernel" in facts for node, facts in merged.odd.items() if node != "n3")
    with pytest.raises(ServemarkError) as caught:
        preflight_nodes(allocation, ("/bin/sh", "-c", "echo no"), tmp_path / "none")
    assert caught.value.layer is Layer.PREFLIGHT and "n4" in caught.value.what()


def test_cluster_compared_with_its_description(slurm: LocalSlurm, cluster: LaunchCluster) -> None:
    """The cluster declares 8 GPUs and 2,048,000 MiB a node (tests/slurm/local-slurm)."""
    found = {one.key: one.verdict for one in compare(cluster)}
    assert found == {"launch.check_path": "ok", "launch.check_nodes": "ok", "launch.check_gpus": "ok"}
    wrong = LaunchCluster(
        "x", "slurm", partition="batch", gpus_per_node=9, dram_mib=2_048_000, exclude_nodes=("n9",)
    )
    found = {one.key: one.verdict for one in compare(wrong)}
    assert found["launch.check_gpus"] == "fail" and found["launch.check_dram"] == "ok"
    assert found["launch.check_no_node"] == "warn"
    assert [one.verdict for one in compare(LaunchCluster("x", "slurm", partition="nope"))] == ["fail"]
