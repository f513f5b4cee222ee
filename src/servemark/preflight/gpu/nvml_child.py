"""What NVML says: identity, clocks, errors, links and topology once; and clocks, throttling, events during the probes.

Every query stands alone: what a device, driver or binding does not answer is absent.
"""

from __future__ import annotations

import contextlib
import importlib
import select
import sys
import time
from collections.abc import Callable
from typing import Any

from servemark.preflight.gpu.lines import Writer
from servemark.preflight.gpu.work import UnmeasuredError, Work

NEEDS = {name: {"pynvml": "no_nvml"} for name in ("nvml", "watch")}
THROTTLE: dict[str, int] = {
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
}
"""Bits of NVML's clocks event reasons that slow a GPU down; the others say that it idles or was told to."""
IDLE = 0x1
SAMPLE_SECONDS = 0.1
WATCHED_EVENTS = ("nvmlEventTypeXidCriticalError", "nvmlEventTypeDoubleBitEccError")
PLAIN: dict[str, tuple[str, tuple[object, ...]]] = {
    "power_limit_w": ("nvmlDeviceGetEnforcedPowerLimit", ()),
    "power_default_w": ("nvmlDeviceGetPowerManagementDefaultLimit", ()),
    "temperature_c": ("nvmlDeviceGetTemperature", (0,)),
    "sm_clock_mhz": ("nvmlDeviceGetClockInfo", (1,)),
    "memory_clock_mhz": ("nvmlDeviceGetClockInfo", (2,)),
    "max_sm_clock_mhz": ("nvmlDeviceGetMaxClockInfo", (1,)),
    "max_memory_clock_mhz": ("nvmlDeviceGetMaxClockInfo", (2,)),
    "pcie_generation": ("nvmlDeviceGetCurrPcieLinkGeneration", ()),
    "max_pcie_generation": ("nvmlDeviceGetMaxPcieLinkGeneration", ()),
    "pcie_width": ("nvmlDeviceGetCurrPcieLinkWidth", ()),
    "max_pcie_width": ("nvmlDeviceGetMaxPcieLinkWidth", ()),
    "pcie_replays": ("nvmlDeviceGetPcieReplayCounter", ()),
    "ecc_uncorrected": ("nvmlDeviceGetTotalEccErrors", (1, 0)),
    "ecc_corrected": ("nvmlDeviceGetTotalEccErrors", (0, 0)),
    "ecc_uncorrected_ever": ("nvmlDeviceGetTotalEccErrors", (1, 1)),
    "ecc_corrected_ever": ("nvmlDeviceGetTotalEccErrors", (0, 1)),
    "persistence": ("nvmlDeviceGetPersistenceMode", ()),
}
"""Fact -> query and its arguments: clock 1 is SM and 2 memory; ECC (1 uncorrected, 0 corrected), (0 since boot, 1 ever)."""
THOUSANDTHS = {"power_limit_w", "power_default_w"}


def _library() -> Any:  # noqa: ANN401 - no types in the library
    library: Any = importlib.import_module("pynvml")
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        raise UnmeasuredError("no_nvml", str(error)) from None
    return library


def asked(library: Any, name: str, *arguments: object) -> Any:  # noqa: ANN401
    """One query; None for whatever it does not answer."""
    try:
        return getattr(library, name)(*arguments)
    except (library.NVMLError, AttributeError, TypeError, ValueError):
        return None


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def nvml(work: Work, out: Writer) -> None:
    """Facts of every device, and how each two are linked."""
    library = _library()
    handles = [
        library.nvmlDeviceGetHandleByIndex(n) for n in range(asked(library, "nvmlDeviceGetCount") or 0)
    ]
    out.facts(
        {
            "driver": _text(asked(library, "nvmlSystemGetDriverVersion")),
            "devices": [_device(library, number, handle) for number, handle in enumerate(handles)],
            "links": [
                _link(library, (a, handles[a]), (b, handles[b]))
                for a in range(len(handles))
                for b in range(a + 1, len(handles))
            ],
        }
    )


def _device(library: Any, index: int, handle: Any) -> dict[str, object]:  # noqa: ANN401
    memory = asked(library, "nvmlDeviceGetMemoryInfo", handle)
    pci = asked(library, "nvmlDeviceGetPciInfo", handle)
    mig = asked(library, "nvmlDeviceGetMigMode", handle)
    ecc = asked(library, "nvmlDeviceGetEccMode", handle)
    used = asked(library, "nvmlDeviceGetUtilizationRates", handle)
    processes = asked(library, "nvmlDeviceGetComputeRunningProcesses", handle)
    address = _text(pci.busId) if pci is not None else None
    found: dict[str, object] = {
        "index": index,
        "name": _text(asked(library, "nvmlDeviceGetName", handle)),
        "uuid": _text(asked(library, "nvmlDeviceGetUUID", handle)),
        "address": address.lower()[-12:] if address else None,
        "memory_bytes": int(memory.total) if memory is not None else None,
        "used_bytes": int(memory.used) if memory is not None else None,
        "busy_percent": int(used.gpu) if used is not None else None,
        "processes": len(processes) if processes is not None else None,
        "mig": bool(mig[0]) if mig is not None else None,
        "ecc": bool(ecc[0]) if ecc is not None else None,
        "nvlinks_up": _nvlinks(library, handle),
    }
    for name, (query, arguments) in PLAIN.items():
        value = asked(library, query, handle, *arguments)
        found[name] = value / 1000 if value is not None and name in THOUSANDTHS else value
    rows = asked(library, "nvmlDeviceGetRemappedRows", handle)
    if isinstance(rows, (list, tuple)) and len(rows) == 4:
        found["remapped"] = dict(
            zip(("corrected", "uncorrected", "pending", "failure"), map(int, rows), strict=True)
        )
    return found


def _nvlinks(library: Any, handle: Any) -> int | None:  # noqa: ANN401
    """Links that are up; None where there are none at all."""
    states = [asked(library, "nvmlDeviceGetNvLinkState", handle, link) for link in range(18)]
    known = [state for state in states if state is not None]
    return sum(bool(state) for state in known) if known else None


def _link(library: Any, one: tuple[int, Any], other: tuple[int, Any]) -> dict[str, object]:  # noqa: ANN401
    """`path`: NVML's level of the common ancestor (10 one switch ... 40 one NUMA node, 50 across sockets)."""
    nvlink = asked(library, "nvmlDeviceGetP2PStatus", one[1], other[1], 2)
    return {
        "gpus": [one[0], other[0]],
        "path": asked(library, "nvmlDeviceGetTopologyCommonAncestor", one[1], other[1]),
        "nvlink": None if nvlink is None else nvlink == 0,
    }


def watch(work: Work, out: Writer) -> None:
    """Sample until stdin ends, and tell extremes, reasons of throttling and Xid events of each device."""
    library = _library()
    handles = {n: library.nvmlDeviceGetHandleByIndex(n) for n in work.gpus}
    seen: dict[int, dict[str, Any]] = {n: {"samples": 0, "throttled": {}, "xids": []} for n in handles}
    events, registered = _events(library, list(handles.values()))
    uuids = {_text(asked(library, "nvmlDeviceGetUUID", handle)): n for n, handle in handles.items()}
    while not select.select([sys.stdin], [], [], SAMPLE_SECONDS)[0]:
        for number, handle in handles.items():
            _sample(library, handle, seen[number])
        for xid, uuid in _waiting(library, events):
            if uuid in uuids:
                seen[uuids[uuid]]["xids"].append(xid)
    out.facts(
        {
            "events": registered,
            "seconds_a_sample": SAMPLE_SECONDS,
            "devices": [{"index": n, **facts} for n, facts in seen.items()],
        }
    )


def _events(library: Any, handles: list[Any]) -> tuple[Any, bool]:  # noqa: ANN401
    """A set of events, and whether every device reports into it."""
    events = asked(library, "nvmlEventSetCreate")
    if events is None:
        return None, False
    kinds = 0
    for name in WATCHED_EVENTS:
        kinds |= int(getattr(library, name, 0))
    registered = True
    for handle in handles:
        try:
            library.nvmlDeviceRegisterEvents(handle, kinds, events)
        except (library.NVMLError, AttributeError, TypeError):
            registered = False
    return events, registered


def _waiting(library: Any, events: Any) -> list[tuple[int, str | None]]:  # noqa: ANN401
    """Xid events that have come since the last call: (number, UUID)."""
    found: list[tuple[int, str | None]] = []
    until = time.monotonic() + SAMPLE_SECONDS
    while events is not None and time.monotonic() < until:
        data = asked(library, "nvmlEventSetWait_v2", events, 0) or asked(
            library, "nvmlEventSetWait", events, 0
        )
        if data is None:
            break
        if int(data.eventType) == int(getattr(library, "nvmlEventTypeXidCriticalError", 8)):
            uuid = _text(asked(library, "nvmlDeviceGetUUID", data.device))
            found.append((int(data.eventData), uuid))
    return found


def _sample(library: Any, handle: Any, seen: dict[str, Any]) -> None:  # noqa: ANN401
    reasons = asked(library, "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:
        reasons = asked(library, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    power = asked(library, "nvmlDeviceGetPowerUsage", handle)
    _extreme(seen, "sm_clock_mhz_highest", asked(library, "nvmlDeviceGetClockInfo", handle, 1), max)
    _extreme(seen, "temperature_c_highest", asked(library, "nvmlDeviceGetTemperature", handle, 0), max)
    _extreme(seen, "power_w_highest", power / 1000 if power is not None else None, max)
    _extreme(
        seen, "pcie_generation_highest", asked(library, "nvmlDeviceGetCurrPcieLinkGeneration", handle), max
    )
    _extreme(seen, "pcie_width_highest", asked(library, "nvmlDeviceGetCurrPcieLinkWidth", handle), max)
    seen["samples"] += 1
    if reasons is not None:
        with contextlib.suppress(TypeError):
            for name, bit in THROTTLE.items():
                if reasons & bit:
                    seen["throttled"][name] = seen["throttled"].get(name, 0) + 1


def _extreme(seen: dict[str, Any], name: str, value: Any, which: Callable[..., Any]) -> None:  # noqa: ANN401
    if value is not None:
        seen[name] = which(seen[name], value) if name in seen else value
