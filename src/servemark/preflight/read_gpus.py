"""GPUs of a host: NVML when its Python binding is installed, else the driver's own files, amd-smi, or the kernel's."""

from __future__ import annotations

import importlib
import json
import re
import threading
from typing import Any

from servemark.preflight.facts import MIB, Gpu, Gpus
from servemark.preflight.root import HostRoot, table

DRIVER = "/proc/driver/nvidia"
KFD = "/sys/class/kfd/kfd/topology/nodes"
NVML_SECONDS = 5.0
AMD_VENDOR = 0x1002


def read_gpus(root: HostRoot) -> Gpus:
    """NVIDIA first, then AMD. Without any: no devices, and `known` says whether that is certain."""
    nvml = _nvml(root) if root.live else None
    if nvml is not None and nvml.devices:
        return nvml
    files = _nvidia_files(root)
    if files is not None:
        return files
    amd = _amd(root)
    if amd is not None:
        return amd
    nodes = [name for name in root.names("/dev") if re.fullmatch(r"nvidia\d+", name)]
    return Gpus((), None, known=not nodes)


def _nvml(root: HostRoot) -> Gpus | None:
    """Through `nvidia-ml-py`; None when it is not installed, finds no driver, or does not answer.

    A GPU that hangs may hang the library too, inside a call that cannot be broken off: it is left behind.
    """
    answers: list[Gpus | None] = []
    asking = threading.Thread(target=lambda: answers.append(_asked_nvml(root)), daemon=True)
    asking.start()
    asking.join(NVML_SECONDS)
    return answers[0] if answers else None


def _asked_nvml(root: HostRoot) -> Gpus | None:
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        devices = [_nvml_device(nvml, root, index) for index in range(nvml.nvmlDeviceGetCount())]
        return Gpus(tuple(devices), driver, known=True)
    except nvml.NVMLError:
        return None
    finally:
        nvml.nvmlShutdown()


def _nvml_device(nvml: Any, root: HostRoot, index: int) -> Gpu:  # noqa: ANN401 - no types in the library
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def asked(name: str, *args: object) -> Any:  # noqa: ANN401 - as the library gives it
        """One query; None for what this device or driver does not answer."""
        try:
            return getattr(nvml, name)(handle, *args)
        except (nvml.NVMLError, AttributeError):
            return None

    memory = asked("nvmlDeviceGetMemoryInfo")
    pci = asked("nvmlDeviceGetPciInfo")
    address = _text(pci.busId).lower()[-12:] if pci is not None else ""
    node = root.number(f"/sys/bus/pci/devices/{address}/numa_node") if address else None
    errors = asked(
        "nvmlDeviceGetTotalEccErrors",
        getattr(nvml, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", 1),
        getattr(nvml, "NVML_VOLATILE_ECC", 0),
    )
    name = asked("nvmlDeviceGetName")
    return Gpu(
        index=index,
        name=_text(name) if name is not None else None,
        memory_bytes=int(memory.total) if memory is not None else None,
        used_bytes=int(memory.used) if memory is not None else None,
        numa_node=node if node is not None and node >= 0 else None,
        ecc_errors=int(errors) if errors is not None else None,
        source="nvml",
    )


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _nvidia_files(root: HostRoot) -> Gpus | None:
    """What the driver shows of itself below /proc; no memory sizes there."""
    version = re.search(r"Kernel Module[^\n]*?\s(\d+\.\d+(?:\.\d+)?)\s", root.text(f"{DRIVER}/version") or "")
    found = []
    for index, address in enumerate(root.names(f"{DRIVER}/gpus")):
        text = root.text(f"{DRIVER}/gpus/{address}/information") or ""
        name = re.search(r"^Model:\s*(.+?)\s*$", text, re.MULTILINE)
        node = root.number(f"/sys/bus/pci/devices/{address}/numa_node")
        found.append(
            Gpu(
                index,
                name.group(1) if name else None,
                None,
                None,
                node if node is not None and node >= 0 else None,
                None,
                "driver",
            )
        )
    if version is None and not found:
        return None
    return Gpus(tuple(found), version.group(1) if version else None, known=True)


def _amd(root: HostRoot) -> Gpus | None:
    driver = root.line("/sys/module/amdgpu/version")
    kfd = _kfd(root)
    asked = root.ask("amd-smi", "list", "--json") if kfd or driver else None
    names = _amd_names(asked[1]) if asked is not None and asked[0] == 0 else []
    if names and len(names) == len(kfd):
        kfd = [
            Gpu(g.index, name or g.name, g.memory_bytes, g.used_bytes, g.numa_node, g.ecc_errors, "amd-smi")
            for g, name in zip(kfd, names, strict=True)
        ]
    return Gpus(tuple(kfd), driver, known=True) if kfd or driver else None


def _amd_names(output: str) -> list[str | None]:
    """Market names from `amd-smi list --json`; [] when the answer is something else."""
    try:
        listed = json.loads(output)
    except ValueError:
        return []
    if not isinstance(listed, list) or len(listed) > 1024:
        return []
    names = []
    for one in listed:
        name = (one.get("market_name") or one.get("name")) if isinstance(one, dict) else None
        names.append(name if isinstance(name, str) else None)
    return names


def _kfd(root: HostRoot) -> list[Gpu]:
    """Compute nodes that are AMD GPUs, from the kernel's topology; memory is the sum of the node's banks."""
    found: list[Gpu] = []
    for node in root.names(KFD):
        facts = table(root.text(f"{KFD}/{node}/properties"))
        if facts.get("vendor_id") != AMD_VENDOR or not facts.get("simd_count"):
            continue
        banks = (
            table(root.text(f"{KFD}/{node}/mem_banks/{bank}/properties")).get("size_in_bytes")
            for bank in root.names(f"{KFD}/{node}/mem_banks")
        )
        size = sum(bank for bank in banks if bank is not None)
        name = root.line(f"{KFD}/{node}/name")
        found.append(Gpu(len(found), name, size or None, _amd_used(root, facts), None, None, "kfd"))
    return found


def _amd_used(root: HostRoot, facts: dict[str, int]) -> int | None:
    """VRAM in use as amdgpu's render device says."""
    minor = facts.get("drm_render_minor")
    used = root.number(f"/sys/class/drm/renderD{minor}/device/mem_info_vram_used") if minor else None
    return used if used is None or used >= MIB else 0
