"""The part of CUDA's driver API that copying and registering need, through ctypes: no toolkit, no torch.

`libcuda.so.1` comes with the driver. Plain allocations only, never managed memory. Times are wall-clock times around
a synchronised batch, as the driver has nothing else to do in a process of its own.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass

LIBRARY = "libcuda.so.1"
PEER_ALREADY_ENABLED = 704
IPC_LAZY_PEER_ACCESS = 1


class CudaError(Exception):
    """A call that the driver refused: `call`, and the error's name, such as CUDA_ERROR_ECC_UNCORRECTABLE."""

    def __init__(self, call: str, name: str) -> None:
        super().__init__(f"{call}: {name}")
        self.call = call
        self.name = name


class NoCudaError(Exception):
    """There is no driver library on this host."""


class IpcHandle(ctypes.Structure):
    """A handle of device memory that another process can open: 64 opaque bytes, passed by value."""

    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


_POINTER = c_void_p
_CALLS: dict[str, tuple[object, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_POINTER,),
    "cuDeviceGetCount": (_POINTER,),
    "cuDeviceGet": (_POINTER, c_int),
    "cuDeviceGetName": (_POINTER, c_int, c_int),
    "cuDeviceGetPCIBusId": (_POINTER, c_int, c_int),
    "cuDeviceGetUuid_v2": (_POINTER, c_int),
    "cuDeviceTotalMem_v2": (_POINTER, c_int),
    "cuDevicePrimaryCtxRetain": (_POINTER, c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (_POINTER, _POINTER),
    "cuMemAlloc_v2": (_POINTER, c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemAllocHost_v2": (_POINTER, c_size_t),
    "cuMemFreeHost": (c_void_p,),
    "cuMemHostRegister_v2": (c_void_p, c_size_t, c_uint),
    "cuMemHostUnregister": (c_void_p,),
    "cuMemcpyHtoD_v2": (c_uint64, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemcpyDtoDAsync_v2": (c_uint64, c_uint64, c_size_t, c_void_p),
    "cuMemcpyPeerAsync": (c_uint64, c_void_p, c_uint64, c_void_p, c_size_t, c_void_p),
    "cuDeviceCanAccessPeer": (_POINTER, c_int, c_int),
    "cuCtxEnablePeerAccess": (c_void_p, c_uint),
    "cuIpcGetMemHandle": (_POINTER, c_uint64),
    "cuIpcOpenMemHandle_v2": (_POINTER, IpcHandle, c_uint),
    "cuIpcCloseMemHandle": (c_uint64,),
    "cuGetErrorName": (c_int, _POINTER),
}


@dataclass(frozen=True, slots=True)
class Visible:
    """One GPU as CUDA shows it to this process. `ordinal`: its place among those that are visible."""

    ordinal: int
    name: str
    uuid: str
    address: str
    """PCI address in small letters, such as 0000:1b:00.0."""
    memory_bytes: int


class Cuda:
    """The driver. `use` makes a device the current one of this thread; sizes are bytes, addresses integers."""

    def __init__(self, library: str = LIBRARY) -> None:
        """NoCudaError without a driver library, CudaError when the driver does not start."""
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise NoCudaError(str(error)) from None
        for name, arguments in _CALLS.items():
            function = getattr(self._library, name, None)
            if function is not None:
                function.argtypes = list(arguments)
                function.restype = c_int
        self._contexts: dict[int, c_void_p] = {}
        self._call("cuInit", 0)

    def _call(self, name: str, *arguments: object, also: tuple[int, ...] = ()) -> None:
        function = getattr(self._library, name, None)
        if function is None:
            raise CudaError(name, "not in this driver")
        code = function(*arguments)
        if code != 0 and code not in also:
            raise CudaError(name, self._error(code))

    def _error(self, code: int) -> str:
        said = c_char_p()
        asked = getattr(self._library, "cuGetErrorName", None)
        if asked is None or asked(code, byref(said)) != 0 or said.value is None:
            return f"error {code}"
        return said.value.decode("ascii", "replace")

    def _int(self, name: str, *arguments: object) -> int:
        value = c_int()
        self._call(name, byref(value), *arguments)
        return value.value

    def _address(self, name: str, *arguments: object) -> int:
        value = c_uint64()
        self._call(name, byref(value), *arguments)
        return value.value

    def version(self) -> int:
        """CUDA version that the driver speaks, 13000 for 13.0."""
        return self._int("cuDriverGetVersion")

    def visible(self) -> list[Visible]:
        """All GPUs that this process may use, without making a context on any."""
        found = []
        for ordinal in range(self._int("cuDeviceGetCount")):
            device = self._int("cuDeviceGet", ordinal)
            name, address = ctypes.create_string_buffer(256), ctypes.create_string_buffer(32)
            self._call("cuDeviceGetName", name, 256, device)
            self._call("cuDeviceGetPCIBusId", address, 32, device)
            total = c_size_t()
            self._call("cuDeviceTotalMem_v2", byref(total), device)
            raw = (ctypes.c_ubyte * 16)()
            self._call("cuDeviceGetUuid_v2", raw, device)
            digits = bytes(raw).hex()
            uuid = f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
            found.append(
                Visible(
                    ordinal,
                    name.value.decode("utf-8", "replace"),
                    uuid,
                    address.value.decode("ascii", "replace").lower(),
                    total.value,
                )
            )
        return found

    def use(self, ordinal: int) -> None:
        """Make a device current; its primary context is made at the first use."""
        if ordinal not in self._contexts:
            context = c_void_p()
            device = self._int("cuDeviceGet", ordinal)
            self._call("cuDevicePrimaryCtxRetain", byref(context), device)
            self._contexts[ordinal] = context
        self._call("cuCtxSetCurrent", self._contexts[ordinal])

    def free_bytes(self) -> int:
        """Memory of the current device that nobody has."""
        free, total = c_size_t(), c_size_t()
        self._call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def allocate(self, size: int) -> int:
        """Device memory."""
        return self._address("cuMemAlloc_v2", size)

    def release(self, address: int) -> None:
        """Give device memory back."""
        self._call("cuMemFree_v2", address)

    def allocate_host(self, size: int) -> int:
        """Page-locked host memory that the driver allocates."""
        return self._address("cuMemAllocHost_v2", size)

    def release_host(self, address: int) -> None:
        """Give page-locked memory back."""
        self._call("cuMemFreeHost", address)

    def register(self, address: int, size: int) -> None:
        """Pin memory that is there already: what cudaHostRegister does."""
        self._call("cuMemHostRegister_v2", address, size, 0)

    def unregister(self, address: int) -> None:
        """Unpin it."""
        self._call("cuMemHostUnregister", address)

    def synchronise(self) -> None:
        """Wait for everything on the current device."""
        self._call("cuCtxSynchronize")

    def write(self, device: int, host: int, size: int) -> None:
        """Host to device, done at return."""
        self._call("cuMemcpyHtoD_v2", device, host, size)

    def read(self, host: int, device: int, size: int) -> None:
        """Device to host, done at return."""
        self._call("cuMemcpyDtoH_v2", host, device, size)

    def start_write(self, device: int, host: int, size: int) -> None:
        """Host to device, queued."""
        self._call("cuMemcpyHtoDAsync_v2", device, host, size, None)

    def start_read(self, host: int, device: int, size: int) -> None:
        """Device to host, queued."""
        self._call("cuMemcpyDtoHAsync_v2", host, device, size, None)

    def start_copy(self, to: int, source: int, size: int) -> None:
        """Device to device, queued."""
        self._call("cuMemcpyDtoDAsync_v2", to, source, size, None)

    def start_peer_copy(self, to: tuple[int, int], source: tuple[int, int], size: int) -> None:
        """Between two devices, queued; each side is (ordinal, address)."""
        self._call(
            "cuMemcpyPeerAsync",
            to[1],
            self._contexts[to[0]],
            source[1],
            self._contexts[source[0]],
            size,
            None,
        )

    def reaches(self, ordinal: int, peer: int) -> bool:
        """Whether a device can read a peer's memory directly."""
        devices = self._int("cuDeviceGet", ordinal), self._int("cuDeviceGet", peer)
        return self._int("cuDeviceCanAccessPeer", *devices) != 0

    def enable_peer(self, peer: int) -> None:
        """Let the current device read a peer's memory; both must have been used."""
        self._call("cuCtxEnablePeerAccess", self._contexts[peer], 0, also=(PEER_ALREADY_ENABLED,))

    def export(self, address: int) -> bytes:
        """A handle for another process."""
        handle = IpcHandle()
        self._call("cuIpcGetMemHandle", byref(handle), address)
        return bytes(handle.reserved)

    def open(self, handle: bytes) -> int:
        """Another process's memory; an address of the current device."""
        value = IpcHandle.from_buffer_copy(handle)
        return self._address("cuIpcOpenMemHandle_v2", value, IPC_LAZY_PEER_ACCESS)

    def close(self, address: int) -> None:
        """Close another process's memory."""
        self._call("cuIpcCloseMemHandle", address)

    def timed(self, work: Callable[[], None], times: int, warm: int = 1) -> list[float]:
        """Seconds of each of `times` runs after `warm` untimed ones, each waited for."""
        found = []
        for turn in range(warm + times):
            self.synchronise()
            begun = time.perf_counter()
            work()
            self.synchronise()
            if turn >= warm:
                found.append(time.perf_counter() - begun)
        return found
