"""Power and clocks of this host's GPUs while a point is measured, as nvidia-smi prints what NVML reads, into
`gpu_metrics.csv` of the run folder.

It is started before the warm-up and stopped after the last request, so that samples surround the window. Its clock is
set to UTC (nvidia-smi prints local time without a zone). It writes into a pipe of ours: when this process dies, its next
line ends it. A host without nvidia-smi, or with one that does not work, has no such file, and the point no energy.
"""

from __future__ import annotations

import contextlib
import csv
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from servemark.replay.outcome import ReplayOutcome
from servemark.results.importers.gpu_csv import moment_of
from servemark.results.measured_power import WINDOW_KEY
from servemark.results.summary import Summary

NAME = "gpu_metrics.csv"
INTERVAL_MS = 250
FIRST_S = 5.0
"""So long the first sample may take: without its persistence daemon the driver is loaded first."""
END_S = 2.0
MAX_LINE = 64 << 10
FIELDS = "timestamp,index,uuid,power.draw"
"""`power.draw` is a mean over the last second on newer GPUs, so nothing between two samples is missed: on an H200 under
bursts of 3 s its energy over 30 s was within 0.5 % of NVML's energy counter, that of `power.draw.instant` within 1.9 %."""
MORE_FIELDS = "clocks.sm,clocks.mem,temperature.gpu,clocks_event_reasons.active"
"""What drivers from 535 on know; an older one refuses the whole question, and is then asked for power alone."""
IDLE_REASON = 0x1
"""NVML's nvmlClocksEventReasonGpuIdle: no reason to worry."""


class GpuPowerSampler:
    """Samples from enter to exit where `gpus` of this host serve; does nothing where none does. `indices`: only those
    GPUs, numbered as nvidia-smi does (by PCI bus); None samples every one that is there."""

    def __init__(self, path: Path, gpus: int | None, indices: Sequence[int] | None = None) -> None:
        self._path = path
        self._indices = indices
        self._program = shutil.which("nvidia-smi") if gpus else None
        self._child: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._sampled = threading.Event()

    def __enter__(self) -> GpuPowerSampler:
        for fields in (f"{FIELDS},{MORE_FIELDS}", FIELDS):
            if self._program is None or not self._start(self._program, fields):
                break
        return self

    def _start(self, program: str, fields: str) -> bool:
        """Start nvidia-smi and wait for its first sample; a program that gives none is ended.

        True where it ended by itself with nothing but a refusal: another question may be answered.
        """
        command = [program, f"--query-gpu={fields}", "--format=csv"]
        command += ["-i", ",".join(map(str, self._indices))] if self._indices else []
        command += ["-lms", str(INTERVAL_MS)]
        try:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "TZ": "UTC"},
                start_new_session=True,  # Ctrl-C drains the run; samples go on to its end
            )
        except OSError:
            return False
        self._thread = threading.Thread(target=self._copy, args=(self._child,), name="gpu-power", daemon=True)
        self._thread.start()
        begun = time.monotonic()
        while not self._sampled.wait(0.02) and self._thread.is_alive() and time.monotonic() - begun < FIRST_S:
            pass
        if self._sampled.is_set():
            return False
        refused = not self._thread.is_alive()
        self._end()
        return refused

    def _copy(self, child: subprocess.Popen[bytes]) -> None:
        """Its lines into the file, each at once; ends with the child, or where the disk refuses."""
        stream = child.stdout
        if stream is None:
            return
        with stream, contextlib.suppress(OSError, ValueError):
            head = stream.readline(MAX_LINE)
            if not head.startswith(b"timestamp"):
                return  # words of an nvidia-smi that does not work
            with self._path.open("wb", buffering=0) as out:
                out.write(head)
                while line := stream.readline(MAX_LINE):
                    out.write(line)
                    self._sampled.set()

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        if self._child is not None and self._sampled.is_set():
            time.sleep(2 * INTERVAL_MS / 1000)  # one more sample after the window
        self._end()

    def _end(self) -> None:
        """Stop the child; nothing of it is left."""
        child, thread = self._child, self._thread
        self._child = self._thread = None
        if child is None:
            return
        with contextlib.suppress(OSError):
            child.terminate()
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if thread is not None:
            thread.join(END_S)


def measured_window(outcome: ReplayOutcome, seen: Summary, wall_zero: float) -> dict[str, object]:
    """The row's window on the wall clock, as `observed` has it: of a replay that ends by time its whole time, else from
    the first request's start to the last one's end. `wall_zero` is the wall clock at the client's zero."""
    begin, end = seen.first_start_s, seen.last_moment_s
    if outcome.timed:
        begin, end = outcome.window_start_s, outcome.window_end_s
    if begin is None or end is None:
        return {}
    return {WINDOW_KEY: {"begin_s": round(wall_zero + begin, 6), "end_s": round(wall_zero + end, 6)}}


def clock_facts(path: Path, window: Mapping[str, object]) -> dict[str, object]:
    """Clocks (MHz), temperature (°C) and reasons for lower clocks (NVML's bit mask, idle left out) of each GPU over the
    measured window, as `observed["gpu_clocks"]`; nothing where they were not sampled."""
    said = window.get(WINDOW_KEY)
    ends = (said.get("begin_s"), said.get("end_s")) if isinstance(said, Mapping) else (None, None)
    begin, end = ends
    if not isinstance(begin, float) or not isinstance(end, float):
        return {}
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as stream:
            rows = [{name.strip(): text.strip() for name, text in row.items() if name and isinstance(text, str)}
                    for row in csv.DictReader(stream)]  # fmt: skip
    except OSError:
        return {}
    found: dict[str, dict[str, list[int]]] = {}
    for row in rows:
        moment = moment_of(row.get("timestamp", ""))
        if moment is None or not begin <= moment[0] <= end:
            continue
        gpu = found.setdefault(row.get("index", "?")[:40], {})
        for name, heading, base in _CLOCKS:
            with contextlib.suppress(ValueError, IndexError):
                gpu.setdefault(name, []).append(int(row.get(heading, "").split()[0], base))
    return (
        {"gpu_clocks": {gpu: _clocks(values) for gpu, values in found.items() if values}}
        if any(found.values())
        else {}
    )


_CLOCKS = (
    ("sm_mhz", "clocks.current.sm [MHz]", 10),
    ("memory_mhz", "clocks.current.memory [MHz]", 10),
    ("celsius", "temperature.gpu", 10),
    ("reasons", "clocks_event_reasons.active", 16),
)
"""Ours, nvidia-smi's heading, and the base that its numbers are written in."""


def _clocks(values: Mapping[str, Sequence[int]]) -> dict[str, object]:
    body: dict[str, object] = {}
    for name in ("sm_mhz", "memory_mhz", "celsius"):
        if some := values.get(name):
            body[name] = {"mean": round(sum(some) / len(some), 1), "min": min(some), "max": max(some)}
    if reasons := values.get("reasons"):
        every = 0
        for each in reasons:
            every |= each & ~IDLE_REASON
        body["reasons"] = every
        body["samples_with_reasons"] = sum(bool(each & ~IDLE_REASON) for each in reasons)
        body["samples"] = len(reasons)
    return body
