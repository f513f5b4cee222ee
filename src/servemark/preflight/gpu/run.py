"""All GPU probes of this host, in an order in which they do not disturb each other, within a time limit.

1. What NVML and CUDA show. 2. Each GPU by itself, all at once: memory, bf16, fp8. 3. Host copies, one GPU after the
other, as they share the host's memory. 4. Links between GPUs one after the other, and beside them pinning, which
works on host memory. All processes are started at the beginning and waited for, since loading torch takes longer than a
probe and would disturb others.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from servemark.preflight.facts import PAGE_2M
from servemark.preflight.gpu.lines import Line, Told, Trouble
from servemark.preflight.gpu.pin_child import SIZES
from servemark.preflight.gpu.team import Command, Job, Team, child_command, settle
from servemark.preflight.memory_child import POOL
from servemark.preflight.root import integer

TOTAL_SECONDS = 55.0
"""Until the last probe is ended; judging and the end of the watch come on top."""
LIST_SECONDS = 15.0
WATCH_SECONDS = 4.0
SETTLE_SECONDS = 25.0
"""At most until probes begin: torch from a cold disk takes that long."""
PIN_SECONDS = 34.0
MAX_DEVICES = 64

Sink = Callable[[Line], None]
Options = Mapping[str, dict[str, object]]


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU that CUDA shows. `index`: NVML's where it knows the GPU, else CUDA's; `visible`: how CUDA is told of it."""

    index: int
    name: str
    uuid: str
    address: str
    memory_bytes: int
    visible: str


@dataclass(frozen=True, slots=True)
class Measured:
    """Everything that came out. `nvml`, `cuda`, `watch`: what they told, None where they could not be asked."""

    devices: tuple[Device, ...]
    nvml: dict[str, object] | None
    cuda: dict[str, object] | None
    watch: dict[str, object] | None
    lines: tuple[Line, ...]
    seconds: float


def measure(
    sink: Sink = lambda line: None,
    *,
    total_s: float = TOTAL_SECONDS,
    command: Command = child_command,
    options: Options | None = None,
) -> Measured:
    """Run everything. Never raises for what a probe does; processes and the pool of huge pages are put in order.

    `options`: settings of a probe by its name; `command`: how a probe's process is started.
    """
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="servemark-gpu-"))
    run = _Run(folder, begun + total_s, sink, command, options or {})
    pool = _pool()
    try:
        with _told_to_end():
            return run.measured(begun)
    finally:
        run.close()
        _restore(pool)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _told_to_end() -> Iterator[None]:
    """SIGTERM is an exception inside, so that things are put in order; only the main thread may set that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Run:
    def __init__(self, folder: Path, end: float, sink: Sink, command: Command, options: Options) -> None:
        self.folder, self.end, self.command, self.options = folder, end, command, options
        self.lines: list[Line] = []
        self.teams: list[Team] = []
        self._sink = sink
        self._lock = threading.Lock()

    def measured(self, begun: float) -> Measured:
        """Ask, probe, and gather. `begun`: monotonic."""
        told = self.ask()
        devices = devices_of(told.get("cuda"), told.get("nvml"))
        if devices:
            self.probe(devices)
        told |= {line.probe: line.facts for line in self.lines if isinstance(line, Told)}
        return Measured(
            devices,
            told.get("nvml"),
            told.get("cuda"),
            told.get("watch"),
            tuple(line for line in self.lines if not isinstance(line, Told)),
            time.monotonic() - begun,
        )

    def take(self, line: Line) -> None:
        """Keep a line and pass it on."""
        with self._lock:
            self.lines.append(line)
            self._sink(line)

    def start(self, job: Job) -> Team | None:
        """A job's processes; None when the host can start no more of them."""
        try:
            team = Team(job, self.folder, self.command)
        except OSError as error:
            self.take(Trouble("unmeasured", job.probe, job.gpus, "error", str(error)))
            return None
        self.teams.append(team)
        return team

    def ask(self) -> dict[str, dict[str, object]]:
        """What CUDA and NVML show, asked at the same time."""
        jobs = (
            Job(probe, (), LIST_SECONDS, options=self.options.get(probe, {})) for probe in ("cuda", "nvml")
        )
        self.lanes([[team] for team in map(self.start, jobs) if team is not None])
        return {line.probe: line.facts for line in self.lines if isinstance(line, Told)}

    def probe(self, devices: Sequence[Device]) -> None:
        """Start all, then let them go phase by phase."""
        watch = self.start(Job("watch", tuple(d.index for d in devices), WATCH_SECONDS))
        plan = [
            [[team for job in lane if (team := self.start(job)) is not None] for lane in phase]
            for phase in phases(devices, self.options)
        ]
        settle(
            [team for team in self.teams if team.job.gpus],
            min(self.end, time.monotonic() + SETTLE_SECONDS),
            self.take,
        )
        if watch is not None:
            watch.go(WATCH_SECONDS)
        for phase in plan:
            self.lanes(phase)
        if watch is not None:
            watch.finish_watching()
            watch.run(time.monotonic() + WATCH_SECONDS, self.take, started=True)

    def lanes(self, lanes: Iterable[Sequence[Team]]) -> None:
        """Lanes at the same time, the jobs of a lane one after the other."""

        def work(lane: Sequence[Team]) -> None:
            with contextlib.suppress(OSError, ValueError):  # closed under our hands: the run was broken off
                for team in lane:
                    team.run(self.end, self.take)

        threads = [threading.Thread(target=work, args=(lane,), daemon=True) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """No process is left behind, also after Ctrl-C."""
        for team in self.teams:
            team.stop(polite=team.job.probe == "pin")


def devices_of(cuda: Mapping[str, object] | None, nvml: Mapping[str, object] | None) -> tuple[Device, ...]:
    """CUDA's devices with NVML's indices; what does not look like a device is left out."""
    known = {}
    for one in _mappings(nvml, "devices"):
        if isinstance(one.get("uuid"), str) and isinstance(one.get("index"), int):
            known[one["uuid"]] = one["index"]
    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    found = []
    for place, one in enumerate(_mappings(cuda, "devices")[:MAX_DEVICES]):
        uuid, memory = str(one.get("uuid", "")), one.get("memory_bytes")
        index = known.get(uuid, place)
        found.append(
            Device(
                index=index if isinstance(index, int) else place,
                name=str(one.get("name", "?")),
                uuid=uuid,
                address=str(one.get("address", "")),
                memory_bytes=memory if isinstance(memory, int) else 0,
                visible=names[place] if place < len(names) else str(place),
            )
        )
    if len({one.index for one in found}) < len(found):  # MIG slices of one GPU
        found = [
            Device(n, one.name, one.uuid, one.address, one.memory_bytes, one.visible)
            for n, one in enumerate(found)
        ]
    return tuple(found)


def _mappings(facts: Mapping[str, object] | None, name: str) -> list[dict[str, object]]:
    listed = facts.get(name) if facts is not None else None
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def phases(devices: Sequence[Device], options: Options) -> list[list[list[Job]]]:
    """Phases of lanes of jobs."""

    def job(probe: str, of: Sequence[Device], limit_s: float, ranks: int = 1) -> Job:
        return Job(
            probe,
            tuple(one.index for one in of),
            limit_s,
            ",".join(one.visible for one in of),
            ranks,
            cpus_near(of[0].address) if len(of) == 1 else (),
            options.get(probe, {}),
        )

    alone = [
        [job("memory", [one], 10.0), job("bf16", [one], 12.0), job("fp8", [one], 10.0)] for one in devices
    ]
    host = [job("host_copy", [one], 10.0) for one in devices]
    pair = list(devices[:2])
    links = [job("ipc", pair, 8.0, 2), job("nixl", pair, 15.0, 2)]
    if len(devices) > 1:
        links = [
            job("peer", devices, 8.0 + 0.2 * len(devices) ** 2),
            *links,
            job("nccl", devices, 15.0 + len(devices), len(devices)),
        ]
    return [alone, [host], [links, [job("pin", [devices[0]], PIN_SECONDS)]]]


def cpus_near(address: str) -> tuple[int, ...]:
    """CPUs of the NUMA node a GPU hangs on that this process may use; () when that is not known."""
    try:
        text = Path(f"/sys/bus/pci/devices/{address}/local_cpulist").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ()
    found: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        first, last = integer(low), integer(high or low)
        if first is None or last is None or not 0 <= first <= last < 1 << 16:
            return ()
        found |= set(range(first, last + 1))
    return tuple(sorted(found & os.sched_getaffinity(0)))


def _pool() -> int | None:
    try:
        return integer((POOL / "nr_hugepages").read_text(encoding="ascii"))
    except OSError:
        return None


def _restore(before: int | None) -> None:
    """A probe that was killed could not give its huge pages back: at most what it can have added is taken out."""
    now = _pool()
    if before is None or now is None or now <= before:
        return
    with contextlib.suppress(OSError):
        most = max(SIZES) // PAGE_2M
        (POOL / "nr_hugepages").write_text(str(max(before, now - most)), encoding="ascii")
