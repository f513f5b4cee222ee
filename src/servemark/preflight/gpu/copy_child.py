"""Copies: within a GPU's memory, between host and GPU, and between GPUs in one process or two. Driver API alone."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from servemark.preflight.facts import GIB, MIB
from servemark.preflight.gpu.driver import Cuda
from servemark.preflight.gpu.lines import Writer
from servemark.preflight.gpu.work import UnmeasuredError, Work
from servemark.preflight.root import integer, table

NEEDS: dict[str, dict[str, str]] = {}
BLOCK = 64 * MIB
"""Random data of which larger buffers are made, and the piece that is compared afterwards."""
MEMORY_BYTES = 8 * GIB
HOST_BYTES = 512 * MIB
PEER_BYTES = 256 * MIB
CHECKED_BLOCKS = 8
SMALL_COPIES = 200


def cuda(work: Work, out: Writer) -> None:
    """Which GPUs this process may use."""
    driver = Cuda()
    out.facts(
        {
            "cuda_version": driver.version(),
            "hidden": "CUDA_VISIBLE_DEVICES" in os.environ,
            "devices": [
                {
                    "ordinal": one.ordinal,
                    "name": one.name,
                    "uuid": one.uuid,
                    "address": one.address,
                    "memory_bytes": one.memory_bytes,
                }
                for one in driver.visible()
            ],
        }
    )


def memory(work: Work, out: Writer) -> None:
    """Bandwidth of a copy within the GPU's memory, bytes read plus bytes written; the copy is compared."""
    driver = Cuda()
    driver.use(0)
    free = driver.free_bytes()
    size = min(int(str(work.options.get("bytes", MEMORY_BYTES))), free // 4) // BLOCK * BLOCK
    if size < BLOCK:
        raise UnmeasuredError("gpu_memory", f"{free} B free")
    source, target = driver.allocate(size), driver.allocate(size)
    block = bytearray(os.urandom(BLOCK))
    _fill(driver, source, size, block)
    times = driver.timed(lambda: driver.start_copy(target, source, size), times=10, warm=2)
    out.figure("memory_copy_bytes_per_s", 2 * size / statistics.median(times), detail=_detail(size, times, 2))
    places = {0, size // BLOCK - 1, *range(0, size // BLOCK, max(1, size // BLOCK // CHECKED_BLOCKS))}
    _compare(driver, out, {target + place * BLOCK: BLOCK for place in sorted(places)}, block)


def _fill(driver: Cuda, target: int, size: int, block: bytearray) -> None:
    """The block again and again over a whole buffer (multiples of it), by copies that double."""
    driver.write(target, _address(block), len(block))
    done = len(block)
    while done < size:
        part = min(done, size - done)
        driver.start_copy(target + done, target, part)
        done += part
    driver.synchronise()


def _address(data: bytearray | mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(data))


def _compare(
    driver: Cuda, out: Writer, places: dict[int, int], wanted: bytearray, gpus: list[int] | None = None
) -> None:
    """Read pieces back and compare them with the beginning of what was put in."""
    got = bytearray(max(places.values()))
    for address, size in places.items():
        driver.read(_address(got), address, size)
        if memoryview(got)[:size] != memoryview(wanted)[:size]:
            out.trouble("data", f"{size} B at {address:#x}", gpus, "wrong")
            return


def _detail(size: int, times: list[float], moved: int = 1) -> dict[str, object]:
    return {
        "bytes": size,
        "runs": len(times),
        "slowest": moved * size / max(times),
        "fastest": moved * size / min(times),
    }


def host_copy(work: Work, out: Writer) -> None:
    """PCIe both ways: page-locked memory that the driver allocates, then ordinary (pageable) memory."""
    size = int(str(work.options.get("bytes", HOST_BYTES)))
    room = available_bytes()
    if room is not None and 4 * size > room:
        raise UnmeasuredError("host_memory", f"{room} B available")
    driver = Cuda()
    driver.use(0)
    device = driver.allocate(size)
    pinned = driver.allocate_host(size)
    ctypes.memset(pinned, 1, size)
    _both_ways(driver, out, "pinned", (device, pinned, size), 10)
    driver.release_host(pinned)
    pageable = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = _address(pageable)
    ctypes.memset(address, 2, size)  # touched, or the first copy would pay for the page faults
    _both_ways(driver, out, "pageable", (device, address, size), 3)


def _both_ways(driver: Cuda, out: Writer, kind: str, places: tuple[int, int, int], times: int) -> None:
    """`places`: device address, host address, bytes."""
    device, host, size = places
    ways: tuple[tuple[str, Callable[[], None]], ...] = (
        ("to_device", lambda: driver.start_write(device, host, size)),
        ("to_host", lambda: driver.start_read(host, device, size)),
    )
    for way, work in ways:
        taken = driver.timed(work, times)
        out.figure(f"{kind}_{way}_bytes_per_s", size / statistics.median(taken), detail=_detail(size, taken))


def available_bytes() -> int | None:
    """Host memory that can be had now: MemAvailable, or what the cgroup (v2) leaves when that is less."""
    try:
        found = table(Path("/proc/meminfo").read_text(encoding="ascii")).get("MemAvailable")
    except OSError:
        return None
    try:
        limit = integer(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii"))
        used = integer(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
    except OSError:
        return found
    if limit is None or used is None:
        return found
    return min(found, limit - used) if found is not None else limit - used


def peer(work: Work, out: Writer) -> None:
    """Copies from each GPU to each other one, in one process: bandwidth, and the time of a copy of 8 bytes."""
    driver = Cuda()
    size = int(str(work.options.get("bytes", PEER_BYTES)))
    sides = []
    for place in range(len(work.gpus)):
        driver.use(place)
        block = bytearray(os.urandom(MIB))
        side = _Side(place, work.gpus[place], driver.allocate(size), driver.allocate(size), block)
        _fill(driver, side.source, size, block)
        sides.append(side)
    for source in sides:
        for target in sides:
            if source is not target:
                _one_peer(driver, out, source, target, size)


@dataclass(frozen=True, slots=True)
class _Side:
    """A GPU of the peer copies: `source` holds its block again and again, `target` takes the others'."""

    ordinal: int
    gpu: int
    source: int
    target: int
    block: bytearray


def _one_peer(driver: Cuda, out: Writer, one: _Side, other: _Side, size: int) -> None:
    driver.use(one.ordinal)
    direct = driver.reaches(one.ordinal, other.ordinal)
    if direct:
        driver.enable_peer(other.ordinal)
    to, origin = (other.ordinal, other.target), (one.ordinal, one.source)
    small = driver.timed(lambda: driver.start_peer_copy(to, origin, 8), SMALL_COPIES, warm=10)
    taken = driver.timed(lambda: driver.start_peer_copy(to, origin, size), 5)
    gpus = [one.gpu, other.gpu]
    how: dict[str, object] = {"direct": direct}
    rate = size / statistics.median(taken)
    out.figure("peer_copy_bytes_per_s", rate, gpus, how | _detail(size, taken))
    out.figure("peer_copy_latency_s", statistics.median(small), gpus, how)
    driver.use(other.ordinal)
    _compare(driver, out, {other.target: MIB, other.target + size - MIB: MIB}, one.block, gpus)


def ipc(work: Work, out: Writer) -> None:
    """Two processes: one exports memory of its GPU, the other opens it and copies from it to its own GPU."""
    driver = Cuda()
    size = int(str(work.options.get("bytes", PEER_BYTES)))
    block = bytearray(random.Random(7).randbytes(MIB))  # noqa: S311 - the same bytes in both processes
    handle, finished = work.folder / "handle", work.folder / "finished"
    if work.rank == 0:
        driver.use(0)
        address = driver.allocate(size)
        _fill(driver, address, size, block)
        publish(handle, driver.export(address))
        wait_for(finished, work.limit_s)
        return
    own = 1 if len(work.gpus) > 1 else 0
    driver.use(own)
    remote = driver.open(wait_for(handle, work.limit_s))
    local = driver.allocate(size)
    taken = driver.timed(lambda: driver.start_copy(local, remote, size), 5)
    out.figure("ipc_copy_bytes_per_s", size / statistics.median(taken), detail=_detail(size, taken))
    _compare(driver, out, {local: MIB, local + size - MIB: MIB}, block)
    driver.close(remote)
    publish(finished, b"")


def publish(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all."""
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.rename(path)


def wait_for(path: Path, limit_s: float) -> bytes:
    """What the other process published; UnmeasuredError (`hang`) when it does not within the limit."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if path.exists():
            return path.read_bytes()
        time.sleep(0.005)
    raise UnmeasuredError("hang", path.name)
