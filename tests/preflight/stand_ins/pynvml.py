"""A stand-in for nvidia-ml-py where there is no GPU: two devices whose facts come from FAKE_NVML (JSON)."""

from __future__ import annotations

import json
import os
import time
from types import SimpleNamespace

FAKE = json.loads(os.environ.get("FAKE_NVML", "{}"))
nvmlEventTypeXidCriticalError = 8  # noqa: N816 - the library's names
nvmlEventTypeDoubleBitEccError = 2  # noqa: N816


class NVMLError(Exception):
    """As the library raises."""


def nvmlInit() -> None:  # noqa: N802
    """Fails, or never ends, when asked to."""
    if FAKE.get("fails"):
        raise NVMLError("Driver Not Loaded")
    if FAKE.get("hangs"):
        time.sleep(1000)


def nvmlShutdown() -> None:  # noqa: N802
    """Nothing to end."""


def nvmlSystemGetDriverVersion() -> bytes:  # noqa: N802
    """Older bindings give bytes."""
    return b"580.159.04"


def nvmlDeviceGetCount() -> int:  # noqa: N802
    """Devices."""
    return int(FAKE.get("count", 2))


def nvmlDeviceGetHandleByIndex(index: int) -> int:  # noqa: N802
    """The index is the handle."""
    return index


def nvmlDeviceGetName(handle: int) -> str:  # noqa: N802
    """A type with references."""
    return "NVIDIA H200"


def nvmlDeviceGetUUID(handle: int) -> str:  # noqa: N802
    """As fake_cuda.c numbers them, in reverse: NVML's order is not CUDA's."""
    byte = f"{0xA0 + nvmlDeviceGetCount() - 1 - handle:02x}"
    return f"GPU-{byte * 4}-{byte * 2}-{byte * 2}-{byte * 2}-{byte * 6}"


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:  # noqa: N802
    """143771 MiB, as an H200 shows."""
    return SimpleNamespace(total=143771 << 20, used=int(FAKE.get("used", 0)), free=0)


def nvmlDeviceGetTotalEccErrors(handle: int, kind: int, counter: int) -> int:  # noqa: N802
    """Uncorrected ones of one device only."""
    return int(FAKE.get("ecc", 0)) if kind == 1 and handle == 1 else 0


def nvmlDeviceGetCurrentClocksEventReasons(handle: int) -> int:  # noqa: N802
    """Hot."""
    return int(FAKE.get("reasons", 0))


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:  # noqa: N802
    """MHz."""
    return 1980 if kind == 1 else 3201


def nvmlDeviceGetP2PStatus(one: int, other: int, index: int) -> int:  # noqa: N802
    """NVLink."""
    return 0


def nvmlDeviceGetTopologyCommonAncestor(one: int, other: int) -> int:  # noqa: N802
    """One NUMA node."""
    return 40


def nvmlEventSetCreate() -> list[int]:  # noqa: N802
    """Events that wait."""
    return list(FAKE.get("xids", []))


def nvmlDeviceRegisterEvents(handle: int, kinds: int, events: list[int]) -> None:  # noqa: N802
    """Accepted."""


def nvmlEventSetWait_v2(events: list[int], timeout: int) -> SimpleNamespace:  # noqa: N802
    """The next one, of device 0."""
    if not events:
        raise NVMLError("Timeout")
    return SimpleNamespace(device=0, eventType=8, eventData=events.pop())
