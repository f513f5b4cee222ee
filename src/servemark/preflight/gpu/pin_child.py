"""Populate host memory and pin it for a GPU, by page kind and size: what registering KV memory costs.

Order: small sizes first, so that what a short time leaves out is the largest. A size is left out, and the reason
told, when it would take more than three quarters of the available memory, or longer than what is left by the previous size.
"""

from __future__ import annotations

import contextlib
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

from servemark.preflight.allocation import Mapping, Method, allocate, populate, release
from servemark.preflight.facts import GIB, MIB, PAGE_2M
from servemark.preflight.gpu.copy_child import available_bytes
from servemark.preflight.gpu.driver import Cuda, CudaError
from servemark.preflight.gpu.lines import Pinned, Writer, number
from servemark.preflight.gpu.work import Work
from servemark.preflight.memory_child import ENDING, NotGrantedError, reserved

NEEDS: dict[str, dict[str, str]] = {}
SIZES = (GIB, 4 * GIB, 16 * GIB)
PAGES: tuple[Method, ...] = ("4k", "thp", "hugetlb")
SHARE = 0.75
"""Of the available memory at most."""
COPY_BYTES = 256 * MIB


def pin(work: Work, out: Writer) -> None:
    """Every size in every page kind, one after the other."""
    _behave()
    end = time.monotonic() + work.limit_s - 1.0
    driver = Cuda()
    driver.use(0)
    device = driver.allocate(COPY_BYTES)
    sizes = work.options.get("sizes")
    rates: dict[Method, float] = {}
    for size in [int(one) for one in sizes] if isinstance(sizes, list) else SIZES:
        for pages in PAGES:
            out.pinned(_one((driver, device), pages, size, end - time.monotonic(), rates))


def _behave() -> None:
    """Being told to end is an exception, so that reserved huge pages are given back; the OOM killer takes us first."""

    def ended(number: int, frame: FrameType | None) -> None:
        for other in ENDING:
            signal.signal(other, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for one in ENDING:
        signal.signal(one, ended)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _one(
    gpu: tuple[Cuda, int], pages: Method, size: int, left_s: float, rates: dict[Method, float]
) -> Pinned:
    """`gpu`: the driver and device memory; `rates`: seconds a byte of each page kind's last size.

    A refusal is a row with a reason.
    """
    room = available_bytes()
    if room is None or size > SHARE * room:
        return _refused(pages, size, "host_memory", f"{room} B available")
    guess = rates.get(pages, 0.0) * size
    if guess > left_s:
        return _refused(pages, size, "time", f"{guess:.1f} s needed")
    begun = time.monotonic()
    try:
        told: dict[str, object] = {}
        with reserved(size // PAGE_2M if pages == "hugetlb" else 0, told):
            row = replace(_registered(*gpu, pages, size), reserve_s=number(told.get("reserve_s")))
    except NotGrantedError as refusal:
        return _refused(pages, size, "hugepages", str(refusal))
    except (OSError, CudaError) as error:
        return _refused(pages, size, "error", str(error))
    rates[pages] = (time.monotonic() - begun) / size
    return row


def _refused(pages: Method, size: int, reason: str, detail: str) -> Pinned:
    return Pinned(pages, size, None, None, None, None, reason, detail)


def _registered(driver: Cuda, device: int, pages: Method, size: int) -> Pinned:
    mapping = allocate(pages, size, ())
    try:
        populate_s = _seconds(lambda: populate(mapping))
        register_s = _seconds(lambda: driver.register(mapping.address, size))
        rate = _rate(driver, device, mapping)
        unregister_s = _seconds(lambda: driver.unregister(mapping.address))
    finally:
        release(mapping)
    return Pinned(pages, size, populate_s, register_s, unregister_s, rate)


def _seconds(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _rate(driver: Cuda, device: int, mapping: Mapping) -> float:
    """Bytes a second from the pinned memory to the GPU."""
    size = min(COPY_BYTES, mapping.length)
    times = driver.timed(lambda: driver.start_write(device, mapping.address, size), 3)
    return size / statistics.median(times)
