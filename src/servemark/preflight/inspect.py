"""One look at a host: every fact, in well under a second, without privilege and without changing anything."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from servemark.base.errors import input_error
from servemark.preflight.facts import Efa, HostFacts
from servemark.preflight.read_devices import (
    disk_places,
    read_clock,
    read_disks,
    read_efa,
    read_listening,
    read_mooncake,
    read_nics,
)
from servemark.preflight.read_gpus import read_gpus
from servemark.preflight.read_memory import read_limits, read_memory
from servemark.preflight.root import HostRoot


@dataclass(frozen=True, slots=True)
class Where:
    """What to look at: the host as a folder, more folders to measure, and where Mooncake may be installed."""

    root: HostRoot = field(default_factory=HostRoot)
    disks: Sequence[str] = ()
    mooncake: Sequence[Path] | None = None
    """site-packages folders; None: those of this Python."""
    efa: bool = True
    """Ask libfabric for EFA devices, which takes a third of a second."""


def inspect_host(where: Where) -> HostFacts:
    """Read a host. ServemarkError (exit 2) for one that shows no /proc, on which nothing here can be known."""
    root = where.root
    if root.text("/proc/meminfo") is None:
        raise input_error("preflight.no_proc", system=platform.system(), path=str(root.at("/proc/meminfo")))
    listening, listening_known = read_listening(root)
    return HostFacts(
        node=node_name(root),
        taken_at=time.time(),
        kernel=_kernel(root),
        machine=platform.machine(),
        cpus=_cpus(root),
        memory=read_memory(root),
        limits=read_limits(root),
        gpus=read_gpus(root),
        nics=read_nics(root),
        nics_known=bool(root.names("/sys/class")),
        efa=read_efa(root) if where.efa else Efa(asked=False, domains=()),
        disks=read_disks(root, disk_places(dict(os.environ), where.disks)),
        clock=read_clock(root),
        listening=listening,
        listening_known=listening_known,
        mooncake=read_mooncake(where.mooncake),
        root_user=root.live and os.geteuid() == 0,
    )


def node_name(root: HostRoot) -> str:
    """The name that the scheduler uses for this node, else the host's own."""
    if root.live:
        return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    return root.line("/proc/sys/kernel/hostname") or root.path.name


def _cpus(root: HostRoot) -> int | None:
    if root.live and hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    count = sum(line.startswith("processor") for line in (root.text("/proc/cpuinfo") or "").splitlines())
    return count or None


def _kernel(root: HostRoot) -> str | None:
    """The release; from /proc/version where /proc/sys is hidden."""
    version = (root.line("/proc/version") or "").split()
    listed = version[2] if version[:2] == ["Linux", "version"] and len(version) > 2 else None
    return root.line("/proc/sys/kernel/osrelease") or listed
