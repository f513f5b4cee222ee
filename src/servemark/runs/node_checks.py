"""The phases before anything of the deployment starts: preflight of every node, and the image in the cluster's cache."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import sha256_file
from servemark.catalog.cluster_launch import LaunchCluster
from servemark.launch.allocation import Allocation, Container, Mount
from servemark.launch.failure import printable
from servemark.launch.images import ImageCache, canonical_image
from servemark.launch.images_import import Progress, ensure_image
from servemark.plan.points import Choice
from servemark.preflight.needs import Needs, needs_of

OWN_TOPICS = frozenset({"ports"})
"""What the launcher looks after itself, so that a preflight's word on it decides nothing: it takes free ports."""
MAX_SAID = 6
BUILT_IN = "pypi#"
"""Before a container that is a package of this Python, not an image."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What preflight saw, for the row. `gpus`: node -> names of its GPUs; `odd`: node -> facts unlike most nodes'."""

    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    odd: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gpus: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def plain(self) -> dict[str, object]:
        """As JSON."""
        return {
            "nodes": {node: dict(counts) for node, counts in self.counts.items()},
            "odd": {node: list(facts) for node, facts in self.odd.items()},
        }


def needs(choice: Choice) -> Needs:
    """What a node of the deployment needs."""
    hardware = choice.suite.clusters.hardware.get(choice.arm.runner)
    mib = hardware.available_cpu_dram_mib if hardware is not None else None
    return needs_of(choice.deployment, arm=choice.arm.key, host_mib=mib)


def asks_nothing(needed: Needs) -> bool:
    """Whether there is nothing that this host could lack: no store, no GPU, no fabric."""
    return needed.store is None and not needed.gpus and not needed.protocols


def preflight_here(choice: Choice) -> NodeFacts | None:
    """This host judged in this process; None where the deployment asks nothing of it.

    Raises ServemarkError (layer preflight) naming what the recipe needs and the host has not.
    """
    needed = needs(choice)
    if asks_nothing(needed):
        return None
    from servemark.preflight.inspect import Where, inspect_host  # noqa: PLC0415 - most local runs ask nothing
    from servemark.preflight.report import judge  # noqa: PLC0415
    from servemark.preflight.root import HostRoot  # noqa: PLC0415

    root = HostRoot()
    report = judge(inspect_host(Where(root, efa="efa" in needed.protocols)), needed, root).plain()
    return judged([report], {})


def preflight_there(allocation: Allocation, choice: Choice, folder: Path, *, timeout_s: float) -> NodeFacts:
    """Every node of an allocation, each judged by its own preflight. Raises ServemarkError (layer preflight)."""
    from servemark.launch.slurm_preflight import MERGED_FILE, preflight_argv, preflight_nodes  # noqa: PLC0415

    selector = f"{choice.suite.root}:{choice.arm.key}/{choice.entry.topology}"
    arguments = (selector,) if selector.count(":") == 1 and "@" not in selector else ()
    argv = preflight_argv(sys.executable, arguments)
    merged = preflight_nodes(allocation, argv, folder, timeout_s=timeout_s)
    bodies = [json.loads(line) for line in (folder / MERGED_FILE).read_text(encoding="utf-8").splitlines()]
    return judged(bodies, merged.odd)


def judged(reports: Sequence[Mapping[str, object]], odd: Mapping[str, Sequence[str]]) -> NodeFacts:
    """The facts to keep of preflight reports; ServemarkError for one that fails what the recipe needs."""
    failing: list[str] = []
    counts, gpus = {}, {}
    for report in reports:
        node, found = str(report.get("node")), report.get("findings")
        said = report.get("counts")
        counts[node] = {str(k): int(v) for k, v in said.items()} if isinstance(said, dict) else {}
        for finding in found if isinstance(found, list) else ():
            facts = finding.get("facts")
            if finding.get("topic") == "gpus" and isinstance(facts, dict):
                names = facts.get("names")
                gpus[node] = _names(names)
            if finding.get("verdict") == "fail" and finding.get("topic") not in OWN_TOPICS:
                failing.append(_said(node, finding))
    if failing:
        raise ServemarkError(
            "runs.preflight_failed",
            Layer.PREFLIGHT,
            count=len(failing),
            lines="\n".join(f"    {line}" for line in failing[:MAX_SAID]),
        )
    return NodeFacts(counts, odd, gpus)


def _names(value: object) -> list[str]:
    """GPU names, from a list or from name -> count."""
    if isinstance(value, dict):
        return [f"{name} x{count}" for name, count in sorted(value.items())]
    return [str(one) for one in value] if isinstance(value, list) else []


def _said(node: str, finding: Mapping[str, object]) -> str:
    """`node: found; needs …; the commands that mend it`."""
    commands = finding.get("commands")
    listed = commands if isinstance(commands, list) else []
    mend = "; ".join(str(one.get("run")) for one in listed[:MAX_SAID] if isinstance(one, dict))
    parts = [finding.get("found"), finding.get("needs"), mend]
    return f"{node}: " + " → ".join(printable(str(part), 300) for part in parts if part)


@dataclass(frozen=True, slots=True)
class CachedContainer:
    """The image that steps enter. `digest` None: nobody recorded one."""

    container: Container
    reference: str
    digest: str | None
    sha256: str | None


def is_whole(image: CachedContainer) -> bool:
    """Whether the image's file is still what was recorded of it, by a full read; False where nothing was recorded."""
    path = image.container.image
    try:
        return image.sha256 is not None and sha256_file(path) == image.sha256
    except OSError:
        return False


def wants_image(choice: Choice, cluster: LaunchCluster | None) -> bool:
    """Whether steps run in an image: the recipe names one, and the cluster keeps images."""
    named = choice.deployment.container
    return cluster is not None and cluster.image_cache is not None and not named.startswith(BUILT_IN)


def image_of(
    choice: Choice,
    cluster: LaunchCluster,
    model: str | None,
    *,
    wait_s: float,
    tell: Callable[[float, str], None],
) -> CachedContainer:
    """The recipe's image in the cluster's cache, imported if need be; the nodes find it there.

    Raises ServemarkError (layer image, or input for what is no reference).
    """
    if cluster.image_cache is None:
        raise RuntimeError("the cluster keeps no images")
    image = canonical_image(choice.deployment.container)

    def told(progress: Progress) -> None:
        tell(progress.seconds, progress.kind)

    found = ensure_image(
        ImageCache(cluster.image_cache), image, cluster.image_import, wait_s=wait_s, tell=told
    ).image
    record = found.record
    mounts = (Mount(Path(model), model),) if model is not None and model.startswith("/") else ()
    return CachedContainer(
        Container(found.path, mounts),
        choice.deployment.container,
        record.digest if record is not None else None,
        record.sha256 if record is not None else None,
    )
