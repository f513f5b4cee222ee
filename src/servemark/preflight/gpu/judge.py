"""A verdict for each GPU: healthy, slow, broken, or not judged - and the figures between GPUs against references.

A figure is slow when it is worse than the reference of this very type by more than the reference's tolerance; where
there is no reference, when it is more than a tenth worse than the median of at least three like GPUs of the host.
A value above what the type can do by its data sheet is a mistake of the measurement, and judges nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from servemark.catalog.hardware import Gpu, Reference
from servemark.preflight.finding import Saying, say
from servemark.preflight.gpu.lines import PROBES_OF, Figure, Trouble
from servemark.preflight.gpu.run import Device, Measured
from servemark.preflight.gpu.shown import difference, figure_name, probe_name, rate, share
from servemark.preflight.gpu.xids import HARDWARE, Xid

State = Literal["healthy", "slow", "broken", "unjudged"]
Mark = Literal["ok", "slow", "impossible", "no_reference"]
NEIGHBOUR_TOLERANCE = 0.1
LIKE = 3
"""GPUs of one name from which on the median of their figures says something of each."""
CEILING = 1.05
"""Times the data sheet's figure, which is rounded and for a nominal clock."""
ESSENTIAL = (
    "memory_copy_bytes_per_s",
    "bf16_flop_per_s",
    "pinned_to_device_bytes_per_s",
    "pinned_to_host_bytes_per_s",
)
"""A GPU is called healthy only when these were compared."""
OF_THE_HOST = ("pageable_to_device_bytes_per_s", "pageable_to_host_bytes_per_s")
"""Bound by the processor that copies: told, but never a GPU's fault."""
BUSY_BYTES = 2 << 30
BROKEN_ERRORS = (
    "ECC_UNCORRECTABLE",
    "HARDWARE_STACK_ERROR",
    "ILLEGAL_ADDRESS",
    "LAUNCH_FAILED",
    "LAUNCH_TIMEOUT",
    "NVLINK_UNCORRECTABLE",
    "CONTAINED",
    "DEVICE_UNAVAILABLE",
    "uncorrectable ECC",
    "hardware stack error",
    "illegal memory access",
    "unspecified launch failure",
)
"""Parts of the driver's names for errors, and of torch's words for them, after which a GPU cannot be trusted.

Our own programs are the same everywhere.
"""
BASIC = ("memory", "bf16")
"""Probes that take a fraction of a second on a GPU that works: one that never answers, where others do, is broken."""
LINK_PROBES = ("peer", "ipc", "nccl", "nixl")
CEILINGS = {
    "memory_copy_bytes_per_s": ("memory-bandwidth-bytes-per-s", 1.0),
    "bf16_flop_per_s": ("bf16-dense-tflops", 1e12),
    "bf16_sustained_flop_per_s": ("bf16-dense-tflops", 1e12),
    "fp8_flop_per_s": ("fp8-dense-tflops", 1e12),
}


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure beside its reference. `ratio`: 1 is as good as the reference, 0.8 a fifth worse; None without one."""

    figure: Figure
    mark: Mark
    ratio: float | None = None
    reference: Reference | None = None

    def plain(self) -> dict[str, object]:
        """For JSON."""
        reference = self.reference
        return self.figure.plain() | {
            "mark": self.mark,
            "ratio": self.ratio,
            "reference": reference.value if reference is not None else None,
            "tolerance": reference.tolerance if reference is not None else None,
            "source": reference.origin.source if reference is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Judged:
    """One GPU. `reasons` made the verdict; `notes` did not."""

    index: int
    name: str
    uuid: str
    state: State
    compared: tuple[Compared, ...]
    reasons: tuple[Saying, ...]
    notes: tuple[Saying, ...]
    missing: tuple[Trouble, ...]
    nvml: dict[str, Any] = field(default_factory=dict)
    watched: dict[str, Any] = field(default_factory=dict)


def compare(figure: Figure, gpu: Gpu | None) -> Compared:
    """A figure against the reference of a GPU type; a latency is better when it is less."""
    key = figure.name.replace("_", "-")
    ceiling, unit = CEILINGS.get(figure.name, ("", 1.0))
    highest = gpu.first(ceiling) if gpu is not None and ceiling else None
    if highest is not None and figure.value > CEILING * highest * unit:
        return Compared(figure, "impossible")
    reference = gpu.measured.figures.get(key) if gpu is not None and gpu.measured is not None else None
    if reference is None:
        return Compared(figure, "no_reference")
    ratio = figure.value / reference.value
    if figure.name.endswith("_latency_s"):
        ratio = 1 / ratio
    return Compared(figure, "slow" if ratio < 1 - reference.tolerance else "ok", ratio, reference)


def judge_gpus(
    measured: Measured, types: dict[str, Gpu | None], xids: Sequence[Xid] | None
) -> tuple[Judged, ...]:
    """Every GPU that CUDA shows, and those that only NVML knows. `types`: device name -> its GPU type."""
    known = {one.get("index"): one for one in _devices(measured.nvml)}
    watched = {one.get("index"): one for one in _devices(measured.watch)}
    judged = []
    for device in measured.devices:
        facts = known.get(device.index, {})
        if facts.get("uuid") != device.uuid:
            facts = {}
        compared = _own(measured, device, types.get(device.name))
        case = _Case(device, compared, facts, watched.get(device.index, {}), measured, xids or ())
        judged.append(case.judged())
    return tuple(sorted((*judged, *_unseen(measured)), key=lambda one: one.index))


def _devices(facts: dict[str, object] | None) -> list[dict[str, Any]]:
    listed = facts.get("devices") if facts is not None else None
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _own(measured: Measured, device: Device, gpu: Gpu | None) -> list[Compared]:
    """Figures of this GPU alone; those without a reference are compared with its neighbours."""
    found = []
    like = {one.index for one in measured.devices if one.name == device.name}
    for figure in measured.lines:
        if not isinstance(figure, Figure) or figure.gpus != (device.index,) or is_link(figure):
            continue
        one = compare(figure, gpu)
        if one.mark == "no_reference":
            others = [
                other.value
                for other in measured.lines
                if isinstance(other, Figure)
                and other.name == figure.name
                and len(other.gpus) == 1
                and other.gpus[0] in like
            ]
            if len(others) >= LIKE and figure.value < (1 - NEIGHBOUR_TOLERANCE) * statistics.median(others):
                one = Compared(figure, "slow", figure.value / statistics.median(others))
        found.append(one)
    return found


def is_link(figure: Figure) -> bool:
    """Whether it is measured between two processes or GPUs; with one GPU both ends are the same."""
    return PROBES_OF[figure.name] in LINK_PROBES


def _unseen(measured: Measured) -> Iterable[Judged]:
    """GPUs that NVML lists and CUDA does not, although nothing hides them: CUDA lists all unless it is told."""
    seen = {device.uuid for device in measured.devices}
    for one in _devices(measured.nvml):
        uuid = str(one.get("uuid"))
        if uuid in seen or one.get("mig"):
            continue
        hidden = (measured.cuda or {}).get("hidden")
        reason = say(
            "preflight.gpu.hidden" if hidden or measured.cuda is None else "preflight.gpu.not_in_cuda"
        )
        state: State = "unjudged" if hidden or measured.cuda is None else "broken"
        index = one.get("index")
        yield Judged(
            index if isinstance(index, int) else -1,
            str(one.get("name")),
            uuid,
            state,
            (),
            (reason, *error_reasons(one)),
            (),
            (),
            one,
        )


def error_reasons(facts: dict[str, Any]) -> list[Saying]:
    """What NVML counts that takes a GPU out of service."""
    found = []
    if count := _count(facts.get("ecc_uncorrected")):
        found.append(say("preflight.gpu.ecc", count=count))
    rows = facts.get("remapped")
    if isinstance(rows, dict) and rows.get("failure"):
        found.append(say("preflight.gpu.remap_failed"))
    return found


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


@dataclass(slots=True)
class _Case:
    device: Device
    compared: list[Compared]
    facts: dict[str, Any]
    watched: dict[str, Any]
    measured: Measured
    xids: Sequence[Xid]

    def judged(self) -> Judged:
        """The worst that is certain: broken before slow; busy and MIG forbid a judgement of speed."""
        broken = self._broken()
        slow = [one for one in self.compared if one.mark == "slow" and one.figure.name not in OF_THE_HOST]
        notes = list(self._notes())
        missing = [name for name in ESSENTIAL if name not in self._usable()]
        state: State = "healthy"
        reasons: list[Saying] = broken
        if broken:
            state = "broken"
        elif self._shared():
            state, reasons = "unjudged", [self._shared_saying()]
        elif slow:
            state, reasons = "slow", []
        elif missing:
            state = "unjudged"
            reasons = [say("preflight.gpu.not_compared", figures=[figure_name(name) for name in missing])]
        reasons = [*reasons, *(_slow(one) for one in slow)]
        if slow:
            reasons += self._throttled()
        return Judged(
            self.device.index,
            self.device.name,
            self.device.uuid,
            state,
            tuple(self.compared),
            tuple(reasons),
            tuple(notes),
            tuple(self._troubles()),
            self.facts,
            self.watched,
        )

    def _usable(self) -> set[str]:
        return {one.figure.name for one in self.compared if one.mark in {"ok", "slow"}}

    def _shared(self) -> bool:
        return bool(self.facts.get("mig")) or self._busy()

    def _busy(self) -> bool:
        return _count(self.facts.get("used_bytes")) > BUSY_BYTES or _count(self.facts.get("processes")) > 0

    def _shared_saying(self) -> Saying:
        return say("preflight.gpu.mig" if self.facts.get("mig") else "preflight.gpu.busy")

    def _troubles(self) -> list[Trouble]:
        return [
            line
            for line in self.measured.lines
            if isinstance(line, Trouble)
            and line.gpus == (self.device.index,)
            and line.probe not in {"pin", *LINK_PROBES}
        ]

    def _broken(self) -> list[Saying]:
        found = error_reasons(self.facts)
        for xid in sorted(set(self.watched.get("xids") or ())):
            if xid in HARDWARE:
                found.append(say("preflight.gpu.xid_now", number=xid, what=say(f"preflight.gpu.xid.{xid}")))
        for line in self._troubles():
            if line.outcome == "wrong":
                found.append(say("preflight.gpu.wrong", probe=probe_name(line.probe), detail=line.detail))
            elif line.reason == "hang" and line.probe in BASIC and self._others_answer(line.probe):
                found.append(say("preflight.gpu.hangs", probe=probe_name(line.probe), limit=line.detail))
            elif any(name in line.detail for name in BROKEN_ERRORS):
                found.append(say("preflight.gpu.fails", probe=probe_name(line.probe), detail=line.detail))
        return found

    def _others_answer(self, probe: str) -> bool:
        """Whether another GPU ended this probe: else a host without processor time is as likely as a dead GPU."""
        return any(
            isinstance(line, Figure) and PROBES_OF[line.name] == probe and line.gpus != (self.device.index,)
            for line in self.measured.lines
        )

    def _notes(self) -> Iterable[Saying]:
        for one in self.compared:
            if one.mark == "impossible":
                yield say(
                    "preflight.gpu.impossible", figure=figure_name(one.figure.name), value=rate(one.figure)
                )
            elif one.mark == "slow" and one.figure.name in OF_THE_HOST:
                yield say("preflight.gpu.host_slow", what=_slow(one))
        rows = self.facts.get("remapped")
        if isinstance(rows, dict) and rows.get("pending"):
            yield say("preflight.gpu.remap_pending")
        old = sorted(
            {x.number for x in self.xids if x.address == self.device.address and x.number in HARDWARE}
        )
        if old:
            yield say(
                "preflight.gpu.xid_log",
                numbers=[
                    say("preflight.gpu.xid_one", number=n, what=say(f"preflight.gpu.xid.{n}")) for n in old
                ],
            )
        width, most = self.watched.get("pcie_width_highest"), self.facts.get("max_pcie_width")
        if isinstance(width, int) and isinstance(most, int) and width < most:
            yield say("preflight.gpu.pcie_width", width=width, most=most)

    def _throttled(self) -> list[Saying]:
        seen = self.watched.get("throttled")
        if not isinstance(seen, dict) or not seen:
            return []
        return [
            say("preflight.gpu.throttled", reasons=[say(f"preflight.gpu.throttle.{n}") for n in sorted(seen)])
        ]


def _slow(one: Compared) -> Saying:
    if one.reference is None:
        return say(
            "preflight.gpu.below_neighbours",
            figure=figure_name(one.figure.name),
            value=rate(one.figure),
            share=difference(one.ratio),
        )
    return say(
        "preflight.gpu.below",
        figure=figure_name(one.figure.name),
        value=rate(one.figure),
        share=difference(one.ratio),
        reference=rate(one.figure, one.reference.value),
        tolerance=share(one.reference.tolerance),
    )
