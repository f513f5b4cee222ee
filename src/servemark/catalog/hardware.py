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
    top.no_others()
    return Gpu(name, figures, sources, root.file)
