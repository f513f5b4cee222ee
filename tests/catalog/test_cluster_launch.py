"""The `launch:` section of a clusters file: facts with positions, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.catalog.cluster_launch import launch_cluster, read_launch_clusters
from servemark.catalog.suite import read_suite

GOOD = """
labels: {cluster:a: [runner-1]}
launch:
  a:
    launcher: slurm
    labels: [cluster:a]
    partition: batch
    gpus-per-node: 8
    image-cache: /shared/images
    mounts: [/shared/models]
    model-paths: {org/model: /shared/models/m}
    sbatch: ["--qos=bench"]
    import: {command: [enroot, import, -o, "{output}", "{uri}"]}
  here: {launcher: local}
"""


def written(folder: Path, text: str) -> Path:
    """A clusters file."""
    file = folder / "clusters.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_reads_what_is_written(tmp_path: Path) -> None:
    """By name and by label; a suite's other sections are left alone."""
    file = written(tmp_path, GOOD)
    found = read_launch_clusters(file)
    one = launch_cluster(found, "cluster:a", str(file))
    assert (one.name, one.partition, one.gpus_per_node, one.sbatch) == ("a", "batch", 8, ("--qos=bench",))
    assert one.model_paths == (("org/model", Path("/shared/models/m")),)
    assert found["here"].launcher == "local"
    with pytest.raises(ServemarkError, match="did you mean here"):
        launch_cluster(found, "heer", str(file))


@pytest.mark.parametrize(
    ("old", "new", "line", "word"),
    [
        ("launcher: slurm", "launcher: slrum", 5, "slrum"),
        ("partition: batch", "partition: 'a b'", 7, "a b"),
        ("partition: batch", "partiton: batch", 7, "partiton"),
        ("gpus-per-node: 8", "gpus-per-node: eight", 8, "gpus-per-node"),
        ("image-cache: /shared/images", "image-cache: images", 9, "images"),
        ("mounts: [/shared/models]", "mounts: ['/a:/b']", 10, "/a:/b"),
        ("--qos=bench", "--requeue", 12, "--requeue"),
        ("--qos=bench", "-J evil", 12, "-J evil"),
        ('"{output}"', "x", 13, "{output}"),
        ("{launcher: local}", "{launcher: local, partition: x}", 14, "partition"),
    ],
)
def test_says_where_it_is_wrong(tmp_path: Path, old: str, new: str, line: int, word: str) -> None:
    """File, line and the offending text."""
    assert old in GOOD
    file = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ServemarkError) as caught:
        read_launch_clusters(file)
    said = caught.value.what()
    assert f"clusters.yaml:{line}:" in said and word in said and caught.value.exit_code == 2


def test_no_file(tmp_path: Path) -> None:
    """Said, with how to get one."""
    with pytest.raises(ServemarkError) as caught:
        read_launch_clusters(tmp_path / "none.yaml")
    assert "docs/launch-on-slurm.md" in str(caught.value.next_step())


def test_launch_section_of_a_suites_clusters_file(tmp_path: Path) -> None:
    """It stands beside labels and hardware, and what is wrong with it is told when the suite is read."""
    (tmp_path / "master.yaml").write_text("{}\n", encoding="utf-8")
    (tmp_path / "suite.yaml").write_text(
        "name: s\nmasters: [master.yaml]\nclusters: clusters.yaml\n", encoding="utf-8"
    )
    file = tmp_path / "clusters.yaml"
    text = "labels:\n  cluster:a: [a_00]\nlaunch:\n  a:\n    launcher: slurm\n    partition: batch\n"
    file.write_text(text, encoding="utf-8")
    assert not read_suite(tmp_path)[1]
    file.write_text(text.replace("partition", "partitoin"), encoding="utf-8")
    assert [(str(p.at), p.key) for p in read_suite(tmp_path)[1]] == [
        ("s/clusters.yaml:6:5", "catalog.unknown_field_near")
    ]


def test_a_host_says_where_its_engine_lies(tmp_path: Path) -> None:
    """Environment, model folder and CPUs of the workers, as one writes them; each under its own name."""
    file = written(
        tmp_path,
        """
launch:
  here:
    launcher: local
    worker-cpus: 0-11,14
    model-paths: {org/model: /models/m}
    environment: {PATH: "/opt/engine/bin:/usr/bin", PYTHONPATH: /opt/engine}
""",
    )
    found = read_launch_clusters(file)["here"]
    assert found.worker_cpus == "0-11,14"
    assert dict(found.environment) == {"PATH": "/opt/engine/bin:/usr/bin", "PYTHONPATH": "/opt/engine"}


@pytest.mark.parametrize(
    ("launcher", "cpus"), [("local", "0-"), ("local", "0; reboot"), ("local", "'-1'"), ("slurm", "0-3")]
)
def test_cpus_that_are_no_list(tmp_path: Path, launcher: str, cpus: str) -> None:
    """They stand on a command line, and a batch system binds its own steps."""
    file = written(tmp_path, f"launch:\n  here: {{launcher: {launcher}, worker-cpus: {cpus}}}\n")
    with pytest.raises(ServemarkError) as caught:
        read_launch_clusters(file)
    assert "worker-cpus" in caught.value.what() and ":2:" in caught.value.what()
