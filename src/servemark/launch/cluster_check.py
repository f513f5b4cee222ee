"""A cluster's description compared with what Slurm says of it: partition, GPUs, memory, excluded nodes, folders."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch.slurm_commands import SlurmCommands
from servemark.launch.slurm_state import NodeState, nodes_of_json, nodes_of_text

_DRAM_SHARE = 0.02
"""RealMemory is rounded by whoever wrote it."""


@dataclass(frozen=True, slots=True)
class Said:
    """One comparison: `verdict` is ok, warn or fail."""

    verdict: str
    key: str
    values: dict[str, object] = field(default_factory=dict)


def compare(cluster: LaunchCluster, commands: SlurmCommands | None = None) -> list[Said]:
    """Everything that was compared. Raises ServemarkError: layer install without Slurm, allocation when it is silent."""
    said = list(_folders(cluster))
    if cluster.launcher != "slurm":
        return said
    commands = commands or SlurmCommands(patience_s=5.0)
    nodes = read_nodes(commands)
    partitions = sorted({part for node in nodes for part in node.partitions})
    if cluster.partition is not None and cluster.partition not in partitions:
        values: dict[str, object] = {"partition": cluster.partition, "known": ", ".join(partitions) or "—"}
        return [*said, Said("fail", "launch.check_no_partition", values)]
    mine = [node for node in nodes if cluster.partition is None or cluster.partition in node.partitions]
    mine = [node for node in mine if node.name not in commands.hostnames(",".join(cluster.exclude_nodes))]
    usable = [node for node in mine if node.usable]
    where = {"partition": cluster.partition or "—", "usable": len(usable), "all": len(mine)}
    said.append(
        Said(
            "ok" if len(usable) == len(mine) else "warn" if usable else "fail",
            "launch.check_nodes",
            dict(where),
        )
    )
    said += [_unusable(node) for node in mine if not node.usable]
    said += _facts(cluster, mine)
    known = {node.name for node in nodes}
    for name in commands.hostnames(",".join(cluster.exclude_nodes)):
        if name not in known:
            said.append(Said("warn", "launch.check_no_node", {"node": name}))
    return said


def read_nodes(commands: SlurmCommands) -> tuple[NodeState, ...]:
    """All nodes: from JSON where this Slurm gives a list of them, else from text."""
    reply = commands.ask(["scontrol", "show", "node", "--oneliner"])
    if reply.rc == 0:
        return nodes_of_text(reply.out)
    with contextlib.suppress(ValueError):
        return nodes_of_json(commands.ask(["sinfo", "--json"]).out)
    raise ServemarkError("launch.slurm_silent", Layer.ALLOCATION, reason=reply.reason)


def _unusable(node: NodeState) -> Said:
    values: dict[str, object] = {"node": node.name, "state": node.state, "reason": node.reason or "—"}
    return Said("warn", "launch.check_node_state", values)


def _facts(cluster: LaunchCluster, nodes: Iterable[NodeState]) -> list[Said]:
    nodes = list(nodes)
    said = []
    if cluster.gpus_per_node is not None:
        said.append(_count("gpus", cluster.gpus_per_node, {node.name: node.gpus for node in nodes}, 0.0))
    if cluster.dram_mib is not None:
        said.append(
            _count("dram", cluster.dram_mib, {node.name: node.memory_mib for node in nodes}, _DRAM_SHARE)
        )
    return said


def _count(what: str, stated: int, have: dict[str, int], share: float) -> Said:
    """Too little on a node is a failure, more than stated a warning."""
    less = sorted(name for name, count in have.items() if count < stated * (1 - share))
    more = [name for name, count in have.items() if count > stated * (1 + share)]
    shown = ", ".join(f"{count} x {number}" for count, number in Counter(have.values()).most_common(4))
    values: dict[str, object] = {"stated": stated, "have": shown or "—", "nodes": ", ".join(less[:8]) or "—"}
    return Said("fail" if less else "warn" if more else "ok", f"launch.check_{what}", values)


def _folders(cluster: LaunchCluster) -> Iterable[Said]:
    """Folders as this host sees them; the nodes may see others."""
    named: list[tuple[str, Path]] = [("mounts", path) for path in cluster.mounts]
    if cluster.image_cache is not None:
        named.append(("image-cache", cluster.image_cache))
    named += [("model-paths", path) for _, path in cluster.model_paths]
    for name, path in named:
        yield Said(
            "ok" if path.exists() else "warn",
            "launch.check_path" if path.exists() else "launch.check_no_path",
            {"field": name, "path": str(path)},
        )
