"""NICs, EFA, disks, the clock, listening ports and the installed Mooncake of a host."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from servemark.preflight.facts import Clock, Disk, Efa, Mooncake, Nic, Port
from servemark.preflight.root import HostRoot, integer

INFINIBAND = "/sys/class/infiniband"
CLOCK_SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
TCP_LISTEN = "0A"
THP_MARKS = (b"Allocated THP-interleaved buffer", b"allocate_buffer_thp_interleaved")
"""Texts of the library that allocates segments with transparent huge pages, interleaved over NUMA nodes: found in
0.3.14 (PyPI, cuda13), absent from 0.3.13.post1."""
TIME_ERROR = 5
STA_UNSYNC = 0x0040


def read_nics(root: HostRoot) -> tuple[Nic, ...]:
    """Every port of every RDMA device."""
    found = []
    for device in root.names(INFINIBAND):
        base = f"{INFINIBAND}/{device}"
        node = root.number(f"{base}/device/numa_node")
        for port in root.names(f"{base}/ports"):
            number = integer(port)
            if number is None:
                continue
            state = (root.line(f"{base}/ports/{port}/state") or "").rpartition(":")[2].strip()
            rate = re.match(r"([\d.]{1,8}) Gb", root.line(f"{base}/ports/{port}/rate") or "")
            found.append(
                Nic(
                    device=device,
                    driver=root.link(f"{base}/device/driver"),
                    port=number,
                    state=state or None,
                    rate_gbit=float(rate.group(1)) if rate and rate.group(1).count(".") < 2 else None,
                    link_layer=root.line(f"{base}/ports/{port}/link_layer"),
                    numa_node=node if node is not None and node >= 0 else None,
                    firmware=root.line(f"{base}/fw_ver"),
                )
            )
    return tuple(found)


def read_efa(root: HostRoot) -> Efa:
    """The domains that libfabric's EFA provider can open, from `fi_info -p efa`."""
    answer = root.ask("fi_info", "-p", "efa")
    if answer is None:
        return Efa(asked=False, domains=())
    domains = re.findall(r"^\s*domain:\s*(\S+)\s*$", answer[1], re.MULTILINE) if answer[0] == 0 else []
    return Efa(asked=True, domains=tuple(dict.fromkeys(domains)))


def disk_places(environ: dict[str, str], more: Iterable[str] = ()) -> list[tuple[str, str]]:
    """(use, folder) of what a run fills: image stores, model cache, temporary files, shared memory."""
    places = [
        ("images", environ.get("ENROOT_DATA_PATH") or "/var/lib/docker"),
        ("image_cache", environ.get("ENROOT_CACHE_PATH") or ""),
        ("image_import", environ.get("ENROOT_TEMP_PATH") or environ.get("TMPDIR") or "/tmp"),  # noqa: S108
        ("models", environ.get("HF_HOME") or environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")),
        ("shared_memory", "/dev/shm"),  # noqa: S108 - its size is read, nothing is written
        *(("asked", path) for path in more),
    ]
    return [(use, path) for use, path in places if path]


def read_disks(root: HostRoot, places: Sequence[tuple[str, str]]) -> tuple[Disk, ...]:
    """Space below each place, one entry a file system and use; a folder that is not there yet counts as its parent."""
    found: dict[tuple[int, bool], Disk] = {}
    for use, path in places:
        folder = root.at(path)
        while not folder.exists() and folder not in {folder.parent, root.path}:
            folder = folder.parent
        try:
            space, device = os.statvfs(folder), folder.stat().st_dev
        except OSError:
            continue
        inodes = space.f_favail if space.f_files else None
        kind = filesystem(root.text("/proc/self/mounts") or "", path)
        disk = Disk(use, path, space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize, inodes, kind)
        found.setdefault((device, use == "shared_memory"), disk)
    return tuple(found.values())


def filesystem(mounts: str, path: str) -> str | None:
    """Type of the mount that holds a path (longest mount point, the last one mounted there)."""
    best: tuple[int, str] | None = None
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = fields[1].rstrip("/")
        if (path == point or path.startswith(f"{point}/")) and (best is None or len(point) >= best[0]):
            best = (len(point), fields[2])
    return best[1] if best is not None else None


class _Timex(ctypes.Structure):
    """`struct timex` as far as it is read; the kernel fills 208 bytes on 64-bit Linux."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 512),
    )


def read_clock(root: HostRoot) -> Clock:
    """The kernel's own word (`adjtimex`, read only). Not asked for a host that is only a folder."""
    source = root.line(CLOCK_SOURCE)
    if not root.live or sys.platform != "linux":
        return Clock(None, None, source)
    facts = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(facts))
    if state < 0:
        return Clock(None, None, source)
    synchronised = state != TIME_ERROR and not facts.status & STA_UNSYNC
    return Clock(synchronised, facts.maxerror / 1e6 if synchronised else None, source)


def read_listening(root: HostRoot) -> tuple[tuple[Port, ...], bool]:
    """(ports that somebody listens on, whether the kernel's table could be read)."""
    known = False
    sockets: dict[int, tuple[int, str]] = {}
    for name in ("tcp", "tcp6"):
        text = root.text(f"/proc/net/{name}")
        known = known or text is not None
        for line in (text or "").splitlines()[1:]:
            fields = line.split()
            # slot, local address:port in hex, remote, state, ..., the inode is the tenth
            if (
                len(fields) > 9
                and fields[3] == TCP_LISTEN
                and re.fullmatch(r"[0-9A-F]+:[0-9A-F]{1,4}", fields[1])
            ):
                address, _, port = fields[1].partition(":")
                sockets[int(port, 16)] = (integer(fields[9]) or 0, _address(address))
    found = [Port(port, address, None) for port, (_, address) in sorted(sockets.items())]
    return tuple(found), known


def holder_of(root: HostRoot, port: int) -> str | None:
    """`pid (command)` of who listens on a port; None when that is not shown to this user."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        for line in (root.text(f"/proc/net/{name}") or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == TCP_LISTEN and fields[1].endswith(f":{port:04X}"):
                inodes.add(f"socket:[{fields[9]}]")
    for pid in root.names("/proc") if inodes else ():
        if not pid.isdigit():
            continue
        try:
            handles = list(root.at(f"/proc/{pid}/fd").iterdir())
            if any(str(handle.readlink()) in inodes for handle in handles):
                return f"{pid} ({root.line(f'/proc/{pid}/comm') or '?'})"
        except OSError:
            continue
    return None


def _address(raw: str) -> str:
    """IPv4 in dotted form; `*` for any; `::` forms are only told apart from loopback."""
    if not raw.strip("0"):
        return "*"
    if len(raw) == 8:
        return ".".join(str(int(raw[i : i + 2], 16)) for i in (6, 4, 2, 0))
    return "::1" if raw.endswith("01000000") and not raw[:-8].strip("0") else "::"


def read_mooncake(folders: Sequence[Path] | None = None) -> tuple[Mooncake, ...]:
    """Installed Mooncake packages in this Python's path, or in the given site-packages folders."""
    found = []
    paths = sys.path if folders is None else [str(folder) for folder in folders]
    for one in metadata.distributions(path=paths):
        name = one.metadata["Name"] if one.metadata is not None else None
        if not isinstance(name, str) or not name.lower().replace("_", "-").startswith(
            "mooncake-transfer-engine"
        ):
            continue
        libraries = [
            Path(str(one.locate_file(file)))
            for file in one.files or ()
            if re.search(r"(?:^|/)_?store[^/]*\.so\Z", str(file))
        ]
        found.append(Mooncake(name, one.version, thp_path_in(libraries)))
    return tuple(dict.fromkeys(found))


def thp_path_in(libraries: Iterable[Path]) -> bool | None:
    """Whether one of the libraries holds the code path that allocates segments with huge pages by itself.

    Read from the library's own texts, because a version number says nothing of a build from source. None when no
    library could be read.
    """
    read = False
    for library in libraries:
        try:
            with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                read = True
                if any(data.find(mark) >= 0 for mark in THP_MARKS):
                    return True
        except (OSError, ValueError):
            continue
    return False if read else None
