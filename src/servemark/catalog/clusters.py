"""The clusters (runners) file: labels with their runners, and what hardware a node behind a label has. How jobs
get there (`launch:`) is checked here and read by `cluster_launch`."""

from __future__ import annotations

from dataclasses import dataclass

from servemark.catalog.cluster_launch import launch_clusters_of
from servemark.catalog.fields import Fields
from servemark.catalog.nodes import Node, Position, Problem


@dataclass(frozen=True, slots=True)
class Hardware:
    """One node: host memory in MiB (2^20) that may be used, and its GPUs. `nodes`: how many the label has, where
    the file says so; its runners are no nodes, each may book several."""

    available_cpu_dram_mib: int
    gpus_per_node: int
    at: Position
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Clusters:
    """`labels`: label -> runner names. `hardware`: label -> node facts; not every label has them."""

    labels: dict[str, tuple[str, ...]]
    hardware: dict[str, Hardware]
    file: str | None
    """None when the suite has no clusters file."""


NO_CLUSTERS = Clusters({}, {}, None)


def clusters_of(root: Node, problems: list[Problem]) -> Clusters:
    """Read the tree of a clusters file; what is wrong is collected and left out."""
    top = Fields(root, problems, "clusters file")
    labels: dict[str, tuple[str, ...]] = {}
    found = top.mapping("labels", "labels", required=True)
    for label in (found.node.entries or {}) if found else ():
        if found is None:
            break
        names = found.texts(label)
        if not names and found.get(label) is not None and not found.items(label):
            found.problem(found.at(label), "catalog.empty_list", field=label)
        labels[label] = names
    hardware: dict[str, Hardware] = {}
    nodes = top.mapping("hardware", "hardware")
    for label in (nodes.node.entries or {}) if nodes else ():
        inner = nodes.mapping(label, f"hardware of {label}") if nodes else None
        if inner is None:
            continue
        mib = inner.integer("available-cpu-dram-mib", minimum=1, required=True)
        gpus = inner.integer("gpus-per-node", minimum=1, required=True)
        count = inner.integer("nodes", minimum=1)
        inner.no_others()
        if mib is not None and gpus is not None:
            hardware[label] = Hardware(mib, gpus, inner.node.at, count)
    if top.get("launch") is not None:
        launch_clusters_of(root, problems)
    top.no_others()
    return Clusters(labels, hardware, root.file)
