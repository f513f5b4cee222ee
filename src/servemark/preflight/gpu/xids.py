"""Xid errors: the NVIDIA driver's numbered reports, from the kernel's log.

Which numbers mean that the GPU itself needs care follows the catalogue in NVIDIA's "Xid Errors" document (errors of
memory, links, bus, firmware); others, such as 13, 31, 43 and 45, usually come from a program's own fault.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass

from servemark.preflight.root import HostRoot

HARDWARE = frozenset({48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 143})
"""Each has its name as a message `preflight.gpu.xid.NUMBER`."""
MAX_RECORDS = 100_000
MAX_SEEN = 1000


@dataclass(frozen=True, slots=True)
class Xid:
    """One report; `address` is the PCI address in small letters."""

    number: int
    address: str


def read_xids(root: HostRoot) -> tuple[Xid, ...] | None:
    """All reports since boot, oldest first, at most the last thousand; None when the log may not be read."""
    asked = root.ask("dmesg")
    log = asked[1] if asked is not None and asked[0] == 0 else _kernel_messages() if root.live else None
    if log is None:
        return None
    found = re.findall(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]{4,16})\): (\d{1,4})\b", log)
    return tuple(Xid(int(number), _address(address)) for address, number in found[-MAX_SEEN:])


def _kernel_messages() -> str | None:
    """The kernel's ring buffer where there is no `dmesg`; None when it may not be read."""
    records: list[str] = []
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        while len(records) < MAX_RECORDS:
            with contextlib.suppress(BrokenPipeError):  # overwritten meanwhile: the next one is read
                records.append(os.read(log, 8192).decode("utf-8", "replace"))
    except BlockingIOError:
        return "\n".join(records)
    except OSError:
        return None
    finally:
        os.close(log)
    return "\n".join(records)


def _address(text: str) -> str:
    """`0000:1B:00` as `0000:1b:00.0`."""
    small = text.lower()
    return small if "." in small else f"{small}.0"
