"""Hardware as data: `hardware/*.yaml` -> `Gpu`. What sources say differently stands side by side, never averaged."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from servemark.catalog.architecture import Origin
from servemark.catalog.data_files import (
    Values,
    checked,
    data_folder,
    find_file,
    names_in,
    read_data,
    sources_of,
    unknown_name,
)
from servemark.catalog.fields import Fields
from servemark.catalog.nodes import Node, Problem

FIGURES = (
    "memory-bytes",
    "memory-bandwidth-bytes-per-s",
    "nic-gbit-per-s",
    "scale-up-gbyte-per-s",
    "scale-up-gpus",
    "gpus-per-node",
    "tdp-watts",
    "all-in-watts",
    "fp4-dense-tflops",
    "fp8-dense-tflops",
    "bf16-dense-tflops",
    "node-dram-mib",
)

MEASURED = (
    "memory-copy-bytes-per-s",
    "bf16-flop-per-s",
    "bf16-sustained-flop-per-s",
    "fp8-flop-per-s",
    "pinned-to-device-bytes-per-s",
    "pinned-to-host-bytes-per-s",
    "pageable-to-device-bytes-per-s",
    "pageable-to-host-bytes-per-s",
    "peer-copy-bytes-per-s",
    "peer-copy-latency-s",
    "ipc-copy-bytes-per-s",
    "nccl-all-reduce-bus-bytes-per-s",
    "nccl-all-reduce-latency-s",
    "nccl-exchange-bytes-per-s",
    "nixl-1-bytes-per-s",
    "nixl-1024-bytes-per-s",
)
"""What a healthy GPU was seen to reach: the names under `measured:`."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A measured value and the share by which a healthy GPU may be worse (0.05: 5 %)."""

    value: float
    tolerance: float
    origin: Origin


@dataclass(frozen=True, slots=True)
class Measured:
    """Reference values of a type. `names`: what its driver calls exactly the GPUs for which they hold."""

    names: tuple[str, ...]
    figures: dict[str, Reference]


@dataclass(frozen=True, slots=True)
class Figure:
    """What one source says. `where`: the fleet or cloud for which it holds, None for all."""

    value: float
    origin: Origin
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU type with its node. The first figure of a name is the one used; the others are the conflict."""

    name: str
    figures: dict[str, tuple[Figure, ...]]
    sources: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    file: str = ""
    measured: Measured | None = None

    def first(self, name: str) -> float | None:
        """The figure in use; None where no source says one."""
        found = self.figures.get(name, ())
        return found[0].value if found else None

    @property
    def memory_bytes(self) -> int | None:
        """Bytes of one GPU's memory."""
        found = self.first("memory-bytes")
        return None if found is None else int(found)

    @property
    def conflicts(self) -> dict[str, tuple[Figure, ...]]:
        """Figures of which sources say different values for the same place."""
        found = {}
        for name, figures in self.figures.items():
            places = [figure.where for figure in figures]
            if len({figure.value for figure in figures}) > 1 and len(set(places)) < len(places):
                found[name] = figures
        return found


def hardware_folder() -> Path:
    """Where the hardware files lie."""
    return data_folder("hardware")


def known_gpus() -> list[str]:
    """Names of the GPU types, sorted."""
    return sorted({path.stem for path in names_in(hardware_folder()).values()})


def gpu(name: str) -> Gpu:
    """A GPU type by its name; ServemarkError (exit 2) when there is none or its file has errors."""
    folder = hardware_folder()
    path = find_file(folder, name)
    if path is None:
        raise unknown_name("catalog.no_gpu", folder, name, known_gpus())
    return read_gpu(path)


def gpu_of_label(label: str) -> Gpu | None:
    """The GPU type that a cluster's label or a `gpu_type` begins with: `cluster:b300-dsxe` is a B300."""
    bare = label.rpartition(":")[2].lower()
    for name in sorted(known_gpus(), key=len, reverse=True):
        if bare == name or bare.startswith((f"{name}-", f"{name}_")):
            return gpu(name)
    return None


def gpu_of_device(name: str) -> Gpu | None:
    """The GPU type whose measured values hold for a device of this very name (`NVIDIA H200`, not its NVL)."""
    for known in known_gpus():
        found = gpu(known)
        if found.measured is not None and name in found.measured.names:
            return found
    return None


def read_gpu(path: Path) -> Gpu:
    """One hardware file; ServemarkError (exit 2) listing everything wrong with it."""
    problems: list[Problem] = []
    found = gpu_of(read_data(path), problems)
    checked(problems)
    return found


def gpu_of(root: Node, problems: list[Problem]) -> Gpu:
    """The tree of a hardware file; what is wrong is collected."""
    top = Fields(root, problems, "hardware file")
    schema = top.integer("schema", minimum=1, required=True)
    if schema is not None and schema != 1:
        top.problem(top.at("schema"), "catalog.data_schema", schema=schema, known=1)
    name = top.text("name", required=True) or ""
    sources = sources_of(top)
    values = Values(top, "", sources, {})
    figures = {}
    for figure in FIGURES:
        found = tuple(Figure(value, origin, where) for value, origin, where in values.figures(figure))
        if found:
            figures[figure] = found
    if "memory-bytes" not in figures:
        top.missing("memory-bytes")
    measured = _measured(top, sources)
    top.no_others()
    return Gpu(name, figures, sources, root.file, measured)


def _measured(top: Fields, sources: dict[str, str]) -> Measured | None:
    """The `measured:` part; None where there is none."""
    fields = top.mapping("measured", "measured")
    if fields is None:
        return None
    names = fields.texts("names")
    if not names:
        fields.missing("names")
    values = Values(fields, "measured.", sources, {})
    found = {}
    for name in MEASURED:
        inner = fields.mapping(name, name)
        if inner is None:
            continue
        tolerance = inner.number("tolerance")
        value = values.read(inner, name)
        origin = values.origins.get(f"measured.{name}")
        if tolerance is None or not 0 < tolerance < 1:
            inner.missing("tolerance")
        elif origin is not None and value:
            found[name] = Reference(float(value), tolerance, origin)
    fields.no_others()
    return Measured(names, found)
