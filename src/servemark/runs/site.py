"""Where a line runs: this host, described by a clusters file or not, or a Slurm cluster of such a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import input_error
from servemark.catalog.cluster_launch import LaunchCluster, launch_cluster, read_launch_clusters
from servemark.catalog.suite import Suite
from servemark.launch.allocation import Launcher, NodeGroup
from servemark.launch.engines.steps import Bind
from servemark.launch.local_allocation import HostLauncher
from servemark.launch.placement import gpus_of_a_node, nodes_of, place
from servemark.plan.points import Choice

HERE = "local"
"""The name of this machine, where no file gives it to another."""
STATE = "slurm"
"""Folder below home in which launchers keep what their jobs watch; the nodes must see it."""
Clusters = dict[str, LaunchCluster]


def find_cluster(choice: Choice, wanted: str | None, file: Path, *, asked: bool) -> LaunchCluster | None:
    """The cluster that a line runs on, as `find_place` finds it; None is this machine."""
    found = find_place(choice, wanted, file, asked=asked)
    return found if found is not None and found.launcher == "slurm" else None


def find_place(choice: Choice, wanted: str | None, file: Path, *, asked: bool) -> LaunchCluster | None:
    """The description of where a line runs: of a cluster, or of this machine (launcher `local`); None without one.

    Looked for in `file`, then in the suite's own clusters file. Without a `wanted` name, the arm's runner label
    chooses the cluster that carries it. `asked`: somebody named the file, so it has to be there. Raises ServemarkError
    (exit 2) for a name that no file has.
    """
    found: Clusters = {}
    places = [file, *_of_suite(choice.suite)] if asked or file.is_file() else _of_suite(choice.suite)
    for path in places:
        found = {**read_launch_clusters(path), **found}
    if wanted is None:
        carrying = [one for one in found.values() if choice.arm.runner in (one.name, *one.labels)]
        return carrying[0] if len(carrying) == 1 else None
    if wanted == HERE and HERE not in found:
        return None
    if not places:
        raise input_error("runs.no_clusters_file", name=wanted[:80], path=str(file))
    return launch_cluster(found, wanted, ", ".join(str(path) for path in places))


def _of_suite(suite: Suite) -> list[Path]:
    named = suite.layout.clusters if suite.layout is not None else None
    path = suite.root / named if named is not None else None
    return [path] if path is not None and path.is_file() else []


@dataclass(frozen=True, slots=True)
class Site:
    """A launcher, and how servers listen there."""

    launcher: Launcher
    cluster: LaunchCluster | None
    bind: Bind
    host: LaunchCluster | None = None
    """The description of this machine, where a file has one."""

    @property
    def name(self) -> str:
        """The cluster's, this machine's where a file names it, or `local`."""
        described = self.cluster or self.host
        return described.name if described is not None else HERE

    @property
    def described(self) -> LaunchCluster | None:
        """What a file says of where it runs."""
        return self.cluster or self.host


def site_of(cluster: LaunchCluster | None, home: Path, host: LaunchCluster | None = None) -> Site:
    """The launcher for a cluster; this host without one, `host` being its description."""
    if cluster is None:
        return Site(HostLauncher(host.gpus_per_node if host is not None else None), None, "loopback", host)
    from servemark.launch.slurm import SlurmLauncher  # noqa: PLC0415 - a local run needs none of it

    launcher = SlurmLauncher(cluster, home / STATE, silence_s=float(cluster.silence_s))
    return Site(launcher, cluster, "node")


def groups_of(choice: Choice, *, local: bool) -> tuple[NodeGroup, ...]:
    """The nodes that the deployment needs, each with the GPUs of all workers on the fullest of them. This host is one node,
    which is enough for workers without GPUs."""
    deployment = choice.deployment
    free = all(role.gpus == 0 for role in deployment.roles)
    if free and local:
        return (NodeGroup("all", 1),)
    placed = place(deployment)
    return (NodeGroup("all", nodes_of(placed), gpus_of_a_node(placed)),)


def model_at(choice: Choice, cluster: LaunchCluster | None) -> str | None:
    """The model as the cluster keeps it, by the arm's or the recipe's name of it; None: as the recipe says."""
    paths = dict(cluster.model_paths) if cluster is not None else {}
    found = paths.get(choice.arm.model) or paths.get(choice.deployment.model_path)
    return None if found is None else str(found)
