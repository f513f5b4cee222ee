"""Memory as a store takes it: anonymous mappings by page kind, populated in one go, looked at, and given back.

Linux only, through libc: `mmap`, `madvise(MADV_POPULATE_WRITE)`, `mbind`. Nothing here limits how much is taken.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from servemark.preflight.facts import PAGE_2M

Method = Literal["4k", "thp", "thp-interleave", "hugetlb"]
METHODS: tuple[Method, ...] = ("4k", "thp", "thp-interleave", "hugetlb")

PROT_READ_WRITE = 0x3
MAP_PRIVATE_ANONYMOUS = 0x22
MAP_HUGETLB_2M = 0x40000 | 21 << 26
MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_POPULATE_WRITE = 14, 15, 23
MPOL_INTERLEAVE = 3
MBIND = {"x86_64": 237, "aarch64": 235, "arm64": 235}
CHUNK = 64 << 20
"""Populated by one call: between two calls a signal is noticed."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """`length` bytes from `address` on, aligned to 2 MiB; `start` and `mapped` are what munmap gets."""

    address: int
    length: int
    start: int
    mapped: int


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    libc.mmap.restype = pointer
    libc.mmap.argtypes = [pointer, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [pointer, size]
    libc.madvise.argtypes = [pointer, size, ctypes.c_int]
    libc.syscall.restype = ctypes.c_long
    return libc


def allocate(method: Method, length: int, nodes: tuple[int, ...]) -> Mapping:
    """Map `length` bytes (a multiple of 2 MiB) without touching them. OSError as the kernel says."""
    libc = _libc()
    huge = method == "hugetlb"
    mapped = length if huge else length + PAGE_2M
    flags = MAP_PRIVATE_ANONYMOUS | (MAP_HUGETLB_2M if huge else 0)
    start = libc.mmap(None, mapped, PROT_READ_WRITE, flags, -1, 0)
    if start is None or start == ctypes.c_void_p(-1).value:
        raise _error("mmap")
    address = -(-start // PAGE_2M) * PAGE_2M
    mapping = Mapping(address, length, start, mapped)
    try:
        if not huge:
            _advise(libc, mapping, MADV_NOHUGEPAGE if method == "4k" else MADV_HUGEPAGE)
        if method == "thp-interleave":
            _interleave(libc, mapping, nodes)
    except OSError:
        release(mapping)
        raise
    return mapping


def _advise(libc: ctypes.CDLL, mapping: Mapping, advice: int) -> None:
    if libc.madvise(mapping.address, mapping.length, advice) != 0:
        raise _error("madvise")


def _interleave(libc: ctypes.CDLL, mapping: Mapping, nodes: tuple[int, ...]) -> None:
    number = MBIND.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, "mbind")
    bits = max(nodes, default=0) // 64 * 64 + 64
    mask = (ctypes.c_uint64 * (bits // 64))()
    for node in nodes or (0,):
        mask[node // 64] |= 1 << (node % 64)
    arguments = (
        ctypes.c_void_p(mapping.address),
        ctypes.c_ulong(mapping.length),
        ctypes.c_int(MPOL_INTERLEAVE),
    )
    # The kernel reads one bit less than it is told, hence bits + 1.
    if libc.syscall(ctypes.c_long(number), *arguments, mask, ctypes.c_ulong(bits + 1), ctypes.c_uint(0)) != 0:
        raise _error("mbind")


def populate(mapping: Mapping) -> None:
    """Touch every page for writing. Kernels before 5.14 know no such call: pages are written instead."""
    libc = _libc()
    for offset in range(0, mapping.length, CHUNK):
        length = min(CHUNK, mapping.length - offset)
        if libc.madvise(mapping.address + offset, length, MADV_POPULATE_WRITE) == 0:
            continue
        if ctypes.get_errno() != errno.EINVAL:
            raise _error("madvise(MADV_POPULATE_WRITE)")
        ctypes.memset(mapping.address + offset, 0, length)


def release(mapping: Mapping) -> None:
    """Give it back."""
    if _libc().munmap(mapping.start, mapping.mapped) != 0:
        raise _error("munmap")


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {errno.errorcode.get(number, number)}")


def smaps_of(address: int, text: str) -> dict[str, int]:
    """Fields of the mapping that holds an address, in bytes (`THPeligible` as it is); {} when there is none."""
    found: dict[str, int] = {}
    inside = False
    for line in text.splitlines():
        head = re.match(r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) ", line)
        if head is not None:
            if inside:
                break
            inside = int(head.group(1), 16) <= address < int(head.group(2), 16)
        elif inside:
            field = re.match(r"(\w+):\s+(\d{1,15})( kB)?\s*\Z", line)
            if field is not None:
                found[field.group(1)] = int(field.group(2)) * (1024 if field.group(3) else 1)
    return found


def node_bytes(address: int, text: str) -> dict[int, int]:
    """NUMA node -> bytes of the mapping that begins at an address, from numa_maps."""
    for line in text.splitlines():
        if not re.match(rf"0*{address:x} ", line):
            continue
        page = re.search(r"kernelpagesize_kB=(\d{1,9})", line)
        unit = int(page.group(1)) * 1024 if page is not None else 4096
        return {int(n): int(count) * unit for n, count in re.findall(r"\bN(\d{1,5})=(\d{1,15})", line)}
    return {}


def own(name: str) -> str:
    """A file of /proc/self; empty when it cannot be read."""
    try:
        return Path("/proc/self", name).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
