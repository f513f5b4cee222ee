"""How many CPUs a process started here may really use: affinity and the control group's quota."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path


def usable_cpus(cgroup_file: Path = Path("/proc/self/cgroup"), mounts: Path = Path("/sys/fs/cgroup")) -> int:
    """CPUs in this process's affinity mask, less where a cgroup (v1 or v2) allows less CPU time; at least 1.

    An engine that starts a thread for every CPU of the host inside a container of two has its threads wait
    for each other at every layer. The two paths are parameters for tests.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cpus = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = _quota(cgroup_file, mounts)
    return max(1, cpus if quota is None else min(cpus, math.ceil(quota)))


def _quota(cgroup_file: Path, mounts: Path) -> float | None:
    """The smallest quota (in CPUs) on the way from this process's group to the root, None when there is
    none."""
    found: list[float] = []
    try:
        lines = cgroup_file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers == "":
            found += _walk(mounts, path, _quota_v2)
        elif "cpu" in controllers.split(","):
            for name in (controllers, "cpu"):
                found += _walk(mounts / name, path, _quota_v1)
    return min(found, default=None)


def _walk(root: Path, path: str, read: Callable[[Path], float | None]) -> list[float]:
    folder = root / path.strip("/")
    quotas: list[float] = []
    while True:
        quota = read(folder)
        if quota is not None:
            quotas.append(quota)
        if folder in (root, folder.parent):
            return quotas
        folder = folder.parent


def _quota_v2(folder: Path) -> float | None:
    try:
        limit, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_v1(folder: Path) -> float | None:
    try:
        limit = int((folder / "cpu.cfs_quota_us").read_text(encoding="ascii"))
        period = int((folder / "cpu.cfs_period_us").read_text(encoding="ascii"))
        return None if limit <= 0 else limit / period
    except (OSError, ValueError, ZeroDivisionError):
        return None
