"""Usable CPUs under cgroup quotas, from folders made as the kernel shows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from servemark.launch.cpus import usable_cpus

HERE = len(os.sched_getaffinity(0))


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of four CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3})


def cgroup(tmp_path: Path, line: str) -> Path:
    """A /proc/self/cgroup with one line."""
    path = tmp_path / "cgroup"
    path.write_text(line + "\n")
    return path


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(
    ("outer", "inner", "cpus"),
    [
        ("max 100000", "max 100000", 4),
        ("max 100000", "150000 100000", 2),  # 1.5 CPUs: two threads, one of them half
        ("100000 100000", "max 100000", 1),  # the parent's limit holds for the child
        ("50000 100000", "800000 100000", 1),
        ("garbage", "0 0", 4),
    ],
)
def test_v2(tmp_path: Path, outer: str, inner: str, cpus: int) -> None:
    """cpu.max of the group and of every parent."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "cpu.max").write_text(outer)
    (tmp_path / "a" / "b" / "cpu.max").write_text(inner)
    assert usable_cpus(cgroup(tmp_path, "0::/a/b"), tmp_path) == cpus


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(("quota", "cpus"), [("-1", 4), ("200000", 2), ("250000", 3)])
def test_v1(tmp_path: Path, quota: str, cpus: int) -> None:
    """cfs_quota / cfs_period of the cpu controller, mounted under its combined name."""
    folder = tmp_path / "cpu,cpuacct" / "job"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text(quota)
    (folder / "cpu.cfs_period_us").write_text("100000")
    assert usable_cpus(cgroup(tmp_path, "4:cpu,cpuacct:/job"), tmp_path) == cpus


def test_without_cgroups(tmp_path: Path) -> None:
    """The affinity mask alone; and here, whatever holds here, at least one."""
    assert usable_cpus(tmp_path / "none", tmp_path) == HERE
    assert 1 <= usable_cpus() <= HERE
