"""What a probe's process writes, one JSON object a line, and what of it is believed.

A process that is wounded, or a library that prints, may write anything: a line counts only when it names a figure
that is known, about a GPU that the probe was given, with a value that is a finite number within what can be.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

MAX_LINE = 1 << 16
"""Bytes of one line; more is not ours."""

FIGURES: dict[str, tuple[float, float]] = {
    "memory_copy_bytes_per_s": (1e6, 1e15),
    "bf16_flop_per_s": (1e6, 1e18),
    "bf16_sustained_flop_per_s": (1e6, 1e18),
    "fp8_flop_per_s": (1e6, 1e18),
    "pinned_to_device_bytes_per_s": (1e3, 1e13),
    "pinned_to_host_bytes_per_s": (1e3, 1e13),
    "pageable_to_device_bytes_per_s": (1e3, 1e13),
    "pageable_to_host_bytes_per_s": (1e3, 1e13),
    "peer_copy_bytes_per_s": (1e3, 1e14),
    "peer_copy_latency_s": (1e-8, 10.0),
    "ipc_copy_bytes_per_s": (1e3, 1e14),
    "nccl_all_reduce_bus_bytes_per_s": (1e3, 1e14),
    "nccl_all_reduce_latency_s": (1e-8, 10.0),
    "nccl_exchange_bytes_per_s": (1e3, 1e14),
    "nixl_1_bytes_per_s": (1e3, 1e14),
    "nixl_1024_bytes_per_s": (1e3, 1e14),
}
"""Every figure -> least and largest value that can be; bytes/s, FLOP/s (two a multiply-add) or seconds by its name."""

Outcome = Literal["unmeasured", "wrong"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `gpus`: the one it is of, or source and destination, or all that took part."""

    name: str
    gpus: tuple[int, ...]
    value: float
    detail: dict[str, object] = field(default_factory=dict)

    def plain(self) -> dict[str, object]:
        """For JSON."""
        return {"name": self.name, "gpus": list(self.gpus), "value": self.value, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class Trouble:
    """A probe without its figure. `reason`: a word of the catalogue (`preflight.gpu_why.*`); `detail`: as it was told.

    `outcome` is `wrong` when the GPU gave back other data than it was given, or another product.
    """

    outcome: Outcome
    probe: str
    gpus: tuple[int, ...]
    reason: str
    detail: str = ""

    def plain(self) -> dict[str, object]:
        """For JSON."""
        return {
            "outcome": self.outcome,
            "probe": self.probe,
            "gpus": list(self.gpus),
            "reason": self.reason,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Pinned:
    """One registration: `pages` is 4k, thp or hugetlb; None where it was not done, and `reason` says why."""

    pages: str
    size_bytes: int
    populate_s: float | None
    register_s: float | None
    unregister_s: float | None
    copy_bytes_per_s: float | None
    reason: str | None = None
    detail: str = ""
    reserve_s: float | None = None
    """What reserving huge pages took before; None where there was nothing to reserve."""

    def plain(self) -> dict[str, object]:
        """For JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Told:
    """Facts without a judgement of their own: what NVML or the driver says."""

    probe: str
    facts: dict[str, object]


Line = Figure | Trouble | Pinned | Told
PROBES_OF: dict[str, str] = {
    name: probe
    for probe, names in {
        "memory": ("memory_copy_bytes_per_s",),
        "bf16": ("bf16_flop_per_s", "bf16_sustained_flop_per_s"),
        "fp8": ("fp8_flop_per_s",),
        "host_copy": tuple(name for name in FIGURES if name.startswith(("pinned", "pageable"))),
        "peer": ("peer_copy_bytes_per_s", "peer_copy_latency_s"),
        "ipc": ("ipc_copy_bytes_per_s",),
        "nccl": tuple(name for name in FIGURES if name.startswith("nccl")),
        "nixl": ("nixl_1_bytes_per_s", "nixl_1024_bytes_per_s"),
    }.items()
    for name in names
}
"""Figure -> the probe that measures it."""


def believed(raw: bytes, probe: str, gpus: Sequence[int]) -> Line | None:
    """A probe's line as a value; None for anything that this probe cannot have measured."""
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    kind, facts = said.get("kind"), said.get("facts")
    found: Line | None = None
    if kind == "figure":
        found = _figure(said, probe, gpus)
    elif kind in {"unmeasured", "wrong"}:
        found = _trouble(said, kind, probe, gpus)
    elif kind == "pinned" and probe == "pin":
        found = _pinned(said)
    elif kind == "facts" and isinstance(facts, dict) and probe in {"nvml", "cuda", "watch"}:
        found = Told(probe, facts)
    return found


def _gpus(said: Mapping[str, object], gpus: Sequence[int]) -> tuple[int, ...] | None:
    named = said.get("gpus")
    if not isinstance(named, list) or not named or any(type(one) is not int for one in named):
        return None
    return tuple(named) if set(named) <= set(gpus) else None


def _figure(said: Mapping[str, object], probe: str, gpus: Sequence[int]) -> Figure | None:
    name, value, detail = said.get("name"), number(said.get("value")), said.get("detail")
    named = _gpus(said, gpus)
    if not isinstance(name, str) or PROBES_OF.get(name) != probe or value is None or named is None:
        return None
    least, most = FIGURES[name]
    if not least <= value <= most:
        return None
    return Figure(name, named, value, detail if isinstance(detail, dict) else {})


def _trouble(said: Mapping[str, object], kind: Outcome, probe: str, gpus: Sequence[int]) -> Trouble | None:
    reason, named = said.get("reason"), _gpus(said, gpus)
    if not isinstance(reason, str) or reason not in REASONS:
        return None
    return Trouble(kind, probe, named or tuple(gpus), reason, printable(said.get("detail")))


def _pinned(said: Mapping[str, object]) -> Pinned | None:
    pages, size = said.get("pages"), said.get("size_bytes")
    if pages not in {"4k", "thp", "hugetlb"} or type(size) is not int or not 0 < size < 1 << 50:
        return None
    reason = said.get("reason")
    values = [
        found if found is not None and found >= 0 else None
        for found in (number(said.get(name)) for name in ("populate_s", "register_s", "unregister_s"))
    ]
    known = reason if isinstance(reason, str) and reason in REASONS else None
    if known is None and (values[0] is None or values[1] is None):
        return None
    rate, reserve_s = number(said.get("copy_bytes_per_s")), number(said.get("reserve_s"))
    populate_s, register_s, unregister_s = values
    return Pinned(
        str(pages),
        size,
        populate_s,
        register_s,
        unregister_s,
        rate,
        known,
        printable(said.get("detail")),
        reserve_s,
    )


def number(value: object) -> float | None:
    """A finite number; None for anything else, truth values too."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def printable(value: object) -> str:
    """At most 200 characters on one line, without control characters; empty for what is no text."""
    if not isinstance(value, str):
        return ""
    return " ".join("".join(c if c.isprintable() else " " for c in value[:2000]).split())[:200]


REASONS = frozenset(
    {
        *("no_torch", "no_cuda", "no_nixl", "no_nvml", "no_fp8"),
        *("hang", "late", "crash", "exit", "silent", "garbage", "cuda_error", "error"),
        *("gpu_memory", "host_memory", "hugepages", "time", "data", "product", "cpu_torch"),
    }
)
"""Why there is no figure; each is a message `preflight.gpu_why.NAME`."""


class Writer:
    """The child's side. Lines go to a copy of stdout; stdout itself then leads to stderr, as libraries print too."""

    def __init__(self, gpus: Sequence[int] = ()) -> None:
        self._fd = os.dup(1)
        os.dup2(2, 1)
        self.gpus = list(gpus)

    def _write(self, said: dict[str, object]) -> None:
        os.write(self._fd, json.dumps(said).encode() + b"\n")

    def ready(self) -> None:
        """Everything that may take long before the measurement is loaded."""
        self._write({"kind": "ready"})

    def figure(
        self,
        name: str,
        value: float,
        gpus: Sequence[int] | None = None,
        detail: Mapping[str, object] | None = None,
    ) -> None:
        """One figure, of all GPUs of the probe unless said."""
        self._write(
            {
                "kind": "figure",
                "name": name,
                "value": value,
                "gpus": list(gpus or self.gpus),
                "detail": dict(detail or {}),
            }
        )

    def trouble(
        self,
        reason: str,
        detail: str = "",
        gpus: Sequence[int] | None = None,
        outcome: Outcome = "unmeasured",
    ) -> None:
        """What could not be measured, or came out wrong."""
        self._write({"kind": outcome, "reason": reason, "detail": detail, "gpus": list(gpus or self.gpus)})

    def pinned(self, row: Pinned) -> None:
        """One registration."""
        self._write({"kind": "pinned", **row.plain()})

    def facts(self, facts: dict[str, object]) -> None:
        """What a library says of the GPUs."""
        self._write({"kind": "facts", "facts": facts})

    def done(self) -> None:
        """The probe came to its end."""
        self._write({"kind": "done"})
