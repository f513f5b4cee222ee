"""One real allocation in a process of its own, so that whatever happens to it everything is given back.

Reads a job from stdin and writes one JSON object to stdout. Huge pages that had to be reserved for it are given back
before it ends, also when it is told to end or its parent dies; the process offers itself first to the OOM killer.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from servemark.preflight.allocation import Method, allocate, node_bytes, own, populate, release, smaps_of
from servemark.preflight.facts import PAGE_2M
from servemark.preflight.read_memory import COUNTERS
from servemark.preflight.root import integer, table

POOL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
PR_SET_PDEATHSIG = 1
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SMAPS = ("Rss", "AnonHugePages", "Private_Hugetlb", "KernelPageSize", "THPeligible")


class NotGrantedError(Exception):
    """The kernel granted fewer huge pages than were asked for, or none may be reserved."""


def main() -> int:
    """Do one job: {method, bytes, nodes}."""
    job = json.loads(sys.stdin.readline())
    _behave()
    answer: dict[str, object] = {"method": job["method"], "bytes": job["bytes"]}
    try:
        with reserved(job["bytes"] // PAGE_2M if job["method"] == "hugetlb" else 0, answer):
            answer |= measure(job["method"], job["bytes"], tuple(job["nodes"]))
    except NotGrantedError as refusal:
        answer["refused"] = str(refusal)
    except OSError as error:
        answer["refused"] = str(error.strerror or error)
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


def _behave() -> None:
    """End with the parent, through the handlers below, and be the OOM killer's first choice."""

    def end(number: int, frame: FrameType | None) -> None:
        for other in ENDING:  # a second one must not break off the giving back
            signal.signal(other, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in ENDING:
        signal.signal(number, end)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    try:
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    except OSError:  # allowed for one's own process; a sandbox may still refuse
        return


def measure(method: Method, length: int, nodes: tuple[int, ...]) -> dict[str, object]:
    """Map, populate, look, give back; times in seconds, sizes in bytes, counters as differences."""
    before = table(_text("/proc/vmstat"))
    mapping = allocate(method, length, nodes)
    try:
        begun = time.perf_counter()
        populate(mapping)
        populate_s = time.perf_counter() - begun
        after = table(_text("/proc/vmstat"))
        smaps = smaps_of(mapping.address, own("smaps"))
        placed = node_bytes(mapping.address, own("numa_maps"))
    finally:
        begun = time.perf_counter()
        release(mapping)
        free_s = time.perf_counter() - begun
    return {
        "populate_s": populate_s,
        "free_s": free_s,
        "smaps": {name: smaps[name] for name in SMAPS if name in smaps},
        "nodes": {str(node): value for node, value in sorted(placed.items())},
        "counters": {name: after[name] - before.get(name, 0) for name in COUNTERS if name in after},
    }


@contextmanager
def reserved(pages: int, answer: dict[str, object], pool: Path = POOL) -> Iterator[None]:
    """Have `pages` usable huge pages of 2 MiB inside; what the pool had to grow by is taken out of it afterwards."""
    added = 0
    try:
        if pages:
            added = _grow(pages, answer, pool)
        yield
    finally:
        if added:
            now = _number(pool / "nr_hugepages") or 0
            (pool / "nr_hugepages").write_text(str(max(0, now - added)), encoding="ascii")
            answer["pool_after"] = _number(pool / "nr_hugepages")


def _grow(pages: int, answer: dict[str, object], pool: Path) -> int:
    before = _number(pool / "nr_hugepages")
    if before is None:
        raise NotGrantedError("no hugetlb")
    answer["pool_before"] = before
    missing = pages - _usable(pool)
    if missing <= 0:
        return 0
    if not os.access(pool / "nr_hugepages", os.W_OK):
        raise NotGrantedError("not root")
    begun = time.perf_counter()
    (pool / "nr_hugepages").write_text(str(before + missing), encoding="ascii")
    answer["reserve_s"] = time.perf_counter() - begun
    added = (
        _number(pool / "nr_hugepages") or before
    ) - before  # the kernel may grant fewer, without an error
    answer["pool_granted"] = added
    if _usable(pool) < pages:
        (pool / "nr_hugepages").write_text(str(before), encoding="ascii")
        answer["pool_after"] = _number(pool / "nr_hugepages")
        raise NotGrantedError(f"granted {added} of {missing}")
    return added


def _usable(pool: Path) -> int:
    return (_number(pool / "free_hugepages") or 0) - (_number(pool / "resv_hugepages") or 0)


def _number(path: Path) -> int | None:
    return integer(_text(str(path)))


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    raise SystemExit(main())
